"""Are calls read as servers write them, joined from fragments, and kept apart by whether somebody offered them?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.episode import Ask, Message, Role
from core.finish import ONLY_UNASKED_CALLS, UNASKED_CALLS
from core.pool.spec import ModelSpec
from core.pool.tool_calls import ToolCalls, settle
from core.pool.wire import Completion, request_body

ROME, OSLO = '{"city": "Rome"}', '{"city": "Oslo"}'
WEATHER = json.dumps([{"type": "function", "function": {"name": "weather"}}])


def fragment(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """A piece of a call; `name` is its function's."""
    function = {key: fields.pop(key) for key in ("name",) if key in fields}
    return {**fields, "function": {**function, **({} if arguments is None else {"arguments": arguments})}}


def joined(*pieces: Any) -> list[tuple[str, str, str]]:
    """Id, name and arguments of the calls that fragments make, each sent in a chunk of its own."""
    calls = ToolCalls()
    for piece in pieces:
        calls.join([piece])
    found = json.loads(calls.json() or "[]")
    return [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in found]


TWO = [("a", "weather", ROME), ("b", "weather", OSLO)]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        # By index, the id in the first fragment alone, as OpenAI does; also where they alternate.
        ([fragment("", index=0, id="a", name="weather"), fragment("", index=1, id="b", name="weather"),
          fragment(ROME[:5], index=0), fragment(OSLO[:5], index=1), fragment(ROME[5:], index=0),
          fragment(OSLO[5:], index=1)], TWO),
        # Without an index: by id, or whatever follows the last call.
        ([fragment(ROME[:5], id="a", name="weather"), fragment(ROME[5:]),
          fragment(OSLO[:5], id="b", name="weather"), fragment(OSLO[5:])], TWO),
        ([fragment(ROME[:5], id="a", name="weather"), fragment(OSLO[:5], id="b", name="weather"),
          fragment(ROME[5:], id="a"), fragment(OSLO[5:], id="b")], TWO),
        # Whole calls that all have the index 0.
        ([fragment(ROME, index=0, id="a", name="weather"), fragment(OSLO, index=0, id="b", name="weather")], TWO),
        ([fragment(ROME, index=0, name="weather"), fragment(OSLO, index=0, name="weather")],
         [("", "weather", ROME), ("", "weather", OSLO)]),
        # Id and name repeated in every fragment.
        ([fragment(ROME[:5], index=0, id="a", name="weather"), fragment(ROME[5:], index=0, id="a", name="weather"),
          fragment("", index=0, id="a", name="weather")], TWO[:1]),
        # A name in pieces, empty ids, arguments that are null, an object, or left out.
        ([fragment(index=0, id="", name="wea"), fragment(index=0, name="ther"), fragment(ROME, index=0, id="a")],
         TWO[:1]),
        ([fragment({"city": "Rome"}, index=0, id="a", name="weather")], TWO[:1]),
        ([{"index": 0, "id": "a", "function": {"name": "now", "arguments": None}}], [("a", "now", "{}")]),
        ([fragment(id="a", name="now"), fragment(id="b", name="then")], [("a", "now", "{}"), ("b", "then", "{}")]),
        ([None, 5, {}, fragment(ROME, index=0, id="a", name="weather")], TWO[:1]),
        # What is no JSON stays as it was written.
        ([fragment("city=", index=0, id="a", name="weather"), fragment("Rome", index=0)],
         [("a", "weather", "city=Rome")]),
    ],
)  # fmt: skip
def test_fragments_are_joined(pieces: list[Any], calls: list[tuple[str, str, str]]) -> None:
    assert joined(*pieces) == calls


def test_older_servers_name_one_call() -> None:
    calls = ToolCalls()
    for piece in ({"name": "weather"}, {"arguments": ROME[:6]}, {"arguments": ROME[6:]}):
        calls.join(None, piece)
    whole = ToolCalls()
    whole.add(None, {"name": "weather", "arguments": ROME})
    assert calls.json() == whole.json()
    assert json.loads(whole.json())[0]["function"] == {"name": "weather", "arguments": ROME}


def test_no_two_calls_share_an_id() -> None:
    calls = ToolCalls()
    calls.add([fragment(ROME, id="a", name="weather"), fragment(OSLO, id="a", name="weather")])
    assert [one["id"] for one in json.loads(calls.json())] == ["a", ""]


def said(text: str, *names: str, reason: str = "tool_calls") -> Completion:
    calls = ToolCalls()
    calls.add([fragment(ROME, id=name, name=name) for name in names])
    return Completion(text, finish_reason=reason, tool_calls=calls.json())


@pytest.mark.parametrize(
    ("reply", "tools", "text", "passed", "reason"),
    [
        (said("42", "python"), "", "42", [], UNASKED_CALLS),
        (said("42", "python", reason="stop"), WEATHER, "42", [], UNASKED_CALLS),
        (said("4", "python", reason="length"), "", "4", [], "length"),
        (said(" ", "python"), "", f"python({ROME})", [], ONLY_UNASKED_CALLS),
        (said("", "weather"), WEATHER, f"weather({ROME})", ["weather"], "tool_calls"),
        (said("So:", "weather", "python"), WEATHER, f"So:\nweather({ROME})", ["weather"], UNASKED_CALLS),
        (said("42", reason="stop"), WEATHER, "42", [], "stop"),
    ],
)
def test_only_offered_calls_are_passed_on(
    reply: Completion, tools: str, text: str, passed: list[str], reason: str
) -> None:
    found = settle(reply, tools)
    assert (found.text, found.finish_reason) == (text, reason)
    names = [one["function"]["name"] for one in json.loads(found.tool_calls or "[]")]
    assert names == passed


def test_a_call_is_demanded_of_one_tool_by_its_name_and_else_of_any() -> None:
    ask = Ask("m", Role.WORKER, (Message("user", "?"),), tools=WEATHER, top_p=0.5)
    two = json.dumps([*json.loads(WEATHER), {"type": "function", "function": {"name": "time"}}])

    def body(spec: ModelSpec, tools: str, must_call: bool) -> dict[str, Any]:
        asked = Ask("m", ask.role, ask.messages, tools=tools, must_call=must_call, top_p=ask.top_p)
        return request_body(spec, asked, stream=False)

    spec = ModelSpec("m")
    named = {"type": "function", "function": {"name": "weather"}}
    assert body(spec, WEATHER, True)["tool_choice"] == named
    assert body(spec, two, True)["tool_choice"] == "required"
    assert body(spec, two, False)["tool_choice"] == "auto"
    assert body(spec, two, False)["top_p"] == 0.5
    # A model that takes no temperature takes no top_p either.
    assert "top_p" not in body(ModelSpec("m", send_temperature=False), two, False)
