"""Training texts of the pocket models: what each role is sent and what a good model of that role replies."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from core.play import terse
from core.pocket.problem import Problem
from core.pocket.tasks import draw_problems

#: What a model can be asked to do. `follow` is a Worker with a plan, `solve` a Worker without one.
Skill = Literal["think", "solve", "follow", "check"]


@dataclass(frozen=True, slots=True)
class Exercise:
    """One prompt, as `core.play.terse` writes it, and the reply to learn."""

    prompt: str
    reply: str


def exercise(problem: Problem, skill: Skill, rng: random.Random) -> Exercise:
    """Turn a problem into an exercise. Half of the answers to check are right, half plausibly wrong."""
    if skill == "think":
        return Exercise(terse.think_prompt(problem.question), problem.plan)
    if skill == "solve":
        return Exercise(terse.work_prompt(problem.question), terse.answer_reply(problem.answer))
    if skill == "follow":
        return Exercise(terse.work_prompt(problem.question, problem.plan), terse.answer_reply(problem.answer))
    right = rng.random() < 0.5 or not problem.decoys
    shown = problem.answer if right else rng.choice(problem.decoys)
    return Exercise(terse.check_prompt(problem.question, shown), judgement(problem, shown))


def judgement(problem: Problem, shown: str) -> str:
    """A judge's whole reply: the problem worked out, the answer to judge, then the verdict."""
    return f"{problem.working} given {shown} {'ACCEPT' if shown == problem.answer else 'REVISE'}"


def exercises(mix: Mapping[tuple[str, Skill], float], seed: int) -> Iterator[Exercise]:
    """An endless stream of exercises from the train split; `mix` weighs (family, skill) pairs."""
    rng = random.Random(f"exercises/{seed}")
    pairs, weights = list(mix), list(mix.values())
    streams = {family: draw_problems(family, "train", seed) for family, _ in pairs}
    while True:
        family, skill = rng.choices(pairs, weights)[0]
        yield exercise(next(streams[family]), skill, rng)
