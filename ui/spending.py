"""Keeps a run below its spend ceiling: an estimate before it starts, a bound on every call while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from core.episode import EndReason, Episode, Event, Message, Replied, TurnStarted
from core.errors import BudgetError
from core.pool.costs import Estimate, estimate_cost
from core.pool.spec import ModelSpec


def is_free(spec: ModelSpec) -> bool:
    """Whether nobody bills for this model: a known price of 0, or a keyless server on this machine."""
    if spec.price_in == 0 and spec.price_out == 0:
        return True
    on_this_machine = urlsplit(spec.base_url).hostname in ("127.0.0.1", "localhost", "::1")
    return spec.provider != "openai" or (on_this_machine and not spec.api_key_env)


def paid_models(specs: Iterable[ModelSpec]) -> list[ModelSpec]:
    """The models that may cost money."""
    return [spec for spec in specs if not is_free(spec)]


def check_ceiling(specs: Sequence[ModelSpec], ceiling_usd: float | None) -> None:
    """BudgetError when a ceiling is set that could not be kept, because a price is unknown."""
    unknown = [spec.name for spec in paid_models(specs) if spec.price_in is None or spec.price_out is None]
    if ceiling_usd is not None and unknown:
        raise BudgetError(
            f"The price of {', '.join(unknown)} is not known, so no spend ceiling can be kept: "
            "write price_in and price_out (USD per million tokens) into pool.toml."
        )


def estimate(specs: Sequence[ModelSpec], episodes: int, turn_budget: int) -> Estimate:
    """The most that so many episodes can cost over the models that may cost money."""
    return estimate_cost(paid_models(specs), episodes, turn_budget)


class Ceiling:
    """Counts what was spent and what calls under way may still cost, and stops episodes before a call that
    could go over. Feed it every event with `see`; give `stop` to the driver."""

    def __init__(self, specs: Sequence[ModelSpec], ceiling_usd: float | None, spent_usd: float = 0.0) -> None:
        self._specs: Mapping[str, ModelSpec] = {spec.name: spec for spec in specs}
        self._ceiling_usd = ceiling_usd
        self._under_way: dict[str, float] = {}
        self.spent_usd = spent_usd
        self.reached = False

    def see(self, event: Event) -> None:
        """Take note of a call that is about to be made, or of what it cost."""
        if isinstance(event, TurnStarted):
            self._under_way[event.episode_id] = self._most(event.decision.model, event.messages)
        elif isinstance(event, Replied):
            self._under_way.pop(event.episode_id, None)
            self.spent_usd += event.reply.usage.cost_usd or 0.0

    def stop(self, episode: Episode) -> EndReason | None:
        """COST_CEILING when this episode's next call could exceed the ceiling."""
        if self._ceiling_usd is None or self.spent_usd + sum(self._under_way.values()) <= self._ceiling_usd:
            return None
        self._under_way.pop(episode.id, None)
        self.reached = True
        return EndReason.COST_CEILING

    def _most(self, model: str, messages: Sequence[Message]) -> float:
        """The most one call can cost in USD: a token is at least one byte of text."""
        spec = self._specs[model]
        tokens_in = sum(len(message.content.encode()) + 16 for message in messages)
        return (tokens_in * (spec.price_in or 0.0) + spec.max_tokens * (spec.price_out or 0.0)) / 1e6
