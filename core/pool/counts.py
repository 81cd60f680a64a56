"""Counts of tokens as servers tell them: in parts, in odd types, with zeros for what they do not know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

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
