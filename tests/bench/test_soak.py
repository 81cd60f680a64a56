"""The soak benchmark on a small scale: every figure is there beside its promise, and a broken one is an error."""

from __future__ import annotations

import json

import pytest

from tests.bench import soak
from ui.cli.bench import benchmarks

pytestmark = pytest.mark.process


def test_every_figure_stands_beside_what_is_promised(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        soak.main(["--trials", "18", "--kills", "4", "--only", "deadline,writers", "--json"])
    told = json.loads(capsys.readouterr().out)
    measured = told["measured"]
    assert measured["deadline"]["trials"] == 18
    assert measured["deadline"]["too_early"] == measured["deadline"]["broken_promises"] == 0
    assert measured["deadline"]["overshoot_max_ms"] >= measured["deadline"]["overshoot_p50_ms"] > 0
    assert measured["writers"]["acknowledged"] > measured["writers"]["acknowledged_episodes"] > 0
    assert (measured["writers"]["lost"], measured["writers"]["not_whole"]) == (0, 0)
    assert ended.value.code == bool(told["not_kept"])
    assert {*told["promised"]} >= {"overshoot_max_ms", "lost"}


def test_a_promise_that_is_not_kept_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(soak.PROMISED, "overshoot_max_ms", -1.0)
    with pytest.raises(SystemExit) as ended:
        soak.main(["--trials", "2", "--only", "deadline"])
    assert ended.value.code == 1
    assert "overshoot max ms" in capsys.readouterr().out


def test_a_part_that_is_none_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(["--only", "everything"])
    assert "there is no part 'everything'" in capsys.readouterr().err


def test_the_command_lists_benchmarks_and_no_tests() -> None:
    assert {"soak", "pool"} <= {*benchmarks()}
    assert [name for name in benchmarks() if "test" in name] == []
