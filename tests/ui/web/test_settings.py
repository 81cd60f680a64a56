"""Settings & health: the store's state, runs to look after, every page's keys, what tables mean, caches."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from core.evolution.config import EvolveConfig
from storage.rows.schema import metadata
from storage.rows.summaries import RunKind, RunStatus
from storage.store import Store, open_store
from storage.upkeep import tables
from storage.upkeep.tables import table_sizes
from tests.ui.pages import app, opened, opened_in, press, shown
from ui.endpoint.tiers import EXAMPLE
from ui.presentation.words import size_words
from ui.runs import queue
from ui.runs.plans import RUN_KINDS, to_config
from ui.runs.settings.learning import EvolutionPlan
from ui.web.kit import state
from ui.web.views.settings import PARTS, key_sheets, tail

pytestmark = pytest.mark.integration


def test_the_store_is_told_in_full(samples: Store) -> None:
    page, health = opened("settings"), samples.health()
    assert page.code[0].value == health.url
    assert page.markdown[2].value.startswith("**Schema 1\\.0010**")
    assert health.backup_hint in shown(page)
    assert "Labels\\, saved views" not in shown(page)  # what each migration was about is nobody's errand here
    sizes = {one.name: one for one in table_sizes(samples.engine)}
    assert set(sizes) == set(metadata.tables)
    assert sizes["episode"].rows == health.episodes
    assert all(one.size_bytes is None or one.size_bytes > 0 for one in sizes.values())
    assert [size_words(n) for n in (None, 999, 1200, 3_400_000, 5_000_000_000)] == [
        "–",
        "999 bytes",
        "1.2 kB",
        "3.4 MB",
        "5.0 GB",
    ]


def test_every_table_and_column_is_explained() -> None:
    assert set(tables.TABLE_MEANINGS) == set(metadata.tables)
    dumb = [
        (table, one.name) for table in metadata.tables for one in tables.columns(table) if not one.meaning
    ]
    assert dumb == []


def test_runs_to_look_after_show_their_process_and_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "trinity.db"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = open_store(tmp_path / "trinity.db")
    assert "Nothing is running" in shown(opened("settings", part="work"))
    store.runs.create("rdead", "live", {}, owner="elsewhere:17")
    tiny = EvolutionPlan("pocket", 1, 0, "pocket", "pocket", None, EvolveConfig(), "tiny")
    store.runs.create("rwaits", "evolve", to_config(tiny), name="tiny", status=RunStatus.QUEUED)
    store.runs.create("rfork", "fork", {}, owner="elsewhere:18")
    store.runs.finish("rfork", RunStatus.INTERRUPTED, owner="elsewhere:18")
    store.runs.create("rstill", "run", {})
    store.runs.finish("rstill", RunStatus.INTERRUPTED)
    store.runs.create("rbad", "run", {})
    store.runs.finish("rbad", RunStatus.FAILED, "The pool has <no> models.")
    log = queue.log_file("rdead")
    log.parent.mkdir(parents=True)
    log.write_text("begin\n" + "x" * 5000 + "\nkilled\x1b[31m\n")
    page = opened("settings", part="work")
    said = shown(page)
    for words in (
        "elsewhere",
        "tiny",
        "trinity run --resume rstill",
        "The pool has <no> models.",
        "1 playing",
    ):
        assert words in said
    onward = {link.proto.query_string: (link.proto.page, link.label) for link in page.page_link}
    assert onward["run=rdead"] == ("live", "Look at it")
    assert onward["run=rwaits"] == ("evolution", "Resume it there")
    assert onward["run=rfork"] == ("forks", "Resume it there")
    assert onward["run=rstill"] == ("episodes", "Look at it")
    assert tail(log).endswith("killed\x1b[31m")
    assert "begin" not in tail(log)
    assert "cannot be read" in tail(tmp_path / "none.log")
    store.close()


def test_every_kind_of_run_has_a_page_and_a_way_on() -> None:
    assert {*get_args(RunKind)} == set(RUN_KINDS)
    assert {kind.page for kind in RUN_KINDS.values()} <= set(state.VIEWS)
    commands = {name: kind.resume_command("r1") for name, kind in RUN_KINDS.items() if kind.command}
    assert commands == {
        "run": "trinity run --resume r1",
        "reproduction": "trinity run --resume r1",
        "evolve": "trinity evolve --resume --name r1",
        "train": "trinity train --resume --name r1",
        "fork": "trinity fork --resume r1",
    }
    assert {name for name, kind in RUN_KINDS.items() if kind.resumes} == {
        "live",
        "evolve",
        "train",
        "fork",
        "reencode",
        "attribute",
    }


def test_the_sheet_has_every_key_that_a_page_listens_to() -> None:
    sheets = key_sheets()
    assert {"Replay", "Two episodes", "Evolution", "Review", "Episodes", "Live"} <= set(sheets)
    for name in state.VIEWS:
        path = Path(state.__file__).parents[1] / "views" / f"{name}.py"
        tree = ast.parse(path.read_text("utf-8"))
        used = {
            word.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            for word in node.keywords
            if word.arg == "shortcut" and isinstance(word.value, ast.Constant)
            if isinstance(word.value.value, str)
        }
        title = (ast.get_docstring(tree) or "").partition(":")[0]
        told = " ".join(key for key, _ in sheets.get(title, ()))
        assert {key for key in used if key not in told} == set(), name


@pytest.mark.usefixtures("samples")
def test_every_part_opens_and_caches_are_cleared() -> None:
    page = app()
    for part in PARTS:
        assert not opened_in(page, "settings", part=part).error
    assert "sqlalchemy" in shown(opened_in(page, "settings", part="about"))
    press(page, "clear_caches")
    assert "next blunder" in shown(opened("settings", part="keys"))


def test_home_leads_back_to_what_was_read_and_to_health(samples: Store) -> None:
    one = samples.episodes.page().items[0].id
    page = opened("replay", ep=one, t="2")
    page.query_params.clear()
    page.switch_page("views/home.py").run()
    said = shown(page)
    assert "Go on with the replay" in said
    assert "turn 2" in said
    assert "Settings & health" in said


def test_the_endpoint_s_part_shows_an_example_and_what_turns_are_worth(samples: Store) -> None:
    page = opened("settings", part="endpoint")
    assert any(EXAMPLE in code.value for code in page.code)
    assert "40.4 % with 3 turns and 60.6 % with 5 turns" in shown(page)
