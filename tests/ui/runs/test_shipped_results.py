"""The rows of the paper's tables that come with the program: shown on a first start, refused when damaged; how many
differences they state, and which hold among all of them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from core.analysis.metrics import Mean
from core.errors import ConfigError
from core.tasks.sets import FOLDS
from storage.store import Store
from tests.ui.pages import opened, shown
from tests.ui.runs.test_reproduction import plain
from ui.answers.blocks import Curve, Estimates, Grid
from ui.answers.results import Measured, answers_of, came_with_the_program
from ui.presentation.words import share_words
from ui.runs import wiring
from ui.runs.paper.folds import NAME as RECORDED
from ui.runs.paper.folds import shipped_folds
from ui.runs.paper.results import NAME, Differences, file_of, on_fewer_seeds, read, seeds_words, shipped
from ui.runs.paper.tables import COUNTED, SUBJECTS, TABLES, RowResult
from ui.runs.wiring import SAMPLE_RUNS
from ui.web.analysis.draw import figure_of


@pytest.mark.integration
def test_a_first_start_shows_the_rows_that_came_with_the_program(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = read(SAMPLE_RUNS / NAME)
    page = opened("results")
    assert f"Shipped with the program, measured on {results.measured}, not on this machine" in plain(page)
    assert page.code[0].value.startswith("trinity reproduce all")
    frame = page.dataframe[0].value
    assert list(frame["label"]) == [one.label for one in results.outcomes(TABLES["all"])]
    router = next(one for one in results.rows if one.row == "router")
    row = frame[frame["label"] == "learned single-turn router, each model at its best cycle of roles"].iloc[0]
    assert router.value.low is not None
    assert router.value.high is not None
    assert row["measured"] == share_words(router.value.mean, (router.value.low, router.value.high))
    assert "say nothing about frontier models" in plain(page)
    [labels] = answers_of(came_with_the_program(TABLES["5"]))
    grid = labels.blocks[0]
    assert isinstance(grid, Grid)
    assert set(grid.rows) == set(results.cells["5"])
    fewer = tuple(one for one in results.rows if not one.row.endswith(" turns"))
    (tmp_path / NAME).write_text(results.model_copy(update={"rows": fewer}).model_dump_json())
    monkeypatch.setattr(wiring, "SAMPLE_RUNS", tmp_path)
    assert "none came with the program" in shown(opened("results", table="turns"))


@pytest.mark.integration
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


@pytest.mark.integration
def test_every_table_is_found_by_subject_in_one_list_and_stands_in_the_address(store: Store) -> None:
    offered = [table for tables in SUBJECTS.values() for table in tables]
    assert sorted(offered) == sorted(TABLES)  # each once
    page = opened("results")
    choice = page.selectbox(key="table_choice")
    assert len(choice.options) == len(TABLES) + 1  # that of recorded models
    assert "Cost · Tokens: how many tokens does a question take?" in choice.options
    choice.select("9").run()
    assert page.query_params["table"] == "9"
    assert [one.value for one in page.subheader] == ["How many tokens does a question take?"]
    assert opened("results", table="9").selectbox(key="table_choice").value == "9"


ROOT = Path(__file__).parents[3]
TABLE = TABLES["2"]


def row(key: str, values: list[float], against: Mean | None) -> RowResult:
    reference = TABLE.reference
    assert reference is not None
    return RowResult(
        row=key,
        measure="accuracy",
        label=TABLE.row(key).label,
        value=Mean(0.5, 0.4, 0.6),
        against={reference.key: against} if against else {},
        by_family={},
        by_seed=dict(enumerate(values)),
        seeds=tuple(range(len(values))),
    )


def test_a_difference_over_fewer_seeds_says_so_and_what_the_reference_has_there() -> None:
    reference = TABLE.reference
    assert reference is not None
    unknown = Mean(0.01, math.nan, math.nan)
    found = [
        row(reference.key, [0.2, 0.4, 0.9], None),
        row("evolved:svf", [0.3, 0.32], unknown),
        row("evolved:no-thinker", [0.0, 0.2, 0.7], Mean(-0.2, -0.3, -0.1)),
    ]
    assert [seeds_words(TABLE, one, found) for one in found] == ["", "2 seeds", ""]
    assert on_fewer_seeds(TABLE, found) == [
        "A difference marked “2 seeds” is to the reference's 30.0 % on seeds 0 and 1 alone."
    ]
    differences = Differences.of([(TABLE, found)])
    assert [differences.mark(TABLE, one) for one in found] == ["", "", "yes"]
    assert differences.words("this table") == "", "one alone needs no correction"


def test_a_table_says_what_the_simplest_rule_does_beside_its_gain() -> None:
    """A table by family is named in the sentence also where another row is the best of the others."""
    table = TABLES["combinations"]

    def result(key: str, mean: float) -> RowResult:
        found = row(TABLE.rows[0].key, [mean] * 3, None)
        return found.model_copy(update={
            "row": key, "label": table.row(key).label, "value": Mean(mean, mean - 0.1, mean + 0.1), "against": {},
        })  # fmt: skip

    def sentence(**means: float) -> str:
        keys = {"trinity": "evolved:trinity", "pairs": "by-family:pairs", "family": "by-family"}
        found = [result(keys.get(name, name), mean) for name, mean in means.items()]
        return answers_of(Measured(table, found))[0].sentence

    said = sentence(trinity=0.4, labels=0.7, pairs=0.6, family=0.5)
    assert "Best of the others: supervised labels, 70.0 %" in said
    assert said.endswith(
        "The simplest rule, table by family (the best planner and solver): 60.0 % (50 to 70)."
    )
    best = sentence(trinity=0.4, labels=0.5, pairs=0.6)
    assert "Best of the others: table by family (the best planner and solver), 60.0 %" in best
    assert "simplest" not in best
    assert "simplest" not in sentence(trinity=0.4, labels=0.5)


def test_of_many_differences_fewer_hold_together_than_one_by_one() -> None:
    reference = TABLE.reference
    assert reference is not None
    others = [one.key for one in TABLE.rows if one.key != reference.key][:5]
    base = [0.40, 0.42, 0.44, 0.41]
    found = [row(reference.key, base, None)]
    for place, key in enumerate(others):
        values = [one - 0.1 + 0.01 * (seed % 2) for seed, one in enumerate(base)]
        # The first interval is clear of 0; the others hardly, or not.
        low = (-0.12, -0.19, -0.19, -0.25, -0.25)[place]
        found.append(row(key, values, Mean(-0.095, low, -0.19 - low)))
    differences = Differences.of([(TABLE, found)])
    marks = [differences.mark(TABLE, one) for one in found[1:]]
    assert marks == ["yes", "no", "no", "no", "no"]
    assert differences.column == "holds among 5"
    assert differences.words("this table") == (
        "5 differences to a reference are stated in this table. Taken alone, 1 of their intervals leave out 0; "
        "allowing for all 5 (Holm's correction, 5 % for all together), 1 hold."
    )


@pytest.fixture(scope="module")
def whole() -> Differences:
    results = shipped()
    assert results is not None
    measured = [
        one for one in TABLES.values() if one.measure not in COUNTED and file_of(one) == "results.json"
    ]
    return Differences.of((one, results.outcomes(one)) for one in measured)


def test_readme_says_what_holds_of_the_shipped_differences(whole: Differences) -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    alone = sum(p < 0.05 for p in whole.ps.values())
    assert f"{len(whole.ps)} differences" in text
    assert f"{alone} leave out 0 one by one" in text
    assert f"and {len(whole.held)} hold" in text
    pairs = {(row, reference) for row, reference, _ in whole.held}
    # Each conclusion that README draws from a difference, and whether it holds among all.
    assert ("single:1", "trained:default") in pairs
    assert ("random-workflow", "trained:default") in pairs
    assert {(name, "trained:default") for name in whole_names(whole)} <= pairs
    assert ("single:1", "evolved:default") not in pairs
    assert ("router", "evolved:default") not in pairs


def whole_names(whole: Differences) -> list[str]:
    return [row for row, reference, _ in whole.ps if row.startswith("workflow:")]


def test_no_figure_has_more_ticks_than_can_be_drawn() -> None:
    """A browser that is to draw one tick for each of 92,160 episodes hangs."""
    drawn = 0
    for table in TABLES.values():
        for answer in answers_of(came_with_the_program(table)):
            for block in answer.blocks:
                if isinstance(block, Curve | Estimates):
                    figure = figure_of(block).to_plotly_json()
                    step = figure["layout"]["xaxis"].get("dtick")
                    ends = [float(x) for line in figure["data"] for x in line["x"] if x is not None]
                    assert step is None or (max(ends) - min(ends)) / step <= 40, (table.id, answer.key)
                    drawn += 1
    assert drawn > len(TABLES) / 2


@pytest.mark.integration
def test_rows_of_recorded_models_come_with_the_program(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = shipped_folds()
    assert tables, "real models are shown beside the pocket's"
    page = opened("results")
    for table in tables:
        rows = {row.policy: row for row in table.rows}
        assert rows.keys() >= {*table.against} >= {"vote:1"}, "the best model alone is the simplest rule"
        assert table.folds == [*range(FOLDS)]
        for row in table.rows:
            assert 0 < row.solved.low < row.solved.mean < row.solved.high < 1
            # Each fold has nearly as many questions.
            assert row.solved.mean == pytest.approx(np.mean([*row.by_fold.values()]), abs=0.005)
            assert row.less.keys() == {*table.against} - {row.policy}
            for other, less in row.less.items():
                assert less.low <= less.mean <= less.high
                assert less.mean == pytest.approx(row.solved.mean - rows[other].solved.mean, abs=0.005)
        assert f"({table.name})?" in shown(page)
        single = rows["vote:1"].solved
        assert share_words(single.mean, (single.low, single.high)) in plain(page)
    stated = sum(
        len({frozenset((row.policy, other)) for row in table.rows for other in row.less}) for table in tables
    )
    assert f"{stated} differences to a reference are stated in the tables of recorded models" in plain(page)
    alone = shown(opened("results", table="recorded"))
    assert f"({tables[0].name})?" in alone
    assert TABLES["all"].question not in alone.lower()
    (tmp_path / RECORDED).write_text("[{}]")
    monkeypatch.setattr(wiring, "SAMPLE_RUNS", tmp_path)
    with pytest.raises(ConfigError, match=r"recorded\.json cannot be read \(.+\): install the program again"):
        shipped_folds()
    assert any("install the program again" in one.value for one in opened("results").error)
