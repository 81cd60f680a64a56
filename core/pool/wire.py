"""The chat completions wire format: the body that is sent, and what is strictly accepted back, whole or in server-sent
events (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from core.episode import Ask, Message
from core.finish import Finish, finish_of
from core.images import content_parts, put_before
from core.pool.costs import UNCOUNTED, Counts, UsageReader
from core.pool.server_words import ServerWords, error_in, words_of
from core.pool.spec import ModelSpec
from core.pool.tool_calls import ToolCalls
from core.texts import well_formed

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")


class Malformed(Exception):
    """The server's answer cannot be accepted; `str(error)` completes the sentence "its answer ..."."""


class ServerError(Exception):
    """A success that tells of an error: in an object, in an event, or in its finish reason. `counts`: what it served
    all the same; None where it served nothing."""

    def __init__(self, words: ServerWords, counts: Counts | None, finish_reason: str = "") -> None:
        super().__init__(words.text)
        self.words = words
        self.counts = counts
        self.finish_reason = finish_reason


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer as the server gave it."""

    text: str
    reasoning: str = ""
    finish_reason: str = "stop"
    counts: Counts = UNCOUNTED
    tool_calls: str = ""  # JSON list of the calls beside the text, whoever offered them


def request_body(spec: ModelSpec, ask: Ask, *, stream: bool) -> dict[str, Any]:
    """The smallest body that says it: several servers reject fields that they do not implement."""
    body: dict[str, Any] = {
        "model": spec.model or spec.name,
        "messages": _messages(messages_for(spec, ask.messages), ask.images),
        spec.token_limit_field: ask.max_tokens if ask.max_tokens is not None else spec.max_tokens,
        **spec.extra,
    }
    if ask.tools:
        tools = json.loads(ask.tools)
        choice = _demand(tools) if ask.must_call else "auto" if ask.may_call else "none"
        body |= {"tools": tools, "tool_choice": choice}
    if ask.answer_format and spec.response_format:
        wanted = json.loads(ask.answer_format)
        whole = spec.response_format == "json_schema" or wanted["type"] == "json_object"
        body["response_format"] = wanted if whole else {"type": "json_object"}
    if spec.send_temperature:
        body["temperature"] = ask.temperature if ask.temperature is not None else spec.temperature
        if ask.top_p is not None:
            body["top_p"] = ask.top_p
    if spec.send_seed:
        body["seed"] = (ask.seed + 0x9E3779B1 * ask.sample) % 2**31  # repeats within an episode must differ
    if stream:
        body["stream"] = True
        if spec.stream_usage:
            body["stream_options"] = {"include_usage": True}
    return body


#: What a user says before the images of tool results: servers take images in a user's message alone.
TOOL_IMAGES = "The images of the results above, in their order:"


def _messages(messages: Sequence[Message], images: Mapping[str, str]) -> list[dict[str, Any]]:
    """Messages as OpenAI's API takes them; the images of tool results stand in the user's message behind these."""
    sent, shown = list[dict[str, Any]](), list[dict[str, Any]]()
    for message in messages:
        one, parts = _message(message), content_parts(message, images)
        if message.role == "tool":
            shown += [part for part in parts if part["type"] == "image_url"]
        elif parts:
            one["content"] = parts
        if shown and message.role != "tool":
            before, shown = [{"type": "text", "text": TOOL_IMAGES}, *shown], []
            if message.role == "user":
                one["content"] = [*before, *(parts or [{"type": "text", "text": one["content"]}])]
            else:
                sent.append({"role": "user", "content": before})
        sent.append(one)
    if shown:
        sent.append({"role": "user", "content": [{"type": "text", "text": TOOL_IMAGES}, *shown]})
    return sent


def _message(message: Message) -> dict[str, Any]:
    content = well_formed(message.content)
    beside = json.loads(message.beside) if message.beside else {}
    beside.pop("images", None)
    # Of an assistant that only called tools, as OpenAI writes it.
    return {"role": message.role, "content": content or (None if "tool_calls" in beside else ""), **beside}


def messages_for(spec: ModelSpec, messages: Sequence[Message]) -> Sequence[Message]:
    """The messages as the model can read them: where it knows no system role, what stands in one is put before the
    user's next words."""
    if spec.system_role or all(one.role != "system" for one in messages):
        return messages
    read: list[Message] = []
    waiting: list[str] = []
    for one in messages:
        if one.role == "system":
            waiting.append(one.content)
            continue
        if one.role == "user" and waiting:
            one, waiting = put_before("\n\n".join(waiting), one), []
        read.append(one)
    if waiting:
        read.append(Message("user", "\n\n".join(waiting)))
    return read


def _demand(tools: list[dict[str, Any]]) -> str | dict[str, Any]:
    """That one of the tools is called; the only one by its name."""
    only = {"type": "function", "function": {"name": tools[0]["function"]["name"]}}
    return only if len(tools) == 1 else "required"


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


_Told = Annotated[str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)]


class _Text(_Wire):
    content: str | list[_Part] | None = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: _Told = None
    reasoning_content: _Told = None
    reasoning: _Told = None

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


def _word(value: Any) -> Any:
    """A finish reason as a word, empty for none; some servers give an object, or the word null."""
    if isinstance(value, dict):
        value = value.get("type")
    word = "" if value is None else str(value).strip()[:64]
    return "" if word.lower() in ("null", "none") else word


class _Choice(_Wire):
    message: _Text | None = None
    finish_reason: Annotated[str, BeforeValidator(_word), Field(min_length=1)]


class _Answer(_Wire):
    choices: list[_Choice] = Field(min_length=1)


class _Piece(_Wire):
    delta: _Text | None = None
    message: _Text | None = None
    finish_reason: Annotated[str, BeforeValidator(_word)] = ""


class _Chunk(_Wire):
    choices: list[_Piece | None] | None = None


W = TypeVar("W", bound=_Wire)


def _validated(kind: type[W], value: Any) -> W:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "its top level"
        raise Malformed(f"is not a chat completion (see {where})") from None


def read_completion(data: bytes) -> Completion:
    """The answer in a whole JSON body. Raises Malformed when anything of it is missing or ambiguous, ServerError where
    it tells of an error."""
    value = strict_json(data)
    reader = UsageReader()
    for usage in _usages(value):
        reader.take(usage)
    if (words := error_in(value)) is not None:
        raise ServerError(words, _served(reader, wrote=_holds_text(value)), _reason_in(value))
    choice = _validated(_Answer, value).choices[0]
    message, finish = choice.message or _Text(), finish_of(choice.finish_reason)
    if choice.message is None and finish in (Finish.DONE, Finish.TOOLS):
        raise Malformed("is not a chat completion (see choices.0.message)")
    calls = ToolCalls()
    calls.add(message.tool_calls, message.function_call)
    wrote = bool(message.answer or message.thinking or calls.calls)
    if finish is Finish.FAILED:
        raise ServerError(ServerWords(), _served(reader, wrote=wrote), choice.finish_reason)
    reason = "refusal" if message.is_refusal else choice.finish_reason
    counts = reader.counts(wrote=wrote or finish is Finish.CUT)
    return _completion(message.answer, message.thinking, reason, counts, calls)


def _completion(
    text: str, reasoning: str, finish_reason: str, counts: Counts, calls: ToolCalls
) -> Completion:
    return Completion(
        well_formed(text), well_formed(reasoning), finish_reason, counts, well_formed(calls.json())
    )


def _served(reader: UsageReader, *, wrote: bool) -> Counts | None:
    """What an answer served that failed: by its counts, where it has any; nothing where it has no text either."""
    counts = reader.counts(wrote=wrote)
    return None if not wrote and counts.sent is None and counts.written is None else counts


def _usages(value: Any) -> Iterator[Any]:
    """Where servers put the usage: at the top, in an extension of their own, or into the choice."""
    if isinstance(value, dict):
        yield value.get("usage")
        own = value.get("x_groq")
        yield own.get("usage") if isinstance(own, dict) else None
        choice = _first_choice(value)
        yield choice.get("usage")


def _first_choice(value: Any) -> dict[str, Any]:
    choices = value.get("choices") if isinstance(value, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _holds_text(value: Any) -> bool:
    message = _first_choice(value).get("message")
    return isinstance(message, dict) and bool(message.get("content") or message.get("reasoning_content"))


def _reason_in(value: Any) -> str:
    return str(_word(_first_choice(value).get("finish_reason")))


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name, empty where it has none, and its data."""

    name: str
    data: bytes


class EventReader:
    """Reads events from bytes, however these are cut. `done`: a line of data said [DONE]; what follows is not read."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # parts of a line that has not ended
        self._start: bytes | None = b""  # as long as it may be a byte order mark
        self._after_return = False  # a line feed that comes next belongs to the line end before it
        self._data: list[bytes] = []
        self._name = ""
        self.done = False

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Take more bytes, give the events that they complete."""
        if self._start is not None:
            self._start += data
            if len(self._start) < len(_BOM) and _BOM.startswith(self._start):
                return
            data, self._start = self._start.removeprefix(_BOM), None
        if self._after_return:
            data = data.removeprefix(b"\n")
        if not data:
            return
        self._after_return = data.endswith(b"\r")
        first, *rest = _LINE_END.split(data) if b"\r" in data else data.split(b"\n")
        self._line.append(first)
        if not rest:
            return
        *whole, begun = rest
        for line in (b"".join(self._line), *whole):
            if not line.startswith(b":"):  # a comment, such as keeps a connection alive
                yield from self._end_line(line)
        self._line[:] = [begun]

    def end(self) -> None:
        """Nothing more will come: the last line needs no end, but an event without its blank line is none."""
        if self._start:
            self._line.append(self._start)
        line, self._line = b"".join(self._line), []
        for _ in self._end_line(line):
            pass

    def _end_line(self, line: bytes) -> Iterator[ServerEvent]:
        if self.done:
            return
        if not line:
            if self._data:
                yield ServerEvent(self._name, b"\n".join(self._data))
            self._data, self._name = [], ""
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            if value.strip() == b"[DONE]":
                self.done = True
            else:
                self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace").strip()


class StreamReader:
    """Reads server-sent events as they arrive and holds on to the answer until it is known to be whole."""

    def __init__(self, *, needs_done: bool = True) -> None:
        self._needs_done = needs_done
        self._events = EventReader()
        self._answer: list[str] = []
        self._thinking: list[str] = []
        self._calls = ToolCalls()
        self._finish_reason = ""
        self._refused = False
        self._usage = UsageReader()

    @property
    def done(self) -> bool:
        """Whether it said that nothing more comes."""
        return self._events.done

    @property
    def counts(self) -> Counts:
        """What it has told of tokens that stands, as its text is over."""
        return self._usage.counts(wrote=True) if self._finish_reason else Counts()

    def feed(self, data: bytes) -> list[str]:
        """Take more bytes, give the pieces of text they complete; raises Malformed, and ServerError where it tells of
        an error."""
        before = len(self._answer)
        for event in self._events.feed(data):
            self._take_event(event)
        return [well_formed(piece) for piece in self._answer[before:]]

    def finish(self) -> Completion:
        """The whole answer once the stream is over; raises Malformed when it was cut before its end, ServerError where
        the server broke off."""
        self._events.end()
        finish = finish_of(self._finish_reason)
        if finish is Finish.FAILED:
            raise self._error(ServerWords())
        if not self._finish_reason:
            raise Malformed("was cut off: the stream ended without a finish reason")
        if self._needs_done and not self.done:
            raise Malformed(
                "was cut off: the stream ended without [DONE] (for a server that never sends it,"
                " set stream_done = false)"
            )
        reason = "refusal" if self._refused else self._finish_reason
        counts = self._usage.counts(wrote=self._wrote or finish is Finish.CUT)
        return _completion("".join(self._answer), "".join(self._thinking), reason, counts, self._calls)

    @property
    def _wrote(self) -> bool:
        return bool(self._answer or self._thinking or self._calls.calls)

    def _error(self, words: ServerWords) -> ServerError:
        return ServerError(words, _served(self._usage, wrote=self._wrote), self._finish_reason)

    def _take_event(self, event: ServerEvent) -> None:
        """What holds no text is passed over: null, scalars, pings, and objects without a choice."""
        if not event.data.strip():
            return
        try:
            value = strict_json(event.data)
        except Malformed:
            if "error" in event.name.lower():
                raise self._error(words_of(event.data)) from None
            if event.name and not event.data.lstrip().startswith((b"{", b"[")):
                return
            raise
        for usage in _usages(value):
            self._usage.take(usage)
        if (words := error_in(value, event=event.name)) is not None:
            self._finish_reason = self._finish_reason or _reason_in(value)
            raise self._error(words)
        if isinstance(value, (dict, list)):
            self._take_chunk(_validated(_Chunk, value))

    def _take_chunk(self, chunk: _Chunk) -> None:
        for piece in filter(None, (chunk.choices or ())[:1]):
            # A whole message in place of pieces, unless it repeats what they said.
            said = piece.delta or (None if self._wrote else piece.message) or _Text()
            if said.answer:
                self._answer.append(said.answer)
            if said.thinking:
                self._thinking.append(said.thinking)
            self._calls.join(said.tool_calls, said.function_call)
            if not self._finish_reason or finish_of(piece.finish_reason) is Finish.FAILED:
                self._finish_reason = piece.finish_reason or self._finish_reason
            self._refused = self._refused or said.is_refusal
