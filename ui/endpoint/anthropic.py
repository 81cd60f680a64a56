"""A request of Anthropic's Messages API: its fields, and its conversation as the messages that every door reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StrictBool, Tag

from ui.endpoint.errors import bad_request
from ui.endpoint.messages import (
    MOST_PARTS,
    MOST_TOOLS,
    Aside,
    AssistantMessage,
    Body,
    CalledFunction,
    CallId,
    CallOutput,
    InputImage,
    InputMessage,
    Name,
    Repeated,
    Sent,
    Text,
    TextPart,
    ThinkingPart,
    ToolCall,
    Unread,
)
from ui.endpoint.wire import (
    MOST_MESSAGES,
    AnyFormat,
    Effort,
    FlatJsonSchemaFormat,
    Function,
    OtherTool,
    Tokens,
    Tool,
    ToolOffer,
    Vendor,
    tool_offer,
)

#: Stands before what a tool gave that failed.
FAILED = "The tool failed:\n"

# Blocks of a message


class TextBlock(Body):
    """A text."""

    type: Literal["text"]
    text: Text
    cache_control: Aside = None
    citations: Aside = None


class AnsweredBlock(Repeated):
    """A text of the assistant, as the client got it."""

    type: Literal["text"]
    text: Text


class ImageBytes(Body):
    """An image's bytes."""

    type: Literal["base64"]
    media_type: Annotated[str, Field(max_length=100)]
    data: str


class ImageUrl(Body):
    """Where an image is."""

    type: Literal["url"]
    url: str


class ImageBlock(Body):
    """An image. Files that were uploaded elsewhere are not read here."""

    type: Literal["image"]
    source: Annotated[ImageBytes | ImageUrl, Field(discriminator="type")]
    cache_control: Aside = None


class ToolUseBlock(Repeated):
    """A call that the assistant asked for."""

    type: Literal["tool_use"]
    id: CallId
    name: Name
    input: dict[str, Any]
    cache_control: Aside = None


SeenBlock = Annotated[TextBlock | ImageBlock, Field(discriminator="type")]


class ToolResultBlock(Body):
    """What a called tool gave."""

    type: Literal["tool_result"]
    tool_use_id: CallId
    content: Text | Annotated[list[SeenBlock], Field(max_length=MOST_PARTS)] | None = None
    is_error: StrictBool | None = None
    cache_control: Aside = None


class ServerBlock(Unread):
    """What a tool of another server's own was asked, and gave."""

    type: Literal["server_tool_use", "web_search_tool_result", "web_fetch_tool_result"]


UserBlock = Annotated[TextBlock | ImageBlock | ToolResultBlock, Field(discriminator="type")]
AssistantBlock = Annotated[
    AnsweredBlock | ToolUseBlock | ThinkingPart | ServerBlock, Field(discriminator="type")
]


class UserTurn(Body):
    """What a person says, and what tools gave; or what the conversation is subject to from here on."""

    role: Literal["user", "system"]
    content: Text | Annotated[list[UserBlock], Field(max_length=MOST_PARTS)]


class AssistantTurn(Repeated):
    """What was answered earlier, and the calls that were asked for."""

    role: Literal["assistant"]
    content: Text | Annotated[list[AssistantBlock], Field(max_length=MOST_PARTS)]


Turn = Annotated[UserTurn | AssistantTurn, Field(discriminator="role")]

# Tools


class OwnTool(Repeated):
    """A tool that a Worker may ask to be called."""

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: Text | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    cache_control: Aside = None


def _tool_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return "other" if isinstance(kind, str) and kind not in ("custom", "function") else "custom"


OfferedTool = Annotated[
    Annotated[OwnTool, Tag("custom")] | Annotated[OtherTool, Tag("other")], Discriminator(_tool_kind)
]


class ToolChoice(Body):
    """Whether tools may or must be called: `any` demands a call, `tool` that of the one with this name."""

    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None


# The request


class OutputFormat(Body):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    """How much is thought, and what form the answer has."""

    effort: Effort | None = None
    format: OutputFormat | None = None


class Notes(Body):
    """Who asks, as the client names them."""

    user_id: Annotated[str, Field(max_length=512)] | None = None


class MessagesRequest(Body):
    """The body of POST /v1/messages."""

    model: Name
    max_tokens: Tokens
    messages: Annotated[list[Turn], Field(min_length=1, max_length=MOST_MESSAGES)]
    system: Text | Annotated[list[TextBlock], Field(max_length=MOST_PARTS)] | None = None
    stream: StrictBool | None = None
    temperature: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    stop_sequences: (
        Annotated[
            list[Text],
            Field(
                max_length=MOST_PARTS,
                description="The answer ends before the first of these texts. An answer of JSON has no such end.",
            ),
        ]
        | None
    ) = None
    tools: Annotated[list[OfferedTool], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    metadata: Notes | None = None
    output_config: OutputConfig | None = None
    trinity: Vendor = Vendor()
    container: str | dict[str, Any] | None = None
    inference_geo: str | None = None
    mcp_servers: list[Any] | None = None
    thread: dict[str, Any] | None = None
    top_k: Aside = None
    thinking: Aside = None
    cache_control: Aside = None
    context_management: Aside = None
    diagnostics: Aside = None
    service_tier: Aside = None
    speed: Aside = None

    @property
    def wanted_format(self) -> tuple[AnyFormat | None, str]:
        """What form the answer shall have, and the field that says so."""
        wanted = self.output_config.format if self.output_config else None
        if wanted is None:
            return None, "output_config.format"
        form = FlatJsonSchemaFormat(type="json_schema", name="answer", schema=wanted.schema_)
        return form, "output_config.format"

    @property
    def instructions(self) -> str:
        """What the whole conversation is subject to."""
        blocks = self.system if isinstance(self.system, list) else []
        return "\n\n".join(one.text for one in blocks) if blocks else str(self.system or "")

    def sent(self) -> dict[str, Sent]:
        """Its messages as every door reads them, each by its place in the request. ApiError for an answer that is begun
        for the assistant: models here write their own from its first word."""
        if self.messages[-1].role == "assistant":
            place = f"messages.{len(self.messages) - 1}"
            raise bad_request(
                f"{place} begins the assistant's answer, which is not supported here: end with a user's message.",
                place,
            )
        return {
            place: message
            for number, turn in enumerate(self.messages)
            for place, message in _messages(turn, f"messages.{number}")
        }

    def offer(self) -> ToolOffer:
        """Its tools. ApiError for a choice among them that cannot be met."""
        offered: list[Tool | OtherTool] = [
            one if isinstance(one, OtherTool) else _tool(one) for one in self.tools or ()
        ]
        if self.tool_choice is None:
            return tool_offer(offered, None)
        choice: str | dict[str, Any] = {"any": "required"}.get(self.tool_choice.type, self.tool_choice.type)
        if choice == "tool":
            if not self.tool_choice.name:
                raise bad_request(
                    "tool_choice demands a tool and names none: send its name.", "tool_choice.name"
                )
            choice = {"type": "function", "function": {"name": self.tool_choice.name}}
        return tool_offer(offered, choice, parallel=not self.tool_choice.disable_parallel_tool_use)


def _tool(tool: OwnTool) -> Tool:
    function = Function(
        name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict
    )
    return Tool(type="function", function=function)


def _messages(turn: UserTurn | AssistantTurn, place: str) -> Iterator[tuple[str, Sent]]:
    """A turn as messages: what tools gave, each alone, and what was said beside it."""
    if isinstance(turn, AssistantTurn):
        yield place, _assistant(turn)
        return
    if isinstance(turn.content, str):
        yield place, InputMessage(role=turn.role, content=turn.content)
        return
    said = list[TextPart | InputImage]()
    begun = place
    for number, block in enumerate(turn.content):
        if not isinstance(block, ToolResultBlock):
            begun = begun if said else f"{place}.content.{number}"
            said.append(_part(block))
            continue
        if said:
            yield begun, InputMessage(role=turn.role, content=[*said])
            said = []
        if turn.role != "user":
            where = f"{place}.content.{number}"
            raise bad_request(f"{where} is a tool's result: send it in a user's message.", where)
        yield f"{place}.content.{number}", _result(block)
    if said or not turn.content:
        yield begun, InputMessage(role=turn.role, content=[*said])


def _assistant(turn: AssistantTurn) -> AssistantMessage:
    if isinstance(turn.content, str):
        return AssistantMessage(role="assistant", content=turn.content)
    texts = [TextPart(type="text", text=one.text) for one in turn.content if isinstance(one, AnsweredBlock)]
    calls = [
        ToolCall(id=one.id, function=CalledFunction(name=one.name, arguments=one.input))
        for one in turn.content
        if isinstance(one, ToolUseBlock)
    ]
    return AssistantMessage(role="assistant", content=[*texts], tool_calls=calls or None)


def _result(block: ToolResultBlock) -> CallOutput:
    given = block.content or ""
    parts = [TextPart(type="text", text=given)] if isinstance(given, str) else [*map(_part, given)]
    failed = [TextPart(type="text", text=FAILED)] if block.is_error else []
    # Checked already; with its first words it may have one part more than a client may send.
    return CallOutput.model_construct(
        type="function_call_output", call_id=block.tool_use_id, output=[*failed, *parts]
    )


def _part(block: TextBlock | ImageBlock) -> TextPart | InputImage:
    if isinstance(block, TextBlock):
        return TextPart(type="text", text=block.text)
    source = block.source
    bytes_or_url = (
        source.url if isinstance(source, ImageUrl) else f"data:{source.media_type};base64,{source.data}"
    )
    return InputImage(type="input_image", image_url=bytes_or_url)
