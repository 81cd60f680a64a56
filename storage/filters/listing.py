"""What lists of episodes select, never a turn's text: light columns, orders, keyset pages, facet counts and groups, and
shares whose observations come in clusters, such as the turns of one task."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from math import fsum
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    String,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    not_,
    null,
    select,
    true,
    tuple_,
    type_coerce,
    union_all,
)

from core.analysis.metrics import ClusteredShare
from core.episode import EndReason, Status
from storage.filters.episode_filter import (
    EpisodeFilter,
    conditions,
    has_own,
    is_silent,
)
from storage.filters.vocabulary import IS_FORK, IS_MEASURED, IS_MIXED, IS_SAMPLE
from storage.rows.columns import Total
from storage.rows.mapping import FORK_COLUMNS, Rows, from_row, to_flag_names
from storage.rows.schema import episode, run
from storage.rows.summaries import (
    COUNT_CAP,
    QUESTION_CUT,
    CappedCount,
    EpisodeGroup,
    EpisodeSummary,
    Facets,
    FacetValue,
    GroupBy,
    Order,
    Page,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Keyset:
    """An order over rows: `key` (never NULL) then `id` decide every tie."""

    key: ColumnElement[Any]
    id: ColumnElement[str]
    descending: bool

    def ordered(self, query: Select[Any], backwards: bool) -> Select[Any]:
        """The query in this order, or in the opposite one."""
        if self.descending is not backwards:
            return query.order_by(self.key.desc(), self.id.desc())
        return query.order_by(self.key.asc(), self.id.asc())

    def beyond(self, cursor: tuple[Any, Any], backwards: bool) -> ColumnElement[bool]:
        """The rows after the cursor, a key and an id or expressions for them, in this order, or before it."""
        here, there = tuple_(self.key, self.id), tuple_(*cursor)
        return here < there if self.descending is not backwards else here > there


def encode_cursor(value: float, row_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([value, row_id]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> tuple[float, str] | None:
    """Inverse of `encode_cursor`; None for anything else, so that a damaged link shows the first page."""
    if not cursor or len(cursor) > 200:
        return None
    try:
        value, row_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return (float(value), row_id) if math.isfinite(value) and isinstance(row_id, str) else None
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None


def count_capped(connection: Connection, matching: Select[Any], cap: int = COUNT_CAP) -> CappedCount:
    capped = matching.limit(cap + 1).subquery()
    n = connection.execute(select(func.count()).select_from(capped)).scalar_one()
    return CappedCount(min(n, cap), n > cap)


def read_page(
    connection: Connection,
    rows: Select[Any],
    keyset: Keyset,
    total: CappedCount,
    to_item: Callable[[Rows], T],
    *,
    after: str | None,
    before: str | None,
    last: bool,
    limit: int,
) -> Page[T]:
    """One page of `rows`: the first, the last, or the one next to a cursor. One query.

    `rows` must select the keyset's columns as "page_key" and "id".
    """
    forward, backward = decode_cursor(after), decode_cursor(before)
    backwards = forward is None and (last or backward is not None)
    cursor = forward or (None if last else backward)
    if cursor is not None:
        rows = rows.where(keyset.beyond(cursor, backwards))
    found: Sequence[Rows] = (
        connection.execute(keyset.ordered(rows, backwards).limit(limit + 1)).mappings().all()
    )
    more, found = len(found) > limit, found[:limit]
    if backwards:
        found = found[::-1]
    has_previous = more if backwards else cursor is not None
    has_next = cursor is not None if backwards else more
    cursors = [encode_cursor(row["page_key"], row["id"]) for row in (*found[:1], *found[-1:])]
    return Page(
        items=tuple(to_item(row) for row in found),
        total=total,
        next=cursors[-1] if has_next and cursors else None,
        previous=cursors[0] if has_previous and cursors else None,
    )


#: A share of rows: those that meet the first condition, of those that meet the second (None: of all).
Share = tuple[ColumnElement[bool], ColumnElement[bool] | None]


def read_shares(
    connection: Connection,
    rows: Select[Any],
    keys: Sequence[ColumnElement[Any]],
    *shares: Share,
    cluster: ColumnElement[Any] = episode.c.task_key,
) -> dict[tuple[Any, ...], list[ClusteredShare]]:
    """These shares of a query's rows (whatever it selects), for each combination of keys; rows of one `cluster` fall
    together. One query."""
    named = [key.label(f"key_{place}") for place, key in enumerate(keys)]
    counted = [
        (func.count() if met is None else count_if(met)).label(f"count_{place}")
        for place, met in enumerate(chain.from_iterable(shares))
    ]
    clusters = rows.with_only_columns(*named, *counted, maintain_column_froms=True)
    found = clusters.group_by(*named, cluster).subquery()
    n, columns = len(named), list(found.c)
    sums = chain.from_iterable(map(_sums, columns[n::2], columns[n + 1 :: 2]))
    query = select(*columns[:n], *sums).group_by(*columns[:n])
    return {tuple(row[:n]): _to_shares(row[n:]) for row in connection.execute(query)}


def _sums(hits: ColumnElement[Any], counts: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """The fields of a `ClusteredShare`, over rows that are one cluster each with `hits` of `counts`."""
    return [
        func.sum(hits),
        func.sum(counts),
        func.sum(case((counts > 0, 1), else_=0)),
        func.sum(hits * hits),
        func.sum(hits * counts),
        func.sum(counts * counts),
    ]


_FIELDS = 6
#: The share of no rows.
NOTHING = ClusteredShare(*[0] * _FIELDS)


def _to_shares(sums: Sequence[Any]) -> list[ClusteredShare]:
    fields = [int(value) for value in sums]
    return [ClusteredShare(*fields[start : start + _FIELDS]) for start in range(0, len(fields), _FIELDS)]


def count_if(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


_CUT_ANSWER = func.substr(episode.c.answer, 1, QUESTION_CUT).label("answer")
#: The columns of an EpisodeSummary.
LIGHT = [_CUT_ANSWER if field.name == "answer" else episode.c[field.name] for field in fields(EpisodeSummary)]
#: The columns of what `storage.rows.mapping.to_fork` makes.
FORK = [episode.c[name] for name in FORK_COLUMNS]

_NEVER = 1e300  # sorts behind every real value
_TOKENS = episode.c.tokens_in + episode.c.tokens_out
ORDERS: dict[Order, Keyset] = {
    "newest": Keyset(episode.c.started, episode.c.id, True),
    "oldest": Keyset(episode.c.started, episode.c.id, False),
    "turns": Keyset(episode.c.turns, episode.c.id, True),
    "tokens": Keyset(_TOKENS, episode.c.id, True),
    "cost": Keyset(func.coalesce(episode.c.cost_usd, -1.0), episode.c.id, True),
    "latency": Keyset(episode.c.latency_s, episode.c.id, True),
    "entropy": Keyset(func.coalesce(episode.c.mean_entropy, -1.0), episode.c.id, True),
    "margin": Keyset(func.coalesce(episode.c.min_margin, _NEVER), episode.c.id, False),
}

_finished = episode.c.status == Status.FINISHED
_accepted = and_(_finished, episode.c.end_reason == EndReason.ACCEPTED)


def total_if_all_known(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The sum over a group; NULL as soon as one value is unknown, so that a sum is never too small."""
    return type_coerce(case((func.count() == func.count(column), func.sum(column))), Total)


def sum_if_all_known(parts: Iterable[float | None]) -> float | None:
    """The sum, whatever the order; None as soon as one part is unknown."""
    known = list(parts)
    return None if None in known else fsum(part for part in known if part is not None)


def total(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The sum over a group, 0 of nothing."""
    return type_coerce(func.coalesce(func.sum(column), 0.0), Total)


#: Of a group of episodes: how many are right, and the first that is right, or is not.
RIGHT = func.sum(case((episode.c.correct.is_(True), 1), else_=0))
FIRST_RIGHT = func.min(case((episode.c.correct.is_(True), episode.c.id)))
FIRST_NOT_RIGHT = func.min(case((func.coalesce(episode.c.correct, False).is_(False), episode.c.id)))

#: Under what an episode was played, in one text: two that differ in it are not the same trial of a policy
#: (`storage.analysis.standings.Setting` has the parts).
_POOL = select(run.c.pool).where(run.c.id == episode.c.run_id).correlate(episode).scalar_subquery()
_SETTING = (
    cast(episode.c.turn_budget, String)
    + case((episode.c.argmax, "/argmax/"), else_="/sampled/")
    + cast(episode.c.protocol, String)
    + "/"
    + _POOL
)

#: How a group of episodes did: the numbers of a PolicySummary.
FIGURES: tuple[ColumnElement[Any], ...] = (
    func.max(episode.c.checkpoint_id).label("checkpoint_id"),
    func.max(episode.c.generation).label("generation"),
    func.count().filter(_finished).label("n"),
    func.count().filter(_finished, episode.c.correct).label("correct"),
    func.count().filter(episode.c.status == Status.MISSING).label("missing"),
    func.count().filter(episode.c.status == Status.RUNNING).label("running"),
    type_coerce(func.avg(case((_finished, episode.c.turns))), Total).label("mean_turns"),
    func.count().filter(_accepted).label("accepted"),
    func.count().filter(_accepted, episode.c.correct.is_(False)).label("false_accepts"),
    func.coalesce(func.sum(case((_finished, _TOKENS), else_=0)), 0).label("tokens"),
    # One unknown price makes the sum unknown, never too small.
    type_coerce(
        case(
            (func.count().filter(_finished, episode.c.cost_usd.is_(None)) > 0, None),
            else_=func.sum(episode.c.cost_usd),
        ),
        Total,
    ).label("cost_usd"),
    type_coerce(func.coalesce(func.avg(case((_finished, episode.c.latency_s))), 0.0), Total).label(
        "latency_s"
    ),
)

_FACETS = {
    "run": episode.c.run_id,
    "policy": episode.c.policy,
    "status": episode.c.status,
    "family": episode.c.family,
    "correct": episode.c.correct,
    "end_reason": episode.c.end_reason,
    "flag": episode.c.flags,
    "turns": episode.c.turns,
    "generation": episode.c.generation,
}
#: What is counted in one pass: the first columns of the index that covers all, which need no sorting, and others
#: with few values. All in one pass would make nearly as many groups as there are episodes.
_PASSES = (("run", "policy", "status", "family"), ("correct", "end_reason"), ("flag", "turns", "generation"))
#: In place of a policy, the plays that two decided.
MIXED = ""
#: The same in the filter language.
TWO_DECIDED = "mixed == True"
#: The policy that decided a play throughout, else MIXED.
DECIDER = case((not_(IS_MIXED), episode.c.policy), else_=MIXED).label("policy")
#: The facets of who decided: a play that two decided is nobody's.
_DECIDERS = ("policy", "generation")
_OUTCOMES = {True: "right", False: "wrong", None: "none"}


def to_summary(row: Rows) -> EpisodeSummary:
    return from_row(EpisodeSummary, row, flags=to_flag_names(row["flags"]))


def read_facets(connection: Connection, where: EpisodeFilter, dialect: str) -> Facets:
    """Counts by field. A field's own condition does not count for itself: its other values stay in view.

    One query over the covering index for all open fields, one more for each field that is set, and one for forks,
    plays by hand and samples, whether they are left out or not.
    """
    is_set = [name for name in _FACETS if _own(where, name)]
    counts: dict[str, Counter[Any]] = {name: Counter() for name in _FACETS}
    _add(connection, where, dialect, [name for name in _FACETS if name not in is_set], counts)
    for name in is_set:
        _add(connection, _open(where, name), dialect, [name], counts)
    found = {name: _values(name, values) for name, values in counts.items()}
    forks, by_hand, samples = _set_aside(connection, where, dialect)
    return Facets(**found, forks=forks, by_hand=by_hand, samples=samples)


def _open(where: EpisodeFilter, name: str) -> EpisodeFilter:
    """The filter without this facet's own condition; what it says of forks and samples stays."""
    named = "with" if where.run else None
    return replace(
        where.without(*_own(where, name)), forks=where.forks or named, samples=where.samples or named
    )


def _own(where: EpisodeFilter, name: str) -> list[str]:
    names = ("min_turns", "max_turns") if name == "turns" else (name,)
    return [one for one in names if getattr(where, one) is not None]


def _add(
    connection: Connection,
    where: EpisodeFilter,
    dialect: str,
    names: list[str],
    counts: dict[str, Counter[Any]],
) -> None:
    """Count the columns' values, in one query. What two decided is taken off again from the facets of who decided:
    there is little of it, and the index counts all others by itself."""
    passes = [together for one in _PASSES if (together := [name for name in one if name in names])]
    if not passes:
        return
    matching = conditions(where, dialect)
    columns: dict[str, ColumnElement[Any]] = {name: _FACETS[name] for name in names}
    mixed: ColumnElement[bool] = IS_MIXED
    if conditions(replace(where, forks="with", samples="with"), dialect):
        # They may be costly, and are looked into once for all passes. Whether it is a fork or a sample the index tells.
        hits = select(*columns.values(), IS_MIXED.label("mixed")).where(*matching).cte("hits")
        mixed = hits.c.mixed
        columns = {name: hits.c[column.name] for name, column in columns.items()}
        matching = []
    whole: list[tuple[list[str], int, list[ColumnElement[bool]]]] = [(one, 1, matching) for one in passes]
    if deciders := [name for name in names if name in _DECIDERS]:
        whole.append((deciders, -1, [*matching, mixed]))
    queries = [
        select(
            literal(place),
            *(one if name in together else cast(null(), one.type) for name, one in columns.items()),
            func.count(),
        )
        .where(*counted)
        .group_by(*(columns[name] for name in together))
        for place, (together, _, counted) in enumerate(whole)
    ]
    for place, *values, n in connection.execute(union_all(*queries)):
        together, sign, _ = whole[place]
        for name, value in zip(names, values, strict=True):
            if name in together:
                counts[name][value] += sign * n


def _set_aside(connection: Connection, where: EpisodeFilter, dialect: str) -> tuple[int, int, int]:
    """How many forks, how many other episodes that totals do not count, and how many samples are among the episodes or
    are left out of them; none where the filter asks for forks, or for samples, by name, or where samples are all there
    is. One query."""
    unmeasured = conditions(replace(where, forks="with"), dialect)
    if not (where.forks or is_silent(where, "forks")):
        unmeasured = [false()]
    samples = [IS_SAMPLE, *conditions(replace(where, samples="with"), dialect)]
    if not (where.samples or is_silent(where, "samples")):
        samples = [false()]
    elif where.samples is None:
        samples.append(has_own(where))
    aside = select(func.count().filter(IS_FORK).label("forks"), func.count().label("n"))
    first = aside.select_from(episode).where(*unmeasured, not_(IS_MEASURED)).subquery()
    second = select(func.count().label("samples")).select_from(episode).where(*samples).subquery()
    query = select(first.c.forks, first.c.n, second.c.samples).join_from(first, second, true())
    forks, both, n_samples = connection.execute(query).one()
    return forks, both - forks, n_samples


def _shown(name: str, value: Any) -> tuple[str, ...]:
    if name == "flag":
        return to_flag_names(value)
    if name == "correct":
        return (_OUTCOMES[value],)
    return () if value is None else (str(value),)


def _values(name: str, counted: Counter[Any]) -> tuple[FacetValue, ...]:
    """Largest first; runs newest first (their ids sort by time), numbers in order."""
    found: Counter[str] = Counter()
    for value, n in counted.items():
        if not n:
            continue
        for shown in _shown(name, value):
            found[shown] += n
    if name in ("generation", "turns"):
        return tuple(FacetValue(value, found[value]) for value in sorted(found, key=int))
    if name == "run":
        return tuple(FacetValue(value, found[value]) for value in sorted(found, reverse=True))
    return tuple(FacetValue(value, n) for value, n in sorted(found.items(), key=lambda it: (-it[1], it[0])))


def read_groups(
    connection: Connection, where: EpisodeFilter, by: GroupBy, dialect: str, limit: int
) -> tuple[list[EpisodeGroup], bool]:
    """The largest groups of the filtered episodes, and whether there are more. Two queries."""
    columns: dict[GroupBy, ColumnElement[Any]] = {
        "run": episode.c.run_id, "policy": DECIDER, "task": episode.c.task_id, "family": episode.c.family
    }  # fmt: skip
    column = columns[by]
    query = (
        select(
            column.label("value"),
            func.count().label("n"),
            func.count().filter(episode.c.status == Status.MISSING).label("missing"),
            type_coerce(func.avg(episode.c.turns).filter(_finished), Total).label("turns"),
            func.sum(_TOKENS).label("tokens"),
            total_if_all_known(episode.c.cost_usd).label("cost_usd"),
            func.max(episode.c.started).label("newest"),
            (func.count(_SETTING.distinct()) if by == "policy" else literal(1)).label("settings"),
        )
        .where(*conditions(where, dialect))
        .group_by(column)
        .order_by(func.count().desc(), column)
        .limit(limit + 1)
    )
    rows = [dict(row) for row in connection.execute(query).mappings()]
    judged = select(column).where(
        *conditions(where, dialect), _finished, column.in_([row["value"] for row in rows])
    )
    share = (episode.c.correct.is_(True), episode.c.correct.is_not(None))
    right = read_shares(connection, judged, [column], share)
    found = []
    for row in rows[:limit]:
        [its] = right.get((row["value"],), [NOTHING])
        found.append(EpisodeGroup(**row, right=its))
    return found, len(rows) > limit
