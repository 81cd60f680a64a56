"""What requests may spend: of their own, of their key's and of the endpoint's money, calls under way included."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from core.episode import Ask, Reply
from core.pool.costs import MOST_UNREAD, bound_usd
from core.pool.spec import ModelSpec
from storage.store import Store
from ui.presentation.words import dollars
from ui.runs.spending import is_free


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A ceiling that left no room for a call: whose it is, and how high."""

    of: Literal["request", "key", "server"]
    usd: float

    @property
    def words(self) -> str:
        """Whose it is and what to do about it, as the end of a sentence."""
        whose, what = {
            "request": ("this request's", "give it a higher trinity.max_cost_usd, or its tier one"),
            "key": ("this key's", "ask for a key with a higher one (trinity keys add NAME --max-cost USD)"),
            "server": ("this endpoint's", "serve with a higher --max-cost, or max_cost_usd in endpoint.toml"),
        }[self.of]
        return f"{whose} cost ceiling of {dollars(self.usd)}: {what}"


@dataclass
class Ledger:
    """The money of one endpoint, in US dollars; used by the one thread that plays. A reply without token counts, and a
    call that was given up, cost as much as they could have."""

    store: Store
    by_name: dict[str, ModelSpec]
    ceiling_usd: float | None = None
    spent_usd: float = 0.0
    _by_key: dict[str, float] = field(default_factory=dict)
    _by_episode: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    # episode -> by sample, the most that one try can cost, and what is kept free for all
    _under_way: dict[str, dict[int, tuple[float, float]]] = field(default_factory=dict)
    _keys: dict[str, str | None] = field(default_factory=dict)  # episode -> key

    def allows(
        self, episode: str, key: str | None, ask: Ask, most: float | None, key_most: float | None
    ) -> Ask | Ceiling:
        """The call with what its tries may cost below all ceilings, which then counts as under way; the ceiling below
        which not one fits."""
        spec = self.by_name[ask.model]
        bound = 0.0 if is_free(spec) else bound_usd(spec, ask)
        bounds = {name: sum(kept for _, kept in of.values()) for name, of in self._under_way.items()}
        of_key = sum(usd for name, usd in bounds.items() if self._keys.get(name) == key)
        ceilings: tuple[tuple[Literal["request", "key", "server"], float | None, float], ...] = (
            ("request", most, self._by_episode[episode] + bounds.get(episode, 0.0)),
            ("key", key_most, self._spent_by(key) + of_key),
            ("server", self.ceiling_usd, self.spent_usd + sum(bounds.values())),
        )
        known = [(Ceiling(of, ceiling), spent) for of, ceiling, spent in ceilings if ceiling is not None]
        for ceiling, spent in known:
            if spent + bound > ceiling.usd:
                return ceiling
        self._keys[episode] = key
        twice = MOST_UNREAD * bound  # an answer that cannot be read is asked for again
        budget = twice if all(spent + twice <= ceiling.usd for ceiling, spent in known) else bound
        self._under_way.setdefault(episode, {})[ask.sample] = bound, budget
        return replace(ask, budget_usd=budget if known else None)

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
        self._count(episode, usd)

    def over(self, episode: str, *, failed: bool = False) -> float:
        """The episode is over; what its calls cost that were given up with it. `failed`: one of them ended it, as its
        server could not be asked, which costs nothing; alone, it is known which."""
        left = self._under_way.pop(episode, {}).values()
        usd = 0.0 if failed and len(left) == 1 else sum(bound for bound, _ in left)
        self._count(episode, usd)
        self._by_episode.pop(episode, None)
        self._keys.pop(episode, None)
        return usd

    @staticmethod
    def _own(bounds: Mapping[int, tuple[float, float]], index: int | None) -> int | None:
        return index if index in bounds else next(iter(bounds), None)

    def _count(self, episode: str, usd: float) -> None:
        self.spent_usd += usd
        self._by_episode[episode] += usd
        key = self._keys.get(episode)
        if key in self._by_key:  # else it is read from the store, where it stands already
            self._by_key[key] += usd

    def _spent_by(self, key: str | None) -> float:
        if key is None:
            return 0.0
        if key not in self._by_key:
            self._by_key[key] = self.store.endpoint.charged_usd(key)
        return self._by_key[key]
