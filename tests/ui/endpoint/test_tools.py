"""Are tools asked for by the Worker, through both doors, and is what they give read as a part of the conversation?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from core.episode import EndReason
from tests.core.pool.faulty_server import Request, ok
from tests.ui.endpoint.server import episode_of, role_of, served, team

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def with_tools(request: Request) -> Any:
    """A Worker that asks for the weather until it knows it."""
    if role_of(request) != "Worker" or "sunny" in request.body["messages"][1]["content"]:
        return team("<answer>Take no umbrella.</answer>")(request)
    assert request.body["tools"] == [TOOL]
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
    }
    return ok("", tool_calls=[call])


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_asked_for_by_the_worker(tmp_path: Path, stream: bool) -> None:
    talk: list[Any] = [{"role": "user", "content": "Do I need an umbrella?"}]
    with served(tmp_path, with_tools) as one:
        if stream:
            deltas = [chunk.choices[0] for chunk in one.ask(messages=talk, tools=[TOOL], stream=True)]
            calls = [call.model_dump() for delta in deltas for call in delta.delta.tool_calls or ()]
            assert deltas[-1].finish_reason == "tool_calls"
        else:
            first = one.ask(messages=talk, tools=[TOOL])
            assert (first.choices[0].finish_reason, first.choices[0].message.content) == ("tool_calls", None)
            calls = [call.model_dump() for call in first.choices[0].message.tool_calls]
            kept = episode_of(one, first)
            assert kept.end_reason is EndReason.TOOL_CALLS
            assert kept.turns[-1].reply.text == 'weather({"city": "Rome"})'
        assert [(call["function"]["name"], call["id"]) for call in calls] == [("weather", "call_1")]
        talk += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{k: v for k, v in calls[0].items() if k != "index"}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "It is sunny."},
        ]
        second = one.ask(messages=talk, tools=[TOOL])
        assert second.choices[0].message.content == "Take no umbrella."
        question = episode_of(one, second).task.question
        called = 'weather({"city": "Rome"})'
        assert question.endswith(f"[assistant]\n{called}\n\n[tool]\nResult of {called}:\nIt is sunny.")
        assert "tools" not in one.models.requests[0].body  # a Thinker's call


def test_tools_by_the_responses_api(tmp_path: Path) -> None:
    flat: Any = {"type": "function", **TOOL["function"]}
    with served(tmp_path, with_tools) as one:
        first = one.client.responses.create(model="trinity", input="Do I need an umbrella?", tools=[flat])
        [call] = (item.model_dump() for item in first.output)
        assert (call["type"], call["name"], call["call_id"]) == ("function_call", "weather", "call_1")
        with one.client.responses.stream(model="trinity", input="Umbrella?", tools=[flat]) as told:
            kinds = [event.type for event in told]
        assert "response.function_call_arguments.done" in kinds
        again: Any = [
            {"role": "user", "content": "Do I need an umbrella?"},
            {key: call[key] for key in ("type", "call_id", "name", "arguments")},
            {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        ]
        second = one.client.responses.create(model="trinity", input=again, tools=[flat])
        assert second.output_text == "Take no umbrella."


def test_described_tools_count_against_the_ceiling(tmp_path: Path) -> None:
    """A million and more tokens of tools at a dollar a million could cost more than a dollar."""
    price = "price_in = 1.0\nprice_out = 0.0\nmax_tokens = 7"
    described: Any = {**TOOL, "function": {**TOOL["function"], "description": "x" * 999_000}}
    with served(tmp_path, with_tools, entry=price) as one:
        with pytest.raises(openai.APIStatusError) as caught:
            one.ask(tools=[described, described], extra_body={"trinity": {"max_cost_usd": 1.0}})
        assert caught.value.response.json()["error"]["code"] == "cost_ceiling"
        assert [role_of(request) for request in one.models.requests] == ["Thinker"]
