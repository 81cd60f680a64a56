"""A conversation as the coordinator and its models read it: one message as it is, several with who wrote each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.texts import well_formed
from ui.endpoint.errors import refused
from ui.endpoint.wire import ChatMessage, Content, FunctionCall, FunctionCallOutput, InputMessage

#: A line that tells who wrote what follows; a line of a message that looks like one is moved by a space.
_HEADER = re.compile(r"^\[(?:system|user|assistant|tool)\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Said:
    """A message: who wrote it, and its text. What tools were to be called, and what they gave, is told in words."""

    role: str
    text: str


def conversation(
    sent: Sequence[ChatMessage | InputMessage | FunctionCall | FunctionCallOutput],
) -> list[Said]:
    """The messages that hold anything; a developer is the system's voice. ApiError where nobody asks anything."""
    messages = [one for message in sent if (one := _said(message)).text.strip()]
    if not any(one.role == "user" for one in messages):
        raise refused("No user message holds any text: send at least one.", "messages")
    return messages


def question_of(messages: Sequence[Said], answer_format: dict[str, Any] | None = None) -> str:
    """The conversation as one text: a lone message as it is, several each under a line that names its writer.

    `answer_format`: a JSON schema that the answer must fit, or an empty one for any JSON object."""
    if len(messages) == 1:
        text = messages[0].text
    else:
        text = "\n\n".join(f"[{one.role}]\n{_plain(one.text)}" for one in messages)
    if answer_format is not None:
        schema = f" that fits this JSON schema: {json.dumps(answer_format)}" if answer_format else ""
        text += f"\n\nThe answer must be one JSON object{schema}, and nothing around it."
    return text


def _said(message: ChatMessage | InputMessage | FunctionCall | FunctionCallOutput) -> Said:
    match message:
        case FunctionCall():
            return Said("assistant", well_formed(f"{message.name}({message.arguments})"))
        case FunctionCallOutput():
            return Said("tool", well_formed(message.output))
    role = "system" if message.role == "developer" else message.role
    text = _text(message.content)
    for call in (message.tool_calls or ()) if isinstance(message, ChatMessage) else ():
        text += f"\n{call.function.name}({call.function.arguments})"
    return Said(role, well_formed(text.strip("\n") if not message.content else text))


def _plain(text: str) -> str:
    return _HEADER.sub(r" \g<0>", text)


def _text(content: Content | None) -> str:
    parts = [content] if isinstance(content, str) else [part.text for part in content or ()]
    return "".join(parts)
