"""Model cards: what a pocket model is, how it was trained and what it was measured to do, skill by skill."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from core.episode import ROLE_ORDER, Role
from core.errors import ConfigError
from core.play import terse
from core.pocket import FAMILIES, WEIGHTS
from core.pocket.recipes import Recipe
from core.pocket.specs import MAX_TOKENS, pocket_spec
from core.pocket.tasks import draw_problems
from core.pool.spec import ModelSpec

if TYPE_CHECKING:
    from core.pocket.language_model import LanguageModel

CARD = "card.json"
#: Validation problems of each family that a model is measured on.
PROBLEMS = 200


@dataclass(frozen=True, slots=True)
class Skills:
    """Shares in [0, 1] over `n` validation problems of one family, sampled.

    `plan` exactly the taught plan; `direct`, `own_plan`, `good_plan` right answers without a plan, with the model's
    own and with the taught one; `accept_right` and `revise_wrong` verdicts on right and plausibly wrong answers."""

    family: str
    n: int
    plan: float
    direct: float
    own_plan: float
    good_plan: float
    accept_right: float
    revise_wrong: float


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


def measure_skills(model: LanguageModel, family: str, spec: ModelSpec) -> Skills:
    """Play validation problems of `family` through every skill of one model, sampling as its pool entry says."""
    problems = list(islice(draw_problems(family, "validation", 0), PROBLEMS))
    rng = random.Random(0)
    questions = [terse.think_prompt(p.question) for p in problems]
    plans = _ask(model, questions, "think", spec.temperature_in(Role.THINKER))

    def solved(prompts: Sequence[str], key: str) -> float:
        replies = _ask(model, prompts, key, spec.temperature_in(Role.WORKER))
        return fmean(terse.read_answer(r) == p.answer for r, p in zip(replies, problems, strict=True))

    def judged(shown: Sequence[str], verdict: str) -> float:
        prompts = [terse.check_prompt(p.question, a) for p, a in zip(problems, shown, strict=True)]
        replies = _ask(model, prompts, verdict, spec.temperature_in(Role.VERIFIER))
        return fmean(terse.read_verdict(reply) == verdict for reply in replies)

    planned = list(zip(problems, plans, strict=True))
    wrong = [rng.choice(p.decoys) for p in problems]
    return Skills(
        family,
        PROBLEMS,
        plan=fmean(a == p.plan for p, a in planned),
        direct=solved([terse.work_prompt(p.question) for p in problems], "solve"),
        own_plan=solved([terse.work_prompt(p.question, a) for p, a in planned], "own"),
        good_plan=solved([terse.work_prompt(p.question, p.plan) for p in problems], "follow"),
        accept_right=judged([p.answer for p in problems], "ACCEPT"),
        revise_wrong=judged(wrong, "REVISE"),
    )


def _ask(model: LanguageModel, prompts: Sequence[str], key: str, temperature: float) -> list[str]:
    keys = [f"{key}/{index}" for index in range(len(prompts))]
    return [one.text for one in model.write(prompts, keys, temperature=temperature, max_tokens=MAX_TOKENS)]
