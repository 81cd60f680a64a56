"""A store on a PostgreSQL server: every command and every page answers as on SQLite."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.episode import Verdict
from storage.filters.episode_filter import EpisodeFilter
from storage.store import open_store
from tests.bench._cluster import Nodes, digest_of, models, said, trinity
from tests.builders.sample_store import sample_store
from tests.core.outcomes.tables import Answered, small_table
from tests.ui.pages import command, opened, shown
from ui.runs import wiring
from ui.web.kit import state

pytestmark = pytest.mark.process

BINARIES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)

#: What a reader may ask of the recorded episodes, each with an order that knows no ties and no missing values.
READS = (
    ("episodes", "--limit", "100", "--order", "oldest"),
    ("episodes", "--where", 'correct == False and any(turn.verdict == "ACCEPT")', "--order", "oldest"),
    ("episodes", "--where", 'count(turn.role == "W") >= 2 and not all(turn.model == "jack")'),
    ("episodes", "--where", '"false_accept" in flags or margin < 0.5'),
    ("episodes", "--where", 'search("many")', "--order", "oldest"),
    ("episodes", "--order", "entropy"),
    ("episodes", "--order", "tokens"),
    ("episodes", "--where", 'any(turn.model == "jack" and turn.role == "worker") and turns <= 4'),
    ("compare", "c8301nb0jls", "random"),
    ("routing",),
    ("verifier",),
    ("requests", "--since", "all", "--part", "worth"),
    ("labels",),
)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL server of this test's own."""
    if BINARIES is None:
        pytest.skip("no PostgreSQL: install Debian's package postgresql")
    # Not pytest's folder: the server runs as a user who may not look into it.
    folder = Path(tempfile.mkdtemp(prefix="trinity-postgres-"))
    as_server = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if as_server:
        shutil.chown(folder, "postgres")
    try:
        with _serving(folder, as_server) as url:
            yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _serving(folder: Path, as_server: list[str]) -> Iterator[str]:
    assert BINARIES is not None
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    def do(program: str, *arguments: str) -> None:
        subprocess.run(
            [*as_server, str(BINARIES / program), *arguments], check=True, stdout=subprocess.DEVNULL
        )

    data = str(folder / "data")
    do("initdb", "-D", data, "-A", "trust", "-U", "trinity", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    do("pg_ctl", "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "start")
    try:
        do("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "trinity", "inspector")
        yield f"postgresql://trinity@127.0.0.1:{port}/inspector"
    finally:
        do("pg_ctl", "-D", data, "-m", "immediate", "stop")


def test_commands_and_pages_answer_as_on_sqlite(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = sample_store(database, n=8)
    episode = store.episodes.page(EpisodeFilter(correct="wrong")).items[0].id
    sqlite = f"sqlite:///{tmp_path / 'trinity.db'}"

    def said(url: str, *arguments: str) -> Any:
        assert command([*arguments, "--store", url, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    label = ("label", episode, "quality=good", "--turn", "1", "--author", "ada", "--store", database)
    assert command(list(label)) == 0
    capsys.readouterr()
    for url, name in ((database, "from-postgres.jsonl"), (sqlite, "from-sqlite.jsonl")):
        said(url, "export", "--all", "--out", str(tmp_path / name))
        said(sqlite, "import", str(tmp_path / name))
    exported = (tmp_path / "from-postgres.jsonl").read_bytes()
    assert exported == (tmp_path / "from-sqlite.jsonl").read_bytes()
    assert exported.count(b'"kind":"episode"') == 4 * (8 + 2) + 1  # policies, tasks, and an interrupted one
    for url in (database, sqlite):
        with closing(open_store(url)) as opened_one:
            for one in opened_one.episodes.page(EpisodeFilter(policy="random")).items:
                opened_one.endpoint.note(one.id, None, "chat", "trinity", at=one.started)
    for asked in READS:
        assert said(database, *asked) == said(sqlite, *asked), asked
    monkeypatch.setenv("TRINITY_STORE", database)
    for name in state.VIEWS:
        page = opened(name, **({"ep": episode} if name == "replay" else {}))
        assert not page.error, shown(page)
    assert store.episodes.delete([episode]) == 1
    store.close()


def test_recorded_replies_are_kept_as_on_sqlite(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A judge's verdict that the table has, one by agreement, a sample that is not the first, and no answer at all."""
    answers: dict[str, list[Answered]] = {
        "ann": [*[("A", "B")] * 20, *[("", "C")] * 20],
        "bob": [("A", "A")] * 40,
        "cyd": [("B", "C")] * 30 + [None] * 10,
    }
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    small_table(wiring.data_folder(), answers, judges=[(task, "bob", "A", "ACCEPT") for task in range(40)])
    sqlite, file = f"sqlite:///{tmp_path / 'trinity.db'}", str(tmp_path / "recorded.jsonl")

    def said(url: str, *arguments: str) -> Any:
        assert command([*arguments, "--store", url, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    of = ("run", "--pool", "outcomes:small", "--split", "evolve", "--n", "20", "--task-seed", "1")
    said(database, *of, "--policy", "cascade:ann+cyd+bob", "--policy", "cascade:ann+bob+cyd")
    with closing(open_store(database)) as store:
        run = store.runs.list()[0]
    said(database, "export", run.id, "--out", file)
    said(sqlite, "import", file)
    said(sqlite, "export", run.id, "--out", f"{file}.again")
    assert Path(file).read_bytes() == Path(f"{file}.again").read_bytes()
    for flag in ("recorded", "by_agreement", "reused"):
        where = f'run == "{run.id}" and any("{flag}" in turn.flags)'
        asked = ("episodes", "--where", where, "--order", "oldest", "--limit", "100")
        assert (found := said(database, *asked)) == said(sqlite, *asked)
        assert found, flag
    with closing(open_store(database)) as store, closing(open_store(sqlite)) as other:
        episodes = [store.episodes.get(one.id) for one in store.episodes.of_run(run.id)]
        assert episodes == [other.episodes.get(one.id) for one in episodes]
    replies = [turn.reply.recorded for one in episodes for turn in one.turns if turn.reply.recorded]
    judged = {(row.verdict, row.by_agreement) for row in replies if row.verdict}
    assert judged == {(Verdict.ACCEPT, False), (Verdict.ACCEPT, True), (Verdict.REVISE, True)}
    assert {(row.sample, row.answer) for row in replies} >= {(0, "A"), (1, "C"), (0, None)}


@pytest.mark.integration
def test_what_is_played_on_a_cluster_is_kept_as_on_sqlite(
    nodes: Nodes, database: str, tmp_path: Path
) -> None:
    """A batch run and an evolution: by this machine alone into SQLite, by a cluster into PostgreSQL."""
    batch = ("run", "--policy", "random", "--tasks", "pocket", "--validate", 0, "--n", 20, "--max-cost", 5)
    size = ("--generations", 2, "--population", 4, "--replicates", 4, "--validation", 8, "--n", 40)
    evolution = (
        "evolve",
        "--tasks",
        "pocket",
        "--encoder",
        "pocket",
        "--no-controls",
        *size,
        "--max-cost",
        5,
    )
    here = str(tmp_path / "here.db")
    with models(0.01) as served:
        pool = ("--pool", served.pool(tmp_path / "pool.toml"))
        for asked in (batch, evolution):
            before = served.books()["calls"]
            said(trinity(here, *asked, *pool))
            played = served.books()["calls"]
            said(trinity(database, *asked, *pool, "--engine", f"ray={nodes.address}"))
            assert served.books()["calls"] - played == played - before > 0
            assert digest_of(database) == digest_of(here)
