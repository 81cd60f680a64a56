"""A reply in the form of each API: whole, or as it comes, with progress from the first second, then the text."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from sse_starlette.event import ServerSentEvent
from starlette.requests import Request

from core.episode import Event
from ui.endpoint.conversation import as_object
from ui.endpoint.course import Course
from ui.endpoint.engine import Engine
from ui.endpoint.errors import ApiError
from ui.endpoint.schema_checks import CHECKING

T = TypeVar("T")

#: The characters of an answer that a stream sends at a time.
PIECE = 48
#: How long after its deadline a request waits for the call that was broken off, in seconds.
GRACE_S = 0.06
#: How often a stream says that it is alive where it has nothing else to say, in seconds.
KEEP_ALIVE_S = 10.0


async def run_check(check: Callable[[], T]) -> T:
    """What a check says that may take long."""
    return await asyncio.get_running_loop().run_in_executor(CHECKING, check)


class Listener:
    """Hears events from the thread that plays, in the loop that serves. A `patient` one is woken at the end alone."""

    def __init__(self, *, patient: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard: deque[Event | None] = deque()
        self._patient, self._woken = patient, asyncio.Event()

    def tell(self, event: Event | None) -> None:
        """From any thread."""
        self._heard.append(event)
        if event is None or not self._patient:
            with contextlib.suppress(RuntimeError):  # the server is gone
                self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, until: float) -> None:
        """Until there is something new. TimeoutError when nothing came `until` then, on the monotonic clock."""
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            await self._woken.wait()
        self._woken.clear()

    def heard(self) -> list[Event | None]:
        """What came since the last time, None at the end."""
        return [self._heard.popleft() for _ in range(len(self._heard))]


async def play_order(
    engine: Engine, course: Course, listener: Listener
) -> AsyncGenerator[dict[str, Any] | str]:
    """Hand the order over and give its progress and pieces of its answer, until it is over or out of time. Left early,
    it is cancelled."""
    order = course.order
    engine.submit(order)
    try:
        while True:
            over = False
            try:
                await listener.wait(order.deadline + (GRACE_S if course.out_of_time else 0.0))
            except TimeoutError:
                over = course.out_of_time
                course.out_of_time = True
                engine.look()
            for event in listener.heard():
                if event is None:
                    if order.asked.answer_format is not None:
                        await run_check(course.check)
                    return
                if (progress := course.take(event)) is not None:
                    yield progress
            if over:
                return
    finally:
        if course.ended is None and not course.out_of_time:
            engine.look(cancelled=course.id)


async def play_whole(request: Request, engine: Engine, course: Course, listener: Listener) -> None:
    """Play to the end without a word; cancelled when the client goes away."""

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        listener.tell(None)

    leaving = asyncio.create_task(leave())
    try:
        async with contextlib.aclosing(play_order(engine, course, listener)) as progress:
            async for _ in progress:
                pass
    finally:
        leaving.cancel()


#: An event of a stream, for an EventSourceResponse.
Sent = dict[str, str]


def _pieces(text: str) -> list[str]:
    """A text in the pieces that a stream sends."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _details(used: dict[str, int], **more: int) -> tuple[dict[str, int], dict[str, int]]:
    """The details of tokens sent and written; `more`: what the form has beside those sent."""
    sent = {
        "cached_tokens": used["cached"],
        **more,
        "orchestration_input_tokens": used["orchestration_input"],
        "orchestration_input_cached_tokens": used["orchestration_cached"],
    }
    return sent, {"reasoning_tokens": 0, "orchestration_output_tokens": used["orchestration_output"]}


@dataclass
class Form(ABC):
    """A reply in one API's form: whole, or its begin, progress, and answer or failure as events."""

    course: Course

    @abstractmethod
    def whole(self) -> dict[str, Any]:
        """The whole body. ApiError where there is no answer."""

    @abstractmethod
    def begin(self, about: dict[str, Any]) -> Sent:
        """What a stream begins with: a message without words yet."""

    @abstractmethod
    def progress(self, what: dict[str, Any]) -> Sent:
        """An event that carries progress alone."""

    @abstractmethod
    def piece(self, text: str) -> Iterator[Sent]:
        """A piece of the answer."""

    @abstractmethod
    def answer(self, text: str | None, rest: str | None) -> Iterator[Sent]:
        """The `rest` of the text in pieces, or the calls; how it ended, and the tokens."""

    @abstractmethod
    def fail(self, error: ApiError) -> Sent:
        """The error in the place of an answer."""

    @staticmethod
    def keep_alive() -> ServerSentEvent:
        """What a stream says where it has nothing else to say: a line that is no event."""
        return ServerSentEvent(comment="alive")


@dataclass
class Chat(Form):
    """A chat completion."""

    def whole(self) -> dict[str, Any]:
        text = self.course.outcome()
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self.course.tool_calls:
            message["tool_calls"] = self.course.tool_calls
        choice = {"message": message, "finish_reason": self.course.finish_reason}
        more = {"usage": self._usage(), "trinity": self.course.trace()}
        return self._object("chat.completion", [self._choice(choice)], more)

    def begin(self, about: dict[str, Any]) -> Sent:
        return self._chunk({"role": "assistant", "content": ""}, trinity=about)

    def progress(self, what: dict[str, Any]) -> Sent:
        return self._chunk(trinity=what)

    def piece(self, text: str) -> Iterator[Sent]:
        yield self._chunk({"content": text})

    def fail(self, error: ApiError) -> Sent:
        return {"data": json.dumps(error.body() | {"trinity": self.course.trace()})}

    def answer(self, text: str | None, rest: str | None) -> Iterator[Sent]:
        for piece in _pieces(rest or ""):
            yield from self.piece(piece)
        for number, call in enumerate(self.course.tool_calls):
            yield self._chunk({"tool_calls": [{"index": number, **call}]})
        over = {"type": "finished", **self.course.trace()}
        yield self._chunk(finish=self.course.finish_reason, trinity=over)
        if self.course.order.asked.include_usage:
            last = self._object("chat.completion.chunk", [], {"usage": self._usage()})
            yield {"data": json.dumps(last)}
        yield {"data": "[DONE]"}

    def _chunk(self, delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> Sent:
        choice = self._choice({"delta": delta or {}, "finish_reason": finish})
        return {"data": json.dumps(self._object("chat.completion.chunk", [choice], more))}

    @staticmethod
    def _choice(own: dict[str, Any]) -> dict[str, Any]:
        return {"index": 0, **own, "logprobs": None}

    def _object(self, kind: str, choices: Sequence[dict[str, Any]], more: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.course.id}",
            "object": kind,
            "created": self.course.created,
            "model": self.course.order.asked.model,
            "choices": choices,
            **more,
        }

    def _usage(self) -> dict[str, Any]:
        used = self.course.usage()
        sent, written = _details(used)
        return {
            "prompt_tokens": used["input"],
            "completion_tokens": used["output"],
            "total_tokens": used["total"],
            "prompt_tokens_details": sent,
            "completion_tokens_details": written,
        }


#: Why a response is not whole, by its finish reason as a chat completion.
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass
class ResponseObject(Form):
    """An object of the Responses API, told in the same parts; its events are numbered."""

    numbers: Iterator[int] = field(default_factory=count)
    begun: bool = False  # the item that holds the answer's text

    def whole(self) -> dict[str, Any]:
        return self._over(self.course.outcome())

    def begin(self, about: dict[str, Any]) -> Sent:
        return self._event("created", response=self._object("in_progress"), trinity=about)

    def progress(self, what: dict[str, Any]) -> Sent:
        return self._event("in_progress", response=self._object("in_progress"), trinity=what)

    def fail(self, error: ApiError) -> Sent:
        failed = {"code": "server_error", "message": error.message}
        over = self._object("failed") | {"error": failed, "trinity": self.course.trace()}
        return self._event("failed", response=over)

    def piece(self, text: str) -> Iterator[Sent]:
        """A piece of the answer, after the beginning of the item that holds it."""
        item = self._message("")
        part = {"output_index": 0, "item_id": item["id"], "content_index": 0}
        if not self.begun:
            self.begun = True
            begun = item | {"status": "in_progress", "content": []}
            yield self._event("output_item.added", output_index=0, item=begun)
            yield self._event("content_part.added", **part, part=_part(""))
        if text:
            yield self._event("output_text.delta", **part, delta=text, logprobs=[])

    def answer(self, text: str | None, rest: str | None) -> Iterator[Sent]:
        """Of each item that it begins, its pieces, and that it is whole; then the whole response."""
        told = self.course.live.sent if text is None and self.begun and self.course.live else text
        if told is not None:
            for piece in _pieces(rest or "") or [""]:
                yield from self.piece(piece)
            item = self._message(told)
            part = {"output_index": 0, "item_id": item["id"], "content_index": 0}
            yield self._event("output_text.done", **part, text=told, logprobs=[])
            yield self._event("content_part.done", **part, part=_part(told))
            yield self._event("output_item.done", output_index=0, item=item)
        for place, item in enumerate(self._calls(), start=int(told is not None)):
            at = {"output_index": place, "item_id": item["id"]}
            begun = item | {"status": "in_progress", "arguments": ""}
            yield self._event("output_item.added", output_index=place, item=begun)
            yield from self._call(at, item)
            yield self._event("output_item.done", output_index=place, item=item)
        over = self._over(told)
        yield self._event(over["status"], response=over)

    def _call(self, at: dict[str, Any], item: dict[str, Any]) -> Iterator[Sent]:
        arguments = item["arguments"]
        yield self._event("function_call_arguments.delta", **at, delta=arguments)
        yield self._event("function_call_arguments.done", **at, arguments=arguments, name=item["name"])

    def _event(self, kind: str, /, **body: Any) -> Sent:
        told = {"type": f"response.{kind}", "sequence_number": next(self.numbers), **body}
        return {"event": f"response.{kind}", "data": json.dumps(told)}

    def _items(self, text: str | None) -> list[dict[str, Any]]:
        """What a response gives: a message, and the calls that it asks for."""
        return [*([self._message(text)] if text is not None else []), *self._calls()]

    def _message(self, text: str) -> dict[str, Any]:
        message = {"id": f"msg_{self.course.id}", "type": "message", "role": "assistant"}
        return {**message, "status": "completed", "content": [_part(text)]}

    def _calls(self) -> list[dict[str, Any]]:
        name = self.course.id
        return [
            {
                "id": f"fc_{name}_{number}",
                "type": "function_call",
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
                "status": "completed",
            }
            for number, call in enumerate(self.course.tool_calls)
        ]

    def _object(self, status: str, cut: str | None = None, **more: Any) -> dict[str, Any]:
        """The response; `cut`: why it is not whole."""
        asked = self.course.order.asked
        return {
            "id": f"resp_{self.course.id}",
            "object": "response",
            "created_at": self.course.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": cut} if cut else None,
            "instructions": None,
            "metadata": dict(self.course.order.episode.meta),
            "model": asked.model,
            "output": [],
            "parallel_tool_calls": False,
            "temperature": asked.temperature,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
            **more,
        }

    def _over(self, text: str | None) -> dict[str, Any]:
        cut = _INCOMPLETE.get(self.course.finish_reason) if text is not None else None
        used = self.course.usage()
        sent, written = _details(used, cache_write_tokens=0)
        usage = {
            "input_tokens": used["input"],
            "input_tokens_details": sent,
            "output_tokens": used["output"],
            "output_tokens_details": written,
            "total_tokens": used["total"],
        }
        status, trace = "incomplete" if cut else "completed", self.course.trace()
        return self._object(status, cut, output=self._items(text), usage=usage, trinity=trace)


def _part(text: str) -> dict[str, Any]:
    """The text of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


#: Why an answer ends, by its finish reason as a chat completion.
_STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use"}


@dataclass
class MessageObject(Form):
    """A message of Anthropic's API, told in the same parts. Progress stands in pings, which every client passes over:
    some refuse events of a type that they do not know."""

    begun: bool = False  # the block that holds the answer's text

    @staticmethod
    def keep_alive() -> ServerSentEvent:
        return ServerSentEvent(event="ping", data='{"type": "ping"}')

    def whole(self) -> dict[str, Any]:
        text = self.course.outcome()
        content = [*([{"type": "text", "text": text}] if text else []), *self._calls()]
        end = {**self._end(), "usage": self._usage(), "trinity": self.course.trace()}
        return self._object(content) | end

    def begin(self, about: dict[str, Any]) -> Sent:
        # In the message too, which is what clients keep of it.
        return self._event("message_start", message=self._object([]) | {"trinity": about}, trinity=about)

    def progress(self, what: dict[str, Any]) -> Sent:
        return self._event("ping", trinity=what)

    def fail(self, error: ApiError) -> Sent:
        told = error.anthropic_body()["error"]
        return self._event("error", error=told, trinity=self.course.trace())

    def piece(self, text: str) -> Iterator[Sent]:
        if not self.begun:
            self.begun = True
            yield self._event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        delta = {"type": "text_delta", "text": text}
        yield self._event("content_block_delta", index=0, delta=delta)

    def answer(self, text: str | None, rest: str | None) -> Iterator[Sent]:
        for piece in _pieces(rest or ""):
            yield from self.piece(piece)
        if self.begun:
            yield self._event("content_block_stop", index=0)
        for place, block in enumerate(self._calls(), start=int(self.begun)):
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield self._event("content_block_start", index=place, content_block=block | {"input": {}})
            yield self._event("content_block_delta", index=place, delta=delta)
            yield self._event("content_block_stop", index=place)
        over = {"type": "finished", **self.course.trace()}
        yield self._event("message_delta", delta=self._end(), usage=self._usage(), trinity=over)
        yield self._event("message_stop")

    def _event(self, kind: str, /, **body: Any) -> Sent:
        return {"event": kind, "data": json.dumps({"type": kind, **body})}

    def _object(self, content: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The message before its end is known."""
        return {
            "id": f"msg_{self.course.id}",
            "type": "message",
            "role": "assistant",
            "model": self.course.order.asked.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def _end(self) -> dict[str, str | None]:
        """Why it ends."""
        reason, stopped_by = self.course.finish_reason, self.course.stopped_by
        usual = "end_turn" if stopped_by is None else "stop_sequence"
        return {"stop_reason": _STOP_REASONS.get(reason, usual), "stop_sequence": stopped_by}

    def _calls(self) -> list[dict[str, Any]]:
        called = [(call["id"], call["function"]) for call in self.course.tool_calls]
        return [
            {"type": "tool_use", "id": id_, "name": one["name"], "input": as_object(one["arguments"])}
            for id_, one in called
        ]

    def _usage(self) -> dict[str, int]:
        """The tokens: `input_tokens` are, in this API, those that were not read before."""
        used = self.course.usage()
        return {
            "input_tokens": used["input"] - used["cached"],
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": used["cached"],
            "output_tokens": used["output"],
            "orchestration_input_tokens": used["orchestration_input"],
            "orchestration_input_cached_tokens": used["orchestration_cached"],
            "orchestration_output_tokens": used["orchestration_output"],
        }


async def stream_reply(form: Form, engine: Engine, listener: Listener) -> AsyncGenerator[Sent]:
    """The events of a reply as they come."""
    course = form.course
    yield form.begin({"type": "started", "episode": course.id, "url": course.url or None})
    async with contextlib.aclosing(play_order(engine, course, listener)) as told:
        async for what in told:
            if isinstance(what, str):
                for sent in form.piece(what):
                    yield sent
            elif course.order.asked.vendor.progress:
                yield form.progress(what)
    try:
        text = course.outcome()
        rest = course.rest(text)
    except ApiError as error:
        yield form.fail(error)
        return
    if text is None and rest:
        for sent in form.piece(rest):
            yield sent
        rest = None
    for sent in form.answer(text, rest):
        yield sent
