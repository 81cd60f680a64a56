"""One try at one model over HTTP: the only module that speaks httpx. A text that comes of it does without the keys that
were sent, a quotation that repeats a part of one is withheld."""

from __future__ import annotations

import json
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, replace
from email.utils import parsedate_to_datetime
from functools import cache, partial
from time import monotonic
from typing import Any, Protocol

import httpcore
import httpx

from core.episode import Failure
from core.errors import PoolError
from core.finish import Finish, finish_of
from core.pool.addresses import AddressRefused, GuardedBackend, is_private_by_name
from core.pool.costs import UNCOUNTED, Counts, usage_in
from core.pool.server_words import Meaning, ServerWords, words_of
from core.pool.spec import ModelSpec
from core.pool.wire import Completion, Malformed, ServerError, StreamReader, read_completion
from core.texts import well_formed

CONNECT_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 30.0  # so long a connection stays open that nobody uses
ERROR_BYTES = 64 * 1024  # as much of an error body as is read
QUOTE_CHARS = 200  # as much of a server's own words as is shown
WITHHELD = "(its words are withheld: they repeat the key)"
KEY_FRAGMENT = 8  # this many characters of a key in a row give it away

#: What httpcore raises where a connection fails, and what it lets through of one whose encryption breaks.
_BROKEN = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    ssl.SSLError,
)

# It tells of the heads of answers, in which a server may repeat a key: nobody hears it, at whatever level.
logging.getLogger("httpcore").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Secrets:
    """Keys that may appear in no text."""

    keys: tuple[str, ...]

    def without(self, text: str) -> str:
        """The text with "(key)" in place of each key."""
        for key in self.keys:
            text = text.replace(key, "(key)")
        return text

    def quoted(self, text: str) -> str:
        """Words from outside, cut short, on one line, and withheld where they repeat a part of a key."""
        for key in map(str.lower, self.keys):
            starts = range(max(1, len(key) - KEY_FRAGMENT + 1))
            if any(key[start : start + KEY_FRAGMENT] in text.lower() for start in starts):
                return WITHHELD
        line = " ".join("".join(c if c.isprintable() else " " for c in well_formed(text)).split())
        return line if len(line) <= QUOTE_CHARS else line[: QUOTE_CHARS - 1] + "…"


@dataclass(slots=True)
class RedactedPieces:
    """A text without its keys, piece by piece: what may be the beginning of a key waits for the next piece."""

    secrets: Secrets
    waiting: str = ""

    def feed(self, piece: str) -> str:
        """As much of the text as can be told now."""
        text = self.secrets.without(self.waiting + piece)
        begun = max((_beginning(key, text) for key in self.secrets.keys), default=0)
        self.waiting = text[len(text) - begun :]
        return text[: len(text) - begun]


def _beginning(key: str, text: str) -> int:
    """How many characters of the key stand at the end of the text, less than the whole key."""
    return next((n for n in range(len(key) - 1, 0, -1) if text.endswith(key[:n])), 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much patience and memory a call is given, whatever its model."""

    response_bytes: int = 8 * 2**20
    retry_after_s: float = 60.0  # a server that asks for a longer wait is not waited for
    wait_initial_s: float = 0.5  # the first pause before trying again; it doubles, with jitter
    wait_max_s: float = 8.0


@dataclass(eq=False, repr=False)
class CallFailed(Exception):
    """One try failed: `failure` says why."""

    failure: Failure
    _: KW_ONLY
    retry: bool = False  # whether another may help
    wait_s: float | None = None  # how long the server asks to wait before it
    lost: bool = False  # the process that asked was lost: no fault of the server
    busy: bool = False  # the server only wants to be asked less often (429)
    refused: bool = False  # it did not accept the request as it stands (400, 422)
    filtered: bool = False  # its content filter would not have it answered
    too_long: bool = False  # the model cannot hold the prompt
    counts: Counts | None = None  # what the server may bill for it all the same; None: nothing
    unread: str = ""  # in which way its answer could not be read, where it gave one


def infrastructure(
    message: str, *, retry: bool = False, counts: Counts | None = None, unread: str = ""
) -> CallFailed:
    """A failure of network, server or limits: the episode becomes missing."""
    return CallFailed(Failure("infrastructure", message), retry=retry, counts=counts, unread=unread)


@dataclass
class Progress:
    """How far a try has come: once its request is sent, its server may work on it, and bill for it. `episode`: whose
    it is."""

    is_sent: bool = False
    episode: str = ""

    async def sending(self, content: bytes) -> AsyncIterator[bytes]:
        """The content of the request, for httpcore, which asks for more when it has sent it."""
        yield content
        self.is_sent = True


class Client(Protocol):
    """Tries one model, from this process or another machine's."""

    async def call(
        self, body: Mapping[str, Any], on_piece: Callable[[str], None], progress: Progress
    ) -> Completion:
        """As `ChatClient.call`."""

    async def aclose(self) -> None:
        """Leave nothing open."""


class ChatClient:
    """The chat completions endpoint of one model. Its key, and the values of its own `headers`, go to its own origin
    only and into no message."""

    def __init__(
        self, spec: ModelSpec, key: str, limits: Limits, headers: Mapping[str, str] | None = None
    ) -> None:
        self._spec = spec
        own = dict(headers or {})
        self._secrets = Secrets(tuple(one for one in (key, *own.values()) if one))
        self._limits = limits
        try:
            url = httpx.URL(spec.base_url.rstrip("/") + "/chat/completions", params=dict(spec.query) or None)
        except httpx.InvalidURL:
            raise PoolError(
                f"Model '{spec.name}': base_url is no address that can be connected to;"
                " write it like https://api.example.com/v1."
            ) from None
        self._host = url.host
        self._url = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        self._headers = httpx.Headers(
            {
                "Host": url.netloc.decode(),
                "Accept": "*/*",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                "User-Agent": "trinity-inspector",
            }
        )
        self._headers.update(own)
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        # httpcore's pool and not httpx's client around it, which takes no network backend, keeps cookies and reads
        # addresses of redirects even to leave them alone.
        self._connections = _Connections(spec, self._url.origin, is_private=is_private_by_name(url.host))
        timeout = httpx.Timeout(spec.timeout_s, connect=min(CONNECT_TIMEOUT_S, spec.timeout_s), pool=None)
        self._extensions = {"timeout": timeout.as_dict()}

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def call(
        self, body: Mapping[str, Any], on_piece: Callable[[str], None], progress: Progress
    ) -> Completion:
        """Send `body` once; with `stream` in it, pieces of text go to `on_piece` as they arrive.
        Raises CallFailed; cancelling the task closes the connection."""
        content = json.dumps(body, allow_nan=False).encode()
        request = httpcore.Request(
            "POST",
            self._url,
            headers=[*self._headers.raw, (b"Content-Length", b"%d" % len(content))],
            content=progress.sending(content),
            extensions=self._extensions,
        )
        try:
            async with self._connections.answer(request) as response:
                headers = httpx.Headers(response.headers)
                if response.status != httpx.codes.OK:
                    raise self._failure(response.status, await self._error_words(response), headers)
                return await self._completion(response, headers, on_piece)
        except AddressRefused as error:
            raise infrastructure(f"{self._name} cannot be asked: {error}.") from None
        except _BROKEN as error:
            raise self._broken(error) from None

    @property
    def _name(self) -> str:
        return f"Model '{self._spec.name}' at {self._host}"

    async def _completion(
        self, response: httpcore.Response, headers: Mapping[str, str], on_piece: Callable[[str], None]
    ) -> Completion:
        """Read a success. Whatever cannot be read of it may be billed."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if headers.get("content-encoding", "identity") != "identity":
            raise infrastructure(
                f"{self._name} sent a compressed answer, although it was asked for a plain one; check "
                "base_url.",
                counts=UNCOUNTED,
            )
        if kind not in ("text/event-stream", "application/json", ""):
            raise infrastructure(
                f"{self._name} answered {self._secrets.quoted(kind)} and not JSON;"
                " check that base_url leads to the API.",
                counts=UNCOUNTED,
            )
        reader = StreamReader(needs_done=self._spec.stream_done) if kind == "text/event-stream" else None
        body = b""
        try:
            if reader is not None:
                completion = await self._stream(response, reader, on_piece)
            else:
                body = await self._whole(response, self._limits.response_bytes)
                completion = read_completion(body)
        except ServerError as error:
            raise self._failure_within(error, headers, streamed=reader is not None) from None
        except Malformed as error:
            raise infrastructure(
                f"{self._name} cannot be read: its answer {self._secrets.quoted(str(error))}.",
                retry=True,
                counts=usage_in(body).counts(wrote=True) if reader is None else reader.counts,
                unread=str(error),
            ) from None
        except _BROKEN as error:
            raise self._broken(error, UNCOUNTED if reader is None else reader.counts) from None
        finish = finish_of(completion.finish_reason)
        if finish is Finish.FILTERED and not completion.text:
            who = "the model would not answer" if completion.finish_reason == "refusal" else ""
            raise CallFailed(
                Failure("model", f"{self._name} gave no text: {who or 'its content filter stopped it'}."),
                filtered=True,
                counts=completion.counts,
            )
        names = ("text", "reasoning", "finish_reason", "tool_calls")
        texts: dict[str, Any] = {name: self._secrets.without(getattr(completion, name)) for name in names}
        return replace(completion, **texts)

    def _broken(self, error: Exception, counts: Counts | None = None) -> CallFailed:
        """A connection that failed; `counts` where it did so in the middle of an answer."""
        reason = self._secrets.quoted(str(error)) or type(error).__name__
        what = "cannot be reached" if counts is None else "broke off in the middle of its answer"
        return infrastructure(
            f"{self._name} {what}: {reason}; check base_url and that the server runs.",
            retry=True,
            counts=counts,
            unread="" if counts is None else "broken off",
        )

    async def _stream(
        self, response: httpcore.Response, reader: StreamReader, on_piece: Callable[[str], None]
    ) -> Completion:
        shown, received = RedactedPieces(self._secrets), 0
        async for data in response.aiter_stream():
            received += len(data)
            self._check_size(received, self._limits.response_bytes)
            for piece in filter(None, map(shown.feed, reader.feed(data))):
                on_piece(piece)
            if reader.done:
                break
        completion = reader.finish()
        if shown.waiting:
            on_piece(shown.waiting)
        return completion

    async def _whole(self, response: httpcore.Response, most: int) -> bytes:
        body = bytearray()
        async for data in response.aiter_stream():
            body += data
            self._check_size(len(body), most)
        return bytes(body)

    def _check_size(self, received: int, most: int) -> None:
        if received > most:
            raise infrastructure(
                f"{self._name} sent more than {most:,} bytes; it was cut off.", counts=UNCOUNTED
            )

    async def _error_words(self, response: httpcore.Response) -> ServerWords:
        """The server's own words in an answer that is no success; none when it cannot be read to its end."""
        try:
            return words_of(await self._whole(response, ERROR_BYTES))
        except (CallFailed, *_BROKEN):
            return ServerWords()

    def _failure_within(
        self, error: ServerError, headers: Mapping[str, str], *, streamed: bool
    ) -> CallFailed:
        """The failure that an answer tells of which began as a success: as if its status had been that one."""
        where = "in the middle of the stream" if streamed else "in place of an answer"
        if finish_of(error.finish_reason) is Finish.FAILED:
            where += f" (finish reason '{self._secrets.quoted(error.finish_reason)}')"
        failed = self._failure(error.words.status or httpx.codes.OK, error.words, headers, where)
        failed.counts = error.counts
        return failed

    def _failure(
        self, status: int, words: ServerWords, headers: Mapping[str, str], where: str = ""
    ) -> CallFailed:
        """What a status and the words beside it come to; `where` such words stand in an answer of status 200."""
        shown = self._secrets.quoted(words.shown)
        quote = f': "{shown}"' if shown else ""
        mark = f"({where or status})"
        if 300 <= status < 400:
            return infrastructure(
                f"{self._name} redirects to another address ({status}); redirects are not followed, so that "
                "the key stays with its server: write the final address as base_url."
            )
        match words.meaning(status):
            case Meaning.SYSTEM_ROLE if self._spec.system_role:
                return infrastructure(
                    f"{self._name} knows no system role {mark}{quote}; set system_role = false in its entry of the pool"
                    " file, and its instructions are put before the user's words."
                )
            case Meaning.KEY:
                return self._refused_key(status)
            case Meaning.OTHER if status == 403 and shown in ("", WITHHELD):
                return self._refused_key(status)
            case Meaning.QUOTA:
                return infrastructure(
                    f"{self._name} has no quota or credit left {mark}{quote}; add some at its provider, or leave the"
                    " model out."
                )
            case Meaning.TOO_LONG:
                return CallFailed(
                    Failure(
                        "model",
                        f"{self._name} cannot hold a prompt this long {mark}{quote}; give its context_window in the"
                        " pool file, and prompts are shortened to fit.",
                    ),
                    too_long=True,
                )
            case Meaning.FILTERED if status < 500:
                return CallFailed(
                    Failure("model", f"{self._name} refused the prompt by its content filter {mark}{quote}."),
                    filtered=True,
                )
            case Meaning.NO_MODEL:
                return infrastructure(
                    f"{self._name} has no such address or model {mark}{quote}; check base_url and model."
                )
            case meaning:
                return self._passing(status, quote, headers, where, busy=meaning is Meaning.RATE, words=words)

    def _refused_key(self, status: int) -> CallFailed:
        """Without the server's words: many repeat the key in them."""
        variable = self._spec.api_key_env or "api_key_env (none is set)"
        return infrastructure(f"{self._name} refused the key ({status}); check the variable {variable}.")

    def _passing(
        self,
        status: int,
        quote: str,
        headers: Mapping[str, str],
        where: str,
        *,
        busy: bool,
        words: ServerWords,
    ) -> CallFailed:
        """A failure that may pass, as its status and headers say; an error without a status is one of the server."""
        own = status == httpx.codes.OK
        may_retry = busy or own or status in (408, 409, 425, 429) or status >= 500
        should_retry = headers.get("x-should-retry")
        wait_s = retry_after_s(headers)
        if wait_s is None and busy:
            wait_s = words.wait_s
        wait_words = "" if wait_s is None else f" and asks to wait {wait_s:g} s"
        said = "" if own else f"{status} {httpx.codes.get_reason_phrase(status)}".rstrip()
        what = f"reports an error {where}{said and f', {said}'}" if where else f"answered {said}"
        return CallFailed(
            Failure("infrastructure", f"{self._name} {what}{wait_words}{quote}."),
            retry=should_retry == "true" or (may_retry and should_retry != "false"),
            wait_s=wait_s,
            busy=busy,
            refused=not where and status in (400, 422),
        )


class _Connections:
    """Connections to one server, or to its proxy, which then resolves the server's name itself; as many as are used at
    once. httpcore's pool makes them and no more: it looks through all its connections at every request, and through all
    of them again for each, so that 64 of them cost more than all else that a call needs."""

    def __init__(self, spec: ModelSpec, origin: httpcore.Origin, *, is_private: bool) -> None:
        at_hand = is_private_by_name(httpx.URL(spec.proxy).host) if spec.proxy else is_private
        options: dict[str, Any] = {
            "ssl_context": tls_context(spec.ca_file),
            "keepalive_expiry": KEEP_ALIVE_S,
            "network_backend": GuardedBackend(allow_private=spec.allow_private or at_hand),
        }
        pool = (
            httpcore.AsyncHTTPProxy(spec.proxy, **options)
            if spec.proxy
            else httpcore.AsyncConnectionPool(**options)
        )
        self._make = partial(pool.create_connection, origin)
        # Those that nobody uses, and since when: the one used last is used next.
        self._idle: deque[tuple[float, httpcore.AsyncConnectionInterface]] = deque()

    @asynccontextmanager
    async def answer(self, request: httpcore.Request) -> AsyncIterator[httpcore.Response]:
        """What the server answers, over a connection that nobody else uses until the block ends. Those that were idle
        for long are closed."""
        connection = self._idle.pop()[1] if self._idle else self._make()
        while connection.has_expired():  # or its server has closed it
            await connection.aclose()
            connection = self._idle.pop()[1] if self._idle else self._make()
        try:
            response = await connection.handle_async_request(request)
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            now = monotonic()
            if connection.is_available():
                self._idle.append((now, connection))
            else:  # one that was cancelled may still be open
                await connection.aclose()
            while self._idle and self._idle[0][0] < now - KEEP_ALIVE_S:
                await self._idle.popleft()[1].aclose()

    async def aclose(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            await self._idle.pop()[1].aclose()


@cache
def tls_context(ca_file: str = "") -> ssl.SSLContext:
    """The certificates to trust: one set for all clients, from no environment variable, or those of a file. Reading
    them takes 20 ms. PoolError for a file without certificates."""
    if not ca_file:
        return httpx.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise PoolError(f"The certificates in {ca_file} cannot be read ({error}); give a PEM file.") from None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait a server asks for in seconds, None when it asks for none. A date is read against the server's
    own Date header, so that no clock of ours is needed."""
    for header, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(header, "")) * unit
        except ValueError:
            continue
        if 0 <= wait_s < float("inf"):
            return wait_s
    try:
        until, now = (parsedate_to_datetime(headers.get(name, "")) for name in ("retry-after", "date"))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None
