"""An answer as it comes: progress from the first second, then the text, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from core.episode import Event
from ui.endpoint.answers import (
    Course,
    chat_chunk,
    chat_usage,
    output_item,
    output_items,
    output_part,
    pieces,
    response_object,
)
from ui.endpoint.engine import Engine
from ui.endpoint.errors import ApiError
from ui.endpoint.schema_checks import MOST_PROCESSES

T = TypeVar("T")

#: How long after its deadline a request waits for the call that was broken off, in seconds.
GRACE_S = 0.06
#: How often a stream says that it is alive where it has nothing else to say, in seconds.
KEEP_ALIVE_S = 10.0


#: Checks of schemas have threads of their own: what waits for a slow one must not hold up others.
_CHECKING = ThreadPoolExecutor(4 * MOST_PROCESSES, "schema checks")


async def checking(check: Callable[[], T]) -> T:
    """What a check says that may take long."""
    return await asyncio.get_running_loop().run_in_executor(_CHECKING, check)


class Listener:
    """Hears events from the thread that plays, in the loop that serves."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Queue[Event | None] = asyncio.Queue()

    def tell(self, event: Event | None) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # the server is gone
            self._loop.call_soon_threadsafe(self._heard.put_nowait, event)

    async def next(self, until: float) -> Event | None:
        """The next event; None at the end. TimeoutError when none came `until` then, on the monotonic clock."""
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            return await self._heard.get()


async def played(engine: Engine, course: Course, listener: Listener) -> AsyncGenerator[dict[str, Any]]:
    """Hand the order over and give its progress, until it is over or out of time. Left early, it is cancelled."""
    order = course.order
    engine.submit(order)
    try:
        while True:
            try:
                event = await listener.next(order.deadline + (GRACE_S if course.out_of_time else 0.0))
            except TimeoutError:
                if course.out_of_time:
                    return
                course.out_of_time = True
                engine.look()
                continue
            if event is None:
                await checking(course.check)
                return
            if (progress := course.take(event)) is not None:
                yield progress
    finally:
        if course.ended is None and not course.out_of_time:
            engine.cancel(course.id)


async def play_whole(request: Request, engine: Engine, course: Course, listener: Listener) -> None:
    """Play to the end without a word; cancelled when the client goes away."""

    async def play() -> None:
        async with contextlib.aclosing(played(engine, course, listener)) as progress:
            async for _ in progress:
                pass

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    playing, leaving = asyncio.create_task(play()), asyncio.create_task(gone())
    try:
        await asyncio.wait({playing, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (playing, leaving):
            task.cancel()
        await asyncio.gather(playing, leaving, return_exceptions=True)


async def chat_stream(
    engine: Engine, course: Course, listener: Listener, *, include_usage: bool, progress: bool
) -> AsyncGenerator[dict[str, str]]:
    """Chunks of a chat completion, for an EventSourceResponse."""
    about = {"type": "started", "episode": course.id, "url": course.url or None}
    yield {"data": chat_chunk(course, {"role": "assistant", "content": ""}, trinity=about)}
    async with contextlib.aclosing(played(engine, course, listener)) as told:
        async for what in told:
            if progress:
                yield {"data": chat_chunk(course, trinity=what)}
    try:
        answer = course.outcome()
    except ApiError as error:
        yield {"data": json.dumps(error.body() | {"trinity": course.trace()})}
        return
    for piece in pieces(answer or ""):
        yield {"data": chat_chunk(course, {"content": piece})}
    for number, call in enumerate(course.tool_calls):
        yield {"data": chat_chunk(course, {"tool_calls": [{"index": number, **call}]})}
    yield {
        "data": chat_chunk(
            course, finish=course.finish_reason, trinity={"type": "finished", **course.trace()}
        )
    }
    if include_usage:
        last = json.loads(chat_chunk(course, usage=chat_usage(course))) | {"choices": []}
        yield {"data": json.dumps(last)}
    yield {"data": "[DONE]"}


async def response_stream(
    engine: Engine, course: Course, listener: Listener, *, progress: bool
) -> AsyncGenerator[dict[str, str]]:
    """Events of a response, for an EventSourceResponse."""
    numbers = iter(range(10**9))

    def event(kind: str, **body: Any) -> dict[str, str]:
        return {"event": kind, "data": json.dumps({"type": kind, "sequence_number": next(numbers), **body})}

    about = {"type": "started", "episode": course.id, "url": course.url or None}
    begun = response_object(course, "in_progress")
    yield event("response.created", response=begun, trinity=about)
    async with contextlib.aclosing(played(engine, course, listener)) as told:
        async for what in told:
            if progress:
                yield event("response.in_progress", response=begun, trinity=what)
    try:
        answer = course.outcome()
    except ApiError as error:
        failed = {"code": "server_error", "message": error.message}
        over = response_object(course, "failed") | {"error": failed, "trinity": course.trace()}
        yield event("response.failed", response=over)
        return
    for place, item in enumerate(output_items(course, answer)):
        for kind, body in _item_events(course, item, place, answer):
            yield event(kind, **body)
    over = response_object(course, "completed", answer)
    yield event(f"response.{over['status']}", response=over)


def _item_events(
    course: Course, item: dict[str, Any], place: int, answer: str | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is told of one item of a response: that it begins, its pieces, that it is whole."""
    at = {"output_index": place, "item_id": item["id"]}
    if answer is None:
        begun = item | {"status": "in_progress", "arguments": ""}
        yield "response.output_item.added", {"output_index": place, "item": begun}
        yield "response.function_call_arguments.delta", {**at, "delta": item["arguments"]}
        yield (
            "response.function_call_arguments.done",
            {**at, "arguments": item["arguments"], "name": item["name"]},
        )
    else:
        part = {**at, "content_index": 0}
        begun = output_item(course, None, "in_progress")
        yield "response.output_item.added", {"output_index": place, "item": begun}
        yield "response.content_part.added", {**part, "part": output_part("")}
        for piece in pieces(answer):
            yield "response.output_text.delta", {**part, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {**part, "text": answer, "logprobs": []}
        yield "response.content_part.done", {**part, "part": output_part(answer)}
    yield "response.output_item.done", {"output_index": place, "item": item}
