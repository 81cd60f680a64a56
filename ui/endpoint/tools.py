"""The tools that a request offers, and what it demands of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.texts import well_formed
from ui.endpoint.errors import ApiError, refused
from ui.endpoint.wire import FlatTool, Function, OtherTool, Tool

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
        return (
            f"The answer must be a call of {which}: the Worker calls it with arguments that solve the problem, and "
            "writes no answer in place of the call."
        )


def offered(
    given: Sequence[Tool | FlatTool | OtherTool] | None,
    choice: str | dict[str, Any] | None,
    *,
    parallel: bool | None = None,
) -> ToolOffer:
    """The tools as both APIs describe them, of which `choice` may leave some out or demand a call. ApiError for a
    choice that cannot be met."""
    functions = [_function(one) for one in given or () if not isinstance(one, OtherTool)]
    mode, names = _chosen(choice)
    known = [one.name for one in functions]
    for name in names or ():
        if name not in known:
            offers = f"offered are {', '.join(known)}" if known else "no function is offered"
            raise refused(f"tool_choice names '{name[:80]}', and {offers}.", "tool_choice")
    if mode == "required" and not known:
        raise refused(
            "tool_choice demands a call, and no function is offered: send tools of type function.",
            "tool_choice",
        )
    told = [
        {"type": "function", "function": _told(one)}
        for one in functions
        if mode != "none" and (names is None or one.name in names)
    ]
    tools = well_formed(json.dumps(told)) if told else ""
    return ToolOffer(tools, must_call=mode == "required" and bool(told), one_call=parallel is False)


def _function(tool: Tool | FlatTool) -> Function:
    return tool.function if isinstance(tool, Tool) else tool


def _told(function: Function) -> dict[str, Any]:
    return function.model_dump(include={*Function.model_fields}, exclude_none=True)


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
    return refused(
        f"tool_choice {why}: set it to auto, none, required, or "
        '{"type": "function", "function": {"name": NAME}}.',
        "tool_choice",
        "unsupported_parameter",
    )
