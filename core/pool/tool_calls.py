"""The tool calls of a model's reply: read leniently, joined from fragments, and told apart by whether anybody offered
the tool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from core.episode import Message
from core.finish import ONLY_UNASKED_CALLS, UNASKED_CALLS, Finish, finish_of

if TYPE_CHECKING:
    from core.pool.wire import Completion

#: So many calls of one reply are read.
MOST_CALLS = 128
LONGEST_NAME = 200


@dataclass(slots=True)
class ToolCall:
    """A call, or a fragment of one. `arguments` are as the model wrote them, JSON or not."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    index: int | None = None
    whole: bool = False  # the arguments came as an object, and not as a text that may go on

    @property
    def words(self) -> str:
        """The call as readers see it."""
        return f"{self.name}({self.arguments or '{}'})"

    @property
    def sent(self) -> dict[str, object]:
        """The call as OpenAI's API writes it; the id is empty where the server gave none."""
        function = {"name": self.name, "arguments": self.arguments or "{}"}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(slots=True)
class ToolCalls:
    """The calls of one reply as they come."""

    calls: list[ToolCall] = field(default_factory=list)

    def add(self, tool_calls: object, function_call: object = None) -> None:
        """Take the whole calls of a message; `function_call` is how older servers name a single one."""
        self.calls += _read(tool_calls, function_call)

    def join(self, tool_calls: object, function_call: object = None) -> None:
        """Take fragments: each goes to the call with its index or its id, else to the last call, unless it begins
        another one."""
        for piece in _read(tool_calls, function_call):
            call = self._open_call(piece)
            if call is None:
                self.calls.append(piece)
                continue
            call.id = call.id or piece.id
            if not call.name or (piece.index is not None and not call.arguments and piece.name != call.name):
                call.name += piece.name
            if piece.whole:
                call.arguments, call.whole = piece.arguments, True
            elif not call.whole:
                call.arguments += piece.arguments

    def json(self) -> str:
        """All of them as a JSON list; empty without any. Of two that share an id, the second has none."""
        seen: set[str] = set()
        for call in self.calls:
            call.id = "" if call.id in seen else call.id
            seen.add(call.id)
        return json.dumps([call.sent for call in self.calls[:MOST_CALLS]]) if self.calls else ""

    def _open_call(self, piece: ToolCall) -> ToolCall | None:
        """The call that a fragment goes on with."""
        if piece.index is not None:
            same = [call for call in self.calls if call.index == piece.index]
        else:
            same = [call for call in self.calls if piece.id and call.id == piece.id] or self.calls
        return same[-1] if same and not _begins_another(piece, same[-1]) else None


def _begins_another(piece: ToolCall, call: ToolCall) -> bool:
    """Whether a fragment that could go on with this call is the first of another one: some servers give each call
    whole, all under the same index or under none."""
    if piece.id and call.id:
        return piece.id != call.id
    if not piece.name or not call.name:
        return False
    if piece.index is None and piece.name != call.name:
        return True
    return bool(piece.arguments) and _is_object(call.arguments)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _read(tool_calls: object, function_call: object) -> list[ToolCall]:
    """What is there of calls; entries that are none hold nothing."""
    listed = tool_calls if isinstance(tool_calls, list) else [tool_calls]
    return [_call(one) for one in [*listed, function_call] if isinstance(one, dict) and one]


def _call(entry: dict[str, object]) -> ToolCall:
    function = next(
        (inner for key in ("function", "custom") if isinstance(inner := entry.get(key), dict)), entry
    )
    name, index, id_ = function.get("name"), entry.get("index"), entry.get("id")
    given = next((value for key in ("arguments", "input") if (value := function.get(key)) is not None), "")
    return ToolCall(
        id=str(id_) if isinstance(id_, str | int) and not isinstance(id_, bool) else "",
        name=name[:LONGEST_NAME] if isinstance(name, str) else "",
        arguments=given if isinstance(given, str) else json.dumps(given),
        index=index if isinstance(index, int) and not isinstance(index, bool) else None,
        whole=not isinstance(given, str),
    )


def in_words(messages: Sequence[Message]) -> list[Message]:
    """Messages as a model can read them that knows no tools: calls and their results are told in words."""
    told: list[Message] = []
    called: dict[str, str] = {}  # the words of each call, by its id
    for before, one in zip([None, *messages], messages, strict=False):
        beside = json.loads(one.beside) if one.beside else {}
        text, role = one.content, one.role
        for call in _read(beside.get("tool_calls"), None):
            called[call.id] = call.words
            text = f"{text}\n{call.words}".lstrip("\n")
        if role == "tool":
            text, role = f"Result of {called.get(beside.get('tool_call_id', ''), 'a call')}:\n{text}", "user"
        of_tool = before is not None and "tool" in (before.role, one.role)
        if of_tool and told[-1].role == role == "user":  # users and assistants take turns
            told[-1] = Message("user", f"{told[-1].content}\n\n{text}")
        else:
            told.append(Message(role, text))
    return told


def settle(said: Completion, tools: str) -> Completion:
    """Keep the calls of `tools`, a JSON list of what was offered (empty: nothing). Their words end the text. Any other
    call is a fault of the model, told by the reason to stop: beside a text, which is read, or in place of one."""
    if not said.tool_calls:
        return said
    calls = [_call(one) for one in json.loads(said.tool_calls)]
    known = {one["function"]["name"] for one in json.loads(tools or "[]")}
    if passed := [call for call in calls if call.name in known]:
        reason = said.finish_reason if len(passed) == len(calls) else UNASKED_CALLS
        text = "\n".join([*filter(None, [said.text]), *(call.words for call in passed)])
        kept = json.dumps([call.sent for call in passed])
        return replace(said, text=text, tool_calls=kept, finish_reason=reason)
    if not said.text.strip():
        words = "\n".join(call.words for call in calls)
        return replace(said, text=words, tool_calls="", finish_reason=ONLY_UNASKED_CALLS)
    # That a text was cut, or refused, is the graver.
    graver = finish_of(said.finish_reason) in (Finish.CUT, Finish.FILTERED)
    return replace(said, tool_calls="", finish_reason=said.finish_reason if graver else UNASKED_CALLS)
