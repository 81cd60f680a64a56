"""Which forks cannot change the answer, found before they are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.conduct.prompts import Reach, reach_of
from core.episode import Change, Episode
from core.play.forking import forked_step, keeps_answer
from core.pool.spec import ModelSpec
from ui.presentation.theme import one_line
from ui.runs.plans import ForkPlan


def change_reach(parent: Episode, index: int, change: Change, specs: Sequence[ModelSpec] = ()) -> Reach:
    """How far a change of one turn can get: to the answer, or not."""
    step = forked_step(parent, index)
    if step is None:
        return Reach.NOWHERE if keeps_answer(parent, index, change) else Reach.ANSWER
    return reach_of(step, change, {spec.name: spec.dialect for spec in specs})


def reach_words(plan: ForkPlan, parents: Mapping[str, Episode], specs: Sequence[ModelSpec]) -> str:
    """What has to be said of a plan's forks that cannot change the answer, plain text; empty where all can."""
    found = [
        change_reach(parents[one.parent], one.turn, change, specs)
        for one in plan.branches
        if (change := plan.change_at(one)) is not None
    ]
    short = sum(one is not Reach.ANSWER for one in found)
    if not short:
        return ""
    if len(found) > 1:
        noun = "turns" if plan.every_turn else "episodes"
        return (
            f"In {short} of the {len(found)} {noun} the change cannot reach the answer: nothing of it is sent to a "
            "step that gives the answer, or no turn follows that could give another."
        )
    branch = plan.branches[0]
    parent = parents[branch.parent]
    if not parent.plans:
        answer = f"with the answer {one_line(parent.answer, 40)}" if parent.answer else "without an answer"
        return f"This change cannot change the answer: every fork would end {answer}, as the episode did."
    where = f"turn {branch.turn + 1} says"
    if found[0] is Reach.FALLBACK:
        return (
            f"Nothing that {where} is sent to the step that gave the answer: this change can reach the answer only if "
            "that step, asked again, gives none."
        )
    if found[0] is Reach.SAME:
        return (
            f"Turn {branch.turn + 1} would be sent the same as before, because its model is sent one plan or one "
            "answer at most and is asked by the first word alone: forks and baseline can differ by chance alone."
        )
    return (
        f"Nothing that {where} is sent to the step that gives the answer: this change cannot reach the answer, and "
        "forks and baseline can differ by chance alone."
    )
