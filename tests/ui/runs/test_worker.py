"""The worker of a run: plays, obeys, fails in one sentence, goes on where a dead one stopped, and plays the others
where this program fails at one episode."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from core.episode import Ask, EndReason, Episode, Message, Role, Status
from core.errors import StoreError
from core.ids import episode_id
from core.play import reading
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from storage.rows.engine import writing
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.core.pool.faulty_server import fail, faulty_server, ok
from tests.ui.pages import until
from tests.ui.sums import Sums, answer
from ui.runs import play as playing
from ui.runs.batch import complete_plan
from ui.runs.plans import LivePlan, RunPlan
from ui.runs.play import HaltingPool, Stopped, play
from ui.runs.queue import Ticket, enqueue, is_stalled, log_file, start_worker
from ui.runs.settings.batch import BatchPlan
from ui.runs.worker import main, play_claimed


def queued(store: Store, plan: RunPlan) -> str:
    """A run of the plan that waits."""
    return enqueue(store, plan, Ticket())[0]


def played(store: Store, plan: RunPlan, code: int = 0) -> str:
    """A run of the plan that was taken and left with this exit code."""
    run = queued(store, plan)
    assert play_claimed(store, run) == code
    return run


def in_background(store: Store, run: str) -> threading.Thread:
    worker = threading.Thread(target=play_claimed, args=(store, run), daemon=True)
    worker.start()
    return worker


@pytest.mark.process
def test_a_queued_run_is_played_to_its_end_by_a_process_of_its_own(
    store: Store, plan: LivePlan, world: Sums
) -> None:
    """Which finds a store whose URL hides its password, too, and says in its log why a model was asked again."""
    busy = [fail(503, "come back later")]
    world.server.answer = lambda request: busy.pop() if busy else answer(request)
    run = queued(store, plan)
    start_worker(replace(store, url="postgresql://trinity:***@127.0.0.1/trinity"), run)
    until(lambda: store.runs.get(run).status is RunStatus.FINISHED)
    episode = store.episodes.get(episode_id(run, 0))
    assert (episode.status, episode.answer, episode.correct) == (Status.FINISHED, "23", True)
    assert [turn.decision.role for turn in episode.turns] == [Role.THINKER, Role.WORKER, Role.VERIFIER]
    assert re.search("retry_scheduled.*503.*come back later", log_file(run).read_text())


@pytest.mark.usefixtures("forked_workers")
def test_what_a_broken_process_says_can_be_read(
    store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = queued(store, plan)
    monkeypatch.setattr(type(store), "address", "sqlite:////proc/none/store.db")
    start_worker(store, run)
    until(lambda: log_file(run).exists() and "/proc/none" in log_file(run).read_text())
    until(lambda: "StoreError" in log_file(run).read_text())


def test_only_one_worker_plays_a_run(store: Store, plan: LivePlan, world: Sums) -> None:
    run = queued(store, plan)
    assert store.runs.claim(run, "elsewhere:1")
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.RUNNING
    assert not world.server.requests


def test_a_failure_is_told_in_one_sentence(store: Store, plan: LivePlan) -> None:
    run = queued(store, replace(plan, policy="cgone"))
    assert main(["--run", run]) == 1
    ended = store.runs.get(run)
    assert ended.status is RunStatus.FAILED
    assert ended.error is not None
    assert "cgone" in ended.error
    everybody = played(store, replace(plan, left_out=("adder", "guesser")), 1)
    assert "leave at least one in" in str(store.runs.get(everybody).error)


def test_a_model_left_out_never_speaks(store: Store, plan: LivePlan) -> None:
    run = played(store, replace(plan, policy="round-robin", left_out=("adder",), turns=4))
    episode = store.episodes.get(episode_id(run, 0))
    assert {turn.decision.model for turn in episode.turns} == {"guesser"}
    assert episode.turns[0].decision.model_mask == (False, True)


def test_step_by_step_with_one_decision_taken_over(store: Store, plan: LivePlan) -> None:
    run = queued(store, replace(plan, step=True))
    worker = in_background(store, run)
    until(lambda: bool(store.episodes.of_run(run)))
    assert store.episodes.outline(episode_id(run, 0)) == []
    store.runs.set_override(episode_id(run, 0), 0, "guesser", Role.WORKER)
    store.runs.step(run, 1)
    until(lambda: [one.stage for one in store.episodes.outline(episode_id(run, 0))] == ["finished"])
    time.sleep(0.4)
    assert len(store.episodes.outline(episode_id(run, 0))) == 1  # it waits again
    with pytest.raises(StoreError, match="already begun"):
        store.runs.set_override(episode_id(run, 0), 0, "adder", Role.WORKER)
    store.runs.unpause(run)
    worker.join(60)
    turns = store.episodes.get(episode_id(run, 0)).turns
    first = turns[0].decision
    assert (first.model, first.role, first.origin) == ("guesser", Role.WORKER, "override")
    assert turns[1].decision.origin == "policy"
    assert "override" in store.episodes.summary(episode_id(run, 0)).flags


def test_cancelling_a_waiting_run_ends_it(store: Store, plan: LivePlan) -> None:
    run = queued(store, replace(plan, step=True))
    worker = in_background(store, run)
    until(lambda: bool(store.episodes.of_run(run)))
    store.runs.cancel(run)
    worker.join(60)
    assert store.runs.get(run).status is RunStatus.CANCELLED
    assert store.episodes.summary(episode_id(run, 0)).end_reason is EndReason.CANCELLED


def test_an_interrupted_run_goes_on_as_it_would_have(
    store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    import core.play.drive
    import ui.runs.live

    undisturbed = played(store, plan)
    drive = core.play.drive.drive

    def broken(*arguments: object, **options: object) -> Iterator[object]:
        for count, event in enumerate(drive(*arguments, **options)):  # type: ignore[arg-type]
            if count == 5:
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr(ui.runs.live, "drive", broken)
    run = played(store, plan, 130)
    assert store.runs.get(run).status is RunStatus.INTERRUPTED
    monkeypatch.undo()
    assert play_claimed(store, run) == 0
    both = [store.episodes.get(episode_id(one, 0)) for one in (undisturbed, run)]
    told = [[(turn.decision, turn.reply.text, turn.verdict) for turn in one.turns] for one in both]
    assert told[0] == told[1]
    assert store.runs.get(run).status is RunStatus.FINISHED


def test_a_run_whose_episode_was_over_when_its_worker_died_is_finished(
    store: Store, plan: LivePlan, world: Sums
) -> None:
    run = played(store, plan)
    calls = len(world.server.requests)
    with writing(store.engine) as connection:  # as a kill right after the last event leaves it
        connection.exec_driver_sql("UPDATE run SET status = 'running', heartbeat = 0, finished = NULL")
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    assert len(world.server.requests) == calls


def test_the_decision_is_in_the_store_before_the_model_is_asked(
    store: Store, plan: LivePlan, world: Sums
) -> None:
    run = queued(store, replace(plan, pace_s=0.5, turns=1))
    worker = in_background(store, run)
    until(lambda: bool(store.episodes.of_run(run)) and bool(store.episodes.outline(episode_id(run, 0))))
    outline = store.episodes.outline(episode_id(run, 0))
    assert (outline[0].stage, outline[0].model) == ("asked", "adder")
    assert not world.server.requests
    worker.join(60)


@pytest.mark.parametrize("claimed", [True, False], ids=["silent", "claimed by nobody"])
def test_a_run_that_nobody_plays_is_called_stalled(store: Store, plan: LivePlan, claimed: bool) -> None:
    run = queued(store, plan)
    if claimed:
        store.runs.claim(run, "elsewhere:1")
    summary = store.runs.get(run)
    since = summary.heartbeat or summary.created
    assert not is_stalled(summary, since + 19)
    assert is_stalled(summary, since + 21)


def test_a_run_stopped_by_its_server_says_why_and_goes_on(store: Store, plan: LivePlan, world: Sums) -> None:
    world.server.answer = lambda _request: fail(401, "no such key")
    run = played(store, plan)
    stopped = store.runs.get(run)
    assert stopped.status is RunStatus.INTERRUPTED
    assert stopped.error is not None
    assert "401" in stopped.error
    world.server.answer = answer
    assert play_claimed(store, run) == 0
    assert (store.runs.get(run).status, store.runs.get(run).error) == (RunStatus.FINISHED, None)
    assert store.episodes.get(episode_id(run, 0)).correct


def test_a_paid_pool_keeps_its_ceiling(
    store: Store, plan: LivePlan, world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.price(1e6)
    monkeypatch.setenv("SUMS_KEY", "k")
    run = played(store, replace(plan, max_cost_usd=0.000001))
    assert store.episodes.summary(episode_id(run, 0)).end_reason is EndReason.COST_CEILING
    assert store.runs.get(run).status is RunStatus.INTERRUPTED
    assert not world.server.requests


def test_a_batch_run_is_played_by_a_worker_and_its_lost_episodes_after_an_outage(
    store: Store, world: Sums
) -> None:
    asked = BatchPlan(
        ("single:*", "random"), str(world.tasks), "test", None, 0, 3, False, str(world.folder / "pool.toml")
    )
    plan = complete_plan(store, asked)
    assert plan.policies == ("single:adder", "single:guesser", "random")
    lost = "10 + 13"
    world.server.answer = lambda one: fail(401, "no key") if lost in str(one.body) else answer(one)
    run = played(store, plan)
    stopped = store.runs.get(run)
    assert stopped.status is RunStatus.INTERRUPTED
    assert "missing: models could not be asked" in str(stopped.error)
    world.server.answer = answer
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED

    def told(run: str) -> dict[str, tuple[object, ...]]:
        return {one.policy: (one.n, one.correct, one.mean_turns) for one in store.runs.policies(run)}

    world.run(*(word for name in plan.policies for word in ("--policy", name)), "--turns", 3, "--validate", 0)
    (other,) = {one.id for one in store.runs.list(kind="run")} - {run}
    assert told(run) == told(other)


def test_a_waiting_batch_run_can_be_cancelled_and_paid_models_need_a_ceiling(
    store: Store, world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    monkeypatch.setattr(playing, "LOOK_S", 0.0)  # a run as short as this one is over before it looks again
    world.price(10.0)
    pool = str(world.folder / "pool.toml")
    plan = complete_plan(store, BatchPlan(("random",), str(world.tasks), "test", None, 0, 3, False, pool))
    run = played(store, plan, 1)
    assert "set a ceiling" in str(store.runs.get(run).error)
    run = played(store, replace(plan, max_cost_usd=0.0))
    assert (store.runs.get(run).status, world.server.requests) == (RunStatus.INTERRUPTED, [])
    run = queued(store, replace(plan, max_cost_usd=100.0))
    events = play(store, run)
    assert store.runs.get(run).status is RunStatus.QUEUED
    next(events)
    store.runs.cancel(run)
    for _ in events:
        pass
    assert store.runs.get(run).status is RunStatus.CANCELLED


def test_closing_what_is_played_stops_it_and_it_can_be_resumed(store: Store, plan: LivePlan) -> None:
    run = queued(store, plan)
    events = play(store, run)
    next(events)
    assert store.runs.get(run).status is RunStatus.RUNNING
    events.close()
    assert store.runs.get(run).status is RunStatus.INTERRUPTED
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED


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
    run = queued(store, complete_plan(store, asked))
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
    ended = store.episodes.get(lost.id)
    calls = len(world.server.requests) - before
    assert calls == len(ended.turns) - len(lost.turns) - 1, "its reply was stored"


def test_a_live_run_says_what_happened_and_can_be_resumed(
    store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = queued(store, plan)
    cannot_read(monkeypatch, "answer 23")
    assert play_claimed(store, run) == 0
    stopped = store.runs.get(run)
    assert stopped.status is RunStatus.INTERRUPTED
    assert "This program failed at turn 2 (RecursionError)" in str(stopped.error)
    assert play_claimed(store, run) == 0
    assert store.episodes.get(episode_id(run, 0)).correct is True


def test_what_is_under_way_comes_before_a_pool_halts() -> None:
    asks = [Ask("m", Role.WORKER, (Message("user", f"{number}"),)) for number in range(3)]
    came: list[int] = []
    with faulty_server((0.05, *ok())) as server:
        pool = HaltingPool(HttpPool([ModelSpec("m", base_url=server.url)]), lambda: bool(came))
        flight = pool.flight()
        flight.add(asks[:2])
        came += [next(flight.ready())[0]]
        flight.add(asks[2:])
        came += [number for number, _ in flight.ready()]
        assert sorted(came) == [0, 1]
        assert flight.under_way == 1
        with pytest.raises(Stopped):
            flight.ready()
        flight.close()
        with pytest.raises(Stopped):
            next(pool.stream(asks[0]))
        assert len(server.requests) == 2
