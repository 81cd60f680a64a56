"""How the tasks of a run are graded: at once where that is quick, in the background where mathematics is compared, or
programs or functions of the user's own are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from core.episode import Failure, Grade, Task
from core.errors import TaskError
from core.grader_names import own_grader
from core.play.drive import GradeMany, PendingVerdict
from core.tasks.background import BACKGROUND
from core.tasks.bubblewrap import NoSandbox, check_sandbox
from core.tasks.graders import grade_many
from core.tasks.mathematics import mathematics_verdict
from core.tasks.own_graders import OwnFunction
from core.tasks.programs import passes

#: Which function of the user's own may grade which task.
OwnFunctions = Mapping[Task, OwnFunction]
NO_OWN: OwnFunctions = MappingProxyType({})


def grading_of(tasks: Sequence[Task], own: OwnFunctions = NO_OWN, processes: int | None = None) -> GradeMany:
    """The grading of these tasks, mathematics in so many `processes` at most (None: one for each core). TaskError,
    before anything is played, for programs where there is no sandbox, and for a function that is not among those that
    may be called."""
    if any(task.grader == "program" for task in tasks):
        check_sandbox()
    for task in tasks:
        if own_grader(task.grader) and task not in own:
            raise TaskError(_may_not_be_called(task))
    return _Grading(own, processes)


@dataclass(frozen=True, eq=False)
class _Grading:
    """Grades answers; what functions of the user's own say of the same answer is asked once, and not for the next run:
    they may depend on more than their file."""

    own: OwnFunctions
    processes: int | None = None

    def __call__(self, grades: Sequence[Grade]) -> list[bool | Failure | PendingVerdict]:
        slow = {
            place: found for place, grade in enumerate(grades) if (found := self._slow(grade)) is not None
        }
        quick = iter(grade_many([grade for place, grade in enumerate(grades) if place not in slow]))
        return [slow[place] if place in slow else next(quick) for place in range(len(grades))]

    def _slow(self, grade: Grade) -> bool | Failure | PendingVerdict | None:
        """The verdict of what is run in the background; None for all else."""
        task, said = grade.task, grade.answer
        if task.grader == "program":
            return BACKGROUND.verdict((task.answer, said), partial(_passes, said, task.answer))
        if task.grader == "math":
            return mathematics_verdict(said, task.answer, self.processes)
        if own_grader(task.grader) is None:
            return None
        if (function := self.own.get(task)) is None:
            return Failure("infrastructure", _may_not_be_called(task))
        key = (self, task.question, task.answer, said, function)
        return BACKGROUND.verdict(key, partial(function.grade, said, task.answer, task.question))


def _passes(said: str, tests: str) -> bool | Failure:
    try:
        return passes(said, tests)
    except NoSandbox as error:
        return Failure("infrastructure", str(error))


def _may_not_be_called(task: Task) -> str:
    return (
        f"Task {task.id} is graded by {task.grader}, which is called only in runs that are begun here with its task "
        "file, and as long as neither file changes: begin such a run with --tasks FILE.jsonl."
    )
