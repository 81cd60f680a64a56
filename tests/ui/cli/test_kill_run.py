"""SIGKILL to `trinity run`, a dozen times, in model calls and around commits: nothing committed is lost, and what is
resumed ends as if it had never been disturbed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.episode import Episode, Reply
from storage.store import open_store
from tests.ui.cli.dying import Nursery, last_run
from tests.ui.sums import Sums

pytestmark = pytest.mark.process

#: All deaths are of one run: each resumes what the last one left.
RUN_DEATHS = 12


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


def test_a_killed_run_loses_nothing_and_ends_the_same(world: Sums) -> None:
    arguments = ["run", "--tasks", world.tasks, "--policy", "random", "--policy", "single:guesser"]
    undisturbed = world.trinity(*arguments)
    assert undisturbed.code == 0
    expected = turns(world.store, last_run(world.store))
    calls = len(world.server.requests)
    run = ""
    before: dict[tuple[str, int], object] = {}
    born = Nursery(world)
    for number in range(RUN_DEATHS):
        command = ["run", "--resume", run] if run else arguments
        born.die(command, number, calls=4 + number, commits=8 + number)
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
