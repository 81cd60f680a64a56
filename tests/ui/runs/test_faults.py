"""A fault of this program at one episode of a run: the others are played, and a resumed run plays that one without
paying again."""

from __future__ import annotations

from typing import Any

import pytest

from core.episode import Change, Episode, Status
from core.ids import episode_id
from core.play import reading
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.ui.sums import Sums
from ui.runs import wiring
from ui.runs.batch import completed
from ui.runs.forks.planning import plan_forks
from ui.runs.plans import LivePlan
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.batch import BatchPlan
from ui.runs.worker import play_claimed


def cannot_read(patch: pytest.MonkeyPatch, text: str, first: int = 1) -> None:
    """Reading fails at the so manieth reply that holds a text, and at no other."""
    read, seen = reading.read_reply, 0

    def badly(*given: Any, **more: Any) -> Any:
        nonlocal seen
        if text in given[3]:
            seen += 1
            if seen == first:
                raise RecursionError("maximum recursion depth exceeded")
        return read(*given, **more)

    patch.setattr(reading, "read_reply", badly)


def missing(episodes: list[Episode]) -> list[Episode]:
    assert {one.status for one in episodes} == {Status.FINISHED, Status.MISSING}
    return [one for one in episodes if one.status is Status.MISSING]


def test_a_batch_run_plays_the_others_and_goes_on_without_paying_again(
    store: Store, world: Sums, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = BatchPlan(
        ("single:adder",), str(world.tasks), "test", None, 0, 3, False, str(world.folder / "pool.toml")
    )
    run, _ = enqueue(store, completed(store, asked), Ticket.new())
    cannot_read(monkeypatch, "answer 23")
    assert play_claimed(store, run) == 0
    stopped = store.runs.get(run)
    assert stopped.status is RunStatus.INTERRUPTED
    assert "1 episode is missing: models could not be asked, or this program failed" in str(stopped.error)
    [lost] = missing([store.episodes.get(line.id) for line in store.episodes.of_run(run)])
    assert "This program failed at turn" in str(lost.error)
    assert "RecursionError" in caplog.text
    before = len(world.server.requests)
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    played = store.episodes.get(lost.id)
    assert (
        len(world.server.requests) - before == len(played.turns) - len(lost.turns) - 1
    )  # its reply was stored


def test_a_live_run_says_what_happened_and_can_be_resumed(
    store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = enqueue(store, plan, Ticket.new())[0]
    cannot_read(monkeypatch, "answer 23")
    assert play_claimed(store, run) == 0
    stopped = store.runs.get(run)
    assert stopped.status is RunStatus.INTERRUPTED
    assert "This program failed at turn 2 (RecursionError)" in str(stopped.error)
    assert play_claimed(store, run) == 0
    assert store.episodes.get(episode_id(run, 0)).correct is True


def test_forks_beside_one_that_failed_are_played(
    store: Store, world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("--policy", "single:guesser", "--n", "4", "--validate", "0")
    parent = store.episodes.page(EpisodeFilter(flag="false_accept")).items[0].id
    pool = str(world.folder / "pool.toml")
    specs = wiring.resolve_pool(pool).specs
    change = Change("model", "adder")
    planned = plan_forks(store, [(parent, 2)], change, pool=pool, specs=specs, n=3, baseline=3)
    run = enqueue(store, planned, Ticket.new())[0]
    cannot_read(monkeypatch, "", first=2)
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.INTERRUPTED
    children = [one.summary.id for one in forks.of_runs(store, [run])[run]]
    assert len(missing([store.episodes.get(name) for name in children])) == 1
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
