"""Bodies of requests as JSON and nothing else: no number without end, no key twice, no bottomless nesting."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from core.pool.wire import Malformed, strict_json

#: How deep the lists and objects of a body may stand in each other.
DEEPEST = 100


def read_body(data: bytes) -> Any:
    """The JSON value of a body; Malformed for what another reader could take for something else."""
    value = strict_json(data)
    level, depth = [value], 0
    while level := [inner for one in level for inner in _inside(one) if isinstance(inner, dict | list)]:
        depth += 1
        if depth >= DEEPEST:
            raise Malformed(f"is nested more than {DEEPEST} deep")
    return value


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


class _StrictRequest(Request):
    async def json(self) -> Any:
        """The body; a 400 with one sentence for one that cannot be read."""
        try:
            return read_body(await self.body())
        except Malformed as error:
            raise HTTPException(400, f"The body {error}: send it as valid JSON.") from None


class StrictRoute(APIRoute):
    """A route that reads bodies so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, given a request whose JSON is read strictly."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strictly
