"""What a conversation is made of, as clients send it: its messages, the calls in them, and what called tools gave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

#: The most parts of a message, and characters of a text.
MOST_PARTS, LONGEST_TEXT = 100, 1_000_000
#: The most calls that a message asks for, and tools that a request offers.
MOST_TOOLS = 128

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
#: How closely an image shall be looked at.
Detail = Literal["auto", "low", "high", "original"]
#: Of a call: some servers put a signature of thousands of characters into it.
CallId = Annotated[str, Field(min_length=1, max_length=100_000)]

#: Marks a field that changes no answer: it is taken at any value, and the trace names it.
LEFT_ASIDE = "left aside"
Aside = Annotated[Any, LEFT_ASIDE]


class Body(BaseModel):
    """What is not named is refused."""

    model_config = ConfigDict(extra="forbid")


class Repeated(BaseModel):
    """What a client sends back as it got it, here or elsewhere: what is not named says nothing, and is left aside."""

    model_config = ConfigDict(extra="allow")


#: What only names a thing, or says that it is whole.
_LABELS = {"id", "index", "object", "phase", "status", "type"}


def left_aside(body: BaseModel, path: str = "") -> Iterator[str]:
    """The fields of a request that say something and are not looked at, as paths without numbers; some come twice."""

    def says(name: str, value: object) -> bool:
        return name not in _LABELS and value not in (None, "", [], {}, False)

    for name, value in body.model_extra.items() if body.model_extra else ():
        if says(name, value):
            yield f"{path}{name}"
    for name, described in type(body).model_fields.items():
        if (value := getattr(body, name)) is None:
            continue
        if LEFT_ASIDE in described.metadata:
            if says(name, value):
                yield f"{path}{name}"
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Unread):
                yield f"{path}{name}.{one.type}"
            elif isinstance(one, BaseModel):
                yield from left_aside(one, f"{path}{described.alias or name}.")


class Unread(Repeated):
    """Something of a kind that is left aside as a whole."""

    type: str


# Texts


class TextPart(Body):
    """A text in a message."""

    type: Literal["text", "input_text", "output_text"]
    text: Text
    annotations: Aside = None
    logprobs: Aside = None
    cache_control: Aside = None
    prompt_cache_breakpoint: Aside = None


class ImageAddress(Body):
    """Where an image is: an https address, or its bytes in a data: address."""

    url: str
    detail: Detail | None = None


class ChatImage(Body):
    """An image in a message."""

    type: Literal["image_url"]
    image_url: ImageAddress
    cache_control: Aside = None


class InputImage(Body):
    """An image, as the Responses API has it. Files that were uploaded elsewhere are not read here."""

    type: Literal["input_image"]
    image_url: str
    detail: Detail | None = None
    file_id: None = None


class RefusalPart(Repeated):
    """Why the assistant would not answer."""

    type: Literal["refusal"]
    refusal: Text


class ThinkingPart(Unread):
    """What the assistant thought: nobody here reads it again."""

    type: Literal["thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text"]


ImagePart = ChatImage | InputImage
ReadPart = Annotated[TextPart | ChatImage | InputImage, Field(discriminator="type")]
#: What a person sends, or a tool gives.
SeenContent = Text | Annotated[list[ReadPart], Field(max_length=MOST_PARTS)]
AssistantPart = Annotated[TextPart | RefusalPart | ThinkingPart, Field(discriminator="type")]
AssistantContent = Text | Annotated[list[AssistantPart], Field(max_length=MOST_PARTS)]
InputPart = Annotated[
    TextPart | ChatImage | InputImage | RefusalPart | ThinkingPart, Field(discriminator="type")
]
InputContent = Text | Annotated[list[InputPart], Field(max_length=MOST_PARTS)]


class CalledFunction(Repeated):
    """A function with the arguments that it was to be called with, JSON as a text or as it is."""

    name: Name
    arguments: Text | dict[str, Any] | None = None


class ToolCall(Repeated):
    """A call that the assistant asked for."""

    id: CallId | None = None
    type: Literal["function"] | None = None
    index: Aside = None
    function: CalledFunction


# Messages of a chat


class WrittenMessage(Body):
    """What a person says, or what the whole conversation is subject to."""

    role: Literal["system", "developer", "user"]
    content: SeenContent | None = None
    name: Name | None = None
    id: Aside = None
    index: Aside = None
    type: Aside = None
    status: Aside = None
    phase: Aside = None
    cache_control: Aside = None
    metadata: Aside = None


class AssistantMessage(Repeated):
    """What was answered earlier, here or elsewhere, as the client got it."""

    role: Literal["assistant"]
    content: AssistantContent | None = None
    name: Name | None = None
    refusal: Text | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MOST_TOOLS)] | None = None
    function_call: CalledFunction | None = None
    prefix: Literal[False] | None = None


class ToolMessage(Repeated):
    """What a called tool gave; older clients call it a function, and tell no id."""

    role: Literal["tool", "function"]
    content: SeenContent | None = None
    name: Name | None = None
    tool_call_id: CallId | None = None


ChatMessage = Annotated[WrittenMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


# Items of the Responses API


class InputMessage(Repeated):
    """A message of a Responses conversation."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: InputContent | None = None


class FunctionCall(Repeated):
    """A call that the assistant asked for, as the Responses API tells it."""

    type: Literal["function_call"]
    call_id: CallId
    name: Name
    arguments: Text


class CustomCall(Repeated):
    """A call of a tool that takes any text."""

    type: Literal["custom_tool_call"]
    call_id: CallId
    name: Name
    input: Text


class CallOutput(Repeated):
    """What a called function or tool gave."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: CallId
    output: SeenContent | None = None


class ShellCall(Repeated):
    """A call of a tool that other servers have built in: of a shell, or of one that patches files."""

    type: Literal["local_shell_call", "shell_call", "apply_patch_call"]
    call_id: CallId
    action: dict[str, Any] | None = None
    operation: dict[str, Any] | None = None


class ShellOutput(Repeated):
    """What it gave, a text or an object of it. Some clients put the id of the call into `id`."""

    type: Literal["local_shell_call_output", "shell_call_output", "apply_patch_call_output"]
    call_id: CallId | None = None
    id: CallId | None = None
    output: Text | list[Any] | dict[str, Any] | None = None


class UnreadItem(Unread):
    """An item of an earlier turn that tells models here nothing."""

    type: Literal["reasoning", "web_search_call", "file_search_call", "mcp_list_tools", "tool_search_call"]


def _kind_named(value: Any) -> Any:
    """An item that says of what kind it is; a message need not say it."""
    return {"type": "message", **value} if isinstance(value, dict) else value


InputItem = Annotated[
    Annotated[
        InputMessage | FunctionCall | CustomCall | CallOutput | ShellCall | ShellOutput | UnreadItem,
        Field(discriminator="type"),
    ],
    BeforeValidator(_kind_named),
]
Call = FunctionCall | CustomCall | ShellCall
Written = WrittenMessage | AssistantMessage | InputMessage
Sent = Written | ToolMessage | Call | CallOutput | ShellOutput | UnreadItem
