"""Errors as clients of OpenAI's API, or of Anthropic's, expect them: a status, a type, a code and one sentence that
says what to change."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse

from core.texts import well_formed

#: After so many seconds a request that the store could not take may be sent again.
RETRY_AFTER_S = 5


@dataclass(eq=False)
class ApiError(Exception):
    """A request that is refused, or that came to nothing. `param` names the field it is about; `details` are what
    clients of Anthropic's API read to go on by themselves."""

    status: int
    message: str
    type: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, dict[str, str | None]]:
        """The JSON object that says it."""
        param = None if self.param is None else well_formed(self.param)
        told = {"message": well_formed(self.message), "type": self.type, "param": param, "code": self.code}
        return {"error": told}

    def anthropic_body(self) -> dict[str, Any]:
        """The same in the form of Anthropic's API, where the code and the field stand beside it."""
        kind = _ANTHROPIC_TYPES.get(
            self.status, "invalid_request_error" if self.status < 500 else "api_error"
        )
        more: dict[str, Any] = {
            name: value for name, value in self.body()["error"].items() if name in ("code", "param") and value
        }
        if self.details:
            more["details"] = dict(self.details)
        return {"type": "error", "error": {"type": kind, "message": well_formed(self.message), **more}}

    def response(self, path: str = "") -> JSONResponse:
        """The answer that says it, in the form that clients of this address expect."""
        body = self.anthropic_body() if is_anthropic(path) else self.body()
        return JSONResponse(body, self.status, headers=dict(self.headers))


#: Anthropic's word for an error, by its status.
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}


def is_anthropic(path: str) -> bool:
    """Whether an address is one of Anthropic's API."""
    return re.search(r"/messages(/|$)", path) is not None


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A request that cannot be meant so (400)."""
    return ApiError(400, message, code=code, param=param)


def unsupported_field(param: str, message: str) -> ApiError:
    """A field, or a value of one, that nothing here honours (400): it is never ignored."""
    return ApiError(400, message, code="unsupported_parameter", param=param, details=_WITHOUT.get(param, {}))


#: By field, what tells Anthropic's client to send the same without it.
_WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "thread": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
}


def quota_used_up(message: str, left_s: float = 0.0) -> ApiError:
    """A limit is used up (429), as OpenAI says it; where it begins anew, in so many seconds."""
    again = {"retry-after": str(math.ceil(left_s))} if left_s > 0 else {}
    headers = {"x-should-retry": "false", **again}
    return ApiError(429, message, "insufficient_quota", "cost_ceiling", headers=headers)


def store_unavailable(message: str) -> ApiError:
    """The store cannot be read or written at the moment, and nothing was paid: the same request can be sent again."""
    again = {"retry-after": str(RETRY_AFTER_S)}
    return ApiError(503, message, "server_error", "store_unavailable", headers=again)
