"""The step of a workflow that is forked: what stays as it was, what is asked anew, and the workflow with the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from core.changes import Change
from core.episode import Episode, Plan, Reply, Turn, Usage
from core.errors import ConfigError
from core.finish import EDITED
from core.workflow import AccessMode, PlanFault, Workflow

T = TypeVar("T")
_NEVER_PLANNED = "Turn {} of episode {} is a step of a workflow that is not recorded: it cannot be forked."
_IN_VAIN = "is a call in vain for a step that another model did: fork turn {}, which is that step."


@dataclass(frozen=True, slots=True)
class ForkedStep:
    """A step of a recorded episode and the workflow that it is part of. Turns are numbered from 0."""

    parent: Episode
    index: int
    workflow: Workflow
    round: int
    place: int

    @property
    def first(self) -> int:
        """The turn with which its round begins."""
        return self.index - self.place

    @property
    def anew(self) -> tuple[int, ...]:
        """The turns that are asked again: the step's, those of all that read it, directly or through others, and what
        an interrupted episode had not finished."""
        dependent = {self.place, *self.workflow.readers(self.place)}
        recorded = {turn.index for turn in self.parent.turns}
        turns = range(self.first, self.first + len(self.workflow))
        return tuple(turn for turn in turns if turn - self.first in dependent or turn not in recorded)

    @property
    def kept(self) -> tuple[Turn, ...]:
        """The recorded turns that are not asked again: of earlier rounds, and of steps that do not read this one."""
        end, anew = self.first + len(self.workflow), self.anew
        return tuple(turn for turn in self.parent.turns if turn.index < end and turn.index not in anew)

    def plans(self, change: Change | None) -> tuple[Plan, ...]:
        """The plans that a child runs: those of the parent up to this round, the last one with the change."""
        plans = [plan for plan in self.parent.plans if plan.round <= self.round]
        return (*plans[:-1], replace(plans[-1], workflow=self.changed(change)))

    def carried(self, change: Change | None) -> dict[int, Turn]:
        """The turns after this one that a child takes over, whose replies nobody is asked or pays for again, and this
        one where the change writes its reply by hand."""
        turns = {one.index: one for one in self.kept if one.index > self.index}
        found = {index: replace(one, reply=one.reply.as_reused()) for index, one in turns.items()}
        if change is not None and change.by_hand:
            reply = Reply(change.value, "", EDITED, Usage(0, 0, 0.0))
            own = self.parent.turns[self.index]
            found[self.index] = replace(own, reply=reply, answer_after=None, correct_after=None)
        return found

    def changed(self, change: Change | None) -> Workflow:
        """The workflow with the change. ConfigError, one sentence, for one that makes it illegal."""
        workflow, place = self.workflow, self.place
        match change:
            case Change("model", name):
                return workflow.done_by(_with(workflow.models, place, self.parent.models.index(name)))
            case Change("subtask", text):
                return replace(workflow, subtasks=_with(workflow.subtasks, place, text.strip()))
            case Change("access", text):
                found = replace(workflow, reads=_with(workflow.reads, place, self._places(text)))
                if (fault := found.fault) is not None:
                    raise ConfigError(_illegal(fault, found, self.first))
                return found
        return workflow

    def access(self) -> str:
        """Which turns of its round it may read, as a change says it."""
        return ",".join(str(self.first + earlier + 1) for earlier in self.workflow.reads[self.place])

    def _places(self, text: str) -> tuple[int, ...]:
        """The steps that a change of access names by their turns. ConfigError for any but earlier ones of its round."""
        allowed = range(self.first + 1, self.index + 1)
        numbers = [one.strip() for one in text.split(",")] if text.strip() else []
        if not all(one.isdecimal() and len(one) < 6 for one in numbers):
            raise ConfigError(f"An access list names earlier turns, such as 1,2: '{text}' does not.")
        if beyond := [one for one in numbers if int(one) not in allowed]:
            raise ConfigError(f"Turn {self.index + 1} cannot read turn {beyond[0]}: {_choice_of(allowed)}")
        return tuple(sorted({int(one) - 1 - self.first for one in numbers}))


def forked_step(parent: Episode, index: int) -> ForkedStep | None:
    """The step that turn `index` is, in the workflow as it was done; None for a turn that a coordinator decided.
    ConfigError where the workflow is not recorded, and for a call in vain."""
    step = parent.turns[index].step
    if step is None and not parent.plans:
        return None
    workflows = [plan.workflow for plan in parent.plans if step and plan.round == step.round]
    if step is None or not workflows or workflows[-1] is None:
        raise ConfigError(_NEVER_PLANNED.format(index + 1, parent.id))
    if why := why_in_vain(parent, index):
        raise ConfigError(f"Turn {index + 1} of episode {parent.id} {why}")
    workflow = as_done(workflows[-1], step.round, parent.models, parent.turns)
    return ForkedStep(parent, index, workflow, step.round, step.place)


def as_done(workflow: Workflow, round_: int, models: Sequence[str], turns: Sequence[Turn]) -> Workflow:
    """A round's workflow with the models that did its steps, as far as these are over: where one could not be asked,
    another one than planned. `models`: those of the episode."""
    done = {
        turn.step.place: models.index(turn.decision.model)
        for turn in turns
        if turn.step is not None and turn.step.round == round_ and turn.counts
    }
    return workflow.done_by(tuple(done.get(place, slot) for place, slot in enumerate(workflow.models)))


def why_in_vain(parent: Episode, index: int) -> str:
    """Why a turn cannot be forked that is a workflow's call in vain; empty for any other."""
    step = parent.turns[index].step
    if step is None or parent.turns[index].counts:
        return ""
    same = ((one.index, one.step) for one in parent.turns if one.step is not None and one.counts)
    at = (found for found, one in same if (one.round, one.place) == (step.round, step.place))
    return _IN_VAIN.format(next(at, index) + 1)


def _with(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _choice_of(turns: range) -> str:
    if not turns:
        return "it is the first step of its workflow, which reads nothing but the problem."
    return f"choose among {', '.join(map(str, turns))}, or none."


def _illegal(fault: PlanFault, workflow: Workflow, first: int) -> str:
    """Why the form in which the planner writes does not allow it."""
    if fault is PlanFault.DEAD_STEP:
        read = set().union(*workflow.reads)
        dead = next(step for step in range(len(workflow) - 1) if step not in read)
        return (
            f"Then no step would read turn {first + dead + 1}, which this planner's workflows do not allow."
        )
    if workflow.mode is AccessMode.BINARY:
        return "In this planner's workflows a step reads all earlier ones or none."
    return "In this planner's workflows a step reads all earlier answers of a model or none of them."
