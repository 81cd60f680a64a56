"""What the workflows of recorded episodes are like: who does which step, how long they are, their shapes and how those
end, what steps may read, plans that cannot be read, and what later rounds change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from core.analysis.metrics import ClusteredShare
from core.episode import Flag
from core.workflow import PlanFault, Topology
from storage.analysis.reply_faults import Share
from storage.analysis.routing import counted_episodes
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.listing import NOTHING, read_shares
from storage.rows.engine import fetch_scalar, reading
from storage.rows.schema import episode, plan, same_turn, turn
from storage.store import Store


class RoundOutcome(StrEnum):
    """What a round after the first did to the answer that it found."""

    KEPT = "kept"  # the planner left it as it was
    SAME = "same"  # another workflow came to the same answer
    CHANGED = "changed"  # another workflow came to another answer
    NOT_RUN = "not_run"  # its plan could not be read, or was longer than the turns that were left


@dataclass(frozen=True, slots=True)
class Rounds:
    """`n` rounds, with how many of them an answer was right before and after."""

    n: int = 0
    right_before: int = 0
    right_after: int = 0

    def plus(self, before: bool, after: bool) -> Rounds:
        return Rounds(self.n + 1, self.right_before + before, self.right_after + after)


@dataclass(slots=True)
class WorkflowUse:
    """The finished episodes of one policy that have plans. Places are of steps in their workflow, from 0; episodes of
    one task fall together in shares. An episode of several rounds has a workflow in each that ran; its shape is that of
    the last."""

    right: ClusteredShare = NOTHING
    topologies: dict[Topology, ClusteredShare] = field(
        default_factory=dict
    )  # right ones among those of a shape
    models: Counter[tuple[int, str]] = field(default_factory=Counter)  # steps by (place, model)
    lengths: Counter[int] = field(default_factory=Counter)  # workflows by their number of steps
    access: dict[int, Share] = field(
        default_factory=dict
    )  # earlier steps that could be read, of all earlier ones
    plans: int = 0  # replies of the planner, repeated ones too
    faults: Counter[PlanFault] = field(default_factory=Counter)  # those that were no workflow, by the reason
    failed: int = 0  # those that its model failed to give
    rounds: dict[RoundOutcome, Rounds] = field(default_factory=dict)  # after the first

    @property
    def episodes(self) -> int:
        return self.right.n

    @property
    def workflows(self) -> int:
        return self.lengths.total()

    @property
    def steps_mean(self) -> float | None:
        return sum(n * count for n, count in self.lengths.items()) / self.workflows if self.lengths else None

    @property
    def readable(self) -> float | None:
        """The share of the planner's replies that are a workflow or keep an answer, failed ones left out; None of
        none."""
        known = self.plans - self.failed
        return 1 - self.faults.total() / known if known else None

    def share(self, place: int, model: str) -> float:
        """The share of the steps at a place that a model does, in 0 to 1."""
        return self.models[place, model] / self.lengths_from(place) if self.lengths_from(place) else 0.0

    def lengths_from(self, place: int) -> int:
        return sum(count for n, count in self.lengths.items() if n > place)


_Condition = ColumnElement[bool]
_Uses = dict[str, WorkflowUse]  # by policy


def any_workflow(store: Store, where: EpisodeFilter) -> bool:
    query = select(plan.c.episode_id).join(episode, episode.c.id == plan.c.episode_id)
    return fetch_scalar(store.engine, query.where(*counted_episodes(store, where)).limit(1)) is not None


def workflow_use(store: Store, where: EpisodeFilter) -> dict[str, WorkflowUse]:
    """Of each policy that wrote a plan in an episode that counts, the one with most episodes first; empty where none
    did. A handful of queries, which read no text but the few that later rounds compare."""
    counted = and_(*counted_episodes(store, where))
    found: dict[str, WorkflowUse] = {}
    with reading(store.engine) as connection:
        _read_accuracies(connection, counted, found)
        if found:
            _read_steps(connection, counted, found)
            _read_plans(connection, counted, found)
            _read_rounds(connection, counted, found)
    return dict(sorted(found.items(), key=lambda one: (-one[1].episodes, one[0])))


def _read_accuracies(connection: Connection, counted: _Condition, found: _Uses) -> None:
    for shape in ((), (episode.c.topology,)):
        planned = select(episode.c.id).where(counted, episode.c.id.in_(select(plan.c.episode_id)))
        right = (episode.c.correct.is_(True), None)
        shares = read_shares(connection, planned, (episode.c.policy, *shape), right)
        for (policy, *of), [share] in shares.items():
            use = found.setdefault(policy, WorkflowUse())
            if not shape:
                use.right = share
            elif of[0] is not None:
                use.topologies[of[0]] = share


def _read_steps(connection: Connection, counted: _Condition, found: _Uses) -> None:
    """Who does which step, how many steps there are, and what they may read."""
    in_vain = turn.c.flags.like(f"%{Flag.FAILED_OVER}%")  # another model did the step
    of_steps = (turn.c.stage == "finished", turn.c.step.is_not(None), ~in_vain, counted)
    keys = (episode.c.policy, turn.c.step, turn.c.model)
    query = select(*keys, func.count()).join(episode, episode.c.id == turn.c.episode_id)
    for policy, place, model, n in connection.execute(query.where(*of_steps).group_by(*keys)):
        found[policy].models[place, model] += n
    for use in found.values():
        totals: Counter[int] = Counter()
        for (place, _), n in use.models.items():
            totals[place] += n
        # As many workflows end with a step as have it and not the next one.
        use.lengths = Counter(
            {place + 1: n - totals[place + 1] for place, n in sorted(totals.items()) if n > totals[place + 1]}
        )
    reads = (episode.c.policy, turn.c.step, turn.c.idx, turn.c.visible)
    query = select(*reads, func.count()).join(episode, episode.c.id == turn.c.episode_id)
    for policy, place, index, visible, n in connection.execute(
        query.where(*of_steps, turn.c.step > 0).group_by(*reads)
    ):
        first = index - place  # the workflow's first turn: what is before it is of an earlier round
        seen = sum(one >= first for one in visible)
        before = found[policy].access.get(place, Share())
        found[policy].access[place] = Share(before.k + n * seen, before.n + n * place)
    for use in found.values():
        use.access = dict(sorted(use.access.items()))


def _read_plans(connection: Connection, counted: _Condition, found: _Uses) -> None:
    failed = case((plan.c.error_kind.is_not(None), 1), else_=0)
    query = (
        select(episode.c.policy, plan.c.fault, func.count(), func.sum(failed))
        .join(episode, episode.c.id == plan.c.episode_id)
        .where(counted)
        .group_by(episode.c.policy, plan.c.fault)
    )
    for policy, fault, n, lost in connection.execute(query):
        use = found[policy]
        use.plans += n
        use.failed += int(lost)
        if fault is not None and n > lost:
            use.faults[fault] += n - int(lost)


def _read_rounds(connection: Connection, counted: _Condition, found: _Uses) -> None:
    """What rounds after the first did to the answer."""
    several = (
        select(plan.c.episode_id)
        .join(episode, episode.c.id == plan.c.episode_id)
        .where(counted, plan.c.round > 0)
    )
    last = (
        select(turn.c.episode_id, func.max(turn.c.idx).label("idx"))
        .where(turn.c.episode_id.in_(several), turn.c.round.is_not(None), turn.c.stage == "finished")
        .group_by(turn.c.episode_id, turn.c.round)
        .subquery()
    )
    answers = {
        (id_, number): (answer, bool(right))
        for id_, number, answer, right in connection.execute(
            select(turn.c.episode_id, turn.c.round, turn.c.answer_after, turn.c.correct_after).join(
                last, same_turn(last)
            )
        )
    }
    query = (
        select(episode.c.policy, plan.c.episode_id, plan.c.round, plan.c.keeps, episode.c.correct)
        .join(episode, episode.c.id == plan.c.episode_id)
        .where(counted, plan.c.round > 0)
        .order_by(plan.c.episode_id, plan.c.round, plan.c.attempt)
    )
    tries = {
        (id_, number): (policy, keeps, bool(right))
        for policy, id_, number, keeps, right in connection.execute(query)
    }
    for policy, outcome, before, after in _outcomes(tries, answers):
        rounds = found[policy].rounds
        rounds[outcome] = rounds.get(outcome, Rounds()).plus(before, after)


def _outcomes(
    tries: Mapping[tuple[str, int], tuple[str, bool, bool]],
    answers: Mapping[tuple[str, int], tuple[str | None, bool]],
) -> Iterator[tuple[str, RoundOutcome, bool, bool]]:
    """(policy, outcome, whether the answer was right before, and after) of each later round. `tries`: its last plan's
    policy, whether it keeps the answer, and how the episode ended; `answers`: what stood after each round that ran."""
    for (id_, number), (policy, keeps, ended_right) in tries.items():
        before, was_right = answers.get((id_, number - 1), (None, False))
        if keeps:
            yield policy, RoundOutcome.KEPT, was_right, was_right
        elif (id_, number) in answers:
            after, is_right = answers[id_, number]
            yield policy, RoundOutcome.SAME if after == before else RoundOutcome.CHANGED, was_right, is_right
        else:
            yield policy, RoundOutcome.NOT_RUN, was_right, ended_right
