"""Who may ask the endpoint, and how much may be sent: decided before anything else sees a request.

On this machine's own address no key is needed, but a page from elsewhere in this machine's browser is refused. On any
other address nothing is answered without a key, whatever the route.
"""

from __future__ import annotations

import asyncio
import json

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import TrinityError
from storage.shelves.endpoint import ApiKey, looks_like_key
from storage.store import Store
from ui.endpoint.errors import ApiError, unavailable
from ui.endpoint.origins import asked_by_name, asked_by_port, from_own_page

#: The largest body, and how long it may take to arrive.
MOST_BYTES, BODY_S = 8 * 2**20, 30.0
#: So much of a body that is too large is read all the same: a client that still sends does not hear an answer.
DRAINED_BYTES = 8 * MOST_BYTES


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
            self._check_page(scope, headers)
            key = await self._key(headers)
            body = await _body(headers, receive)
        except ApiError as error:
            await _answer(send, error)
            return
        scope.setdefault("state", {})["key"] = key
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replay, send)

    def _check_page(self, scope: Scope, headers: Headers) -> None:
        """A page from elsewhere asks through the reader's browser: under a name of its own, or with an Origin."""
        if not self._local:
            return
        if not (asked_by_name(headers) and asked_by_port(headers, scope)):
            raise ApiError(
                403, "This server is not known under this name: ask http://127.0.0.1 with its port."
            )
        if not from_own_page(scope, headers):
            raise ApiError(403, "Pages of other sites may not ask this server.")

    async def _key(self, headers: Headers) -> ApiKey | None:
        scheme, _, text = headers.get("authorization", "").partition(" ")
        text = text.strip() if scheme.lower() == "bearer" else ""
        # On this machine clients send whatever stands for "none"; a text of a key's form is meant as one.
        if not self._needs_key and not looks_like_key(text):
            return None
        try:
            key = await run_in_threadpool(self._store.endpoint.find, text) if text else None
        except TrinityError as error:
            raise unavailable(str(error)) from None
        if key is None:
            raise ApiError(
                401,
                "This key is not valid here: make one with trinity keys add NAME, and send it as a Bearer token."
                if text
                else "A key is needed: make one with trinity keys add NAME, and send it as a Bearer token.",
                "authentication_error",
                "invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        return key


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


async def _answer(send: Send, error: ApiError) -> None:
    content = json.dumps(error.body()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content)), **error.headers}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": content})
