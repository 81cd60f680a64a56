"""`trinity reproduce` over a small world: rows are kept whole, played once, and read back as tables and as a page."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from core.episode import Ask, Failure
from core.errors import PoolError
from core.pool.scripted import Line, ScriptedPool
from core.pool.spec import ModelSpec
from storage.store import Store, open_store
from tests.ui.pages import opened, shown
from tests.ui.sums import Result, Sums
from ui.reproduce import Reproduction
from ui.reproduction import EVOLVED, TABLES, Row, Suite, needed, outcomes, suites

PLAYED = ("4", "combinations", "turns", "selection", "9")
OPTIONS = ("--budget", 160, "--n", 12, "--turns", 3)


@pytest.fixture
def world(evolving: Sums) -> Sums:
    """There are tasks to evolve on, and a tiny encoder."""
    return evolving


def reproduce(world: Sums, *arguments: object) -> Result:
    return world.trinity("reproduce", *OPTIONS, *arguments, "--tasks", world.tasks, "--held-out", world.tasks)


def test_rows_are_played_once_kept_whole_and_shown_beside_the_papers(world: Sums) -> None:
    result = reproduce(world, *PLAYED, "--seeds", "0", "--json")
    assert result.code == 0, result.err
    tables = result.json["tables"]
    assert list(tables) == list(PLAYED)
    rows = {row["row"]: row for row in tables["combinations"]["rows"]}
    assert set(rows) == {
        "evolved:trinity",
        "router",
        "labels",
        "cascade",
        "majority",
        "mixture",
        "random",
        "single:1",
        "single:2",  # the pool has no third model
        "union",
    }
    assert rows["single:1"]["label"] == "single model 1: adder"
    assert rows["single:1"]["mean"] == 1.0
    assert rows["union"]["mean"] >= max(rows["single:1"]["mean"], rows["single:2"]["mean"])
    assert rows["single:2"]["against_coordinator"]["mean"] == pytest.approx(
        rows["single:2"]["mean"] - rows["evolved:trinity"]["mean"]
    )
    learners = {row["label"]: row for row in tables["4"]["rows"]}
    assert list(learners) == ["REINFORCE", "random search", "supervised labels", "sep-CMA-ES"]
    assert learners["REINFORCE"]["paper"]["values"] == [25.3, 45.9, 50.0, 26.6]
    assert [row["row"] for row in tables["turns"]["rows"]] == [
        f"evolved:trinity {turns} turns" for turns in range(1, 7)
    ]
    assert sum(tables["selection"]["selection"]["user"].values()) == pytest.approx(1.0)
    assert all(row["mean"] > 0 for row in tables["9"]["rows"])

    store = open_store(world.store)
    episodes = store.episodes.of_run(learners["REINFORCE"]["runs"][0])
    assert learners["REINFORCE"]["mean"] == np.mean([bool(one.correct) for one in episodes])
    assert len({one.task_id for one in episodes}) == len(episodes) == 12
    evolved = store.runs.get(learners["REINFORCE"]["evolutions"][0])
    assert evolved.config["evolution"]["learner"] == "reinforce"
    assert max(one.evaluations for one in store.evolution.generations(evolved.id)) == 160
    votes = [one for one in store.episodes.of_run(rows["majority"]["runs"][0]) if one.turns == 5]
    assert len(votes) == 12
    one = store.episodes.get(store.episodes.of_run(rows["mixture"]["runs"][0])[0].id)
    assert [turn.decision.model for turn in one.turns[:2]] == ["adder", "guesser"]
    assert len(one.turns) == 3

    runs, asked = len(store.runs.list(limit=1000)), len(world.server.requests)
    assert reproduce(world, *PLAYED, "--seeds", "0", "--json").json == result.json
    assert len(store.runs.list(limit=1000)) == runs
    assert len(world.server.requests) == asked
    store.close()

    again = reproduce(world, "4", "--seeds", "0,1", "--json").json["tables"]["4"]["rows"]
    assert all(set(row["by_seed"]) == {"0", "1"} for row in again)
    evolutions = [row["evolutions"] for row in again]
    other = reproduce(world, "4", "--seeds", "0,1", "--n", 10, "--task-seed", 2, "--json").json
    assert [row["evolutions"] for row in other["tables"]["4"]["rows"]] == evolutions  # only measured anew
    printed = reproduce(world, "4", "9", "--show").out
    assert "Table 4: Learners" in printed
    assert "REINFORCE: 25.3 / 45.9 / 50 / 26.6" in printed
    assert "Table 9" in printed
    nothing = world.trinity("reproduce", "4", "--show", "--budget", 999)
    assert "holds nothing of these tables" in nothing.out

    page = opened("results", table="4")
    assert "Learners at the same budget" in shown(page)
    frame = page.dataframe[0].value
    assert list(frame["row"]) == list(learners)
    assert frame["paper"][3] == "sep-CMA-ES: 61.5 / 88 / 91.6 / 40.1"
    assert "Seed 1: its episodes" in shown(page)
    assert "share of turns by model" in shown(opened("results", table="selection"))
    assert "Output tokens" in shown(opened("results", table="9"))
    assert "trinity reproduce 2" in shown(opened("results", table="2"))
    assert "supervised labels" in shown(opened("home"))  # among the latest runs


def test_the_page_of_an_empty_store_says_how_to_fill_it(store: Store) -> None:
    assert "trinity reproduce 4" in shown(opened("results"))


def test_bad_input_is_one_sentence_and_plays_nothing(world: Sums) -> None:
    for arguments, words in (
        (("17",), "There is no table '17' to reproduce: choose 1, 2"),
        (("4", "--seeds", "0,x"), "Seeds '0,x' are not understood"),
        (("4", "--tasks", "nowhere.jsonl"), "nowhere.jsonl cannot be read"),
        (("4", "--budget", 8), "give at least 160"),
    ):
        result = world.trinity("reproduce", *arguments)
        assert result.code != 0
        assert words in " ".join(result.err.split())
    store = open_store(world.store)
    assert not store.runs.list()
    store.close()


def test_paid_models_need_a_ceiling(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    world.price(1.0)
    monkeypatch.setenv("SUMS_KEY", "k")
    result = reproduce(world, "combinations", "--seeds", "0")
    assert result.code != 0
    assert "set a ceiling with --max-cost" in " ".join(result.err.split())
    assert not world.server.requests


def test_a_row_with_missing_episodes_is_not_kept(world: Sums, store: Store) -> None:
    specs = [ModelSpec(name, dialect="terse", provider="scripted") for name in ("adder", "guesser")]

    def down(ask: Ask) -> Line:
        return Failure("infrastructure", "Down.") if ask.model == "guesser" else "answer 1"

    suite = Suite(budget=160, n=12, turns=3, tasks=world.tasks, held_out=world.tasks)
    with pytest.raises(PoolError, match=r"of row 'random' are missing \(Down\.\)"):
        Reproduction(store, suite, ScriptedPool(specs, down)).measure(Row("random", "random"), 0)
    assert not store.runs.list()
    assert not suites(store)


def test_every_row_has_a_recipe_and_its_published_numbers() -> None:
    for table in TABLES.values():
        for row in table.rows:
            kind, _, name = row.how.partition(":")
            assert kind in (
                "evolved",
                "only",
                "single",
                "random",
                "router",
                "labels",
                "cascade",
                "majority",
                "mixture",
                "union",
            )
            assert kind != "evolved" or name in EVOLVED
            if row.published and table.measure != "selection" and table.id != "turns":
                assert row.published in table.published.rows, (table.id, row.label)
        assert all(len(values) == len(table.published.columns) for values in table.published.rows.values())
    assert Counter(row.key for row in needed(list(TABLES.values()))).most_common(1)[0][1] == 1
    assert outcomes(TABLES["4"], {}) == []
