"""The routes of the endpoint: chat completions, responses, decisions and models, as OpenAI's clients ask for them, and
messages, as Anthropic's do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from core.errors import StoreError, TrinityError
from core.pool.wire import Malformed
from storage.shelves.endpoint import ApiKey
from ui.endpoint.anthropic import MessagesRequest
from ui.endpoint.conversation import read_request
from ui.endpoint.course import Course
from ui.endpoint.engine import Order
from ui.endpoint.errors import ApiError, bad_request, store_unavailable, unsupported_field
from ui.endpoint.formats import answer_format, read_body
from ui.endpoint.guard import Guard
from ui.endpoint.replies import (
    KEEP_ALIVE_S,
    Chat,
    Form,
    Listener,
    MessageObject,
    ResponseObject,
    play_whole,
    run_check,
    stream_reply,
)
from ui.endpoint.service import Service, first_decision, take_feedback
from ui.endpoint.tiers import Tier
from ui.endpoint.wire import ChatRequest, DecisionRequest, FeedbackRequest, ResponsesRequest
from ui.program import version

#: A body that is no larger is read in the loop that serves.
SMALL_BYTES = 32 * 1024


def endpoint_app(
    service: Service, *, prefix: str = "", local: bool = True, needs_key: bool = False
) -> ASGIApp:
    """The endpoint as an application: its routes below `prefix`, its health there and at the top, all behind the
    guard. `local`: it listens on this machine's own address; `needs_key`: nothing is answered without one."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="Trinity Inspector",
        description="Many models behind one endpoint: a coordinator chooses who plans, works and checks.",
        version=version(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    router = APIRouter(prefix=prefix, responses=_ERRORS, route_class=StrictRoute)
    _add_routes(router, service)
    app.include_router(router)
    for place in {prefix, ""}:
        app.include_router(_health(service), prefix=place)
    for kind in (*_TOLD, Exception):
        app.add_exception_handler(kind, _error_response)
    return Guard(_Shortcut(app, router.routes), service.store, local=local, needs_key=needs_key)


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": "An error of OpenAI's form"}
    for status in (400, 401, 403, 404, 413, 429, 502, 503, 504)
}


_ANTHROPIC_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": "An error of Anthropic's form"} for status in _ERRORS
}


def _add_routes(router: APIRouter, service: Service) -> None:
    async def play(
        body: ChatRequest | ResponsesRequest | MessagesRequest, request: Request, form: type[Form]
    ) -> Response:
        given, param = body.wanted_format
        wanted = await run_check(partial(answer_format, given, param)) if given else None
        listener = Listener(patient=not body.stream)

        key: ApiKey | None = request.state.key

        def ordered() -> Order:
            asked = replace(read_request(body), answer_format=wanted)
            return service.order(asked, key, listener.tell)

        # To another thread and back takes longer than to order a small request; megabytes of images take a while.
        is_small = len(await request.body()) <= SMALL_BYTES
        at_once = is_small and service.is_ready(body.model, body.trinity.argmax, key)
        order = ordered() if at_once else await run_in_threadpool(ordered)
        order.streams = bool(body.stream)
        course = Course(order, service.endpoint.inspector)
        reply = form(course)
        if body.stream:
            told = stream_reply(reply, service.engine, listener)
            return EventSourceResponse(
                told,
                headers=course.headers,
                sep="\n",
                ping=KEEP_ALIVE_S,
                ping_message_factory=form.keep_alive,
            )
        await play_whole(request, service.engine, course, listener)
        return JSONResponse(reply.whole(), headers=course.headers)

    @router.post("/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation; with `stream`, as it comes."""
        return await play(body, request, Chat)

    @router.post("/responses")
    async def responses(body: ResponsesRequest, request: Request) -> Response:
        """The same by the Responses API."""
        return await play(body, request, ResponseObject)

    @router.post("/messages", responses=_ANTHROPIC_ERRORS)
    async def messages(body: MessagesRequest, request: Request) -> Response:
        """The same by Anthropic's Messages API."""
        return await play(body, request, MessageObject)

    @router.post("/decisions")
    async def decisions(body: DecisionRequest, request: Request) -> Response:
        """Which model and role the coordinator would choose first, with probabilities. No model is asked."""
        return JSONResponse(await run_in_threadpool(first_decision, service, body, request.state.key))

    @router.post("/feedback")
    async def feedback(body: FeedbackRequest, request: Request) -> Response:
        """Say what came of an answer: it becomes a label of its episode, from which coordinators can learn."""
        return JSONResponse(await run_in_threadpool(take_feedback, service.store, body, request.state.key))

    @router.get("/models")
    @router.get("/models/", include_in_schema=False)
    async def models() -> Response:
        """The tiers, and the checkpoints that can be asked for."""
        return JSONResponse({"object": "list", "data": await run_in_threadpool(_models, service)})

    @router.get("/models/{name:path}")
    async def model(name: str) -> Response:
        """One of them."""
        asked = name.rstrip("/")
        return JSONResponse(await run_in_threadpool(lambda: _tier(service, service.offer.tier(asked))))


#: What is told of an engine's helpers.
_HELPERS = ("helpers", "machines", "under_way", "lost")


def _health(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> Response:
        """Whether the endpoint is up, its store can be read, and what its engine does where that has helpers."""
        await run_in_threadpool(service.store.endpoint.has_keys)
        state = service.engine_state()
        engine = {"engine": {key: getattr(state, key) for key in _HELPERS}} if state else {}
        return JSONResponse({"status": "ok", "version": version(), **engine})

    return router


def _models(service: Service) -> list[dict[str, Any]]:
    tiers = [_tier(service, one) for one in service.endpoint.tier]
    return tiers + [_model(name) for name in service.offer.pins()]


def _tier(service: Service, tier: Tier) -> dict[str, Any]:
    """A tier with what tells it from others: who decides, among which models, for how many turns."""
    offer = service.offer
    return _model(
        tier.name,
        turns=offer.turns_of(tier),
        models=list(offer.choices(tier)),
        lean=tier.lean,
        policy=offer.policy_of(tier),
    )


def _model(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "trinity-inspector", "trinity": more}


#: Errors that say what is wrong; any other is a fault of this program, and its traceback is logged.
_TOLD = (ApiError, RequestValidationError, HTTPException, TrinityError)


async def _error_response(request: Request, error: Exception) -> Response:
    """Every error in OpenAI's form, or Anthropic's where its API was asked."""
    match error:
        case ApiError():
            found = error
        case RequestValidationError():
            found = _invalid(error)
        case HTTPException():
            message = _NO_ADDRESS.get(error.status_code, str(error.detail))
            found = ApiError(error.status_code, message, headers=dict(error.headers or {}))
        case StoreError():
            found = store_unavailable(str(error))
        case TrinityError():
            found = ApiError(503, str(error), "server_error", "not_ready")
        case _:
            message = f"The endpoint failed ({type(error).__name__}): its log says more."
            found = ApiError(500, message, "server_error")
    return found.response(request.url.path)


#: What is said of an address, by the status.
_NO_ADDRESS = {
    404: "There is no such address here: ask /v1/chat/completions, /v1/responses, /v1/messages, /v1/decisions, "
    "/v1/feedback or /v1/models.",
    405: "This address does not take this method: see /openapi.json.",
}


def _invalid(error: RequestValidationError) -> ApiError:
    """A body that does not fit. Of the forms that a value could have had, the one that it came nearest to."""
    mistake = max(error.errors(), key=lambda one: len(one["loc"]))
    where = _field(error.body, mistake)
    match mistake["type"]:
        case "union_tag_invalid" | "union_tag_not_found":
            return _unread(where, mistake)
        case "literal_error" if _PART.search(where):
            return _unread(where, mistake)
        case "model_attributes_type" if not where:
            return bad_request(
                "The body is no JSON object: send one, with the header Content-Type: application/json."
            )
        case "extra_forbidden":
            return unsupported_field(where, f"'{where}' is not supported here: leave it out.")
        case "missing":
            return bad_request(f"'{where or 'the body'}' is missing.", where or None)
    return bad_request(f"'{where or 'the body'}' cannot be used: {mistake['msg']}.", where or None)


def _unread(where: str, mistake: Mapping[str, Any]) -> ApiError:
    """Something of a kind that is not read here."""
    about = mistake["ctx"]
    kinds = about.get("expected_tags", about.get("expected"))
    if kinds is None:
        return bad_request(f"'{where}' is missing.", where)
    parts = "only text and images are read here, in parts of type"
    only = parts if _PART.search(where) else "it can be one of"
    kind = str(about.get("tag", mistake["input"]))[:80]
    return bad_request(f"'{where}' is '{kind}', which cannot be used: {only} {kinds}.", where)


#: The type of a part of a message, or of a tool's output.
_PART = re.compile(r"\.(?:content|output)\.\d+\.type$")


def _field(body: object, mistake: Mapping[str, Any]) -> str:
    """A field as its sender wrote it, without the names that pydantic gives to the forms that it could have."""
    named, here = list[str | int](), body
    parts = mistake["loc"][1:]
    for number, part in enumerate(parts, start=1):
        inside = range(len(here)) if isinstance(here, list) else here if isinstance(here, dict) else ()
        if part in inside:
            here = here[part]  # type: ignore[index]
        elif mistake["type"] != "missing" or number < len(parts):
            continue
        named.append(part)
    if mistake["type"] in ("union_tag_invalid", "union_tag_not_found"):
        own = str(mistake["ctx"]["discriminator"]).strip("'")
        named.append(own if own.isidentifier() else "type")
    return ".".join(map(str, named))


class StrictRoute(APIRoute):
    """A route whose bodies are JSON and nothing else, and which takes nothing from its request but that and the names
    in its path: FastAPI's own way from a request to its function costs more than all that is done on it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Of one that takes a body: read it and ask the function. FastAPI's own of any other."""
        if self.body_field is None:
            return super().get_route_handler()
        form: Any = self.body_field.field_info.annotation

        async def strictly(request: Request) -> Response:
            response: Response = await self.endpoint(_read(form, request, await request.body()), request)
            return response

        return strictly


def _read(form: type[BaseModel], request: Request, content: bytes) -> BaseModel:
    """The body of a request. RequestValidationError and HTTPException for one that cannot be read."""
    kind, _, subtype = (
        request.headers.get("content-type", "").partition(";")[0].strip().lower().partition("/")
    )
    value: Any = content or None
    if content and kind == "application" and (subtype == "json" or subtype.endswith("+json")):
        try:
            value = read_body(content)
        except Malformed as error:
            raise HTTPException(400, f"The body {error}: send it as valid JSON.") from None
    if value is None:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
    try:
        return form.model_validate(value, from_attributes=True)
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        raise RequestValidationError(found, body=value) from None


class _Shortcut:
    """Hands requests whose address and method are those of one route, without any names in its path, to that at once,
    and all others to the application, whose search for a route costs as much as answering."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._handlers = {
            (method, one.path): one.get_route_handler()
            for one in routes
            if isinstance(one, StrictRoute) and one.body_field is not None
            for method in one.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        handle = self._handlers.get((scope.get("method", ""), path))
        if handle is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await handle(request)
        except Exception as error:
            await (await _error_response(request, error))(scope, receive, send)
            if not isinstance(error, _TOLD):
                raise
            return
        await response(scope, receive, send)
