"""What a coordinator has to beat, and whom it may learn from: the best single model at its best cycle, random choice,
cascades, routers, and a head that is cloned from labels (paper A.5) or from what another policy does.

Labels tell which model does best on a question. For them every model plays every question, alone and at its best cycle
of roles. A router of labels chooses a model for the whole episode. The cloned head learns to choose, at each turn of
the episodes that were solved so, the model and the role that were chosen there. It is the coordinator's own head on the
same hidden states, so that an evolution can go on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import read_each_for
from core.coordinator.encoder import Encoder
from core.coordinator.states import Reading
from core.draws import derive_seed
from core.episode import (
    ROLE_ORDER,
    Decide,
    Decision,
    EndReason,
    Episode,
    Protocol,
    Role,
    Status,
    Task,
    Transcript,
)
from core.errors import ConfigError
from core.evolution.config import LABEL_REPEATS
from core.evolution.cycles import CYCLES, ChosenCycle, choose_cycles, try_cycles
from core.evolution.fitness import label_weights, mean_reward, rewards
from core.evolution.learner_state import Vector
from core.heads import softmax
from core.learning import episodes_of, play_all
from core.outcomes.lessons import Known, known_outcomes, table_behind
from core.play.drive import GradeMany
from core.play.policies import SINGLE, Cycle, CyclePolicy, Policy, cascade_policy, decide_each, single_policy
from core.play.session import request_at
from core.pool.pool import Pool
from core.pool.spec import slots_of

#: How much the learned router's regression is held back: the best of a grid on validation tasks.
RIDGE = 100.0
#: How large the coefficients of a router of labels may become (scikit-learn's C): the best of a grid on validation
#: tasks.
FREEDOM = 0.01
#: Weights of the squared head from which the one is taken that says most about questions left aside.
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
#: One question in so many is left aside for that.
LEFT_ASIDE = 5

_Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Arena:
    """Where policies are measured against each other: the same pool, grader, budget, chance and rules for all."""

    pool: Pool
    grade: GradeMany
    turn_budget: int = 5
    seed: int = 0
    protocol: Protocol = Protocol.PAPER

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in slots_of(self.pool.specs))

    @property
    def reply_seed(self) -> int:
        """Decides all that is random; common to all policies."""
        return derive_seed((self.seed, "arena"))

    @property
    def label_repeats(self) -> int:
        """How often each model plays a question for its label."""
        return 1 if all(spec.repeats for spec in self.pool.specs) else LABEL_REPEATS

    def singles(self, cycles: Mapping[str, ChosenCycle]) -> list[CyclePolicy]:
        return [single_policy(model, self.models, cycles[model].cycle) for model in self.models]

    def play(self, policy: Policy, tasks: Sequence[Task]) -> list[Episode]:
        unplayed = episodes_of(
            tasks,
            policy.models,
            seed=self.reply_seed,
            turn_budget=self.turn_budget,
            prefix=policy.id,
            protocol=self.protocol,
        )
        return play_all([policy.begin(one) for one in unplayed], policy, self.pool, self.grade)


def best_cycles(
    arena: Arena,
    validation: Sequence[Task],
    cycles: Sequence[Cycle] = CYCLES,
    others: Sequence[str] = ("random-model",),
) -> dict[str, ChosenCycle]:
    """The best of these cycles of every model, by name, and of each of the `others` by its own."""
    names = [*(f"{SINGLE}{model}" for model in arena.models), *others]
    trials = try_cycles(
        names,
        arena.pool,
        arena.grade,
        validation,
        turn_budget=arena.turn_budget,
        seed=arena.reply_seed,
        cycles=cycles,
        protocol=arena.protocol,
    )
    return {name.removeprefix(SINGLE): one for name, one in choose_cycles(trials).items()}


def learned_router(
    arena: Arena,
    cycles: Mapping[str, ChosenCycle],
    encoder: Encoder,
    train: Sequence[Task],
    *,
    ridge: float = RIDGE,
) -> QuestionRouter:
    """A single-turn router: the most promising model, at its best cycle, plays the whole episode.

    The promise is a ridge regression from the question's hidden state to each model's success on `train`; `ridge` is
    the weight of the squared coefficients, RIDGE by default."""
    solved = outcomes_of(arena, cycles, train).right.T
    # A missing episode says nothing: its model's mean stands in for it, and 0 for a model without any other.
    success = np.where(np.isnan(solved), np.nan_to_num(mean_reward(solved))[:, None], solved)
    x = question_states(encoder, [task.question for task in train])
    centre = x.mean(axis=0)
    x = x - centre
    weights = np.linalg.solve(
        x.T @ x + ridge * np.eye(x.shape[1]), x.T @ (success - success.mean(axis=1)[:, None]).T
    )

    def most_promising(states: NDArray[np.float64]) -> NDArray[np.int64]:
        promise = (states - centre) @ weights + success.mean(axis=1)
        best: NDArray[np.int64] = promise.argmax(axis=1)
        return best

    return QuestionRouter(
        "router",
        arena.models,
        tuple(arena.singles(cycles)),
        lambda questions: most_promising(question_states(encoder, questions)),
    )


@dataclass(frozen=True, slots=True)
class QuestionRouter(Policy):
    """Leaves each question to one of `policies`, which may write workflows: `choose` gives its place for each of some
    questions. What was chosen for a question stays. `told`: what was chosen by what, in a sentence or two."""

    id: str
    models: tuple[str, ...]
    policies: tuple[Policy, ...]
    choose: Callable[[Sequence[str]], NDArray[np.int64]]
    told: str = ""
    _chosen: dict[str, int] = field(default_factory=dict)

    def places(self, questions: Sequence[str]) -> list[int]:
        """The place of the policy that each question is left to; those that are new are chosen for together."""
        if fresh := [question for question in dict.fromkeys(questions) if question not in self._chosen]:
            self._chosen.update(zip(fresh, self.choose(fresh).tolist(), strict=True))
        return [self._chosen[question] for question in questions]

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """The decisions of the policies that the questions are left to."""
        places = self.places([one.transcript.question for one in requests])
        return decide_each(requests, [self.policies[place] for place in places])

    def policy_for(self, episode: Episode) -> Policy:
        """The policy that the episode's question is left to."""
        [place] = self.places([episode.task.question])
        return self.policies[place].policy_for(episode)


def question_states(encoder: Encoder, questions: Sequence[str]) -> NDArray[np.float64]:
    """What the encoder makes of bare questions, [questions, hidden size]."""
    asked = [Decide(Transcript(question), 0, question) for question in questions]
    return encoder.encode(asked).states.astype(float)


def cascade(arena: Arena, validation: Sequence[Task]) -> CyclePolicy:
    """The cascade (see `cascade_policy`) whose models and judge do best on validation tasks.

    The judge is the model that tells right answers of all models from wrong ones best on validation tasks, in the
    Verifier's role. The models are chosen one after the other, each the best one after those before it."""

    def played(*team: str, turns: int) -> list[Episode]:
        return replace(arena, turn_budget=turns).play(cascade_policy(team, arena.models), validation)

    checked = {
        judge: [one for model in arena.models for one in played(model, judge, turns=2)]
        for judge in arena.models
    }
    judge = max(arena.models, key=lambda name: discernment(checked[name]))
    team: tuple[str, ...] = ()
    while 2 * len(team) < arena.turn_budget:
        turns = min(2 * len(team) + 2, arena.turn_budget)
        trials = [(*team, model) for model in arena.models]
        team = max(trials, key=lambda trial: float(mean_reward(rewards(played(*trial, judge, turns=turns)))))
    return cascade_policy((*team, judge), arena.models)


def best_answerer(arena: Arena, validation: Sequence[Task]) -> str:
    """The model that solves most validation tasks when each answers once, alone."""
    once = replace(arena, turn_budget=1)

    def accuracy(model: str) -> float:
        policy = single_policy(model, arena.models, (Role.WORKER,))
        return float(mean_reward(rewards(once.play(policy, validation))))

    return max(arena.models, key=accuracy)


def discernment(checked: Sequence[Episode]) -> float:
    """How well a judge tells answers apart: the share of right ones it accepts less that of wrong ones, over episodes
    of one answer and one verdict; -1 when one of the two kinds is not there."""
    accepts: dict[bool, list[bool]] = {True: [], False: []}
    for one in checked:
        if one.status is Status.FINISHED and one.answer is not None:
            accepts[bool(one.correct)].append(one.end_reason is EndReason.ACCEPTED)
    if not all(accepts.values()):
        return -1.0
    return float(np.mean(accepts[True]) - np.mean(accepts[False]))


def labelled_router(
    arena: Arena,
    cycles: Mapping[str, ChosenCycle],
    encoder: Encoder,
    train: Sequence[Task],
    *,
    freedom: float = FREEDOM,
) -> QuestionRouter:
    """Supervised labels (paper A.5): a linear softmax from the question's hidden state to the model that does best.

    The label of a question is the model that solved it most often in three repeats at its best cycle; ties count
    evenly, and a question that no model solved is left out. Trained to the end (L-BFGS), not by some steps of Adam.
    `freedom` is scikit-learn's C: the larger, the larger coefficients may become."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    if table_behind(arena.pool) is not None:  # its models would answer every repeat alike
        weights = label_weights(outcomes_of(arena, cycles, train).right.T)
    else:
        _, weights = labels_of(arena, cycles, train)
    rows, labels = np.nonzero(weights.T)
    states = question_states(encoder, [task.question for task in train])
    scaler = StandardScaler().fit(states)
    states = scaler.transform(states)
    learned = LogisticRegression(C=freedom, max_iter=2000).fit(
        states[rows], labels, sample_weight=weights.T[rows, labels]
    )
    return QuestionRouter(
        "labels",
        arena.models,
        tuple(arena.singles(cycles)),
        lambda questions: learned.predict(scaler.transform(question_states(encoder, questions))).astype(int),
    )


def outcomes_of(arena: Arena, cycles: Mapping[str, ChosenCycle], tasks: Sequence[Task]) -> Known:
    """What every model makes of these tasks: recorded ones by their table, others at their best cycle."""
    return known_outcomes(
        arena.pool,
        tasks,
        arena.grade,
        policies=arena.singles(cycles),
        turn_budget=arena.turn_budget,
        seed=arena.reply_seed,
        protocol=arena.protocol,
    )


def labels_of(
    arena: Arena, cycles: Mapping[str, ChosenCycle], questions: Sequence[Task]
) -> tuple[list[list[list[Episode]]], Vector]:
    """The questions, played LABEL_REPEATS times by each model at its best cycle [models][repeats][questions], once
    where it would only repeat itself; and how far each model is each question's label [models, questions]."""
    seeds = [derive_seed((arena.seed, "label", k)) for k in range(arena.label_repeats)]
    arenas = [replace(arena, seed=seed) for seed in seeds]
    played = [[place.play(policy, questions) for place in arenas] for policy in arena.singles(cycles)]
    solved = np.array([[rewards(one) for one in repeats] for repeats in played])
    return played, label_weights(mean_reward(np.moveaxis(solved, 1, -1)))


@dataclass(frozen=True, slots=True, eq=False)
class Lessons:
    """Choices to learn: hidden `states` [n, hidden size], the slots `models` [n] and places `roles` [n] chosen there,
    how much each counts, `weights` [n], and which question each is from, `questions` [n]."""

    states: Vector
    models: _Places
    roles: _Places
    weights: Vector
    questions: _Places


def cloned_from_labels(
    template: Checkpoint,
    encoder: Encoder,
    arena: Arena,
    cycles: Mapping[str, ChosenCycle],
    questions: Sequence[Task],
    *,
    ridge: float | None = None,
) -> Generator[Reading, None, Checkpoint]:
    """The template with a head that clones, on each question, the model that solved it most often in three repeats.

    Models that do equally well share a question; one that nobody solved teaches nothing. `ridge` is the weight of the
    squared head; by default the one of RIDGES that says most about questions left aside. Yields how far the encoder is
    with the turns of those episodes. ConfigError for a head that is not linear, and when no question was solved at
    all."""
    check_teachable(template)
    played, weights = labels_of(arena, cycles, questions)
    solved = [
        (question, float(weight), [one[question] for one in repeats if one[question].reward == 1])
        for slot, repeats in enumerate(played)
        for question, weight in enumerate(weights[slot])
        if weight > 0
    ]
    if not solved:
        raise ConfigError(
            "No model solved a single one of the questions to be labelled: there is nothing to learn."
        )
    return (yield from _cloned(template, encoder, solved, "labelled turns read", "labels", ridge))


def cloned_from_policy(
    template: Checkpoint, encoder: Encoder, arena: Arena, teacher: Policy, questions: Sequence[Task]
) -> Generator[Reading, None, Checkpoint]:
    """The template with a head that clones the `teacher` (behaviour cloning): at each turn of an episode of each
    question it learns to choose the model and the role that the teacher chose there, whether or not the answer was
    right. Yields how far the encoder is with those turns. ConfigError for a head that is not linear, for a teacher that
    decides no single turns, and when no episode could be played to its end."""
    check_teachable(template)
    if not teacher.decides_turns:
        raise ConfigError(
            f"Policy '{teacher.id}' decides no single turns, so that no head can be taught by it: name another one."
        )
    played = arena.play(teacher, questions)
    ended = [
        (question, 1.0, [episode])
        for question, episode in enumerate(played)
        if episode.status is Status.FINISHED and episode.turns
    ]
    if not ended:
        raise ConfigError(
            f"No episode of the teacher '{teacher.id}' came to its end: there is nothing to learn."
        )
    return (
        yield from _cloned(template, encoder, ended, "turns of the teacher read", "cloned", by_number=True)
    )


def check_teachable(template: Checkpoint) -> None:
    """ConfigError for a head that labels or a teacher could not teach."""
    if template.head_kind != "linear":
        raise ConfigError(
            "Labels and teachers teach a linear head alone: leave --head out, or evolve without them."
        )


def _cloned(
    template: Checkpoint,
    encoder: Encoder,
    taught: Iterable[tuple[int, float, Sequence[Episode]]],
    what: str,
    kind: str,
    ridge: float | None = None,
    *,
    by_number: bool = False,
) -> Generator[Reading, None, Checkpoint]:
    """The template with the head that says most about the turns of what is `taught`: a question, how much its episodes
    count in all, and the episodes. `by_number`: each number of the states is scaled by its own spread, as in those of
    large models a few dwarf the others. Labels do without it: their recorded figures were measured so."""
    lessons = yield from _lessons(template, encoder, taught, what)
    spread = _spread(lessons.states) if by_number else np.ones(lessons.states.shape[1])
    lessons = replace(lessons, states=lessons.states / spread)
    everything, n_models = np.ones(len(lessons.weights), bool), len(template.models)
    head = _both(lessons, n_models, everything, _ridge(lessons, n_models) if ridge is None else ridge)
    vector = np.array(template.vector, float)
    vector[template.svf_size :] = (head / spread).ravel()
    return template.with_vector(vector, kind=kind)


def _spread(states: Vector) -> Vector:
    """The standard deviation of each number of the states; of one that hardly changes, a small share of the others'. It
    is then large everywhere, and stands for the constant that heads do not have."""
    spread: Vector = states.std(axis=0)
    return np.maximum(spread, 1e-3 * float(spread.mean()) or 1.0)


def _lessons(
    template: Checkpoint,
    encoder: Encoder,
    taught: Iterable[tuple[int, float, Sequence[Episode]]],
    what: str,
) -> Generator[Reading, None, Lessons]:
    """Every turn of what is taught; those of an episode count alike."""
    requests, rows = [], []
    for question, weight, episodes in taught:
        for episode in episodes:
            for turn in episode.turns:
                requests.append(request_at(episode, turn.index))
                slot = template.models.index(turn.decision.model)
                role = ROLE_ORDER.index(turn.decision.role)
                rows.append((slot, role, weight / (len(episodes) * len(episode.turns)), question))
    states = np.zeros((len(requests), encoder.hidden_size))
    for done, (place, row) in enumerate(read_each_for(template, encoder, requests), start=1):
        states[place] = row.states[0]
        yield Reading(done, len(requests), what)
    slots, roles, shares, asked = np.array(rows, float).reshape(-1, 4).T
    return Lessons(states, slots.astype(int), roles.astype(int), shares, asked.astype(int))


def _ridge(lessons: Lessons, n_models: int) -> float:
    """The one of RIDGES whose head says most about the questions left aside."""
    aside = lessons.questions % LEFT_ASIDE == 0
    if not aside.any() or aside.all():
        return RIDGES[1]
    return min(
        RIDGES, key=lambda ridge: _surprise(lessons, n_models, aside, _both(lessons, n_models, ~aside, ridge))
    )


def _both(lessons: Lessons, n_models: int, used: NDArray[np.bool_], ridge: float) -> Vector:
    """The head [models and roles, hidden size] of the lessons in use."""
    states, weights = lessons.states[used], lessons.weights[used]
    models = _softmax_regression(states, lessons.models[used], weights, n_models, ridge)
    roles = _softmax_regression(states, lessons.roles[used], weights, len(ROLE_ORDER), ridge)
    return np.concatenate([models, roles])


def _surprise(lessons: Lessons, n_models: int, used: NDArray[np.bool_], head: Vector) -> float:
    """Mean negative log probability (nats) of the choices in use."""
    z, rows = lessons.states[used] @ head.T, np.arange(int(used.sum()))
    models, roles = softmax(z[:, :n_models]), softmax(z[:, n_models:])
    told = np.log(models[rows, lessons.models[used]]) + np.log(roles[rows, lessons.roles[used]])
    return -float(np.average(told, weights=lessons.weights[used]))


def _softmax_regression(
    states: Vector, labels: _Places, weights: Vector, classes: int, ridge: float
) -> Vector:
    """Weights [classes, hidden size] of a softmax without a constant, as heads have none.

    Minimises the mean surprise plus `ridge` times the squared weights, of states of mean square 1 a number."""
    from scipy.optimize import minimize  # here, because importing scipy takes longer than all the rest

    scale = float(np.sqrt(np.mean(states**2))) or 1.0
    x, share = states / scale, weights / weights.sum()
    truth = np.eye(classes)[labels]

    def loss(flat: Vector) -> tuple[float, Vector]:
        head = flat.reshape(classes, -1)
        p = softmax(x @ head.T)
        told = -float(share @ np.log(np.maximum(p[np.arange(len(x)), labels], 1e-300)))
        gradient = ((p - truth) * share[:, None]).T @ x + 2 * ridge * head
        return told + ridge * float((head**2).sum()), gradient.ravel()

    found = minimize(
        loss, np.zeros(classes * x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500}
    )
    result: Vector = found.x.reshape(classes, -1) / scale
    return result
