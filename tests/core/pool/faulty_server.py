"""A real HTTP server on loopback that answers exactly the bytes it is told to, at the pace it is told to; and one call,
or one stream, to it through a real HttpPool."""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from core.episode import Ask, Message, Reply, Role
from core.pool.client import Limits
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec

#: Bytes are sent, numbers are seconds to wait, an event is awaited; then the connection is closed, unless they say that
#: it is KEPT. After a last "reset" it is not closed but broken off; "noise" are bytes beside its encryption.
Step = bytes | float | threading.Event | Literal["reset", "noise"]
Answer = Sequence[Step]
KEPT = b"\r\nConnection: keep-alive\r\n"
HANG_UP: Answer = ()
#: The key and the certificate of a server that encrypts.
LOOPBACK = Path(__file__).with_name("loopback.pem")
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent, with header names in lower case."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class FaultyServer:
    """Gives `answers` in the order of the requests, the last one again and again, or what `answer` says."""

    port: int
    answer: Callable[[Request], Answer]
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    hang_ups: int = 0  # clients that left before their answer was over
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    idle: set[socket.socket] = field(default_factory=set)  # kept, and without a request
    ended: bool = False

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/v1"

    def serve(self, connection: socket.socket) -> None:
        if self.tls is not None:
            try:
                connection = self.tls.wrap_socket(connection, server_side=True)
            except OSError:  # the client does not trust it
                return
        with connection:
            while (request := _read_request(connection)) is not None:
                with self.lock:
                    self.requests.append(request)
                    answer = self.answer(request)
                    self.in_flight += 1
                    self.most_in_flight = max(self.most_in_flight, self.in_flight)
                whole = all(_send(connection, step) for step in answer[:-1])
                with self.lock:  # before the end is sent: who has it may ask again at once
                    self.in_flight -= 1
                whole = whole and all(_send(connection, step) for step in answer[-1:])
                with self.lock:
                    self.hang_ups += not whole
                kept = any(isinstance(step, bytes) and KEPT in step for step in answer)
                if not (whole and kept and self._asked_again(connection)):
                    return

    def _asked_again(self, connection: socket.socket) -> bool:
        """Wait for the next request on a connection; False when the server ends before it."""
        with self.lock:
            if self.ended:
                return False
            self.idle.add(connection)
        _readable(connection, None)
        with self.lock:
            self.idle.remove(connection)
        return True

    def end(self) -> None:
        """Wait for no further request."""
        with self.lock:
            self.ended = True
            for connection in self.idle:
                with suppress(OSError):  # its client may be gone
                    connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty_server(
    *answers: Answer | Callable[[Request], Answer], encrypted: bool = False
) -> Iterator[FaultyServer]:
    """Serve until the block ends; every thread is gone then."""
    tls = None
    if encrypted:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(LOOPBACK)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    given: list[Answer | Callable[[Request], Answer]] = list(answers)

    def answer(request: Request) -> Answer:
        current = given.pop(0) if len(given) > 1 else given[0]
        return current(request) if callable(current) else current

    server = FaultyServer(listener.getsockname()[1], answer, tls)
    stopping = threading.Event()
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            if stopping.is_set():
                connection.close()
                return
            connection.settimeout(5)
            thread = threading.Thread(target=server.serve, args=(connection,), daemon=True)
            threads.append(thread)
            thread.start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield server
    finally:
        stopping.set()
        server.end()
        socket.create_connection(
            listener.getsockname()
        ).close()  # wakes the acceptor, which waits for the next
        acceptor.join()
        listener.close()
        for thread in threads:
            thread.join()


def _read_request(connection: socket.socket) -> Request | None:
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            data += (more := connection.recv(65536))
            if not more:
                return None
        head, _, body = data.partition(b"\r\n\r\n")
        start, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += (more := connection.recv(65536))
            if not more:  # the client died in the middle of its request
                return None
    except OSError:
        return None
    return Request(start.split()[1], headers, json.loads(body) if body else None)


def _readable(connection: socket.socket, wait_ms: float | None) -> bool:
    """Whether something arrives, or the connection ends, in so many milliseconds (None: however long it takes)."""
    waiting = select.poll()  # `select` refuses the numbers that sockets have in a process with many files
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(wait_ms))


def _send(connection: socket.socket, step: Step) -> bool:
    """Do one step of an answer; False when the client has left."""
    try:
        if isinstance(step, bytes):
            connection.sendall(step)
            return True
        if step == "reset":  # to close without lingering sends RST
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return True
        if step == "noise":
            socket.socket.sendall(connection, b"\xff" * 64)
            return True
        if isinstance(step, threading.Event):
            return step.wait(60)
        until = time.monotonic() + step
        while (left := until - time.monotonic()) > 0:
            if _readable(connection, 1000 * left) and not connection.recv(1):
                return False
    except OSError:
        return False
    return True


def respond(
    body: bytes,
    status: int = 200,
    kind: str = "application/json",
    *,
    sized: bool = True,
    kept: bool = False,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A whole response; `sized=False` leaves its end to the closing of the connection."""
    connection = "keep-alive" if kept else "close"
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {kind}", f"Connection: {connection}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in (headers or {}).items()]
    if sized:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chat(
    text: str, finish_reason: str | None = "stop", usage: Mapping[str, Any] = USAGE, **message: Any
) -> bytes:
    """The JSON body of a chat completion."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": finish_reason,
    }
    return json.dumps(
        {"id": "x", "object": "chat.completion", "choices": [choice], "usage": dict(usage)}
    ).encode()


def ok(text: str = "fine", **message: Any) -> Answer:
    """A good answer."""
    return (respond(chat(text, **message)),)


def fail(status: int, message: str = "", **headers: str) -> Answer:
    """An error answer as OpenAI words it."""
    return (
        respond(json.dumps({"error": {"message": message, "code": None}}).encode(), status, headers=headers),
    )


def events(
    *pieces: str, finish_reason: str | None = "stop", done: bool = True, usage: Mapping[str, Any] = USAGE
) -> bytes:
    """The body of a stream that says `pieces`."""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}]
    chunks += [
        {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]} for piece in pieces
    ]
    if finish_reason:
        chunks.append(
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}], "usage": dict(usage)}
        )
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    return body + (b"data: [DONE]\n\n" if done else b"")


def chunked(*parts: bytes, ended: bool = True) -> bytes:
    """`parts` in chunked transfer encoding, with or without the closing chunk."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)
    return body + (b"0\r\n\r\n" if ended else b"")


def stream_head(**headers: str) -> bytes:
    """The head of an event stream that ends when the connection does, unless a header says otherwise."""
    return respond(b"", kind="text/event-stream", sized=False, headers=headers)


#: Answers of a server that repeats what it was told, such as its client's key, by where it does.
ECHOES: dict[str, Callable[[str], Answer]] = {
    "401": lambda said: fail(401, f"Incorrect API key provided: {said}"),
    "403": lambda said: fail(403, f"no: {said}"),
    "400": lambda said: fail(400, f"bad header {said}"),
    "404": lambda said: fail(404, f"{said} not found"),
    "500": lambda said: fail(500, f"boom {said}"),
    "kind": lambda said: (respond(b"x", kind=f"text/{said}"),),
    "redirect": lambda said: fail(302, said, Location=f"http://127.0.0.1:9/?key={said}"),
    "protocol": lambda said: (f"HTTP/9 {said}\r\n\r\n".encode(),),
    "header": lambda said: (f"HTTP/1.1 200 OK\r\n{said}\x01: x\r\n\r\n".encode(),),
    "text": lambda said: ok(f"your key is {said}", reasoning_content=said),
    "finish": lambda said: ok("x", finish_reason=said),
    "tool": lambda said: ok("x", tool_calls=[{"id": said, "function": {"name": said, "arguments": said}}]),
    "reason": lambda said: (f"HTTP/1.1 500 {said}\r\nContent-Length: 0\r\n\r\n".encode(),),
    "other headers": lambda said: fail(502, Set_Cookie=said, WWW_Authenticate=f"Bearer {said}"),
    "content encoding": lambda said: (respond(b"x", headers={"Content-Encoding": said}),),
    "length": lambda said: (respond(b"x", sized=False, headers={"Content-Length": said}),),
    "chunk": lambda said: (stream_head(Transfer_Encoding="chunked"), f"{said}\r\n".encode()),
    "field": lambda said: (respond(b'{"choices": [{"message": {"content": {"%b": 1}}}]}' % said.encode()),),
    "pieces": lambda said: (stream_head(), events("your key is ", said[:9], said[9:], ", and so on")),
    "in the stream": lambda said: (stream_head(), b'data: {"error": {"message": "%b"}}\n\n' % said.encode()),
}

CANARY = "sk-canary-5a71c2e09b-DO-NOT-LEAK"
QUICK = Limits(wait_initial_s=0.01, wait_max_s=0.05)


def ask(model: str = "m", text: str = "hi", **limits: Any) -> Ask:
    return Ask(model, Role.WORKER, (Message("user", text),), **limits)


def entry(server: FaultyServer, name: str = "m", **fields: Any) -> ModelSpec:
    return ModelSpec(name, **{"base_url": server.url, "timeout_s": 10.0, **fields})


@contextmanager
def hosting(
    *answers: Answer | Callable[[Request], Answer],
    names: Sequence[str] = ("m",),
    limits: Limits = QUICK,
    encrypted: bool = False,
    **fields: Any,
) -> Iterator[tuple[HttpPool, FaultyServer]]:
    """A pool of models behind one server with these answers, whose key is the canary."""
    with faulty_server(*answers, encrypted=encrypted) as server:
        pool = HttpPool([entry(server, name, **fields) for name in names], {"KEY": CANARY}, limits)
        try:
            yield pool, server
        finally:
            pool.close()


def talk(
    *answers: Answer | Callable[[Request], Answer], asked: Ask | None = None, **fields: Any
) -> tuple[Reply, FaultyServer]:
    """One ask to a server with these answers."""
    with hosting(*answers, **fields) as (pool, server):
        [(_, reply)] = pool.ask([asked or ask()])
    return reply, server


def stream(*answers: Answer, **fields: Any) -> tuple[list[str], Reply, FaultyServer]:
    with hosting(*answers, **fields) as (pool, server):
        *pieces, reply = pool.stream(ask())
    assert isinstance(reply, Reply)
    return [piece for piece in pieces if isinstance(piece, str)], reply, server


def why(reply: Reply) -> str:
    assert reply.error is not None, reply
    assert reply.text == ""
    return reply.error.message


def left(server: FaultyServer, hang_ups: int) -> bool:
    reached(lambda: server.hang_ups >= hang_ups)
    return server.hang_ups == hang_ups


def reached(state: Callable[[], bool], seconds: float = 10) -> bool:
    """Wait for a state of the server that its threads come to by themselves."""
    until = time.monotonic() + seconds
    while not state() and time.monotonic() < until:
        time.sleep(0.01)
    return state()
