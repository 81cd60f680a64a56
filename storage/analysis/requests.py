"""Requests to the endpoint: how each ended, where its time went, what it cost, and what the best single model of its
pool would have cost in its place."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, Select, Table, exists, func, select

from core.analysis.metrics import Mean, student_reach
from core.episode import EndReason, Flag, Protocol, Role, Status
from core.play.policies import SINGLE
from storage.analysis.costs import of_the_pool
from storage.analysis.standings import SETTING, Setting
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.filters.listing import RIGHT
from storage.filters.vocabulary import IS_MEASURED, is_current
from storage.rows.engine import fetch_rows, reading
from storage.rows.mapping import flag_bits
from storage.rows.schema import api_key, episode, label, plan, run, served, turn
from storage.shelves.endpoint import FEEDBACK
from storage.shelves.endpoint import RIGHT as SAID_RIGHT
from storage.store import Store

#: At most so many requests are read, the newest.
MOST_REQUESTS = 50_000
#: No request waits longer than this between being asked and being begun, in seconds.
_LONGEST_S = 3_600.0
#: A cost from fewer calls is no estimate.
FEWEST_CALLS = 10
_FAILED_OVER, _REPAIRED = flag_bits(["failed_over"]), flag_bits(["repaired"])


class Call(NamedTuple):
    """The first call of an episode that went to this model as a Worker: what it cost in US dollars (None: unknown), and
    tokens sent and written. `bare_in` are those sent with the episode's first call, when nobody had said anything."""

    model: str
    cost_usd: float | None
    tokens_in: int
    tokens_out: int
    bare_in: int


@dataclass(slots=True)
class Request:
    """A request as it was played. Seconds are None while it is played; `deciding_s` and `recording_s` also where nobody
    measured them. `calls`: of each model the first one as a Worker."""

    episode_id: str
    key_id: str | None
    door: str
    tier: str
    asked_at: float  # Unix seconds
    begun_at: float
    status: Status
    end_reason: EndReason | None
    policy: str
    setting: Setting
    cost_usd: float | None
    tokens: int
    failed_over: bool
    repaired: bool
    whole_s: float | None
    deciding_s: float | None
    recording_s: float | None
    waiting_s: float = 0.0
    answered: bool = False
    bare_in: int | None = None  # tokens sent with its first call
    calls: dict[str, Call] = field(default_factory=dict)
    right: bool | None = None  # as its client said
    score: float | None = None  # the same, from 0 to 1

    @property
    def is_over(self) -> bool:
        return self.whole_s is not None

    @property
    def cancelled(self) -> bool:
        """Whether its client, or whoever stopped the server, ended it."""
        return self.end_reason is EndReason.CANCELLED

    @property
    def failed(self) -> bool:
        """Whether it came to no answer, and was not cancelled."""
        return self.is_over and not self.cancelled and not self.answered

    @property
    def rest_s(self) -> float | None:
        """What is left of the whole; None where a part is not known."""
        if self.whole_s is None or self.deciding_s is None or self.recording_s is None:
            return None
        return max(0.0, self.whole_s - self.waiting_s - self.deciding_s - self.recording_s)


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests, oldest first, and the names of keys by their ids. `removed` more were asked whose episodes are gone;
    `cut`: there are older ones that were not read."""

    found: Sequence[Request]
    keys: Mapping[str, str] = field(default_factory=dict)
    removed: int = 0
    cut: bool = False

    @property
    def over(self) -> list[Request]:
        """Those that are over."""
        return [one for one in self.found if one.is_over]


def read_requests(store: Store, where: EpisodeFilter, since: float | None) -> Requests:
    """The requests of a filter that were begun since then (Unix seconds; None: all), MOST_REQUESTS at most. A fixed
    number of queries, however many they are."""
    chosen = [*conditions(where, store.engine.dialect.name)]
    if since is not None:
        chosen += [served.c.at >= since - _LONGEST_S, episode.c.started >= since]
    columns = (
        *(served.c.episode_id, served.c.key_id, served.c.door, served.c.model, served.c.at),
        *(served.c.deciding_s, served.c.recording_s),
        *(episode.c.started, episode.c.finished, episode.c.status, episode.c.end_reason),
        *(episode.c.policy, episode.c.cost_usd, episode.c.flags),
        (episode.c.tokens_in + episode.c.tokens_out).label("tokens"),
        *SETTING,
    )
    query = (
        select(*columns)
        .select_from(served)
        .join(episode, episode.c.id == served.c.episode_id)
        .join(run, run.c.id == episode.c.run_id)
        .where(*chosen)
        .order_by(episode.c.started.desc(), episode.c.id.desc())
        .limit(MOST_REQUESTS + 1)
    )
    gone = select(func.count()).where(
        ~exists(select(episode.c.id).where(episode.c.id == served.c.episode_id))
    )
    if since is not None:
        gone = gone.where(served.c.at >= since)
    with reading(store.engine) as connection:
        rows = connection.execute(query).all()
        removed = connection.execute(gone).scalar_one() if where == EpisodeFilter() else 0
    keys = dict(fetch_rows(store.engine, select(api_key.c.id, api_key.c.name)))
    cut = len(rows) > MOST_REQUESTS
    found = [_request(row) for row in rows[:MOST_REQUESTS]][::-1]
    if found:
        oldest = [*chosen, episode.c.started >= found[0].begun_at]
        _add_calls(store, {one.episode_id: one for one in found}, oldest)
    return Requests(found, keys, removed, cut)


def _request(row: Any) -> Request:
    return Request(
        row.episode_id,
        row.key_id,
        row.door,
        row.model,
        row.at,
        row.started,
        Status(row.status),
        EndReason(row.end_reason) if row.end_reason else None,
        row.policy,
        Setting(row.turn_budget, row.argmax, Protocol(row.protocol), row.pool),
        row.cost_usd,
        row.tokens,
        bool(row.flags & _FAILED_OVER),
        bool(row.flags & _REPAIRED),
        None if row.finished is None else max(0.0, row.finished - min(row.at, row.started)),
        row.deciding_s,
        row.recording_s,
    )


def _add_calls(store: Store, of: Mapping[str, Request], chosen: Sequence[ColumnElement[bool]]) -> None:
    """Add to requests what their turns, their plans and their clients' feedback say of them. Three queries."""

    def among(table: Table, *columns: Any) -> Select[Any]:
        with_episodes = served.join(episode, episode.c.id == served.c.episode_id)
        joined = with_episodes.join(table, table.c.episode_id == served.c.episode_id)
        return select(served.c.episode_id, *columns).select_from(joined).where(*chosen)

    turns = (
        *(turn.c.model, turn.c.role, turn.c.started, turn.c.latency_s, turn.c.cost_usd),
        *(turn.c.tokens_in, turn.c.tokens_out, turn.c.error_kind, turn.c.flags, turn.c.step),
        turn.c.answer_after.is_not(None),
    )
    played = among(turn, *turns).order_by(turn.c.episode_id, turn.c.idx)
    planned = among(plan, plan.c.at, plan.c.latency_s, of_the_pool())
    said = among(label, label.c.name, label.c.value).where(
        label.c.name.in_(FEEDBACK), label.c.idx.is_(None), is_current()
    )
    waits: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    with reading(store.engine) as connection:
        for name, *row in connection.execute(played):
            if (one := of.get(name)) is not None:
                _add_turn(one, waits[name], *row)
        for name, at, latency_s, by_the_pool in connection.execute(planned):
            if (one := of.get(name)) is not None and latency_s and by_the_pool:
                waits[name].append((at - latency_s, at))
            elif one is not None and latency_s and one.deciding_s is not None:
                one.deciding_s += latency_s  # a planner of its own decides by writing
        for name, what, value in connection.execute(said):
            if (one := of.get(name)) is not None:
                _add_feedback(one, what, value)
    for name, spans in waits.items():
        of[name].waiting_s = _covered(spans)
    for one in of.values():
        one.answered = one.answered or one.end_reason is EndReason.TOOL_CALLS


def _add_turn(
    one: Request,
    waits: list[tuple[float, float]],
    model: str,
    role: Role,
    started: float,
    latency_s: float | None,
    cost_usd: float | None,
    tokens_in: int | None,
    tokens_out: int | None,
    error: str | None,
    flags: Sequence[str],
    step: int | None,
    has_answer: bool,
) -> None:
    if latency_s:
        waits.append((started, started + latency_s))
    gave = role == Role.WORKER if step is None else has_answer
    if gave and tokens_out is not None and error is None and Flag.NO_ANSWER not in flags:
        one.answered = True
    if one.bare_in is None and error is None and tokens_in:
        one.bare_in = tokens_in
    if role == Role.WORKER and step is None and error is None and tokens_in and tokens_out is not None:
        one.calls.setdefault(model, Call(model, cost_usd, tokens_in, tokens_out, one.bare_in or tokens_in))


def _add_feedback(one: Request, what: str, value: str) -> None:
    if what == SAID_RIGHT:
        one.right = value == "right"
        return
    try:
        one.score = float(value)
    except ValueError:  # a person has labelled it so
        return
    if one.right is None:
        one.right = one.score >= 0.5


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """How much time these spans cover: where several overlap, it counts once."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


@dataclass(frozen=True, slots=True)
class BestSingle:
    """The model of a pool that alone solved the largest share of its tasks, in the run in which most models of this
    pool played alone, asked once where there are several: `right` of `n`, among `models` of them, under which
    setting."""

    model: str
    right: int
    n: int
    models: int
    run: str
    setting: Setting

    @property
    def policy(self) -> str:
        return f"{SINGLE}{self.model}"


def best_single(store: Store, pool: str) -> BestSingle | None:
    """The best single model of a pool, by the digest that its runs keep; None where fewer than two of its models have
    played alone in one run. One query."""
    query = (
        select(episode.c.run_id, episode.c.policy, *SETTING, func.count(), RIGHT)
        .join(run, run.c.id == episode.c.run_id)
        .where(
            run.c.pool == pool,
            episode.c.status == Status.FINISHED,
            IS_MEASURED,
            # A range, so that an index serves it.
            episode.c.policy >= SINGLE,
            episode.c.policy < SINGLE + "\U0010ffff",
        )
        .group_by(episode.c.run_id, episode.c.policy, *SETTING)
    )
    played: defaultdict[tuple[str, Setting], list[tuple[str, int, int]]] = defaultdict(list)
    for run_id, policy, *setting, n, right in fetch_rows(store.engine, query):
        played[run_id, Setting(*setting)].append((policy.removeprefix(SINGLE), n, right))
    if not played:
        return None
    place = max(
        played,
        key=lambda one: (
            len(played[one]),
            one[1].turn_budget == 1,
            sum(n for _, n, _ in played[one]),
            one[0],
        ),
    )
    if len(played[place]) < 2:
        return None
    model, n, right = max(played[place], key=lambda one: (one[2] / one[1], one[1], one[0]))
    return BestSingle(model, right, n, len(played[place]), *place)


def single_calls(store: Store, best: BestSingle) -> list[Call]:
    """The first calls of the best single model as a Worker in the run in which it played alone, MOST_REQUESTS at most.
    One query."""
    query = (
        select(turn.c.episode_id, turn.c.cost_usd, turn.c.tokens_in, turn.c.tokens_out)
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(
            *(episode.c.run_id == best.run, episode.c.policy == best.policy, turn.c.role == Role.WORKER),
            *(turn.c.error_kind.is_(None), turn.c.tokens_in > 0, turn.c.tokens_out.is_not(None)),
        )
        .order_by(turn.c.episode_id, turn.c.idx)
        .limit(MOST_REQUESTS)
    )
    found: dict[str, Call] = {}
    for name, cost_usd, tokens_in, tokens_out in fetch_rows(store.engine, query):
        found.setdefault(name, Call(best.model, cost_usd, tokens_in, tokens_out, tokens_in))
    return [*found.values()]


class Prices(NamedTuple):
    """What a token costs that is sent, and one that is written."""

    sent: float
    written: float


#: Where nothing costs anything, tokens are counted.
A_TOKEN_EACH = Prices(1.0, 1.0)


def prices_of(calls: Sequence[Call]) -> Prices | None:
    """A model's prices in US dollars as its calls have them, whose cost is a sum of tokens at two prices; None where
    no cost is known."""
    known = [one for one in calls if one.cost_usd is not None]
    if not known:
        return None
    used = np.array([(one.tokens_in, one.tokens_out) for one in known], dtype=float)
    found = np.linalg.lstsq(used, np.array([one.cost_usd for one in known], dtype=float), rcond=None)[0]
    return Prices(*(max(0.0, float(one)) for one in found))


@dataclass(frozen=True, slots=True)
class Beside:
    """What `n` requests spent each, beside what a model alone would have. `calls` is in how many of them it was a
    Worker; where these are fewer than FEWEST_CALLS, its answers are taken to be as long as in its own run (`by_run`).
    `saved` is what it would have spent minus what was, each; None where nothing can be told."""

    n: int
    each: float
    calls: int
    alone: float | None = None
    saved: Mean | None = None
    by_run: bool = False

    @property
    def saved_in_all(self) -> Mean | None:
        """Over all of these requests."""
        of = self.saved
        return None if of is None else Mean(of.mean * self.n, of.low * self.n, of.high * self.n)


def beside_single(
    found: Sequence[Request], model: str, own_run: Sequence[Call], *, in_dollars: bool
) -> Beside:
    """What requests of known cost spent, in US dollars or else tokens, beside what this model alone would have spent if
    it had been sent each of them, and no more. `own_run`: its calls in the run in which it played alone.

    The interval draws requests anew, and answers of its own run where these are used, by linearisation: a request in
    which it was a Worker counts in both means, so they are not independent."""
    calls = [one.calls.get(model) for one in found]
    spent = np.array([(one.cost_usd or 0.0) if in_dollars else float(one.tokens) for one in found])
    n, k = len(found), sum(one is not None for one in calls)
    each = float(spent.mean()) if n else 0.0
    enough = k >= FEWEST_CALLS
    priced = prices_of([one for one in calls if one] if enough else own_run) if in_dollars else A_TOKEN_EACH
    if priced is None or n < 2 or not (enough or len(own_run) >= FEWEST_CALLS):
        return Beside(n, each, k)
    if enough:
        own = np.array([math.nan if one is None else _alone(one, priced) for one in calls])
        known = np.isfinite(own)
        alone = float(own[known].mean())
        moves, more = np.where(known, np.where(known, own, alone) - alone, 0.0) * n / k, 0.0
    else:
        sent = np.array([one.bare_in or 0 for one in found], dtype=float)
        written = np.array([one.tokens_out for one in own_run], dtype=float)
        alone = priced.sent * float(sent.mean()) + priced.written * float(written.mean())
        moves = priced.sent * (sent - sent.mean())
        more = priced.written**2 * float(written.var(ddof=1)) / len(written)
    error = math.sqrt(float((moves - (spent - each)).var(ddof=1)) / n + more)
    half = student_reach(min(n, k if enough else len(own_run)) - 1) * error
    saved = alone - each
    return Beside(n, each, k, alone, Mean(saved, saved - half, saved + half), not enough)


def _alone(call: Call, priced: Prices) -> float:
    """What a call would have cost, had its model been sent the bare request."""
    return priced.sent * min(call.tokens_in, call.bare_in) + priced.written * call.tokens_out


def added_up(parts: Sequence[Beside]) -> Mean | None:
    """What several kinds of requests saved together, each beside the single model on its own kind; None where some
    kind has no estimate."""
    sums = [one.saved_in_all for one in parts]
    if not sums or any(one is None for one in sums):
        return None
    found = [one for one in sums if one is not None]
    total = sum(one.mean for one in found)
    half = math.sqrt(sum(((one.high - one.low) / 2) ** 2 for one in found))
    return Mean(total, total - half, total + half)
