"""What one request sends, or what goes wrong with it, ends that request alone: those beside it are answered."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.event import listen

from core.episode import Decide, Decision, Event, Message, Status, TurnStarted, episode_of
from core.errors import ConfigError, StoreError
from core.play.policies import CyclePolicy
from storage.rows import engine as database
from storage.rows import mapping
from storage.rows.engine import writing
from storage.rows.summaries import RunStatus
from tests.ui.endpoint.server import CALL_USD, CHAT, RESPONSES, Serve, Served, asking, raw, served
from ui.endpoint import engine
from ui.endpoint.ledger import Ledger, Sender

pytestmark = pytest.mark.integration
#: Puts a fault into the program that a request with the word "bad" meets, and no other.
Put = Callable[[pytest.MonkeyPatch], None]


def chat(one: Served, question: str = "How many?") -> tuple[int, Any]:
    return one.post(CHAT, asking(question))


def crowd(one: Served, n: int = 4) -> tuple[list[int], int, Any]:
    """The statuses of good requests, and what a bad one got that was under way with them."""
    with ThreadPoolExecutor(n + 1) as threads:
        bad = threads.submit(chat, one, "How many? bad")
        good = [*threads.map(lambda number: chat(one, f"How many? {number}"), range(n))]
        return [status for status, _ in good], *bad.result()


def decide_badly(error: Exception) -> Put:
    def put(patch: pytest.MonkeyPatch) -> None:
        decide = CyclePolicy.decide

        def badly(self: CyclePolicy, requests: Sequence[Decide]) -> list[Decision]:
            if any("bad" in one.transcript.question and one.index == 1 for one in requests):
                raise error
            return decide(self, requests)

        patch.setattr(CyclePolicy, "decide", badly)

    return put


def tell_badly(patch: pytest.MonkeyPatch) -> None:
    heard = engine.Engine._heard

    def badly(self: engine.Engine, event: Event) -> None:
        order = self._orders[episode_of(event)]
        if isinstance(event, TurnStarted) and event.index == 1 and "bad" in order.episode.task.question:
            raise KeyError("turn")
        heard(self, event)

    patch.setattr(engine.Engine, "_heard", badly)


def agree_badly(patch: pytest.MonkeyPatch) -> None:
    allows = Ledger.allows

    def badly(self: Ledger, episode: str, sender: Sender, ask: Any, *more: Any) -> Any:
        if any("bad" in message.content for message in ask.messages):
            raise ZeroDivisionError
        return allows(self, episode, sender, ask, *more)

    patch.setattr(Ledger, "allows", badly)


def store_badly(patch: pytest.MonkeyPatch) -> None:
    """As where a text is sent that no database can hold."""
    prompt = mapping.prompt_text

    def badly(messages: Sequence[Message]) -> str:
        if any("bad" in one.content for one in messages):
            raise OverflowError("string longer than INT_MAX bytes")
        return prompt(messages)

    patch.setattr(mapping, "prompt_text", badly)


@pytest.mark.parametrize(
    ("put", "status"),
    [
        (decide_badly(KeyError("e")), 502),
        (decide_badly(ConfigError("The mask leaves nothing.")), 502),
        (tell_badly, 500),
        (agree_badly, 502),
        (store_badly, 502),
    ],
)
def test_a_fault_in_one_request_leaves_the_others_alone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, put: Put, status: int
) -> None:
    one = serve()
    run = one.service.engine.new_place()[0]
    put(monkeypatch)
    good, bad, said = crowd(one)
    assert (good, bad) == ([200] * 4, status), said
    assert "broke off" in caplog.text
    assert one.service.engine.run == run, "nothing had to begin anew"
    assert one.store.runs.get(run).status is RunStatus.RUNNING
    assert one.service.engine.in_progress == 0
    assert Status.RUNNING not in {kept.status for kept in one.store.episodes.of_run(run)}


def test_a_store_that_fails_is_a_503_that_may_be_sent_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = serve()
    paid = one.store.endpoint.charged_usd()

    def locked(*_: Any, **__: Any) -> None:
        raise StoreError("Nothing was stored: another program keeps the store locked.")

    with monkeypatch.context() as patch:
        patch.setattr(type(one.store.endpoint), "note", locked)
        for path, sent in ((CHAT, asking()), (RESPONSES, {"model": "trinity", "input": "How many?"})):
            status, headers, answer = raw(one.url, "POST", path, json.dumps(sent).encode())
            assert (status, answer["error"]["code"]) == (503, "store_unavailable"), answer
            assert int(headers["retry-after"]) > 0
            assert "keeps the store locked" in answer["error"]["message"]
        status, streamed = one.post(CHAT, asking(stream=True))
        assert (status, '"code": "store_unavailable"' in streamed) == (200, True)
    assert (one.models.requests, one.store.endpoint.charged_usd()) == ([], paid)
    assert chat(one)[0] == 200


def test_a_store_that_is_locked_in_the_middle_ends_requests_with_a_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process holds the write lock for longer than a writer waits."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 100)
    caplog.set_level(logging.CRITICAL, "ui.endpoint.engine")
    with served(tmp_path) as one:
        assert chat(one)[0] == 200
        with writing(one.store.engine):
            good, bad, said = crowd(one, n=3)
        assert (good, bad) == ([503] * 3, 503)
        assert "send it again" in said["error"]["message"] or "locked" in said["error"]["message"]
        good, bad, _ = crowd(one, n=3)
        assert (good, bad) == ([200] * 3, 200)


def test_a_reply_and_what_it_costs_are_stored_at_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    one, commits = serve(), 0
    assert chat(one)[0] == 200

    def committed(_: Any) -> None:
        nonlocal commits
        commits += bool(threading.current_thread().name == "endpoint")

    listen(one.store.engine, "commit", committed)
    before = one.store.endpoint.charged_usd()
    assert chat(one)[0] == 200
    assert one.store.endpoint.charged_usd() - before == pytest.approx(3 * CALL_USD)
    # Of each of three turns, that it is asked, the most that its call can cost, and what came of it.
    assert commits == 3 * 3
    before = one.store.endpoint.charged_usd()

    def unstorable(*_: Any) -> Any:
        raise OverflowError("int too large")

    monkeypatch.setattr(mapping, "replied_row", unstorable)
    assert chat(one)[0] == 502
    # It was paid: at the most that it can have cost.
    assert one.store.endpoint.charged_usd() - before > CALL_USD
