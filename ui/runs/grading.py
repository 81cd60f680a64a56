"""How a run's answers are graded, and whose code may do it: functions of one's own only from task files that a person
named on this machine.

Naming a task file for a run leaves a mark in the data folder, for this file and this store. Without it, nothing that
came in with an import and nothing that a stranger's run says makes a file of this machine be loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from core.episode import Episode, Task
from core.errors import ConfigError, StoreError
from core.grader import own_grader
from core.play.drive import GradeMany
from core.settings import LOCAL_ENGINE
from core.tasks.graders import grading_of
from core.tasks.own_graders import OwnFunction
from core.tasks.sets import own_functions
from storage.reads import forks
from storage.store import Store
from ui.runs import wiring
from ui.runs.plans import LivePlan, known_plan
from ui.runs.settings import absolute_tasks, is_recorded
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan


def name_task_file(store: Store, tasks: str) -> None:
    """A person names this task set for a run in this store: the functions that its file names may be called from now
    on. ConfigError when that cannot be remembered."""
    if own_functions(tasks):
        mark = _mark(store, tasks)
        try:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        except OSError as error:
            raise ConfigError(
                f"Your permission to grade {tasks} by your own functions cannot be kept: {mark.parent} cannot "
                f"be written ({error.strerror})."
            ) from None


def grading(store: Store, tasks: Sequence[Task], *sets: str, engine: str = LOCAL_ENGINE) -> GradeMany:
    """How tasks of these sets are graded in this store by an engine. TaskError for what cannot be graded."""
    own: dict[Task, OwnFunction] = {}
    if any(own_grader(task.grader) for task in tasks):
        for one in dict.fromkeys(sets):
            own |= own_functions(one) if _mark(store, one).exists() else {}
    graded = grading_of(tasks, own, wiring.settings().processes, wiring.processes(engine))
    for one in dict.fromkeys(filter(is_recorded, sets)):  # most answers have been graded before
        from core.outcomes.pool import recorded_grading
        from core.outcomes.table import load_table

        graded = recorded_grading(load_table(one), graded)
    return graded


def grading_of_episodes(store: Store, episodes: Iterable[Episode], engine: str = LOCAL_ENGINE) -> GradeMany:
    """How what goes on from these episodes is graded, as the runs that they were played in are, by an engine."""
    every = [*episodes]
    own = (one for one in every if own_grader(one.task.grader))
    sets = (name for one in own for name in _sets_behind(store, one))
    return grading(store, [one.task for one in every], *sets, engine=engine)


def _sets_behind(store: Store, episode: Episode) -> list[str]:
    """The task sets of the run that an episode, or the one that it was forked from, was played in; none where one of
    them is imported."""
    seen: set[str] = set()
    while episode.id not in seen:
        seen.add(episode.id)
        try:
            run = store.runs.get(episode.run_id)
        except StoreError:
            return []
        if run.heartbeat is None:  # an imported run was never alive here
            return []
        match known_plan(run):
            case BatchPlan() | EvolutionPlan() | TrainingPlan() | LivePlan() as plan:
                return [plan.tasks]
        parents = forks.parents(store, [episode.fork.parent]) if episode.fork else {}
        episode = next(iter(parents.values()), episode)
    return []


def _mark(store: Store, tasks: str) -> Path:
    """An empty file whose name tells store and task file."""
    named = hashlib.sha256(f"{store.address}\n{absolute_tasks(tasks)}".encode()).hexdigest()[:16]
    return wiring.data_folder() / "graders" / named
