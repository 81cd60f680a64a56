"""What requests may spend: of their own, of their key's and of the endpoint's money, calls under way included."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from core.episode import Ask, Reply
from core.pool.spec import ModelSpec
from storage.store import Store
from ui.runs.spending import is_free, most_usd


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
    _under_way: dict[str, tuple[str | None, float]] = field(default_factory=dict)  # episode -> key, bound

    def allows(
        self, episode: str, key: str | None, ask: Ask, most: float | None, key_most: float | None
    ) -> bool:
        """Whether a call can be made below all ceilings; it then counts as under way."""
        bound = self.bound_usd(ask)
        ceilings = (
            (most, self._by_episode[episode]),
            (key_most, self._spent_by(key) + sum(usd for one, usd in self._under_way.values() if one == key)),
            (self.ceiling_usd, self.spent_usd + sum(usd for _, usd in self._under_way.values())),
        )
        if any(ceiling is not None and spent + bound > ceiling for ceiling, spent in ceilings):
            return False
        self._under_way[episode] = key, bound
        return True

    def bound_usd(self, ask: Ask) -> float:
        """The most that a call can cost, the tools that are described in it included."""
        spec = self.by_name[ask.model]
        tools = len(ask.tools.encode()) * (spec.price_in or 0.0) / 1e6
        return 0.0 if is_free(spec) else most_usd(spec, ask.messages) + tools

    def replied(self, episode: str, reply: Reply) -> None:
        """The call under way has been answered."""
        key, bound = self._under_way.pop(episode, (None, 0.0))
        cost = reply.usage.cost_usd
        if cost is None:
            cost = 0.0 if reply.error else bound
        self._charge(episode, key, cost)

    def over(self, episode: str) -> None:
        """The episode is over; a call that is still under way was given up."""
        if episode in self._under_way:
            key, bound = self._under_way.pop(episode)
            self._charge(episode, key, bound)
        self._by_episode.pop(episode, None)

    def _charge(self, episode: str, key: str | None, usd: float) -> None:
        if not usd:
            return
        self.spent_usd += usd
        self._by_episode[episode] += usd
        if key is not None:
            self._by_key[key] = self._spent_by(key) + usd
        self.store.endpoint.charge(episode, usd)

    def _spent_by(self, key: str | None) -> float:
        if key is None:
            return 0.0
        if key not in self._by_key:
            self._by_key[key] = self.store.endpoint.charged_usd(key)
        return self._by_key[key]
