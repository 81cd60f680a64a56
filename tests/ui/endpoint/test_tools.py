"""Are tools asked for by the Worker, through both doors, and is what they give read as a part of the conversation?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import openai
import pytest

from core.episode import EndReason, Flag
from tests.builders.encoder import tiny_qwen3
from tests.builders.stores import new_store
from tests.core.pool.faulty_server import Request, fail, ok
from tests.ui.endpoint.server import (
    CHAT,
    Serve,
    Served,
    asking,
    episode_of,
    listening,
    raw,
    role_of,
    said_to,
    served,
    team,
)
from ui.endpoint.api import endpoint_app
from ui.endpoint.service import Service
from ui.endpoint.tiers import Endpoint, Tier

pytestmark = pytest.mark.integration
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


TIME: Any = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
FORCED: Any = {"type": "function", "function": {"name": "weather"}}
#: As the Responses API describes the same.
FLAT: Any = [{"type": "function", **one["function"]} for one in (TOOL, TIME)]
EVERY_ROLE = ("Thinker", "Worker", "Verifier")


def call(name: str, arguments: Any = '{"city": "Rome"}', id_: str | None = "call_1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any, text: str = "", of: tuple[str, ...] = ("Worker",)) -> Any:
    """Models of which those in some roles call tools, beside a text or in place of one."""

    def reply(request: Request) -> Any:
        if role_of(request) not in of:
            return team()(request)
        return ok(text, finish_reason="tool_calls", tool_calls=[*calls])

    return reply


def names(answer: Any) -> list[str]:
    """The tools that an answer asks to have called."""
    return [one.function.name for one in answer.choices[0].message.tool_calls or ()]


def with_tools(request: Request) -> Any:
    """A Worker that asks for the weather until it knows it."""
    if role_of(request) != "Worker" or "sunny" in said_to(request):
        return team("Take no umbrella.")(request)
    assert request.body["tools"] == [TOOL]
    return ok("", tool_calls=[call("weather")])


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_asked_for_by_the_worker(serve: Serve, stream: bool) -> None:
    talk: list[Any] = [{"role": "user", "content": "Do I need an umbrella?"}]
    one = serve(with_tools)
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
    asked = {key: value for key, value in calls[0].items() if key != "index"}
    talk += [
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It is sunny."},
    ]
    second = one.ask(messages=talk, tools=[TOOL])
    assert second.choices[0].message.content == "Take no umbrella."
    question = episode_of(one, second).task.question
    called = 'weather({"city": "Rome"})'
    assert question.endswith(f"[assistant]\n{called}\n\n[tool]\nResult of {called}:\nIt is sunny.")
    assert "tools" not in one.models.requests[0].body  # a Thinker's call


def test_tools_by_the_responses_api(serve: Serve) -> None:
    one = serve(with_tools)
    first = one.client.responses.create(model="trinity", input="Do I need an umbrella?", tools=FLAT[:1])
    [call] = (item.model_dump() for item in first.output)
    assert (call["type"], call["name"], call["call_id"]) == ("function_call", "weather", "call_1")
    with one.client.responses.stream(model="trinity", input="Umbrella?", tools=FLAT[:1]) as told:
        kinds = [event.type for event in told]
    assert "response.function_call_arguments.done" in kinds
    again: Any = [
        {"role": "user", "content": "Do I need an umbrella?"},
        {key: call[key] for key in ("type", "call_id", "name", "arguments")},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
    ]
    second = one.client.responses.create(model="trinity", input=again, tools=FLAT[:1])
    assert second.output_text == "Take no umbrella."


def test_described_tools_count_against_the_ceiling(serve: Serve) -> None:
    """A million and more tokens of tools at a dollar a million could cost more than a dollar."""
    price = "price_in = 1.0\nprice_out = 0.0\nmax_tokens = 7"
    described: Any = {**TOOL, "function": {**TOOL["function"], "description": "x" * 999_000}}
    one = serve(with_tools, entry=price)
    refusal = one.refused(tools=[described, described], extra_body={"trinity": {"max_cost_usd": 1.0}})
    assert refusal.code == "cost_ceiling"
    assert [role_of(request) for request in one.models.requests] == ["Thinker"]


# Calls that are demanded, and calls that nobody asked for


def allowed(mode: str) -> Any:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [FORCED]}}


@pytest.mark.parametrize(
    ("choice", "sent", "offered"),
    [
        (FORCED, FORCED, ["weather"]),
        ("required", "required", ["weather", "time"]),
        (allowed("required"), FORCED, ["weather"]),
        (allowed("auto"), "auto", ["weather"]),
        ("auto", "auto", ["weather", "time"]),
        ("none", None, []),
    ],
)
def test_a_choice_of_tools_reaches_the_worker_s_model(
    serve: Serve, choice: Any, sent: Any, offered: list[str]
) -> None:
    one = serve(calling(call("weather"), text="4"))
    answer = one.ask(tools=[TOOL, TIME], tool_choice=choice)
    thinker, worker, *_ = (request.body for request in one.models.requests)
    assert worker.get("tool_choice") == sent
    assert [tool["function"]["name"] for tool in worker.get("tools", ())] == offered
    assert "tools" not in thinker
    demanded = sent not in ("auto", None)
    assert ("The answer must be a call of" in said_to(one.models.requests[-1])) == demanded
    if offered:
        assert names(answer) == ["weather"]
    else:
        assert answer.choices[0].message.content == "4"
        assert answer.model_extra["trinity"]["turns"][1]["flags"] == ["unasked_tool_call"]


def test_a_named_tool_of_the_responses_api_is_demanded(serve: Serve) -> None:
    one = serve(calling(call("weather")))
    for choice in ({"type": "function", "name": "weather"}, "required"):
        answer = one.client.responses.create(
            model="trinity", input="?", tools=FLAT, tool_choice=cast(Any, choice)
        )
        assert [item.type for item in answer.output] == ["function_call"]
    assert one.models.requests[1].body["tool_choice"] == FORCED


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("effort", ["none", "high"])
def test_a_worker_that_calls_nothing_is_asked_again_and_then_it_is_an_error(
    one: Served, effort: str, stream: bool
) -> None:
    with pytest.raises(openai.APIError) as caught:
        [*one.ask(tools=[TOOL], tool_choice=FORCED, reasoning_effort=effort, stream=stream)]
    assert "no Worker made one" in str(caught.value)
    if not stream:
        assert isinstance(caught.value, openai.InternalServerError)
        assert caught.value.code == "no_tool_call"
    roles = [role_of(request) for request in one.models.requests]
    assert roles.count("Worker") >= 2
    assert "Verifier" not in roles, "there is nothing to judge"


def test_a_client_that_allows_one_turn_gets_one_try(one: Served) -> None:
    one_turn = {"trinity": {"max_turns": 1}}
    assert one.refused(tools=[TOOL], tool_choice="required", extra_body=one_turn).status_code == 502
    assert [role_of(request) for request in one.models.requests] == ["Worker"]


def test_a_server_that_cannot_demand_a_call_is_asked_without(tmp_path: Path) -> None:
    def reply(request: Request) -> Any:
        if request.body.get("tool_choice", "auto") != "auto":
            return fail(400, "tool_choice is not supported in this mode")
        return calling(call("weather"))(request)

    with served(tmp_path, reply) as one:
        for _ in range(2):
            assert names(one.ask(tools=[TOOL], tool_choice="required")) == ["weather"]
        choices = [request.body.get("tool_choice") for request in one.models.requests]
        assert choices == [None, FORCED, "auto", None, "auto"], "and remembered"


def test_one_call_at_a_time_is_the_first(serve: Serve) -> None:
    one = serve(calling(call("weather"), call("time", "{}", "call_2")))
    assert names(one.ask(tools=[TOOL, TIME])) == ["weather", "time"]
    assert names(one.ask(tools=[TOOL, TIME], parallel_tool_calls=False)) == ["weather"]


def test_every_call_has_an_id_of_its_own_in_every_answer(serve: Serve) -> None:
    one = serve(calling(*(call("weather", id_=id_) for id_ in ("", None, "x", "x"))))
    ids = [made.id for _ in range(2) for made in one.ask(tools=[TOOL]).choices[0].message.tool_calls]
    assert len([*filter(None, ids)]) == 8
    assert len({*ids} - {"x"}) == 6, "what was made up comes in no other answer"


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [({"city": "Rome"}, '{"city": "Rome"}'), (None, "{}"), ("", "{}"), ("city=Rome", "city=Rome")],
)
def test_arguments_reach_the_client_as_the_model_wrote_them(serve: Serve, arguments: Any, sent: str) -> None:
    one = serve(calling(call("weather", arguments)))
    answer = one.ask(tools=[TOOL])
    assert [made.function.arguments for made in answer.choices[0].message.tool_calls] == [sent]
    assert episode_of(one, answer).end_reason is EndReason.TOOL_CALLS


def test_calls_that_nobody_asked_for_end_nothing_and_reach_no_client(serve: Serve) -> None:
    unasked: Any = {"finish_reason": "tool_calls", "tool_calls": [call("python"), call("weather")]}
    one = serve(team("42", **unasked))
    answer = one.ask()
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("42", "stop")
    assert answer.choices[0].message.tool_calls is None
    kept = episode_of(one, answer)
    assert kept.end_reason is EndReason.ACCEPTED
    assert all(Flag.UNASKED_TOOL_CALL in turn.flags for turn in kept.turns)
    assert kept.turns[0].reply.text == "Count."
    # Of a Worker's calls the offered one is passed on; a Thinker's never is.
    answer = one.ask(tools=[TOOL])
    assert names(answer) == ["weather"]
    flags = [turn.flags for turn in episode_of(one, answer).turns]
    assert [Flag.UNASKED_TOOL_CALL in of for of in flags] == [True, True]


def test_a_request_of_which_every_reply_is_a_call_that_nobody_asked_for_has_no_answer(serve: Serve) -> None:
    one = serve(calling(call("python"), of=EVERY_ROLE))
    refusal = one.refused()
    assert refusal.code == "no_answer"
    kept = one.store.episodes.get(refusal.response.headers["x-trinity-episode"])
    assert (kept.end_reason, kept.answer, len(kept.turns)) == (EndReason.BUDGET, None, 5)
    assert kept.turns[1].reply.text == 'python({"city": "Rome"})', "people read what it asked for"
    assert {Flag.NO_ANSWER, Flag.UNASKED_TOOL_CALL} <= {*kept.turns[1].flags}


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_model_that_writes_in_this_process_is_offered_no_tools(tmp_path: Path, choice: str) -> None:
    """It would never hear of them: that is said before anything is written."""
    tiny_qwen3(tmp_path / "tiny", max_position_embeddings=4096)
    (tmp_path / "pool.toml").write_text('[[model]]\nname = "one"\nlocal = "tiny"\nmax_tokens = 4\n')
    store = new_store(tmp_path / "trinity.db")
    service = Service(
        store, str(tmp_path / "pool.toml"), Endpoint(tier=(Tier("trinity", "single:one", turns=1),))
    )
    with listening(endpoint_app(service, prefix="/v1")) as port:
        body = json.dumps(asking(tools=[TOOL], tool_choice=choice)).encode()
        status, _, told = raw(f"http://127.0.0.1:{port}", "POST", CHAT, body)
        assert (status, told["error"]["param"]) == (400, "tools")
        assert "'one' of this pool cannot call tools" in told["error"]["message"]
    service.close()
    store.close()
