"""Who may ask the endpoint, and how much may be sent: decided before anything else sees a request.

On this machine's own address no key is needed, but a page from elsewhere in this machine's browser is refused. On any
other address nothing is answered without a key, whatever the route. A page from elsewhere reaches a server of this
machine through its reader's own browser, which tells under which name it asked and which page sent the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import TrinityError
from storage.shelves.endpoint import ApiKey, looks_like_key
from storage.store import Store
from ui.endpoint.errors import ApiError, store_unavailable
from ui.program import LOCAL_NAMES

#: The largest body, and how long it may take to arrive.
MOST_BYTES, BODY_S = 16 * 2**20, 30.0
#: So much of a body that is too large is read all the same: a client that still sends does not hear an answer.
DRAINED_BYTES = 4 * MOST_BYTES


class Guard:
    """Passes requests on that may ask, with their key in the scope's state; answers all others itself."""

    def __init__(self, app: ASGIApp, store: Store, *, local: bool, needs_key: bool) -> None:
        self._app, self._store = app, store
        self._local, self._needs_key = local, needs_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] == "websocket":  # closed before it is accepted: answered 403
            await send({"type": "websocket.close", "code": 1008, "reason": "There are no websockets here."})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            # A page from elsewhere asks through the reader's browser: under a name of its own, or with an Origin.
            if self._local and not (asked_by_name(headers) and asked_by_port(headers, scope)):
                words = "This server is not known under this name: ask http://127.0.0.1 with its port."
                raise ApiError(403, words)
            if self._local and not from_own_page(scope, headers):
                raise ApiError(403, "Pages of other sites may not ask this server.")
            key = await self._key(headers)
            body = await _body(headers, receive)
        except ApiError as error:
            await error.response(scope["path"])(scope, receive, send)
            return
        scope.setdefault("state", {})["key"] = key
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replay, send)

    async def _key(self, headers: Headers) -> ApiKey | None:
        text = _key_text(headers)
        # On this machine clients send whatever stands for "none"; a text of a key's form is meant as one.
        if not self._needs_key and not looks_like_key(text):
            return None
        try:
            key = await run_in_threadpool(self._store.endpoint.find, text) if text else None
        except TrinityError as error:
            raise store_unavailable(str(error)) from None
        if key is None:
            raise ApiError(
                401,
                f"{'This key is not valid here' if text else 'A key is needed'}: make one with trinity keys add NAME, "
                "and send it as a Bearer token or as x-api-key.",
                "authentication_error",
                "invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        return key


def _key_text(headers: Headers) -> str:
    """The key that a request carries, as OpenAI's clients send it or as Anthropic's do; empty without one."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    sent = [bearer.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", "").strip()]
    # Clients that are given one send both, and in the other whatever stands for "none".
    return next(filter(looks_like_key, sent), sent[0] or sent[1])


async def _body(headers: Headers, receive: Receive) -> bytes:
    """The whole body; ApiError when it is too large, or takes too long."""
    too_large = ApiError(413, f"The body is larger than {MOST_BYTES:,} bytes: send less.", code="too_large")
    announced = headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > DRAINED_BYTES:
        raise too_large
    body, received = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_S):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ApiError(400, "The client closed the connection before its request was complete.")
                part = message.get("body", b"")
                received += len(part)
                if received <= MOST_BYTES:
                    body += part
                more = message.get("more_body", False) and received <= DRAINED_BYTES
    except TimeoutError:
        raise ApiError(408, f"The request did not arrive within {BODY_S:g} s: send it again.") from None
    if received > MOST_BYTES:
        raise too_large
    return bytes(body)


def asked_by_name(headers: Headers, names: Collection[str] = LOCAL_NAMES) -> bool:
    """Whether the request names the server by one of its names, once, and without anything around it."""
    hosts = headers.getlist("host")
    return len(hosts) == 1 and _parts(hosts[0])[0] in names


def asked_by_port(headers: Headers, scope: Scope) -> bool:
    """Whether the port that the request names, if any, is the one that it came to."""
    port = _parts(headers.get("host", ""))[1]
    server = scope.get("server")
    return port is None or server is None or server[1] is None or port == server[1]


def from_own_page(scope: Scope, headers: Headers) -> bool:
    """Whether no page of another place sent the request: neither its Origin nor what a browser says of the site tells
    of one. A reader who follows a link to a page comes from anywhere; a websocket always has an Origin."""
    origins = headers.getlist("origin")
    host = headers.get("host", "")
    if origins not in ([f"http://{host}"], [f"https://{host}"]) and (origins or scope["type"] == "websocket"):
        return False
    sites = headers.getlist("sec-fetch-site")
    return all(site in ("same-origin", "none") for site in sites) or _follows_link(scope, headers)


def _follows_link(scope: Scope, headers: Headers) -> bool:
    return (
        scope.get("method") in ("GET", "HEAD")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _parts(host: str) -> tuple[str | None, int | None]:
    """The name and the port in a Host header; no name for what is no host."""
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port  # a ValueError when it is no number
    except ValueError:
        return None, None
    whole = parts.netloc == host and "@" not in host and not host.endswith(":")
    return (name, port) if whole and name else (None, None)
