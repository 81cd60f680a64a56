"""Runs, leases, controls, checkpoints and generations, and what a store that cannot be opened says."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from threading import Timer

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Index
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from core.checkpoint import Checkpoint
from core.episode import Reply, Role, TurnStarted, Usage
from core.errors import StoreError
from core.play.drive import drive_many
from core.play.policies import single_policy
from storage.recorder import record
from storage.rows import engine
from storage.rows.schema import metadata
from storage.rows.summaries import CandidateSummary, RunControl, RunStatus, UpdateSummary
from storage.store import Store, open_store, sqlite_warning
from tests.builders.checkpoints import checkpoint
from tests.builders.play import MODELS, births, events, grade, tasks
from tests.builders.pools import ScriptedPool, specs
from tests.builders.stores import empty_store, kept_generation, new_store


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    opened = new_store(tmp_path / "trinity.db", now=clock)
    yield opened
    opened.close()


def test_a_run_lives(store: Store, clock: Clock) -> None:
    store.runs.create("r1", "run", {"n": 3})
    clock.at = 1010.0
    queued = store.runs.create("r2", "live", {}, status=RunStatus.QUEUED)
    assert (queued.started, queued.heartbeat) == (None, None)
    assert [run.id for run in store.runs.list()] == ["r2", "r1"]
    assert [run.id for run in store.runs.list(kind="live")] == ["r2"]
    assert [run.id for run in store.runs.list(status=RunStatus.RUNNING)] == ["r1"]
    store.runs.finish("r1", RunStatus.FAILED, "The pool is empty.")
    run = store.runs.get("r1")
    assert (run.status, run.error, run.finished) == (RunStatus.FAILED, "The pool is empty.", 1010.0)
    assert (run.config, run.episodes, run.accuracy) == ({"n": 3}, 0, None)
    with pytest.raises(StoreError, match="already is a run r1"):
        store.runs.create("r1", "run", {})
    with pytest.raises(StoreError, match="holds no run r9"):
        store.runs.get("r9")


def test_a_name_is_one_runs(store: Store) -> None:
    store.runs.create("r1", "evolve", {}, name="mine")
    with pytest.raises(StoreError, match="already is a run named 'mine': choose another"):
        store.runs.create("r2", "train", {}, name="mine")
    store.runs.create("r3", "train", {}, name="")
    store.runs.create("r4", "train", {})
    assert store.runs.names() == {"r1": "mine"}
    assert store.runs.find("mine", "evolve", "train") == store.runs.find("r1", "evolve") == "r1"
    assert store.runs.find("mine", "train") is None


def test_only_one_of_many_workers_gets_a_run(store: Store) -> None:
    store.runs.create("r1", "live", {}, status=RunStatus.QUEUED)
    with ThreadPoolExecutor(8) as workers:
        claimed = list(workers.map(lambda i: store.runs.claim("r1", f"w{i}"), range(8)))
    assert sum(claimed) == 1
    assert store.runs.get("r1").owner == f"w{claimed.index(True)}"


def test_a_dead_workers_run_can_be_taken_over(store: Store, clock: Clock) -> None:
    store.runs.create("r1", "run", {}, owner="a")
    assert not store.runs.claim("r1", "b")
    clock.at += 20
    store.runs.heartbeat("r1", "a")
    clock.at += 20
    assert not store.runs.claim("r1", "b")
    assert store.runs.mark_interrupted() == []
    clock.at += 20
    assert store.health().stalled == 1
    assert store.runs.mark_interrupted() == ["r1"]
    assert store.runs.claim("r1", "b")
    store.runs.finish("r1", owner="b")
    assert not store.runs.claim("r1", "c")
    store.runs.create("r2", "run", {})
    assert not store.runs.claim("r2", "b"), "a run of nobody is not taken for dead"


def test_of_two_who_find_the_owner_dead_one_gets_the_run_and_the_dead_one_is_out(store: Store) -> None:
    store.runs.create("r1", "run", {}, owner="a")
    with ThreadPoolExecutor(8) as workers:
        claimed = list(workers.map(lambda i: store.runs.claim("r1", f"w{i}", dead="a"), range(8)))
    assert sum(claimed) == 1
    winner = f"w{claimed.index(True)}"
    for late in ("a", None, f"w{claimed.index(False)}"):
        with pytest.raises(StoreError, match=f"Process {winner} has taken run r1 over"):
            store.runs.heartbeat("r1", late)
        with pytest.raises(StoreError, match=f"Process {winner} has taken run r1 over"):
            store.runs.finish("r1", owner=late)
    assert store.runs.get("r1").status is RunStatus.RUNNING
    store.runs.finish("r1", owner=winner)
    assert store.runs.get("r1").status is RunStatus.FINISHED


def test_what_was_spent_is_known_though_one_price_is_not(store: Store) -> None:
    store.runs.create("r1", "run", {})
    assert store.runs.spent_usd("r1") == 0.0
    prices = (0.5, None, 0.25)
    asked = ScriptedPool(
        specs(MODELS), [Reply("answer 1", usage=Usage(1, 1, price)) for price in prices for _ in range(2)]
    )
    worker = single_policy("ada", MODELS, (Role.WORKER,))
    list(record(store, drive_many(births("r1", tasks(2), budget=3), worker, asked, grade)))
    assert store.runs.policies("r1")[0].cost_usd is None
    assert store.runs.spent_usd("r1") == 1.5
    store.learning.add(UpdateSummary("r1", 0, 0, 0.0, spent_usd=2.0))
    assert store.runs.spent_usd("r1") == 3.5


def test_calls_under_way_count_once_their_process_is_gone_and_once_only(store: Store) -> None:
    store.runs.create("r1", "run", {}, owner="a")
    store.runs.note_unanswered("r1", 0.5, 0.25, owner="a")
    assert store.runs.spent_usd("r1") == store.runs.unread_usd("r1") == 0.25, (
        "those under way are answered yet"
    )
    store.runs.mark_interrupted(lambda owner: owner == "a")
    assert store.runs.spent_usd("r1") == store.runs.unread_usd("r1") == 0.75
    assert store.runs.claim("r1", "b")
    assert store.runs.charge_lost("r1", owner="b") == 0.75
    assert store.runs.charge_lost("r1", owner="b") == 0.75
    assert store.runs.spent_usd("r1") == 0.75
    with pytest.raises(StoreError, match="Process b has taken run r1 over"):
        store.runs.note_unanswered("r1", 1.0, 0.0, owner="a")
    store.runs.finish("r1", owner="b")
    assert store.runs.spent_usd("r1") == 0.75


def test_controls_reach_the_worker(store: Store) -> None:
    store.runs.create("r1", "live", {})
    assert store.runs.control("r1") == RunControl(cancel=False, paused=False, steps=0)
    store.runs.pause("r1")
    store.runs.step("r1", 2)
    store.runs.step("r1", 2)
    store.runs.step("r1", 1)
    assert store.runs.control("r1") == RunControl(cancel=False, paused=True, steps=2)
    store.runs.unpause("r1")
    store.runs.cancel("r1")
    assert store.runs.control("r1") == RunControl(cancel=True, paused=False, steps=0)
    assert store.runs.get("r1").status is RunStatus.RUNNING, "the worker ends it, not the button"
    store.runs.create("r2", "live", {}, status=RunStatus.QUEUED)
    store.runs.cancel("r2")
    assert store.runs.get("r2").status is RunStatus.CANCELLED
    assert store.runs.control("gone").cancel, "a deleted run's worker stops"


def test_an_override_waits_for_its_turn_and_no_longer(store: Store) -> None:
    store.runs.create("r1", "live", {})
    (born,) = births("r1", tasks(1))
    store.runs.set_override(born.id, 0, "ada", Role.WORKER)
    store.runs.set_override(born.id, 0, "bo", Role.THINKER)
    assert store.runs.override(born.id, 0) == ("bo", Role.THINKER)
    assert store.runs.override(born.id, 1) is None
    for event in record(store, events([born])):
        if isinstance(event, TurnStarted):
            with pytest.raises(StoreError, match=rf"Turn {event.index + 1} has already begun"):
                store.runs.set_override(born.id, event.index, "ada", Role.WORKER)


def test_only_the_id_of_what_can_decide_an_episodes_turns_is_put_in_charge(store: Store) -> None:
    store.runs.create("r1", "live", {})
    (born,) = births("r1", tasks(1))
    list(islice(record(store, events([born])), 1))
    ours, theirs = checkpoint(MODELS), checkpoint(("x", "y"))
    for one in (ours, theirs):
        store.checkpoints.add(one.id, one.to_config(), one.to_bytes())
    last = born.turn_budget - 1
    for label in (
        "gen 0 · sample",
        "",
        f" {ours.id}",
        "cgone",
        "single:nobody",
        "single:",
        "conductor:random",
        "Random",
    ):
        with pytest.raises(StoreError, match="There is no policy or checkpoint"):
            store.runs.set_decider(born.id, last, label)
    with pytest.raises(StoreError, match="made for other models"):
        store.runs.set_decider(born.id, last, theirs.id)
    assert store.runs.decider(born.id, last) == born.policy
    for policy in (ours.id, "random", "random-model", "round-robin", f"single:{MODELS[0]}", born.policy):
        store.runs.set_decider(born.id, last, policy)
        assert store.runs.decider(born.id, last) == policy
    with pytest.raises(StoreError, match="There is no model 'Worker on ada'"):
        store.runs.set_override(born.id, last, "Worker on ada", Role.WORKER)


def test_checkpoints_come_back_and_never_change(store: Store) -> None:
    store.runs.create("r1", "evolve", {})
    first, second = checkpoint(), checkpoint(seed=1, generation=1)
    for one in (second, first, first):
        store.checkpoints.add(one.id, one.to_config(), one.to_bytes(), run_id="r1", generation=one.generation)
    assert [one.id for one in store.checkpoints.list("r1")] == [first.id, second.id]
    held = store.checkpoints.get(second.id)
    assert Checkpoint.from_bytes(held.config, store.checkpoints.weights(second.id) or b"") == second
    assert store.checkpoints.load(second.id) == second
    with pytest.raises(StoreError, match="different checkpoint"):
        store.checkpoints.add(first.id, first.to_config(), second.to_bytes())
    with pytest.raises(StoreError, match="holds no checkpoint c0"):
        store.checkpoints.weights("c0")


def test_generations_come_back_with_the_last_state_only(store: Store) -> None:
    store.runs.create("r1", "evolve", {})
    assert store.learning.state("r1") is None
    entries = [
        kept_generation("r1", g, 0.5 + g / 10, 0.4, 0.45, 0.1, 32 * (g + 1), 1.5, None, {"entropy": 0.7})
        for g in range(2)
    ]
    members = [CandidateSummary(0, 0.5, 4), CandidateSummary(1, None, 4, missing=4)]
    for entry in entries:
        store.learning.add(entry, candidates=members, state=bytes([entry.index]))
    assert store.learning.updates("r1") == entries
    assert store.learning.candidates("r1", 1) == members
    assert store.learning.state("r1") == (1, b"\x01")
    with pytest.raises(StoreError, match="already has generation or iteration 1"):
        store.learning.add(entries[1], candidates=members, state=b"other")
    assert store.learning.state("r1") == (1, b"\x01"), "all or nothing"
    assert store.runs.get("r1").generations == 2


def test_deleting_a_run_leaves_nothing_of_it(store: Store) -> None:
    store.runs.create("r1", "run", {}, owner="a")
    store.runs.create("r2", "run", {})
    one = checkpoint()
    store.checkpoints.add(one.id, one.to_config(), one.to_bytes(), run_id="r1")
    for run, owner in (("r1", "a"), ("r2", None)):
        list(record(store, events(births(run, tasks(3))), owner=owner))
        store.runs.set_override(store.episodes.of_run(run)[0].id, 90, "ada", Role.WORKER)
    for dead in (None, "b"):
        with pytest.raises(StoreError, match="still running"):
            store.runs.delete("r1", dead)
    store.runs.delete("r1", dead="a")  # killed
    assert store.health().episodes == 3
    assert store.checkpoints.list() == []
    kept = store.episodes.of_run("r2")
    store.runs.finish("r2")
    assert store.episodes.delete([kept[0].id, "none"]) == 1
    assert store.episodes.delete([one.id for one in kept]) == 2
    with store.engine.connect() as connection:
        for table in ("turn", "text", "state", "episode", "task", "override"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0  # noqa: S608
        for index in ("text_search", "task_search"):
            connection.exec_driver_sql(f"INSERT INTO {index}({index}, rank) VALUES ('integrity-check', 1)")  # noqa: S608


def test_health(store: Store) -> None:
    store.runs.create("r1", "run", {})
    health = store.health()
    assert (health.runs, health.running, health.stalled, health.episodes) == (1, 1, 0, 0)
    assert health.schema == engine.SCHEMA_REVISION
    assert health.size_bytes
    assert ".backup" in health.backup_hint


@pytest.mark.parametrize(
    ("version", "warned"), [((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 6, 9), False)]
)
def test_the_sqlite_bug_is_named(version: tuple[int, int, int], warned: bool) -> None:
    assert (sqlite_warning(version) is not None) is warned


def test_the_tables_change_only_with_a_migration() -> None:
    made: list[ExecutableDDLElement] = [CreateTable(table) for table in metadata.sorted_tables]
    indexes = sorted((index for table in metadata.tables.values() for index in table.indexes), key=_name)
    told = "".join(str(one.compile(dialect=dialect())) for one in [*made, *map(CreateIndex, indexes)])
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    assert (engine.SCHEMA_REVISION, digest) == ("1.0010", "e8b96410d5d1831d")
    assert ScriptDirectory(str(engine.MIGRATIONS)).get_current_head() == engine.SCHEMA_REVISION


def _name(index: Index) -> str:
    return str(index.name)


#: A change of the tables as a later version may make it: on SQLite a table that others refer to is made anew.
MIGRATION = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "next", "1.0010", None, None
def upgrade():
    with op.batch_alter_table("run") as run:
        run.drop_constraint("kind", type_="check")
        run.add_column(sa.Column("more", sa.String()))
"""


def test_an_older_store_keeps_everything_when_it_is_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_store(tmp_path / "old.db")
    old.runs.create("r1", "evolve", {}, name="kept")
    old.learning.add(
        kept_generation("r1", 0, best=1.0, mean=0.5, median=0.5, sigma=1.0, episodes=1, wall_s=1.0),
        state=b"state",
    )
    old.close()
    shutil.copytree(engine.MIGRATIONS, tmp_path / "migrations")
    (tmp_path / "migrations" / "versions" / "0006_more.py").write_text(MIGRATION)
    monkeypatch.setattr(engine, "MIGRATIONS", tmp_path / "migrations")
    monkeypatch.setattr(engine, "SCHEMA_REVISION", "next")
    new = open_store(tmp_path / "old.db")
    assert new.health().schema == "next"
    assert new.runs.get("r1").name == "kept"
    assert [one.stats["best"] for one in new.learning.updates("r1")] == [1.0]
    new.runs.finish("r1")
    new.runs.delete("r1")
    assert new.learning.updates("r1") == []  # what belongs to a run goes with it again
    new.close()


def test_the_folders_of_a_new_store_are_made_and_it_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "trinity.db"
    for url in (str(path), f"sqlite:///{path}"):
        opened = open_store(url)
        if not opened.runs.list():
            opened.runs.create("r1", "run", {})
        assert opened.url == f"sqlite:///{path}"
        assert [run.id for run in opened.runs.list()] == ["r1"]
        opened.close()


def test_many_threads_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as workers:
        opened = list(workers.map(open_store, [tmp_path / "new.db"] * 6))
    assert {one.health().schema for one in opened} == {engine.SCHEMA_REVISION}
    for one in opened:
        one.close()


def test_a_new_store_that_somebody_else_is_making_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        Timer(0.3, other.execute, ["COMMIT"]).start()
        with closing(open_store(path)) as store:
            assert store.health().schema == engine.SCHEMA_REVISION


@pytest.fixture(scope="module")
def unusable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files that are no store of this version."""
    folder = tmp_path_factory.mktemp("unusable")
    (folder / "text.db").write_text("Dear database, " * 100)
    empty_store(folder / "newer.db")
    for name, statement in (
        ("foreign.db", "CREATE TABLE recipes (name)"),
        ("newer.db", "UPDATE alembic_version SET version_num = '9999'"),
    ):
        with closing(sqlite3.connect(folder / name)) as connection, connection:
            connection.execute(statement)
    return folder


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "address is empty"),
        ("nonsense://x", "driver"),
        ("sqlite://", "must be a file"),
        ("http://:bad:port/", "not a database URL"),
        ("{tmp}", "is a folder"),
        ("{tmp}/foreign.db", "another program"),
        ("{tmp}/text.db", "not a database"),
        ("{tmp}/text.db/under.db", "cannot be created"),
        ("{tmp}/newer.db", "made by another version of trinity, and its schema .9999. is not known"),
        ("{tmp}/newer.db?mode=ro", "does not have this version's schema: open it once without"),
        ("{tmp}/gone.db?mode=ro", "There is no store .*/gone.db: give the address of one"),
        ("sqlite:///{tmp}/gone.db?mode=ro", "There is no store .*/gone.db: give the address of one"),
        ("sqlite:///{tmp}/gone.db?mode=rw", "write .mode=ro, or no mode"),
        ("{tmp}/nul\0.db", "no path and no URL can have"),
        ("sqlite:///{tmp}/nul\0.db", "no path and no URL can have"),
        ("postgresql://u:\0@h/db", "no path and no URL can have"),
        ("{tmp}/\udc80.db", "no path and no URL can have"),
        ("~nobody-of-this-name/trinity.db", "a user who is not known here .~nobody-of-this-name.: write"),
        ("sqlite:///~nobody-of-this-name/trinity.db", "a user who is not known here"),
        ("{tmp}/" + "long/" * 2000 + "trinity.db", "too long"),
        ("sqlite:///{tmp}/" + "x" * 300 + ".db", "too long"),
        ("{tmp}/" + "x" * 300 + "/trinity.db", "too long"),
        ("{tmp}/" + "x" * 250 + ".db", "too long"),  # beside it there is no room for its write-ahead log
    ],
)
def test_a_store_that_cannot_be_opened_says_why(unusable: Path, url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        open_store(url.format(tmp=unusable))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 500


def test_a_folder_that_cannot_be_written_is_named() -> None:
    with pytest.raises(StoreError, match="/proc/self.*cannot be (opened|created)"):  # not even root may
        open_store("/proc/self/trinity.db")


def test_a_version_names_what_the_store_holds(tmp_path: Path) -> None:
    one, other = (open_store(tmp_path / "trinity.db") for _ in range(2))
    before = one.version()
    assert one.version() == before
    assert other.version() != before  # each counts for itself
    for writer in (one, other):
        writer.runs.create(f"r{writer is one}", "run", {})
        assert one.version() != before
        before = one.version()
        writer.runs.list()
        assert one.version() == before
    one.close()
    other.close()
