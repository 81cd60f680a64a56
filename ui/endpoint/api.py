"""The routes of the endpoint: chat completions, responses, decisions and models, as OpenAI's clients ask for them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from core.errors import StoreError, TrinityError
from core.texts import well_formed
from storage.shelves.endpoint import ApiKey
from ui.endpoint.answers import Course, chat_completion, response_object
from ui.endpoint.bodies import StrictRoute
from ui.endpoint.conversation import Said, conversation, question_of
from ui.endpoint.decisions import answer_to, decision_at
from ui.endpoint.errors import ApiError, refused, unavailable, unsupported
from ui.endpoint.formats import answer_format
from ui.endpoint.guard import Guard
from ui.endpoint.messages import InputItem, InputMessage, Sent, left_aside
from ui.endpoint.service import Asked, Service
from ui.endpoint.streams import (
    KEEP_ALIVE_S,
    Listener,
    chat_stream,
    checking,
    play_whole,
    response_stream,
)
from ui.endpoint.tiers import Tier
from ui.endpoint.wire import NEUTRAL, ChatRequest, DecisionRequest, ResponsesRequest, offered
from ui.program import version


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
    app.include_router(_routes(service), prefix=prefix)
    for place in {prefix, ""}:
        app.include_router(_health(service), prefix=place)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(TrinityError, _own_error)
    app.add_exception_handler(Exception, _fault)
    return Guard(app, service.store, local=local, needs_key=needs_key)


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": "An error of OpenAI's form"}
    for status in (400, 401, 403, 404, 413, 429, 502, 503, 504)
}


def _routes(service: Service) -> APIRouter:
    router = APIRouter(responses=_ERRORS, route_class=StrictRoute)

    @router.post("/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation; with `stream`, as it comes."""
        _check_neutral(body)
        if len({body.max_tokens, body.max_completion_tokens} - {None}) > 1:
            raise refused(
                "max_completion_tokens and max_tokens are two names of one limit: give both the same number, or one.",
                "max_tokens",
            )
        asked = Asked(
            model=body.model,
            messages=conversation(body.messages),
            tools=offered(body.tools, body.tool_choice, parallel=body.parallel_tool_calls),
            vendor=body.trinity,
            door="chat",
            effort=body.reasoning_effort or (body.reasoning.effort if body.reasoning else None),
            temperature=body.temperature,
            top_p=_top_p(body),
            stop=_stop(body.stop),
            max_tokens=body.max_completion_tokens or body.max_tokens,
            seed=body.seed,
            answer_format=await checking(lambda: answer_format(body.response_format, "response_format")),
            keep=body.store,
            metadata=_notes(body),
            left_aside=_left_aside(body),
        )
        course, listener = await _begin(service, asked, request)
        if body.stream:
            options = body.stream_options
            told = chat_stream(
                service.engine,
                course,
                listener,
                include_usage=bool(options and options.include_usage),
                progress=body.trinity.progress,
            )
            return EventSourceResponse(told, headers=course.headers, ping=KEEP_ALIVE_S, sep="\n")
        await play_whole(request, service.engine, course, listener)
        return JSONResponse(chat_completion(course), headers=course.headers)

    @router.post("/responses")
    async def responses(body: ResponsesRequest, request: Request) -> Response:
        """The same by the Responses API."""
        _check_neutral(body)
        asked = Asked(
            model=body.model,
            messages=_input_messages(body.input, body.instructions),
            tools=offered(body.tools, body.tool_choice, parallel=body.parallel_tool_calls),
            vendor=body.trinity,
            door="responses",
            effort=body.reasoning.effort if body.reasoning else None,
            temperature=body.temperature,
            top_p=_top_p(body),
            max_tokens=body.max_output_tokens,
            answer_format=await checking(
                lambda: answer_format(body.text.format if body.text else None, "text.format")
            ),
            keep=body.store,
            metadata=_notes(body),
            left_aside=_left_aside(body),
        )
        course, listener = await _begin(service, asked, request)
        if body.stream:
            told = response_stream(service.engine, course, listener, progress=body.trinity.progress)
            return EventSourceResponse(told, headers=course.headers, ping=KEEP_ALIVE_S, sep="\n")
        await play_whole(request, service.engine, course, listener)
        return JSONResponse(response_object(course, "completed", course.outcome()), headers=course.headers)

    @router.post("/decisions")
    async def decisions(body: DecisionRequest, request: Request) -> Response:
        """Which model and role the coordinator would choose first, with probabilities. No model is asked."""
        question = question_of(_input_messages(body.input))
        key: ApiKey | None = request.state.key
        out = [*body.trinity.leave_out, *(key.limits.leave_out if key else ())]

        def decide() -> dict[str, Any]:
            tier = service.offer.tier(body.model)
            policy = service.policy(tier, body.trinity.argmax)
            left_out = service.offer.left_out(tier, policy, out)
            with service.engine.deciding:
                decision = decision_at(policy, question, left_out)
            answers = [answer_to(one, policy, decision, at) for at, one in enumerate(body.questions)]
            usage = {
                "input_tokens": decision.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": decision.prompt_tokens,
            }
            about = {"policy": policy.id, "models": list(policy.models), "cut": decision.prompt_overflow}
            return {"model": body.model, "answers": answers, "usage": usage, "trinity": about}

        return JSONResponse(await run_in_threadpool(decide))

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

    return router


def _health(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> Response:
        """Whether the endpoint is up and its store can be read."""
        await run_in_threadpool(service.store.endpoint.has_keys)
        return JSONResponse({"status": "ok", "version": version()})

    return router


async def _begin(service: Service, asked: Asked, request: Request) -> tuple[Course, Listener]:
    listener = Listener()
    key: ApiKey | None = request.state.key
    order = await run_in_threadpool(service.order, asked, key, listener.tell)
    one_call = asked.tools.one_call
    return Course(order, service.endpoint.inspector, asked.answer_format, asked.stop, one_call), listener


def _stop(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return tuple(filter(None, [given] if isinstance(given, str) else given or ()))


def _top_p(body: ChatRequest | ResponsesRequest) -> float | None:
    """Of 1, which is every model's own, none is told: some servers take it beside no temperature."""
    return None if body.top_p == 1 else body.top_p


def _left_aside(body: BaseModel) -> tuple[str, ...]:
    return tuple(well_formed(one[:200]) for one in dict.fromkeys(left_aside(body)))


def _input_messages(given: str | Sequence[InputItem], instructions: str | None = None) -> list[Said]:
    sent: list[Sent] = [InputMessage(role="user", content=given)] if isinstance(given, str) else [*given]
    return conversation(sent, "input", instructions=instructions or "")


def _check_neutral(body: BaseModel) -> None:
    """ApiError for a field that would change the answer and cannot."""
    for name, (values, instead) in NEUTRAL.items():
        value = getattr(body, name, None)
        if value not in values:
            raise unsupported(name, f"'{name}' is not supported here: {instead}.")


def _notes(body: ChatRequest | ResponsesRequest) -> dict[str, str]:
    """What a client notes about its request, kept with the episode."""
    named = {"user": body.user, "safety_identifier": body.safety_identifier}
    notes = {**(body.metadata or {}), **{name: value for name, value in named.items() if value}}
    return {well_formed(name): well_formed(value) for name, value in notes.items()}


def _models(service: Service) -> list[dict[str, Any]]:
    tiers = [_tier(service, one) for one in service.endpoint.tier]
    return tiers + [_model(name) for name in service.offer.pins()]


def _tier(service: Service, tier: Tier) -> dict[str, Any]:
    """A tier with what tells it from others: who decides, among which models, for how many turns."""
    offer = service.offer
    return _model(
        tier.name,
        turns=tier.turns,
        models=list(offer.choices(tier)),
        lean=tier.lean,
        policy=offer.policy_of(tier),
    )


def _model(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "trinity-inspector", "trinity": more}


async def _api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), error.status, headers=dict(error.headers))


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # Of the forms that a value could have had, the one that it came nearest to.
    mistake = max(error.errors(), key=lambda one: len(one["loc"]))
    where = _field(error.body, mistake)
    match mistake["type"]:
        case "union_tag_invalid" | "union_tag_not_found":
            found = _unread(where, mistake)
        case "literal_error" if _PART.search(where):
            found = _unread(where, mistake)
        case "model_attributes_type" if not where:
            found = refused(
                "The body is no JSON object: send one, with the header Content-Type: application/json."
            )
        case "extra_forbidden":
            found = unsupported(where, f"'{where}' is not supported here: leave it out.")
        case "json_invalid":
            found = refused("The body is not valid JSON.")
        case "missing":
            found = refused(f"'{where or 'the body'}' is missing.", where or None)
        case _:
            found = refused(f"'{where or 'the body'}' cannot be used: {mistake['msg']}.", where or None)
    return await _api_error(request, found)


def _unread(where: str, mistake: Mapping[str, Any]) -> ApiError:
    """Something of a kind that is not read here."""
    about = mistake["ctx"]
    kinds = about.get("expected_tags", about.get("expected"))
    if kinds is None:
        return refused(f"'{where}' is missing.", where)
    only = "only text is read here, in parts of type" if _PART.search(where) else "it can be one of"
    kind = str(about.get("tag", mistake["input"]))[:80]
    return refused(f"'{where}' is '{kind}', which cannot be used: {only} {kinds}.", where)


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


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = {
        404: "There is no such address here: ask /v1/chat/completions, /v1/responses, /v1/decisions or /v1/models.",
        405: "This address is not asked so: see /openapi.json.",
    }.get(error.status_code, str(error.detail))
    return await _api_error(request, ApiError(error.status_code, message, headers=dict(error.headers or {})))


async def _own_error(request: Request, error: Exception) -> Response:
    if isinstance(error, StoreError):
        return await _api_error(request, unavailable(str(error)))
    return await _api_error(request, ApiError(503, str(error), "server_error", "not_ready"))


async def _fault(request: Request, error: Exception) -> Response:
    message = f"The endpoint failed ({type(error).__name__}); what it says of it stands in its log."
    return await _api_error(request, ApiError(500, message, "server_error"))
