"""Other ways to combine a pool, to compare with a coordinator: cascade, majority vote, Mixture-of-Agents, labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from core.coordinator.encoder import Encoder
from core.draws import derive_seed
from core.episode import EndReason, Episode, Role, Status, Task, Turn
from core.evolution.baselines import Arena, question_states, solved_by_single
from core.evolution.config import LABEL_REPEATS
from core.evolution.cycles import ChosenCycle
from core.evolution.fitness import label_weights, mean_reward, play_all, rewards
from core.play.policies import CyclePolicy, PolicyPerRequest, RandomPolicy, single_policy
from core.play.policy import Policy

VOTERS = 5

#: How large the coefficients of a router of labels may become (scikit-learn's C): the best of a grid on validation
#: tasks.
FREEDOM = 0.01

_CHECKED = (Role.WORKER, Role.VERIFIER)


def cascade(arena: Arena, validation: Sequence[Task]) -> CyclePolicy:
    """A cascade as in FrugalGPT (Chen et al. 2023): a model answers, a judge accepts, or the next model answers.

    The judge is the model that tells right answers of all models from wrong ones best on validation tasks, in the
    Verifier's role. The models are chosen one after the other, each the best one after those before it."""

    def played(steps: tuple[str, ...], turns: int) -> list[Episode]:
        policy = CyclePolicy(arena.models, steps, _CHECKED, "cascade")
        return replace(arena, turn_budget=turns).play(policy, validation)

    checked = {
        judge: [one for model in arena.models for one in played((model, judge), 2)] for judge in arena.models
    }
    judge = max(arena.models, key=lambda name: discernment(checked[name]))
    steps: tuple[str, ...] = ()
    while len(steps) < arena.turn_budget:
        turns = min(len(steps) + 2, arena.turn_budget)
        trials = [(*steps, model, judge) for model in arena.models]
        steps = max(trials, key=lambda trial: float(mean_reward(rewards(played(trial, turns)))))
    return CyclePolicy(arena.models, steps, _CHECKED, "cascade")


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


def majority_vote(arena: Arena, policy: Policy, unplayed: Sequence[Episode]) -> list[Episode]:
    """Majority vote (Wang et al. 2023, "Self-Consistency"): a policy answers five times, knowing nothing of its other
    answers; the most frequent answer wins, of equals the first.

    The turns of all five stand in the episode one after the other; those of one with the winning answer come last, as
    an episode's answer does."""
    independent = [
        replace(one, id=f"{one.id}/{k}", seed=derive_seed((one.seed, "vote", k)))
        for one in unplayed
        for k in range(VOTERS)
    ]
    played = play_all(independent, policy, arena.pool, arena.grade)
    return [_voted(episode, played[VOTERS * i : VOTERS * (i + 1)]) for i, episode in enumerate(unplayed)]


def _voted(episode: Episode, votes: Sequence[Episode]) -> Episode:
    if lost := _lost(episode, votes):
        return lost
    answers = Counter(vote.answer for vote in votes if vote.answer is not None)
    winner, count = answers.most_common(1)[0] if answers else (None, 0)
    last = next((k for k, vote in enumerate(votes) if vote.answer == winner), 0)
    ordered = [vote for k, vote in enumerate(votes) if k != last] + [votes[last]]
    return replace(
        episode,
        turn_budget=VOTERS * episode.turn_budget,
        turns=_side_by_side(episode, ordered),
        status=Status.FINISHED,
        end_reason=votes[last].end_reason,
        answer=winner,
        correct=votes[last].correct if winner is not None else False,
        meta={**episode.meta, "votes": f"{count} of {VOTERS}"},
    )


def mixture_of_agents(arena: Arena, unplayed: Sequence[Episode]) -> list[Episode]:
    """Mixture-of-Agents (Wang et al. 2024) with one layer: every model answers, knowing nothing of the others; then
    one at random, which is handed all their answers, answers last. Calls: the models and one."""
    n = len(arena.models)
    proposals = [
        replace(one, id=f"{one.id}/{model}", seed=derive_seed((one.seed, "proposal", model)), turn_budget=1)
        for one in unplayed
        for model in arena.models
    ]
    workers = [single_policy(model, arena.models, (Role.WORKER,)) for model in arena.models]
    worker_of = {one.id: workers[place % n] for place, one in enumerate(proposals)}
    each = PolicyPerRequest("mixture", arena.models, lambda request: worker_of[request.episode_id])
    answered = play_all(proposals, each, arena.pool, arena.grade)
    started, lost = [], {}
    for place, episode in enumerate(unplayed):
        layer = answered[n * place : n * (place + 1)]
        if missing := _lost(episode, layer):
            lost[episode.id] = missing
            continue
        turns = _side_by_side(episode, layer)
        answers = "; ".join(dict.fromkeys(one.answer for one in layer if one.answer is not None))
        with_advice = (*turns[:-1], replace(turns[-1], suggestion=answers))
        started.append(replace(episode, turn_budget=n + 1, turns=with_advice))
    aggregator = RandomPolicy(arena.models, (Role.WORKER,), "mixture-of-agents")
    ended = {one.id: one for one in play_all(started, aggregator, arena.pool, arena.grade)}
    return [lost.get(episode.id) or ended[episode.id] for episode in unplayed]


def _lost(episode: Episode, parts: Sequence[Episode]) -> Episode | None:
    """The episode as missing, if one of its parts is."""
    for part in parts:
        if part.status is not Status.FINISHED:
            return replace(episode, status=Status.MISSING, end_reason=EndReason.ERROR, error=part.error)
    return None


def _side_by_side(episode: Episode, parts: Sequence[Episode]) -> tuple[Turn, ...]:
    """The turns of independent episodes as the turns of one; a turn without an answer leaves the last one."""
    turns: list[Turn] = []
    for part in parts:
        for own in part.turns:
            turn = replace(own, episode_id=episode.id, index=len(turns))
            if turn.answer_after is None and turns:
                before = turns[-1]
                turn = replace(turn, answer_after=before.answer_after, correct_after=before.correct_after)
            turns.append(turn)
    return tuple(turns)


def labelled_router(
    arena: Arena,
    cycles: Mapping[str, ChosenCycle],
    encoder: Encoder,
    train: Sequence[Task],
    tasks: Sequence[Task],
    *,
    freedom: float = FREEDOM,
) -> PolicyPerRequest:
    """Supervised labels (paper A.5): a linear softmax from the question's hidden state to the model that does best.

    The label of a question is the model that solved it most often in three repeats at its best cycle; ties count
    evenly, and a question that no model solved is left out. Trained to the end (L-BFGS), not by some steps of Adam.
    `freedom` is scikit-learn's C: the larger, the larger coefficients may become."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    repeats = [
        solved_by_single(replace(arena, seed=derive_seed((arena.seed, "label", k))), cycles, train)
        for k in range(LABEL_REPEATS)
    ]
    weights = label_weights(mean_reward(np.stack(repeats, axis=-1)))
    rows, labels = np.nonzero(weights.T)
    scaler = StandardScaler().fit(question_states(encoder, train))
    states = scaler.transform(question_states(encoder, train))
    learned = LogisticRegression(C=freedom, max_iter=2000).fit(
        states[rows], labels, sample_weight=weights.T[rows, labels]
    )
    chosen = learned.predict(scaler.transform(question_states(encoder, tasks)))
    singles = arena.singles(cycles)
    by_question = {task.question: singles[int(best)] for task, best in zip(tasks, chosen, strict=True)}
    return PolicyPerRequest("labels", arena.models, lambda request: by_question[request.transcript.question])
