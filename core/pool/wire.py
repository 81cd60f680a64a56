"""The chat completions wire format: the body that is sent, and what is strictly accepted back."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.episode import Ask
from core.pool.spec import ModelSpec

#: Body fields that are ours: an entry of pool.toml has settings for them or may not change them at all.
OWN_FIELDS = frozenset(
    {
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "response_format",
        "seed",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
    }
)


class Malformed(Exception):
    """The server's answer cannot be accepted; `str(error)` completes the sentence "its answer ..."."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer as the server gave it; token counts are None when it gave none."""

    text: str
    reasoning: str
    finish_reason: str
    tokens_in: int | None
    tokens_out: int | None
    tool_calls: str = ""  # JSON list
    tokens_cached: int = 0  # of those sent, what the server had read before


def well_formed(text: str) -> str:
    """`text` with what no database or UTF-8 stream can hold (lone surrogates, NUL) replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


def request_body(spec: ModelSpec, ask: Ask, *, stream: bool) -> dict[str, Any]:
    """The smallest body that says it: several servers reject fields that they do not implement."""
    body: dict[str, Any] = {
        "model": spec.model or spec.name,
        "messages": [{"role": m.role, "content": well_formed(m.content)} for m in ask.messages],
        spec.token_limit_field: ask.max_tokens if ask.max_tokens is not None else spec.max_tokens,
        **spec.extra,
    }
    if ask.tools:
        body |= {"tools": json.loads(ask.tools), "tool_choice": "auto"}
    if spec.send_temperature:
        body["temperature"] = ask.temperature if ask.temperature is not None else spec.temperature
    if spec.send_seed:
        body["seed"] = (ask.seed + 0x9E3779B1 * ask.sample) % 2**31  # repeats within an episode must differ
    if stream:
        body["stream"] = True
        if spec.stream_usage:
            body["stream_options"] = {"include_usage": True}
    return body


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two equal keys json.loads silently takes the last: {"verdict": "REJECT", "verdict": "ACCEPT"}."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise Malformed("repeats a key within one JSON object")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise Malformed(f"holds {name}, which is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Malformed(f"holds the number {digits[:20]}, which is too large")
    return value


def strict_json(data: bytes) -> Any:
    """Parse UTF-8 JSON; raises Malformed on NaN and what overflows, repeated keys, bottomless nesting or endless
    digits."""
    try:
        return json.loads(
            data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except RecursionError:
        raise Malformed("is nested too deeply") from None
    except ValueError:  # bad UTF-8, bad JSON, integers of thousands of digits
        raise Malformed("is not whole, valid JSON") from None


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Part(_Wire):
    """A part of a text that comes in parts; those of other types, such as thinking, have none of it."""

    type: str = "text"
    text: str | None = None


class _Function(_Wire):
    name: str = Field(min_length=1, max_length=200)
    arguments: str = Field(default="{}", max_length=1_000_000)


class _ToolCall(_Wire):
    id: str = Field(min_length=1, max_length=200)
    type: str = "function"
    function: _Function


class _Text(_Wire):
    content: str | list[_Part] | None = None
    tool_calls: list[_ToolCall] | None = Field(default=None, max_length=128)
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @property
    def answer(self) -> str:
        content = self.content
        if isinstance(content, list):
            content = "".join(one.text or "" for one in content if one.type in ("text", "output_text"))
        return content or self.refusal or ""

    @property
    def is_refusal(self) -> bool:
        """Whether it says, in the field for it, that the model will not answer."""
        return bool(self.refusal) and not self.content

    @property
    def thinking(self) -> str:
        return self.reasoning_content or self.reasoning or ""


class _Cached(_Wire):
    cached_tokens: int | None = Field(default=None, ge=0, le=10**9)


class _Usage(_Wire):
    prompt_tokens_details: _Cached | None = None
    prompt_tokens: int = Field(ge=0, le=10**9)
    completion_tokens: int = Field(ge=0, le=10**9)


class _Choice(_Wire):
    message: _Text
    finish_reason: str = Field(min_length=1, max_length=64)


class _Answer(_Wire):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class _Piece(_Wire):
    delta: _Text = _Text()
    finish_reason: str | None = Field(default=None, max_length=64)


class _Chunk(_Wire):
    choices: list[_Piece]
    usage: _Usage | None = None


W = TypeVar("W", bound=_Wire)


def _validated(kind: type[W], value: Any) -> W:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "its top level"
        raise Malformed(f"is not a chat completion (see {where})") from None


def read_completion(data: bytes) -> Completion:
    """The answer in a whole JSON body; raises Malformed when anything of it is missing or ambiguous."""
    answer = _validated(_Answer, strict_json(data))
    choice = answer.choices[0]
    message = choice.message
    reason = "refusal" if message.is_refusal else choice.finish_reason
    completion = _completion(message.answer, message.thinking, reason, answer.usage)
    if not message.tool_calls:
        return completion
    calls = [call.model_dump() for call in message.tool_calls]
    words = [f"{call.function.name}({call.function.arguments})" for call in message.tool_calls]
    text = "\n".join([*filter(None, [completion.text]), *words])
    return replace(completion, text=well_formed(text), tool_calls=well_formed(json.dumps(calls)))


def _completion(text: str, reasoning: str, finish_reason: str, usage: _Usage | None) -> Completion:
    return Completion(
        text=well_formed(text),
        reasoning=well_formed(reasoning),
        finish_reason=finish_reason,
        tokens_in=usage.prompt_tokens if usage else None,
        tokens_out=usage.completion_tokens if usage else None,
        tokens_cached=_cached(usage),
    )


def _cached(usage: _Usage | None) -> int:
    """Never more than was sent."""
    told = usage.prompt_tokens_details.cached_tokens if usage and usage.prompt_tokens_details else None
    return min(told or 0, usage.prompt_tokens) if usage else 0


class StreamReader:
    """Reads server-sent events as they arrive and holds on to the answer until it is known to be whole."""

    def __init__(self, *, needs_done: bool = True) -> None:
        self._needs_done = needs_done
        self._line: list[bytes] = []  # parts of a line that has not ended
        self._event: list[bytes] = []
        self._answer: list[str] = []
        self._thinking: list[str] = []
        self._finish_reason = ""
        self._refused = False
        self._usage: _Usage | None = None
        self.done = False

    def feed(self, data: bytes) -> list[str]:
        """Take more bytes, give the pieces of text they complete; raises Malformed."""
        before = len(self._answer)
        end, *lines = data.split(b"\n")
        self._line.append(end)
        for start in lines:
            self._end_line()
            self._line.append(start)
        return [well_formed(piece) for piece in self._answer[before:]]

    def finish(self) -> Completion:
        """The whole answer once the stream is over; raises Malformed when it was cut before its end."""
        self._end_line()
        if not self._finish_reason:
            raise Malformed("was cut off: the stream ended without a finish reason")
        if self._needs_done and not self.done:
            raise Malformed(
                "was cut off: the stream ended without [DONE] (for a server that never sends it,"
                " set stream_done = false)"
            )
        answer, thinking = "".join(self._answer), "".join(self._thinking)
        reason = "refusal" if self._refused else self._finish_reason
        return _completion(answer, thinking, reason, self._usage)

    def _end_line(self) -> None:
        line = b"".join(self._line).rstrip(b"\r")
        self._line.clear()
        if not line:  # a blank line ends an event
            event, self._event = b"\n".join(self._event), []
            if event and not self.done:
                self._take_chunk(event)
        elif line.startswith(b"data:"):
            data = line[5:].removeprefix(b" ")
            if data == b"[DONE]":
                self.done = True
            else:
                self._event.append(data)

    def _take_chunk(self, event: bytes) -> None:
        value = strict_json(event)
        if isinstance(value, dict) and value.get("error"):
            raise Malformed("reports an error in the middle of the stream")
        chunk = _validated(_Chunk, value)
        self._usage = chunk.usage or self._usage
        for piece in chunk.choices[:1]:
            if piece.delta.answer:
                self._answer.append(piece.delta.answer)
            if piece.delta.thinking:
                self._thinking.append(piece.delta.thinking)
            self._finish_reason = self._finish_reason or piece.finish_reason or ""
            self._refused = self._refused or piece.delta.is_refusal
