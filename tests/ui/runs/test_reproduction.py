"""`trinity reproduce` over a small world: rows are kept whole, played once, and read back as tables and as a page."""

from __future__ import annotations

import shlex
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.conduct.planners import FIXED
from core.episode import Ask, EndReason, Episode, Failure, Protocol, Role, Status
from core.evolution.config import DEFAULT_BUDGET
from core.tasks.sets import load_tasks
from storage.rows.summaries import EpisodeSummary, RunStatus
from storage.store import Store
from tests.builders.encoder import tiny_qwen3
from tests.builders.pools import Line, ScriptedPool, specs
from tests.builders.stores import record_finished_run
from tests.ui.pages import opened, shown
from tests.ui.sums import Result, Sums
from ui.runs import wiring
from ui.runs.lease import owner
from ui.runs.paper.reproduction import Reproduction, possible
from ui.runs.paper.results import read
from ui.runs.paper.tables import (
    COUNTED,
    DEFAULT_BUDGETS,
    EVOLVED,
    TABLES,
    TRAINED,
    Curve,
    PlayedRow,
    RowResult,
    SeedRun,
    StoredRow,
    TableRow,
    needed,
    outcomes,
    read_rows,
    suites,
)
from ui.runs.plans import to_config
from ui.runs.play import play
from ui.runs.policy_kinds import POLICIES
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.batch import BatchPlan, ReproducedRow, Suite

pytestmark = pytest.mark.usefixtures("evolving")
PLAYED = ("4", "combinations", "turns", "selection", "9", "5", "7", "parts")
#: Rows that only a suite knows how to make a policy of.
OF_THE_SUITE = (
    *("evolved", "only", "walk", "start", "union", "trained", "warm-up"),
    *("same-model", "workflow", "random-workflow"),
)
OPTIONS = ("--budget", 160, "--n", 8, "--turns", 3)


@pytest.fixture(scope="module")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer: no row that is played here scales weights of another."""
    return tiny_qwen3(
        tmp_path_factory.mktemp("encoder"),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )


def reproduce(world: Sums, *arguments: object) -> Result:
    return world.trinity("reproduce", *OPTIONS, *arguments, "--tasks", world.tasks, "--held-out", world.tasks)


def test_rows_are_played_once_kept_whole_and_shown_beside_the_papers(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = reproduce(world, *PLAYED, "--seeds", "0", "--json")
    assert result.code == 0, result.err
    tables = result.json["tables"]
    assert list(tables) == list(PLAYED)
    rows = {row["row"]: row for row in tables["combinations"]["rows"]}
    others = ["router", "labels", "cascade", "majority", "mixture", "random", "single:1", "single:2", "union"]
    rules = ["by-family", "by-family:pairs", "plan-and-solve", "ridge", "revise"]
    assert set(rows) == {"evolved:trinity", "evolved:trinity voted", *others, *rules}, (
        "there is no third model"
    )
    assert all(rows[name]["mean"] == 1.0 for name in rules), "each leaves all to the model that adds"
    tried = [store.runs.get(rows[name]["runs"][0]).notes for name in ("by-family:pairs", "ridge")]
    assert [note.rpartition("were tried on ")[2] for note in tried] == [
        "4 tasks, 16 episodes.",
        "16 tasks, 96 episodes.",
    ]
    assert rows["single:1"]["label"] == "single model 1: adder"
    assert rows["single:1"]["mean"] == 1.0
    assert rows["union"]["mean"] >= max(rows["single:1"]["mean"], rows["single:2"]["mean"])
    less = rows["single:2"]["mean"] - rows["evolved:trinity"]["mean"]
    assert rows["single:2"]["against_coordinator"]["mean"] == pytest.approx(less)
    learners = {row["label"]: row for row in tables["4"]["rows"]}
    assert list(learners) == [row.label for row in TABLES["4"].rows]
    assert learners["REINFORCE"]["paper"]["values"] == [25.3, 45.9, 50.0, 26.6]
    assert [row["row"] for row in tables["turns"]["rows"]] == [row.key for row in TABLES["turns"].rows]
    assert sum(tables["selection"]["cells"]["user"].values()) == pytest.approx(1.0)
    best = tables["5"]["cells"]["user"]
    assert best["adder"] > best["guesser"]
    assert sum(best.values()) == pytest.approx(8)
    parts = {row["row"]: row for row in tables["parts"]["rows"]}
    assert list(parts) == [row.key for row in TABLES["parts"].rows if row.key != "hand-made"]
    assert all(row["mean"] > 0 for row in tables["9"]["rows"])

    sizes = reproduce(world, "6", "--seeds", "0", "--show", "--json").json["tables"]["6"]["cells"]
    assert sizes["linear"] == {"parameters": (2 + 3) * 16}
    assert sizes["block-diagonal-10"] == {"parameters": 16}

    episodes = store.episodes.of_run(learners["REINFORCE"]["runs"][0])
    assert learners["REINFORCE"]["mean"] == np.mean([bool(one.correct) for one in episodes])
    assert len({one.task_id for one in episodes}) == len(episodes) == 8
    evolved = store.runs.get(learners["REINFORCE"]["evolutions"][0])
    assert evolved.config["evolution"]["learner"] == "reinforce"
    assert max(one.episodes for one in store.learning.updates(evolved.id)) == 160
    masked = store.episodes.of_run(parts["evolved:default without thinker"]["runs"][0])
    roles = {turn.decision.role for one in masked for turn in store.episodes.get(one.id).turns}
    assert Role.THINKER not in roles
    likeliest = store.episodes.get(store.episodes.of_run(parts["evolved:default argmax"]["runs"][0])[0].id)
    assert not any(turn.decision.sampled for turn in likeliest.turns)
    walk, start = (
        store.checkpoints.load(store.episodes.of_run(parts[name]["runs"][0])[0].policy)
        for name in ("walk", "start")
    )
    assert np.abs(walk.vector).max() > 0
    assert not start.vector.any()
    curves = {row.key: one for row, one in _curves(store, "4")}
    curve = curves["evolved:reinforce"]
    assert [episodes for episodes, _ in curve] == sorted({episodes for episodes, _ in curve})
    assert curve[-1][0] == 160
    assert {"router", "labels", "cloned"} <= set(curves)
    assert all(0 <= share <= 1 for _, share in curves["labels"])
    drawn = [episodes for episodes, _ in curves["labels"]]
    fewer = [(drawn[-1] - episodes) / (3 * 2) for episodes in drawn]  # three episodes of two models
    assert fewer == [10, 9, 6, 0], "of 12 questions an eighth, a quarter, half and all"
    votes = [one for one in store.episodes.of_run(rows["majority"]["runs"][0]) if one.turns == 5]
    assert len(votes) == 8
    one = store.episodes.get(store.episodes.of_run(rows["mixture"]["runs"][0])[0].id)
    assert [turn.decision.model for turn in one.turns[:2]] == ["adder", "guesser"]
    assert len(one.turns) == 3

    runs, asked = len(store.runs.list(limit=1000)), len(world.server.requests)
    assert reproduce(world, *PLAYED, "--seeds", "0", "--json").json == result.json
    assert len(store.runs.list(limit=1000)) == runs
    assert len(world.server.requests) == asked
    _the_rows_travel_as_a_file(world, store, tables, monkeypatch, tmp_path)

    two = ("combinations", "--row", "evolved:trinity", "--row", "evolved:trinity voted")
    again = reproduce(world, *two, "--seeds", "0,1", "--json").json["tables"]["combinations"]["rows"]
    assert len(again) == 2
    assert all(set(row["by_seed"]) == {"0", "1"} for row in again)
    evolutions = [row["evolutions"] for row in again]
    assert all(len(set(of_row)) == 2 for of_row in evolutions)
    other = reproduce(world, *two, "--seeds", "0,1", "--n", 4, "--task-seed", 2, "--json").json
    anew = other["tables"]["combinations"]["rows"]
    assert [row["evolutions"] for row in anew] == evolutions, "they are only measured anew"
    printed = reproduce(world, "4", "9", "--show").out
    assert "Table 4: Learners" in printed
    assert "25.3" in printed
    assert "Table 9" in printed
    nothing = world.trinity("reproduce", "4", "--show", "--budget", 999)
    assert "holds nothing of these tables" in nothing.out

    newest, first = (suite.digest for suite, _ in suites(store))
    page = opened("results", table="4", suite=first)
    assert "not on this machine" not in shown(page)
    assert "Learners at the same budget" in shown(page)
    frame = page.dataframe[0].value
    assert list(frame["label"]) == list(learners)
    assert [frame[f"paper_{place}"][6] for place in range(4)] == [61.5, 88, 91.6, 40.1]
    assert "Seed by seed" in shown(opened("results", table="turns", suite=first))
    assert "Share of turns by model" in shown(opened("results", table="selection", suite=first))
    assert "Output tokens" in shown(opened("results", table="9", suite=first))
    page = opened("results", table="7", suite=newest)
    assert "trinity reproduce 7" in shown(page)
    assert "Shipped with the program" in shown(opened("results", table="1"))  # which this store lacks
    assert again[0]["label"] in plain(opened("home"))  # among the latest runs


def _curves(store: Store, table: str) -> list[tuple[TableRow, Curve]]:
    """What each learner of a table came to as it learned, under the first seed."""
    (_, runs), *_ = suites(store)
    rows = TABLES[table].rows
    played = read_rows(store, runs, {row.key for row in rows})
    return [(row, played[row.key][0].curve) for row in rows if row.key in played]


def _the_rows_travel_as_a_file(
    world: Sums, store: Store, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """From the store to a file, and from there to the page of a store that holds no rows."""
    saved = reproduce(world, *PLAYED, "--seeds", "0", "--show", "--save", folder / "results.json")
    assert saved.code == 0, saved.err
    results = read(folder / "results.json")
    learners = {row["row"]: row for row in tables["4"]["rows"]}
    for one in results.outcomes(TABLES["4"]):
        row = learners[one.row]
        assert one.value.mean == pytest.approx(row["mean"])
        assert one.by_seed == {0: pytest.approx(row["mean"])}
        assert one.by_family == row["by_family"]
        assert (TABLES["4"].difference(one) is None) == (row["against_coordinator"] is None)
    parts = {one.row: TABLES["parts"].difference(one) for one in results.outcomes(TABLES["parts"])}
    assert parts["evolved:default"] is None
    for row in tables["parts"]["rows"][1:]:  # against the coordinator of this table, not of another
        against = parts[row["row"]]
        assert against is not None
        assert against.mean == pytest.approx(row["against_coordinator"]["mean"])
    assert [one.label for one in results.outcomes(TABLES["combinations"])] == [
        row["label"] for row in tables["combinations"]["rows"]
    ]
    kept = {(one.measure, one.row): one for one in results.rows}
    coordinator = kept["accuracy", "evolved:trinity"]
    assert coordinator.n == 8
    assert coordinator.tasks_digest == kept["accuracy", "labels"].tasks_digest
    played, other = (kept["accuracy", key].runs or {} for key in ("evolved:trinity", "evolved:reinforce"))
    assert played[0].config != other[0].config
    named = [table for table in TABLES if table in PLAYED]
    words = ("trinity", "reproduce", *named, "--seeds", 0, "--budget", 160, "--n", 8, "--turns", 3)
    assert (results.command or "").startswith(shlex.join(map(str, words)))
    assert store.checkpoints.get((coordinator.policies or ("",))[0])
    assert ("tokens", "mixture") in kept
    _a_file_is_added_to(world, folder / "added.json", len(tables["4"]["rows"]))
    with monkeypatch.context() as patched:
        patched.setattr(wiring, "SAMPLE_RUNS", folder)
        checked = reproduce(world, "4", "--seeds", "0", "--show", "--check")
        assert checked.code == 0, checked.err
        assert checked.out.count("equal, task by task") == len(tables["4"]["rows"])
        text = (folder / "results.json").read_text()
        (folder / "results.json").write_text(text.replace(played[0].outcomes, "0" * 16))
        differs = reproduce(world, "4", "--seeds", "0", "--show", "--check", "--json")
        assert differs.code == 1
        assert [one["words"] for one in differs.json["check"]].count("same settings, other outcomes") == 1
    refused = reproduce(world, "4", "--seeds", "0", "--show", "--save", folder / "no" / "results.json")
    assert refused.code != 0
    assert "cannot be written" in refused.err
    nothing = reproduce(world, "1", "--show", "--save", folder / "none.json")
    assert "holds no row of these tables" in nothing.err
    assert not (folder / "none.json").exists()
    with monkeypatch.context() as patched:
        patched.setenv("TRINITY_STORE", f"sqlite:///{folder / 'empty.db'}")
        patched.setattr(wiring, "SAMPLE_RUNS", folder)
        page = opened("results", table="4")
        assert "not on this machine" in shown(page)
        assert list(page.dataframe[0].value["label"]) == [row["label"] for row in tables["4"]["rows"]]


def _a_file_is_added_to(world: Sums, path: Path, learners: int) -> None:
    """Rows of one table, then of another; a file of another suite is left as it is."""
    assert reproduce(world, "4", "--seeds", "0", "--show", "--save", path).code == 0
    assert len(read(path).rows) == learners
    path.write_text(read(path).model_copy(update={"notes": ("A note.",), "commit": "c"}).model_dump_json())
    assert reproduce(world, "combinations", "--seeds", "0", "--show", "--save", path).code == 0
    both = {one.row: one for one in read(path).rows}
    assert {"evolved:reinforce", "cascade"} <= both.keys()
    assert both["evolved:reinforce"].commit == "c"
    assert both["cascade"].commit is None
    assert read(path).notes == ("A note.",)
    assert " 4 combinations --seeds 0 " in (read(path).command or "")
    assert both["labels"].against
    assert reproduce(world, "4", "--row", "labels", "--show", "--save", path).code == 0
    again = {one.row: one for one in read(path).rows}
    assert again["labels"].against == both["labels"].against, "a row that came out the same keeps them"
    assert again.keys() == both.keys()
    _more_seeds_are_kept(world, path, both["labels"])
    conditions = replace(read(path).conditions, n=13)
    path.write_text(read(path).model_copy(update={"conditions": conditions}).model_dump_json())
    text = path.read_text()
    refused = reproduce(world, "4", "--seeds", "0", "--show", "--save", path)
    assert "holds results of other settings" in refused.err
    assert path.read_text() == text


def _more_seeds_are_kept(world: Sums, path: Path, row: RowResult) -> None:
    """A row of fewer seeds that came out the same does not take the place of one of more; one that did not, does."""
    runs = {**(row.runs or {}), 1: SeedRun(config="c", outcomes="o")}
    fuller = row.model_copy(update={"seeds": (0, 1), "runs": runs, "against": {}})
    for one, kept in ((fuller, True), (fuller.model_copy(update={"runs": {0: runs[1]}}), False)):
        before = read(path)
        rows = tuple(one if old.row == row.row and old.measure == row.measure else old for old in before.rows)
        path.write_text(before.model_copy(update={"rows": rows}).model_dump_json())
        assert reproduce(world, "4", "--seeds", "0", "--show", "--save", path).code == 0
        found = next(new for new in read(path).rows if new.row == row.row and new.measure == row.measure)
        assert found.seeds == ((0, 1) if kept else (0,))
        assert found.against == row.against, "the difference is added in either case"


def plain(page: AppTest) -> str:
    """What a page says, without the marks that keep foreign text literal."""
    return shown(page).replace("\\", "")


def test_bad_input_is_one_sentence_and_plays_nothing(world: Sums, store: Store) -> None:
    for arguments, words in (
        (("17",), "There is no table '17' to reproduce: choose all, 1, 2"),
        (("4", "--row", "nobody"), "These tables have no row 'nobody': choose evolved:reinforce"),
        (("4", "--seeds", "0,x"), "Seeds '0,x' are not understood"),
        (("4", "--tasks", "nowhere.jsonl"), "There is no task file"),
        (("4", "--budget", 8), "give at least 160"),
    ):
        result = world.trinity("reproduce", *arguments)
        assert result.code != 0
        assert words in " ".join(result.err.split())
    assert not store.runs.list()


def test_paid_models_need_a_ceiling(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    world.price(1.0)
    monkeypatch.setenv("SUMS_KEY", "k")
    result = reproduce(world, "combinations", "--seeds", "0")
    assert result.code != 0
    assert "set a ceiling with --max-cost" in " ".join(result.err.split())
    assert not world.server.requests


def measure(game: Reproduction, row: TableRow, seed: int = 0) -> str:
    parts, begun = game.ready(row, seed)
    run = begun or enqueue(game.store, parts.plan, Ticket(), owner=owner())[0]
    deque(play(game.store, run, parts), maxlen=0)
    return run


def test_a_row_with_missing_episodes_is_none_until_they_are_played(world: Sums, store: Store) -> None:
    """What was played is kept, and the same row goes on with it."""
    asked: list[str] = []
    is_down = True

    def sometimes_down(ask: Ask) -> Line:
        asked.append(ask.episode)
        return Failure("infrastructure", "Down.") if is_down and ask.model == "guesser" else "answer 1"

    suite = Suite(budget=160, n=12, turns=3, tasks=world.tasks, held_out=world.tasks)
    row = TableRow("random", "random")

    def game() -> Reproduction:
        return Reproduction(store, suite, ScriptedPool(specs(("adder", "guesser")), sometimes_down))

    run = measure(game(), row)
    found = store.runs.get(run)
    assert found.status is RunStatus.INTERRUPTED
    assert "missing" in (found.error or "")
    assert not suites(store)
    assert game().missing([(0, row)]) == [(0, row)]
    whole = {one.id for one in store.episodes.of_run(run) if one.status is Status.FINISHED}
    is_down, before = False, len(asked)
    assert measure(game(), row) == run
    assert {*asked[before:]}.isdisjoint(whole)
    assert len(suites(store)) == 1
    assert not game().missing([(0, row)])


def test_a_suite_has_the_rows_that_its_tasks_and_pool_allow() -> None:
    rows = [*TABLES["parts"].rows, *TABLES["unseen"].rows, *TABLES["7"].rows]

    def kept(**suite: str) -> set[str]:
        return {row.key for row in possible(rows, 2, Suite(**suite))}  # type: ignore[arg-type]

    whole = kept()
    assert {"hand-made", "random unseen", "majority", "majority:2"} <= whole
    assert "majority:3" not in whole
    assert kept(tasks="pocket/all") == whole - {"hand-made"}  # nobody made teams for the held-out families
    assert kept(tasks="own.jsonl") == {key for key in whole - {"hand-made"} if not key.endswith("unseen")}
    assert kept(pool="pool.toml") == whole - {"hand-made", "trained:default unseen"}


def test_every_row_plays_by_the_rules_of_its_suite(world: Sums, store: Store, tmp_path: Path) -> None:
    """What learns and what does not; rows by the paper's rules are another suite and another file."""
    ours = Suite()
    assert "protocol" not in ours.fields, "suites from before there was a choice are the same ones"
    assert replace(ours, protocol=Protocol.RELEASED).digest != ours.digest
    rows = [word for key in ("evolved:trinity", "router", "majority") for word in ("--row", key)]
    rules, path = (*rows, "--protocol", "released"), tmp_path / "released.json"
    result = reproduce(world, "9", *rules, "--seeds", "0", "--save", path, "--json")
    assert result.code == 0, result.err
    ((suite, _),) = suites(store)
    cloned = Reproduction(store, suite, wiring.resolve_pool(suite.pool))
    runs = [run for row in result.json["tables"]["9"]["rows"] for run in row["runs"]]
    for run in (*runs, measure(cloned, TableRow("cloned", "supervised labels"))):
        whole = [store.episodes.get(one.id) for one in store.episodes.of_run(run)]
        assert {one.protocol for one in whole} == {Protocol.RELEASED}
        if store.checkpoints.has(whole[0].policy):
            assert store.checkpoints.load(whole[0].policy).input_format == "chat"
    assert read(path).conditions.protocol == "released"
    assert (read(path).command or "").endswith("--protocol released")
    assert "holds nothing of these tables" in reproduce(world, "9", "--show").out
    refused = reproduce(world, "9", "--show", "--save", path)
    assert "holds results of other settings" in refused.err


def test_a_seed_that_learned_under_other_settings_is_not_mixed_in(store: Store) -> None:
    """The newest seed says under which settings the row's others must have learned."""
    (sum_task,) = load_tasks("pocket", "test", 1, 0)
    for number, population in enumerate((8, 8, 16, 8)):
        learned, played = f"revo{number}", f"rrow{number}"
        store.runs.create(learned, "evolve", {"evolution": {"population": population, "seed": number}})
        row = ReproducedRow("evolved:trinity", "row", Suite(), learned)
        plan = BatchPlan(("random",), n=1, seed=number, reproduction=row, kind="reproduction")
        over = {"status": Status.FINISHED, "correct": True}
        ended = Episode(f"e{number}", played, sum_task, "random", ("a",), **over)  # type: ignore[arg-type]
        record_finished_run(store, played, plan.kind, to_config(plan), [ended])
    ((_, runs),) = suites(store)
    assert list(runs) == ["rrow3", "rrow2", "rrow1", "rrow0"]
    found = read_rows(store, runs, {"evolved:trinity"})
    assert [one.kept.seed for one in found["evolved:trinity"]] == [0, 1, 3]


def played_row(task: str, *, correct: bool) -> list[PlayedRow]:
    """A row under one seed, of one task."""
    episode = EpisodeSummary(
        "e1", "r1", task, "sums", "q", "single:adder", None, None, Status.FINISHED, correct, EndReason.ACCEPTED, 1,
        "", 0, 0, 0.0, 0.0, None, None, (), 0.0, 1.0,
    )  # fmt: skip
    return [PlayedRow(StoredRow("r1", "single:adder", 0, ""), (episode,))]


def test_the_default_row_has_the_budget_of_trinity_evolve() -> None:
    assert Suite().budget * DEFAULT_BUDGETS == DEFAULT_BUDGET


def test_the_union_is_of_the_single_models_of_its_own_table() -> None:
    played = {
        "single:1": played_row("t1", correct=False),
        "single:1 held-out": played_row("unseen", correct=True),
    }
    rows = {one.row: one for one in outcomes(TABLES["combinations"], played)}
    assert (rows["single:1"].value.mean, rows["union"].value.mean) == (0.0, 0.0)


def test_every_row_has_a_recipe_and_its_published_numbers() -> None:
    for table in TABLES.values():
        for row in table.rows:
            kind, _, name = row.how.partition(":")
            assert kind in POLICIES or kind in OF_THE_SUITE
            assert kind != "evolved" or name in EVOLVED
            assert kind != "workflow" or name in FIXED
            assert kind not in ("trained", "warm-up", "same-model") or name in TRAINED
            if row.published and table.measure not in COUNTED and table.id != "turns":
                assert row.published in table.published.rows, (table.id, row.label)
        assert all(len(values) == len(table.published.columns) for values in table.published.rows.values())
    assert Counter(row.key for row in needed(list(TABLES.values()))).most_common(1)[0][1] == 1
    assert outcomes(TABLES["4"], {}) == []
