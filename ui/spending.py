"""Keeps a run below its spend ceiling: an estimate before it starts, a bound on every call while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from urllib.parse import urlsplit

from core.episode import Ask, Message, Reply
from core.errors import BudgetError
from core.pool.costs import QUESTION_TOKENS, Estimate, estimate_cost
from core.pool.pool import Pool, closing
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


def estimate(
    specs: Sequence[ModelSpec],
    episodes: int,
    turn_budget: int,
    questions: Iterable[str] = (),
    first_turn: int = 0,
) -> Estimate:
    """The most that so many episodes can cost over the models that may cost money, in whose prompts the
    others' replies stand too. A token of the `questions` is at least one byte. Turns before `first_turn` are
    recorded."""
    return estimate_cost(
        paid_models(specs),
        episodes,
        turn_budget,
        question_tokens=max((len(question.encode()) for question in questions), default=QUESTION_TOKENS),
        longest_reply=max((spec.max_tokens for spec in specs), default=0),
        first_turn=first_turn,
    )


def agree(
    specs: Sequence[ModelSpec], most: Estimate, ceiling_usd: float | None, *, may_ask: bool, agreed: bool
) -> str | None:
    """What to say before anything is spent; None when nothing can be. BudgetError when there is neither a
    ceiling nor anyone who could be asked."""
    check_ceiling(specs, ceiling_usd)
    if not paid_models(specs):
        return None
    unknown = f"an unknown cost (no price for {', '.join(most.unknown)})"
    cost = unknown if most.cost_usd is None else f"at most {dollars(most.cost_usd)}"
    if ceiling_usd is None and not (may_ask or agreed):
        raise BudgetError(
            f"This may cost money (up to {most.calls:,} calls, {cost}): set a ceiling with --max-cost USD."
        )
    stop = "" if ceiling_usd is None else f" It stops before {dollars(ceiling_usd)} is exceeded."
    return f"Up to {most.calls:,} calls, {cost}.{stop}"


class MeteredPool:
    """A pool that counts what is spent and never asks what together could go over the ceiling: calls that
    fit are made first, then those that fit what is left. BudgetError when not a single one does."""

    def __init__(self, pool: Pool, ceiling_usd: float | None, spent_usd: float = 0.0) -> None:
        self._pool = pool
        self._by_name = {spec.name: spec for spec in pool.specs}
        self._ceiling_usd = ceiling_usd
        self.spent_usd = spent_usd

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The models in slot order."""
        return self._pool.specs

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Answers of the pool behind, as they are ready."""
        begin = 0
        while begin < len(asks):
            end = begin + self._affordable(asks[begin:])
            with closing(self._pool.ask(asks[begin:end])) as replies:
                for index, reply in replies:
                    self.spent_usd += reply.usage.cost_usd or 0.0
                    yield begin + index, reply
            begin = end

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Pieces of the pool behind, then the whole reply."""
        self._affordable([ask])
        with closing(self._pool.stream(ask)) as pieces:
            for piece in pieces:
                if isinstance(piece, Reply):
                    self.spent_usd += piece.usage.cost_usd or 0.0
                yield piece

    def _affordable(self, asks: Sequence[Ask]) -> int:
        """How many of the asks, from the first on, surely fit what is left together: at least one."""
        if self._ceiling_usd is None:
            return len(asks)
        most = accumulate(most_usd(self._by_name[ask.model], ask.messages) for ask in asks)
        fitting = sum(self.spent_usd + together <= self._ceiling_usd for together in most)
        if asks and not fitting:
            raise BudgetError(
                f"The next call could exceed the ceiling of {dollars(self._ceiling_usd)} "
                f"({dollars(self.spent_usd)} spent): give a higher one with --max-cost."
            )
        return fitting


def dollars(cost: float | None) -> str:
    """A cost in USD; says so when no price is known."""
    return "no price" if cost is None else f"${cost:.4f}" if 0 < cost < 1 else f"${cost:,.2f}"


def per_solved(cost: float | None, right: int) -> str:
    """What a solved problem cost in USD, failed attempts included, in words where it has no number."""
    if cost is None:
        return "price unknown"
    return "free" if not cost else dollars(cost / right) if right else "nothing solved"


def most_usd(spec: ModelSpec, messages: Sequence[Message]) -> float:
    """The most one call can cost in USD: a token is at least one byte of text."""
    tokens_in = sum(len(message.content.encode()) + 16 for message in messages)
    return (tokens_in * (spec.price_in or 0.0) + spec.max_tokens * (spec.price_out or 0.0)) / 1e6
