"""What is asked wrongly, and what providers do wrong behind the endpoint: an error of OpenAI's form that says what to
change, and never a part of a text as an answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from storage.shelves.endpoint import Limits
from tests.core.pool.faults import TIMEOUT_S, End, Fault, faults
from tests.core.pool.faulty_server import Answer, Request
from tests.ui.endpoint.server import CHAT, DECISIONS, RESPONSES, Serve, Served, asking, raw, said_to, served
from ui.endpoint import guard
from ui.endpoint.formats import DEEPEST
from ui.endpoint.tiers import EFFORTS, Endpoint, Tier

pytestmark = pytest.mark.integration
TALK = [{"role": "user", "content": "How many?"}]
#: A single call of a Worker answers.
ONE_CALL = Endpoint(tier=(Tier(name="trinity", policy="single:a", turns=1),))


def said(answer: Any) -> str:
    """The sentence of an error that has OpenAI's form."""
    error = answer["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    message = str(error["message"])
    assert message.isprintable()
    assert message[-1] in ".:" or "." in message
    return message


# Providers


def _whole(one: Served, question: str) -> tuple[str, str]:
    """The answer, or "", and what is said where there is none."""
    status, answer = one.post(CHAT, asking(question))
    if status == 200:
        return answer["choices"][0]["message"]["content"], ""
    assert (status, answer["error"]["code"]) == (502, "pool_unavailable"), answer
    return "", said(answer)


def _streamed(one: Served, question: str) -> tuple[str, str]:
    lines = one.post(CHAT, asking(question, stream=True))[1].splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    text = "".join(
        part["delta"].get("content") or "" for chunk in chunks for part in chunk.get("choices", ())
    )
    errors = [said(chunk) for chunk in chunks if "error" in chunk]
    assert ("data: [DONE]" in lines) == (not errors)
    return text, "".join(errors)


def _response(one: Served, question: str) -> tuple[str, str]:
    answer = one.post(RESPONSES, {"model": "trinity", "input": question, "stream": True})[1]
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    over = events[-1]
    assert over["type"] in ("response.completed", "response.failed")
    return text, over["response"]["error"]["message"] if over["type"] == "response.failed" else ""


@pytest.mark.parametrize("door", [_whole, _streamed, _response])
def test_whatever_a_provider_does_wrong_is_said_and_is_no_answer(
    serve: Serve, door: Callable[[Served, str], tuple[str, str]]
) -> None:
    # Of what a server says of how long to wait, one form each: the client's own tests have them all.
    chosen = [one for one in faults(streamed=False) if "wait" not in one.name and "date" not in one.name]
    assert len(chosen) > 60

    def provider(request: Request) -> Answer:
        question = said_to(request)
        return next(one.answer for one in chosen if f"<{one.name}>" in question)

    one = serve(provider, endpoint=ONE_CALL, entry=f"timeout_s = {TIMEOUT_S}")

    def ask(fault: Fault) -> str:
        text, error = door(one, f"What is the answer to <{fault.name}>?")
        if fault.end is End.ACCEPTED:
            return "" if "42" in text and not error else f"{fault.name}: no answer: {error}"
        return "" if "Model 'a'" in error and not text else f"{fault.name}: {text!r}, {error!r}"

    with ThreadPoolExecutor(16) as threads:
        assert [*filter(None, threads.map(ask, chosen))] == []
    assert one.service.engine.in_progress == 0


def test_a_provider_that_cannot_be_reached_is_said_with_its_place(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = listener.getsockname()[1]
    with served(tmp_path, endpoint=ONE_CALL) as one:
        pool = tmp_path / "pool.toml"
        pool.write_text(pool.read_text().replace(one.models.url, f"http://127.0.0.1:{nobody}/v1"))
        _, error = _whole(one, "How many?")
        assert "cannot be reached" in error
        assert "check base_url and that the server runs" in error


# Requests

TOOL = '{"type": "function", "function": {"name": "f", "parameters": {"default": @}}}'
SCHEMA = '{"type": "json_schema", "json_schema": {"name": "s", "schema": {"const": @}}}'
ASKED = '"messages": [{"role": "user", "content": "How many?"}]'
#: Where a number may stand, at each door.
PLACES = [
    (CHAT, f'{{"model": "trinity", {ASKED}, "tools": [{TOOL}]}}'),
    (CHAT, f'{{"model": "trinity", {ASKED}, "response_format": {SCHEMA}}}'),
    (CHAT, f'{{"model": "trinity", {ASKED}, "logit_bias": {{"5": @}}}}'),
    (CHAT, f'{{"model": "trinity", {ASKED}, "trinity": {{"max_cost_usd": @}}}}'),
    (CHAT, '{"model": "trinity", "messages": [{"role": "user", "content": "x", "extra": [1, {"a": @}]}]}'),
    (RESPONSES, '{"model": "trinity", "input": "x", "conversation": {"a": @}}'),
    (RESPONSES, '{"model": "trinity", "input": "x", "text": {"format": {"type": "text", "extra": {"a": @}}}}'),
    (DECISIONS, '{"model": "trinity", "input": "x", "questions": [{"type": "score", "levels": [@]}]}'),
]  # fmt: skip


def test_what_is_no_json_or_could_be_read_as_two_is_refused(one: Served) -> None:
    bodies = {
        "{": "valid JSON",
        "[1]": "no JSON object",
        "": "missing",
        "[" * 100_000: "nested",
        '{"a":' * 100_000: "nested too deeply",
        '{"model": ' + "9" * 6000 + "}": "valid JSON",
        f'{{"model": "\\ud800", {ASKED}}}': "",
        f'{{"model": "both", "model": "trinity", {ASKED}}}': "repeats a key",
        PLACES[0][1].replace("@", '{"a": 1, "a": 2}'): "repeats a key",
        PLACES[0][1].replace("@", "[" * DEEPEST + "]" * DEEPEST): "nested more than",
    }
    wrong = [(CHAT, body.encode(), words) for body, words in bodies.items()]
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1E+400"):
        wrong += [(path, body.replace("@", number).encode(), number.strip("-+")) for path, body in PLACES]
    for path, body, words in wrong:
        status, _, answer = raw(one.url, "POST", path, body)
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error"), (path, body[:99])
        assert words in said(answer)
    assert raw(one.url, "POST", CHAT, b"x" * (guard.MOST_BYTES + 1))[0] == 413
    assert not one.models.requests
    assert one.service.engine.in_progress == 0
    shallow = PLACES[0][1].replace("@", "[" * (DEEPEST - 20) + "]" * (DEEPEST - 20))
    assert raw(one.url, "POST", CHAT, shallow.encode())[0] == 200


def test_the_description_names_the_values_that_the_server_takes(one: Served) -> None:
    described = raw(one.url, "GET", "/openapi.json")[2]["components"]["schemas"]
    fields = (described["ChatRequest"], "reasoning_effort"), (described["Reasoning"], "effort")
    for schema, name in fields:
        [efforts, _] = schema["properties"][name]["anyOf"]
        assert efforts["enum"] == [*EFFORTS]
    for effort in EFFORTS:
        body = f'{{"model": "trinity", {ASKED}, "reasoning_effort": "{effort}"}}'.encode()
        assert raw(one.url, "POST", CHAT, body)[0] in (200, 502)  # few turns may end without an answer
    asked = described["Question"]
    assert asked["then"]["required"] == ["choices"]
    assert asked["properties"]["choices"]["anyOf"][0]["uniqueItems"] is True


def test_what_is_asked_wrongly_is_told_at_every_door(one: Served) -> None:
    choices = [{"type": "choice", "choices": [{"value": "a"}, {"value": "b"}]}]
    doors: dict[str, dict[str, Any]] = {
        CHAT: {"messages": TALK},
        RESPONSES: {"input": "How many?"},
        DECISIONS: {"input": "How many?", "questions": choices},
    }
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"model": "nope"}, 404, "ask for trinity, both"),
        ({"model": "trinity@nope"}, 404, "with the id of a checkpoint of this store"),
        ({"model": ""}, 400, "'model'"),
        ({"model": None}, 400, "'model'"),
        ({"surprise": 1}, 400, "leave it out"),
        ({"trinity": {"surprise": 1}}, 400, "leave it out"),
        ({"trinity": {"leave_out": ["nobody"]}}, 400, "leave out some of a, 127.0.0.1, b"),
        ({"trinity": {"leave_out": ["a", "b"]}}, 400, "leave out fewer models or providers"),
        ({"trinity": {"leave_out": "a"}}, 400, "list"),
    ]
    for path, body in doors.items():
        assert one.post(path, {"model": "both", **body})[0] == 200
        asked = len(one.models.requests)
        for fields, status, words in wrong:
            found, answer = one.post(path, {"model": "both", **body, **fields})
            assert (found, words in said(answer)) == (status, True), (path, fields, answer)
        assert len(one.models.requests) == asked


def test_what_a_key_does_without_may_not_be_everything(one: Served) -> None:
    _, key = one.store.endpoint.add_key("shy", Limits(leave_out=("127.0.0.1",)))
    asked = {"model": "both", "messages": TALK}
    status, answer = one.post(CHAT, asked, Authorization=f"Bearer {key}")
    assert (status, answer["error"]["code"]) == (400, "empty_pool")
    assert "leave out fewer" in said(answer)


def test_bodies_that_lie_or_never_come_are_told_so(one: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.3)
    body = json.dumps(asking()).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    sent: list[tuple[bytes, bytes]] = [
        (head + b"Content-Length: %d\r\n\r\n" % (len(body) + 10) + body, b" 408 "),
        (head + b"Content-Length: %d\r\n\r\n" % (len(body) - 10) + body, b" 400 "),
        (head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body, b" 408 "),
        (head + b"Content-Length: 99999999999\r\n\r\n", b" 413 "),
        (head + b"Content-Length: -1\r\n\r\n", b" 400 "),
        (head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b" 400 "),
    ]
    port = int(one.url.rpartition(":")[2])
    for data, status in sent:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(data)
            answer = b""
            while more := connection.recv(65536):
                answer += more
        assert status in answer.partition(b"\r\n")[0], answer
    assert not one.models.requests
    assert one.post(CHAT, asking())[0] == 200


#: What curl sends where nothing else is said, and others.
KINDS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain", "x")


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_of_another_kind_is_told_which_is_meant(one: Served, kind: str) -> None:
    status, answer = one.post(CHAT, asking(), Content_Type=kind)
    assert status == 400
    assert "Content-Type: application/json" in said(answer)
    assert not one.models.requests
