"""The recorded pool through the command line: what plays, what is told, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.episode import EndReason, Flag, Status, Task
from core.evolution.config import EvolveConfig
from core.outcomes.table import OutcomeTable
from core.tasks.sets import load_tasks
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import RunStatus
from tests.core.outcomes.tables import Answered, small_table
from tests.ui.pages import opened
from tests.ui.sums import Sums
from ui.presentation.comparison import seen_words
from ui.presentation.theme import label
from ui.runs import wiring
from ui.runs.learning import tasks_seen
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.learning import EvolutionPlan

POOL = ("--pool", "outcomes:small")


@pytest.fixture
def table(world: Sums, monkeypatch: pytest.MonkeyPatch) -> OutcomeTable:
    """Sixty questions; ann has no reply to every sixth of them. The pool is named where it is wanted."""
    monkeypatch.delenv("TRINITY_POOL", raising=False)
    answers: dict[str, list[Answered]] = {
        "ann": [None if i % 6 == 0 else "AB"[i % 2] for i in range(60)],
        "bob": ["AAB"[i % 3] for i in range(60)],
        "cyd": ["A" if i % 5 else "C" for i in range(60)],
    }
    costs = {"ann": 0.01, "bob": 0.02, "cyd": 0.04}
    return small_table(wiring.data_folder(), answers, costs=costs)


def test_a_run_plays_the_tables_tasks_and_says_what_is_missing(world: Sums, table: OutcomeTable) -> None:
    ran = world.done("run", *POOL, "--policy", "single:*", "--policy", "random", "--json")
    assert "Pool outcomes:small: ann, bob, cyd (recorded models)." in ran.err
    assert "No model is called and nothing is paid" in ran.err
    assert "First every cycle" not in ran.err  # a model alone can only say the same again
    rows = {row["policy"]: row for row in ran.json}
    tasks = rows["single:bob"]["n"]
    assert 10 < tasks < 40  # the test split, of the table that the pool names
    ann = rows["single:ann"]
    assert ann["missing"] > 0
    assert ann["n"] + ann["missing"] == tasks
    assert (rows["single:bob"]["calls_mean"], rows["single:bob"]["turns_mean"]) == (1, 1)
    assert rows["single:bob"]["cost_usd_mean"] == pytest.approx(0.02)
    assert rows["single:bob"]["tokens_mean"] == 130
    assert rows["random"]["calls_mean"] < rows["random"]["turns_mean"]  # a row is paid once
    run, spent = world.last_run()
    assert run.status is RunStatus.FINISHED  # what is missing cannot be played, ever
    assert spent > 0
    with world.kept() as store:
        missing = store.episodes.page(EpisodeFilter(status=Status.MISSING), limit=50).items
        assert {one.end_reason for one in missing} == {EndReason.NOT_RECORDED}
        error = store.episodes.get(missing[0].id).error
    assert (
        error
        == "Policy 'single:ann' cannot play this task: models that it needs have no recorded reply to it."
    )
    told = world.done("run", *POOL, "--policy", "single:ann")
    assert "recorded cost" in told.out
    assert f"{ann['missing']} of {tasks} episodes are missing" in told.err


def test_no_ceiling_counts_what_was_paid_long_ago(world: Sums, table: OutcomeTable) -> None:
    ran = world.done("run", *POOL, "--policy", "single:cyd", "--max-cost", "0.0001", "--json").json
    assert ran[0]["cost_usd_mean"] == pytest.approx(0.04)


def test_policies_are_compared_on_the_tasks_that_both_finished(world: Sums, table: OutcomeTable) -> None:
    rows = world.done("run", *POOL, "--policy", "single:ann", "--policy", "single:bob", "--json").json
    compared = world.done("compare", "single:bob", "single:ann", "--json").out
    found = json.loads(compared)
    row = next(one for one in found["ahead"]["policies"] if one["policy"] == "single:ann")
    assert row["n"] == rows[0]["n"] < rows[1]["n"]
    assert (row["calls"], row["cost"]) == (1, pytest.approx(0.01))
    said = world.done("compare", "single:bob", "single:ann").out
    assert "Replies here are recorded: where policies ask the same model, they get the same." in said
    world.done("run", *POOL, "--policy", "random")
    said = world.done("compare", "random", "single:bob").out
    assert "not played under the same setting" not in said  # bob has one turn, as it has one reply


def test_what_no_table_can_play_is_refused_in_one_sentence(world: Sums, table: OutcomeTable) -> None:
    run = ("run", *POOL, "--policy")
    assert "has no such question" in world.refused(*run, "random", "--tasks", "pocket", "--n", 3)
    assert "holds no workflows" in world.refused(*run, "conductor:prompted:ann")
    assert "There is no outcome table 'other'" in world.refused(
        "run", "--pool", "outcomes:other", "--policy", "random"
    )
    assert "Recorded models reply to the questions of their outcome table alone" in world.refused(
        "serve", *POOL
    )
    assert "Name the language model that reads" in world.refused("evolve", *POOL, "--generations", 1)
    small_table(wiring.data_folder(), name="textless", texts=False)
    textless = ("--pool", "outcomes:textless", "--encoder", "pocket")
    assert "has no texts of its questions" in world.refused("evolve", *textless, "--generations", 1)
    assert world.done("run", "--pool", "outcomes:textless", "--policy", "random", "--n", 3).code == 0


def test_a_pool_of_a_table_is_listed_and_checked_without_asking(world: Sums, table: OutcomeTable) -> None:
    listed = world.done("pool", "list", *POOL, "--json").json
    assert [(one["name"], one["provider"]) for one in listed] == [
        ("ann", "recorded"),
        ("bob", "recorded"),
        ("cyd", "recorded"),
    ]
    checked = world.done("pool", "check", *POOL, "--json").json
    assert [one["tasks"] for one in checked] == [50, None, None]
    assert checked[0]["roles"] == ["worker", "verifier"]


def test_an_evolution_of_recorded_models_goes_through_and_its_checkpoint_plays(
    world: Sums, table: OutcomeTable
) -> None:
    size = ("--generations", 2, "--population", 4, "--replicates", 4, "--validation", 6, "--turns", 3)
    told = world.done("evolve", *POOL, "--encoder", "pocket", *size, "--reuse", "--record", "all", "--json")
    assert "Of a recorded reply it reads the answer and the last 200 characters." in told.err
    assert "nothing is recorded of these models" not in told.err
    evolved = told.json
    assert evolved["took"]["episodes"] == 2 * 4 * 4
    checkpoint = evolved["checkpoint"]
    row = world.done("run", *POOL, "--policy", checkpoint, "--n", 5, "--json").json[0]
    assert row["n"] == 5
    with world.kept() as store:
        stored = store.episodes.page(EpisodeFilter(policy=checkpoint), limit=1).items[0]
        turn = store.episodes.get(stored.id).turns[0]
        assert store.learning.paid_replies(evolved["run"]).recall() == []  # nothing is paid
    assert turn.reply.recorded is not None or Flag.NOTHING_TO_JUDGE in turn.flags
    assert turn.decision.role.value != "thinker"  # no table holds plans


def test_a_fork_asks_another_recorded_model(world: Sums, table: OutcomeTable) -> None:
    world.done("run", *POOL, "--policy", "random", "--n", 8, "--turns", 2)
    with world.kept() as store:
        episodes = [store.episodes.get(one.id) for one in store.episodes.page(EpisodeFilter(), limit=8).items]
    parent = next(one for one in episodes if one.turns[0].reply.recorded and not one.left_out)
    own = parent.turns[0].decision
    other = next(name for name in parent.models if name != own.model)
    told = world.done("fork", parent.id, "--turn", 1, "--model", other, "--n", 1, "--json")
    assert told.code == 0
    with world.kept() as store:
        forks = store.episodes.page(EpisodeFilter(forks="only"), limit=8).items
        turns = [store.episodes.get(one.id).turns[0] for one in forks]
    assert other in {turn.decision.model for turn in turns}
    assert all(turn.reply.recorded for turn in turns)
    assert "has a recorded reply" in world.refused("fork", parent.id, "--turn", 1, "--temperature", "0.2")
    assert "holds nothing of that kind" in world.refused("fork", parent.id, "--turn", 1, "--role", "thinker")


def test_recorded_turns_go_out_and_come_back(world: Sums, table: OutcomeTable, tmp_path: Path) -> None:
    world.done("run", *POOL, "--policy", "random", "--n", 6)
    run, _ = world.last_run()
    file, other = tmp_path / "out.jsonl", str(tmp_path / "other.db")
    world.done("export", run.id, "--out", file)
    world.done("import", file, "--store", other)
    with world.kept() as store:
        names = [one.id for one in store.episodes.of_run(run.id)]
    for name in names:
        told = [
            world.done("episodes", "show", name, "--json", *store).json for store in ((), ("--store", other))
        ]
        assert told[0] == told[1]
    shown = world.done("episodes", "show", names[0], "--store", other).out
    assert "from the outcome table small@" in shown
    lines = file.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if '"by_agreement":true' in line)
    lines[place] = lines[place].replace('"sample":0', '"sample":-1', 1)
    (tmp_path / "bad.jsonl").write_text("\n".join(lines) + "\n")
    assert "reply.recorded.sample" in world.refused(
        "import", tmp_path / "bad.jsonl", "--store", str(tmp_path / "b.db")
    )


EVOLVED = ("--encoder", "pocket", "--generations", 1, "--population", 2, "--replicates", 2, "--turns", 2)


def test_a_checkpoint_that_plays_tasks_that_it_learned_from_is_told_so(
    world: Sums, table: OutcomeTable
) -> None:
    evolved = ("evolve", *POOL, "--tasks", "outcomes:small@0", *EVOLVED, "--no-controls", "--json")
    name = world.done(*evolved).json["checkpoint"]

    def told(policy: str, tasks: str, split: str = "test") -> str:
        said = world.done("run", *POOL, "--policy", policy, "--tasks", tasks, "--split", split).err
        return next((line for line in said.splitlines() if "learned from" in line), "")

    assert told(name, "outcomes:small@0") == told(name, "outcomes:small") == ""
    own = {one.question for one in load_tasks("outcomes:small@0", "evolve", None, 0)}
    own |= {one.question for one in load_tasks("outcomes:small@0", "validation", 200, 0, at_most=True)}
    played = load_tasks("outcomes:small@1", "test", None, 0)
    seen = sum(one.question in own for one in played)
    assert 0 < seen < len(played)
    words = (
        f"{name} learned from or was validated on {seen} of these {len(played)} tasks, so its accuracy here is no "
        "test of it. The test split of outcomes:small@0 is new to it."
    )
    assert told(name, "outcomes:small@1") == f"Warning: {words}"
    with world.kept() as store:
        run = store.runs.list(kind="run")[0]
        assert run.notes == words
        for page in (opened("episodes", run=run.id), opened("home")):
            assert label(words, 500) in [one.value for one in page.warning]
        other = seen_words(f"without:verifier:{name}", name, seen, len(played), "outcomes:small@0")
        assert tasks_seen(
            store, [f"without:verifier:{name}"], ("ann", "bob", "cyd"), played, "outcomes:small@1"
        ) == [other]
    every = len(load_tasks("outcomes:small@0", "evolve", None, 0))
    assert f"validated on {every} of these {every} tasks" in told(name, "outcomes:small@0", "evolve")
    world.done("run", *POOL, "--policy", "random", "--tasks", "outcomes:small@1")
    compared = world.done("compare", "random", name).out
    assert words in " ".join(compared.split())
    # The same questions, in a file of one's own: by their text.
    file = world.folder / "again.jsonl"
    lines = [{"question": one.question, "answer": one.answer, "grader": one.grader} for one in played]
    file.write_text("\n".join(json.dumps({**line, "split": "test"}) for line in lines))
    with world.kept() as store:
        found = tasks_seen(store, [name], (), load_tasks(str(file), "test", None, 0), str(file))
    assert found == [words]


def test_what_was_learned_elsewhere_or_on_other_pocket_splits_is_not_told(world: Sums) -> None:
    plan = EvolutionPlan("pocket", 30, 10, evolution=EvolveConfig(), models=("jack",), name="mine")
    with world.kept() as store:
        run = enqueue(store, plan, Ticket(), owner="me")[0]
        store.checkpoints.add("ccc", config={}, weights=b"1", kind="head", run_id=run, generation=1)
        store.checkpoints.add("alone", config={}, weights=b"2", kind="head")

        def told(tasks: list[Task], spec: str = "pocket", name: str = "ccc") -> list[str]:
            return tasks_seen(store, [name, "random"], ("jack",), tasks, spec)

        evolve = load_tasks("pocket", "evolve", 60, 0)
        assert told(load_tasks("pocket", "test", 100, 0)) == []
        assert told(load_tasks("pocket", "unseen", 20, 0)) == []
        assert told(evolve, name="alone") == []  # no run of this store made it
        assert len(told(evolve)) == 1
        assert "30 of these 60 tasks" in told(evolve)[0]
        assert told(evolve[30:], "some.jsonl") == []
        assert "this very task" in told(evolve[:1], "")[0]
