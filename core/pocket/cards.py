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

from core.episode import Grade, Role, Task
from core.errors import ConfigError
from core.play import terse
from core.play.drive import GradeMany, settled
from core.pocket import ENCODER, FAMILIES, WEIGHTS
from core.pocket.families import BY_NAME
from core.pocket.recipes import Recipe
from core.pocket.specs import MAX_TOKENS, pocket_spec
from core.pocket.tasks import draw_problems
from core.pocket.transcripts import training_transcripts
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
    from core.pocket.language_model import LanguageModel

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
    questions = [terse.think_prompt(p.question) for p in problems]
    plans = _ask(model, questions, "think", spec.temperature_in(Role.THINKER))

    grader = BY_NAME[family].grader

    def solved(prompts: Sequence[str], key: str) -> float:
        replies = _ask(model, prompts, key, spec.temperature_in(Role.WORKER))
        grades = [
            Grade(
                Task(f"{i}", one.question, one.answer, grader, family, "validation"), terse.read_answer(reply)
            )
            for i, (one, reply) in enumerate(zip(problems, replies, strict=True))
        ]
        return fmean(settled(grade(grades)))

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
