"""What a run does before it goes on: told once on every door, forgotten when it is over, silent where nothing is to be
done."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from core.coordinator import svf
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder, load_encoder
from core.episode import TurnStarted
from core.evolution.baselines import question_states
from core.play.policies import single_policy
from core.pocket import threads
from core.processes import EngineState, Processes
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from storage.files.decompositions import DecompositionFolder
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.builders.diffed import Diffed
from tests.builders.sample_store import MODELS, scripted
from tests.ui.pages import opened, plainly, press, until
from tests.ui.runs.test_learning import evolution
from tests.ui.sums import Sums
from tests.zygote import forked
from ui.cli.play import follow, show_preparations
from ui.presentation.runs import engine_state_words, engine_words, lost_words
from ui.runs import play as playing
from ui.runs import wiring
from ui.runs.batch import BatchParts, complete_plan
from ui.runs.lease import owner
from ui.runs.live import LiveParts, Steered
from ui.runs.plans import LivePlan, Preparation, RunPlan, engine_of, engine_state_of, plan_of, preparation_of
from ui.runs.play import Ready, decompositions, play, questions_read
from ui.runs.policies import Policies
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.batch import BatchPlan
from ui.runs.worker import play_claimed

MATRICES = 7
BOTH = ("single:adder", "single:guesser")
RAY = "ray=10.0.0.1:6379"
TASKS = load_tasks("pocket/all", "test", 2, 3)


@pytest.fixture
def encoder(tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Encoder]:
    """Loads the encoder as in a process of its own, in which matrices of any size count as large."""
    monkeypatch.setattr(svf, "_KEPT_FROM", 1)
    monkeypatch.setattr(playing, "TOLD_S", 0.0)
    monkeypatch.setattr(playing, "LOOK_S", 0.0)

    def load() -> Encoder:
        loaded = load_encoder(tiny_encoder)
        loaded.decompositions = DecompositionFolder(tmp_path / "kept")
        return loaded

    return load


def batch(diffed: Diffed, loaded: Encoder) -> BatchParts:
    policy = Coordinator(diffed.svf, loaded)
    plan = BatchPlan((policy.id,), "pocket/all", "test", 2, 3, 5, False, "sample", models=MODELS)
    return BatchParts(plan, scripted(TASKS), TASKS, grade_many, [policy])


def live(diffed: Diffed, loaded: Encoder) -> LiveParts:
    plan = LivePlan(TASKS[0], diffed.svf.id, MODELS, "sample")
    by_id = {one.id: Coordinator(one, loaded) for one in (diffed.svf, diffed.a)}
    policy = Steered(by_id[diffed.svf.id], diffed.store, by_id.__getitem__)
    return LiveParts(plan, scripted(TASKS), policy, grade_many, Policies(diffed.store, MODELS))


def evolve(_: Diffed, loaded: Encoder) -> Ready:
    return evolution("sep-svf", loaded)


@pytest.mark.integration
@pytest.mark.parametrize("made", [batch, live, evolve])
def test_a_run_tells_once_that_matrices_are_decomposed(
    diffed: Diffed, encoder: Callable[[], Encoder], made: Callable[[Diffed, Encoder], Any]
) -> None:
    store = diffed.store
    run = begun(store, made(diffed, encoder()).plan)
    events = play(store, run, made(diffed, encoder()))
    first = next(events)
    assert isinstance(first, Preparation)
    assert first.words == "0 of 7 matrices of the encoder decomposed"
    assert preparation_of(store.runs.get(run)) == first
    assert plan_of(store.runs.get(run)), "it is no part of the plan"
    others = [*takewhile(lambda one: isinstance(one, Preparation) and one.of == MATRICES, events)]
    assert [one.done for one in others] == [*range(1, MATRICES + 1)]
    assert others[2].left_s is not None
    assert preparation_of(store.runs.get(run)) is None or made is evolve, "it is over"
    events.close()

    again = begun(store, made(diffed, encoder()).plan)
    events = play(store, again, made(diffed, encoder()))
    assert not isinstance(event := next(events), Preparation) or event.of != MATRICES, "they were kept"
    events.close()


def begun(store: Store, plan: RunPlan) -> str:
    run, _ = enqueue(store, plan, Ticket(), owner=owner())
    return run


@pytest.mark.integration
def test_a_page_shows_it_as_long_as_it_goes_on(diffed: Diffed, encoder: Callable[[], Encoder]) -> None:
    parts = live(diffed, encoder())
    run = begun(diffed.store, parts.plan)
    events = play(diffed.store, run, parts)
    for _ in range(3):
        next(events)
    (bar,) = opened("live", run=run).get("progress")
    assert "First: 2 of 7 matrices of the encoder decomposed, about " in bar.proto.text
    events.close()
    assert preparation_of(diffed.store.runs.get(run)) is not None, "as after a kill"
    events = play(diffed.store, run, live(diffed, encoder()))
    assert next(events).of == MATRICES - 2, "what was kept is not told again"
    events.close()


def test_whoever_takes_over_in_a_live_run_is_made_ready_too(
    diffed: Diffed, encoder: Callable[[], Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    monkeypatch.setattr(
        playing, "note_preparation", lambda _s, _r, told: noted.append(told.done if told else -1)
    )
    loaded = encoder()
    first = single_policy(MODELS[0], MODELS)
    steered = Steered(first, diffed.store, {diffed.svf.id: Coordinator(diffed.svf, loaded)}.__getitem__)
    steered.run = begun(diffed.store, LivePlan(TASKS[0], first.id, MODELS, "sample"))
    steered._policy(diffed.svf.id)
    steered._policy(diffed.svf.id)
    assert noted == [*range(MATRICES + 1)]


@pytest.mark.integration
def test_a_person_may_stop_it(diffed: Diffed, encoder: Callable[[], Encoder]) -> None:
    parts = batch(diffed, encoder())
    run = begun(diffed.store, parts.plan)
    events = play(diffed.store, run, parts)
    next(events)
    diffed.store.runs.cancel(run)
    for event in events:
        assert not isinstance(event, TurnStarted)
    assert diffed.store.runs.get(run).status == "cancelled"


@pytest.mark.integration
def test_the_command_line_says_it(
    diffed: Diffed, encoder: Callable[[], Encoder], capsys: pytest.CaptureFixture[str]
) -> None:
    said = "First: 0 of 7 matrices of the encoder decomposed; what is found is kept for later runs."
    show_preparations(decompositions([Coordinator(diffed.svf, encoder())]))  # as trinity serve does
    assert capsys.readouterr().err.count(said) == 1
    follow(diffed.store, batch(diffed, encoder()), "episodes", 2)
    assert said not in capsys.readouterr().err, "kept by now"


def test_questions_are_read_ahead_by_slow_encoders_alone(
    encoder: Callable[[], Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [task.question for task in TASKS]
    assert not [*questions_read(encoder(), questions)]
    monkeypatch.setattr(threads, "SMALL", 0)
    slow = encoder()
    assert [one.done for one in questions_read(slow, [*questions, questions[0]])] == [1, 2]
    read = slow.forwards
    question_states(slow, questions)
    assert slow.forwards == read, "they are known"


class _Helpers(Processes):
    """An engine of which a test says what it does."""

    now = EngineState(4, 3, 57, 2, "10.0.0.1:8265")

    def state(self) -> EngineState:
        return self.now


def test_a_page_says_what_the_helpers_of_a_running_run_do_and_afterwards_how_many_were_lost(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    helpers = _Helpers(1)
    real = wiring.processes
    monkeypatch.setattr(wiring, "processes", lambda engine="local": real())
    plan = complete_plan(
        store, BatchPlan(BOTH, world.tasks, n=2, pool=str(world.folder / "pool.toml"), engine=RAY)
    )
    run, _ = enqueue(store, plan, Ticket())
    ready = playing.prepare(store, plan)
    monkeypatch.setattr(wiring, "processes", lambda engine: helpers)
    with closing(play(store, run, ready)) as events:
        next(events)
        assert plan_of(store.runs.get(run)) == ready.plan, "it is no part of the plan"
        told = engine_state_of(store.runs.get(run))
        assert told == replace(_Helpers.now, lost=0), "they were lost in another run of this process"
        words = "Ray at 10.0.0.1:6379: 4 helpers on 3 machines, 57 calls under way"
        page = opened("checkpoints", run=run)
        assert words in plainly(page)
        assert "lost" not in plainly(page)
        helpers.now = replace(_Helpers.now, lost=3)
        until(lambda: engine_state_of(store.runs.get(run)) == replace(_Helpers.now, lost=1))
        page = opened("checkpoints", run=run)
        assert f"{words}. 1 helper was lost and started again." in plainly(page)
        assert list(events)
    ended = store.runs.get(run)
    assert (ended.status, engine_state_of(ended)) == (RunStatus.FINISHED, None)
    assert ended.notes == "1 helper was lost and started again."
    assert engine_of(plan_of(ended)) == RAY
    words = plainly(opened("checkpoints", run=run))
    assert ended.notes in words
    assert "under way" not in words


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("missing", [False, True])
def test_a_run_whose_cluster_cannot_be_joined_waits_to_be_resumed(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    plan = complete_plan(
        store,
        BatchPlan(BOTH, world.tasks, n=2, pool=str(world.folder / "pool.toml"), engine="ray=127.0.0.1:1"),
    )
    run, _ = enqueue(store, plan, Ticket())
    with monkeypatch.context() as patched:
        if missing:
            patched.setitem(sys.modules, "ray", None)
        assert play_claimed(store, run) == 0
    ended = store.runs.get(run)
    sentence = "Ray is not installed: pip install" if missing else "No Ray cluster listens at 127.0.0.1:1"
    assert ended.status is RunStatus.INTERRUPTED
    assert (ended.error or "").startswith(sentence)
    if missing:
        world.done("run", "--resume", run, "--engine", "local")
    else:
        monkeypatch.setenv("TRINITY_WORKERS", "0")  # it waits for the one below
        page = opened("checkpoints", run=run)
        assert page.selectbox(key=f"resume_{run}_engine").value == "ray=127.0.0.1:1"
        page.selectbox(key=f"resume_{run}_engine").select("local").run()
        press(page, "resume")
        assert play_claimed(store, run) == 0
    assert (store.runs.get(run).status, engine_of(plan_of(store.runs.get(run)))) == (
        RunStatus.FINISHED,
        "local",
    )


@pytest.mark.process
@pytest.mark.usefixtures("ray")
def test_a_worker_plays_a_queued_run_on_ray(world: Sums, store: Store) -> None:
    plan = complete_plan(
        store, BatchPlan(BOTH, world.tasks, n=12, pool=str(world.folder / "pool.toml"), engine="ray")
    )
    run, _ = enqueue(store, plan, Ticket())
    told = []
    command = [str(forked("python")), "-m", "ui.runs.worker", "--run", run]
    env = {**os.environ, "TRINITY_PROCESSES": "2", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=env, cwd=wiring.SAMPLE_RUNS.parent) as process:
        while process.poll() is None:
            if (state := engine_state_of(store.runs.get(run))) is not None:
                told.append(engine_state_words("ray", state))
            time.sleep(0.02)
    ended = store.runs.get(run)
    assert (ended.status, ended.error, ended.finished_episodes) == (RunStatus.FINISHED, None, 24)
    assert any("Ray on this machine: 1 helper on 1 machine" in words for words in told), told
    assert engine_state_of(ended) is None


def test_an_engine_is_called_by_what_it_does() -> None:
    assert engine_words("local") == "local"
    assert engine_state_words("ray", None) == "Waiting for Ray on this machine"
    assert (
        engine_state_words("ray", EngineState(0, 1))
        == "Ray on this machine: 1 machine, helpers start once there is enough work"
    )
    assert lost_words(2) == "2 helpers were lost and started again."
