"""The cycle of roles that suits a fixed policy best, chosen on validation tasks, then frozen (pocket.md, row 1); and
the temperature at which a model does best alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from core.episode import ROLE_ORDER, Episode, EpisodeFinished, Protocol, Role, Status, Task
from core.errors import PoolError
from core.play.drive import GradeMany, drive_many
from core.play.policies import SINGLE, Cycle, PolicyPerEpisode, cycle_policy
from core.pool.pool import Pool
from core.pool.spec import slots_of

LONGEST_CYCLE = 3


def _repeats(cycle: Cycle) -> bool:
    return any(len(cycle) % n == 0 and cycle[:n] * (len(cycle) // n) == cycle for n in range(1, len(cycle)))


#: Every cycle of up to three roles in which somebody works, each once (W, W is the same as W), shorter ones first.
CYCLES: tuple[Cycle, ...] = tuple(
    cycle
    for length in range(1, LONGEST_CYCLE + 1)
    for cycle in product(ROLE_ORDER, repeat=length)
    if Role.WORKER in cycle and not _repeats(cycle)
)

#: The ways in which a single model may take its turns; the best of them on the first tasks is frozen.
PLAIN_CYCLES: tuple[Cycle, ...] = (
    (Role.WORKER,),
    (Role.THINKER, Role.WORKER),
    (Role.WORKER, Role.VERIFIER),
    (Role.THINKER, Role.WORKER, Role.VERIFIER),
)


def calls_of_cycles(cycles: Sequence[Cycle], turn_budget: int, accepts: float) -> float:
    """How many calls one model is expected to make on one task when it plays these cycles with the same chances, of
    whose verdicts this share accepts: cycles that begin alike share their calls, and a Verifier with nothing to judge
    is not asked."""
    calls: dict[Cycle, float] = {}
    for cycle in cycles:
        reached, answered = 1.0, False
        for turn in range(turn_budget):
            role = cycle[turn % len(cycle)]
            if role is not Role.VERIFIER or answered:
                calls[tuple(cycle[place % len(cycle)] for place in range(turn + 1))] = reached
            if role is Role.VERIFIER and answered:
                reached *= 1 - accepts
            answered = answered or role is Role.WORKER
    return sum(calls.values())


def cascade_episodes(n_models: int, n_tasks: int, turns: int) -> int:
    """How many episodes the choice of a cascade plays: every pair of model and judge, then every model at each of its
    places."""
    return n_tasks * n_models * (n_models + (turns + 1) // 2)


@dataclass(frozen=True, slots=True)
class Trial:
    """An ended episode of the policy `name` under one of the CYCLES."""

    name: str
    cycle: Cycle
    episode: Episode


@dataclass(frozen=True, slots=True)
class ChosenCycle:
    """A policy's best cycle and its accuracy on the tasks that chose it; `missing` of its trials, over all
    cycles, were lost to infrastructure: a choice with any should not be remembered."""

    cycle: Cycle
    accuracy: float
    missing: int = 0


def try_cycles(
    names: Sequence[str],
    pool: Pool,
    grade: GradeMany,
    tasks: Sequence[Task],
    *,
    turn_budget: int,
    seed: int = 0,
    cycles: Sequence[Cycle] = CYCLES,
    protocol: Protocol | None = None,
) -> Iterator[Trial]:
    """Play len(names) x len(cycles) x len(tasks) episodes, each yielded as it ends; `cycles` are some of CYCLES,
    `protocol` as in `new_episode`."""
    models = tuple(spec.name for spec in slots_of(pool.specs))
    tried = {f"{name} {place}": (name, cycle) for name in names for place, cycle in enumerate(cycles)}
    policies = {key: cycle_policy(name, models, cycle) for key, (name, cycle) in tried.items()}
    episodes = [
        Episode(
            f"{key} {task.id}",
            "cycles",
            task,
            key,
            models,
            protocol or Protocol.PAPER,
            turn_budget=turn_budget,
            seed=seed,
        )
        for key in tried
        for task in tasks
    ]
    policy_of = {one.id: policies[one.policy] for one in episodes}
    each = PolicyPerEpisode("cycles", models, policy_of)
    for event in drive_many(episodes, each, pool, grade):
        if isinstance(event, EpisodeFinished):
            yield Trial(*tried[event.episode.policy], event.episode)


def choose_cycles(trials: Iterable[Trial]) -> dict[str, ChosenCycle]:
    """The best cycle of each policy: most tasks right, of equals the fewest turns, of equals the shortest.

    A missing episode is neither right nor wrong; PoolError when a cycle has no other."""
    played: dict[str, dict[Cycle, list[Episode]]] = {}
    for trial in trials:
        played.setdefault(trial.name, {}).setdefault(trial.cycle, []).append(trial.episode)
    return {name: _best(name, by_cycle) for name, by_cycle in played.items()}


def _best(name: str, by_cycle: Mapping[Cycle, Sequence[Episode]]) -> ChosenCycle:
    scores: dict[Cycle, tuple[float, float, int]] = {}
    missing = 0
    for cycle, episodes in by_cycle.items():
        finished = [one for one in episodes if one.status is Status.FINISHED]
        missing += len(episodes) - len(finished)
        if not finished:
            raise PoolError(
                f"No role cycle can be chosen for {name}: its models could not be asked "
                f"({episodes[0].error or 'no reason given'}). See that they answer, then try again."
            )
        accuracy = sum(bool(one.correct) for one in finished) / len(finished)
        turns = sum(len(one.turns) for one in finished) / len(finished)
        scores[cycle] = accuracy, -turns, -CYCLES.index(cycle)
    best = max(scores, key=scores.__getitem__)
    return ChosenCycle(best, scores[best][0], missing)


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


def best_tried(tried: Sequence[Tried]) -> Tried:
    """Who solved most; of equals the cooler, then the shorter cycle."""
    return max(tried, key=lambda one: (one.solved, -one.temperature, -len(one.cycle)))
