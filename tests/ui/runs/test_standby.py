"""The worker that an app keeps ready: takes what a person waits for, belongs to one app and one store, is replaced when
it dies, and leaves with the app."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from core.ids import episode_id
from storage.rows.summaries import RunStatus
from storage.store import Store, open_store
from tests.core.pool.faulty_server import Answer, Request
from tests.ui.pages import until
from tests.ui.runs.test_queue import pid_of
from tests.ui.sums import Sums, answer
from ui.runs import lease, queue
from ui.runs.batch import completed
from ui.runs.plans import LivePlan
from ui.runs.queue import StandBy, Ticket, begin, resume, stand_by
from ui.runs.settings.batch import BatchPlan


@pytest.fixture
def app(world: Sums, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandBy]:
    """The hold of an app on its worker, as the app itself has it."""
    own = StandBy()
    own.allow()
    monkeypatch.setattr(queue, "stand_by", own)
    yield own
    worker = own._process
    own.close()
    if worker is not None:
        worker.wait(60)


def ready(store: Store, app: StandBy) -> str:
    """The id of the worker that the app keeps, once it is there."""
    app.keep(store)
    until(lambda: app.takes(store) is not None)
    return str(app.takes(store))


def over(store: Store, run: str) -> bool:
    return store.runs.get(run).status not in (RunStatus.QUEUED, RunStatus.RUNNING)


@pytest.mark.process
def test_one_process_plays_what_a_person_waits_for_and_no_other_is_started(
    store: Store, plan: LivePlan, world: Sums, app: StandBy
) -> None:
    worker = ready(store, app)
    for seed in range(2):
        run = begin(store, replace(plan, seed=seed), Ticket.new())
        until(lambda run=run: over(store, run))  # type: ignore[misc]
        assert store.runs.get(run).status is RunStatus.FINISHED
        assert pid_of(store.runs.get(run)) == worker
    tasks = completed(store, BatchPlan(("single:adder",), world.tasks, "test", 2, 0, 3, False, plan.pool))
    batch = begin(store, tasks, Ticket.new())
    until(lambda: over(store, batch))
    assert store.runs.get(batch).status is RunStatus.FINISHED
    assert pid_of(store.runs.get(batch)) != worker  # what takes long does not hold it up


@pytest.mark.process
def test_while_it_is_busy_another_worker_is_started(store: Store, plan: LivePlan, app: StandBy) -> None:
    worker = ready(store, app)
    paused = begin(store, replace(plan, step=True), Ticket.new())
    until(lambda: bool(store.episodes.of_run(paused)))
    assert pid_of(store.runs.get(paused)) == worker
    other = begin(store, plan, Ticket.new())
    until(lambda: over(store, other))
    assert pid_of(store.runs.get(other)) != worker
    store.runs.cancel(paused)
    until(lambda: over(store, paused))


@pytest.mark.process
def test_it_leaves_with_the_app_and_a_run_that_waits_for_a_person_goes_on_later(
    store: Store, plan: LivePlan, app: StandBy
) -> None:
    worker = psutil.Process(int(ready(store, app)))
    run = begin(store, replace(plan, step=True), Ticket.new())
    until(lambda: store.runs.proposal(episode_id(run, 0), 0) is not None)
    app.close()
    worker.wait(60)
    stopped = store.runs.get(run)
    assert (stopped.status, stopped.error) == (RunStatus.INTERRUPTED, "Paused when the app was closed.")
    assert store.runs.proposal(episode_id(run, 0), 0) is None
    store.runs.unpause(run)
    resume(store, run)
    until(lambda: over(store, run))
    assert store.runs.get(run).status is RunStatus.FINISHED


@pytest.mark.process
def test_what_is_being_played_when_the_app_goes_is_played_to_its_end(
    store: Store, plan: LivePlan, world: Sums, app: StandBy
) -> None:
    worker = psutil.Process(int(ready(store, app)))

    def slow(request: Request) -> Answer:
        app.close()
        return (0.5, *answer(request))

    world.server.answer = slow
    run = begin(store, plan, Ticket.new())
    worker.wait(60)
    assert store.runs.get(run).status is RunStatus.FINISHED


@pytest.mark.process
def test_one_that_dies_is_replaced_and_what_it_played_can_be_resumed(
    store: Store, plan: LivePlan, app: StandBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "PAUSE_S", 0.0)
    first = ready(store, app)
    run = begin(store, replace(plan, step=True), Ticket.new())
    until(lambda: bool(store.episodes.of_run(run)))
    os.kill(int(first), signal.SIGKILL)
    until(lambda: app.takes(store) not in (None, int(first)))
    second = str(app.takes(store))
    store.runs.unpause(run)
    resume(store, run)
    until(lambda: over(store, run))
    assert store.runs.get(run).status is RunStatus.FINISHED
    assert pid_of(store.runs.get(run)) == second


@pytest.mark.process
def test_one_that_dies_again_and_again_is_not_started_for_ever(
    store: Store, plan: LivePlan, app: StandBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "PAUSE_S", 0.0)
    monkeypatch.setattr(queue, "OPTION", "--no-such-option")
    app.keep(store)
    until(lambda: app._short_lives == 3)
    app.keep(store)
    assert app.takes(store) is None
    run = begin(store, plan, Ticket.new())  # a worker of its own takes it
    until(lambda: over(store, run))
    assert store.runs.get(run).status is RunStatus.FINISHED


@pytest.mark.process
def test_it_plays_nothing_paid_before_a_ceiling_is_agreed(
    store: Store, plan: LivePlan, world: Sums, app: StandBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.price(10.0)
    monkeypatch.setenv("SUMS_KEY", "k")
    ready(store, app)
    run = begin(store, plan, Ticket.new())
    until(lambda: over(store, run))
    assert store.runs.get(run).status is RunStatus.FAILED
    assert "set a ceiling" in str(store.runs.get(run).error)
    assert not world.server.requests
    allowed = begin(store, replace(plan, max_cost_usd=100.0), Ticket.new())
    until(lambda: over(store, allowed))
    assert store.runs.get(allowed).status is RunStatus.FINISHED
    assert world.server.requests


def test_nothing_is_started_by_who_is_no_app_and_for_who_starts_no_workers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_by.keep(store)  # this process serves no app
    assert stand_by.takes(store) is None
    own = StandBy()
    own.allow()
    monkeypatch.setenv("TRINITY_WORKERS", "0")
    own.keep(store)
    assert own.takes(store) is None


@pytest.mark.process
def test_it_is_of_one_store(store: Store, app: StandBy, tmp_path: Path) -> None:
    ready(store, app)
    with closing(open_store(tmp_path / "other.db")) as other:
        assert app.takes(other) is None
    assert lease.alive() == []  # it holds no slot while it waits
