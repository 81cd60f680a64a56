"""Are tools asked for by the Worker, through both doors, and is what they give read as a part of the conversation?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import openai
import pytest

from core.episode import EndReason, Flag
from tests.core.pool.faulty_server import Request, fail, ok
from tests.ui.endpoint.server import episode_of, role_of, served, team

pytestmark = pytest.mark.integration
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


# Calls that are demanded, and calls that nobody asked for

TIME: Any = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
FORCED: Any = {"type": "function", "function": {"name": "weather"}}


def call(name: str, arguments: Any = '{"city": "Rome"}', id_: str | None = "call_1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any, text: str | None = None, of: tuple[str, ...] = ("Worker",), **message: Any) -> Any:
    """Models of which those in some roles call tools, beside a text or in place of one."""

    def reply(request: Request) -> Any:
        if role_of(request) not in of:
            return team()(request)
        said = text if text is not None else ("" if message or calls else "<answer>4</answer>")
        return ok(said, finish_reason="tool_calls", **({"tool_calls": [*calls]} if calls else {}), **message)

    return reply


def names(calls: Any) -> list[str]:
    return [one.function.name for one in calls or ()]


@pytest.mark.parametrize(
    ("choice", "sent", "offered"),
    [
        (FORCED, FORCED, ["weather"]),
        ("required", "required", ["weather", "time"]),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [FORCED]}},
            FORCED,
            ["weather"],
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FORCED]}},
            "auto",
            ["weather"],
        ),
        ("auto", "auto", ["weather", "time"]),
        ("none", None, []),
    ],
)
def test_a_choice_of_tools_reaches_the_worker_s_model(
    tmp_path: Path, choice: Any, sent: Any, offered: list[str]
) -> None:
    with served(tmp_path, calling(call("weather"), text="<answer>4</answer>")) as one:
        answer = one.ask(tools=[TOOL, TIME], tool_choice=choice)
        thinker, worker, *_ = (request.body for request in one.models.requests)
        assert worker.get("tool_choice") == sent
        assert [tool["function"]["name"] for tool in worker.get("tools", ())] == offered
        assert "tools" not in thinker
        demanded = sent not in ("auto", None)
        assert ("The answer must be a call of" in worker["messages"][1]["content"]) == demanded
        if offered:
            assert names(answer.choices[0].message.tool_calls) == ["weather"]
        else:
            assert answer.choices[0].message.content == "4"
            assert answer.model_extra["trinity"]["turns"][1]["flags"] == ["unasked_tool_call"]


def test_a_named_tool_of_the_responses_api_is_demanded(tmp_path: Path) -> None:
    flat: Any = [{"type": "function", **one["function"]} for one in (TOOL, TIME)]
    with served(tmp_path, calling(call("weather"))) as one:
        for choice in ({"type": "function", "name": "weather"}, "required"):
            answer = one.client.responses.create(
                model="trinity", input="?", tools=flat, tool_choice=cast(Any, choice)
            )
            assert [item.type for item in answer.output] == ["function_call"]
        assert one.models.requests[1].body["tool_choice"] == FORCED


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("effort", ["none", "high"])
def test_a_worker_that_calls_nothing_is_asked_again_and_then_it_is_an_error(
    tmp_path: Path, effort: str, stream: bool
) -> None:
    with served(tmp_path) as one:
        with pytest.raises(openai.APIError) as caught:
            [*one.ask(tools=[TOOL], tool_choice=FORCED, reasoning_effort=effort, stream=stream)]
        assert "no Worker made one" in str(caught.value)
        if not stream:
            assert isinstance(caught.value, openai.InternalServerError)
            assert caught.value.code == "no_tool_call"
        roles = [role_of(request) for request in one.models.requests]
        assert roles.count("Worker") >= 2
        assert "Verifier" not in roles, "there is nothing to judge"


def test_a_client_that_allows_one_turn_gets_one_try(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        with pytest.raises(openai.InternalServerError):
            one.ask(tools=[TOOL], tool_choice="required", extra_body={"trinity": {"max_turns": 1}})
        assert [role_of(request) for request in one.models.requests] == ["Worker"]


def test_a_server_that_cannot_demand_a_call_is_asked_without(tmp_path: Path) -> None:
    def reply(request: Request) -> Any:
        if request.body.get("tool_choice", "auto") != "auto":
            return fail(400, "tool_choice is not supported in this mode")
        return calling(call("weather"))(request)

    with served(tmp_path, reply) as one:
        for _ in range(2):
            answer = one.ask(tools=[TOOL], tool_choice="required")
            assert names(answer.choices[0].message.tool_calls) == ["weather"]
        choices = [request.body.get("tool_choice") for request in one.models.requests]
        assert choices == [None, FORCED, "auto", None, "auto"], "and remembered"


def test_one_call_at_a_time_is_the_first(tmp_path: Path) -> None:
    with served(tmp_path, calling(call("weather"), call("time", "{}", "call_2"))) as one:
        both = one.ask(tools=[TOOL, TIME])
        assert names(both.choices[0].message.tool_calls) == ["weather", "time"]
        first = one.ask(tools=[TOOL, TIME], parallel_tool_calls=False)
        assert names(first.choices[0].message.tool_calls) == ["weather"]


def test_every_call_has_an_id_of_its_own_in_every_answer(tmp_path: Path) -> None:
    calls = [
        call("weather", id_=""),
        call("weather", id_=None),
        call("weather", id_="x"),
        call("weather", id_="x"),
    ]
    with served(tmp_path, calling(*calls)) as one:
        ids = [made.id for _ in range(2) for made in one.ask(tools=[TOOL]).choices[0].message.tool_calls]
        assert len([*filter(None, ids)]) == 8
        assert len({*ids} - {"x"}) == 6, "what was made up comes in no other answer"


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [({"city": "Rome"}, '{"city": "Rome"}'), (None, "{}"), ("", "{}"), ("city=Rome", "city=Rome")],
)
def test_arguments_reach_the_client_as_the_model_wrote_them(
    tmp_path: Path, arguments: Any, sent: str
) -> None:
    with served(tmp_path, calling(call("weather", arguments))) as one:
        answer = one.ask(tools=[TOOL])
        assert [made.function.arguments for made in answer.choices[0].message.tool_calls] == [sent]
        assert episode_of(one, answer).end_reason is EndReason.TOOL_CALLS


def test_calls_that_nobody_asked_for_end_nothing_and_reach_no_client(tmp_path: Path) -> None:
    every = ("Thinker", "Worker", "Verifier")

    def beside_text(request: Request) -> Any:
        tag = request.body["messages"][1]["content"].rpartition("VERDICT-")[2].split(":")[0]
        texts = {"Thinker": "<suggestion>Count.</suggestion>", "Worker": "<answer>42</answer>"}
        text = texts.get(role_of(request), f"Fine.\nVERDICT-{tag}: ACCEPT")
        return ok(text, finish_reason="tool_calls", tool_calls=[call("python"), call("weather")])

    with served(tmp_path, beside_text) as one:
        answer = one.ask()
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("42", "stop")
        assert answer.choices[0].message.tool_calls is None
        kept = episode_of(one, answer)
        assert kept.end_reason is EndReason.ACCEPTED
        assert all(Flag.UNASKED_TOOL_CALL in turn.flags for turn in kept.turns)
        assert kept.turns[0].reply.text == "<suggestion>Count.</suggestion>"
        # Of a Worker's calls the offered one is passed on; a Thinker's never is.
        answer = one.ask(tools=[TOOL])
        assert names(answer.choices[0].message.tool_calls) == ["weather"]
        assert [Flag.UNASKED_TOOL_CALL in turn.flags for turn in episode_of(one, answer).turns] == [
            True,
            True,
        ]
    with served(tmp_path / ".", calling(call("python"), of=every)) as one:
        with pytest.raises(openai.APIStatusError) as caught:
            one.ask()
        assert caught.value.response.json()["error"]["code"] == "no_answer"
        kept = one.store.episodes.get(caught.value.response.headers["x-trinity-episode"])
        assert (kept.end_reason, kept.answer, len(kept.turns)) == (EndReason.BUDGET, None, 5)
        assert kept.turns[1].reply.text == 'python({"city": "Rome"})', "people read what it asked for"
        assert {Flag.NO_ANSWER, Flag.UNASKED_TOOL_CALL} <= {*kept.turns[1].flags}
