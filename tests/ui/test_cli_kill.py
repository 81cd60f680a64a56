"""SIGKILL to `trinity run` in a model call and around a commit: nothing committed is lost, the end equal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.episode import Episode, Reply
from storage.store import open_store
from tests.core.faulty_server import Answer, Request
from tests.ui.sums import Sums, answer, sums

#: How often each kind of death is died; all deaths are of one run, so each resumes what the last one left.
DEATHS = 2

#: Kills its own process at the n-th commit, before or after it happens.
DIE_AT_COMMIT = """
import os, signal, sys
from sqlalchemy import Engine, event
left = int(sys.argv[1])
def count(connection):
    global left
    left -= 1
    if left == 0:
        if {after}:
            connection.connection.dbapi_connection.commit()
        os.kill(os.getpid(), signal.SIGKILL)
event.listen(Engine, "commit", count)
from ui.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Sums]:
    with sums(tmp_path, monkeypatch, capsys) as made:
        yield made


def turns(store_url: str, run: str) -> dict[tuple[str, int], object]:
    """Every finished turn of a run, without what a clock measured, by (task, policy) and index."""
    store = open_store(store_url)
    episodes = [store.episodes.get(one.id) for one in store.episodes.of_run(run)]
    store.close()
    return {
        (f"{one.task.id} {one.policy}", turn.index): told(one, turn.index)
        for one in episodes
        for turn in one.turns
    }


def told(episode: Episode, index: int) -> object:
    """What must be the same in every playing of a turn."""
    turn = episode.turns[index]
    reply: Reply = replace(turn.reply, latency_s=0.0)
    return (replace(turn, episode_id="", reply=reply), episode.answer, episode.correct, episode.end_reason)


def last_run(store_url: str) -> str:
    """The id of the newest run."""
    store = open_store(store_url)
    run = store.runs.list()[0].id
    store.close()
    return run


def test_a_killed_run_loses_nothing_and_ends_the_same(world: Sums) -> None:
    arguments = ["run", "--tasks", world.tasks, "--policy", "random", "--policy", "single:guesser"]
    undisturbed = world.trinity(*arguments)
    assert undisturbed.code == 0
    expected = turns(world.store, last_run(world.store))
    calls = len(world.server.requests)
    run = ""
    before: dict[tuple[str, int], object] = {}
    deaths = [kind for _ in range(DEATHS) for kind in ("call", "before commit", "after commit")]
    for number, kind in enumerate(deaths):
        command = ["run", "--resume", run] if run else arguments
        if kind == "call":
            die_in_call(world, command, after=4 + number)
        else:
            die_at_commit(command, 20 + number, after=kind == "after commit")
        run = last_run(world.store)
        kept = turns(world.store, run)
        assert before.keys() <= kept.keys()
        assert all(kept[key][0] == expected[key][0] for key in kept)  # type: ignore[index]
        before = kept
    assert 0 < len(before) < len(expected)
    assert world.trinity("run", "--resume", run).code == 0
    assert turns(world.store, run) == expected
    # A call that was under way at a death is made again; no answered one is.
    assert len(world.server.requests) - calls <= calls + DEATHS * 16


def die_in_call(world: Sums, command: list[str], after: int) -> None:
    """Kill the process while it waits for a model."""
    process: subprocess.Popen[bytes] | None = None
    started = len(world.server.requests)

    def deadly(request: Request) -> Answer:
        if len(world.server.requests) - started > after and process is not None:
            process.kill()
            return ()
        return answer(request)

    world.server.answer = deadly
    process = subprocess.Popen([Path(sys.executable).parent / "trinity", *command], stderr=subprocess.DEVNULL)
    assert process.wait(300) == -signal.SIGKILL
    world.server.answer = answer


def die_at_commit(command: list[str], number: int, *, after: bool) -> None:
    """Let the process kill itself at its n-th commit."""
    code = DIE_AT_COMMIT.format(after=after)
    died = subprocess.run(
        [sys.executable, "-c", code, str(number), *command],
        stderr=subprocess.PIPE,
        env=os.environ,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
