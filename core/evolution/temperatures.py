"""The temperature at which a model does best alone: every one of a grid with every plain cycle of roles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from core.episode import Task
from core.evolution.cycles import PLAIN_CYCLES, Trial, try_cycles
from core.play.drive import GradeMany
from core.play.policies import SINGLE, Cycle
from core.pool.pool import Pool

#: What is tried. Greedy replies are not: a second try would repeat the first.
GRID = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Tried:
    """A model's share of tasks solved alone, at one temperature and under one cycle of roles."""

    model: str
    temperature: float
    cycle: Cycle
    solved: float
    n: int


def try_temperatures(
    model: str,
    pool_at: Callable[[float], Pool],
    grade: GradeMany,
    tasks: Sequence[Task],
    *,
    grid: Sequence[float] = GRID,
    turn_budget: int = 5,
) -> Iterator[Tried]:
    """Play the tasks by one model alone at every temperature and plain cycle, each yielded as it is known. `pool_at`
    gives a pool that holds the model at a temperature."""
    for temperature in grid:
        trials: dict[Cycle, list[Trial]] = defaultdict(list)
        for trial in try_cycles(
            [f"{SINGLE}{model}"],
            pool_at(temperature),
            grade,
            tasks,
            turn_budget=turn_budget,
            cycles=PLAIN_CYCLES,
        ):
            trials[trial.cycle].append(trial)
        for cycle, played in trials.items():
            right = sum(bool(one.episode.correct) for one in played)
            yield Tried(model, temperature, cycle, right / len(played), len(played))


def best(tried: Sequence[Tried]) -> Tried:
    """Who solved most; of equals the cooler, then the shorter cycle."""
    return max(tried, key=lambda one: (one.solved, -one.temperature, -len(one.cycle)))
