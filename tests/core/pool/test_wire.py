"""The wire format: however a stream is cut into packets it says the same, and hostile JSON says nothing."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import Ask, Message, Role
from core.pool.client import retry_after_s
from core.pool.costs import Counts
from core.pool.spec import ModelSpec
from core.pool.tool_calls import in_words
from core.pool.wire import (
    Completion,
    Malformed,
    ServerError,
    StreamReader,
    read_completion,
    request_body,
    strict_json,
)
from tests.core.pool.faulty_server import chat, events

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(st.lists(TEXT, max_size=5), st.lists(st.integers(0, 2000), max_size=8), st.booleans())
def test_a_stream_reads_the_same_however_it_is_cut(
    pieces: list[str], cuts: list[int], carriage: bool
) -> None:
    body = events(*pieces)
    if carriage:
        body = body.replace(b"\n", b"\r\n")
    reader, given = StreamReader(), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    for start, end in zip(edges, edges[1:], strict=False):
        given += reader.feed(body[start:end])
    assert "".join(given) == reader.finish().text == "".join(pieces)


@given(TEXT, TEXT)
def test_a_json_body_reads_as_it_was_written(text: str, thought: str) -> None:
    completion = read_completion(chat(text, reasoning_content=thought))
    assert (completion.text, completion.reasoning) == (text, thought)


def read_stream(data: bytes) -> Completion:
    reader = StreamReader()
    reader.feed(data)
    return reader.finish()


@given(st.binary(max_size=300))
def test_noise_is_malformed_and_nothing_else(noise: bytes) -> None:
    with pytest.raises(Malformed):
        read_completion(noise)
    with pytest.raises(Malformed):
        read_stream(noise)


def test_a_long_line_takes_no_longer_in_small_packets() -> None:
    reader, began = StreamReader(), time.monotonic()
    for _ in range(40_000):
        reader.feed(b"x" * 100)
    assert time.monotonic() - began < 5  # 0.04 s; to look through it again with each packet took 45 s


def test_a_character_may_be_split_over_two_pieces() -> None:
    chunk = '{{"choices": [{{"delta": {{"content": "{}"}}, "finish_reason": {}}}]}}'
    lines = (chunk.format("\\ud83d", "null"), chunk.format("\\ude00", '"stop"'), "[DONE]")
    assert read_stream("".join(f"data: {line}\n\n" for line in lines).encode()).text == "\U0001f600"


def test_no_part_of_an_answer_is_one_wherever_it_is_cut() -> None:
    whole, streamed = chat("The answer is 42."), events("The answer ", "is 42.")
    for end in range(len(whole)):
        with pytest.raises(Malformed):
            read_completion(whole[:end])
    over = streamed.index(b"[DONE]") + len(b"[DONE]")  # what follows are line ends
    for end in range(over):
        with pytest.raises(Malformed):
            read_stream(streamed[:end])
    assert {read_stream(streamed[:end]).text for end in range(over, len(streamed))} == {"The answer is 42."}


def test_repeated_keys_are_found_at_any_depth() -> None:
    assert strict_json(b'[{"a": 1, "b": {"a": 2}}]') == [{"a": 1, "b": {"a": 2}}]
    with pytest.raises(Malformed, match="repeats a key"):
        strict_json(b'[{"a": {"b": 1, "c": 2, "b": 3}}]')


def test_asks_own_limits_win_over_the_entrys() -> None:
    spec = ModelSpec("m", temperature=0.5, max_tokens=100, extra={"top_p": 0.9})
    ask = Ask("m", Role.WORKER, (Message("user", "a\ud800"),), max_tokens=5, temperature=0.0)
    assert request_body(spec, ask, stream=True) == {
        "model": "m",
        "messages": [{"role": "user", "content": "a\ufffd"}],
        "max_tokens": 5,
        "temperature": 0.0,
        "top_p": 0.9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    json.dumps(request_body(spec, ask, stream=True)).encode()
    seeded = replace(spec, send_seed=True)
    asks = [replace(ask, seed=7, sample=sample) for sample in (0, 1, 2, 0)]
    assert len({request_body(seeded, one, stream=False)["seed"] for one in asks}) == 3, "repeats differ"


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "9", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 20 Nov 2026 20:00:09 GMT"}, None),  # no Date to read it against
        ({"retry-after": "Fri, 20 Nov 2026 20:00:09 GMT", "date": "Fri, 20 Nov 2026 20:00:00 GMT"}, 9.0),
        ({"retry-after": "Fri, 20 Nov 2026 19:00:00 GMT", "date": "Fri, 20 Nov 2026 20:00:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 20 Nov 2026 20:00:09 GMT", "date": "Fri, 20 Nov 2026 20:00:00 -0000"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers) == wait_s


# Server-sent events, as their standard has it


def chunk(text: str = "", finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return json.dumps({"choices": [choice], **more}).encode()


def event(data: bytes, *fields: bytes, end: bytes = b"\n") -> bytes:
    return end.join([*fields, b"data: " + data, b"", b""])


FORTY, TWO, STOP = event(chunk("forty")), event(chunk("-two")), event(chunk(finish="stop"))
DONE = event(b"[DONE]")
#: What a stream may hold besides, and that holds no text.
HARMLESS = {
    "a comment": b": ping\n\n",
    "null": event(b"null"),
    "empty data": b"data:\n\n",
    "data without a colon": b"data\n\n",
    "an empty object": event(b"{}"),
    "choices null": event(b'{"choices": null, "usage": null}'),
    "no choices": event(b'{"id": "x"}'),
    "a choice that is null": event(b'{"choices": [null]}'),
    "delta null": event(b'{"choices": [{"delta": null}]}'),
    "no delta": event(b'{"choices": [{"index": 0, "finish_reason": null}]}'),
    "no content": event(b'{"choices": [{"delta": {"role": "assistant"}, "finish_reason": ""}]}'),
    "content null": event(b'{"choices": [{"delta": {"content": null}, "finish_reason": "null"}]}'),
    "a ping": event(b'{"type": "ping", "message": "still here"}', b"event: ping"),
    "a ping that is no JSON": event(b"50 %", b"event: progress"),
    "a comment and fields": b": keep-alive\nevent: x\nid: 1\n\n",
    "fields": b"id: 7\nretry: 1000\nwhatever: x\nevent\n\n",
    "a number": event(b"17"),
    "an error that is none": event(b'{"choices": [], "error": null}'),
    "blank lines": b"\n\n\n",
    "filters": event(b'{"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}'),
}


@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
def test_what_the_standard_allows_and_holds_no_text_is_passed_over(name: str, end: bytes) -> None:
    one = HARMLESS[name]
    body = (b"\xef\xbb\xbf" + one + FORTY + one + TWO + one + STOP + one + DONE).replace(b"\n", end)
    for size in (1, 2, 7, len(body)):
        reader = StreamReader()
        given = [piece for at in range(0, len(body), size) for piece in reader.feed(body[at : at + size])]
        assert "".join(given) == reader.finish().text == "forty-two", size


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + FORTY + TWO + STOP + DONE,  # a byte order mark before the first event
        FORTY + TWO + STOP + b"data:[DONE]",
        FORTY + TWO + STOP + b"data:  [DONE]  \r",
        b"event: message\nid: 1\n" + FORTY + TWO + STOP + DONE,
        event(b'{"choices": [{"delta":\ndata: {"content": "forty-two"}, "finish_reason": "stop"}]}') + DONE,
        event(b'{"choices": [{"message": {"content": "forty-two"}, "finish_reason": "stop"}]}') + DONE,
        FORTY
        + TWO
        + event(b'{"choices": [{"message": {"content": "forty-two"}, "finish_reason": "stop"}]}')
        + DONE,
        FORTY + TWO + event(b'{"choices": [{"delta": {}, "finish_reason": {"type": "stop"}}]}') + DONE,
        FORTY.replace(b"data: ", b"data:") + TWO + STOP + DONE,
    ],
)
def test_a_stream_may_be_written_in_many_ways(body: bytes) -> None:
    assert read_stream(body).text == "forty-two"


def test_an_event_that_its_blank_line_does_not_end_is_none() -> None:
    with pytest.raises(Malformed, match="without a finish reason"):
        read_stream(FORTY + TWO + STOP.rstrip(b"\n"))


@pytest.mark.parametrize("usage", ["usage", "x_groq", "choice"])
def test_usage_is_found_wherever_a_server_puts_it(usage: str) -> None:
    told = {"prompt_tokens": 11, "completion_tokens": 7}
    last = {
        "usage": {"choices": [], "usage": told},
        "x_groq": {"choices": [], "x_groq": {"usage": told}},
        "choice": {"choices": [{"delta": {}, "usage": told}]},
    }[usage]
    zeros = event(chunk(usage=dict.fromkeys(told, 0)))
    found = read_stream(FORTY + TWO + STOP + event(json.dumps(last).encode()) + zeros + DONE)
    assert found.counts == Counts(11, 7)


ERRORS = {
    "in its place": event(b'{"error": {"message": "out of memory", "code": 500}}'),
    "in a list": event(b'[{"error": {"message": "out of memory"}}]'),
    "by its name": event(b'{"message": "out of memory"}', b"event: error"),
    "by its name, in words": event(b"out of memory", b"event: error"),
    "by its kind": event(b'{"object": "error", "message": "out of memory"}'),
    "in a choice": event(b'{"choices": [{"delta": {}, "error": {"message": "out of memory"}}]}'),
    "beside a choice": event(b'{"choices": [{"delta": {"content": ""}}], "error": "out of memory"}'),
}


@pytest.mark.parametrize("where", ERRORS)
@pytest.mark.parametrize("text", [b"", FORTY], ids=["no text", "half a text"])
def test_an_error_in_a_stream_is_one_wherever_it_stands(where: str, text: bytes) -> None:
    with pytest.raises(ServerError) as raised:
        read_stream(text + ERRORS[where] + STOP + DONE)
    assert raised.value.words.text == "out of memory"
    assert raised.value.counts == (Counts() if text else None), "half a text may be billed"


@pytest.mark.parametrize("finish", ["error", "abort", "network_error", "CANCELLED", "provider_error"])
def test_half_a_text_of_a_server_that_broke_off_is_no_reply(finish: str) -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 7}
    for body in (
        FORTY + event(chunk(finish=finish)) + DONE,
        FORTY + event(chunk(finish=finish)),
        FORTY + STOP + event(chunk(finish=finish)) + DONE,
    ):
        with pytest.raises(ServerError) as raised:
            read_stream(body)
        assert raised.value.finish_reason == finish
    with pytest.raises(ServerError) as raised:
        read_completion(chat("forty", finish_reason=finish, usage=usage))
    assert (raised.value.finish_reason, raised.value.counts) == (finish, Counts(11, 7))


def test_a_choice_without_a_message_is_an_empty_reply_where_it_was_cut() -> None:
    body = b'{"choices": [{"finish_reason": "%b", "message": null}], "usage": {"prompt_tokens": 4, "total_tokens": 9}}'
    found = read_completion(body % b"length")
    assert (found.text, found.finish_reason, found.counts) == ("", "length", Counts(4, 5))
    assert read_completion(body % b"content_filter").text == ""
    with pytest.raises(Malformed, match=r"choices\.0\.message"):
        read_completion(body % b"stop")


def test_calls_and_results_are_sent_as_they_were_made() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]
    talk = (
        Message("user", "Late?", '{"name": "ann"}'),
        Message("assistant", "", json.dumps({"tool_calls": calls})),
        Message("tool", "12:00", '{"tool_call_id": "c"}'),
    )
    tools = json.dumps([{"type": "function", "function": {"name": "clock"}}])
    body = request_body(
        ModelSpec("m"), Ask("m", Role.THINKER, talk, tools=tools, may_call=False), stream=False
    )
    assert body["messages"] == [
        {"role": "user", "content": "Late?", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "12:00", "tool_call_id": "c"},
    ]
    assert (body["tools"], body["tool_choice"]) == (json.loads(tools), "none")
    late, called, result = ("user", "Late?"), ("assistant", "clock({})"), "Result of clock({}):\n12:00"
    assert [one.parts[:2] for one in in_words(talk)] == [late, called, ("user", result)]
    again = in_words([*talk, Message("user", "And now?")])
    assert [one.parts for one in again] == [late, called, ("user", f"{result}\n\nAnd now?")]


def test_where_there_is_no_system_role_it_is_put_before_the_users_words() -> None:
    def sent(*messages: tuple[str, str], system_role: bool = False) -> list[tuple[str, str]]:
        spec = ModelSpec("m", system_role=system_role)
        ask = Ask("m", Role.WORKER, tuple(Message(role, text) for role, text in messages))  # type: ignore[arg-type]
        return [(one["role"], one["content"]) for one in request_body(spec, ask, stream=False)["messages"]]

    system, user, said = ("system", "Be brief."), ("user", "1 + 1?"), ("assistant", "2")
    assert sent(system, user, system_role=True) == [system, user]
    assert sent(user, said, user) == [user, said, user]
    assert sent(system, user, said, user) == [("user", "Be brief.\n\n1 + 1?"), said, user]
    assert sent(user, said, system, user) == [user, said, ("user", "Be brief.\n\n1 + 1?")]
    assert sent(system) == [("user", "Be brief.")]
    assert sent(system, said, system) == [said, ("user", "Be brief.\n\nBe brief.")]
