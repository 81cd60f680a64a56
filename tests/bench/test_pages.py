"""The benchmark of the pages on a small store: its figures are all there, and what it counts does not grow."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from core.episode import EpisodeFinished
from storage.recorder import record
from storage.store import Store, open_store
from tests.bench._frame import run
from tests.bench.pages import BUDGETS, OVER_TURNS, fill, measure, open_page
from tests.builders.large_store import large_store
from tests.builders.play import HashPolicy, births, events, tasks
from tests.builders.stores import copy_store
from tests.ui.pages import opened, shown
from ui.web.kit.cache import forget

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as the benchmark fills it, of 41 episodes."""
    path = tmp_path_factory.mktemp("large") / "large.db"
    fill(path, 40)
    return path


def test_the_benchmark_tells_every_figure_beside_its_budget(
    large: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRINITY_STORE", "")  # what it sets is let go with the test
    asked = ["--episodes", "40", "--repeats", "1", "--no-browser", "--json", "--store", str(large)]
    run(measure, [*asked, "--only", "list,compare,replay"], BUDGETS)
    told = json.loads(capsys.readouterr().out)
    assert told["episodes"] == 41
    assert told["turns"] > 240
    measured, budgets = told["measured"], told["budgets"]
    for name in ("list", "compare", "replay_open", "replay_step", "replay_long_open"):
        assert {f"{name}_{figure}" for figure in ("p50_ms", "p95_ms", "queries", "bytes")} <= measured.keys()
    assert {name for name in budgets if name.startswith(("list_p", "list_b", "replay"))} <= measured.keys()
    for name, value in measured.items():
        if name in budgets and not name.endswith("_ms"):
            assert value <= budgets[name], name


def test_the_list_asks_as_much_of_a_large_store_as_of_a_small_one_and_reads_no_text(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same, larger = tmp_path / "same.db", tmp_path / "larger.db"  # neither was opened before
    copy_store(large, same)
    assert list(large_store(larger, 80))[-1] == 80
    asked = []
    for path in (same, larger):
        monkeypatch.setenv("TRINITY_STORE", str(path))
        for query in ({}, {"q": OVER_TURNS}):
            forget()  # else a name that was read for one list is not read for the next
            statements = open_page("episodes", query)[0].statements
            assert not any(re.search(r"(FROM|JOIN) (text|state)\b", one) for one in statements)
            asked.append(len(statements))
    assert asked[:2] == asked[2:]
    assert max(asked) <= 9


def test_what_is_remembered_is_read_again_once_something_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "trinity.db")
    monkeypatch.setenv("TRINITY_STORE", store.url)
    _play(store, "r1", 3)
    for view in ("routing", "verifier"):
        first = len(open_page(view, {})[0].statements)
        assert len(open_page(view, {})[0].statements) < first, view
    assert "3 finished episodes" in shown(opened("routing"))
    _play(store, "r2", 2)
    assert "5 finished episodes" in shown(opened("routing"))
    store.runs.delete("r1")
    assert "2 finished episodes" in shown(opened("routing"))
    store.close()


def _play(store: Store, run: str, n: int) -> None:
    store.runs.create(run, "run", {})
    played = record(store, events(births(run, tasks(n), "hash", seed=0), HashPolicy(run)))
    assert sum(isinstance(one, EpisodeFinished) for one in played) == n
    store.runs.finish(run)
