"""What a request asks, whichever API it came by, and its conversation as the coordinator and its models read it: one
message as it is, several with who wrote each."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from core.episode import Message
from core.images import Image, as_content, beside_with, moved
from core.pool.wire import Malformed
from core.texts import well_formed
from ui.endpoint.anthropic import MessagesRequest
from ui.endpoint.errors import bad_request, unsupported_field
from ui.endpoint.formats import AnswerFormat, read_body
from ui.endpoint.images import check_sizes, read_image
from ui.endpoint.messages import (
    AssistantMessage,
    Body,
    CallOutput,
    ChatImage,
    CustomCall,
    FunctionCall,
    InputImage,
    InputItem,
    InputMessage,
    RefusalPart,
    Sent,
    ShellCall,
    ShellOutput,
    TextPart,
    ToolMessage,
    UnreadItem,
    Written,
    left_aside,
)
from ui.endpoint.wire import NEUTRAL, ChatRequest, ResponsesRequest, ToolOffer, Vendor, tool_offer

#: A line that tells who wrote what follows.
_HEADER = re.compile(r"^\[(?:system|user|assistant|tool)(?: [^\]\n]*)?\]$", re.MULTILINE)
#: A call whose words are longer is named by its beginning and its id where its result is told.
_LONGEST_CALL = 300


@dataclass(frozen=True, slots=True)
class Said:
    """A message: who wrote it, and its text, in which what tools were to be called, and what they gave, is told in
    words. `plain`: its text without these words; `calls`: the calls in OpenAI's form; `answers`: the id of the call
    that it is the result of; `images`: those whose placeholders stand in `plain`."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    name: str = ""
    plain: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    answers: str = ""
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as every API's becomes it. `door` is the API's name, `keep` the client's wish that texts are stored."""

    door: str
    model: str
    messages: Sequence[Said]
    vendor: Vendor = field(default_factory=Vendor)
    effort: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None  # of a Worker's reply
    seed: int | None = None
    stop: tuple[str, ...] = ()  # the answer ends before the first of these
    tools: ToolOffer = ToolOffer()
    answer_format: AnswerFormat | None = None
    keep: bool | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    left_aside: tuple[str, ...] = ()  # fields of the request that nothing here looks at
    include_usage: bool = False  # at the end of a stream

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of all messages."""
        return tuple(image for one in self.messages for image in one.images)


def read_request(body: ChatRequest | ResponsesRequest | MessagesRequest) -> Asked:
    """What a body asks, but for the form of its answer. ApiError for a field that would change the answer and cannot,
    and for a conversation that is none."""
    said = dict(body)
    for name, (values, instead) in NEUTRAL.items():
        if said.get(name) not in values:
            raise unsupported_field(name, f"'{name}' is not supported here: {instead}.")
    if isinstance(body, MessagesRequest):
        return _read_messages(body)
    effort = body.reasoning.effort if body.reasoning else None
    if isinstance(body, ChatRequest):
        if len({body.max_tokens, body.max_completion_tokens} - {None}) > 1:
            raise bad_request(
                "max_completion_tokens and max_tokens are two names of one limit: give both the same number, or one.",
                "max_tokens",
            )
        stop = [body.stop] if isinstance(body.stop, str) else body.stop or ()
        own: dict[str, Any] = {
            "door": "chat",
            "messages": conversation(body.messages),
            "effort": body.reasoning_effort or effort,
            "max_tokens": body.max_completion_tokens or body.max_tokens,
            "seed": body.seed,
            "stop": tuple(filter(None, stop)),
            "include_usage": bool(body.stream_options and body.stream_options.include_usage),
        }
    else:
        messages = input_messages(body.input, body.instructions or "")
        own = {
            "door": "responses",
            "messages": messages,
            "effort": effort,
            "max_tokens": body.max_output_tokens,
        }
    named = {"user": body.user, "safety_identifier": body.safety_identifier}
    notes = {**(body.metadata or {}), **{name: value for name, value in named.items() if value}}
    return Asked(
        **own,
        model=body.model,
        tools=tool_offer(body.tools, body.tool_choice, parallel=body.parallel_tool_calls),
        vendor=body.trinity,
        temperature=body.temperature,
        top_p=_top_p(body.top_p),
        keep=body.store,
        metadata={well_formed(name): well_formed(value) for name, value in notes.items()},
        left_aside=_aside(body),
    )


def _read_messages(body: MessagesRequest) -> Asked:
    """What a body of the Messages API asks, as `read_request` says."""
    sent, user = body.sent(), body.metadata.user_id if body.metadata else None
    return Asked(
        "messages",
        body.model,
        conversation([*sent.values()], instructions=body.instructions, places=[*sent]),
        body.trinity,
        effort=body.output_config.effort if body.output_config else None,
        temperature=body.temperature,
        top_p=_top_p(body.top_p),
        max_tokens=body.max_tokens,
        stop=tuple(filter(None, body.stop_sequences or ())),
        tools=body.offer(),
        metadata={"user_id": well_formed(user)} if user else {},
        left_aside=_aside(body),
    )


def _top_p(asked: float | None) -> float | None:
    """1 is every model's own; some servers take none beside a temperature."""
    return None if asked == 1 else asked


def _aside(body: Body) -> tuple[str, ...]:
    return tuple(well_formed(one[:200]) for one in dict.fromkeys(left_aside(body)))


def input_messages(given: str | Sequence[InputItem], instructions: str = "") -> list[Said]:
    """The conversation of a request that names it `input`, after instructions for all of it."""
    sent: list[Sent] = [InputMessage(role="user", content=given)] if isinstance(given, str) else [*given]
    return conversation(sent, "input", instructions=instructions)


def conversation(
    sent: Sequence[Sent], field: str = "messages", *, instructions: str = "", places: Sequence[str] = ()
) -> list[Said]:
    """The messages that hold anything, after instructions for all of them; a developer is the system's voice. ApiError
    where nobody asks anything, and for a tool's result without its call. `field`: how a request names its messages;
    `places`: where in it each stands, where they are not numbered."""
    calls = _Calls(Counter(well_formed(words) for one in sent for words, _ in _asked_calls(one)))
    named = places or [f"{field}.{place}" for place in range(len(sent))]
    read = (_said(message, calls, place) for place, message in zip(named, sent, strict=True))
    messages = [one for one in read if one.text.strip()]
    if not any(one.role == "user" for one in messages):
        raise bad_request("No user message holds any text: send at least one.", field)
    check_sizes([image for one in messages for image in one.images], field)
    told = well_formed(instructions)
    return [Said("system", told, plain=told), *messages] if instructions.strip() else messages


def question_of(
    messages: Sequence[Said], answer_format: dict[str, Any] | None = None, demand: str = ""
) -> str:
    """The conversation as one text: a lone message as it is, several each under a line that names its writer.

    `answer_format`: a JSON schema that the answer must fit, or an empty one for any JSON object; `demand`: what else is
    asked of the answer."""
    if len(messages) == 1:
        text = messages[0].text
    else:
        # A line that looks like a header is moved by a space.
        parts = [(_header(one), _HEADER.sub(r" \g<0>", one.text)) for one in messages]
        text = "\n\n".join(f"{header}\n{words}" for header, words in parts)
    return text + _wishes(answer_format, demand)


def _wishes(answer_format: dict[str, Any] | None, demand: str) -> str:
    """What a request asks of its answer beside the conversation."""
    text = f"\n\n{demand}" if demand else ""
    if answer_format is None:
        return text
    schema = f" that fits this JSON schema: {json.dumps(answer_format)}" if answer_format else ""
    return f"\n\nThe answer must be one JSON object{schema}, and nothing around it.{text}"


#: The result of a call that a client sends none of: servers refuse a call without any.
NO_RESULT = "No result was sent."


def conversation_of(
    messages: Sequence[Said], answer_format: dict[str, Any] | None = None, demand: str = ""
) -> tuple[Message, ...]:
    """The same as messages that a model is sent, calls and results in OpenAI's form: calls that were asked for together
    in one message, the result of each behind it. What is asked of the answer stands behind the last user's words."""
    found: list[_Native] = []
    for one in messages:
        called = next((it for it in reversed(found) if one.answers in it.results), None)
        if called is not None and one.role == "tool":
            called.results[one.answers].append(one)
            continue
        together = found and one.calls and not one.plain and found[-1].said.role == "assistant"
        if not together or any(found[-1].results.values()):
            found.append(_Native(one))
        found[-1].calls += one.calls
        found[-1].results |= {call["id"]: [] for call in one.calls}
    last = max(place for place, one in enumerate(found) if one.said.role == "user")
    found[last].wishes = _wishes(answer_format, demand)
    return tuple(message for one in found for message in one.messages())


@dataclass(slots=True)
class _Native:
    """A message with the calls that belong to it, and what came of each."""

    said: Said
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, list[Said]] = field(default_factory=dict)
    wishes: str = ""

    def messages(self) -> Iterator[Message]:
        beside: dict[str, Any] = {"name": self.said.name} if self.said.name else {}
        beside |= {"tool_calls": self.calls} if self.calls else {}
        yield Message(self.said.role, self.said.plain + self.wishes, beside_with(beside, self.said.images))
        for call, results in self.results.items():
            content, images = "", list[Image]()
            for number, one in enumerate(results):
                content += "\n" if number else ""
                images += moved(one.images, len(content))
                content += one.plain
            yield Message("tool", content or NO_RESULT, beside_with({"tool_call_id": call}, images))


def _header(message: Said) -> str:
    name = re.sub(r"[\]\n\r]", "", message.name)
    return f"[{message.role} {name}]" if name else f"[{message.role}]"


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that a result may be of: as clients name it, in words, and as models are sent it. `group`: calls that were
    asked for together share it."""

    id: str
    label: str
    native: dict[str, Any]
    group: int

    @property
    def name(self) -> str:
        """The tool's."""
        return str(self.native["function"]["name"])


@dataclass(slots=True)
class _Calls:
    """The calls so far, and which of them no result has come of. `alike` counts calls by their words."""

    alike: Counter[str]
    asked: list[_Call] = field(default_factory=list)
    waiting: list[_Call] = field(default_factory=list)
    group: int = 0

    def ask(self, words: str, native: dict[str, Any]) -> str:
        """Note a call; its words as the assistant's message tells them. A call without an id gets one."""
        words, id_ = well_formed(words), native["id"]
        told_apart = self.alike[words] == 1 and len(words) <= _LONGEST_CALL
        mark = "" if told_apart else f" [call {id_ or len(self.asked) + 1}]"
        label = words if len(words) <= _LONGEST_CALL else f"{words[:_LONGEST_CALL]}\u2026"
        known = {one.native["id"] for one in self.asked}  # servers take each id once
        numbered = f"{id_ or 'call'}_{len(self.asked) + 1}"
        native = native | {"id": id_ if id_ and id_ not in known else numbered}
        call = _Call(id_, f"{' '.join(label.split())}{mark}", native, self.group)
        self.asked.append(call)
        self.waiting.append(call)
        return f"{words}{mark}"

    def answered(self, id_: str | None, name: str | None, place: str) -> _Call:
        """The call whose result this is; ApiError where nobody asked for it."""
        known = [one for one in self.asked if one.id == id_] if id_ else self.waiting
        if not id_ and name:
            known = [one for one in known if one.name == name]
        if not known:
            which = f"the id '{id_[:80]}'" if id_ else f"the name '{name[:80]}'" if name else "no result yet"
            raise bad_request(
                f"{place} is a tool's result, and no call before it has {which}: send the assistant's message with "
                "that call before it.",
                place,
            )
        # Ids come again: the latest calls are meant, and of several with one id the first without a result.
        latest = [one for one in known if one.group == known[-1].group] if id_ else known
        call = next((one for one in latest if one in self.waiting), latest[-1])
        if call in self.waiting:
            self.waiting.remove(call)
        return call


def _asked_calls(message: Sent) -> Iterator[tuple[str, dict[str, Any]]]:
    """The calls that a message asks for, each in words and as models are sent it."""
    match message:
        case FunctionCall() | CustomCall():
            given = message.arguments if isinstance(message, FunctionCall) else message.input
            yield _call(message.call_id, message.name, given)
        case ShellCall():
            given = json.dumps(message.action or message.operation or {})
            yield _call(message.call_id, message.type.removesuffix("_call"), given)
        case AssistantMessage():
            for call in message.tool_calls or ():
                yield _call(call.id or "", call.function.name, call.function.arguments)
            if (function := message.function_call) is not None:
                yield _call("", function.name, function.arguments)


def as_object(arguments: str) -> dict[str, Any]:
    """The arguments of a call as an object; any other text stands in it as `input`."""
    try:
        value = read_body(well_formed(arguments).encode())
    except Malformed:
        value = None
    return value if isinstance(value, dict) else {"input": arguments}


def _call(id_: str, name: str, given: str | dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
    text = well_formed(given if isinstance(given, str) else json.dumps(given or {}))
    found = as_object(text)
    arguments = json.dumps(found) if found == {"input": text} else text  # servers read them as an object
    function = {"name": well_formed(name), "arguments": arguments}
    return f"{name}({text})", {"id": well_formed(id_), "type": "function", "function": function}


def _said(message: Sent, calls: _Calls, place: str) -> Said:
    match message:
        case ToolMessage():
            call, given = calls.answered(message.tool_call_id, message.name, place), message.content
        case CallOutput():
            call, given = calls.answered(message.call_id, None, place), message.output
        case ShellOutput():
            told = message.output
            call = calls.answered(message.call_id or message.id, None, place)
            given = told if isinstance(told, str) else json.dumps(told) if told else ""
        case UnreadItem():
            return Said("assistant", "")
        case FunctionCall() | CustomCall() | ShellCall():
            return _asking(message, calls, "")
        case _:
            return _written(message, calls, place)
    text, images = _read(given, place)
    words = f"Result of {call.label}:\n{text}" if text.strip() else f"Result of {call.label}: empty"
    return Said("tool", well_formed(words), plain=text, answers=call.native["id"], images=images)


def _written(message: Written, calls: _Calls, place: str) -> Said:
    """What somebody wrote, and the calls that it asks for."""
    calls.group += 1
    (text, images), role = _read(message.content, place), message.role
    if images and role != "user":
        raise bad_request(
            f"{place} is the {role}'s and holds an image: images are read in a user's message and in a tool's result.",
            place,
        )
    if isinstance(message, AssistantMessage):
        return _asking(message, calls, text or message.refusal or "", message.name or "")
    name = "" if isinstance(message, InputMessage) else message.name or ""
    role = "system" if role == "developer" else role
    return Said(role, text, well_formed(name), plain=text, images=images)


def _asking(message: Sent, calls: _Calls, text: str, name: str = "") -> Said:
    """What an assistant wrote, and the calls that it asks for."""
    before, plain = len(calls.asked), well_formed(text)
    told = [calls.ask(*one) for one in _asked_calls(message)]
    native = tuple(one.native for one in calls.asked[before:])
    return Said("assistant", "\n".join([*filter(None, [plain]), *told]), well_formed(name), plain, native)


def _read(content: str | Sequence[object] | None, place: str) -> tuple[str, tuple[Image, ...]]:
    """The text of a content, and the images in it."""
    parts: list[str | Image] = [content] if isinstance(content, str) else []
    for number, part in enumerate(content or () if not isinstance(content, str) else ()):
        match part:
            case TextPart():
                parts.append(part.text)
            case RefusalPart():
                parts.append(part.refusal)
            case ChatImage() | InputImage():
                parts.append(read_image(part, f"{place}.content.{number}"))
    return as_content(parts)
