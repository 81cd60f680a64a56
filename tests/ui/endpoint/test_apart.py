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

from core.episode import Decide, Decision, Event, Message, Status, TurnStarted
from core.errors import ConfigError, StoreError
from core.play.policies import CyclePolicy
from storage.rows import engine as database
from storage.rows import mapping
from storage.rows.engine import writing
from storage.rows.summaries import RunStatus
from tests.ui.endpoint.server import CALL_USD, PRICES, Served, raw, served
from ui.endpoint import engine
from ui.endpoint.ledger import Ledger

pytestmark = pytest.mark.integration
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


class Crowd:
    """Requests at one endpoint, all under way at once when the bad one comes to its fault."""

    def __init__(self, one: Served, n: int = 4) -> None:
        self.one, self.n = one, n

    def ask(self, question: str) -> tuple[int, Any]:
        body = {"model": "trinity", "messages": [{"role": "user", "content": question}]}
        status, _, answer = raw(self.one.url, "POST", CHAT, json.dumps(body).encode())
        return status, answer

    def answers(self) -> tuple[list[int], int, Any]:
        """The statuses of the good ones, and what the bad one got."""
        questions = [f"How many? {number}" for number in range(self.n)]
        with ThreadPoolExecutor(self.n + 1) as threads:
            bad = threads.submit(self.ask, "How many? bad")
            good = [*threads.map(self.ask, questions)]
            return [status for status, _ in good], *bad.result()


def decide_badly(error: Exception) -> Callable[[pytest.MonkeyPatch], None]:
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
        order = self._orders[engine._episode_of(event)]
        if isinstance(event, TurnStarted) and event.index == 1 and "bad" in order.episode.task.question:
            raise KeyError("turn")
        heard(self, event)

    patch.setattr(engine.Engine, "_heard", badly)


def agree_badly(patch: pytest.MonkeyPatch) -> None:
    allows = Ledger.allows

    def badly(self: Ledger, episode: str, key: str | None, ask: Any, *more: Any) -> Any:
        if any("bad" in message.content for message in ask.messages):
            raise ZeroDivisionError
        return allows(self, episode, key, ask, *more)

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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    put: Callable[[pytest.MonkeyPatch], None],
    status: int,
) -> None:
    put(monkeypatch)
    with served(tmp_path) as one:
        good, bad, said = Crowd(one).answers()
        assert good == [200] * 4
        assert bad == status, said
        assert "broke off" in caplog.text
        [run] = one.store.runs.list("serve")
        assert run.status is RunStatus.RUNNING  # nothing had to begin anew
        assert one.service.engine.in_progress == 0
        ended = {one.store.episodes.summary(name).status for name in _episodes(one, run.id)}
        assert Status.RUNNING not in ended


def _episodes(one: Served, run: str) -> list[str]:
    return [line.id for line in one.store.episodes.of_run(run)]


def test_a_store_that_fails_is_a_503_that_may_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path) as one:
        crowd = Crowd(one)
        assert crowd.ask("How many?")[0] == 200
        asked = len(one.models.requests)
        paid = one.store.endpoint.charged_usd()
        note = type(one.store.endpoint).note

        def locked(*_: Any) -> None:
            raise StoreError("Nothing was stored: another program keeps the store locked.")

        monkeypatch.setattr(type(one.store.endpoint), "note", locked)
        body = {"model": "trinity", "messages": [{"role": "user", "content": "How many?"}]}
        for path, sent in ((CHAT, body), (RESPONSES, {"model": "trinity", "input": "How many?"})):
            status, headers, answer = raw(one.url, "POST", path, json.dumps(sent).encode())
            assert (status, answer["error"]["code"]) == (503, "store_unavailable"), answer
            assert int(headers["retry-after"]) > 0
            assert "keeps the store locked" in answer["error"]["message"]
        status, _, streamed = raw(one.url, "POST", CHAT, json.dumps({**body, "stream": True}).encode())
        assert (status, '"code": "store_unavailable"' in streamed) == (200, True)
        assert (len(one.models.requests), one.store.endpoint.charged_usd()) == (asked, paid)
        monkeypatch.setattr(type(one.store.endpoint), "note", note)
        assert crowd.ask("How many?")[0] == 200


def test_a_store_that_is_locked_in_the_middle_ends_requests_with_a_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process holds the write lock for longer than a writer waits."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 100)
    caplog.set_level(logging.CRITICAL, "ui.endpoint.engine")
    with served(tmp_path) as one:
        crowd = Crowd(one, n=3)
        assert crowd.ask("How many?")[0] == 200
        with writing(one.store.engine):
            good, bad, said = crowd.answers()
        assert (good, bad) == ([503] * 3, 503)
        assert "send it again" in said["error"]["message"] or "locked" in said["error"]["message"]
        good, bad, _ = crowd.answers()
        assert (good, bad) == ([200] * 3, 200)


def test_a_reply_and_what_it_costs_are_stored_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, entry=PRICES) as one:
        crowd, commits = Crowd(one), 0
        assert crowd.ask("How many?")[0] == 200

        def committed(_: Any) -> None:
            nonlocal commits
            commits += bool(threading.current_thread().name == "endpoint")

        listen(one.store.engine, "commit", committed)
        before = one.store.endpoint.charged_usd()
        assert crowd.ask("How many?")[0] == 200
        assert one.store.endpoint.charged_usd() - before == pytest.approx(3 * CALL_USD)
        # Who asked and that it began, and how it ended; of each turn that it began, its reply and what that gave.
        assert commits == 2 + 3 * 3
        before = one.store.endpoint.charged_usd()

        def unstorable(*_: Any) -> Any:
            raise OverflowError("int too large")

        monkeypatch.setattr(mapping, "replied_row", unstorable)
        assert crowd.ask("How many?")[0] == 502
        assert (
            one.store.endpoint.charged_usd() - before > CALL_USD
        )  # it was paid: at the most that it can have cost
