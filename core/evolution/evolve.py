"""The evolution loop: a learner over a coordinator's numbers, one yielded generation after the other.

Stopping is closing the generator; from a state that was yielded it goes on to the same end, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator, Population
from core.coordinator.encoder import Encoder
from core.draws import derive_seed, uniform
from core.episode import Episode, Status, Task
from core.errors import ConfigError, PoolError
from core.evolution import sep_cma
from core.evolution.baselines import Arena, best_cycles
from core.evolution.config import ADAPTED_AT_MOST, CHOOSING, EvolveConfig, label_episodes
from core.evolution.cycles import PLAIN_CYCLES
from core.evolution.fitness import (
    episodes_of,
    further_terms,
    mean_reward,
    play_all,
    rewards,
    statistics_of,
)
from core.evolution.generation_stats import EpisodeStatistics, GenerationStats
from core.evolution.learner_state import LearnerState
from core.evolution.learners import Learner, SepCMA, learner_of
from core.evolution.recording import Recording
from core.evolution.search import SearchSpace, Survey, space_of
from core.evolution.supervised import cloned_from_labels
from core.play.drive import GradeMany
from core.pool.cache import CachedPool
from core.pool.pool import Pool

#: The share of a generation's episodes that may be missing before they are played once more.
MISSING_AT_MOST = 0.02
_NOTHING_KEPT = Recording()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(GenerationStats):
    """One finished generation. `fitness` has one mean reward per candidate (NaN: all of its episodes are missing) and
    is empty for generation 0, the start. `recorded` are the episodes of it that are to be kept."""

    index: int
    checkpoint: Checkpoint
    state: LearnerState
    fitness: tuple[float, ...] = ()
    missing: tuple[int, ...] = ()
    tasks_per_candidate: int = 0
    next_tasks: int = 0
    calls: int = 0
    calls_saved: int = 0
    decisions: int = 0
    forwards: float = 0.0
    recorded: tuple[Episode, ...] = field(default=(), repr=False)


def evolve(
    config: EvolveConfig,
    template: Checkpoint,
    *,
    encoder: Encoder,
    pool: Pool,
    grade: GradeMany,
    tasks: Sequence[Task],
    validation_tasks: Sequence[Task] = (),
    start: LearnerState | None = None,
    next_tasks: int | None = None,
    surveyed: Survey | None = None,
    recording: Recording = _NOTHING_KEPT,
) -> Iterator[Generation]:
    """Yield generation 0 (the template, validated) and then each finished generation, up to `config.generations`.

    `template` gives the checkpoints everything but vector and generation. With `start` and `next_tasks`, of the last
    generation that was yielded, the next is the one after it; the template then is generation 0's checkpoint, and
    `surveyed` what that generation kept, so that the encoder is not measured anew. Replies are shared; a `pool` that is
    a CachedPool does that by itself. `recording` chooses the episodes that a generation carries with it. ConfigError
    for parts that do not fit, PoolError when no model could be asked for a whole generation or its validation."""
    if not tasks:
        raise ConfigError("There are no tasks to evolve on: name a task set with tasks in its evolve split.")
    shared = pool if isinstance(pool, CachedPool) else CachedPool(pool)
    label_episodes = None
    if start is None and config.label_questions:
        template, label_episodes = taught(config, template, encoder, shared, grade, tasks)
    learner = learner_of(config, space_of(config, template, encoder, tasks, surveyed))

    def validated(generation: Generation) -> Generation:
        if not validation_tasks:
            return generation
        played = _play_validation(generation.checkpoint, validation_tasks, config, encoder, shared, grade)
        kept = recording.of_validation(played, generation.checkpoint)
        return replace(generation, validation=statistics_of(played), recorded=(*generation.recorded, *kept))

    per_candidate = next_tasks or config.tasks_per_candidate
    if start is None:
        state = learner.begin()
        first = Generation(index=0, checkpoint=template, state=state, next_tasks=per_candidate)
        survey = Survey(learner.space.steps, learner.space.mean_state)
        first = replace(first, steps=survey.steps, mean_state=survey.packed, label_episodes=label_episodes)
        yield validated(first)
    else:
        _check_fits(learner.begin(), start)
        state = start
    while state.generation < config.generations:
        generation = _next(learner, state, encoder, shared, grade, tasks, per_candidate, recording)
        state, per_candidate = generation.state, generation.next_tasks
        due = state.generation % config.validate_every == 0 or state.generation == config.generations
        yield validated(generation) if due else generation


def taught(
    config: EvolveConfig,
    template: Checkpoint,
    encoder: Encoder,
    pool: CachedPool,
    grade: GradeMany,
    tasks: Sequence[Task],
) -> tuple[Checkpoint, int]:
    """The template taught by labels on the first `label_questions` tasks, and how many episodes that took in all, those
    that chose every model's cycle of roles among them."""
    arena = Arena(pool, grade, turn_budget=config.turn_budget, seed=config.seed, protocol=template.protocol)
    questions = tasks[: config.label_questions]
    cycles = best_cycles(arena, questions[:CHOOSING], PLAIN_CYCLES, others=())
    head = cloned_from_labels(template, encoder, arena, cycles, questions)
    return head, label_episodes(len(arena.models), len(questions))


def _check_fits(first: LearnerState, state: LearnerState) -> None:
    """Refuse to go on from a state of another evolution; `first` is how this one begins."""
    if type(first) is not type(state):
        raise ConfigError("This evolution was begun by another learner: keep it.")
    if len(first.mean) != len(state.mean):
        raise ConfigError(
            f"This evolution was begun with vector length {len(state.mean)} and cannot go on with "
            f"{len(first.mean)}: keep it."
        )
    names = {"population": "population", "seed": "seed", "mirrored": "mirroring", "preset": "rates"}
    for field_name, name in names.items():
        was, now = getattr(state, field_name, None), getattr(first, field_name, None)
        if was != now:
            raise ConfigError(
                f"This evolution was begun with {name} {was} and cannot go on with {now}: keep it."
            )


def _next(
    learner: Learner,
    state: LearnerState,
    encoder: Encoder,
    pool: CachedPool,
    grade: GradeMany,
    tasks: Sequence[Task],
    per_candidate: int,
    recording: Recording,
) -> Generation:
    config, template = learner.config, learner.space.template
    vectors = learner.ask(state)
    seed = derive_seed((config.seed, "replies", state.generation // config.rotate_every))
    episodes, candidate_of = [], {}
    for candidate in range(state.population):
        own_tasks = tasks_of_candidate(tasks, config, state.generation, candidate, per_candidate)
        # Where candidates draw their own tasks, chances and replies are their own too.
        own_seed = seed if config.common else derive_seed((seed, candidate))
        own = unplayed(config, template, own_tasks, f"c{candidate}", own_seed)
        candidate_of.update({episode.id: candidate for episode in own})
        episodes += own
    policy = Population(template, vectors, encoder, candidate_of)
    calls, hits, given, forwards = pool.misses, pool.hits, encoder.states_given, encoder.forwards
    played = _with_missing_again(episodes, play_all(episodes, policy, pool, grade), policy, pool, grade)
    values = rewards(played).reshape(state.population, -1)
    weights = {"diversity": config.diversity, "turn_cost": config.turn_cost}
    by_candidate = [played[start : start + per_candidate] for start in range(0, len(played), per_candidate)]
    further = [further_terms(own, config.turn_budget, **weights) for own in by_candidate]
    fitness = mean_reward(values) + further
    _check_played(played, state.generation + 1)
    after = learner.tell(state, fitness, played)
    distances = np.linalg.norm(vectors - learner.outcome(state), axis=1) / state.step_size
    return Generation(
        index=after.generation,
        checkpoint=template.with_vector(learner.outcome(after), generation=after.generation, kind="evolved"),
        state=after,
        fitness=tuple(fitness.tolist()),
        distances=tuple(distances.tolist()),
        missing=tuple(np.isnan(values).sum(axis=1).tolist()),
        episodes=statistics_of(played),
        tasks_per_candidate=per_candidate,
        next_tasks=adapted_task_count(config, values) if config.adaptive else per_candidate,
        calls=pool.misses - calls,
        calls_saved=pool.hits - hits,
        decisions=encoder.states_given - given,
        forwards=encoder.forwards - forwards,
        recorded=recording.of_candidates(by_candidate, after.generation),
    )


def _with_missing_again(
    episodes: Sequence[Episode], played: list[Episode], policy: Population, pool: CachedPool, grade: GradeMany
) -> list[Episode]:
    """The played episodes; where more than a few are missing, those are played once more, as far as their replies are
    not remembered."""
    missing = [place for place, one in enumerate(played) if one.status is Status.MISSING]
    if len(missing) <= MISSING_AT_MOST * len(played) or len(missing) == len(played):
        return played
    again = play_all([episodes[place] for place in missing], policy, pool, grade)
    other = dict(zip(missing, again, strict=True))
    return [other.get(place, one) for place, one in enumerate(played)]


def _check_played(played: Sequence[Episode], generation: int | None) -> None:
    """Refuse a generation in which calls were lost and none came through: what is left was played unasked."""
    lost = [one for one in played if one.status is Status.MISSING]
    asked = any(turn.messages for one in played if one.reward is not None for turn in one.turns)
    if lost and not asked:
        raise PoolError(
            f"No model could be asked in generation {generation} "
            f"({lost[0].error or 'no reason given'}): see that they answer, then resume."
        )


def adapted_task_count(config: EvolveConfig, values: NDArray[np.float64]) -> int:
    """How many tasks a candidate shall play next, after rewards [candidates, tasks] (NaN: missing).

    The share of the variance between candidates' means that is not chance says how far fitness can be trusted: under
    0.3 half as many tasks more are played, over 0.7 a third fewer, never beyond a factor of ADAPTED_AT_MOST from
    where it began (after Hansen et al. 2009, "A Method for Handling Uncertainty in Evolutionary Optimization")."""
    tasks, known = int(values.shape[1]), np.isfinite(values)
    centred = values[known.any(axis=1)][:, known.any(axis=0)]
    if not centred.size:
        return tasks
    if config.common:
        centred = centred - np.nanmean(centred, axis=0)
    between = float(mean_reward(centred).var())
    within = float(np.nanvar(centred, axis=1).mean()) / max(tasks - 1, 1)
    trust = max(0.0, 1 - within / between) if between > 0 else 0.0
    wanted = math.ceil(1.5 * tasks) if trust < 0.3 else math.floor(tasks / 1.5) if trust > 0.7 else tasks
    first = config.tasks_per_candidate
    least, most = max(2, math.ceil(first / ADAPTED_AT_MOST)), max(2, first * ADAPTED_AT_MOST)
    return int(min(max(wanted, least), most))


def tasks_of_candidate(
    tasks: Sequence[Task], config: EvolveConfig, generation: int, candidate: int, n: int | None = None
) -> list[Task]:
    """The `n` (None: as configured) tasks a candidate plays. Common to all: even over families, repeated when there
    are too few; its own: drawn from all with replacement."""
    n = n or config.tasks_per_candidate
    if not config.common:
        draws = uniform(f"{config.seed}/tasks/{generation}/{candidate}", n)
        return [tasks[int(draw * len(tasks))] for draw in draws]
    families: dict[str, list[Task]] = {}
    for task in tasks:
        families.setdefault(task.family, []).append(task)
    queues = []
    for family, members in sorted(families.items()):
        order = np.argsort(uniform(f"{config.seed}/tasks/{generation}/all/{family}", len(members)))
        queues.append([members[place] for place in order])
    return [
        queues[turn % len(queues)][turn // len(queues) % len(queues[turn % len(queues)])] for turn in range(n)
    ]


def validate(
    checkpoint: Checkpoint,
    tasks: Sequence[Task],
    config: EvolveConfig,
    encoder: Encoder,
    pool: Pool,
    grade: GradeMany,
) -> EpisodeStatistics:
    """The checkpoint, sampling, on tasks it was not evolved on. PoolError when no model could be asked."""
    return statistics_of(_play_validation(checkpoint, tasks, config, encoder, pool, grade))


def _play_validation(
    checkpoint: Checkpoint,
    tasks: Sequence[Task],
    config: EvolveConfig,
    encoder: Encoder,
    pool: Pool,
    grade: GradeMany,
) -> list[Episode]:
    episodes = unplayed(config, checkpoint, tasks, "v", validation_seed(config))
    played = play_all(episodes, Coordinator(checkpoint, encoder), pool, grade)
    _check_played(played, checkpoint.generation)
    return played


def validation_seed(config: EvolveConfig) -> int:
    """What decides the models' own chance, in every validation the same."""
    return derive_seed((config.seed, "validation"))


def unplayed(
    config: EvolveConfig, checkpoint: Checkpoint, tasks: Sequence[Task], prefix: str, seed: int
) -> list[Episode]:
    """One unplayed episode per task, by the checkpoint's rules."""
    return episodes_of(
        tasks,
        checkpoint.models,
        seed=seed,
        turn_budget=config.turn_budget,
        prefix=prefix,
        protocol=checkpoint.protocol,
    )


def random_walk(config: EvolveConfig, space: SearchSpace) -> NDArray[np.float64]:
    """The vector [n] after as many generations of sep-CMA-ES on fitness that is pure chance: of each candidate's
    tasks, those that a fair coin solves, so that candidates tie as the real ones do.

    It is what selection noise alone does to a vector: the control that an evolved one has to beat."""
    optimiser = SepCMA(config, space)
    state = optimiser.begin()
    while state.generation < config.generations:
        tries = (state.population, config.tasks_per_candidate)
        coins = uniform(f"{config.seed}/random-walk/{state.generation}", math.prod(tries)).reshape(tries)
        state = sep_cma.tell(state, (coins < 0.5).mean(axis=1))
    return optimiser.outcome(state)
