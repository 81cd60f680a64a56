"""What clients may send, field by field: honoured, left aside because it changes no answer (`Aside`), or, where it is
not named here, refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, StrictBool, Tag

from core.texts import well_formed
from ui.endpoint.errors import ApiError, bad_request
from ui.endpoint.messages import (
    MOST_PARTS,
    MOST_TOOLS,
    Aside,
    Body,
    ChatMessage,
    InputItem,
    Name,
    Repeated,
    Text,
    Unread,
)
from ui.endpoint.tiers import EFFORTS

#: The most messages of a conversation.
MOST_MESSAGES = 1000

#: Described as the server takes it: one of few words, which it lists to whoever sends another.
Effort = Annotated[str, Field(json_schema_extra={"enum": [*EFFORTS]})]
Metadata = Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)]
Note = Annotated[str, Field(max_length=512)]
Tokens = Annotated[int, Field(ge=1, le=1_000_000)]


# Tools


class Function(Repeated):
    """A function as a tool is described."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Repeated):
    """A tool that a Worker may ask to be called."""

    type: Literal["function"]
    function: Function


class FlatTool(Function):
    """A tool as the Responses API describes it."""

    type: Literal["function"]


class OtherTool(Unread):
    """A tool of another kind, which a client offers as well, and which nobody here can call."""

    model_config = ConfigDict(extra="allow", regex_engine="python-re")
    type: Annotated[str, Field(pattern="^(?!function$)", min_length=1, max_length=100)]


def _tool_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return "other" if isinstance(kind, str) and kind != "function" else "function"


AnyTool = Annotated[
    Annotated[FlatTool, Tag("function")] | Annotated[OtherTool, Tag("other")], Discriminator(_tool_kind)
]


# What form the answer has


class StreamOptions(Body):
    """How a stream is told."""

    include_usage: bool | None = None
    include_obfuscation: Aside = None


class JsonSchema(Body):
    """A schema that the answer must fit."""

    name: Name
    schema_: dict[str, Any] = Field(alias="schema")
    description: Text | None = None
    strict: bool | None = None


class PlainFormat(Body):
    """Plain text, the default, or any JSON object."""

    type: Literal["text", "json_object"]


class JsonSchemaFormat(Body):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class FlatJsonSchemaFormat(JsonSchema):
    """JSON that fits a schema, as the Responses API writes it."""

    type: Literal["json_schema"]


AnyFormat = PlainFormat | JsonSchemaFormat | FlatJsonSchemaFormat


class Vendor(Body):
    """What only this endpoint knows: the field `trinity` of a request."""

    leave_out: Annotated[list[Name], Field(max_length=100)] = []
    max_turns: Annotated[int, Field(ge=1, le=100)] | None = None
    max_cost_usd: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    deadline_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] | None = None
    argmax: bool | None = None
    store_text: bool | None = None
    progress: bool = True


class Reasoning(Body):
    """How much is thought."""

    effort: Effort | None = None
    summary: Aside = None
    generate_summary: Aside = None
    context: Aside = None
    mode: Aside = None
    enabled: Aside = None
    exclude: Aside = None


# Requests


class _Common(Body):
    """What both kinds of request share."""

    model: Name
    stream: StrictBool | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    reasoning: Reasoning | None = None
    metadata: Metadata | None = None
    user: Note | None = None
    safety_identifier: Note | None = None
    store: bool | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    trinity: Vendor = Vendor()
    top_logprobs: int | None = None
    service_tier: Aside = None
    prompt_cache_key: Aside = None
    prompt_cache_options: Aside = None
    prompt_cache_retention: Aside = None
    max_tool_calls: Aside = None
    moderation: Aside = None
    client_metadata: Aside = None


class ChatRequest(_Common):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS)] | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    seed: (
        Annotated[
            int,
            Field(
                ge=-(2**63),
                lt=2**63,
                description="The same seed, conversation and tier draw the same models and roles again. A model is "
                "sent a seed that follows from it where the pool file says `send_seed = true`.",
            ),
        ]
        | None
    ) = None
    reasoning_effort: Effort | None = None
    response_format: Annotated[PlainFormat | JsonSchemaFormat, Field(discriminator="type")] | None = None
    stop: (
        Annotated[
            Text | Annotated[list[Text], Field(max_length=MOST_PARTS)],
            Field(
                description="The answer ends before the first of these texts. An answer of JSON has no such end."
            ),
        ]
        | None
    ) = None
    n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logprobs: bool | None = None
    logit_bias: dict[str, float] | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None
    functions: list[Any] | None = None
    function_call: str | dict[str, Any] | None = None
    verbosity: Aside = None
    prediction: Aside = None
    usage: Aside = None

    @property
    def wanted_format(self) -> tuple[AnyFormat | None, str]:
        """What form the answer shall have, and the field that says so."""
        return self.response_format, "response_format"


class TextOptions(Body):
    """What form the answer has."""

    format: Annotated[PlainFormat | FlatJsonSchemaFormat, Field(discriminator="type")] | None = None
    verbosity: Aside = None


class ResponsesRequest(_Common):
    """The body of POST /v1/responses."""

    input: Text | Annotated[list[InputItem], Field(min_length=1, max_length=MOST_MESSAGES)]
    tools: Annotated[list[AnyTool], Field(max_length=MOST_TOOLS)] | None = None
    instructions: Text | None = None
    max_output_tokens: Tokens | None = None
    text: TextOptions | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    background: bool | None = None
    include: Aside = None
    truncation: Aside = None
    stream_options: Aside = None
    context_management: Aside = None
    background_options: Aside = None

    @property
    def wanted_format(self) -> tuple[AnyFormat | None, str]:
        """As a chat's."""
        return self.text.format if self.text else None, "text.format"


class Choice(Body):
    """One of the values to choose from."""

    value: str | bool
    description: str | None = None


class Question(Body):
    """What is asked about a conversation. A coordinator answers choices of a `model` and of a `role`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "if": {"properties": {"type": {"const": "choice"}}},
            "then": {"required": ["choices"], "properties": {"choices": {"type": "array"}}},
        },
    )

    type: Literal["choice", "predicate", "score"]
    name: Name | None = None
    instructions: Any = None
    choices: (
        Annotated[list[Choice], Field(min_length=2, max_length=255, json_schema_extra={"uniqueItems": True})]
        | None
    ) = None
    levels: list[Any] | None = None


class DecisionRequest(Body):
    """The body of POST /v1/decisions."""

    model: Name
    input: Text | Annotated[list[InputItem], Field(min_length=1, max_length=MOST_MESSAGES)]
    questions: Annotated[list[Question], Field(min_length=1, max_length=400)]
    prompt_cache_key: Aside = None
    prompt_cache_options: Aside = None
    safety_identifier: Note | None = None
    trinity: Vendor = Vendor()


class FeedbackRequest(Body):
    """The body of POST /v1/feedback: what came of an answer. `episode`: the episode's id, or that of the answer."""

    episode: Name
    right: StrictBool | None = None
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    note: Annotated[str, Field(max_length=5000)] = ""


#: Field -> the values at which it changes nothing, and what to do instead.
NEUTRAL: dict[str, tuple[tuple[Any, ...], str]] = {
    "n": ((None, 1), "ask again for another answer"),
    "frequency_penalty": ((None, 0.0), "leave it out"),
    "presence_penalty": ((None, 0.0), "leave it out"),
    "logprobs": ((None, False), "leave it out; the coordinator's own probabilities are in the field trinity"),
    "top_logprobs": ((None, 0), "leave it out"),
    "logit_bias": ((None, {}), "leave it out"),
    "modalities": ((None, [], ["text"]), "leave it out: answers are text"),
    "audio": ((None,), "leave it out: answers are text"),
    "web_search_options": ((None,), "leave it out: nothing is looked up here"),
    "functions": ((None, []), "offer them as tools"),
    "function_call": ((None, "none", "auto"), "offer tools, and use tool_choice"),
    "previous_response_id": ((None,), "send the whole conversation as input"),
    "conversation": ((None,), "send the whole conversation as input"),
    "prompt": ((None,), "send the prompt's text as input"),
    "background": ((None, False), "leave it out, or stream"),
    "container": ((None,), "leave it out: no code is run here"),
    "inference_geo": ((None,), "leave it out: leave models or providers out by trinity.leave_out"),
    "mcp_servers": ((None, []), "offer their tools as tools"),
    "thread": ((None,), "send the whole conversation in messages"),
}


# What a request demands of its tools

_MODES = ("none", "auto", "required")


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """What a Worker may ask to be called. `tools`: as a server is told of them, a JSON list, empty without any;
    `must_call`: the answer has to be such a call; `one_call`: and never more than one."""

    tools: str = ""
    must_call: bool = False
    one_call: bool = False

    @property
    def demand(self) -> str:
        """What is added to the question where a call is demanded; empty where none is."""
        if not self.must_call:
            return ""
        names = [f"`{one['function']['name']}`" for one in json.loads(self.tools)]
        which = f"the tool {names[0]}" if len(names) == 1 else f"one of the tools {', '.join(names)}"
        return f"The answer must be a call of {which}, and no text in its place."


def tool_offer(
    given: Sequence[Tool | FlatTool | OtherTool] | None,
    choice: str | dict[str, Any] | None,
    *,
    parallel: bool | None = None,
) -> ToolOffer:
    """The tools as both APIs describe them, of which `choice` may leave some out or demand a call. ApiError for a
    choice that cannot be met."""
    functions = [
        one.function if isinstance(one, Tool) else one
        for one in given or ()
        if not isinstance(one, OtherTool)
    ]
    mode, names = _chosen(choice)
    known = [one.name for one in functions]
    for name in names or ():
        if name not in known:
            offers = f"offered are {', '.join(known)}" if known else "no function is offered"
            raise bad_request(f"tool_choice names '{name[:80]}', and {offers}.", "tool_choice")
    if mode == "required" and not known:
        raise bad_request(
            "tool_choice demands a call, and no function is offered: send tools of type function.",
            "tool_choice",
        )
    told = [
        {"type": "function", "function": one.model_dump(include={*Function.model_fields}, exclude_none=True)}
        for one in functions
        if mode != "none" and (names is None or one.name in names)
    ]
    tools = well_formed(json.dumps(told)) if told else ""
    return ToolOffer(tools, must_call=mode == "required" and bool(told), one_call=parallel is False)


def _chosen(choice: str | dict[str, Any] | None) -> tuple[str, list[str] | None]:
    """How tools may be called, and which of them: None for all."""
    match choice:
        case None | "":
            return "auto", None
        case str() if choice in _MODES:
            return choice, None
        case "any":  # as Mistral's API, and LangChain, write it
            return "required", None
        case {"type": "function", "function": {"name": str() as name}} | {
            "type": "function",
            "name": str() as name,
        }:
            return "required", [name]
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list() as tools}}:
            return _allowed(mode, tools)
        case {"type": "allowed_tools", "mode": mode, "tools": list() as tools}:
            return _allowed(mode, tools)
        case {"type": str() as kind} if kind not in ("function", "allowed_tools"):
            raise _cannot(f"demands a tool of type '{kind[:80]}', and only functions can be called here")
        case _:
            raise _cannot("cannot be read")


def _allowed(mode: object, tools: Sequence[object]) -> tuple[str, list[str]]:
    if mode not in ("auto", "required"):
        raise _cannot("allows tools in a mode that is neither auto nor required")
    names = list[str]()
    for tool in tools:
        match tool:
            case {"function": {"name": str() as name}} | {"type": "function", "name": str() as name}:
                names.append(name)
            case {"type": str()}:
                continue  # of another kind, which is left aside
            case _:
                raise _cannot("allows something that is no tool")
    return str(mode), names


def _cannot(why: str) -> ApiError:
    return bad_request(
        f"tool_choice {why}: set it to auto, none, required, or "
        '{"type": "function", "function": {"name": NAME}}.',
        "tool_choice",
        "unsupported_parameter",
    )
