"""Teaches a planner by reinforcement on real episodes, one yielded iteration after the other.

Stopping is closing the generator; from a state that was yielded it goes on to the same end, on one CPU thread bit for
bit: an iteration depends on the settings, the seed and the state before it, and on nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.episode import Task
from core.errors import ConfigError
from core.planner.config import LearnConfig
from core.planner.grpo import check_installed, learn_from, new_optimiser
from core.planner.planner import LanguagePlanner
from core.planner.questions import disagreed
from core.planner.rollouts import check_answered, readable_freely, roll_out, validate
from core.planner.state import PlannerState, restore, state_of
from core.planner.statistics import IterationStats, statistics_of
from core.play.drive import GradeMany
from core.pool.cache import CachedPool
from core.pool.pool import Pool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Iteration(IterationStats):
    """One finished iteration; number 0 is the start. `planner` is a checkpoint of its own, and `state` all that is
    needed to go on; both are there when they are due (`LearnConfig.save_every`), after the last and at the start."""

    planner: LanguagePlanner | None = None
    state: PlannerState | None = None


def learn(
    config: LearnConfig,
    start: LanguagePlanner,
    *,
    pool: Pool,
    grade: GradeMany,
    tasks: Sequence[Task],
    validation_tasks: Sequence[Task] = (),
    state: PlannerState | None = None,
    run: str = "",
) -> Iterator[Iteration]:
    """Yield iteration 0 (the start, validated) and then each finished iteration, up to `config.iterations`.

    `start` is a planner after its warm-up, of which a copy learns; of `tasks` the questions are kept that the pool's
    models disagree on. With `state`, of an iteration that was yielded, the next is the one after it. Equal calls are
    shared; a `pool` that is a CachedPool does that by itself. `run` is noted in the checkpoints. ConfigError for parts
    that do not fit, PoolError when no model could be asked for a whole iteration."""
    check_installed()
    models = tuple(spec.name for spec in pool.specs)
    start.card.check_pool(tuple(name for name in models if name in start.models))
    shared = pool if isinstance(pool, CachedPool) else CachedPool(pool)
    planner = start.frozen(temperature=config.temperature, constrained=config.constrained)
    optimiser = new_optimiser(planner, config)

    def finished(iteration: Iteration) -> Iteration:
        """With validation, checkpoint and state, as far as they are due."""
        index = iteration.index
        if validation_tasks and config.is_due(index, config.validate_every):
            played = validate(config, planner, validation_tasks, shared, grade)
            iteration = replace(
                iteration, validation=statistics_of(played), free=readable_freely(planner, played)
            )
        if config.is_due(index, config.save_every):
            kind = "trained" if index else start.card.kind
            saved = planner.frozen(
                kind=kind, iteration=index, parent_run=run, temperature=start.card.temperature
            )
            kept = tuple(task.id for task in questions)
            iteration = replace(
                iteration, planner=saved, state=state_of(planner, optimiser, index, kept, config)
            )
        return iteration

    if state is None:
        questions = disagreed(config, start.models, tasks, shared, grade)
        index = 0
        yield finished(Iteration(index=0))
    else:
        restore(state, planner, optimiser, config)
        by_id = {task.id: task for task in tasks}
        absent = [name for name in state.questions if name not in by_id]
        if absent:
            raise ConfigError(
                f"This learning was begun with the question {absent[0]}, which is not there: keep its tasks."
            )
        questions = [by_id[name] for name in state.questions]
        index = state.iteration
    while index < config.iterations:
        index += 1
        began, calls, hits = time.perf_counter(), shared.misses, shared.hits
        rollouts = roll_out(config, planner, questions, index, shared, grade)
        check_answered(rollouts.episodes, f"in iteration {index}")
        update = learn_from(planner, start, optimiser, rollouts, config, index)
        yield finished(
            Iteration(
                index=index,
                reward_mean=rollouts.reward_mean,
                signal=rollouts.signal,
                rollouts=statistics_of(rollouts.episodes),
                learning_rate=config.rate(index),
                loss=update.loss,
                entropy=update.entropy,
                divergence=update.divergence,
                gradient=update.gradient,
                written_tokens=sum(len(one.ids) for one in rollouts.written),
                calls=shared.misses - calls,
                calls_saved=shared.hits - hits,
                seconds=time.perf_counter() - began,
            )
        )
