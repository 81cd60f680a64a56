"""The worker of a live run: plays, obeys, fails in one sentence, and goes on where a dead one stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.episode import EndReason, Role, Status, Task
from core.errors import StoreError
from storage.store import Store, open_store
from storage.summaries import RunStatus
from tests.ui.sums import Sums, sums
from ui.live import LivePlan, episode_of, is_stalled, queue, start_worker
from ui.worker import main, work

TASK = Task("sum-1", "What is 10 + 13?", "23", "number", "user", "live")


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Sums]:
    with sums(tmp_path, monkeypatch, capsys) as made:
        yield made


@pytest.fixture
def store(world: Sums) -> Iterator[Store]:
    opened = open_store(world.store)
    yield opened
    opened.close()


@pytest.fixture
def plan(world: Sums) -> LivePlan:
    return LivePlan(TASK, "single:adder", ("adder", "guesser"), str(world.folder / "pool.toml"))


def until(happens: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_a_plan_survives_its_run(store: Store, plan: LivePlan) -> None:
    run = queue(store, plan)
    assert LivePlan.from_config(store.runs.get(run).config) == plan
    with pytest.raises(StoreError, match="not started on the Live page"):
        LivePlan.from_config({"tasks": "pocket"})


def test_a_queued_run_is_played_to_its_end_by_a_process_of_its_own(store: Store, plan: LivePlan) -> None:
    run = queue(store, plan)
    start_worker(store, run)
    until(lambda: store.runs.get(run).status is RunStatus.FINISHED)
    episode = store.episodes.get(episode_of(run))
    assert (episode.status, episode.answer, episode.correct) == (Status.FINISHED, "23", True)
    assert [turn.decision.role for turn in episode.turns] == [Role.THINKER, Role.WORKER, Role.VERIFIER]


def test_only_one_worker_plays_a_run(store: Store, plan: LivePlan, world: Sums) -> None:
    run = queue(store, plan)
    assert store.runs.claim(run, "elsewhere:1")
    assert work(store, run) == 0
    assert store.runs.get(run).status is RunStatus.RUNNING
    assert not world.server.requests


def test_a_failure_is_told_in_one_sentence(store: Store, plan: LivePlan) -> None:
    run = queue(store, replace(plan, policy="cgone"))
    assert main(["--store", store.url, "--run", run]) == 1
    ended = store.runs.get(run)
    assert ended.status is RunStatus.FAILED
    assert ended.error is not None
    assert "cgone" in ended.error
    everybody = queue(store, replace(plan, left_out=("adder", "guesser")))
    assert work(store, everybody) == 1
    assert "leave at least one in" in str(store.runs.get(everybody).error)


def test_a_model_left_out_never_speaks(store: Store, plan: LivePlan) -> None:
    run = queue(store, replace(plan, policy="round-robin", left_out=("adder",), turns=4))
    assert work(store, run) == 0
    episode = store.episodes.get(episode_of(run))
    assert {turn.decision.model for turn in episode.turns} == {"guesser"}
    assert episode.turns[0].decision.model_mask == (False, True)


def test_step_by_step_with_one_decision_taken_over(store: Store, plan: LivePlan) -> None:
    run = queue(store, replace(plan, step=True))
    worker = threading.Thread(target=work, args=(store, run))
    worker.start()
    until(lambda: bool(store.episodes.of_run(run)))
    assert store.episodes.outline(episode_of(run)) == []
    store.runs.set_override(episode_of(run), 0, "guesser", Role.WORKER)
    store.runs.step(run)
    until(lambda: [one.stage for one in store.episodes.outline(episode_of(run))] == ["finished"])
    time.sleep(0.4)
    assert len(store.episodes.outline(episode_of(run))) == 1  # it waits again
    with pytest.raises(StoreError, match="already begun"):
        store.runs.set_override(episode_of(run), 0, "adder", Role.WORKER)
    store.runs.unpause(run)
    worker.join(60)
    turns = store.episodes.get(episode_of(run)).turns
    first = turns[0].decision
    assert (first.model, first.role, first.origin) == ("guesser", Role.WORKER, "override")
    assert turns[1].decision.origin == "policy"
    assert "override" in store.episodes.summary(episode_of(run)).flags


def test_cancelling_a_waiting_run_ends_it(store: Store, plan: LivePlan) -> None:
    run = queue(store, replace(plan, step=True))
    worker = threading.Thread(target=work, args=(store, run))
    worker.start()
    until(lambda: bool(store.episodes.of_run(run)))
    store.runs.cancel(run)
    worker.join(60)
    assert store.runs.get(run).status is RunStatus.CANCELLED
    assert store.episodes.summary(episode_of(run)).end_reason is EndReason.CANCELLED


def test_an_interrupted_run_goes_on_as_it_would_have(
    store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    import core.drive
    import ui.worker

    undisturbed = queue(store, plan)
    assert work(store, undisturbed) == 0
    played = core.drive.drive

    def broken(*arguments: object, **options: object) -> Iterator[object]:
        for count, event in enumerate(played(*arguments, **options)):  # type: ignore[arg-type]
            if count == 5:
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr(ui.worker, "drive", broken)
    run = queue(store, plan)
    assert work(store, run) == 130
    assert store.runs.get(run).status is RunStatus.INTERRUPTED
    monkeypatch.undo()
    assert work(store, run) == 0
    both = [store.episodes.get(episode_of(one)) for one in (undisturbed, run)]
    told = [[(turn.decision, turn.reply.text, turn.verdict) for turn in one.turns] for one in both]
    assert told[0] == told[1]
    assert store.runs.get(run).status is RunStatus.FINISHED


def test_the_decision_is_in_the_store_before_the_model_is_asked(
    store: Store, plan: LivePlan, world: Sums
) -> None:
    run = queue(store, replace(plan, pace_s=0.5))
    worker = threading.Thread(target=work, args=(store, run))
    worker.start()
    until(lambda: bool(store.episodes.of_run(run)) and bool(store.episodes.outline(episode_of(run))))
    outline = store.episodes.outline(episode_of(run))
    assert (outline[0].stage, outline[0].model) == ("asked", "adder")
    assert not world.server.requests
    worker.join(60)


def test_a_silent_run_is_called_stalled(store: Store, plan: LivePlan) -> None:
    run = queue(store, plan)
    store.runs.claim(run, "elsewhere:1")
    summary = store.runs.get(run)
    assert summary.heartbeat is not None
    assert not is_stalled(summary, summary.heartbeat + 29)
    assert is_stalled(summary, summary.heartbeat + 31)


def test_a_paid_pool_keeps_its_ceiling(
    store: Store, plan: LivePlan, world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.price(1e6)
    monkeypatch.setenv("SUMS_KEY", "k")
    run = queue(store, replace(plan, max_cost_usd=0.000001))
    assert work(store, run) == 0
    summary = store.episodes.summary(episode_of(run))
    assert summary.end_reason in (EndReason.COST_CEILING, None)
    assert store.runs.get(run).status is RunStatus.INTERRUPTED
