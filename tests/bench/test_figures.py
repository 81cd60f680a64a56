"""Benchmarks on a small scale: every figure is there beside its promise, and a broken promise is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.tokens.prompts import PromptTokens
from tests.bench import formats, soak
from tests.bench._frame import run
from tests.bench.pool import Times
from ui.cli.bench import benchmarks


def told(*arguments: str) -> object:
    """The exit code of the soak benchmark."""
    try:
        run(soak.measure, arguments, soak.PROMISED)
    except SystemExit as ended:
        return ended.code
    return 0


@pytest.mark.process
def test_every_figure_stands_beside_what_is_promised(capsys: pytest.CaptureFixture[str]) -> None:
    code = told("--trials", "6", "--kills", "4", "--only", "deadline,writers", "--json")
    found = json.loads(capsys.readouterr().out)
    deadline, writers = found["measured"]["deadline"], found["measured"]["writers"]
    assert deadline["trials"] == 6
    assert deadline["too_early"] == deadline["broken_promises"] == 0
    assert deadline["overshoot_max_ms"] >= deadline["overshoot_p50_ms"] > 0
    assert writers["acknowledged"] > writers["acknowledged_episodes"] > 0
    assert (writers["lost"], writers["not_whole"]) == (0, 0)
    assert code == bool(found["not_kept"])
    assert {*found["promised"]} >= {"overshoot_max_ms", "lost"}


def test_a_promise_that_is_not_kept_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(soak.PROMISED, "overshoot_max_ms", -1.0)
    assert told("--trials", "2", "--only", "deadline") == 1
    assert "at most -1: BROKEN" in capsys.readouterr().out


def test_a_part_that_is_none_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert told("--only", "everything") == 2
    assert "there is no part 'everything'" in capsys.readouterr().err


def test_a_control_token_out_of_foreign_text_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = formats.measure("pocket", 5, True)
    assert "not_kept" not in found
    assert {*found["pocket"]} > {"segments", "plain"}

    def trusting(writer: Any, text: str) -> list[int]:
        known = text.encode("utf-8", "replace").decode()
        return list(writer._tokenizer.encode(known, add_special_tokens=False))

    monkeypatch.setattr(PromptTokens, "plain", trusting)
    found = formats.measure("pocket", 5, True)
    assert found["not_kept"] == ["pocket"]
    assert found["pocket"]["segments"]["foreign_control_tokens"] > 0


def test_the_command_lists_benchmarks_and_nothing_else() -> None:
    assert {"soak", "pool"} <= {*benchmarks()}
    assert [name for name in benchmarks() if "test" in name or name.startswith("_")] == []


def test_the_whole_journey_is_measured_against_the_sum_of_what_its_steps_had_to_take() -> None:
    first, second = Times(12.0, 10.0, 12.0), Times(36.0, 20.0, 24.0)
    assert first.figures() == {"seconds": 12.0, "ideal": 10.0, "ratio": 1.2, "ratio_with_repeats": 1.0}
    whole = Times.together([first, second]).figures()
    assert whole == {"seconds": 48.0, "ideal": 30.0, "ratio": 1.6, "ratio_with_repeats": pytest.approx(1.33)}
