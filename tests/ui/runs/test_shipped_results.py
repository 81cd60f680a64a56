"""The rows of the paper's tables that come with the program: shown on a first start, and refused when damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import ConfigError
from storage.store import Store
from tests.ui.pages import opened, shown
from tests.ui.runs.test_reproduction import plain
from ui.presentation.theme import percent
from ui.runs import wiring
from ui.runs.paper.results import NAME, read
from ui.runs.paper.tables import SUBJECTS, TABLES
from ui.runs.wiring import SAMPLE_RUNS


def test_a_first_start_shows_the_rows_that_came_with_the_program(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = read(SAMPLE_RUNS / NAME)
    page = opened("results")
    shipped = page.info[0].value.replace("\\", "")
    assert shipped.startswith(
        f"Shipped with the program, measured on {results.measured}, not on this machine"
    )
    assert page.code[0].value.startswith("trinity reproduce all")
    frame = page.dataframe[0].value
    assert list(frame["row"]) == [one.label for one in results.outcomes(TABLES["all"])]
    router = next(one for one in results.rows if one.row == "router")
    row = frame[frame["row"] == "learned single-turn router, each model at its best cycle of roles"].iloc[0]
    assert row["measured"] == percent(router.value.mean)
    assert row["95 % interval"] == f"{percent(router.value.low)} to {percent(router.value.high)}"
    assert "say nothing about frontier models" in plain(page)
    labels = opened("results", table="5").dataframe[0].value
    assert set(labels.index) == set(results.cells["5"])
    fewer = tuple(one for one in results.rows if not one.row.endswith(" turns"))
    (tmp_path / NAME).write_text(results.model_copy(update={"rows": fewer}).model_dump_json())
    monkeypatch.setattr(wiring, "SAMPLE_RUNS", tmp_path)
    assert "none came with the program" in shown(opened("results", table="turns"))


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b'{"format": "trinity-jsonl"}',
        b'{"format": "trinity-results", "version": 9}',
        b"cut",
    ],
)
def test_damaged_results_are_one_sentence(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    whole = (SAMPLE_RUNS / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(damaged if damaged != b"cut" else whole[:-100])
    with pytest.raises(ConfigError, match=r"results\.json cannot be read \(.+\): install the program again"):
        read(tmp_path / NAME)
    if damaged == b"cut":
        monkeypatch.setattr(wiring, "SAMPLE_RUNS", tmp_path)
        page = opened("results")
        (error,) = page.error
        assert "cannot be read" in error.value
        assert not page.dataframe
        assert "trinity reproduce all" in shown(page)  # the way on


def test_the_rows_that_came_with_the_program_are_of_tables_and_no_sample_run(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each belongs to a table, its figures are possible, and importing sample runs leaves the file alone."""
    results = read(SAMPLE_RUNS / NAME)
    known = {row.key for table in TABLES.values() for row in table.rows}
    assert {one.row for one in results.rows} <= known
    curves = {one.row: one.curves or {} for one in results.outcomes(TABLES["4"])}
    assert all(len(by_seed) == 5 for by_seed in curves.values()), "every learner is shown as it learns"
    for one in results.rows:
        most, ends = 1 if one.measure == "accuracy" else 1000, one.value if one.value.has_interval else None
        assert 0 <= (ends.low if ends else 0) <= one.value.mean <= (ends.high if ends else most) <= most
    (folder := tmp_path / "samples").mkdir()
    (folder / NAME).write_bytes((SAMPLE_RUNS / NAME).read_bytes())
    monkeypatch.setattr(wiring, "SAMPLE_RUNS", folder)
    assert not wiring.has_samples()
    assert not wiring.wants_samples(store, wiring.settings())


def test_every_table_is_found_by_subject_in_one_list_and_stands_in_the_address(store: Store) -> None:
    offered = [table for tables in SUBJECTS.values() for table in tables]
    assert sorted(offered) == sorted(TABLES)  # each once
    page = opened("results")
    choice = page.selectbox(key="table_choice")
    assert len(choice.options) == len(TABLES)
    assert "Cost · Tokens: how many tokens does a question take?" in choice.options
    choice.select("9").run()
    assert page.query_params["table"] == "9"
    assert TABLES["9"].title in [one.value for one in page.subheader]
    assert opened("results", table="9").selectbox(key="table_choice").value == "9"
