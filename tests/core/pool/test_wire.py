"""The wire format: however a stream is cut into packets it says the same, and hostile JSON says nothing."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import Ask, Message, Role
from core.pool.client import retry_after_s
from core.pool.spec import ModelSpec
from core.pool.wire import (
    Completion,
    Malformed,
    StreamReader,
    read_completion,
    request_body,
    strict_json,
)
from core.texts import well_formed
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


@given(st.text())
def test_well_formed_text_can_be_stored(text: str) -> None:
    mended = well_formed(text)
    assert "\0" not in mended
    assert mended.encode().decode() == mended
    assert well_formed(mended) == mended


def test_a_long_line_takes_no_longer_in_small_packets() -> None:
    reader, began = StreamReader(), time.monotonic()
    for _ in range(40_000):
        reader.feed(b"x" * 100)
    assert time.monotonic() - began < 5  # 0.04 s; to look through it again with each packet took 45 s


def test_a_character_may_be_split_over_two_pieces() -> None:
    chunk = '{{"choices": [{{"delta": {{"content": "{}"}}, "finish_reason": {}}}]}}'
    lines = (chunk.format("\\ud83d", "null"), chunk.format("\\ude00", '"stop"'), "[DONE]")
    assert read_stream("".join(f"data: {line}\n\n" for line in lines).encode()).text == "\U0001f600"


def test_what_follows_done_and_what_is_no_data_is_ignored() -> None:
    noise = b": keep-alive\nevent: x\nid: 1\n\n"
    assert read_stream(noise + events("a") + events("b", done=False)).text == "a"


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
