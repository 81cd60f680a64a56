"""What requests may spend: of their own, of their key's and of the endpoint's money, calls under way included."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Literal

from core.episode import Ask, Reply
from core.pool.costs import MOST_UNREAD, bound_usd
from core.pool.spec import ModelSpec
from storage.shelves.endpoint import ApiKey, Limits, Quota, Use
from storage.store import Store
from ui.endpoint.tiers import FILE
from ui.presentation.words import dollars
from ui.runs.spending import is_free

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


@dataclass
class Ledger:
    """What the requests of one endpoint take: US dollars, how many they are, tokens. Calls are booked by the one thread
    that plays, requests are admitted from any. A reply without token counts, and a call that was given up, cost as much
    as they could have. `quotas`: the endpoint's own by day and month."""

    store: Store
    by_name: dict[str, ModelSpec]
    ceiling_usd: float | None = None
    spent_usd: float = 0.0
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    _by_key: dict[str, float] = field(default_factory=dict)
    _by_episode: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    # episode -> by sample, the most that one try can cost, and what is kept free for all
    _under_way: dict[str, dict[int, tuple[float, float]]] = field(default_factory=dict)
    _keys: dict[str, ApiKey | None] = field(default_factory=dict)  # by episode
    _began: dict[str, float] = field(default_factory=dict)  # by episode, Unix seconds
    # by what kind of period, its beginning, and a key's id (None: of all)
    _used: dict[tuple[Period, float, str | None], Use] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def admit(self, key: ApiKey | None) -> Ceiling | None:
        """Count one more request; where a limit of a period is used up, it instead, and nothing is counted."""
        with self._lock:
            books = self._books(key, self.store.now())
            for ceiling, used in books:
                if getattr(used, ceiling.what) >= ceiling.most:
                    return ceiling
            for used in {id(used): used for _, used in books}.values():
                used.requests += 1
        return None

    def allows(self, episode: str, key: ApiKey | None, ask: Ask, most: float | None) -> Ask | Ceiling:
        """The call with what its tries may cost below all ceilings, which then counts as under way; the ceiling below
        which not one fits."""
        spec = self.by_name[ask.model]
        bound = 0.0 if is_free(spec) else bound_usd(spec, ask)
        bounds = {name: sum(kept for _, kept in of.values()) for name, of in self._under_way.items()}
        own, key_id = sum(bounds.values()), key.id if key else None
        of_key = sum(usd for name, usd in bounds.items() if _id(self._keys.get(name)) == key_id)
        key_most = key.limits.max_cost_usd if key else None
        ceilings: tuple[tuple[Whose, float | None, float], ...] = (
            ("request", most, self._by_episode[episode] + bounds.get(episode, 0.0)),
            ("key", key_most, self._spent_by(key_id) + of_key),
            ("server", self.ceiling_usd, self.spent_usd + own),
        )
        known = [(Ceiling(of, ceiling), spent) for of, ceiling, spent in ceilings if ceiling is not None]
        began = self._began.get(episode, self.store.now())  # a request is of the period that it began in
        with self._lock:
            known += [
                (ceiling, used.usd + (of_key if ceiling.of == "key" else own))
                for ceiling, used in self._books(key, began)
                if ceiling.what == "usd"
            ]
        for ceiling, spent in known:
            if spent + bound > ceiling.most:
                return ceiling
        self._keys[episode] = key
        self._began[episode] = began
        twice = MOST_UNREAD * bound  # an answer that cannot be read is asked for again
        budget = twice if all(spent + twice <= ceiling.most for ceiling, spent in known) else bound
        self._under_way.setdefault(episode, {})[ask.sample] = bound, budget
        return replace(ask, budget_usd=budget if known else None)

    def _books(self, key: ApiKey | None, began: float) -> list[tuple[Ceiling, Use]]:
        """Every limit of a period that a request of this key is below which began then, with what was taken of it."""
        at, found = datetime.fromtimestamp(began, UTC), list[tuple[Ceiling, Use]]()
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

    def cost_usd(self, episode: str, index: int | None, reply: Reply) -> float:
        """What the answer to a call under way costs: that of turn `index`, by which the steps of a workflow are told
        apart; all others are alone."""
        bounds = self._under_way.get(episode, {})
        own = self._own(bounds, index)
        cost = reply.usage.charged_usd
        if cost is not None:
            return cost
        return 0.0 if reply.error or own is None else bounds[own][0]

    def replied(self, episode: str, index: int | None, reply: Reply) -> None:
        """A call under way has been answered, and what it costs is stored."""
        usd, bounds = self.cost_usd(episode, index, reply), self._under_way.get(episode, {})
        if (own := self._own(bounds, index)) is not None:
            del bounds[own]
        self._count(episode, usd, reply.usage.tokens_in + reply.usage.tokens_out)

    def over(self, episode: str, *, failed: bool = False) -> float:
        """The episode is over; what its calls cost that were given up with it. `failed`: one of them ended it, as its
        server could not be asked, which costs nothing; alone, it is known which."""
        left = self._under_way.pop(episode, {}).values()
        usd = 0.0 if failed and len(left) == 1 else sum(bound for bound, _ in left)
        self._count(episode, usd)
        self._by_episode.pop(episode, None)
        self._keys.pop(episode, None)
        self._began.pop(episode, None)
        return usd

    @staticmethod
    def _own(bounds: Mapping[int, tuple[float, float]], index: int | None) -> int | None:
        return index if index in bounds else next(iter(bounds), None)

    def _count(self, episode: str, usd: float, tokens: int = 0) -> None:
        self.spent_usd += usd
        self._by_episode[episode] += usd
        key = _id(self._keys.get(episode))
        if key in self._by_key:  # else it is read from the store, where it stands already
            self._by_key[key] += usd
        with self._lock:
            began = datetime.fromtimestamp(self._began.get(episode, self.store.now()), UTC)
            for period, owner in product(PERIODS, {None, key}):
                if (used := self._used.get((period, _bounds(began, period)[0], owner))) is not None:
                    used.usd += usd
                    used.tokens += tokens

    def _spent_by(self, key: str | None) -> float:
        if key is None:
            return 0.0
        if key not in self._by_key:
            self._by_key[key] = self.store.endpoint.charged_usd(key)
        return self._by_key[key]


def _id(key: ApiKey | None) -> str | None:
    return key.id if key else None


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
