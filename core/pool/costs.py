"""What calls cost: tokens as servers count them (in parts, in odd types, with zeros for what they do not know), list
prices by model, the price of tokens, and an upper bound before anything is spent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from core.episode import Ask
from core.images import image_count
from core.pool.spec import ModelSpec

ROLE_PROMPT_TOKENS = 600  # a generous bound on what role instructions add to a prompt
MARKS_TOKENS = 60  # and on the marks around each text that is quoted in it
#: How often an answer that cannot be read is asked for in the same way: each of them may be billed.
MOST_UNREAD = 2
QUESTION_TOKENS = 1000  # a generous bound on a question's length, where none is given

MOST_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of a call; None where the server did not tell. `cached`: of those sent, what it had read before."""

    sent: int | None = None
    written: int | None = None
    cached: int = 0

    @property
    def known(self) -> bool:
        """Whether both are."""
        return self.sent is not None and self.written is not None


UNCOUNTED: Final = Counts()

#: The parts of a usage object: where each of them stands, by the names that servers give them.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "sent": ("prompt_tokens", "input_tokens"),
    "written": ("completion_tokens", "output_tokens"),
    "total": ("total_tokens",),
    "thought": (
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "reasoning_tokens",
    ),
    "cached": (
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
        "prompt_cache_hit_tokens",
        "cached_tokens",
    ),
}


class UsageReader:
    """Adds up what a server says of tokens, once or in many pieces: the last number above zero of each part stands."""

    def __init__(self) -> None:
        self._parts: dict[str, int] = {}
        self._told_none = False  # that nothing was written

    def take(self, usage: Any) -> None:
        """Take in a usage object; whatever is no count in it says nothing."""
        if not isinstance(usage, dict):
            return
        for part, names in _PARTS.items():
            told = [_number(_at(usage, name)) for name in names]
            self._told_none |= part == "written" and 0 in told
            if found := next((number for number in told if number), 0):
                self._parts[part] = found

    def counts(self, *, wrote: bool) -> Counts:
        """What it comes to. `wrote`: there is a text, or thoughts, so that something was written."""
        sent, own, total, thought = (
            self._parts.get(name) for name in ("sent", "written", "total", "thought")
        )
        written = own
        if own is not None and thought is not None and thought > own:  # billed beside it
            written = own + thought
        if total is not None and sent is not None and total >= sent:
            written = max(written or 0, total - sent)
        if sent is None and total is not None and own is not None and total > own:
            sent = total - own
        if not written:  # a prompt has tokens, and so has a text: zero says that they were not counted
            written = 0 if self._told_none and sent is not None and not wrote else None
        return Counts(sent, written, min(self._parts.get("cached", 0), sent or 0))


def usage_in(body: bytes) -> UsageReader:
    """What can be read of the usage in a body that could not be read, whole or not."""
    reader = UsageReader()
    place = body.rfind(b'"usage"')
    if place >= 0:
        _, colon, rest = body[place:].decode(errors="replace").partition(":")
        with suppress(ValueError, RecursionError):
            reader.take(json.JSONDecoder().raw_decode(rest.lstrip())[0] if colon else None)
    return reader


def _at(usage: Any, path: str) -> Any:
    for name in path.split("."):
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage


def _number(value: Any) -> int | None:
    """A count: 9, 9.0 or "9"; None for anything else, such as one below zero."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


@dataclass(frozen=True, slots=True)
class CostBound:
    """An upper bound. `cost_usd` is None when prices are unknown; `unknown` names the models they are of."""

    calls: int
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    unknown: tuple[str, ...]

    def __add__(self, other: CostBound) -> CostBound:
        """The most of both together."""
        costs = (self.cost_usd, other.cost_usd)
        return CostBound(
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
            unknown=tuple(dict.fromkeys((*self.unknown, *other.unknown))),
        )


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model costs in USD per million tokens: of those sent, those of them that its server had read before, and
    those written. None where that is not known."""

    sent: float | None = None
    cached: float | None = None
    written: float | None = None


def listed_prices(model: str, base_url: str) -> Prices:
    """List prices of a model at an address, from the table that comes with genai-prices, without a network; none when
    the table does not know it."""
    import genai_prices

    def price(cached: int) -> genai_prices.types.PriceCalculation:
        tokens = genai_prices.Usage(input_tokens=1000, cache_read_tokens=cached, output_tokens=1000)
        return genai_prices.calc_price(tokens, model, provider_api_url=base_url)

    try:
        full, cached = price(0), price(1000)
    except LookupError:
        return Prices()
    return Prices(*(1000 * float(one) for one in (full.input_price, cached.input_price, full.output_price)))


def call_usd(spec: ModelSpec, tokens_in: float, tokens_out: float, cached: float = 0) -> float | None:
    """The price of so many tokens in USD, `cached` of those sent at their own price; None where prices are unknown."""
    if spec.price_in is None or spec.price_out is None:
        return None
    price_cached = spec.price_in if spec.price_cached is None else spec.price_cached
    sent = (tokens_in - cached) * spec.price_in + cached * price_cached
    return (sent + tokens_out * spec.price_out) / 1e6


def bound_usd(spec: ModelSpec, ask: Ask) -> float:
    """The most that a try of this call can cost in USD, the tools and the form that are described in it included: a
    token is at least one byte of text, an image at most `spec.image_tokens`, and the reply as long as the call
    allows."""
    tokens_in = sum(len(message.text.encode()) + 16 for message in ask.messages)
    tokens_in += spec.image_tokens * image_count(ask.messages)
    most = call_usd(_with_prices(spec), tokens_in, _longest(spec, ask)) or 0.0
    return most + len((ask.tools + ask.answer_format).encode()) * (spec.price_in or 0.0) / 1e6


def counted_usd(spec: ModelSpec, ask: Ask, counts: Counts) -> float:
    """What an answer to this call has cost, each part that its server did not count taken for the most that it can
    be."""
    if counts.known:
        return call_usd(_with_prices(spec), counts.sent or 0, counts.written or 0, counts.cached) or 0.0
    if counts.sent is not None:
        return call_usd(_with_prices(spec), counts.sent, _longest(spec, ask), counts.cached) or 0.0
    most = bound_usd(spec, ask)
    if counts.written is not None:
        most -= (_longest(spec, ask) - counts.written) * (spec.price_out or 0.0) / 1e6
    return most


def _longest(spec: ModelSpec, ask: Ask) -> int:
    """The most tokens of the reply to a call."""
    return spec.max_tokens if ask.max_tokens is None else ask.max_tokens


def _with_prices(spec: ModelSpec) -> ModelSpec:
    """The entry with 0 for a price that is not known: of the other one something can be told all the same."""
    return replace(spec, price_in=spec.price_in or 0.0, price_out=spec.price_out or 0.0)


def estimate_cost(
    specs: Sequence[ModelSpec],
    episodes: int,
    turn_budget: int,
    *,
    question_tokens: int = QUESTION_TOKENS,
    longest_reply: int = 0,
    first_turn: int = 0,
) -> CostBound:
    """The most that `episodes` can cost: every turn taken, each by the dearest model, every reply as long as allowed,
    repeated in all later prompts, there quoted once more as advice and once more as answer.

    `longest_reply` is of models that cost nothing and are not among `specs`: they write into the prompts of those that
    do. Turns before `first_turn` are recorded: quoted, but not paid. Tries that come to nothing are not in it."""
    # Of a token of a prompt and of the longest reply, in millionths of a dollar.
    prices = [((spec.price_in or 0.0), (spec.price_out or 0.0) * spec.max_tokens) for spec in specs]
    unknown = tuple(spec.name for spec in specs if None in (spec.price_in, spec.price_out))
    longest = max((longest_reply, *(spec.max_tokens for spec in specs)))
    quoted = [turn + min(turn, 2) for turn in range(first_turn, turn_budget)]
    prompts = [ROLE_PROMPT_TOKENS + question_tokens + texts * (longest + MARKS_TOKENS) for texts in quoted]
    dearest = [max((sent * tokens + reply for sent, reply in prices), default=0.0) for tokens in prompts]
    return CostBound(
        calls=episodes * len(prompts),
        tokens_in=episodes * sum(prompts),
        tokens_out=episodes * len(prompts) * longest,
        cost_usd=None if unknown else episodes * sum(dearest) / 1e6,
        unknown=unknown,
    )
