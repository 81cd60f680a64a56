"""Measures a pocket model skill by skill: direct, with its own plan, with a good plan, planning and judging."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from core.episode import Role
from core.play import terse
from core.pocket.specs import MAX_TOKENS
from core.pocket.tasks import draw_problems
from core.pool.spec import ModelSpec

if TYPE_CHECKING:
    from core.pocket.language_model import LanguageModel


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


def measure_skills(model: LanguageModel, family: str, spec: ModelSpec, n: int = 200) -> Skills:
    """Play `n` validation problems of `family` through every skill of one model, sampling as its pool entry says."""
    problems = list(islice(draw_problems(family, "validation", 0), n))
    rng = random.Random(0)
    plans = _ask(
        model, [terse.think_prompt(p.question) for p in problems], "think", spec.temperature_in(Role.THINKER)
    )

    def solved(prompts: Sequence[str], key: str) -> float:
        replies = _ask(model, prompts, key, spec.temperature_in(Role.WORKER))
        return _share(terse.read_answer(r) == p.answer for r, p in zip(replies, problems, strict=True))

    def judged(shown: Sequence[str], verdict: str) -> float:
        prompts = [terse.check_prompt(p.question, a) for p, a in zip(problems, shown, strict=True)]
        replies = _ask(model, prompts, verdict, spec.temperature_in(Role.VERIFIER))
        return _share(terse.read_verdict(reply) == verdict for reply in replies)

    wrong = [rng.choice(p.decoys) for p in problems]
    return Skills(
        family,
        n,
        plan=_share(a == p.plan for a, p in zip(plans, problems, strict=True)),
        direct=solved([terse.work_prompt(p.question) for p in problems], "solve"),
        own_plan=solved(
            [terse.work_prompt(p.question, a) for p, a in zip(problems, plans, strict=True)], "own"
        ),
        good_plan=solved([terse.work_prompt(p.question, p.plan) for p in problems], "follow"),
        accept_right=judged([p.answer for p in problems], "ACCEPT"),
        revise_wrong=judged(wrong, "REVISE"),
    )


def _ask(model: LanguageModel, prompts: Sequence[str], key: str, temperature: float) -> list[str]:
    keys = [f"{key}/{index}" for index in range(len(prompts))]
    return [one.text for one in model.write(prompts, keys, temperature=temperature, max_tokens=MAX_TOKENS)]


def _share(hits: Iterable[bool]) -> float:
    values = list(hits)
    return sum(values) / len(values)
