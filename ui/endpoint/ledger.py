"""What requests may spend: of their own, of their key's and of the endpoint's money, calls under way included."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Literal, Protocol

from sqlalchemy import Connection

from core.episode import Ask, Reply
from core.pool.costs import MOST_UNREAD, bound_usd
from core.pool.spec import ModelSpec
from storage.shelves.endpoint import ApiKey, Limits, Quota, Use
from storage.store import Store
from ui.endpoint.tiers import FILE
from ui.presentation.words import dollars
from ui.runs.spending import is_free

#: So many runs of the endpoint are looked through for what other pools have cost.
MOST_RUNS = 10_000
#: Of a period that is over for so long nothing is remembered.
_LONGEST_MONTH_S = 31 * 86_400.0
#: Whose limit it is.
Whose = Literal["request", "key", "server"]
What = Literal["usd", "requests", "tokens"]
WHAT: tuple[What, ...] = ("usd", "requests", "tokens")
Period = Literal["day", "month"]
PERIODS: tuple[Period, ...] = ("day", "month")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A limit that left no room: whose it is, how much, of what (US dollars, requests or tokens), and in which period
    (empty: ever); `until`: when that one ends, Unix seconds."""

    of: Whose
    most: float
    what: What = "usd"
    period: Literal["", "day", "month"] = ""
    until: float = 0.0

    def left_s(self, now: float) -> float:
        """In how many seconds it begins anew; 0 where it never does."""
        return self.until - now if self.period else 0.0

    @property
    def words(self) -> str:
        """Whose it is and what to do about it, as the end of a sentence."""
        whose, what = {
            "request": ("this request's", "give it a higher trinity.max_cost_usd, or its tier one"),
            "key": ("this key's", "ask for a key with a higher one (trinity keys add NAME --max-cost USD)"),
            "server": ("this endpoint's", "serve with a higher --max-cost, or max_cost_usd in endpoint.toml"),
        }[self.of]
        if not self.period:
            return f"{whose} cost ceiling of {dollars(self.most)}: {what}"
        much = dollars(self.most) if self.what == "usd" else f"{int(self.most):,} {self.what}"
        option = f"{self.period}_{self.what}"
        where = (
            f"--{option.replace('_', '-')} of trinity keys add" if self.of == "key" else f"{option} in {FILE}"
        )
        again = f"{datetime.fromtimestamp(self.until, UTC):%Y-%m-%d %H:%M} UTC"
        return (
            f"{whose} limit of {much} a {self.period}: it begins anew at {again}, or ask for more ({where})"
        )


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a request (None: without a key), and when (Unix seconds): it is of the day and of the month of that
    time, whenever its calls are made."""

    key: ApiKey | None
    at: float


class Books(Protocol):
    """What the requests of one endpoint have taken and may still take, whichever of its processes plays them."""

    def admit(self, sender: Sender) -> Ceiling | None:
        """Count one more request; where a limit of a period is used up, it instead, and nothing is counted."""

    def hold(
        self, episode: str, sender: Sender, sample: int, bound: float, most: float | None
    ) -> float | Ceiling | None:
        """Keep room below all ceilings for a call of at most `bound` US dollars a try; `most`: its request's ceiling.
        What its tries may cost together, None without a ceiling; the ceiling below which not one fits."""

    def book(self, episode: str, sender: Sender, sample: int | None, usd: float, tokens: int) -> None:
        """A call was answered, and what it took is stored: its room is free again."""

    def over(self, episode: str, usd: float) -> None:
        """The episode is over, and its calls that were given up cost so much; all its room is free again."""


@dataclass
class _Request:
    """A request under way: its key's id, when it began (Unix seconds), and what was booked of it."""

    key: str | None
    began: float
    taken: Use = field(default_factory=Use)


@dataclass
class OwnBooks:
    """The books, kept by this process. `spent_usd`: of the endpoint's ceiling; `quotas`: its own by day and month."""

    store: Store
    ceiling_usd: float | None = None
    spent_usd: float = 0.0
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    _by_key: dict[str, float] = field(default_factory=dict)
    _requests: dict[str, _Request] = field(default_factory=dict)  # under way, by episode
    # by a key's id (None: of all), what is kept free for each call under way
    _held: defaultdict[str | None, dict[tuple[str, int], float]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    # by what kind of period, its beginning, and a key's id (None: of all)
    _used: dict[tuple[Period, float, str | None], Use] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def of(
        cls, store: Store, pool: str, ceiling_usd: float | None, quotas: Mapping[str, Quota] | None
    ) -> OwnBooks:
        """The books of an endpoint over a pool, as its store has them. What other pools have cost is beside its
        ceiling. Calls that were under way when an endpoint died count as much as they could have cost."""
        store.endpoint.charge_lost()
        runs = store.runs.list("serve", limit=MOST_RUNS)
        elsewhere = [run.id for run in runs if run.config.get("pool") != pool]
        spent_usd = store.endpoint.charged_usd() - store.endpoint.charged_in(elsewhere)
        return cls(store, ceiling_usd, spent_usd, quotas or {})

    def admit(self, sender: Sender) -> Ceiling | None:
        """See `Books`."""
        with self._lock:
            books = self._books(sender)
            for ceiling, used in books:
                if getattr(used, ceiling.what) >= ceiling.most:
                    return ceiling
            for used in {id(used): used for _, used in books}.values():
                used.requests += 1
        return None

    def hold(
        self, episode: str, sender: Sender, sample: int, bound: float, most: float | None
    ) -> float | Ceiling | None:
        """See `Books`."""
        with self._lock:
            request, held = self._requests.get(episode), sum(self._held[None].values())
            key = sender.key
            of_key = sum(self._held[key.id].values()) if key else 0.0
            known = list[tuple[Ceiling, float]]()
            if most is not None:
                own = sum(usd for (name, _), usd in self._held[None].items() if name == episode)
                known.append((Ceiling("request", most), (request.taken.usd if request else 0.0) + own))
            if key and key.limits.max_cost_usd is not None:
                known.append((Ceiling("key", key.limits.max_cost_usd), self._spent_by(key.id) + of_key))
            if self.ceiling_usd is not None:
                known.append((Ceiling("server", self.ceiling_usd), self.spent_usd + held))
            known += [
                (ceiling, used.usd + (of_key if ceiling.of == "key" else held))
                for ceiling, used in self._books(sender)
                if ceiling.what == "usd"
            ]
            for ceiling, spent in known:
                if spent + bound > ceiling.most:
                    return ceiling
            twice = MOST_UNREAD * bound  # an answer that cannot be read is asked for again
            budget = twice if all(spent + twice <= ceiling.most for ceiling, spent in known) else bound
            self._request(episode, sender)
            for whose in {None, key.id if key else None}:
                self._held[whose][episode, sample] = budget
            return budget if known else None

    def book(self, episode: str, sender: Sender, sample: int | None, usd: float, tokens: int) -> None:
        """See `Books`."""
        with self._lock:
            self._free(episode, sample)
            self._count(self._request(episode, sender), usd, tokens)

    def over(self, episode: str, usd: float) -> None:
        """See `Books`."""
        with self._lock:
            for name, sample in [*self._held[None]]:
                if name == episode:
                    self._free(episode, sample)
            if (request := self._requests.pop(episode, None)) is not None:
                self._count(request, usd)

    def recover(self, episodes: Collection[str]) -> None:
        """These episodes were another process's, which is gone: what it stored of them is booked, and so is the most
        that their calls under way could cost."""
        with self._lock:
            self.store.endpoint.charge_lost(episodes)
            stored = self.store.endpoint.use_of(episodes)
            for name in episodes:
                taken = stored.get(name, Use())
                if (request := self._requests.get(name)) is not None:
                    self._count(request, 0.0, taken.tokens - request.taken.tokens)
                    self.over(name, taken.usd - request.taken.usd)

    def _free(self, episode: str, sample: int | None) -> None:
        request = self._requests.get(episode)
        if request is not None and sample is not None:
            for whose in {None, request.key}:
                self._held[whose].pop((episode, sample), None)
                if whose is not None and not self._held[whose]:
                    del self._held[whose]

    def _request(self, episode: str, sender: Sender) -> _Request:
        """The request of an episode, which is under way from here on."""
        key = sender.key.id if sender.key else None
        return self._requests.setdefault(episode, _Request(key, sender.at))

    def _books(self, sender: Sender) -> list[tuple[Ceiling, Use]]:
        """Every limit of a period that a request of this sender is below, with what was taken of it."""
        key, at, found = sender.key, datetime.fromtimestamp(sender.at, UTC), list[tuple[Ceiling, Use]]()
        for period in PERIODS:
            start, end = _bounds(at, period)
            quotas: list[tuple[Whose, str | None, Quota]] = [
                ("server", None, self.quotas.get(period, Quota()))
            ]
            if key is not None:
                quotas.append(("key", key.id, key.limits.day if period == "day" else key.limits.month))
            for of, owner, quota in quotas:
                for what in WHAT:
                    if (most := getattr(quota, what)) is not None:
                        found.append((Ceiling(of, most, what, period, end), self._use(period, start, owner)))
        return found

    def _use(self, period: Period, start: float, owner: str | None) -> Use:
        """What was taken in a period, of which the store knows what was taken before it was first asked for."""
        if (period, start, owner) not in self._used:
            gone = [one for one in self._used if one[2] == owner and one[1] < start - _LONGEST_MONTH_S]
            for one in gone:
                del self._used[one]
            self._used[period, start, owner] = self.store.endpoint.use(start, owner)
        return self._used[period, start, owner]

    def _count(self, request: _Request, usd: float, tokens: int = 0) -> None:
        request.taken.usd += usd
        request.taken.tokens += tokens
        self.spent_usd += usd
        if request.key in self._by_key:  # else it is read from the store, where it stands already
            self._by_key[request.key] += usd
        at = datetime.fromtimestamp(request.began, UTC)  # it is of the periods that it began in
        for period, owner in product(PERIODS, {None, request.key}):
            if (used := self._used.get((period, _bounds(at, period)[0], owner))) is not None:
                used.usd += usd
                used.tokens += tokens

    def _spent_by(self, key: str) -> float:
        if key not in self._by_key:
            self._by_key[key] = self.store.endpoint.charged_usd(key)
        return self._by_key[key]


@dataclass
class Ledger:
    """The calls of one process's requests, charged and booked by the one thread that plays; requests are admitted from
    any. A reply without token counts, and a call that was given up, cost as much as they could have."""

    by_name: dict[str, ModelSpec]
    books: Books
    store: Store
    # episode -> by sample, the most that one try can cost
    _under_way: dict[str, dict[int, float]] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)  # episodes with calls of which the store has not been told

    def admit(self, sender: Sender) -> Ceiling | None:
        """Count one more request; where a limit of a period is used up, it instead, and nothing is counted."""
        return self.books.admit(sender)

    def allows(self, episode: str, sender: Sender, ask: Ask, most: float | None) -> Ask | Ceiling:
        """The call with what its tries may cost below all ceilings, which then counts as under way; the ceiling below
        which not one fits."""
        spec = self.by_name[ask.model]
        bound = 0.0 if is_free(spec) else bound_usd(spec, ask)
        budget = self.books.hold(episode, sender, ask.sample, bound, most)
        if isinstance(budget, Ceiling):
            return budget
        self._under_way.setdefault(episode, {})[ask.sample] = bound
        if bound:
            self._begun.add(episode)
        return replace(ask, budget_usd=budget)

    def begin(self) -> None:
        """Store what the calls can cost that were allowed, before they are made: their models' servers may bill them
        though this process dies before it hears an answer."""
        if self._begun:
            self.store.endpoint.note_under_way({one: self._left_usd(one) for one in self._begun})
            self._begun.clear()

    def charge(self, episode: str, index: int | None, reply: Reply, connection: Connection) -> None:
        """Store what the answer to a call under way costs, in the transaction that stores the answer."""
        usd, tokens = self.cost_usd(episode, index, reply), reply.usage.tokens_in + reply.usage.tokens_out
        if usd or tokens or self._left_usd(episode):
            others = self._left_usd(episode, besides=self._own(self._under_way.get(episode, {}), index))
            self.store.endpoint.charge(episode, usd, connection, tokens=tokens, under_way_usd=others)

    def cost_usd(self, episode: str, index: int | None, reply: Reply) -> float:
        """What the answer to a call under way costs: that of turn `index`, by which the steps of a workflow are told
        apart; all others are alone."""
        bounds = self._under_way.get(episode, {})
        own = self._own(bounds, index)
        cost = reply.usage.charged_usd
        if cost is not None:
            return cost
        return 0.0 if reply.error or own is None else bounds[own]

    def replied(self, episode: str, sender: Sender, index: int | None, reply: Reply) -> None:
        """A call under way has been answered, and what it costs is stored."""
        usd, bounds = self.cost_usd(episode, index, reply), self._under_way.get(episode, {})
        if (own := self._own(bounds, index)) is not None:
            del bounds[own]
        self.books.book(episode, sender, own, usd, reply.usage.tokens_in + reply.usage.tokens_out)

    def over(self, episode: str, *, failed: bool = False) -> float:
        """The episode is over; what its calls cost that were given up with it, which is stored. `failed`: one of them
        ended it, as its server could not be asked, which costs nothing; alone, it is known which."""
        left = self._under_way.pop(episode, {}).values()
        self._begun.discard(episode)
        usd = 0.0 if failed and len(left) == 1 else sum(left)
        try:
            if any(left):
                self.store.endpoint.charge(episode, usd)
        finally:
            self.books.over(episode, usd)
        return usd

    def _left_usd(self, episode: str, besides: int | None = None) -> float:
        bounds = self._under_way.get(episode, {})
        return sum(usd for sample, usd in bounds.items() if sample != besides)

    @staticmethod
    def _own(bounds: Mapping[int, float], index: int | None) -> int | None:
        return index if index in bounds else next(iter(bounds), None)


def _bounds(now: datetime, period: str) -> tuple[float, float]:
    """When the day or the month of a time begins and ends, Unix seconds."""
    start = datetime(now.year, now.month, now.day if period == "day" else 1, tzinfo=UTC)
    if period == "day":
        end = start + timedelta(days=1)
    else:
        end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return start.timestamp(), end.timestamp()


def quota_words(limits: Limits) -> str:
    """What requests of a key may take in a day and in a month; empty for no limit."""
    said = []
    for period, quota in (("day", limits.day), ("month", limits.month)):
        parts = [] if quota.usd is None else [dollars(quota.usd)]
        parts += [] if quota.requests is None else [f"{quota.requests:,} requests"]
        parts += [] if quota.tokens is None else [f"{quota.tokens:,} tokens"]
        said += [f"{', '.join(parts)} a {period}"] if parts else []
    return "; ".join(said)
