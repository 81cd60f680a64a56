"""Chooses the questions to learn on: those that the pool's models disagree on.

Where every rollout of a question succeeds, or every one fails, there is no advantage and nothing is learned. What can
be told before the planner has learned anything: whether single models and random workflows come to both.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.conduct.planners import Conductor, FixedPlanner, random_workflow
from core.draws import derive_seed
from core.episode import Episode, Task
from core.errors import ConfigError
from core.learning import check_answered, play_all
from core.planner.config import LearnConfig
from core.planner.forms import WORDS
from core.play.drive import GradeMany
from core.pool.pool import Pool
from core.workflow import MOST_STEPS, Workflow

#: Questions that are probed at once: enough to fill batches, and not many more than are needed.
_AT_ONCE = 64


def disagreed(
    config: LearnConfig, models: Sequence[str], tasks: Sequence[Task], pool: Pool, grade: GradeMany
) -> list[Task]:
    """The first `config.problems` tasks, in their order, that some probes solve and others do not. ConfigError where
    there are none, PoolError where no model could be asked."""
    kept: list[Task] = []
    for start in range(0, len(tasks), _AT_ONCE):
        some = tasks[start : start + _AT_ONCE]
        solved = _probed(config, tuple(models), some, pool, grade)
        kept += [task for task in some if len(solved[task.id]) > 1]
        if len(kept) >= config.problems:
            break
    if not kept:
        raise ConfigError(
            f"None of the {len(tasks)} questions is solved by some of the pool's models and not by others: nothing can "
            "be learned on them. Choose others, or more probes."
        )
    return kept[: config.problems]


def _probed(
    config: LearnConfig, models: tuple[str, ...], tasks: Sequence[Task], pool: Pool, grade: GradeMany
) -> dict[str, set[bool]]:
    """By task, what its probes came to: True where one was right, False where one was wrong."""
    seed = derive_seed((config.seed, "probes"))
    found: dict[str, set[bool]] = {task.id: set() for task in tasks}
    played: list[Episode] = []
    for number in range(len(models) + config.probes):
        planner = _probe(models, number, f"{config.seed}/probes/{number}")
        episodes = [
            Episode(
                id=f"p{number}-{place}",
                run_id="",
                task=task,
                policy=planner.id,
                models=models,
                turn_budget=MOST_STEPS,
                seed=seed,
            )
            for place, task in enumerate(tasks)
        ]
        played += play_all(episodes, Conductor(planner), pool, grade)
    check_answered(played, "for the choice of questions")
    for one in played:
        if one.correct is not None:
            found[one.task.id].add(one.correct)
    return found


def _probe(models: tuple[str, ...], number: int, key: str) -> FixedPlanner:
    """A single model that solves, for each of the models; after those random workflows."""
    slots = tuple(range(len(models)))
    alone = Workflow((number % len(models),), ("solve",), ((),))
    workflow = alone if number < len(models) else random_workflow(key, slots, WORDS)
    return FixedPlanner(f"conductor:probe:{number}", models, workflow)
