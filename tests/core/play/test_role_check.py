"""Does the check of roles play each role with each model, and say what cannot be read?"""

from __future__ import annotations

import json

from core.episode import Role
from core.play.role_check import check_roles
from core.pool.hosted import HttpPool
from tests.core.pool.faulty_server import (
    QUICK,
    Answer,
    Request,
    entry,
    events,
    faulty_server,
    ok,
    stream_head,
)
from tests.ui.endpoint.server import role_of, team


def test_every_role_whole_and_streamed() -> None:
    def models(request: Request) -> Answer:
        answer = team("42")(request)
        if request.body["model"] == "chatty" and role_of(request) == "Verifier":
            answer = ok("It is fine, I think.")
        if request.body.get("stream"):
            text = _text_of(answer)
            return (stream_head() + events(text),)
        return answer

    with faulty_server(models) as server:
        pool = HttpPool([entry(server, "good"), entry(server, "chatty")], limits=QUICK)
        found = list(check_roles(pool))
        pool.close()
    assert len(found) == 2 * 3 * 2
    problems = {(one.model, one.role, one.streamed): one.problem for one in found if one.problem}
    assert problems == {
        ("chatty", Role.VERIFIER, False): "no readable verdict",
        ("chatty", Role.VERIFIER, True): "no readable verdict",
    }


def test_calls_of_tools_that_nobody_offered_are_told() -> None:
    piece = {"index": 0, "id": "a", "function": {"name": "python", "arguments": "{}"}}

    def models(request: Request) -> Answer:
        text = "" if role_of(request) == "Thinker" else "<answer>42</answer>"
        if not request.body.get("stream"):
            return ok(text, tool_calls=[piece])
        chunk = json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]})
        return (stream_head() + f"data: {chunk}\n\n".encode() + events(text),)

    with faulty_server(models) as server:
        pool = HttpPool([entry(server, "eager")], limits=QUICK)
        told = {(one.role, one.streamed): one.problem for one in check_roles(pool)}
        pool.close()
    unasked = "called a tool that nobody offered"
    for streamed in (False, True):
        assert told[Role.WORKER, streamed] == unasked
        assert told[Role.THINKER, streamed] == f"no readable plan, {unasked}"


def test_a_server_that_is_not_there() -> None:
    with faulty_server(()) as server:
        gone = entry(server, attempts=1)
    pool = HttpPool([gone], limits=QUICK)
    assert all("cannot be reached" in one.problem for one in check_roles(pool))
    pool.close()


def _text_of(answer: Answer) -> str:
    body = bytes(answer[-1]).partition(b"\r\n\r\n")[2]  # type: ignore[arg-type]
    return str(json.loads(body)["choices"][0]["message"]["content"])
