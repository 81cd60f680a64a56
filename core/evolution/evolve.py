"""Evolves a coordinator: an optimiser over its numbers as what learns, one yielded generation after the other; and the
controls beside it, its own random walk and the best single model at the same turn budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator, Population
from core.coordinator.encoder import Encoder
from core.coordinator.states import Reading
from core.draws import derive_seed, uniform
from core.episode import Episode, Task
from core.errors import ConfigError
from core.evolution.baselines import Arena, best_cycles, cloned_from_labels, cloned_from_policy
from core.evolution.config import ADAPTED_AT_MOST, CHOOSING, EvolveConfig, Recording, label_episodes
from core.evolution.cycles import PLAIN_CYCLES, Trial, choose_cycles, try_cycles
from core.evolution.fitness import (
    EpisodeStatistics,
    GenerationStats,
    further_terms,
    mean_reward,
    rewards,
    statistics_of,
)
from core.evolution.learner_state import LearnerState, Vector
from core.evolution.learners import begin
from core.evolution.search import SearchSpace, Survey, space_of, survey
from core.learning import Candidates, Played, Playing, episodes_of, learn, playing, share_calls
from core.play.drive import GradeMany
from core.play.policies import SINGLE, Policy, single_policy
from core.pool.cache import CachedPool
from core.pool.pool import Pool

_NOTHING_KEPT = Recording()

#: Gives the teacher as it plays these questions in this arena, and how many episodes were played to teach it.
MakeTeacher = Callable[[Arena, Sequence[Task]], tuple[Policy, int]]


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
    reading_s: float = 0.0
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
    sketches: int | None = None,
    recording: Recording = _NOTHING_KEPT,
    make_teacher: MakeTeacher | None = None,
) -> Iterator[Generation | Reading | Playing]:
    """Yield generation 0 (the template, validated) and then each finished generation, up to `config.generations`;
    before them, how far the encoder is with the turns that labels are learned from, and with the `sketches` (None: the
    usual number) that it is measured on; and before each, how far its episodes are.

    `template` gives the checkpoints everything but vector and generation. With `start` and `next_tasks`, of the last
    generation that was yielded, the next is the one after it; the template then is generation 0's checkpoint, and
    `surveyed` what that generation kept, so that the encoder is not measured anew. Replies are shared; a `pool` that is
    a CachedPool does that by itself. `recording` chooses the episodes that a generation carries with it; `make_teacher`
    is needed where `config` names a teacher. ConfigError for parts that do not fit, PoolError when no model could be
    asked for a whole generation or its validation."""
    if not tasks:
        raise ConfigError("There are no tasks to evolve on: name a task set with tasks in its evolve split.")
    pool = share_calls(pool)
    label_episodes = None
    if start is None and config.label_questions:
        template, label_episodes = yield from teach(
            config, template, encoder, pool, grade, tasks, make_teacher
        )
    if config.learner == "reinforce" and (template.head_kind != "linear" or template.svf_layout):
        raise ConfigError(
            "REINFORCE learns a linear head without SVF offsets: leave --head and --svf out, or evolve by "
            "sep-cma-es."
        )
    if surveyed is None:
        surveyed = yield from survey(config, template, encoder, tasks, sketches)
    space = space_of(config, template, encoder, tasks, surveyed)
    evolution = Evolution(config, space, encoder, tasks, validation_tasks, recording, label_episodes)
    after = None
    if start is not None:
        _check_fits(_start_of(config, space), start)
        after = Generation(
            index=start.generation,
            checkpoint=template,
            state=start,
            next_tasks=next_tasks or config.tasks_per_candidate,
        )
    rhythm = {"updates": config.generations, "validate_every": config.validate_every}
    yield from learn(evolution, **rhythm, pool=pool, grade=grade, after=after)


def teach(
    config: EvolveConfig,
    template: Checkpoint,
    encoder: Encoder,
    pool: CachedPool,
    grade: GradeMany,
    tasks: Sequence[Task],
    make_teacher: MakeTeacher | None = None,
) -> Generator[Reading, None, tuple[Checkpoint, int]]:
    """The template taught by labels, or by the teacher, on the first `label_questions` tasks, and how many episodes
    that took in all, those that chose every model's cycle of roles among them. Yields how far the encoder is with their
    turns."""
    arena = Arena(pool, grade, turn_budget=config.turn_budget, seed=config.seed, protocol=template.protocol)
    questions = tasks[: config.label_questions]
    if config.teacher:
        if make_teacher is None:
            raise ConfigError(f"Nobody has made the teacher '{config.teacher}' of this evolution.")
        teacher, before = make_teacher(arena, questions)
        head = yield from cloned_from_policy(template, encoder, arena, teacher, questions)
        return head, before + len(questions)
    cycles = best_cycles(arena, questions[:CHOOSING], PLAIN_CYCLES, others=())
    head = yield from cloned_from_labels(template, encoder, arena, cycles, questions)
    return head, label_episodes(len(arena.models), len(questions), arena.label_repeats)


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


@dataclass(frozen=True, slots=True)
class Vectors(Candidates):
    """A generation's vectors [population, n], with the episodes of one after those of the other; `given` states its
    encoder had given before, by so many `forwards` in so many `seconds`."""

    vectors: Vector
    given: int
    forwards: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Evolution:
    """A coordinator's numbers as what learns: an optimiser proposes vectors, which play as a population."""

    noun: ClassVar = "generation"

    config: EvolveConfig
    space: SearchSpace
    encoder: Encoder
    tasks: Sequence[Task]
    validation_tasks: Sequence[Task]
    recording: Recording
    label_episodes: int | None

    def begin(self) -> Generation:
        """The template, with what was surveyed of its encoder."""
        space, state = self.space, _start_of(self.config, self.space)
        return Generation(
            index=0,
            checkpoint=space.template,
            state=state,
            sigma=state.step_size,
            next_tasks=self.config.tasks_per_candidate,
            steps=space.survey.steps,
            mean_state=space.survey.packed,
            label_episodes=self.label_episodes,
        )

    def ask(self, after: Generation) -> Vectors:
        """The next population."""
        config, template, state = self.config, self.space.template, after.state
        vectors = state.vectors(state.ask(), self.space)
        seed = derive_seed((config.seed, "replies", state.generation // config.rotate_every))
        episodes, candidate_of = [], {}
        for candidate in range(state.population):
            own_tasks = tasks_of_candidate(self.tasks, config, state.generation, candidate, after.next_tasks)
            # Where candidates draw their own tasks, chances and replies are their own too.
            own_seed = seed if config.common else derive_seed((seed, candidate))
            own = unplayed(config, template, own_tasks, f"c{candidate}", own_seed)
            candidate_of.update({episode.id: candidate for episode in own})
            episodes += own
        policy = Population(template, vectors, self.encoder, candidate_of)
        encoder = self.encoder
        return Vectors(episodes, policy, vectors, encoder.states_given, encoder.forwards, encoder.seconds)

    def tell(self, after: Generation, candidates: Vectors, played: Played) -> Generation:
        """The generation that follows from the population's fitness."""
        config, state, each = self.config, after.state, after.next_tasks
        values = rewards(played.episodes).reshape(state.population, -1)
        weights = {"diversity": config.diversity, "turn_cost": config.turn_cost}
        by_candidate = [
            played.episodes[start : start + each] for start in range(0, len(played.episodes), each)
        ]
        further = [further_terms(own, config.turn_budget, **weights) for own in by_candidate]
        fitness = mean_reward(values) + further
        now = state.tell(fitness, played.episodes)
        stood = state.vectors(state.mean, self.space)
        distances = np.linalg.norm(candidates.vectors - stood, axis=1) / state.step_size
        return Generation(
            index=now.generation,
            checkpoint=self.space.template.with_vector(
                now.vectors(now.mean, self.space), generation=now.generation, kind="evolved"
            ),
            state=now,
            sigma=now.step_size,
            **_summary(fitness[np.isfinite(fitness)]),
            fitness=tuple(fitness.tolist()),
            distances=tuple(distances.round(4).tolist()),
            missing=tuple(np.isnan(values).sum(axis=1).tolist()),
            episodes=statistics_of(played.episodes),
            tasks_per_candidate=each,
            next_tasks=adapted_task_count(config, values) if config.adaptive else each,
            calls=played.calls,
            calls_saved=played.calls_saved,
            decisions=self.encoder.states_given - candidates.given,
            forwards=self.encoder.forwards - candidates.forwards,
            reading_s=self.encoder.seconds - candidates.seconds,
            recorded=self.recording.of_candidates(by_candidate, now.generation),
        )

    def exam(self, update: Generation) -> Candidates:
        """Its checkpoint, sampling, on tasks that it was not evolved on: the same chances in every validation."""
        config, checkpoint = self.config, update.checkpoint
        episodes = unplayed(config, checkpoint, self.validation_tasks, "v", validation_seed(config))
        return Candidates(episodes, Coordinator(checkpoint, self.encoder))

    def tell_exam(self, update: Generation, played: list[Episode]) -> Generation:
        """With the statistics of its validation, and the episodes of it that are to be kept."""
        kept = self.recording.of_validation(played, update.checkpoint)
        found = statistics_of(played)
        fitness: dict[str, Any] = (
            {} if update.index else _summary(np.array([found.accuracy]))
        )  # nobody competed yet
        return replace(update, validation=found, recorded=(*update.recorded, *kept), **fitness)


def _start_of(config: EvolveConfig, space: SearchSpace) -> LearnerState:
    """The state before the first generation."""
    origin = np.asarray(space.template.vector, float)
    return begin(config, origin, space.step_size, space.scales)


def _summary(fitness: Vector) -> dict[str, Any]:
    """What generations say of their fitness, that is known, as fields."""
    if not fitness.size:
        return {}
    return {
        "best": float(fitness.max()),
        "mean": float(np.mean(fitness)),
        "median": float(np.median(fitness)),
    }


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
    state = _start_of(replace(config, learner="sep-cma-es"), space)
    while state.generation < config.generations:
        tries = (state.population, config.tasks_per_candidate)
        coins = uniform(f"{config.seed}/random-walk/{state.generation}", math.prod(tries)).reshape(tries)
        state = state.tell((coins < 0.5).mean(axis=1))
    return state.vectors(state.mean, space)


def controls(
    config: EvolveConfig,
    template: Checkpoint,
    *,
    encoder: Encoder,
    pool: Pool,
    grade: GradeMany,
    tasks: Sequence[Task],
    validation_tasks: Sequence[Task],
    surveyed: Survey | None = None,
    sketches: int | None = None,
) -> Generator[Playing, None, dict[str, EpisodeStatistics]]:
    """Play what learned nothing, the controls of an evolution of `template` on `tasks`, with the seeds of its
    validation; yields how far each is. By name: "random walk", or a model and its cycle such as "single:ann T W"."""

    def play(policy: Policy, prefix: str, what: str) -> Generator[Playing, None, EpisodeStatistics]:
        episodes = unplayed(config, template, validation_tasks, prefix, validation_seed(config))
        return statistics_of((yield from playing(episodes, policy, pool, grade, f"the control, {what}")))

    found = {}
    if config.learner == "sep-cma-es":  # the others have no walk of their own
        end = random_walk(config, space_of(config, template, encoder, tasks, surveyed, sketches))
        walk = template.with_vector(end, kind="random walk")
        found["random walk"] = yield from play(Coordinator(walk, encoder), "walk", "random walk")
    names = [f"{SINGLE}{model}" for model in template.models]
    trials, choosing = list[Trial](), validation_tasks[:CHOOSING]
    for trial in try_cycles(
        names,
        pool,
        grade,
        choosing,
        turn_budget=config.turn_budget,
        seed=validation_seed(config),
        cycles=PLAIN_CYCLES,
        protocol=template.protocol,
    ):
        trials.append(trial)
        of = len(names) * len(PLAIN_CYCLES) * len(choosing)
        yield Playing("the choice of the best single model", len(trials), of)
    chosen = choose_cycles(trials)
    name = max(names, key=lambda one: chosen[one].accuracy)
    cycle = chosen[name].cycle
    single = single_policy(name.removeprefix(SINGLE), template.models, cycle)
    letters = " ".join(role.value[0].upper() for role in cycle)
    return {**found, f"{name} {letters}": (yield from play(single, "single", "best single model"))}
