"""Benchmarks by their names: what stands behind a name is the benchmark's own."""

from __future__ import annotations

import sys

import pytest

from tests.ui.pages import command
from tests.zygote import forked


@pytest.mark.process
def test_help_after_a_benchmarks_name_is_that_benchmarks_own(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(forked("python")))

    def said(*arguments: str) -> str:
        assert command(["bench", *arguments]) == 0
        return capfd.readouterr().out

    own = said("pool", "--help")
    assert own.startswith("usage: trinity bench pool ")
    assert "--per-second" in own
    assert "usage: trinity bench page_quality " in said("page_quality", "-h")
    general = said("--help")
    assert "Usage: trinity bench" in general
    assert "--per-second" not in general
