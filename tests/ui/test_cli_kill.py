"""SIGKILL to `trinity run` and `trinity evolve`, thirty times and more, in model calls and around commits.

Nothing committed is lost, what is resumed ends as if it had never been disturbed, and an evolution asks for no reply
again that it had stored.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import pytest

from core.episode import Episode, Reply
from storage.store import open_store
from tests.core.faulty_server import Answer, Request
from tests.core.tiny_encoder import tiny_qwen3
from tests.ui.sums import Sums, answer

#: All deaths of one command are of one run: each resumes what the last one left.
RUN_DEATHS = 12
EVOLVE_DEATHS = int(os.environ.get("EVOLVE_DEATHS", "20"))  # with 50 it takes five minutes
KINDS = ("call", "before commit", "after commit")

SMALL = ["--generations", 14, "--population", 8, "--replicates", 4, "--turns", 3, "--validate-every", 4]

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
from storage.replies import PaidReplies
keep = PaidReplies.keep
def watched(self, replies):
    if {{key for key, _ in self.recall()}} & {{key for key, _ in replies}}:
        open(os.environ["ASKED_TWICE"], "w").close()
    keep(self, replies)
PaidReplies.keep = watched
from ui.cli import main
sys.exit(main(sys.argv[2:]))
"""


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


def generations(store_url: str, run: str) -> list[tuple[int, str | None]]:
    """(index, checkpoint) of every committed generation."""
    store = open_store(store_url)
    found = [(one.index, one.checkpoint_id) for one in store.evolution.generations(run)]
    store.close()
    return found


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
    for number, kind in enumerate(islice(cycle(KINDS), RUN_DEATHS)):
        die(world, ["run", "--resume", run] if run else arguments, kind, calls=4 + number, commits=8 + number)
        run = last_run(world.store)
        kept = turns(world.store, run)
        assert before.keys() <= kept.keys()
        assert all(kept[key][0] == expected[key][0] for key in kept)  # type: ignore[index]
        before = kept
    assert 0 < len(before) < len(expected)
    assert world.trinity("run", "--resume", run).code == 0
    assert turns(world.store, run) == expected
    # A call that was under way at a death is made again; no answered one is.
    assert len(world.server.requests) - calls <= calls + RUN_DEATHS * 16


def test_a_killed_evolution_loses_nothing_and_ends_the_same_bit_for_bit(
    world: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_ENCODER", str(tiny_qwen3(tmp_path / "encoder")))
    monkeypatch.setenv("ASKED_TWICE", str(tmp_path / "asked twice"))
    world.add_tasks_to_evolve_on()
    arguments = ["evolve", "--tasks", world.tasks, *map(str, SMALL)]
    undisturbed = world.trinity(*arguments, "--json").json
    expected = generations(world.store, undisturbed["run"])
    run = ""
    before: list[tuple[int, str | None]] = []
    for number, kind in enumerate(islice(cycle(KINDS), EVOLVE_DEATHS)):
        command = ["evolve", "--resume", "--name", run] if run else arguments
        die(world, command, kind, calls=number % 3, commits=2 + number % 3)
        run = last_run(world.store)
        kept = generations(world.store, run)
        assert kept[: len(before)] == before
        assert [index for index, _ in kept] == [index for index, _ in expected][: len(kept)]
        before = kept
    assert 0 < len(before) < len(expected)
    assert (
        world.trinity("evolve", "--resume", "--name", run, "--json").json["digest"] == undisturbed["digest"]
    )
    assert not (tmp_path / "asked twice").exists()
    assert [index for index, _ in generations(world.store, run)] == list(range(len(expected)))


def die(world: Sums, command: Sequence[str], kind: str, *, calls: int, commits: int) -> None:
    """Run the command until SIGKILL: after so many calls while it waits for a model, or at its n-th commit."""
    if kind == "call":
        die_in_call(world, command, calls)
    else:
        die_at_commit(command, commits, after=kind == "after commit")


def die_in_call(world: Sums, command: Sequence[str], after: int) -> None:
    """Kill the process while it waits for a model."""
    process: subprocess.Popen[bytes] | None = None
    started = len(world.server.requests)

    def deadly(request: Request) -> Answer:
        if len(world.server.requests) - started > after and process is not None:
            process.kill()
            return ()
        return answer(request)

    world.server.answer = deadly
    code = DIE_AT_COMMIT.format(after=False)
    process = subprocess.Popen([sys.executable, "-c", code, "0", *command], stderr=subprocess.DEVNULL)
    assert process.wait(300) == -signal.SIGKILL
    world.server.answer = answer


def die_at_commit(command: Sequence[str], number: int, *, after: bool) -> None:
    """Let the process kill itself at its n-th commit."""
    code = DIE_AT_COMMIT.format(after=after)
    died = subprocess.run(
        [sys.executable, "-c", code, str(number), *command],
        stderr=subprocess.PIPE,
        env=os.environ,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
