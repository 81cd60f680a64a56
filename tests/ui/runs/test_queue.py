"""A queue of runs: workers take one after another, never the same, and go on with what a dead one left; the worker that
an app keeps ready; who decides can change between two turns."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from sqlalchemy import update

from core.changes import Change
from core.episode import Role
from core.errors import ConfigError, StoreError
from core.ids import episode_id
from core.play.forking import decider_of_turn, new_child
from core.play.policies import new_episode, single_policy
from core.settings import read_settings
from core.tasks.graders import grade_many
from storage.analysis.second_opinions import EpisodeScope, read_judged
from storage.files.parquet import export_parquet
from storage.rows.engine import writing
from storage.rows.schema import episode as rows
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from tests.builders.stores import new_store
from tests.core.pool.faulty_server import Answer, Request
from tests.ui.pages import SUM, opened, press, shown, until
from tests.ui.runs.test_worker import in_background, queued
from tests.ui.sums import Sums, answer
from ui.export.page import episode_page, read_played
from ui.runs import lease, queue
from ui.runs.batch import complete_plan
from ui.runs.plans import LivePlan, RunPlan
from ui.runs.play import PATIENCE_S, LiveControl, Stopped
from ui.runs.queue import StandBy, Ticket, begin, is_stalled, resume, stand_by, start_worker
from ui.runs.settings.batch import BatchPlan
from ui.runs.worker import play_claimed


def worker(*arguments: str) -> subprocess.Popen[bytes]:
    """A worker process."""
    return subprocess.Popen([queue.PYTHON, "-m", "ui.runs.worker", *arguments])


# Workers


@pytest.mark.usefixtures("forked_workers")
def test_two_processes_take_what_waits_one_by_one_and_never_the_same(
    store: Store, plan: LivePlan, world: Sums
) -> None:
    runs = [queued(store, replace(plan, seed=seed)) for seed in range(6)]
    both = [worker(), worker()]
    assert [process.wait(60) for process in both] == [0, 0]  # nothing waits any more: they leave
    found = [store.runs.get(run) for run in runs]
    assert {run.status for run in found} == {RunStatus.FINISHED}
    assert {pid_of(run) for run in found} <= {str(one.pid) for one in both}
    assert len(world.server.requests) == 3 * len(runs)  # plan, work, check: each asked once
    began = [run.started for run in found]
    assert began == sorted(began, key=lambda at: at or 0.0)  # in the order in which they were queued
    assert lease.alive() == []


def test_no_more_workers_than_there_may_be(
    store: Store, plan: LivePlan, world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = queued(store, plan)
    monkeypatch.setenv("TRINITY_WORKERS", "1")
    with lease.slot(1) as first, lease.slot(1) as second:
        assert (first, second) == (0, None)
        assert len(lease.alive()) == 1
        assert start_worker(store, run) is None
        early = store.runs.get(run)
        assert not is_stalled(early, early.created + 600)  # it waits its turn
    assert is_stalled(early, early.created + 600)
    monkeypatch.setenv("TRINITY_WORKERS", "0")
    assert start_worker(store, run) is None
    assert "start one with `trinity worker`" in shown(opened("live", run=run))
    assert world.trinity("worker", "--drain").code == 0  # whatever the app may start, a person may
    assert store.runs.get(run).status is RunStatus.FINISHED
    with pytest.raises(ConfigError, match="give a whole number"):
        read_settings({"workers": "1.5"}, {}, world.folder)


@pytest.mark.usefixtures("forked_workers")
def test_a_killed_workers_run_names_its_last_call_and_another_goes_on_paying_nothing_twice(
    store: Store, plan: LivePlan, world: Sums
) -> None:
    run = queued(store, plan)
    world.server.answer = deadly_after(1, lambda: pid_of(store.runs.get(run)))
    start_worker(store, run)
    until(lambda: is_stalled(store.runs.get(run), 0.0))
    page = opened("live", run=run)
    assert "stalled" in shown(page)
    assert "It was waiting for **adder** as Worker since" in shown(page)
    assert ", turn 2." in shown(page)
    world.server.answer = answer
    press(page, "resume")
    until(lambda: store.runs.get(run).status is RunStatus.FINISHED)
    assert store.episodes.get(episode_id(run, 0)).correct
    assert len(world.server.requests) == 3 + 1  # only the call that was under way is made again
    with pytest.raises(StoreError, match="nothing to resume"):
        resume(store, run)


def pid_of(run: RunSummary) -> str:
    """The process that plays a run."""
    return (run.owner or "").rpartition(":")[2].partition("@")[0]


def deadly_after(calls: int, pid: Callable[[], str]) -> Callable[[Request], Answer]:
    """Answers so many calls, then kills the process that asks."""
    left = [calls]

    def reply(request: Request) -> Answer:
        left[0] -= 1
        if left[0] >= 0:
            return answer(request)
        os.kill(int(pid()), signal.SIGKILL)
        return ()

    return reply


def test_a_paused_run_makes_way_for_one_that_waits(store: Store, plan: LivePlan) -> None:
    run = queued(store, replace(plan, step=True))
    policy = single_policy("adder", plan.models)
    episode = new_episode(run, 0, plan.task, policy, turns=5, seed=0, argmax=False)
    assert store.runs.claim(run, "me:1")
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 60 * seconds

    reins = LiveControl(store, run, sleep, clock=lambda: now[0])
    other = queued(store, plan)
    with pytest.raises(Stopped, match="Paused: its worker went to another run"):
        reins.stop(episode)
    assert now[0] > PATIENCE_S
    store.runs.cancel(other)
    store.runs.step(run, 1)
    assert reins.stop(episode) is None


def test_the_queue_is_on_the_page_and_a_waiting_run_can_be_taken_out(
    store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_WORKERS", "0")
    done = queued(store, plan)
    play_claimed(store, done)
    playing, first, second = (queued(store, replace(plan, seed=seed)) for seed in (1, 2, 3))
    assert store.runs.claim(playing, "elsewhere:7")
    page = opened("live")
    text = shown(page)
    assert "by process elsewhere\\:7" in text
    assert "number 1 in line" in text
    assert "number 2 in line" in text
    assert "start one with `trinity worker`" in text
    press(page, f"cancel_{first}")
    assert store.runs.get(first).status is RunStatus.CANCELLED
    assert store.runs.next_waiting() == second
    assert "number 2 in line" not in shown(page)
    assert ("live", f"run={second}") in [
        (link.proto.page, link.proto.query_string) for link in page.page_link
    ]
    page = opened("live", run=second)
    press(page, "stop")
    assert "cancelled" in shown(page)


# Repeats, temperature


def test_a_problem_played_several_times_shows_every_play(store: Store, plan: LivePlan, world: Sums) -> None:
    run = queued(store, replace(plan, policy="random", repeats=3, seed=5, turns=4, temperature=0.3))
    assert play_claimed(store, run) == 0
    played = [store.episodes.get(episode_id(run, index)) for index in range(3)]
    assert [one.seed for one in played] == [5, 6, 7]
    assert {request.body["temperature"] for request in world.server.requests} == {0.3}
    right = sum(one.correct is True for one in played)
    page = opened("live", run=run)
    text = shown(page)
    assert f"3 of 3 played · {right} right" in text
    assert "seed 6" in text
    assert {"As a list of episodes", "As a tree of moves"} <= set(text.splitlines())
    assert "play 3 of 3" in text
    press(page, "repeat_0")
    assert page.query_params["ep"] == episode_id(run, 0)
    assert "play 1 of 3" in shown(page)
    tree = opened("routing", part="luck", run=run, policy="random", task=SUM.id)
    assert "played this task 3 times" in shown(tree)


# Another policy from some turn on


def swapped(store: Store, plan: LivePlan) -> str:
    """A run whose second turn on the guesser was put in charge, and whose third a person decided."""
    run = queued(store, replace(plan, step=True, turns=4))
    playing = in_background(store, run)
    until(lambda: bool(store.episodes.of_run(run)))
    store.runs.step(run, 1)
    until(lambda: [one.stage for one in store.episodes.outline(episode_id(run, 0))] == ["finished"])
    store.runs.set_decider(episode_id(run, 0), 1, "single:guesser")
    until(lambda: getattr(store.runs.proposal(episode_id(run, 0), 1), "policy", "") == "single:guesser")
    page = opened("live", run=run)
    assert "From this turn on **guesser alone** decides" in shown(page).replace("\\", "")
    with pytest.raises(StoreError, match="already begun"):
        store.runs.set_decider(episode_id(run, 0), 0, "random")
    store.runs.set_override(episode_id(run, 0), 2, "adder", Role.WORKER)
    press(page, "pause")
    playing.join(60)
    assert store.runs.get(run).status is RunStatus.FINISHED
    return run


@pytest.mark.process
def test_another_policy_takes_over_and_every_turn_says_who_decided_it(
    store: Store, plan: LivePlan, tmp_path: Path
) -> None:
    run = swapped(store, plan)
    name = episode_id(run, 0)
    episode = store.episodes.get(name)
    assert [turn.decision.model for turn in episode.turns] == ["adder", "guesser", "adder", "guesser"]
    assert [turn.decision.origin for turn in episode.turns] == ["policy", "policy", "override", "policy"]
    assert [store.runs.decider(name, turn) for turn in range(3)] == ["single:adder", *2 * ["single:guesser"]]
    assert {"swapped", "override"} <= set(store.episodes.summary(name).flags)
    assert "from turn 2 on guesser alone" in shown(opened("live", run=run)).replace("\\", "")
    replay = shown(opened("replay", ep=name, t="2")).replace("\\", "")
    assert "adder alone, from turn 2 on guesser alone" in replay
    assert "decided by guesser alone" in replay
    assert "decided by adder alone" in shown(opened("replay", ep=name, t="1")).replace("\\", "")
    assert "from turn 2 on guesser alone" in episode_page(read_played(store, name))
    with pytest.raises(StoreError, match="not being played"):
        store.runs.set_decider(name, 4, "random")
    # What reads or forks it goes by who decided.
    by = ["single:adder", *3 * ["single:guesser"]]
    export_parquet(store, [name], tmp_path / "turns.parquet", "turns")
    assert pq.read_table(tmp_path / "turns.parquet")["policy"].to_pylist() == by
    assert [turn.policy for turn in read_judged(store, EpisodeScope(episode=name)).turns] == by
    parent = store.episodes.get(name)
    told = {"id": "child", "run_id": "forks", "grade": grade_many}
    same = new_child(parent, 2, None, 0, **told)  # type: ignore[arg-type]
    assert (same.policy, [decider_of_turn(same, turn) for turn in range(4)]) == ("single:guesser", by)
    other = new_child(parent, 2, Change("policy", "random"), 0, **told)  # type: ignore[arg-type]
    assert [decider_of_turn(other, turn) for turn in range(4)] == [*by[:2], "random", "random"]


def _names_nothing(store: Store, name: str) -> None:
    """The checkpoint that a person put in charge was deleted meanwhile."""
    with writing(store.engine) as connection:
        connection.execute(update(rows).where(rows.c.id == name).values(deciders={1: "cgone"}))


def test_a_run_with_a_deleted_checkpoint_in_charge_says_so_and_can_be_given_to_another(
    store: Store, plan: LivePlan
) -> None:
    run = queued(store, replace(plan, step=True, turns=3))
    name = episode_id(run, 0)
    playing = in_background(store, run)
    until(lambda: bool(store.episodes.of_run(run)))
    _names_nothing(store, name)
    store.runs.step(run, 1)
    until(lambda: [one.stage for one in store.episodes.outline(name)] == ["finished"])
    until(lambda: store.runs.proposal(name, 1) is not None)
    page = opened("live", run=run)
    said = shown(page).replace("\\", "")
    assert "cgone is in charge and cannot decide: There is no policy or checkpoint" in said
    page.selectbox(key="next_policy").select("single:guesser")
    page.run()
    press(page, "put_in_charge")
    until(lambda: getattr(store.runs.proposal(name, 1), "policy", "") == "single:guesser")
    _names_nothing(store, name)
    store.runs.unpause(run)
    playing.join(60)
    stopped = store.runs.get(run)
    assert stopped.status is RunStatus.INTERRUPTED
    assert "switched this play to 'cgone', which cannot decide" in str(stopped.error)
    assert "choose another coordinator" in str(stopped.error)


@pytest.fixture
def app(world: Sums, monkeypatch: pytest.MonkeyPatch, forked_workers: None) -> Iterator[StandBy]:
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


def ended(store: Store, plan: RunPlan) -> RunSummary:
    """A run of the plan, begun as pages do, once a worker has finished it."""
    run = begin(store, plan, Ticket())
    until(lambda: over(store, run))
    assert store.runs.get(run).status is RunStatus.FINISHED
    return store.runs.get(run)


def test_one_process_plays_what_a_person_waits_for_until_the_app_is_gone(
    store: Store, plan: LivePlan, world: Sums, app: StandBy, tmp_path: Path
) -> None:
    worker = ready(store, app)
    with closing(new_store(tmp_path / "other.db")) as other_store:
        assert app.takes(other_store) is None, "it is of one store"
    assert lease.alive() == []  # it holds no slot while it waits
    for seed in range(2):
        assert pid_of(ended(store, replace(plan, seed=seed))) == worker, "no other is started"
    tasks = complete_plan(store, BatchPlan(("single:adder",), world.tasks, n=2, turns=3, pool=plan.pool))
    assert pid_of(ended(store, tasks)) != worker, "what takes long does not hold it up"
    until(lambda: lease.alive() == [])  # who played them is gone: it would take what comes next
    paused = begin(store, replace(plan, step=True), Ticket())
    until(lambda: store.runs.proposal(episode_id(paused, 0), 0) is not None)
    assert pid_of(store.runs.get(paused)) == worker
    assert pid_of(ended(store, plan)) != worker, "while it is busy another worker is started"
    process = psutil.Process(int(worker))
    app.close()
    process.wait(60)
    stopped = store.runs.get(paused)
    assert stopped.status is RunStatus.INTERRUPTED
    assert stopped.error == "Paused when the app was closed."
    assert store.runs.proposal(episode_id(paused, 0), 0) is None
    store.runs.unpause(paused)
    resume(store, paused)
    until(lambda: over(store, paused))
    assert store.runs.get(paused).status is RunStatus.FINISHED


def test_it_plays_nothing_paid_before_a_ceiling_is_agreed_and_what_it_plays_to_its_end(
    store: Store, plan: LivePlan, world: Sums, app: StandBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the app goes meanwhile."""
    world.price(10.0)
    monkeypatch.setenv("SUMS_KEY", "k")
    worker = psutil.Process(int(ready(store, app)))
    refused = begin(store, plan, Ticket())
    until(lambda: over(store, refused))
    assert store.runs.get(refused).status is RunStatus.FAILED
    assert "set a ceiling" in str(store.runs.get(refused).error)
    assert not world.server.requests

    def slow(request: Request) -> Answer:
        app.close()
        return (0.5, *answer(request))

    world.server.answer = slow
    allowed = begin(store, replace(plan, max_cost_usd=100.0), Ticket())
    worker.wait(60)
    assert store.runs.get(allowed).status is RunStatus.FINISHED


def test_one_that_dies_is_replaced_and_what_it_played_can_be_resumed(
    store: Store, plan: LivePlan, app: StandBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "PAUSE_S", 0.0)
    first = ready(store, app)
    run = begin(store, replace(plan, step=True), Ticket())
    until(lambda: bool(store.episodes.of_run(run)))
    os.kill(int(first), signal.SIGKILL)
    until(lambda: app.takes(store) not in (None, int(first)))
    second = str(app.takes(store))
    store.runs.unpause(run)
    resume(store, run)
    until(lambda: over(store, run))
    assert store.runs.get(run).status is RunStatus.FINISHED
    assert pid_of(store.runs.get(run)) == second


def test_one_that_dies_again_and_again_is_not_started_for_ever(
    store: Store, plan: LivePlan, app: StandBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "PAUSE_S", 0.0)
    monkeypatch.setattr(queue, "OPTION", "--no-such-option")
    app.keep(store)
    until(lambda: app._short_lives == 3)
    app.keep(store)
    assert app.takes(store) is None
    ended(store, plan)  # a worker of its own takes it


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
