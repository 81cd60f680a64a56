"""What turns amounted to: verdicts against the truth, roles kept, tokens and money spent; aggregated in SQL."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, case, exists, func, not_, or_, select

from core.analysis.metrics import wilson_interval
from core.episode import EndReason, Flag, Protocol, Role, Verdict
from core.play.roles import output_of_other_role
from storage.analysis.routing import (
    ALL_EPISODES,
    TurnReference,
    counted_episodes,
    counted_turns,
    newest_turns,
    read_turn_references,
)
from storage.filters.compiled import by_episode, condition
from storage.filters.episode_filter import EpisodeFilter, for_totals
from storage.filters.expression import (
    AnyOf,
    Compare,
    Either,
    Every,
    Holds,
    Name,
    Node,
    Not,
    join_nodes,
    write_expression,
)
from storage.filters.listing import total_if_all_known
from storage.rows.engine import fetch_rows
from storage.rows.mapping import to_flags
from storage.rows.schema import episode, same_turn, text, turn
from storage.store import Store

#: Of fewer answers a rate tells too little to rank a verifier by it.
FEWEST = 10


class VerdictOutcome(StrEnum):
    """What a Verifier turn did, set against the truth."""

    ACCEPTED_RIGHT = "accepted_right"
    ACCEPTED_WRONG = "accepted_wrong"
    REVISED_RIGHT = "revised_right"
    REVISED_WRONG = "revised_wrong"
    UNREADABLE = "unreadable"  # counted as REVISE by the role loop
    NOTHING = "nothing"  # there was no answer to judge
    FAILED = "failed"  # the model gave no reply at all


@dataclass(frozen=True, slots=True)
class Proportion:
    """`k` of `n`, with a 95 % Wilson interval."""

    k: int
    n: int

    @property
    def value(self) -> float | None:
        """The share, in 0 to 1; None of nothing."""
        return self.k / self.n if self.n else None

    @property
    def ci95(self) -> tuple[float, float]:
        """Wilson interval; (0, 1) of nothing."""
        return wilson_interval(self.k, self.n)


@dataclass(frozen=True, slots=True)
class TurnGroup:
    """Turns alike in model, role, verdict, grade and flags, and what they consumed. `cost_usd` is None as soon as
    one price is unknown; `latency_s` is the sum."""

    model: str
    role: Role
    verdict: Verdict | None
    correct_after: bool | None
    flags: tuple[Flag, ...]
    n: int
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    latency_s: float

    @property
    def judgement(self) -> VerdictOutcome | None:
        """What these Verifier turns did; None of other roles. `_did` says it in the filter language."""
        if self.role is not Role.VERIFIER:
            return None
        if self.verdict is Verdict.ACCEPT:
            return VerdictOutcome.ACCEPTED_RIGHT if self.correct_after else VerdictOutcome.ACCEPTED_WRONG
        if Flag.NOTHING_TO_JUDGE in self.flags:
            return VerdictOutcome.NOTHING
        if Flag.MODEL_ERROR in self.flags:
            return VerdictOutcome.FAILED
        if Flag.VERDICT_UNREADABLE in self.flags or self.verdict is None:
            return VerdictOutcome.UNREADABLE
        return VerdictOutcome.REVISED_RIGHT if self.correct_after else VerdictOutcome.REVISED_WRONG


def turn_groups(store: Store, where: EpisodeFilter) -> list[TurnGroup]:
    """All turns of the episodes that count, in a few hundred groups. One query over a covering index."""
    keys = (turn.c.role, turn.c.model, turn.c.verdict, turn.c.correct_after, turn.c.flags)
    query = (
        select(
            *keys,
            func.count(),
            func.coalesce(func.sum(turn.c.tokens_in), 0),
            func.coalesce(func.sum(turn.c.tokens_out), 0),
            total_if_all_known(turn.c.cost_usd),
            func.coalesce(func.sum(turn.c.latency_s), 0.0),
        )
        .where(*counted_turns(store, where))
        .group_by(*keys)
    )
    found = []
    for role, model, verdict, right, flags, *amounts in fetch_rows(store.engine, query):
        given = Verdict(verdict) if verdict else None
        found.append(TurnGroup(model, Role(role), given, right, to_flags(flags), *amounts))
    return found


@dataclass(frozen=True, slots=True)
class VerifierLedger:
    """One model's turns as a Verifier, by what they did."""

    model: str
    counts: dict[VerdictOutcome, int]
    self_verified: int = 0  # turns on an answer of its own

    @property
    def turns(self) -> int:
        """All its Verifier turns."""
        return sum(self.counts.values())

    @property
    def false_accept(self) -> Proportion:
        """Of the wrong answers it was shown and judged readably, those it accepted."""
        return self._share(VerdictOutcome.ACCEPTED_WRONG, VerdictOutcome.REVISED_WRONG)

    @property
    def false_revise(self) -> Proportion:
        """Of the right answers it was shown and judged readably, those it sent back."""
        return self._share(VerdictOutcome.REVISED_RIGHT, VerdictOutcome.ACCEPTED_RIGHT)

    def _share(self, what: VerdictOutcome, other: VerdictOutcome) -> Proportion:
        k = self.counts.get(what, 0)
        return Proportion(k, k + self.counts.get(other, 0))


def ledgers(groups: Iterable[TurnGroup]) -> list[VerifierLedger]:
    """One per model that was a Verifier; who accepts wrong answers most first, those that judged too few last."""
    counts: dict[str, Counter[VerdictOutcome]] = defaultdict(Counter)
    own: Counter[str] = Counter()
    for group in groups:
        if (judged := group.judgement) is not None:
            counts[group.model][judged] += group.n
            own[group.model] += group.n * (Flag.SELF_VERIFIED in group.flags)
    found = [VerifierLedger(model, of, own[model]) for model, of in counts.items()]
    return sorted(found, key=lambda one: (*_rank(one.false_accept), one.model))


def _rank(share: Proportion) -> tuple[bool, float]:
    return share.n < FEWEST, -(-1.0 if share.value is None else share.value)


@dataclass(frozen=True, slots=True)
class VerdictsOnAuthor:
    """Readable verdicts of one Verifier on one author's answers."""

    verifier: str
    author: str
    false_accept: Proportion
    false_revise: Proportion

    @property
    def own(self) -> bool:
        """It judged itself."""
        return self.verifier == self.author


def by_author(store: Store, where: EpisodeFilter) -> list[VerdictsOnAuthor]:
    """Verdicts by who gave them and who wrote the answer. One query."""
    role: ColumnElement[Any] = turn.c.role
    if for_totals(where) != ALL_EPISODES:  # few of a Verifier's turns, and those are found by their episodes
        role = by_episode(role, store.engine.dialect.name)
    judged = (
        select(
            turn.c.model.label("verifier"),
            _author().label("author"),
            turn.c.verdict,
            func.coalesce(turn.c.correct_after, False).label("right"),
        )
        .where(
            *counted_turns(store, where),
            role == Role.VERIFIER,
            condition(_READABLE, store.engine.dialect.name),
        )
        .subquery()
    )
    query = select(judged, func.count()).group_by(*judged.c)
    found: dict[tuple[str, str], dict[tuple[str, bool], int]] = {}
    for verifier, wrote, verdict, right, n in fetch_rows(store.engine, query):
        if wrote is not None:
            found.setdefault((verifier, wrote), {})[verdict, bool(right)] = n
    return [
        VerdictsOnAuthor(verifier, wrote, _of(of, Verdict.ACCEPT, False), _of(of, Verdict.REVISE, True))
        for (verifier, wrote), of in sorted(found.items())
    ]


def _of(counts: dict[tuple[str, bool], int], verdict: Verdict, right: bool) -> Proportion:
    n = sum(count for (_, graded), count in counts.items() if graded is right)
    return Proportion(counts.get((verdict, right), 0), n)


def _author() -> ColumnElement[Any]:
    """The model that wrote the answer a turn judges: the last Worker before it whose reply had one. In the released
    protocol every Worker's reply is taken for an answer."""
    worker, of = turn.alias("worker"), episode.alias("of")
    released = exists().where(of.c.id == worker.c.episode_id, of.c.protocol == Protocol.RELEASED)
    answered = or_(not_(worker.c.flags.contains(Flag.NO_ANSWER.value)), released.correlate(worker))
    return (
        select(worker.c.model)
        .where(
            worker.c.episode_id == turn.c.episode_id,
            worker.c.idx < turn.c.idx,
            worker.c.role == Role.WORKER,
            answered,
        )
        .order_by(worker.c.idx.desc())
        .limit(1)
        .correlate(turn)
        .scalar_subquery()
    )


def turns_with_verdict(
    store: Store, where: EpisodeFilter, verifier: str, what: VerdictOutcome, author: str | None = None
) -> list[TurnReference]:
    """Newest turns of a Verifier that did this, on answers of one author when given."""
    query = newest_turns(store, where).where(turn.c.model == verifier, turn.c.role == Role.VERIFIER)
    query = query.where(condition(_did(what), store.engine.dialect.name))
    if author is not None:
        query = query.where(_author() == author)
    return read_turn_references(store, query)


#: What a Verifier's turn did, as tests of the filter language, so that numbers and the lists behind them agree.
_ACCEPTS, _REVISES, _SILENT = (
    Compare(Name("turn.verdict"), "==", value) for value in (Verdict.ACCEPT.value, Verdict.REVISE.value, None)
)
_UNREADABLE, _NOTHING, _FAILED = (
    Holds(Name("turn.flags"), flag.value)
    for flag in (Flag.VERDICT_UNREADABLE, Flag.NOTHING_TO_JUDGE, Flag.MODEL_ERROR)
)
_REVISES_READABLY = join_nodes(Every, [_REVISES, Not(_UNREADABLE), Not(_NOTHING), Not(_FAILED)])
_READABLE = join_nodes(Either, [_ACCEPTS, _REVISES_READABLY])


def _did(what: VerdictOutcome) -> Node:
    match what:
        case VerdictOutcome.NOTHING:
            return join_nodes(Every, [_NOTHING, Not(_ACCEPTS)])
        case VerdictOutcome.FAILED:
            return join_nodes(Every, [_FAILED, Not(_NOTHING), Not(_ACCEPTS)])
        case VerdictOutcome.UNREADABLE:
            unreadable = join_nodes(Either, [_UNREADABLE, _SILENT])
            return join_nodes(Every, [unreadable, Not(_NOTHING), Not(_FAILED), Not(_ACCEPTS)])
    accepted, right = what.value.split("_")
    verdict = _ACCEPTS if accepted == "accepted" else _REVISES_READABLY
    return join_nodes(
        Every, [verdict, Compare(Name("turn.correct"), "==" if right == "right" else "!=", True)]
    )


def with_judgement(verifier: str, what: VerdictOutcome) -> str:
    """Episodes in which this Verifier did this, in the filter language."""
    return _with_turn(verifier, Role.VERIFIER, _did(what))


def with_lapse(model: str, role: Role) -> str:
    """Episodes in which this model in this role did not keep to it (`role_compliance`), in the filter language."""
    return _with_turn(
        model, role, join_nodes(Either, [Holds(Name("turn.flags"), LACKS[role].value), _FAILED])
    )


def _with_turn(model: str, role: Role, node: Node) -> str:
    spoke = [Compare(Name("turn.model"), "==", model), Compare(Name("turn.role"), "==", role.value)]
    return write_expression(AnyOf(join_nodes(Every, [*spoke, node])))


#: Episodes that a Verifier ended with an answer that is not right, in the filter language.
_ENDED_BY_VERIFIER = Compare(Name("end_reason"), "==", EndReason.ACCEPTED.value)
WRONGLY_ENDED = write_expression(
    join_nodes(Every, [_ENDED_BY_VERIFIER, Compare(Name("correct"), "!=", True)])
)


# Roles kept


@dataclass(frozen=True, slots=True)
class RoleCompliance:
    """One model in one role: its turns whose reply had what the role asks for."""

    model: str
    role: Role
    compliant: Proportion
    failed: int  # no reply at all; counted as not compliant


#: What a reply lacked, by role.
LACKS: dict[Role, Flag] = {
    Role.THINKER: Flag.NO_SUGGESTION,
    Role.WORKER: Flag.NO_ANSWER,
    Role.VERIFIER: Flag.VERDICT_UNREADABLE,
}


def role_compliance(groups: Iterable[TurnGroup]) -> list[RoleCompliance]:
    """Thinkers with a readable plan, Workers with an answer, Verifiers with one verdict; by model and role."""
    counts: dict[tuple[str, Role], list[int]] = {}
    for group in groups:
        of = counts.setdefault((group.model, group.role), [0, 0, 0])
        failed = Flag.MODEL_ERROR in group.flags
        of[0] += group.n * (not failed and LACKS[group.role] not in group.flags)
        of[1] += group.n
        of[2] += group.n * failed
    return [
        RoleCompliance(model, role, Proportion(k, n), failed)
        for (model, role), (k, n, failed) in sorted(counts.items())
    ]


#: At most so many replies of Thinkers are read at once, the newest, and of each so many characters.
MOST_PLANS, LONGEST_PLAN = 2_000, 20_000


class ThinkerPlan(NamedTuple):
    """A Thinker's reply and its turn: `breach` is what it gave that only another role is asked for."""

    model: str
    breach: Literal["answer", "verdict"] | None
    turn: TurnReference


def thinker_plans(store: Store, where: EpisodeFilter) -> list[ThinkerPlan]:
    """The newest replies of Thinkers, read as replies of the other roles. One query, which reads texts."""
    query = (
        newest_turns(store, where)
        .limit(MOST_PLANS)
        .add_columns(turn.c.model, func.substr(text.c.body, 1, LONGEST_PLAN))
        .join(text, same_turn(text) & (text.c.kind == "reply"))
        .where(turn.c.role == Role.THINKER)
    )
    return [
        ThinkerPlan(model, output_of_other_role(body), TurnReference(*row))
        for *row, model, body in fetch_rows(store.engine, query)
    ]


# What was spent


@dataclass(frozen=True, slots=True)
class Spending:
    """What some turns or episodes consumed; None: a price is unknown."""

    n: int
    tokens: int
    cost_usd: float | None
    latency_s: float


def spending_by(groups: Iterable[TurnGroup], key: Callable[[TurnGroup], str]) -> dict[str, Spending]:
    """Turns put together by `key`, most tokens first."""
    found: dict[str, Spending] = {}
    for group in groups:
        name = key(group)
        before = found.get(name, Spending(0, 0, 0.0, 0.0))
        found[name] = Spending(
            before.n + group.n,
            before.tokens + group.tokens_in + group.tokens_out,
            None if before.cost_usd is None or group.cost_usd is None else before.cost_usd + group.cost_usd,
            before.latency_s + group.latency_s,
        )
    return dict(sorted(found.items(), key=lambda one: (-one[1].tokens, one[0])))


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """How a policy did and what its finished episodes consumed."""

    policy: str
    n: int
    right: int
    turns: int
    tokens: int
    cost_usd: float | None
    latency_s: float
    accepted: Proportion  # of all
    false_accept: Proportion  # wrong ones among those that a Verifier ended
    accepts: dict[tuple[int, bool], int]  # (turns played, right) -> episodes that a Verifier ended

    @property
    def accuracy(self) -> Proportion:
        """Right episodes of all."""
        return Proportion(self.right, self.n)

    def per_solved(self, amount: float | None) -> float | None:
        """An amount shared out over the solved problems; None where there are none, or it is unknown."""
        return None if amount is None or not self.right else amount / self.right


def policy_costs(store: Store, where: EpisodeFilter) -> list[PolicyCost]:
    """Every policy with finished episodes, in the order of the filter's episodes, most first. One query."""
    accepted = case((episode.c.end_reason == EndReason.ACCEPTED, True), else_=False)
    right = func.coalesce(episode.c.correct, False)
    keys = (episode.c.policy, episode.c.turns, accepted, right)
    query = (
        select(
            *keys,
            func.count(),
            func.sum(episode.c.tokens_in + episode.c.tokens_out),
            total_if_all_known(episode.c.cost_usd),
            func.sum(episode.c.latency_s),
        )
        .where(*counted_episodes(store, where))
        .group_by(*keys)
    )
    by_policy: dict[str, list[tuple[Any, ...]]] = {}
    for policy, *rest in fetch_rows(store.engine, query):
        by_policy.setdefault(policy, []).append(tuple(rest))
    found = [_policy_cost(policy, rows) for policy, rows in by_policy.items()]
    return sorted(found, key=lambda one: (-one.n, one.policy))


def _policy_cost(policy: str, rows: Iterable[tuple[Any, ...]]) -> PolicyCost:
    n = solved = turns = tokens = ended = false = 0
    cost: float | None = 0.0
    latency = 0.0
    accepts: Counter[tuple[int, bool]] = Counter()
    for played, accepted, right, count, used, paid, waited in rows:
        n, solved, turns, tokens = n + count, solved + count * right, turns + count * played, tokens + used
        cost = None if cost is None or paid is None else cost + paid
        latency += waited
        if accepted:
            ended, false = ended + count, false + count * (not right)
            accepts[played, bool(right)] += count
    accepted, false_accept = Proportion(ended, n), Proportion(false, ended)
    return PolicyCost(policy, n, solved, turns, tokens, cost, latency, accepted, false_accept, accepts)


def frontier(points: Iterable[tuple[str, float, float]]) -> list[str]:
    """Names of the (name, price, accuracy) that no other beats in both, cheapest first."""
    best, found = float("-inf"), []
    for name, _, accuracy in sorted(points, key=lambda one: (one[1], -one[2], one[0])):
        if accuracy > best:
            best = accuracy
            found.append(name)
    return found
