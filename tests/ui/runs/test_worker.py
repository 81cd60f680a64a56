"""The worker of a live run: plays, obeys, fails in one sentence, and goes on where a dead one stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from core.episode import EndReason, Role, Status
from core.errors import StoreError
from core.ids import episode_id
from storage.rows.engine import writing
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.core.pool.faulty_server import fail
from tests.ui.pages import until
from tests.ui.sums import Sums, answer
from ui.runs import play as playing
from ui.runs.batch import completed
from ui.runs.plans import LivePlan, plan_of
from ui.runs.play import play
from ui.runs.queue import Ticket, enqueue, is_stalled, log_file, start_worker
from ui.runs.settings.batch import BatchPlan
from ui.runs.worker import main, play_claimed


def test_a_plan_survives_its_run(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, plan, Ticket.new())[0]
    assert plan_of(store.runs.get(run)) == plan
    with pytest.raises(StoreError, match="is of another kind"):
        plan_of(store.runs.get(run), BatchPlan)
    store.runs.create("rstrange", "live", {"tasks": "pocket"})
    with pytest.raises(StoreError, match="is not understood"):
        plan_of(store.runs.get("rstrange"))


@pytest.mark.process
def test_a_queued_run_is_played_to_its_end_by_a_process_of_its_own(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, plan, Ticket.new())[0]
    start_worker(store, run)
    until(lambda: store.runs.get(run).status is RunStatus.FINISHED)
    episode = store.episodes.get(episode_id(run, 0))
    assert (episode.status, episode.answer, episode.correct) == (Status.FINISHED, "23", True)
    assert [turn.decision.role for turn in episode.turns] == [Role.THINKER, Role.WORKER, Role.VERIFIER]


@pytest.mark.process
def test_the_process_finds_a_store_whose_url_hides_its_password(store: Store, plan: LivePlan) -> None:
    masked = replace(store, url="postgresql://trinity:***@127.0.0.1/trinity")
    run = enqueue(store, plan, Ticket.new())[0]
    start_worker(masked, run)
    until(lambda: store.runs.get(run).status is RunStatus.FINISHED)


@pytest.mark.process
def test_what_a_broken_process_says_can_be_read(
    store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = enqueue(store, plan, Ticket.new())[0]
    monkeypatch.setattr(type(store), "address", "sqlite:////proc/none/store.db")
    start_worker(store, run)
    until(lambda: log_file(run).exists() and "/proc/none" in log_file(run).read_text())
    until(lambda: "StoreError" in log_file(run).read_text())


def test_only_one_worker_plays_a_run(store: Store, plan: LivePlan, world: Sums) -> None:
    run = enqueue(store, plan, Ticket.new())[0]
    assert store.runs.claim(run, "elsewhere:1")
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.RUNNING
    assert not world.server.requests


def test_a_failure_is_told_in_one_sentence(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, replace(plan, policy="cgone"), Ticket.new())[0]
    assert main(["--run", run]) == 1
    ended = store.runs.get(run)
    assert ended.status is RunStatus.FAILED
    assert ended.error is not None
    assert "cgone" in ended.error
    everybody = enqueue(store, replace(plan, left_out=("adder", "guesser")), Ticket.new())[0]
    assert play_claimed(store, everybody) == 1
    assert "leave at least one in" in str(store.runs.get(everybody).error)


def test_a_model_left_out_never_speaks(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, replace(plan, policy="round-robin", left_out=("adder",), turns=4), Ticket.new())[0]
    assert play_claimed(store, run) == 0
    episode = store.episodes.get(episode_id(run, 0))
    assert {turn.decision.model for turn in episode.turns} == {"guesser"}
    assert episode.turns[0].decision.model_mask == (False, True)


def test_step_by_step_with_one_decision_taken_over(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, replace(plan, step=True), Ticket.new())[0]
    worker = threading.Thread(target=play_claimed, args=(store, run))
    worker.start()
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
    run = enqueue(store, replace(plan, step=True), Ticket.new())[0]
    worker = threading.Thread(target=play_claimed, args=(store, run))
    worker.start()
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

    undisturbed = enqueue(store, plan, Ticket.new())[0]
    assert play_claimed(store, undisturbed) == 0
    played = core.play.drive.drive

    def broken(*arguments: object, **options: object) -> Iterator[object]:
        for count, event in enumerate(played(*arguments, **options)):  # type: ignore[arg-type]
            if count == 5:
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr(ui.runs.live, "drive", broken)
    run = enqueue(store, plan, Ticket.new())[0]
    assert play_claimed(store, run) == 130
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
    run = enqueue(store, plan, Ticket.new())[0]
    assert play_claimed(store, run) == 0
    calls = len(world.server.requests)
    with writing(store.engine) as connection:  # as a kill right after the last event leaves it
        connection.exec_driver_sql("UPDATE run SET status = 'running', heartbeat = 0, finished = NULL")
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    assert len(world.server.requests) == calls


def test_the_decision_is_in_the_store_before_the_model_is_asked(
    store: Store, plan: LivePlan, world: Sums
) -> None:
    run = enqueue(store, replace(plan, pace_s=0.5, turns=1), Ticket.new())[0]
    worker = threading.Thread(target=play_claimed, args=(store, run))
    worker.start()
    until(lambda: bool(store.episodes.of_run(run)) and bool(store.episodes.outline(episode_id(run, 0))))
    outline = store.episodes.outline(episode_id(run, 0))
    assert (outline[0].stage, outline[0].model) == ("asked", "adder")
    assert not world.server.requests
    worker.join(60)


def test_a_silent_run_is_called_stalled(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, plan, Ticket.new())[0]
    store.runs.claim(run, "elsewhere:1")
    summary = store.runs.get(run)
    assert summary.heartbeat is not None
    assert not is_stalled(summary, summary.heartbeat + 19)
    assert is_stalled(summary, summary.heartbeat + 21)


def test_a_run_that_nobody_claims_is_called_stalled(store: Store, plan: LivePlan) -> None:
    summary = store.runs.get(enqueue(store, plan, Ticket.new())[0])
    assert not is_stalled(summary, summary.created + 19)
    assert is_stalled(summary, summary.created + 21)


def test_a_run_stopped_by_its_server_says_why_and_goes_on(store: Store, plan: LivePlan, world: Sums) -> None:
    world.server.answer = lambda _request: fail(401, "no such key")
    run = enqueue(store, plan, Ticket.new())[0]
    assert play_claimed(store, run) == 0
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
    run = enqueue(store, replace(plan, max_cost_usd=0.000001), Ticket.new())[0]
    assert play_claimed(store, run) == 0
    assert store.episodes.summary(episode_id(run, 0)).end_reason is EndReason.COST_CEILING
    assert store.runs.get(run).status is RunStatus.INTERRUPTED
    assert not world.server.requests


def test_a_batch_run_is_played_by_a_worker_and_its_lost_episodes_after_an_outage(
    store: Store, world: Sums
) -> None:
    asked = BatchPlan(
        ("single:*", "random"), str(world.tasks), "test", None, 0, 3, False, str(world.folder / "pool.toml")
    )
    plan = completed(store, asked)
    assert plan.policies == ("single:adder", "single:guesser", "random")
    world.server.answer = lambda request: (
        fail(401, "no key") if "10 + 13" in str(request.body) else answer(request)
    )
    run, _ = enqueue(store, plan, Ticket.new())
    assert play_claimed(store, run) == 0
    stopped = store.runs.get(run)
    assert stopped.status is RunStatus.INTERRUPTED
    assert "missing: models could not be asked" in str(stopped.error)
    world.server.answer = answer
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    by_worker = {one.policy: (one.n, one.correct, one.mean_turns) for one in store.runs.policies(run)}
    world.run(*(word for name in plan.policies for word in ("--policy", name)), "--turns", 3, "--validate", 0)
    (other,) = {one.id for one in store.runs.list(kind="run")} - {run}
    assert by_worker == {
        one.policy: (one.n, one.correct, one.mean_turns) for one in store.runs.policies(other)
    }


def test_a_waiting_batch_run_can_be_cancelled_and_paid_models_need_a_ceiling(
    store: Store, world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    monkeypatch.setattr(playing, "LOOK_S", 0.0)  # a run as short as this one is over before it looks again
    world.price(10.0)
    pool = str(world.folder / "pool.toml")
    plan = completed(store, BatchPlan(("random",), str(world.tasks), "test", None, 0, 3, False, pool))
    run, _ = enqueue(store, plan, Ticket.new())
    assert play_claimed(store, run) == 1
    assert "set a ceiling" in str(store.runs.get(run).error)
    run, _ = enqueue(store, replace(plan, max_cost_usd=0.0), Ticket.new())
    assert play_claimed(store, run) == 0
    assert (store.runs.get(run).status, world.server.requests) == (RunStatus.INTERRUPTED, [])
    run, _ = enqueue(store, replace(plan, max_cost_usd=100.0), Ticket.new())
    events = play(store, run)
    assert store.runs.get(run).status is RunStatus.QUEUED
    next(events)
    store.runs.cancel(run)
    for _ in events:
        pass
    assert store.runs.get(run).status is RunStatus.CANCELLED


def test_closing_what_is_played_stops_it_and_it_can_be_resumed(store: Store, plan: LivePlan) -> None:
    run, _ = enqueue(store, plan, Ticket.new())
    events = play(store, run)
    next(events)
    assert store.runs.get(run).status is RunStatus.RUNNING
    events.close()
    assert store.runs.get(run).status is RunStatus.INTERRUPTED
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
