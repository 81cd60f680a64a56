"""Do clients of Anthropic's API get from `/v1/messages` what others get from the other doors?"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from core.episode import EndReason
from storage.shelves.endpoint import Limits
from tests.core.pool.faulty_server import Answer, Request, fail, ok
from tests.ui.endpoint.server import CHAT, PRICES, Serve, Served, raw, role_of, said_to, served, team
from ui.endpoint.tiers import Endpoint, Tier

pytestmark = pytest.mark.integration
MESSAGES = "/v1/messages"
TALK: list[Any] = [{"role": "user", "content": "How many?"}]
WEATHER: Any = {
    "name": "weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CLOCK: Any = {"name": "clock", "input_schema": {"type": "object"}}
#: A single call of a Worker answers.
ONE_CALL = Endpoint(tier=(Tier(name="trinity", policy="single:a", turns=1),))


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": "trinity", "max_tokens": 500, "messages": TALK, **fields}


@pytest.fixture
def client(one: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=one.url, api_key="none", max_retries=0) as found:
        yield found


_CLIENTS = list[Anthropic]()


def asked_of(one: Served, **options: Any) -> Anthropic:
    """A client of this endpoint, which is closed at the end of the test."""
    _CLIENTS.append(Anthropic(base_url=one.url, max_retries=0, **{"api_key": "none", **options}))
    return _CLIENTS[-1]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Leave no client of a test open."""
    yield
    while _CLIENTS:
        _CLIENTS.pop().close()


def text_of(message: Any) -> str:
    """The text of an answer that is one."""
    [block] = message.content
    return str(block.text)


def trace_of(message: Any) -> Any:
    return message.model_extra["trinity"]


def error_of(refusal: Any) -> Any:
    """What the error of a refused request says."""
    return refusal.value.body["error"]


def episode_of(one: Served, message: Any) -> Any:
    return one.store.episodes.get(trace_of(message)["episode"])


def calling(*calls: tuple[str, str, str], text: str = "") -> Callable[[Request], Answer]:
    """Models whose Worker calls tools: (id, name, arguments)."""
    made = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id_, name, arguments in calls
    ]

    def reply(request: Request) -> Answer:
        if role_of(request) != "Worker":
            return team()(request)
        return ok(text, finish_reason="tool_calls", tool_calls=made)

    return reply


# Whole answers


def test_a_question_is_answered_with_who_answered_it(one: Served, client: Anthropic) -> None:
    said = client.messages.with_raw_response.create(
        **asking(system=[{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]),
        metadata={"user_id": "u-1"},
    )
    message = said.parse()
    assert (message.type, message.role, message.model) == ("message", "assistant", "trinity")
    assert [(block.type, getattr(block, "text", "")) for block in message.content] == [("text", "forty-two")]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    kept = episode_of(one, message)
    assert message.id == f"msg_{kept.id}"
    assert said.headers["x-trinity-episode"] == kept.id
    assert kept.task.question == "[system]\nBe brief.\n\nBe kind.\n\n[user]\nHow many?"
    assert kept.meta == {"user_id": "u-1"}
    assert [turn["role"] for turn in trace_of(message)["turns"]] == [
        "thinker",
        "worker",
        "verifier",
    ]
    assert one.models.requests[1].body["max_tokens"] == 500
    assert {"system", "user"} == {one["role"] for one in one.models.requests[1].body["messages"][:2]}


def test_tokens_that_were_read_before_are_counted_apart(serve: Serve) -> None:
    one = serve(team(cached={"Worker": 4, "Thinker": 2}))
    usage = asked_of(one).messages.create(**asking()).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (7, 4, 7)
    assert usage.model_extra == {
        "orchestration_input_tokens": 22,
        "orchestration_input_cached_tokens": 2,
        "orchestration_output_tokens": 14,
    }


@pytest.mark.parametrize(
    ("finish", "text", "stops", "reason", "sequence", "answer"),
    [
        ("stop", "one two three", [], "end_turn", None, "one two three"),
        ("stop", "one two three", ["zzz", " three", " two"], "stop_sequence", " two", "one"),
        ("length", "one two three", ["zzz"], "max_tokens", None, "one two three"),
        ("content_filter", "I cannot.", [], "refusal", None, "I cannot."),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_why_an_answer_ends_is_said_in_anthropic_s_words(
    serve: Serve, finish: str, text: str, stops: Any, reason: str, sequence: Any, answer: str, stream: bool
) -> None:
    one = serve(ok(text, finish_reason=finish), endpoint=ONE_CALL)
    asked = asking(stop_sequences=stops)
    if stream:
        with asked_of(one).messages.stream(**asked) as told:
            message = told.get_final_message()
    else:
        message = asked_of(one).messages.create(**asked)
    assert "".join(block.text for block in message.content if block.type == "text") == answer
    assert (message.stop_reason, message.stop_sequence) == (reason, sequence)


@pytest.mark.process
def test_an_answer_of_json_is_asked_for_and_effort_is_a_turn_budget(serve: Serve) -> None:
    one = serve(team('{"n": 1}'))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted: Any = {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    message = asked_of(one).messages.create(**asking(output_config=wanted))
    assert json.loads(text_of(message)) == {"n": 1}
    assert trace_of(message)["turn_budget"] == 2
    wrong = serve(team("no JSON"))
    with pytest.raises(anthropic.InternalServerError) as caught:
        asked_of(wrong).messages.create(**asking(output_config=wanted))
    assert "no JSON of the form" in str(caught.value)


# Tools


def test_a_tool_is_called_and_its_result_is_read(serve: Serve) -> None:
    def reply(request: Request) -> Answer:
        if role_of(request) != "Worker" or "sunny" in said_to(request):
            return team("Take no umbrella.")(request)
        return calling(("toolu_1", "weather", '{"city": "Rome"}'))(request)

    one = serve(reply)
    client = asked_of(one)
    talk: list[Any] = [{"role": "user", "content": "Do I need an umbrella?"}]
    first = client.messages.create(**asking(messages=talk, tools=[WEATHER]))
    [block] = first.content
    assert block.type == "tool_use"
    assert (block.id, block.name, block.input) == ("toolu_1", "weather", {"city": "Rome"})
    assert first.stop_reason == "tool_use"
    assert episode_of(one, first).end_reason is EndReason.TOOL_CALLS
    [tool] = one.models.requests[-1].body["tools"]
    assert tool["function"] == {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": WEATHER["input_schema"],
    }
    result = {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "sunny"}]}
    talk += [
        {"role": "assistant", "content": first.content},  # as the client got it
        {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]},
    ]
    one.begin(reply)
    second = client.messages.create(**asking(messages=talk, tools=[WEATHER]))
    assert text_of(second) == "Take no umbrella."
    sent = one.models.requests[1].body["messages"]
    assert [message["role"] for message in sent[:4]] == ["user", "assistant", "tool", "user"]
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'
    assert (sent[2]["tool_call_id"], sent[2]["content"]) == ("toolu_1", "sunny")


@pytest.mark.parametrize(
    ("choice", "sent", "offered"),
    [
        ({"type": "auto"}, "auto", ["weather", "clock"]),
        ({"type": "any"}, "required", ["weather", "clock"]),
        (
            {"type": "tool", "name": "weather"},
            {"type": "function", "function": {"name": "weather"}},
            ["weather", "clock"],
        ),
        ({"type": "none"}, None, []),
    ],
)
def test_a_choice_of_tools_reaches_the_worker_s_model(
    serve: Serve, choice: Any, sent: Any, offered: list[str]
) -> None:
    one = serve(calling(("c1", "weather", "{}"), ("c2", "clock", "{}"), text="4"))
    message = asked_of(one).messages.create(**asking(tools=[WEATHER, CLOCK], tool_choice=choice))
    worker = one.models.requests[1].body
    assert worker.get("tool_choice") == sent
    named = [tool["function"]["name"] for tool in worker.get("tools", ())]
    if choice["type"] == "tool":
        assert named == ["weather"], "the others may not be called"
        assert [block.name for block in message.content if block.type == "tool_use"] == ["weather"]
    else:
        assert named == offered
        assert [block.name for block in message.content if block.type == "tool_use"] == offered


def test_one_tool_at_a_time_and_arguments_that_are_no_object(serve: Serve) -> None:
    one = serve(calling(("c1", "weather", "Rome"), ("c2", "clock", '{"zone": NaN}')))
    client = asked_of(one)
    both = client.messages.create(**asking(tools=[WEATHER, CLOCK]))
    assert [block.input for block in both.content if block.type == "tool_use"] == [
        {"input": "Rome"},
        {"input": '{"zone": NaN}'},
    ]
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
    single = client.messages.create(**asking(tools=[WEATHER, CLOCK], tool_choice=choice))
    assert [block.name for block in single.content if block.type == "tool_use"] == ["weather"]


def test_a_demanded_call_that_no_worker_makes_is_an_error(one: Served, client: Anthropic) -> None:
    with pytest.raises(anthropic.InternalServerError) as caught:
        client.messages.create(**asking(tools=[WEATHER], tool_choice={"type": "any"}))
    assert "no Worker made one" in str(caught.value)


def test_a_failed_tool_and_an_image_that_a_tool_gave_are_read(tmp_path: Path) -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png}}
    talk: list[Any] = [
        {"role": "user", "content": [picture, {"type": "text", "text": "Alike?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "a", "name": "look", "input": {}},
                {"type": "tool_use", "id": "b", "name": "look", "input": {"at": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "no file", "is_error": True},
                {"type": "tool_result", "tool_use_id": "b", "content": [picture]},
            ],
        },
    ]
    entry = f"{PRICES}\nimages = true"
    with served(tmp_path, ok("Yes."), endpoint=ONE_CALL, entry=entry) as one:
        message = asked_of(one).messages.create(**asking(messages=talk))
        assert text_of(message) == "Yes."
        assert trace_of(message)["left_aside"] == ["messages.content.thinking"]
        sent = one.models.requests[0].body["messages"]
        source = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}
        assert sent[0]["content"] == [source, {"type": "text", "text": "Alike?"}]
        assert sent[1]["content"] == "Let me look."
        assert [call["id"] for call in sent[1]["tool_calls"]] == ["a", "b"]
        assert [one["content"] for one in sent[2:4]] == ["The tool failed:\nno file", "[image]"]
        assert sent[4]["role"] == "user"
        assert sent[4]["content"][1:] == [source]


# Streams


def test_a_stream_tells_progress_in_pings_and_ends_in_the_message(one: Served, client: Anthropic) -> None:
    with client.messages.stream(**asking()) as told:
        kinds = [event.type for event in told]
        message = told.get_final_message()
    assert text_of(message) == "forty-two"
    assert message.usage.output_tokens == 7
    assert f"msg_{trace_of(message)['episode']}" == message.id
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    # As they come over the wire: a client passes over the pings.
    text = one.post(MESSAGES, asking(stream=True))[1]
    events = [
        (block.split("\n")[0].removeprefix("event: "), json.loads(block.split("data: ", 1)[1]))
        for block in text.split("\n\n")
        if "data: " in block
    ]
    assert all(name == event["type"] for name, event in events)
    told_of = [event["trinity"]["type"] for name, event in events if name == "ping"]
    assert [kind for kind in told_of if kind != "turn.text"] == ["turn.started", "turn.finished"] * 3
    names = [name for name, _ in events if name != "ping"]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0][1]["trinity"]["type"] == "started"
    assert events[-2][1]["trinity"]["end_reason"] == "accepted"
    quiet = one.post(MESSAGES, asking(stream=True, trinity={"progress": False}))[1]
    assert "event: ping" not in quiet


def test_streamed_tool_calls_come_as_blocks(serve: Serve) -> None:
    one = serve(calling(("c1", "weather", '{"city": "Rome"}'), ("c2", "clock", "{}")))
    with asked_of(one).messages.stream(**asking(tools=[WEATHER, CLOCK])) as told:
        pieces = [event.partial_json for event in told if event.type == "input_json"]
        message = told.get_final_message()
    assert message.stop_reason == "tool_use"
    assert [(block.id, block.input) for block in message.content if block.type == "tool_use"] == [
        ("c1", {"city": "Rome"}),
        ("c2", {}),
    ]
    assert "".join(pieces) == '{"city": "Rome"}{}'


def test_an_error_in_a_stream_is_an_event_that_clients_raise(serve: Serve) -> None:
    one = serve(fail(503))
    with pytest.raises(anthropic.APIStatusError) as caught, asked_of(one).messages.stream(**asking()) as told:
        told.get_final_message()
    assert "No model that may be chosen could be asked" in str(caught.value)
    text = one.post(MESSAGES, asking(stream=True))[1]
    last = json.loads(text.strip().rsplit("data: ", 1)[1])
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")
    assert last["trinity"]["end_reason"] == "error"


def test_the_text_of_the_last_turn_streams_as_it_is_written(serve: Serve) -> None:
    long = " ".join(f"word{n}" for n in range(40))
    one = serve(ok(long), endpoint=ONE_CALL)
    with asked_of(one).messages.stream(**asking()) as told:
        assert "".join(told.text_stream) == long


def test_a_client_that_leaves_ends_its_request_before_the_next_call(tmp_path: Path) -> None:
    with served(
        tmp_path, team(wait_s=0.4), endpoint=Endpoint(tier=(Tier("trinity", policy="single:a"),))
    ) as one:
        connection = HTTPConnection(one.url.removeprefix("http://"), timeout=10)
        body = json.dumps(asking())
        connection.request("POST", MESSAGES, body, {"Content-Type": "application/json"})
        until = time.monotonic() + 5
        while not one.models.requests and time.monotonic() < until:
            time.sleep(0.01)
        connection.close()
        one.until_idle()
        assert len(one.models.requests) == 1
        [run] = one.store.runs.list()
        [kept] = one.store.episodes.of_run(run.id)
        assert kept.end_reason == "cancelled"


# Keys, limits, feedback


def test_a_key_is_sent_as_x_api_key_or_as_a_bearer_token(tmp_path: Path) -> None:
    with served(tmp_path, needs_key=True) as one:
        _, key = one.store.endpoint.add_key("laptop", Limits(leave_out=("b",)))
        for options in ({"api_key": key}, {"auth_token": key, "api_key": None}):
            message = asked_of(one, **options).messages.create(**asking(model="both"))
            assert trace_of(message)["left_out"] == ["b"]
            row = one.store.endpoint.key_of(trace_of(message)["episode"])
            assert row == one.store.endpoint.keys()[0].id
        for path in (CHAT, "/v1/models"):
            method = "GET" if path == "/v1/models" else "POST"
            body = json.dumps({"model": "trinity", "messages": TALK}).encode() if method == "POST" else b""
            assert raw(one.url, method, path, body, x_api_key=key)[0] == 200
        both = {"Authorization": "Bearer none", "x_api_key": key}  # clients that are given one send both
        assert one.post(MESSAGES, asking(), **both)[0] == 200
        for wrong in ("trinity-nothing", ""):
            with pytest.raises(anthropic.AuthenticationError) as caught:
                asked_of(one, api_key=wrong or "none").messages.create(**asking())
            assert error_of(caught)["type"] == "authentication_error"
            assert "x-api-key" in str(caught.value)


def test_ceilings_opt_outs_feedback_and_privacy_hold_at_this_door_too(one: Served, client: Anthropic) -> None:
    with pytest.raises(anthropic.RateLimitError) as caught:
        client.messages.create(**asking(), extra_body={"trinity": {"max_cost_usd": 0.0}})
    assert error_of(caught)["code"] == "cost_ceiling"
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(**asking(model="both"), extra_body={"trinity": {"leave_out": ["a", "b"]}})
    assert error_of(refused)["code"] == "empty_pool"
    message = client.messages.create(**asking(), extra_body={"trinity": {"store_text": False}})
    assert episode_of(one, message).task.question == "(not kept)"
    status, said = one.post("/v1/feedback", {"episode": message.id, "right": True})
    assert (status, said["episode"]) == (200, message.id.removeprefix("msg_"))


def test_the_door_is_stored_with_the_request(one: Served, client: Anthropic) -> None:
    message = client.messages.create(**asking())
    with one.store.engine.connect() as connection:
        rows = connection.exec_driver_sql("select episode_id, door from served").fetchall()
    assert (message.id.removeprefix("msg_"), "messages") in [tuple(row) for row in rows]


def test_many_clients_are_served_side_by_side(one: Served, client: Anthropic) -> None:
    answers: list[str] = []

    def ask(number: int) -> None:
        with client.messages.stream(
            **asking(messages=[{"role": "user", "content": f"Question {number}?"}])
        ) as told:
            answers.append(told.get_final_text())

    threads = [threading.Thread(target=ask, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["forty-two"] * 8


@pytest.mark.parametrize("stream", [False, True])
def test_its_tool_runner_takes_a_task_to_its_end(serve: Serve, stream: bool) -> None:
    """It asks for its conversation to be kept in a thread, and goes on without one where it is told to."""

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Tells the weather.

        Args:
            city: Where.
        """
        return f"It is sunny in {city}."

    def worker(request: Request) -> Answer:
        if role_of(request) != "Worker" or "sunny in Rome" in said_to(request):
            return team("Take no umbrella.")(request)
        function = {"name": "weather", "arguments": '{"city": "Rome"}'}
        return ok("", tool_calls=[{"id": "", "type": "function", "function": function}])

    one = serve(worker, endpoint=ONE_CALL)
    asked: Any = {"model": "trinity", "max_tokens": 500, "messages": TALK, "tools": [weather]}
    runner: Any = asked_of(one).beta.messages.tool_runner(**asked, stream=stream)
    told = [one.get_final_message() if stream else one for one in runner]
    assert [one.stop_reason for one in told] == ["tool_use", "end_turn"]
    assert told[-1].content[0].text == "Take no umbrella."


def test_a_thread_is_refused_in_the_words_that_its_clients_read(serve: Serve) -> None:
    status, answer = serve(endpoint=ONE_CALL).post(MESSAGES, asking(thread={"type": "create"}))
    assert (status, answer["error"]["param"]) == (400, "thread")
    assert "send the whole conversation in messages" in answer["error"]["message"]
    assert answer["error"]["details"] == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }
