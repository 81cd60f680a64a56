"""Evolution: begun by the page or the command line alike, stopped, resumed and watched."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.episode import Protocol
from core.errors import ConfigError
from core.evolution.learners import read_state
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import RunStatus
from storage.shelves.learning import Learning
from storage.store import Store
from tests.core.pool.faulty_server import Answer, Request
from tests.ui.pages import opened, press, shown, until, waiting
from tests.ui.sums import Sums, answer
from tests.ui.web.evolutions import finished_by_worker, plan
from ui.presentation.theme import label
from ui.runs import queue
from ui.runs.plans import plan_of
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.learning import EvolutionPlan
from ui.runs.worker import play_claimed

pytestmark = pytest.mark.integration
SMALL = ["--generations", 3, "--population", 4, "--replicates", 4, "--turns", 2, "--validate-every", 2]


@pytest.fixture
def world(evolving: Sums) -> Sums:
    """There are tasks to evolve on, and a tiny encoder."""
    return evolving


def digest(store: Store, run: str) -> str:
    """Of the optimiser's state as it is kept."""
    kept = store.learning.state(run)
    assert kept is not None
    return read_state(kept[1]).digest


def filled(world: Sums, **fields: int | str) -> AppTest:
    """The form with SMALL in it."""
    page = opened("evolution", panel="begin")
    page.selectbox(key="ev_tasks").select("a file of my own (.jsonl)").run()
    page.text_input(key="ev_file").set_value(world.tasks)
    small = {
        "ev_generations": 3,
        "ev_population": 4,
        "ev_tasks_per_candidate": 4,
        "ev_turn_budget": 2,
        "ev_validate_every": 2,
    }
    values: dict[str, int | str] = {**small, **fields}
    for key, value in values.items():
        if isinstance(value, str):
            page.text_input(key=key).set_value(value)
        else:
            page.number_input(key=key).set_value(value)
    page.run()
    assert not page.exception
    return page


@pytest.mark.usefixtures("no_workers")
def test_page_and_command_line_begin_the_same_evolution(world: Sums, store: Store) -> None:
    page = filled(world)
    assert page.selectbox(key="ev_encoder").options == ["pocket", os.environ["TRINITY_ENCODER"]]
    press(page, "begin")
    (run,) = waiting(store)
    assert page.query_params["run"] in (run, [run])
    assert store.runs.get(run).status is RunStatus.QUEUED
    assert "waiting" in shown(page)
    assert play_claimed(store, run) == 0
    by_cli = world.trinity("evolve", "--tasks", world.tasks, *SMALL, "--json").json
    assert store.runs.get(run).config == store.runs.get(by_cli["run"]).config
    assert digest(store, run) == by_cli["digest"]
    assert plan_of(store.runs.get(run)) == plan(world)


@pytest.mark.usefixtures("no_workers")
def test_an_empty_field_shows_what_follows_from_the_pool(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spread(page: AppTest) -> tuple[float | None, str]:
        field = page.number_input(key="ev_constant_spread")
        return field.value, field.placeholder

    page = filled(world)
    assert spread(page) == (None, "6")
    page.number_input(key="ev_logit_spread").set_value(2.5).run()
    assert spread(page) == (None, "2.5")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TRINITY_POOL", "pocket")
        assert spread(page.run()) == (None, "0")
    press(page, "begin")
    (run,) = waiting(store)
    begun = plan_of(store.runs.get(run), EvolutionPlan)
    assert (begun.evolution.logit_spread, begun.evolution.constant_spread) == (2.5, 2.5)


@pytest.mark.usefixtures("forked_workers")
def test_a_process_of_its_own_evolves_to_the_end(world: Sums, store: Store) -> None:
    run, fresh = enqueue(store, plan(world), Ticket())
    assert fresh
    queue.start_worker(store, run)
    until(lambda: store.runs.get(run).status is RunStatus.FINISHED, 120)
    assert [one.index for one in store.learning.updates(run)] == [0, 1, 2, 3]
    assert "generation **3** of 3" in opened("evolution").markdown[0].value
    text = shown(opened("evolution", panel="progress"))
    assert "Is it better than the controls?" in text
    assert "validation tasks of" in text
    assert "No episode of any gen of this run is recorded yet" in text


@pytest.mark.parametrize("where", ["between generations", "between waves"])
def test_stopped_and_resumed_it_ends_the_same_and_asks_nothing_twice(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    undisturbed = finished_by_worker(store, world)
    asked = len(world.server.requests)
    run, _ = enqueue(store, plan(world, "stopped"), Ticket())
    if where == "between generations":
        add = Learning.add

        def kept(self: Learning, entry: Any, **rest: Any) -> None:
            add(self, entry, **rest)
            if entry.index == 1:
                store.runs.cancel(run)

        monkeypatch.setattr(Learning, "add", kept)
    else:

        def one_more(request: Request) -> Answer:
            if len(world.server.requests) == asked + asked // 2:
                store.runs.cancel(run)
            return answer(request)

        world.server.answer = one_more
    assert play_claimed(store, run) == 0
    stopped = store.runs.get(run)
    assert (stopped.status, stopped.error) == (RunStatus.INTERRUPTED, None)
    assert 0 < stopped.generations < 4
    monkeypatch.undo() if where == "between generations" else None
    world.server.answer = answer
    monkeypatch.setenv("TRINITY_STORE", world.store)
    page = opened("evolution", run=run)
    assert "interrupted" in shown(page)
    assert page.button(key="resume")
    if where == "between generations":
        assert play_claimed(store, run) == 0
    else:
        monkeypatch.setenv("XDG_DATA_HOME", str(world.folder))
        assert world.trinity("evolve", "--resume", "--name", "stopped", "--json").code == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    assert digest(store, run) == digest(store, undisturbed)
    assert len(world.server.requests) == 2 * asked


def test_a_command_line_evolution_can_be_stopped_from_the_page(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Learning.add

    def kept(self: Learning, entry: Any, **rest: Any) -> None:
        add(self, entry, **rest)
        if entry.index == 1:
            store.runs.cancel(entry.run_id)

    monkeypatch.setattr(Learning, "add", kept)
    result = world.trinity("evolve", "--tasks", world.tasks, *SMALL)
    assert result.code == 1
    assert "asked to stop" in result.err
    assert "Go on with: trinity evolve --resume" in result.err
    assert store.runs.list(kind="evolve")[0].status is RunStatus.INTERRUPTED


@pytest.mark.usefixtures("no_workers")
def test_two_clicks_are_one_run(world: Sums, store: Store) -> None:
    page = filled(world)
    ticket = page.session_state["ticket"][1]
    press(page, "begin")
    again, fresh = enqueue(store, plan(world), ticket)
    assert not fresh
    assert waiting(store) == [again]
    other, fresh = enqueue(store, plan(world, seed=1), ticket)
    assert fresh
    assert other != again
    found: list[tuple[str, bool]] = []
    new = Ticket()
    clicks = [
        threading.Thread(target=lambda: found.append(enqueue(store, plan(world, "both"), new)))
        for _ in range(4)
    ]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    assert len({run for run, _ in found}) == 1
    assert sum(fresh for _, fresh in found) == 1
    assert len(store.runs.list(kind="evolve")) == 3


def test_a_name_is_given_once(world: Sums, store: Store) -> None:
    enqueue(store, plan(world, "mine"), Ticket())
    with pytest.raises(ConfigError, match="an evolution or a training named 'mine'"):
        enqueue(store, plan(world, "mine", seed=1), Ticket())
    page = press(filled(world, ev_name="mine"), "begin")
    assert "an evolution or a training named" in shown(page)
    assert len(store.runs.list(kind="evolve")) == 1


def test_only_one_worker_evolves_a_run(world: Sums, store: Store) -> None:
    run, _ = enqueue(store, plan(world), Ticket())
    assert store.runs.claim(run, "elsewhere:1")
    assert play_claimed(store, run) == 0
    assert not world.server.requests
    assert store.learning.updates(run) == []


@pytest.mark.usefixtures("no_workers")
def test_a_dead_worker_is_called_stalled_and_another_goes_on(world: Sums, store: Store) -> None:
    run, _ = enqueue(store, plan(world), Ticket())
    assert store.runs.claim(run, f"{socket.gethostname()}:999999999")
    page = opened("evolution", run=run)
    assert "has gone silent" in shown(page)
    press(page, "resume")
    assert waiting(store) == [run]
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    assert "finished" in page.run().markdown[0].value


def test_a_running_one_is_watched_and_can_be_stopped(world: Sums, store: Store) -> None:
    run, _ = enqueue(store, plan(world), Ticket())
    assert store.runs.claim(run, f"{socket.gethostname()}:{os.getpid()}")
    page = opened("evolution", run=run)
    assert "evolving" in shown(page)
    assert "will appear here by itself" in shown(page)
    press(page, "stop")
    assert store.runs.control(run).cancel
    assert page.run().button(key="stop").disabled


def test_what_cannot_be_evolved_fails_with_its_sentence_and_leaves_its_name(
    world: Sums, store: Store
) -> None:
    run, _ = enqueue(store, plan(world, "wrong", "9"), Ticket())
    assert play_claimed(store, run) == 1
    page = opened("evolution", run=run)
    assert "SVF cannot use" in page.error[0].value.replace("\\", "")
    assert "ended before its first generation" in shown(page)
    press(page, "remove")
    assert store.runs.list() == []
    assert "No evolution yet" in shown(page)


def test_the_form_refuses_what_no_optimiser_takes(world: Sums, store: Store) -> None:
    page = filled(world, ev_population=5)
    assert page.button(key="begin").disabled
    assert "an even number for mirrored pairs" in shown(page)
    page.text_input(key="ev_file").set_value("").run()
    assert "Name the file" in shown(page)


@pytest.mark.usefixtures("no_workers")
def test_the_episodes_that_the_form_keeps_are_a_click_from_their_generation(
    world: Sums, store: Store
) -> None:
    page = filled(world)
    page.segmented_control(key="ev_record").set_value("share")
    page.run()
    press(page, "begin")
    (run,) = waiting(store)
    assert play_claimed(store, run) == 0
    page = opened("evolution", run=run, gen="2")
    assert "Its recorded episodes" in shown(page)
    page = opened("episodes", run=run, generation="2")
    assert "**20** episodes" in shown(page)
    [first, *_] = store.episodes.page(EpisodeFilter(run=run, generation=2), order="oldest", limit=1).items
    assert "candidate 0 of gen 2" in shown(opened("replay", ep=first.id))


@pytest.mark.usefixtures("no_workers")
def test_reinforce_is_begun_by_the_form_too_and_stands_beside_the_other(
    world: Sums, store: Store, evolved: str
) -> None:
    page = opened("evolution", panel="begin")
    page.session_state["ev_learner"] = "reinforce"
    page.run()
    press(page, "ev_size_The usual size")
    assert page.number_input(key="ev_tasks_per_candidate").value == 128
    shown_keys = {one.key for one in page.number_input}
    assert "ev_learning_rate" in shown_keys
    assert not {"ev_population", "ev_logit_spread", "ev_box"} & shown_keys
    page.selectbox(key="ev_tasks").select("a file of my own (.jsonl)").run()
    page.text_input(key="ev_file").set_value(world.tasks)
    for key, value in {"ev_generations": 2, "ev_tasks_per_candidate": 8, "ev_turn_budget": 2}.items():
        page.number_input(key=key).set_value(value)
    page.multiselect(key="ev_barred").select("guesser")
    page.number_input(key="ev_token_position").set_value(-1)
    page.toggle(key="ev_common").set_value(False)
    page.selectbox(key="ev_protocol").select(Protocol.RELEASED)
    page.number_input(key="ev_diversity").set_value(0.15)
    page.number_input(key="ev_turn_cost").set_value(0.1).run()
    press(page, "begin")
    (run,) = waiting(store)
    assert play_claimed(store, run) == 0
    kept = store.runs.get(run).config
    assert kept["token_position"] == -1
    assert kept["protocol"] == "released"
    assert not kept["evolution"]["common"]
    assert (kept["evolution"]["diversity"], kept["evolution"]["turn_cost"]) == (0.15, 0.1)
    assert (kept["evolution"]["learner"], kept["evolution"]["rotate_every"]) == ("reinforce", 1)
    assert kept["barred"] == ["guesser"]
    text = shown(opened("evolution", run=run, panel="choices", **{"with": evolved}))
    assert "REINFORCE" in text
    assert "sep\\-CMA\\-ES" in text
    assert "plays one policy" in shown(opened("evolution", run=run, panel="population"))
    assert "learning rate" in shown(opened("evolution", run=run))


@pytest.mark.usefixtures("no_workers")
def test_a_paid_pool_needs_a_ceiling_keeps_below_it_and_goes_on_under_a_higher_one(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(10.0)
    page = filled(world)
    controls = 2 * 4 * 4 + 2 * 4
    assert f"up to {(3 * 4 * 4 + 3 * 4 + controls) * 2} calls" in page.warning[0].value
    assert page.button(key="begin").disabled
    page.number_input(key="ev_max_cost").set_value(0.043).run()
    press(page, "begin")
    (run,) = waiting(store)
    assert play_claimed(store, run) == 0
    stopped = store.runs.get(run)
    assert stopped.status is RunStatus.INTERRUPTED
    assert "could exceed the ceiling of $0.0430" in str(stopped.error)
    page = opened("evolution", run=run)
    assert label("of $0.0430", 60) in shown(page)
    page.number_input(key=f"resume_{run}_max_cost_usd").set_value(9.0).run()
    press(page, "resume")
    assert play_claimed(store, run) == 0
    assert (store.runs.get(run).status, store.runs.get(run).config["max_cost_usd"]) == (
        RunStatus.FINISHED,
        9.0,
    )
    without, _ = enqueue(store, plan(world, "no ceiling"), Ticket())
    assert play_claimed(store, without) == 1
    assert "set a ceiling" in str(store.runs.get(without).error)
