"""What clients may send, field by field. What is not named here is refused, never ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ui.endpoint.tiers import EFFORTS

#: The most messages of a conversation, parts of a message, and characters of a text.
MOST_MESSAGES, MOST_PARTS, LONGEST_TEXT = 1000, 100, 1_000_000

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
#: Described as the server takes it: one of few words, which it lists to whoever sends another.
Effort = Annotated[str, Field(json_schema_extra={"enum": [*EFFORTS]})]
Metadata = Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TextPart(_Body):
    """A part of a message. Only text is read: the coordinator and its models hold no images."""

    type: Literal["text", "input_text", "output_text"]
    text: Text
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


Content = Text | Annotated[list[TextPart], Field(max_length=MOST_PARTS)]


class Function(_Body):
    """A function as a tool is described."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Body):
    """A tool that a Worker may ask to be called."""

    type: Literal["function"]
    function: Function


class FlatTool(Function):
    """A tool as the Responses API describes it."""

    type: Literal["function"]


class CalledFunction(_Body):
    """A function with the arguments that it was to be called with, as JSON."""

    name: Name
    arguments: Text


class ToolCall(_Body):
    """A call that the assistant asked for."""

    id: Name
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(_Body):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: Name | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None
    tool_call_id: Name | None = None


class StreamOptions(_Body):
    """How a stream is told."""

    include_usage: bool = False
    include_obfuscation: bool | None = None


class JsonSchema(_Body):
    """A schema that the answer must fit."""

    name: Name
    schema_: dict[str, Any] = Field(alias="schema")
    description: Text | None = None
    strict: bool | None = None


class TextFormat(_Body):
    """Plain text, the default."""

    type: Literal["text"]


class JsonObjectFormat(_Body):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(_Body):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class FlatJsonSchemaFormat(JsonSchema):
    """JSON that fits a schema, as the Responses API writes it."""

    type: Literal["json_schema"]


class Vendor(_Body):
    """What only this endpoint knows: the field `trinity` of a request."""

    leave_out: Annotated[list[Name], Field(max_length=100)] = []
    max_turns: Annotated[int, Field(ge=1, le=100)] | None = None
    max_cost_usd: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    deadline_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] | None = None
    argmax: bool | None = None
    store_text: bool | None = None
    progress: bool = True


class _Common(_Body):
    """What both kinds of request share."""

    model: Name
    stream: bool = False
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    metadata: Metadata | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    store: bool | None = None
    trinity: Vendor = Vendor()
    # Fields that are taken at the value that changes nothing, and refused at any other.
    top_p: float | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


class ChatRequest(_Common):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
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
    response_format: (
        Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")] | None
    ) = None
    n: int | None = None
    stop: str | list[str] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, float] | None = None


class InputMessage(_Body):
    """A message of a Responses conversation."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class FunctionCall(_Body):
    """A call that the assistant asked for, as the Responses API tells it."""

    type: Literal["function_call"]
    call_id: Name
    name: Name
    arguments: Text
    id: str | None = None
    status: str | None = None


class FunctionCallOutput(_Body):
    """What a called function gave."""

    type: Literal["function_call_output"]
    call_id: Name
    output: Text
    id: str | None = None
    status: str | None = None


InputItem = InputMessage | FunctionCall | FunctionCallOutput


class Reasoning(_Body):
    """How much is thought."""

    effort: Effort | None = None
    summary: None = None


class TextOptions(_Body):
    """What form the answer has."""

    format: (
        Annotated[TextFormat | JsonObjectFormat | FlatJsonSchemaFormat, Field(discriminator="type")] | None
    ) = None


class ResponsesRequest(_Common):
    """The body of POST /v1/responses."""

    input: Text | Annotated[list[InputItem], Field(min_length=1, max_length=MOST_MESSAGES)]
    tools: Annotated[list[FlatTool], Field(max_length=128)] | None = None
    instructions: Text | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: bool | None = None
    include: list[str] | None = None
    truncation: str | None = None


class Choice(_Body):
    """One of the values to choose from."""

    value: str | bool
    description: str | None = None


class Question(_Body):
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


class DecisionRequest(_Body):
    """The body of POST /v1/decisions."""

    model: Name
    input: Text | Annotated[list[InputItem], Field(min_length=1, max_length=MOST_MESSAGES)]
    questions: Annotated[list[Question], Field(min_length=1, max_length=400)]
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    safety_identifier: Annotated[str, Field(max_length=512)] | None = None
    trinity: Vendor = Vendor()


#: Field -> the values at which it changes nothing, and what to do instead.
NEUTRAL: dict[str, tuple[tuple[Any, ...], str]] = {
    "top_p": ((None, 1.0), "leave it out, and set temperature"),
    "service_tier": ((None, "auto", "default"), "leave it out"),
    "n": ((None, 1), "ask again for another answer"),
    "stop": ((None, []), "leave it out: an answer always comes whole"),
    "frequency_penalty": ((None, 0.0), "leave it out"),
    "presence_penalty": ((None, 0.0), "leave it out"),
    "logprobs": ((None, False), "leave it out; the coordinator's own probabilities are in the field trinity"),
    "top_logprobs": ((None, 0), "leave it out"),
    "logit_bias": ((None, {}), "leave it out"),
    "tool_choice": ((None, "none", "auto"), "leave it out, or set it to auto or none"),
    "previous_response_id": ((None,), "send the whole conversation as input"),
    "conversation": ((None,), "send the whole conversation as input"),
    "background": ((None, False), "leave it out, or stream"),
    "include": ((None, []), "leave it out"),
    "truncation": ((None, "disabled"), "leave it out"),
}
