"""Benchmarks by their names: what stands behind a name is the benchmark's own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.ui import pages


@pytest.mark.process
def test_help_after_a_benchmarks_name_is_that_benchmarks_own() -> None:
    def said(*arguments: str) -> str:
        command = [sys.executable, "-m", "ui.cli", "bench", *arguments]
        found = subprocess.run(command, capture_output=True, text=True, timeout=pages.PATIENCE_S)
        assert found.returncode == 0, found.stderr
        return found.stdout

    own = said("pool", "--help")
    assert own.startswith("usage: trinity bench pool ")
    assert "--per-second" in own
    assert "usage: trinity bench page_quality " in said("page_quality", "-h")
    general = said("--help")
    assert "Usage: trinity bench" in general
    assert "--per-second" not in general
