"""What the endpoint adds to calls of models that take 22 ms, at the client's clock.

Rounds of requests made to a model and of requests made through a tier take turns; of each request it is taken off what
its calls take directly, the median beside which they were made. Client and models speak HTTP by hand: they share the
machine with the endpoint, and every millisecond of theirs would look like one of its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from storage.analysis.requests import read_requests
from storage.filters.episode_filter import EpisodeFilter
from storage.store import open_store
from tests.bench._frame import Figures, percentile, run_apart

#: How long a model takes, in seconds; requests at a time; rounds of about so many requests; requests before them.
MODEL_S, AT_ONCE, ROUNDS, EACH, FIRST = 0.022, (1, 4, 16, 64), 6, 64, 20
#: What ends the head of a message of HTTP.
_END = b"\r\n\r\n"


def measured(address: str, models: str, store: Path) -> Figures:
    """The figures of `trinity bench endpoint --overhead`, in milliseconds: of both tiers by requests at a time, what
    was added to a request, and of the coordinator's tier how long it decided."""
    found = run_apart(_measure(address, models))
    requests = read_requests(open_store(str(store)), EpisodeFilter(), None).found
    decided = [
        1000 * one.deciding_s for one in requests if one.tier == "trinity" and one.deciding_s is not None
    ]
    return found | {"coordinator_deciding_ms": _p50_and_p99(decided)}


def _p50_and_p99(values: Sequence[float]) -> dict[str, float | None]:
    """Percentiles; None where everything failed."""
    return {f"p{at}": percentile(at, values, 2) if values else None for at in (50, 99)}


async def _measure(address: str, models: str) -> Figures:
    added: dict[str, dict[str, dict[str, float | None]]] = {}
    errors = 0
    question = [{"role": "user", "content": "How many?"}]
    for name, model in (("single", "single"), ("coordinator", "trinity")):
        body = {"model": model, "messages": question}
        for at_once in AT_ONCE:
            direct = [_Client(models, {"messages": question}) for _ in range(at_once)]
            through = [_Client(address, body) for _ in range(at_once)]
            for clients in (direct, through):
                await asyncio.gather(*(one.connect() for one in clients))
                await _round(clients, FIRST)
            seen = list[float]()
            for _ in range(ROUNDS):
                base = statistics.median(took for took, _ in await _round(direct, EACH))
                for took, answer in await _round(through, EACH):
                    if answer is None:
                        errors += 1
                    else:
                        seen.append(1000 * (took - len(answer["trinity"]["turns"]) * base))
            for one in (*direct, *through):
                one.close()
            added.setdefault(name, {})[str(at_once)] = _p50_and_p99(seen)
    return {"overhead_ms": added, "errors": errors, "model_ms": 1000 * MODEL_S}


async def _round(clients: Sequence[_Client], requests: int) -> list[tuple[float, Any]]:
    """What all clients together saw of about so many requests: seconds, and the answer or None."""

    async def some(client: _Client) -> list[tuple[float, Any]]:
        return [await client.ask() for _ in range(max(2, requests // len(clients)))]

    return [one for seen in await asyncio.gather(*map(some, clients)) for one in seen]


class _Client(asyncio.Protocol):
    """One connection, over which the same request is sent again and again."""

    def __init__(self, url: str, body: Any) -> None:
        self._parts = urlsplit(url)
        content = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._parts.netloc}\r\ncontent-type: application/json\r\n"
        self._request = f"{head}content-length: {len(content)}\r\n\r\n".encode() + content
        self._came = b""

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, self._parts.hostname or "", self._parts.port or 80)

    def close(self) -> None:
        self._transport.close()

    async def ask(self) -> tuple[float, Any]:
        """How long an answer took, in seconds, and what it was; None for an error."""
        self._whole = asyncio.get_running_loop().create_future()
        began = perf_counter()
        self._transport.write(self._request)
        head, content = await self._whole
        took = perf_counter() - began
        return took, json.loads(content) if head.split(b" ", 2)[1] == b"200" else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        if (found := message_in(self._came)) is not None:
            self._came = found[2]
            self._whole.set_result(found[:2])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._whole.done():
            self._whole.set_exception(exc or ConnectionError("The server closed the connection."))


def message_in(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The head and the content of the first message, and what follows; None while it is not whole."""
    head, end, rest = data.partition(_END)
    if not end:
        return None
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
    return (head, rest[:length], rest[length:]) if len(rest) >= length else None


class _Model(asyncio.Protocol):
    """A model that keeps to its role and takes its time."""

    def __init__(self) -> None:
        self._came = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (found := message_in(self._came)) is not None:
            _, content, self._came = found
            asyncio.get_running_loop().call_later(MODEL_S, self._answer, content)

    def _answer(self, content: bytes) -> None:
        prompt = json.loads(content)["messages"][-1]["content"]
        tag = prompt.rpartition("VERDICT-")[2].partition(":")[0]
        text = f"It holds.\nVERDICT-{tag}: ACCEPT" if "VERDICT-" in prompt else "forty-two"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 11, "completion_tokens": 7}
        body = json.dumps({"choices": [choice], "usage": usage}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        if not self._transport.is_closing():
            self._transport.write(head.encode() + body)


def serve_models(listener: socket.socket, wait_s: float) -> None:
    """Answer at the address of this socket until the process is ended."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Model, sock=listener)
        await server.serve_forever()

    asyncio.run(serve())
