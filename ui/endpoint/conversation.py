"""A conversation as the coordinator and its models read it: one message as it is, several with who wrote each."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.texts import well_formed
from ui.endpoint.errors import refused
from ui.endpoint.messages import (
    AssistantMessage,
    CalledFunction,
    CallOutput,
    CustomCall,
    FunctionCall,
    FunctionMessage,
    InputMessage,
    RefusalPart,
    Sent,
    ShellCall,
    ShellOutput,
    TextPart,
    ToolMessage,
    UnreadItem,
)

#: A line that tells who wrote what follows; a line of a message that looks like one is moved by a space.
_HEADER = re.compile(r"^\[(?:system|user|assistant|tool)(?: [^\]\n]*)?\]$", re.MULTILINE)
#: A call whose words are longer is named by its beginning and its id where its result is told.
_LONGEST_CALL = 300


@dataclass(frozen=True, slots=True)
class Said:
    """A message: who wrote it, and its text. What tools were to be called, and what they gave, is told in words."""

    role: str
    text: str
    name: str = ""


def conversation(sent: Sequence[Sent], field: str = "messages", *, instructions: str = "") -> list[Said]:
    """The messages that hold anything, after instructions for all of them; a developer is the system's voice. ApiError
    where nobody asks anything, and for a tool's result without its call. `field`: how a request names its messages."""
    calls = _Calls(Counter(words for one in sent for _, words in _asked_calls(one)))
    messages = [
        one
        for place, message in enumerate(sent)
        if (one := _said(message, calls, f"{field}.{place}")).text.strip()
    ]
    if not any(one.role == "user" for one in messages):
        raise refused("No user message holds any text: send at least one.", field)
    return [Said("system", well_formed(instructions)), *messages] if instructions.strip() else messages


def question_of(
    messages: Sequence[Said], answer_format: dict[str, Any] | None = None, demand: str = ""
) -> str:
    """The conversation as one text: a lone message as it is, several each under a line that names its writer.

    `answer_format`: a JSON schema that the answer must fit, or an empty one for any JSON object; `demand`: what else is
    asked of the answer."""
    if len(messages) == 1:
        text = messages[0].text
    else:
        text = "\n\n".join(f"{_header(one)}\n{_plain(one.text)}" for one in messages)
    if answer_format is not None:
        schema = f" that fits this JSON schema: {json.dumps(answer_format)}" if answer_format else ""
        text += f"\n\nThe answer must be one JSON object{schema}, and nothing around it."
    return f"{text}\n\n{demand}" if demand else text


def _header(message: Said) -> str:
    name = re.sub(r"[\]\n\r]", "", message.name)
    return f"[{message.role} {name}]" if name else f"[{message.role}]"


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that a result may be of. `group`: calls that were asked for together share it."""

    id: str
    name: str
    label: str
    group: int


@dataclass(slots=True)
class _Calls:
    """The calls so far, and which of them no result has come of. `alike` counts calls by their words."""

    alike: Counter[str]
    asked: list[_Call] = field(default_factory=list)
    waiting: list[_Call] = field(default_factory=list)
    group: int = 0

    def ask(self, id_: str, name: str, words: str) -> str:
        """Note a call; its words as the assistant's message tells them."""
        told_apart = self.alike[words] == 1 and len(words) <= _LONGEST_CALL
        mark = "" if told_apart else f" [call {id_ or len(self.asked) + 1}]"
        label = words if len(words) <= _LONGEST_CALL else f"{words[:_LONGEST_CALL]}\u2026"
        call = _Call(id_, name, f"{' '.join(label.split())}{mark}", self.group)
        self.asked.append(call)
        self.waiting.append(call)
        return f"{words}{mark}"

    def answered(self, id_: str | None, name: str | None, place: str) -> str:
        """How the call is named whose result this is; ApiError where nobody asked for it."""
        known = [one for one in self.asked if one.id == id_] if id_ else self.waiting
        if not id_ and name:
            known = [one for one in known if one.name == name]
        if not known:
            which = f"the id '{id_[:80]}'" if id_ else f"the name '{name[:80]}'" if name else "no result yet"
            raise refused(
                f"{place} is a tool's result, and no call before it has {which}: send the assistant's message with "
                "that call before it.",
                place,
            )
        # Ids come again: the latest calls are meant, and of several with one id the first without a result.
        latest = [one for one in known if one.group == known[-1].group] if id_ else known
        call = next((one for one in latest if one in self.waiting), latest[-1])
        if call in self.waiting:
            self.waiting.remove(call)
        return call.label


def _asked_calls(message: Sent) -> Iterator[tuple[str, str]]:
    """The calls that a message asks for, each with its id and in words."""
    match message:
        case FunctionCall():
            yield message.call_id, _words(message.name, message.arguments)
        case CustomCall():
            yield message.call_id, _words(message.name, message.input)
        case ShellCall():
            name = message.type.removesuffix("_call")
            yield message.call_id, _words(name, json.dumps(message.action or message.operation or {}))
        case AssistantMessage():
            for call in message.tool_calls or ():
                yield call.id or "", _function_words(call.function)
            if message.function_call is not None:
                yield "", _function_words(message.function_call)


def _function_words(function: CalledFunction) -> str:
    given = function.arguments
    return _words(function.name, given if isinstance(given, str) else json.dumps(given or {}))


def _words(name: str, arguments: str) -> str:
    return well_formed(f"{name}({arguments})")


def _said(message: Sent, calls: _Calls, place: str) -> Said:
    match message:
        case ToolMessage():
            return _result(calls.answered(message.tool_call_id, message.name, place), _text(message.content))
        case FunctionMessage():
            return _result(calls.answered(None, message.name, place), _text(message.content))
        case CallOutput():
            return _result(calls.answered(message.call_id, None, place), _text(message.output))
        case ShellOutput():
            given = message.output
            text = given if isinstance(given, str) else json.dumps(given) if given else ""
            return _result(calls.answered(message.call_id or message.id, None, place), text)
        case UnreadItem():
            return Said("assistant", "")
        case FunctionCall() | CustomCall() | ShellCall():
            name = "" if isinstance(message, ShellCall) else message.name
            text = "\n".join(calls.ask(id_, name, words) for id_, words in _asked_calls(message))
            return Said("assistant", text)
    calls.group += 1
    text = _text(message.content)
    if isinstance(message, AssistantMessage):
        text = text or message.refusal or ""
        names = [one.function.name for one in message.tool_calls or ()]
        if message.function_call is not None:
            names.append(message.function_call.name)
        asked = [
            calls.ask(id_, name, words)
            for name, (id_, words) in zip(names, _asked_calls(message), strict=True)
        ]
        text = "\n".join([*filter(None, [text]), *asked])
    role = "system" if message.role == "developer" else message.role
    name = "" if isinstance(message, InputMessage) else message.name or ""
    return Said(role, well_formed(text), well_formed(name))


def _result(label: str, text: str) -> Said:
    """A result with the call that it is of; an empty one is a result."""
    return Said(
        "tool", well_formed(f"Result of {label}:\n{text}" if text.strip() else f"Result of {label}: empty")
    )


def _plain(text: str) -> str:
    return _HEADER.sub(r" \g<0>", text)


def _text(content: str | Sequence[object] | None) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(part) for part in content or ())


def _part(part: object) -> str:
    match part:
        case TextPart():
            return part.text
        case RefusalPart():
            return part.refusal
        case _:
            return ""
