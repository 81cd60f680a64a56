"""What turns amounted to: verdicts against the truth, and roles kept; aggregated in SQL."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, and_, case, exists, func, not_, or_, select

from core.analysis.metrics import ClusteredShare
from core.episode import EndReason, Flag, Protocol, Role, Verdict
from core.play.reading import output_of_other_role
from storage.analysis.routing import (
    ALL_EPISODES,
    TurnReference,
    counted_episodes,
    counted_turns,
    newest_turns,
    own_turns,
    read_turn_references,
)
from storage.filters.episode_filter import EpisodeFilter, by_episode, condition, for_totals
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
from storage.filters.listing import NOTHING, read_shares, total, total_if_all_known
from storage.rows.engine import fetch_rows, reading
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
    def asked(self) -> bool:
        return Flag.NOTHING_TO_JUDGE not in self.flags

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
            total(turn.c.latency_s),
        )
        .where(*counted_turns(store, where))
        .group_by(*keys)
    )
    found = []
    for role, model, verdict, right, flags, *amounts in fetch_rows(store.engine, query):
        found.append(TurnGroup(model, role, verdict, right, flags, *amounts))
    return found


@dataclass(frozen=True, slots=True)
class TurnRates:
    """What the turns of one model in one role amounted to, as shares; turns of one task fall together.

    `compliant`: of the turns in which it was asked, those whose reply had what the role asks for. `false_accept`: of
    the wrong answers it judged readably as a Verifier, those it accepted; `false_revise`: of the right ones, those it
    sent back."""

    compliant: ClusteredShare
    false_accept: ClusteredShare
    false_revise: ClusteredShare


Rates = dict[tuple[str, Role], TurnRates]


def turn_rates(store: Store, where: EpisodeFilter) -> Rates:
    """By model and role. One query."""

    def did(*what: VerdictOutcome) -> ColumnElement[bool]:
        return or_(*(condition(_did(one), dialect) for one in what))

    dialect = store.engine.dialect.name
    lapsed = or_(*((turn.c.role == role) & condition(_lapse(role), dialect) for role in Role))
    asked = not_(condition(_NOTHING, dialect))  # else there is no reply that could keep to anything
    judged_wrong = did(VerdictOutcome.ACCEPTED_WRONG, VerdictOutcome.REVISED_WRONG)
    judged_right = did(VerdictOutcome.REVISED_RIGHT, VerdictOutcome.ACCEPTED_RIGHT)
    turns = (
        select(turn.c.idx)
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(turn.c.stage == "finished", *counted_episodes(store, where), *own_turns(where))
    )
    with reading(store.engine) as connection:
        shares = read_shares(
            connection,
            turns,
            (turn.c.model, turn.c.role),
            (and_(asked, not_(lapsed)), asked),
            (did(VerdictOutcome.ACCEPTED_WRONG), judged_wrong),
            (did(VerdictOutcome.REVISED_RIGHT), judged_right),
        )
    return {(model, role): TurnRates(*rates) for (model, role), rates in shares.items()}


@dataclass(frozen=True, slots=True)
class VerifierLedger:
    """One model's turns as a Verifier, by what they did, and its rates (see `TurnRates`)."""

    model: str
    counts: dict[VerdictOutcome, int]
    false_accept: ClusteredShare
    false_revise: ClusteredShare
    self_verified: int = 0  # turns on an answer of its own

    @property
    def turns(self) -> int:
        return sum(self.counts.values())


def ledgers(groups: Iterable[TurnGroup], rates: Rates) -> list[VerifierLedger]:
    """One per model that was a Verifier; who accepts wrong answers most first, those that judged too few last."""
    counts: dict[str, Counter[VerdictOutcome]] = defaultdict(Counter)
    own: Counter[str] = Counter()
    for group in groups:
        if (judged := group.judgement) is not None:
            counts[group.model][judged] += group.n
            own[group.model] += group.n * (Flag.SELF_VERIFIED in group.flags)
    found = []
    nothing = TurnRates(NOTHING, NOTHING, NOTHING)  # where its turns went between the two readings
    for model, of in counts.items():
        its = rates.get((model, Role.VERIFIER), nothing)
        found.append(VerifierLedger(model, of, its.false_accept, its.false_revise, own[model]))
    return sorted(found, key=lambda one: (*_rank(one.false_accept), one.model))


def _rank(share: ClusteredShare) -> tuple[bool, float]:
    return share.n < FEWEST, -(-1.0 if share.value is None else share.value)


@dataclass(frozen=True, slots=True)
class VerdictsOnAuthors:
    """Shares of the wrong answers that Verifiers judged readably and accepted: by (verifier, author), of a model's
    own answers, and of others'."""

    pairs: dict[tuple[str, str], ClusteredShare]
    own: ClusteredShare
    others: ClusteredShare


def by_author(store: Store, where: EpisodeFilter) -> VerdictsOnAuthors:
    """False accepts by who gave the verdict and who wrote the answer. Two queries."""
    role: ColumnElement[Any] = turn.c.role
    if for_totals(where) != ALL_EPISODES:  # few of a Verifier's turns, and those are found by their episodes
        role = by_episode(role, store.engine.dialect.name)
    judged = (
        select(
            turn.c.model.label("verifier"),
            _author().label("author"),
            episode.c.task_key.label("task"),
            (turn.c.verdict == Verdict.ACCEPT).label("accepted"),
        )
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(
            *counted_turns(store, where),
            role == Role.VERIFIER,
            condition(_READABLE, store.engine.dialect.name),
            func.coalesce(turn.c.correct_after, False).is_(False),
        )
        .subquery()
    )
    known = select(judged.c.task).where(judged.c.author.is_not(None))
    share, task = (judged.c.accepted, None), judged.c.task
    with reading(store.engine) as connection:
        pairs = read_shares(connection, known, (judged.c.verifier, judged.c.author), share, cluster=task)
        pooled = read_shares(connection, known, [judged.c.verifier == judged.c.author], share, cluster=task)
    return VerdictsOnAuthors(
        {(verifier, author): one for (verifier, author), [one] in sorted(pairs.items())},
        *(pooled.get((own,), [NOTHING])[0] for own in (True, False)),
    )


class WrongAccepts(NamedTuple):
    """Verdicts that accepted a wrong answer: how many, in how many episodes, and how many episodes they ended (a `false
    accept`); in a workflow an ACCEPT ends nothing."""

    verdicts: int
    episodes: int
    ended: int


def wrong_accepts(store: Store, where: EpisodeFilter) -> WrongAccepts:
    """Of the episodes that count. One query."""
    accepted = condition(_did(VerdictOutcome.ACCEPTED_WRONG), store.engine.dialect.name)
    ended = (episode.c.end_reason == EndReason.ACCEPTED) & func.coalesce(episode.c.correct, False).is_(False)
    query = (
        select(
            func.count(),
            func.count(turn.c.episode_id.distinct()),
            func.count(case((ended, turn.c.episode_id)).distinct()),
        )
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(turn.c.stage == "finished", turn.c.role == Role.VERIFIER, accepted)
        .where(*counted_episodes(store, where), *own_turns(where))
    )
    return WrongAccepts(*fetch_rows(store.engine, query)[0])


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
    query = query.where(condition(_did(what), store.engine.dialect.name), *own_turns(where))
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
    return _with_turn(model, role, _lapse(role))


def _lapse(role: Role) -> Node:
    return join_nodes(Either, [Holds(Name("turn.flags"), LACKS[role].value), _FAILED])


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
    """One model in one role: of the turns in which it was asked, those whose reply had what the role asks for."""

    model: str
    role: Role
    compliant: ClusteredShare
    failed: int  # no reply at all; counted as not compliant


#: What a reply lacked, by role.
LACKS: dict[Role, Flag] = {
    Role.THINKER: Flag.NO_SUGGESTION,
    Role.WORKER: Flag.NO_ANSWER,
    Role.VERIFIER: Flag.VERDICT_UNREADABLE,
}


def role_compliance(groups: Iterable[TurnGroup], rates: Rates) -> list[RoleCompliance]:
    """Thinkers with a readable plan, Workers with an answer, Verifiers with one verdict; by model and role,
    where one was asked at all."""
    failed: Counter[tuple[str, Role]] = Counter()
    for group in groups:
        failed[group.model, group.role] += group.n * (Flag.MODEL_ERROR in group.flags)
    return [
        RoleCompliance(model, role, of.compliant, failed[model, role])
        for (model, role), of in sorted(rates.items())
        if of.compliant.n
    ]


#: At most so many replies of Thinkers are read at once, the newest, and of each so many characters.
MOST_PLANS, LONGEST_PLAN = 2_000, 20_000


class ThinkerPlan(NamedTuple):
    """A Thinker's reply, its task and its turn: `breach` is what it gave that only another role is asked for."""

    model: str
    task: int  # its key in the store
    breach: Literal["answer", "verdict"] | None
    turn: TurnReference


def thinker_plans(store: Store, where: EpisodeFilter) -> list[ThinkerPlan]:
    """The newest replies of Thinkers that gave one, read as replies of the other roles. One query, which reads
    texts."""
    query = (
        newest_turns(store, where)
        .limit(MOST_PLANS)
        .add_columns(turn.c.model, episode.c.task_key, func.substr(text.c.body, 1, LONGEST_PLAN))
        .join(text, same_turn(text) & (text.c.kind == "reply"))
        .where(turn.c.role == Role.THINKER, turn.c.error_kind.is_(None))
    )
    return [
        ThinkerPlan(model, task, output_of_other_role(body), TurnReference(*row))
        for *row, model, task, body in fetch_rows(store.engine, query)
    ]
