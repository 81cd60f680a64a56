"""Is a run that had to ask again told of it once, at its end, and are reckoned costs told?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.core.pool.faulty_server import Answer, Request, chat, fail, faulty_server, respond
from tests.ui.endpoint.server import PRICES, team
from tests.ui.pages import command


def test_retries_and_reckoned_costs_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Request] = []

    def sometimes(request: Request) -> Answer:
        asked.append(request)
        if len(asked) in (1, 3):
            return fail(503, "busy")
        body = json.loads(bytes(team("<answer>5</answer>")(request)[-1]).partition(b"\r\n\r\n")[2])  # type: ignore[arg-type]
        text = body["choices"][0]["message"]["content"]
        return (respond(chat(text).replace(b'"usage"', b'"other"')),)  # no counts of tokens

    (tmp_path / "tasks.jsonl").write_text(
        '{"question": "2 + 3?", "answer": "5", "grader": "number", "split": "test"}\n'
    )
    with faulty_server(sometimes) as server:
        (tmp_path / "pool.toml").write_text(
            f'[[model]]\nname = "slow"\nbase_url = "{server.url}"\n{PRICES}\n'
        )
        monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "t.db"))
        arguments = ["run", "--pool", str(tmp_path / "pool.toml"), "--tasks", str(tmp_path / "tasks.jsonl")]
        assert command([*arguments, "--policy", "single:slow", "--max-cost", "1"]) == 0
    told = capsys.readouterr().err
    assert told.count("was asked again") == 1
    assert "slow was asked again 2 times: 2 after 503" in told
    assert "retry_scheduled" not in told
    assert "3 replies came without counts of tokens" in " ".join(told.split())
