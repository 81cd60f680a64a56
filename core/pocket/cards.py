"""Model cards: what a pocket model is, how it was trained and what it was measured to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from core.episode import ROLE_ORDER
from core.errors import ConfigError
from core.pocket import FAMILIES, WEIGHTS
from core.pocket.measure import Skills, measure_skills
from core.pocket.recipes import Recipe
from core.pocket.specs import pocket_spec

CARD = "card.json"


@dataclass(frozen=True, slots=True)
class Card:
    """One model's card. `mix` is the share of each (family, skill) pair in the training data; `temperatures` are
    what it samples at in each role, in the pool and in the measurements of `skills`."""

    name: str
    purpose: str
    parameters: int
    bytes: int
    recipe: dict[str, object]
    mix: dict[str, float]
    training_s: float
    temperatures: dict[str, float]
    skills: tuple[Skills, ...]


def measure_card(recipe: Recipe, folder: Path, training_s: float) -> Iterator[Skills | Card]:
    """Measure a trained chat model family by family, write its card beside the weights and yield it last."""
    from core.pocket.language_model import LanguageModel

    model, spec = LanguageModel.load(folder), pocket_spec(recipe.name)
    skills = []
    for family in FAMILIES:
        skills.append(measure_skills(model, family, spec))
        yield skills[-1]
    plain = asdict(recipe)
    total = sum(recipe.mix.values())
    card = Card(
        name=recipe.name,
        purpose=recipe.purpose,
        parameters=sum(parameter.numel() for parameter in model.model.parameters()),
        bytes=(folder / "model.safetensors").stat().st_size,
        recipe={key: value for key, value in plain.items() if key not in ("name", "purpose", "mix")},
        mix={f"{family}/{skill}": round(weight / total, 4) for (family, skill), weight in recipe.mix.items()},
        training_s=round(training_s, 1),
        temperatures={str(role): spec.temperature_in(role) for role in ROLE_ORDER},
        skills=tuple(skills),
    )
    (folder / CARD).write_text(json.dumps(asdict(card), indent=1) + "\n")
    yield card


def read_card(name: str) -> Card:
    """The card of a shipped model; ConfigError when it has none."""
    path = WEIGHTS / name / CARD
    if not path.exists():
        raise ConfigError(f"There is no card for '{name}' at {path}: run 'trinity pocket train {name}'.")
    data = json.loads(path.read_text())
    return Card(**{**data, "skills": tuple(Skills(**row) for row in data["skills"])})
