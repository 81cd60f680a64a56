"""Training texts of the pocket world: for its models what each role is sent and what a good model replies; for its
encoder whole transcripts in the coordinator's input format, to be read as next tokens.

Transcripts hold what roles say, right and wrong, under random model names. No family label and no success rate is in
them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from core.episode import ROLE_ORDER, Role
from core.play.roles import terse_prompt
from core.pocket import FAMILIES, MODELS
from core.pocket.families import Problem
from core.pocket.tasks import draw_problems
from core.tokens.formats import GENERATION_SUFFIX, TURN_END, TURN_START

#: What a model can be asked to do. `follow` is a Worker with a plan, `solve` a Worker without one.
Skill = Literal["think", "solve", "follow", "check"]


@dataclass(frozen=True, slots=True)
class Exercise:
    """One prompt, as `core.play.roles` writes it, and the reply to learn."""

    prompt: str
    reply: str


def exercise(problem: Problem, skill: Skill, rng: random.Random) -> Exercise:
    """Turn a problem into an exercise. Half of the answers to check are right, half plausibly wrong."""
    question = problem.question
    if skill == "think":
        return Exercise(terse_prompt(Role.THINKER, question), problem.plan)
    if skill != "check":
        plan = problem.plan if skill == "follow" else ""
        return Exercise(terse_prompt(Role.WORKER, question, plan), f"answer {problem.answer}")
    right = rng.random() < 0.5 or not problem.decoys
    shown = problem.answer if right else rng.choice(problem.decoys)
    return Exercise(terse_prompt(Role.VERIFIER, question, answer=shown), judgement(problem, shown))


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


#: Turns a transcript may already have when the next one is written.
MOST_PAST_TURNS = 4


def training_transcripts(seed: int, split: str = "train") -> Iterator[str]:
    """An endless stream of transcripts over all families of a split, special tokens written out.

    The generation suffix stands before the last reply. Half of the time its closing newlines are left out, so that
    the state read by the coordinator, at the penultimate token, has to predict what follows: that reply, or, half of
    the time, first a recap of who spoke last. Without the recap nothing in random transcripts depends on who spoke
    last, and a trial encoder forgot it."""
    rng = random.Random(f"transcripts/{seed}")
    streams = [draw_problems(family, split, seed) for family in FAMILIES]
    while True:
        problem = next(rng.choice(streams))
        text = f"{TURN_START}user\n{problem.question}{TURN_END}\n"
        answer: str | None = None
        speaker = "question"
        for _ in range(rng.randint(0, MOST_PAST_TURNS)):
            role = rng.choice(ROLE_ORDER)
            reply, answer = _turn(problem, role, answer, rng)
            speaker = f"{role} {rng.choice(MODELS)}"
            text += f"{TURN_START}{speaker}\n{reply}{TURN_END}\n"
        reply, _ = _turn(problem, rng.choice(ROLE_ORDER), answer, rng)
        suffix = GENERATION_SUFFIX if rng.random() < 0.5 else GENERATION_SUFFIX.removesuffix("\n\n")
        recap = f"{speaker}\n" if rng.random() < 0.5 else ""
        yield f"{text}{suffix}{recap}{reply}{TURN_END}"


def _turn(problem: Problem, role: Role, answer: str | None, rng: random.Random) -> tuple[str, str | None]:
    """What a turn says, and the latest answer after it. A Verifier with nothing to judge says nothing."""
    if role is Role.THINKER:
        return problem.plan, answer
    if role is Role.WORKER:
        given = problem.answer if rng.random() < 0.5 else rng.choice(problem.decoys)
        return f"answer {given}", given
    if answer is None:
        return "", None
    return judgement(problem, answer), answer
