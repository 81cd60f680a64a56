"""What goes wrong between a client and a model's server, and how a call ends that meets it: a matrix of faults, each
with a whole answer and with a streamed one."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any

from core.episode import Reply
from core.pool.client import Limits
from core.pool.costs import MOST_UNREAD
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from tests.core.pool.faulty_server import (
    HANG_UP,
    QUICK,
    USAGE,
    Answer,
    Request,
    Step,
    ask,
    chat,
    chunked,
    events,
    fail,
    faulty_server,
    respond,
    stream_head,
)

#: What a good answer says; no part of it is a reply.
TEXT = "The answer is 42."
PIECES = ("The answer ", "is 42.")
#: A call has so many tries, and so long for all of them together, in seconds.
ATTEMPTS, TIMEOUT_S = 3, 1.5
LIMITS = Limits(response_bytes=2**20, wait_initial_s=0.01, wait_max_s=0.05)


class End(Enum):
    """How a call ends that meets a fault."""

    ACCEPTED = "none at all: the first try gives the reply"
    RECOVERED = "the next try gives the reply; where none does, the tries end"
    UNREAD = "an answer that cannot be read, and may be billed: it is asked for once more, and no third time"
    REFUSED = "no other try could help, and none is made"
    BUSY = "it is asked again until it answers, or the deadline comes"
    LATE = "it is cut off at the deadline"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one answer."""

    name: str
    end: End
    answer: Answer
    streamed: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A call that met a fault, at its first try or, where that is `lasting`, at every one."""

    fault: Fault
    lasting: bool
    reply: Reply
    shown: str  # the text that was told while it came
    requests: int
    took_s: float

    @property
    def ideal_requests(self) -> int:
        """How many requests a call needs that knows beforehand which of them fail."""
        recovers = self.fault.end in (End.RECOVERED, End.UNREAD, End.BUSY) and not self.lasting
        return 2 if recovers else 1


def good(streamed: bool) -> Answer:
    """An answer without a fault."""
    return (stream_head(), events(*PIECES)) if streamed else (respond(chat(TEXT)),)


def faults(streamed: bool) -> list[Fault]:
    """The matrix's rows, for answers that are streamed or whole."""
    kinds = (_statuses(), _elsewhere(), _broken(streamed), _bodies(streamed), _slow(streamed))
    named = (one for kind in kinds for one in kind)
    found = [Fault(name, end, answer, streamed) for name, end, answer in named]
    assert len({one.name for one in found}) == len(found)
    return found


Row = tuple[str, End, Answer]

#: What a server may say of how long to wait -> whether the next try is still made.
DATE = "Fri, 20 Nov 2026 20:00:00 GMT"
WAITS: dict[str, tuple[dict[str, str], bool]] = {
    "no wait": ({}, True),
    "a wait in seconds": ({"Retry_After": "0.1"}, True),
    "a wait until a date": ({"Date": DATE, "Retry_After": DATE}, True),
    "a date without a clock": ({"Retry_After": "Fri, 20 Nov 2099 20:00:00 GMT"}, True),
    "a negative wait": ({"Retry_After": "-5"}, True),
    "a wait that is none": ({"Retry_After": "soon"}, True),
    "an endless wait": ({"Retry_After": "9" * 400}, True),
    "a huge wait": ({"Retry_After": "86400"}, False),
    "a wait until next year": ({"Date": DATE, "Retry_After": "Sat, 20 Nov 2027 20:00:00 GMT"}, False),
}
PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 529)
LASTING = (204, 400, 402, 404, 405, 413, 418, 422)


def _statuses() -> Iterator[Row]:
    for status in PASSING:
        for words, (headers, again) in WAITS.items() if status in (429, 503) else [("no wait", ({}, True))]:
            end = End.REFUSED if not again else End.BUSY if status == 429 else End.RECOVERED
            yield f"{status}, {words}", end, fail(status, "out of order", **headers)
    for status in LASTING:
        yield str(status), End.REFUSED, fail(status, "not so")
    yield "500 without words", End.RECOVERED, (respond(b"", 500),)
    yield "500 whose words are cut", End.RECOVERED, (respond(b'{"error": {"mess', 500, sized=False),)
    yield "500 with words without end", End.RECOVERED, (respond(b"", 500, sized=False), *[b"x" * 65536] * 160)


def _elsewhere() -> Iterator[Row]:
    """Answers that send the client to another place, or that are not from the API at all."""
    for status in (301, 302, 303, 307, 308):
        yield f"redirect {status}", End.REFUSED, fail(status, Location="http://127.0.0.1:9/v1")
    yield "redirect nowhere", End.REFUSED, fail(302, Location="http://[::1/\x01")
    for kind in ("text/html", "text/plain", "application/octet-stream", "x"):
        yield f"content type {kind}", End.REFUSED, (respond(chat(TEXT), kind=kind),)
    bomb = gzip.compress(b"0" * 10_000_000)
    yield "gzip bomb", End.REFUSED, (respond(bomb, headers={"Content-Encoding": "gzip"}),)
    yield "gzip bomb as an error", End.RECOVERED, (respond(bomb, 500, headers={"Content-Encoding": "gzip"}),)
    yield "not HTTP", End.RECOVERED, (b"220 mail.example ESMTP\r\n",)
    yield "HTTP/9", End.RECOVERED, (b"HTTP/9 200 OK\r\n\r\n",)
    yield "switching protocols", End.RECOVERED, (b"HTTP/1.1 101 Switching Protocols\r\n\r\n",)
    yield "headers without end", End.RECOVERED, (b"HTTP/1.1 200 OK\r\n", *[b"X: " + b"y" * 65536] * 4)


def _broken(streamed: bool) -> Iterator[Row]:
    """Connections that break, and lengths that are no lengths."""
    head, body = _parts(streamed)
    middle = len(body) // 2
    kind = "text/event-stream" if streamed else "application/json"
    size = len(body)

    def sized(length: object, *rest: Step) -> Answer:
        return respond(b"", kind=kind, sized=False, headers={"Content_Length": str(length)}), *rest

    yield "hung up", End.RECOVERED, HANG_UP
    yield "reset at once", End.RECOVERED, ("reset",)
    yield "reset in the head", End.RECOVERED, (b"HTTP/1.1 200 OK\r\nContent-Ty", "reset")
    yield "reset after the head", End.UNREAD, (head, "reset")
    yield "reset in the middle", End.UNREAD, (head, body[:middle], 0.02, "reset")
    yield "closed in the head", End.RECOVERED, (b"HTTP/1.1 200 OK\r\nContent-Ty",)
    yield "closed in the middle", End.UNREAD, (head, body[:middle])
    yield "length too long", End.UNREAD if not streamed else End.ACCEPTED, sized(size + 10, body)
    yield "length too short", End.UNREAD, sized(size - 20, body)
    yield "length of nothing", End.UNREAD, sized(0, body)
    for length in (-1, "many", "1" * 30):
        yield f"length {length}", End.RECOVERED, sized(length, body)
    in_chunks = respond(b"", kind=kind, sized=False, headers={"Transfer_Encoding": "chunked"})
    yield "chunks", End.ACCEPTED, (in_chunks, chunked(body[:middle], body[middle:]))
    yield "cut in a chunk", End.UNREAD, (in_chunks, chunked(body)[:middle])
    yield "cut between chunks", End.UNREAD, (in_chunks, chunked(body[:middle], ended=False))
    yield "ended too early", End.UNREAD, (in_chunks, chunked(body[:middle]))
    yield "chunk of no size", End.UNREAD, (in_chunks, b"zz\r\n" + body)
    yield "chunk of no end", End.UNREAD, (in_chunks, b"fffffffffffffff\r\n" + body[:middle])
    yield "continue", End.ACCEPTED, (b"HTTP/1.1 100 Continue\r\n\r\n", head, body)
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    yield "hints before", End.ACCEPTED, (b"HTTP/1.1 102 Processing\r\n\r\n", early * 500, head, body)
    yield "in drops", End.ACCEPTED, (head, *(body[at : at + 1] for at in range(len(body))))


def _bodies(streamed: bool) -> Iterator[Row]:
    """What stands in the body."""
    head, body = _parts(streamed)
    for name, data in _malformed(streamed).items():
        yield name, End.UNREAD, (head, data)
    for name, usage in ODD_USAGE.items():
        told = events(*PIECES, usage=usage) if streamed else chat(TEXT, usage=usage)
        yield f"usage {name}", End.ACCEPTED, (head, told)
    yield "100 MB", End.REFUSED, (head, body[:20], *[b"x" * 65536] * 1600)
    if not streamed:
        return
    yield "100 MB of lines", End.REFUSED, (head, body[:20], *[b": x\n" * 16384] * 1600)
    yield "no finish reason", End.UNREAD, (head, events(*PIECES, finish_reason=None))
    yield "no [DONE]", End.UNREAD, (head, events(*PIECES, done=False))
    yield "[DONE] twice", End.ACCEPTED, (head, body, b"data: [DONE]\n\n")
    yield "[DONE] at once", End.UNREAD, (head, b"data: [DONE]\n\n", body)
    yield "text after [DONE]", End.ACCEPTED, (head, body, events(" Or 43."))
    yield "text after [DONE] in one packet", End.ACCEPTED, (head, body + events(" Or 43."))
    yield "comments between", End.ACCEPTED, (head, body.replace(b"\n\n", b"\n\n: ping\n\n"))
    yield "CRLF", End.ACCEPTED, (head, body.replace(b"\n", b"\r\n"))
    error = b'data: {"error": {"message": "overloaded"}}\n\n'
    yield "an error in between", End.RECOVERED, (head, events(*PIECES, done=False), error)
    yield "answered whole", End.ACCEPTED, good(streamed=False)


#: Usage that says little or nothing, and never makes an answer useless.
ODD_USAGE: dict[str, Any] = {
    "below zero": USAGE | {"prompt_tokens": -1},
    "of nulls": dict.fromkeys(USAGE),
    "of words": dict.fromkeys(USAGE, "many"),
    "of lists": dict.fromkeys(USAGE, [1]),
    "in floats": {name: float(n) for name, n in USAGE.items()},
    "in part": {"total_tokens": 18},
    "of zeros": dict.fromkeys(USAGE, 0),
    "with details that are none": USAGE | {"completion_tokens_details": 3, "prompt_tokens_details": "x"},
}


def _malformed(streamed: bool) -> dict[str, bytes]:
    """Bodies of which a part is no JSON that may be believed."""
    wrong = {
        "no JSON": b"Internal server error",
        "NaN": b'"n": NaN',
        "Infinity": b'"n": -Infinity',
        "a key twice": b'"n": {"verdict": "REVISE", "verdict": "ACCEPT"}',
        "a depth bomb": b'"n": ' + b"[" * 200_000 + b"]" * 200_000,
        "5,000 digits": b'"n": ' + b"9" * 5000,
        "UTF-8 cut": b'"n": "\xff\xfe"',
        "latin-1": b'"n": "caf\xe9"',
    }
    good = chat(TEXT).removesuffix(b"}")
    if not streamed:
        found = {name: good + b", " + data + b"}" for name, data in wrong.items()}
        found |= {
            "UTF-16": chat(TEXT).decode().encode("utf-16"),
            "a byte order mark": b"\xef\xbb\xbf" + chat(TEXT),
            "no choice": b'{"choices": []}',
            "no finish reason": chat(TEXT, finish_reason=None),
            "a number for a text": chat(TEXT).replace(json.dumps(TEXT).encode(), b"42"),
            "another text of the same name": chat(TEXT).replace(b'"content"', b'"content": "43", "content"'),
            "a list": b"[" + chat(TEXT) + b"]",
            "empty": b"",
            "two answers": chat(TEXT) + chat("43"),
        }
        return found
    first, rest = events(*PIECES).split(b"\n\n", 1)
    chunk = b'data: {"choices": [], %b}\n\n'
    found = {name: first + b"\n\n" + chunk % data + rest for name, data in wrong.items()}
    found |= {
        "UTF-16": events(*PIECES).decode().encode("utf-16"),
        "empty": b"",
        "a number for a text": events(*PIECES).replace(json.dumps(PIECES[1]).encode(), b"42"),
        "a list": first + b"\n\ndata: []\n\n" + rest,
        "a line without end": first + b'\n\ndata: {"choices"' + rest.replace(b"\n", b" "),
    }
    return found


def _slow(streamed: bool) -> Iterator[Row]:
    """Servers that keep the connection alive and come to no end in time."""
    head, body = _parts(streamed)
    long: tuple[float, ...] = (10 * TIMEOUT_S,)
    yield "silence", End.LATE, long
    yield "silence in the head", End.LATE, (head[:20], *long)
    yield "silence after the head", End.LATE, (head, *long)
    yield "silence in the body", End.LATE, (head, body[: len(body) // 2], *long)
    yield "silence before the last byte", End.LATE, (head, body[: -16 if streamed else -1], *long)
    yield "head in drops", End.LATE, _drip(head, 1)
    yield "body in drops", End.LATE, (head, *_drip(body, 4))
    yield "hints without end", End.LATE, _drip(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 200, 28)
    if streamed:
        yield "comments without end", End.LATE, (head, *_drip(b": ping\n\n" * 200, 8))
        yield "empty pieces without end", End.LATE, (head, *_drip(events(*[""] * 200, done=False), 60))


def _drip(data: bytes, size: int) -> Answer:
    """So many bytes at a time, and a pause after each."""
    return [step for at in range(0, len(data), size) for step in (data[at : at + size], 0.05)]


def _parts(streamed: bool) -> tuple[bytes, bytes]:
    """Head and body of a good answer that ends with its connection."""
    if streamed:
        return stream_head(), events(*PIECES)
    return respond(b"", sized=False), chat(TEXT)


#: Ways to cut an answer at any of its bytes; what follows the last byte is never sent.
CUTS = ("closed", "sized", "chunked", "clean", "reset")


def cuts(mode: str, streamed: bool) -> list[Answer]:
    """A good answer, cut before every seventh of its bytes and each of the last. The connection is closed; or closed
    although a length was told; or in the middle of chunks; or after a last chunk in good order; or reset."""
    head, body = _parts(streamed)
    kind = "text/event-stream" if streamed else "application/json"

    def headed(**headers: str) -> bytes:
        return respond(b"", kind=kind, sized=False, headers=headers)

    match mode:
        case "closed":
            whole = head + body
        case "sized":
            whole = headed(Content_Length=str(len(body))) + body
        case "chunked":
            whole = headed(Transfer_Encoding="chunked") + chunked(body[:100], body[100:])
        case "clean":
            return [(headed(Transfer_Encoding="chunked"), chunked(body[:end])) for end in _ends(body)]
        case _:
            return [((head + body)[:end], "reset") for end in _ends(head + body)]
    return [(whole[:end],) for end in _ends(whole)]


def _ends(whole: bytes) -> list[int]:
    n = len(whole)
    return sorted({*range(0, n, 7), *range(n - 24, n)})


def damaged(number: int, streamed: bool, seed: int = 0) -> Iterator[Answer]:
    """So many good answers, redirects and refusals, with some of their bytes changed, lost, repeated or made up."""
    draw = random.Random(seed)
    head, body = _parts(streamed)
    cookie = {"Location": "http://127.0.0.1/x", "Set_Cookie": "a=b; Max-Age=10; Domain=127.0.0.1"}
    whole = [head + body, respond(chat(TEXT)), respond(b"", 302, headers=cookie), *fail(503, "x", Date=DATE)]
    whole.append(stream_head(Transfer_Encoding="chunked") + chunked(body[:100], body[100:]))
    made_up = (b"\r\n", b"\n\n", b"data: ", b'"', b"\0", b"9" * 400, b"NaN", b"\xed\xa0\x80", b"[[[[")
    for _ in range(number):
        data = bytearray(draw.choice(whole))  # type: ignore[arg-type]
        for _ in range(draw.choice((1, 1, 2, 5, 20))):
            at = draw.randrange(len(data))
            some = data[at : at + draw.randrange(1, 20)]
            new = draw.choice((draw.randbytes(len(some)), b"", some * 3, draw.choice(made_up)))
            data[at : at + len(some)] = new
            data = data or bytearray(b"x")
        yield (bytes(data),)


def accepted(damaged: Sequence[Answer], streamed: bool) -> list[Reply]:
    """The replies that a client makes of damaged answers, each of which it meets once and has one try for."""
    waiting = iter(damaged)
    with faulty_server(lambda _: next(waiting)) as server:
        spec = ModelSpec("m", base_url=server.url, attempts=1, timeout_s=30.0, concurrency=8)
        pool = HttpPool([spec], limits=QUICK)
        if streamed:
            with ThreadPoolExecutor(spec.concurrency) as threads:
                replies = list(threads.map(lambda _: [*pool.stream(ask())][-1], damaged))
        else:
            replies = [reply for _, reply in pool.ask([ask()] * len(damaged))]
        pool.close()
    assert len(replies) == len(damaged)
    return [one for one in replies if isinstance(one, Reply) and (one.error is None or one.text)]


def meet(met: Iterable[tuple[Fault, bool]], limits: Limits = LIMITS, at_once: int = 8) -> list[Call]:
    """Make a call for each fault and whether it lasts, so many at once."""
    listed = list(met)
    asked: Counter[str] = Counter()

    def answer(request: Request) -> Answer:
        name = request.body["model"]
        fault, lasting = listed[int(name)]
        asked[name] += 1
        return fault.answer if lasting or asked[name] == 1 else good(fault.streamed)

    with faulty_server(answer) as server:
        specs = [
            ModelSpec(
                str(number), base_url=server.url, attempts=ATTEMPTS, timeout_s=TIMEOUT_S, stream_usage=False
            )
            for number in range(len(listed))
        ]
        pool = HttpPool(specs, limits=limits)

        def call(number: int) -> Call:
            (fault, lasting), name = listed[number], str(number)
            began = time.monotonic()
            if fault.streamed:
                *pieces, reply = pool.stream(ask(name))
            else:
                pieces, [(_, reply)] = [], pool.ask([ask(name)])
            took_s = time.monotonic() - began
            assert isinstance(reply, Reply)
            return Call(fault, lasting, reply, "".join(map(str, pieces)), asked[name], took_s)

        with ThreadPoolExecutor(at_once) as threads:
            calls = list(threads.map(call, range(len(listed))))
        pool.close()
    return calls


def broken_promises(call: Call) -> Iterator[str]:
    """What a call did that it must not, in words; nothing where it did as it should."""
    fault, reply = call.fault, call.reply
    where = (
        f"{fault.name}, {'streamed' if fault.streamed else 'whole'}, {'lasting' if call.lasting else 'once'}"
    )
    passing = (End.RECOVERED, End.UNREAD, End.BUSY)
    recovers = fault.end is End.ACCEPTED or (fault.end in passing and not call.lasting)
    if recovers and (reply.error is not None or reply.text != TEXT or reply.finish_reason != "stop"):
        yield f"{where}: no reply came of it: {reply}"
    if not recovers and (reply.error is None or reply.text or reply.reasoning or reply.tool_calls):
        yield f"{where}: a reply was made of it: {reply}"
    if not TEXT.startswith(call.shown) and fault.end is not End.ACCEPTED:
        yield f"{where}: what was shown is not what came: {call.shown}"
    if reply.error is not None:
        said = reply.error.message
        if (
            not said.startswith("Model '")
            or not said.endswith(".")
            or not said.isprintable()
            or len(said) > 500
        ):
            yield f"{where}: it is not said in a sentence: {said}"
        if (fault.end is End.LATE) != ("took longer than" in said) and fault.end is not End.BUSY:
            yield f"{where}: the deadline is not what ended it: {said}"
    most_when_busy = TIMEOUT_S / LIMITS.wait_initial_s
    tries = {End.RECOVERED: ATTEMPTS, End.UNREAD: MOST_UNREAD}.get(fault.end, 1)
    most = tries if call.lasting else call.ideal_requests
    if call.requests != most and not (
        fault.end is End.BUSY and call.lasting and call.requests <= most_when_busy
    ):
        yield f"{where}: {call.requests} requests, not {most}: {reply.error}"
