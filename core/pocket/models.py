"""The pocket models: their pool entries, recorded training recipes and cards, which say what was measured, skill by
skill. torch is not needed to read any of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from core.episode import Grade, Role, Task
from core.errors import ConfigError
from core.play.drive import GradeMany
from core.play.judging import final_verdicts
from core.play.roles import terse_answer, terse_prompt, terse_verdict
from core.pocket import ENCODER, FAMILIES, WEIGHTS
from core.pocket.corpus import Skill, training_transcripts
from core.pocket.tasks import BY_NAME, draw_problems
from core.pool.spec import ModelSpec

#: What each model samples at, in every role: the temperature at which it does best alone, at its best cycle of roles,
#: on validation tasks (`trinity pocket temperatures` measures it). Frozen before any test task was drawn.
TEMPERATURES = {
    "atlas": 0.25,
    "abacus": 0.25,
    "plato": 0.25,
    "sage": 0.25,
    "themis": 0.75,
    "jack": 0.5,
    "pip": 0.25,
}

#: Who plans, who works and who judges, by trained family: the team of somebody who knows what the models were taught.
#: It is a ceiling to compare with; nothing that learns is told of it.
TEAMS = {
    "math": ("atlas", "abacus", "themis"),
    "logic": ("plato", "sage", "themis"),
    "knowledge": ("plato", "sage", "themis"),
    "code": ("atlas", "abacus", "themis"),
}

MAX_TOKENS = 64


def pocket_spec(name: str) -> ModelSpec:
    """The pool entry of one pocket model. It runs here, so it costs nothing."""
    return ModelSpec(
        name=name,
        model=f"pocket/{name}",
        provider="pocket",
        dialect="terse",
        temperature=TEMPERATURES.get(name, 1.0),  # a name that is none is refused by the pool
        max_tokens=MAX_TOKENS,
        price_in=0.0,
        price_out=0.0,
    )


Mix = dict[tuple[str, Skill], float]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model is trained. `mix` weighs (family, skill) pairs; `peak_rate` is the highest learning rate."""

    name: str
    purpose: str
    mix: Mix = field(default_factory=dict)
    steps: int = 4000
    width: int = 128
    layers: int = 3
    batch: int = 48
    peak_rate: float = 5e-3
    seed: int = 0


def mixed(families: Mapping[str, float], skills: Mapping[Skill, float]) -> Mix:
    """Independent weights for families and skills, multiplied."""
    return {
        (family, skill): a * b for family, a in families.items() for skill, b in skills.items() if a * b > 0
    }


def _favour(**favourites: float) -> dict[str, float]:
    """Family weights: the favourites as given, a little of each other."""
    return {**dict.fromkeys(FAMILIES, 0.025), **favourites}


# Skills are taught apart: no model plans, computes and judges well, and a coordinator has something to put together.
EVEN: dict[Skill, float] = {"think": 0.3, "solve": 0.1, "follow": 0.35, "check": 0.25}

_PROGRAMS = _favour(math=0.25, code=0.55, units=0.05, sequences=0.05)
_NUMBERS = _favour(math=0.4, code=0.4, units=0.05, sequences=0.05)
_WORDS = _favour(logic=0.55, knowledge=0.25, dates=0.05, sets=0.05)
_ALL = _favour(math=0.22, code=0.2, logic=0.28, knowledge=0.2)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("atlas", "plans computations", mixed(_PROGRAMS, {"think": 0.85, "solve": 0.15}), 3000, seed=2),
        Recipe(
            "abacus", "computes by a plan", mixed(_NUMBERS, {"follow": 0.85, "solve": 0.15}), 3250, seed=3
        ),
        Recipe(
            "plato",
            "plans orderings and recalls facts",
            mixed(_WORDS, {"think": 0.9, "solve": 0.1}),
            2500,
            seed=4,
        ),
        Recipe(
            "sage", "answers by a plan in words", mixed(_WORDS, {"follow": 0.9, "solve": 0.1}), 2750, seed=5
        ),
        Recipe("themis", "judges answers", mixed(_ALL, {"check": 0.92, "solve": 0.08}), 6000, seed=6),
        Recipe("jack", "a bit of everything", mixed(dict.fromkeys(FAMILIES, 1.0), EVEN), 6000, seed=7),
        Recipe("pip", "too small for most of it", mixed(_ALL, EVEN), 1500, width=64, layers=2, seed=8),
        Recipe(ENCODER, "reads the transcript; not in the pool", steps=1000, width=96, batch=32, seed=9),
    )
}


if TYPE_CHECKING:
    from core.pocket.pool import LanguageModel

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
    """One model's card. `mix` is the share of each (family, skill) pair in the training data; `temperature` is what it
    samples at, in the pool and in the measurements of `skills`. The encoder's has no skills but a `loss`: its mean
    cross-entropy (nats per token) on transcripts of validation problems."""

    name: str
    purpose: str
    parameters: int
    bytes: int
    recipe: dict[str, object]
    mix: dict[str, float]
    training_s: float
    temperature: float | None
    skills: tuple[Skills, ...]
    loss: float | None = None


def measure_card(
    recipe: Recipe, folder: Path, training_s: float, grade: GradeMany
) -> Iterator[Skills | Card]:
    """Measure a trained model family by family, write its card beside the weights and yield it last."""
    from core.pocket.pool import LanguageModel

    model, spec = LanguageModel.load(folder), pocket_spec(recipe.name)
    skills, loss = [], None
    if recipe.name == ENCODER:
        loss = _transcript_loss(model)
    else:
        for family in FAMILIES:
            skills.append(measure_skills(model, family, spec, grade))
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
        temperature=None if recipe.name == ENCODER else spec.temperature,
        skills=tuple(skills),
        loss=loss,
    )
    (folder / CARD).write_text(json.dumps(asdict(card), indent=1) + "\n")
    yield card


def _transcript_loss(model: LanguageModel) -> float:
    """Mean cross-entropy per token over PROBLEMS transcripts of validation problems."""
    import torch

    total, n = 0.0, 0
    for text in islice(training_transcripts(0, "validation"), PROBLEMS):
        ids = torch.tensor([model.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids])
        with torch.inference_mode():
            logits = model.model(input_ids=ids, use_cache=False).logits[0, :-1]
        total += float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
        n += ids.shape[1] - 1
    return total / n


def read_card(name: str) -> Card:
    """The card of a shipped model; ConfigError when it has none."""
    path = WEIGHTS / name / CARD
    if not path.exists():
        raise ConfigError(f"There is no card for '{name}' at {path}: run 'trinity pocket train {name}'.")
    data = json.loads(path.read_text())
    return Card(**{**data, "skills": tuple(Skills(**row) for row in data["skills"])})


def measure_skills(model: LanguageModel, family: str, spec: ModelSpec, grade: GradeMany) -> Skills:
    """Play validation problems of `family` through every skill of one model, sampling as its pool entry says."""
    problems = list(islice(draw_problems(family, "validation", 0), PROBLEMS))
    rng = random.Random(0)
    questions = [terse_prompt(Role.THINKER, p.question) for p in problems]
    plans = _ask(model, questions, "think", spec.temperature_in(Role.THINKER))

    grader = BY_NAME[family].grader

    def solved(prompts: Sequence[str], key: str) -> float:
        replies = _ask(model, prompts, key, spec.temperature_in(Role.WORKER))
        grades = [
            Grade(Task(f"{i}", one.question, one.answer, grader, family, "validation"), terse_answer(reply))
            for i, (one, reply) in enumerate(zip(problems, replies, strict=True))
        ]
        return fmean(final_verdicts(grade(grades)))

    def judged(shown: Sequence[str], verdict: str) -> float:
        prompts = [
            terse_prompt(Role.VERIFIER, p.question, answer=a) for p, a in zip(problems, shown, strict=True)
        ]
        replies = _ask(model, prompts, verdict, spec.temperature_in(Role.VERIFIER))
        return fmean(terse_verdict(reply) == verdict for reply in replies)

    planned = list(zip(problems, plans, strict=True))
    wrong = [rng.choice(p.decoys) for p in problems]
    return Skills(
        family,
        PROBLEMS,
        plan=fmean(a == p.plan for p, a in planned),
        direct=solved([terse_prompt(Role.WORKER, p.question) for p in problems], "solve"),
        own_plan=solved([terse_prompt(Role.WORKER, p.question, a) for p, a in planned], "own"),
        good_plan=solved([terse_prompt(Role.WORKER, p.question, p.plan) for p in problems], "follow"),
        accept_right=judged([p.answer for p in problems], "ACCEPT"),
        revise_wrong=judged(wrong, "REVISE"),
    )


def _ask(model: LanguageModel, prompts: Sequence[str], key: str, temperature: float) -> list[str]:
    keys = [f"{key}/{index}" for index in range(len(prompts))]
    return [one.text for one in model.write(prompts, keys, temperature=temperature, max_tokens=MAX_TOKENS)]
