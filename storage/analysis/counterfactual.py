"""What recorded turns would have come to with less to choose from, under other heads, or under smaller turn budgets. No
model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, case, func, literal, or_, select

from core.analysis.head_lens import likeliest_choices, rounding
from core.analysis.metrics import ClusteredShare
from core.checkpoint import Checkpoint
from core.episode import Decision, EndReason, Role, Status
from core.heads import Array, common_mask, softmax, split
from storage.analysis.routing import counted_episodes
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.listing import read_shares, sum_if_all_known, total_if_all_known
from storage.rows.engine import reading
from storage.rows.mapping import to_floats
from storage.rows.schema import episode, turn
from storage.rows.summaries import EpisodeSummary
from storage.store import Store

#: The logits of so many changed picks are read: enough for shares to a percent.
MOST_READ = 50_000
#: A decision of a head.
_DECIDED = and_(turn.c.stage == "finished", func.length(turn.c.model_logits) > 0, turn.c.origin == "policy")


@dataclass(frozen=True, slots=True)
class Without:
    """`changed` of `turns` decisions of a head would fall on another model, in `touched` of `episodes` episodes.
    `takers`: model -> the probability it would take over, summed over the `read` changed picks."""

    turns: int
    changed: int
    episodes: int
    touched: int
    read: int
    takers: dict[str, float]


def without_models(store: Store, where: EpisodeFilter, off: Sequence[str]) -> Without:
    """The decisions that a head made, without the models `off`: a pick changes exactly where it was one of them,
    as the others keep their order and their ratios. Two queries; no model is asked."""
    gone = turn.c.model.in_(list(off))
    counts = (
        select(
            func.count(),
            func.sum(case((gone, 1), else_=0)),
            func.count(turn.c.episode_id.distinct()),
            func.count(case((gone, turn.c.episode_id)).distinct()),
        )
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(*counted_episodes(store, where), _DECIDED)
    )
    picks = (
        select(episode.c.models, turn.c.model_logits, turn.c.model_mask)
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(*counted_episodes(store, where), _DECIDED, gone)
        .limit(MOST_READ)
    )
    with reading(store.engine) as connection:
        turns, changed, episodes, touched = connection.execute(counts).one()
        alike: dict[tuple[tuple[str, ...], tuple[bool, ...]], list[bytes]] = {}
        for models, logits, mask in connection.execute(picks):
            alike.setdefault((models, mask), []).append(bytes(logits))
    takers: dict[str, float] = {}
    for (models, mask), logits in alike.items():
        for model, p in _taken(models, logits, mask, off).items():
            takers[model] = takers.get(model, 0.0) + p
    read = sum(map(len, alike.values()))
    ordered = dict(sorted(takers.items(), key=lambda one: (-one[1], one[0])))
    return Without(turns, changed or 0, episodes, touched, read, ordered)


def without_each_model(store: Store, where: EpisodeFilter, models: Sequence[str]) -> dict[str, Without]:
    """What each of these models, left out alone, would change, the least first; who would take over is not read. Two
    queries, however many the models are."""
    counts = func.count(), func.count(turn.c.episode_id.distinct())
    decided = (*counted_episodes(store, where), _DECIDED)
    total = select(*counts).join(episode, episode.c.id == turn.c.episode_id).where(*decided)
    with reading(store.engine) as connection:
        turns, episodes = connection.execute(total).one()
        by_model = total.add_columns(turn.c.model).group_by(turn.c.model)
        picks = {model: (changed, touched) for changed, touched, model in connection.execute(by_model)}
    found = []
    for model in models:
        changed, touched = picks.get(model, (0, 0))
        found.append((model, Without(turns, changed, episodes, touched, 0, {})))
    return dict(sorted(found, key=lambda one: one[1].changed))


def _taken(
    models: Sequence[str], logits: Sequence[bytes], mask: Sequence[bool], off: Sequence[str]
) -> dict[str, float]:
    """Probability over the models that may still be chosen, summed over decisions; empty when none may."""
    left = [model not in off and (not mask or mask[i]) for i, model in enumerate(models)]
    if not any(left):
        return {}
    z = np.array([to_floats(one) for one in logits])
    summed = softmax(z, left).sum(axis=0)
    return {model: float(p) for model, p, remains in zip(models, summed, left, strict=True) if remains}


# Other heads


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A recorded turn: the episode it belongs to, its index, and what was chosen then."""

    episode: EpisodeSummary
    index: int
    model: str
    role: Role


@dataclass(frozen=True, eq=False)
class Rescored:
    """What each generation would choose at each line. Arrays [lines, generations]: slots of `models`, places in
    ROLE_ORDER, the chosen pair's probability, the smaller of both leads in logits, and whether rounding alone could
    turn the choice. `tolerance` is the most that rounding can move a logit here; `deviation` the largest difference
    from recorded logits, where a generation of this run recorded the line itself."""

    models: tuple[str, ...]
    generations: tuple[int, ...]
    lines: tuple[RecordedTurn, ...]
    slots: NDArray[np.int64]
    roles: NDArray[np.int64]
    chances: Array
    leads: Array
    unsure: NDArray[np.bool_]
    tolerance: float
    deviation: float | None


@dataclass(frozen=True, eq=False)
class Probabilities:
    """What every head would choose with which probability: models [turns, heads, slots], roles [turns, heads, roles]
    in ROLE_ORDER."""

    models: Array
    roles: Array


def probabilities(heads: Sequence[Checkpoint], states: Array, turns: Sequence[int]) -> Probabilities:
    """The probabilities of every head at `states` [n, d], which were read before the turns `turns` [n], from 0; what a
    checkpoint may not choose has 0."""
    models, roles = [], []
    for one in heads:
        z = one.head.logits(states, one.head_vector.astype(np.float64), turns)
        of_models, of_roles = split(z, len(one.models))
        models.append(softmax(of_models, one.model_mask))
        roles.append(softmax(of_roles, one.role_mask))
    return Probabilities(np.stack(models, axis=1), np.stack(roles, axis=1))


def score(
    heads: Sequence[Checkpoint], lines: Sequence[RecordedTurn], decisions: Sequence[Decision]
) -> Rescored:
    """The choices of every head at every line, whose decisions hold the states and the masks."""
    models = heads[-1].models
    states = np.array([np.frombuffer(one.hidden_state, "<f2") for one in decisions], np.float64)
    states = states.reshape(len(decisions), heads[-1].encoder.hidden_size)
    turns = [line.index for line in lines]
    shape = (len(lines), len(heads))
    slots, roles = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    chances, leads, unsure = np.zeros(shape), np.zeros(shape), np.zeros(shape, bool)
    tolerance, rows = 0.0, np.arange(len(lines))
    deviations: list[float] = []
    for column, checkpoint in enumerate(heads):
        vector = checkpoint.head_vector.astype(np.float64)
        z = checkpoint.head.logits(states, vector, turns)
        moved = rounding(checkpoint.head, states, vector)
        tolerance = max(tolerance, float(moved.max(initial=0.0)))
        model, role = (
            likeliest_choices(logits, error, _allowed(masks, own, logits.shape))
            for logits, error, masks, own in zip(
                split(z, len(models)),
                split(moved, len(models)),
                ([one.model_mask for one in decisions], [one.role_mask for one in decisions]),
                (checkpoint.model_mask, checkpoint.role_mask),
                strict=True,
            )
        )
        slots[:, column], roles[:, column] = model.places, role.places
        chances[:, column] = model.probs[rows, model.places] * role.probs[rows, role.places]
        leads[:, column] = np.minimum(model.leads, role.leads)
        unsure[:, column] = model.unsure | role.unsure
        for row, (line, decision) in enumerate(zip(lines, decisions, strict=True)):
            if line.episode.policy == checkpoint.id and decision.model_logits:
                recorded = np.array([*decision.model_logits, *decision.role_logits])
                deviations.append(float(np.abs(recorded - z[row]).max()))
    return Rescored(
        models,
        tuple(one.generation or 0 for one in heads),
        tuple(lines),
        slots,
        roles,
        chances,
        leads,
        unsure,
        tolerance,
        max(deviations, default=None),
    )


def _allowed(
    masks: Sequence[Sequence[bool]], own: Sequence[bool], shape: tuple[int, ...]
) -> NDArray[np.bool_]:
    """What each turn and the checkpoint both allow, [n, k]."""
    allowed = np.ones(shape, bool)
    for row, mask in enumerate(masks):
        allowed[row] = common_mask(mask, own) or True
    return allowed


# Smaller turn budgets


@dataclass(frozen=True, slots=True)
class AtBudget:
    """The outcome had the turn budget been `budget`, of the episodes that tell; those of one task fall together."""

    budget: int
    right: ClusteredShare
    turns: int  # played by all of them together
    tokens: int
    cost_usd: float | None  # None as soon as one turn has no known price

    @property
    def n(self) -> int:
        return self.right.n

    @property
    def accuracy(self) -> float:
        return self.right.k / self.right.n

    @property
    def ci95(self) -> tuple[float, float]:
        return self.right.ci95


def accuracy_by_budget(store: Store, *where: ColumnElement[bool]) -> list[AtBudget]:
    """Accuracy and cost of the finished episodes that meet `where` (conditions on `storage.rows.schema.episode`), had
    each been cut after 1, 2, ... turns; what stood as the answer then is what counts. Two queries.

    An episode that ended by itself before the cut counts with its own end. One that ran into its own budget says
    nothing about larger ones and is left out there, so `n` falls where recorded budgets differ."""
    counted = and_(*where, episode.c.status == Status.FINISHED, turn.c.idx < episode.c.turns)
    ended = episode.c.end_reason != EndReason.BUDGET
    spent = (
        select(
            episode.c.turns,
            ended,
            turn.c.idx,
            func.count(),
            func.sum(func.coalesce(turn.c.tokens_in, 0) + func.coalesce(turn.c.tokens_out, 0)),
            total_if_all_known(turn.c.cost_usd),
        )
        .join(turn, turn.c.episode_id == episode.c.id)
        .where(counted)
        .group_by(episode.c.turns, ended, turn.c.idx)
    )
    with reading(store.engine) as connection:
        rows = connection.execute(spent).all()
        longest = max((turns for turns, *_ in rows), default=0)
        if not longest:
            return []
        first = select(literal(1).label("k")).cte("budgets", recursive=True)
        budgets = first.union_all(select(first.c.k + 1).where(first.c.k < longest))
        last = turn.c.idx == episode.c.turns - 1
        right = case((last, episode.c.correct), else_=turn.c.correct_after)
        stands = turn.c.idx == case((episode.c.turns < budgets.c.k, episode.c.turns), else_=budgets.c.k) - 1
        answers = (
            select(budgets.c.k)
            .select_from(episode)
            .join(budgets, or_(episode.c.turns >= budgets.c.k, ended))
            .join(turn, and_(turn.c.episode_id == episode.c.id, stands))
            .where(counted)
        )
        found = read_shares(connection, answers, [budgets.c.k], (right.is_(True), None))
    return [_at(k, share, rows) for (k,), [share] in sorted(found.items())]


def _at(k: int, right: ClusteredShare, rows: Sequence[Any]) -> AtBudget:
    """The episodes that reached turn k or ended by themselves before it, with all their turns up to there."""
    told = [(n, used, paid) for turns, ended, idx, n, used, paid in rows if (turns >= k or ended) and idx < k]
    cost = sum_if_all_known(paid for *_, paid in told)
    return AtBudget(k, right, sum(n for n, *_ in told), sum(used for _, used, _ in told), cost)
