"""Live: the form, a run under way and afterwards, and a run that outlives its browser."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from streamlit.testing.v1 import AppTest

from core.checkpoint import Checkpoint, EncoderIdentity
from core.episode import Protocol, Role
from core.errors import StoreError, TaskError
from core.ids import episode_id
from core.tasks.sets import read_task_file
from core.tokens.shelf import Shelved, put
from storage.filters.episode_filter import EpisodeFilter
from storage.recorder import record
from storage.rows.summaries import RunStatus
from storage.shelves.runs import Runs
from storage.store import Store
from tests.builders.recorded import episode, events_of
from tests.core.pool.faulty_server import fail
from tests.ui.pages import opened, press, shown, until, waiting
from tests.ui.sums import Sums
from ui.presentation.course import wrong_since
from ui.runs import wiring
from ui.runs.grading import grading, grading_of_episodes
from ui.runs.lease import owner
from ui.runs.plans import LivePlan, plan_of
from ui.runs.queue import Ticket, enqueue
from ui.runs.worker import play_claimed
from ui.web.live.form import MOST_LISTED, drawn_task
from ui.web.live.steering import STEPS
from ui.web.pickers.checkpoints import playable, plays_whole, startable

pytestmark = pytest.mark.integration


def test_the_form_offers_what_fits_the_pool(store: Store, world: Sums) -> None:
    page = opened("live")
    assert page.selectbox(key="policy_choice").options[:2] == ["random model and role", "all models in turn"]
    models = ("adder", "guesser")
    alone = ["single:adder", "single:guesser"]
    assert playable(store, models) == ["random", "round-robin", "random-model", *alone]
    wholes = startable(store, wiring.pool_specs(str(world.folder / "pool.toml")))
    assert [one for one in wholes if plays_whole(store, one, models)] == wholes[5:]
    assert {"mixture", "majority:adder", "conductor:random"} <= {*wholes}
    assert not {"router", "labels", "cascade", "majority"} & {*wholes}, "they learn from other tasks first"
    assert not page.button(key="play").disabled
    labels = [one.label.lower() for one in (*page.toggle, *page.checkbox, *page.button)]
    assert not [words for words in labels if "step by step" in words]
    assert [one.key for one in page.button_group if "Step by step" in one.options] == ["way"]


def test_a_problem_is_drawn_by_number_and_the_dice_draw_another(store: Store) -> None:
    page = opened("live")
    first = page.code[0].value
    page.button(key="another").click().run()
    assert page.code[0].value != first
    page.number_input(key="task_seed").set_value(1).run()
    assert page.code[0].value == first
    assert drawn_task("math", 5) == drawn_task("math", 5)
    assert drawn_task("math", 5).family == "math"


@pytest.mark.usefixtures("no_workers")
def test_an_own_question_needs_no_answer(store: Store) -> None:
    page = opened("live")
    page.session_state["problem_kind"] = "mine"
    page.run()
    assert page.button(key="play").disabled
    page.text_area(key="own_question").set_value("What is 1 + 1?").run()
    page.button(key="play").click().run()
    task = plan_of(store.runs.get(page.query_params["run"]), LivePlan).task
    assert (task.question, task.answer) == ("What is 1 + 1?", "")


def from_file(path: str) -> AppTest:
    """The form with a task file named in it, and no wait between decisions and answers."""
    page = opened("live")
    page.session_state["problem_kind"] = "file"
    page.session_state["pace"] = 0.0
    page.run()
    assert "Name the file of tasks first" in shown(page)
    page.text_input(key="live_file").set_value(path).run()
    assert not page.exception
    return page


@pytest.mark.usefixtures("no_workers")
def test_a_problem_from_ones_own_task_file_is_played_and_judged(store: Store, world: Sums) -> None:
    page = from_file(world.tasks)
    page.selectbox(key="live_file_task").select_index(2).run()
    assert page.code[0].value == "What is 12 + 15?"
    assert "user · a test task · expected answer: 27" in shown(page)
    page.selectbox(key="policy_choice").select("single:adder").run()
    run = press(page, "play").query_params["run"]
    plan = plan_of(store.runs.get(run), LivePlan)
    assert plan.tasks == world.tasks
    assert plan.task in read_task_file(Path(world.tasks))
    assert play_claimed(store, run) == 0
    [played] = store.episodes.of_run(run)
    assert (played.answer, played.correct) == ("27", True)


@pytest.mark.process
@pytest.mark.usefixtures("no_workers")
def test_functions_of_ones_own_judge_a_task_once_its_file_was_named_here(store: Store, world: Sums) -> None:
    (world.folder / "grade.py").write_text("def odd(said, answer):\n    return int(said) % 2 == 1\n")
    line = {"question": "What is 1 + 2?", "answer": "an odd one", "grader": "python:grade.py:odd"}
    file = world.folder / "own.jsonl"
    file.write_text(json.dumps(line) + "\n")
    page = from_file(str(file))
    assert "judged by python:grade.py:odd" in shown(page).replace("\\", "")
    task = read_task_file(file)[0]
    with pytest.raises(TaskError, match="called only in runs that are begun here"):
        grading(store, [task], str(file))  # to look at a file is not to name it for a run
    page.selectbox(key="policy_choice").select("single:adder").run()
    run = press(page, "play").query_params["run"]
    assert play_claimed(store, run) == 0
    [played] = store.episodes.of_run(run)
    assert played.correct is True
    grading_of_episodes(store, [store.episodes.get(played.id)])  # and a fork of it can be judged, too


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.jsonl", None, "There is no task file"),
        ("tasks.txt", "x", "a .jsonl file of your own"),
        ("bad.jsonl", "{", "Line 1 of bad.jsonl is not valid JSON"),
        ("empty.jsonl", "\n", "is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_sentence(
    store: Store, tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    page = from_file(str(tmp_path / name))
    assert words in shown(page).replace("\\", "")
    assert page.button(key="play").disabled


def test_a_long_file_is_searched(store: Store, tmp_path: Path) -> None:
    lines = [{"question": f"What is {n} + {n}?", "answer": n + n, "grader": "number"} for n in range(600)]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = from_file(str(tmp_path / "long.jsonl"))
    assert len(page.selectbox(key="live_file_task").options) == MOST_LISTED
    page.text_input(key="live_file_words").set_value("is 599 +").run()
    assert page.code[0].value == "What is 599 + 599?"
    page.text_input(key="live_file_words").set_value("no such words").run()
    assert "search for others" in shown(page)
    assert page.button(key="play").disabled


@pytest.mark.usefixtures("no_workers")
def test_starting_writes_the_run_down_and_opens_it(store: Store) -> None:
    page = opened("live")
    page.button_group(key="way").set_value("step").run()
    page.number_input(key="live_turns").set_value(3).run()
    page.button(key="play").click().run()
    assert not page.exception
    run = page.query_params["run"]
    assert waiting(store) == [run]
    kept = plan_of(store.runs.get(run), LivePlan)
    assert (kept.turns, kept.step, kept.policy) == (3, True, "random")
    assert store.runs.get(run).status is RunStatus.QUEUED
    assert store.runs.control(run).paused
    assert "waiting" in shown(page)


@pytest.mark.usefixtures("no_workers")
def test_the_rules_are_chosen_and_a_checkpoint_plays_by_its_own(store: Store) -> None:
    page = opened("live")
    page.session_state["live_protocol"] = Protocol.RELEASED
    page.run()
    page.button(key="play").click().run()
    kept = plan_of(store.runs.get(page.query_params["run"]), LivePlan)
    assert (kept.policy, kept.protocol) == ("random", Protocol.RELEASED)
    released: dict[str, Any] = {"protocol": Protocol.RELEASED, "input_format": "chat"}
    by_rules = Checkpoint.begin(("adder", "guesser"), EncoderIdentity("tiny", 8), **released)
    wiring.keep_checkpoint(store, by_rules)
    put(wiring.data_folder(), "mine", lambda _: Shelved("mine", "a folder", "", "", "/somewhere"))
    page = opened("live", play=by_rules.id)
    assert "the authors' released code's, as this checkpoint was evolved" in shown(page)
    reads = page.selectbox(key="live_encoder")
    assert reads.options[:3] == ["the checkpoint's own", "pocket", "mine"]
    reads.select("mine").run()
    page.button(key="play").click().run()
    assert plan_of(store.runs.get(page.query_params["run"]), LivePlan).encoder == "mine"


def test_two_clicks_are_one_run_and_another_visit_is_another(store: Store, plan: LivePlan) -> None:
    ticket = Ticket()
    stepwise = replace(plan, step=True)
    run, fresh = enqueue(store, stepwise, ticket)
    assert (fresh, enqueue(store, stepwise, ticket)) == (True, (run, False))
    page = opened("live")
    first = page.session_state["ticket"]
    assert page.run().session_state["ticket"] == first  # the same form, whatever is chosen in it
    page.query_params["run"] = run
    page.run()
    page.query_params.clear()
    assert page.run().session_state["ticket"] != first


def test_a_paid_pool_asks_for_a_ceiling_first(
    world: Sums, store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = enqueue(store, plan, Ticket())[0]
    play_claimed(store, played)
    world.price(3.0)
    monkeypatch.setenv("SUMS_KEY", "k")
    for button, query in (("play", {}), ("play_again", {"run": played})):
        page = opened("live", **query)
        assert "cost money" in page.warning[0].value
        assert page.button(key=button).disabled
        assert "what may be spent" in shown(page)
        assert "Write the question" not in shown(page)
        page.number_input(key="max_cost").set_value(0.5).run()
        assert not page.button(key=button).disabled
    monkeypatch.setenv("TRINITY_MAX_COST", "0.25")
    page = opened("live")
    assert page.number_input(key="max_cost").value == 0.25
    assert not page.button(key="play").disabled


def test_an_unknown_price_is_told_before_anything_is_queued(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.price(3.0)
    monkeypatch.setenv("SUMS_KEY", "k")
    pool = world.folder / "pool.toml"
    lines = pool.read_text().splitlines(keepends=True)
    pool.write_text("".join(line for line in lines if not line.startswith("price_")))
    page = opened("live")
    assert page.button(key="play").disabled
    assert "price of adder, guesser is not known" in shown(page).replace("\\", "")


def test_a_finished_run_shows_its_turns_and_leads_on(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, plan, Ticket())[0]
    play_claimed(store, run)
    page = opened("live", run=run)
    text = shown(page)
    assert "finished" in text
    assert "answer **23**" in text
    assert "What next" in text
    turns = store.episodes.page(EpisodeFilter(run=run)).items[0].turns
    assert turns > 1
    assert f"Just before: **Turn {turns - 1} of {turns}**" in text
    assert "guesser alone" in page.selectbox(key="swap_policy").options


def test_a_wrong_run_leads_to_the_turn_that_made_it_so(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, replace(plan, task=replace(plan.task, answer="24")), Ticket())[0]
    play_claimed(store, run)
    page = opened("live", run=run)
    assert store.episodes.of_run(run)[0].correct is False
    at = wrong_since(store.episodes.outline(episode_id(run, 0)))
    assert at is not None
    assert f"See turn {at + 1}, since which it is wrong, in Replay" in " ".join(
        link.proto.label for link in page.page_link
    )
    there = {link.proto.page: parse_qs(link.proto.query_string) for link in reversed(page.page_link)}
    assert there["replay"] == there["forks"] == {"ep": [episode_id(run, 0)], "t": [str(at + 1)]}


def test_before_the_first_turn_one_step_is_named_at_a_time(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, plan, Ticket())[0]
    said = shown(opened("live", run=run))
    assert f"**{STEPS[1]} …**" in said
    assert f":gray[:material/radio_button_unchecked: {STEPS[2]}]" in said
    assert "first start takes longest" in said
    assert store.runs.claim(run, owner())
    said = shown(opened("live", run=run))
    assert f":green[:material/check:] :gray[{STEPS[1]}]" in said
    assert f"**{STEPS[2]} …**" in said
    begun = replace(episode(episode_id(run, 0)), run_id=run)
    list(record(store, events_of(begun, upto=1), owner=owner()))
    said = shown(opened("live", run=run))
    assert "Waiting for its first words" in said
    assert "Still being written" not in said


@pytest.mark.parametrize(
    ("policy", "turns"), [("mixture", 3), ("majority:adder", 5), ("cascade:adder+guesser", 5)]
)
def test_a_policy_beside_coordinators_is_played_live(
    store: Store, plan: LivePlan, policy: str, turns: int
) -> None:
    run = enqueue(store, replace(plan, policy=policy), Ticket())[0]
    assert play_claimed(store, run) == 0
    [played] = store.episodes.of_run(run)
    assert (played.policy, played.answer) == (policy, "23")
    assert f"turn {played.turns} of at most {turns}" in shown(opened("live", run=run))
    if policy.startswith("cascade"):  # it decides turns one by one
        return
    page = opened("live")
    page.selectbox(key="policy_choice").select(policy).run()
    assert "Step by step" not in page.button_group(key="way").options
    assert "decides no turn alone" in shown(page)
    assert f"at most {turns} turns" in shown(page)


def test_a_failed_run_says_why(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, replace(plan, policy="cgone"), Ticket())[0]
    play_claimed(store, run)
    page = opened("live", run=run)
    assert "cgone" in page.error[0].value
    assert "failed" in shown(page)


def test_a_waiting_run_offers_the_next_decision(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, replace(plan, step=True), Ticket())[0]
    _stop_before_the_second_turn(store, run)
    page = opened("live", run=run)
    assert "waiting for you" in shown(page)
    until(lambda: store.runs.proposal(episode_id(run, 0), 1) is not None)
    assert "Proposal: " in shown(page.run())
    store.runs.set_override(episode_id(run, 0), 1, "guesser", Role.WORKER)
    assert "Yours instead" in shown(page.run())
    press(page, "give_back")
    assert store.runs.override(episode_id(run, 0), 1) is None
    assert "Yours instead" not in shown(page)
    store.runs.set_override(episode_id(run, 0), 1, "guesser", Role.THINKER)
    page.run()
    page.button(key="next_turn").click().run()
    until(lambda: len(store.episodes.outline(episode_id(run, 0))) == 2)
    until(lambda: store.episodes.outline(episode_id(run, 0))[1].stage == "finished")
    assert store.episodes.outline(episode_id(run, 0))[1].origin == "override"
    page.run()
    page.button(key="stop").click().run()
    assert store.runs.control(run).cancel


def test_who_is_put_in_charge_is_kept_by_id(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, replace(plan, step=True), Ticket())[0]
    worker = _stop_before_the_second_turn(store, run)
    name = episode_id(run, 0)
    until(lambda: store.runs.proposal(name, 1) is not None)
    page = opened("live", run=run)
    page.session_state["other_coordinator"] = True  # as the browser opens it
    page.run()
    page.selectbox(key="next_policy").select("single:guesser")
    press(page, "put_in_charge")
    assert store.runs.decider(name, 1) == "single:guesser"
    assert "single:guesser" not in page.selectbox(key="next_policy").options
    store.runs.cancel(run)
    worker.join(60)


def test_two_tabs_that_step_from_one_turn_play_one_turn(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, replace(plan, step=True), Ticket())[0]
    _stop_before_the_second_turn(store, run)
    one, other = opened("live", run=run), opened("live", run=run)
    one.button(key="next_turn").click().run()
    until(lambda: [o.stage for o in store.episodes.outline(episode_id(run, 0))] == ["finished"] * 2)
    other.button(key="next_turn").click().run()  # as it showed the turn before
    time.sleep(0.5)
    assert len(store.episodes.outline(episode_id(run, 0))) == 2
    press(other.run(), "next_turn")
    until(lambda: len(store.episodes.outline(episode_id(run, 0))) == 3)


def _stop_before_the_second_turn(store: Store, run: str) -> threading.Thread:
    """One turn played, the run still claimed by a process that lives: this one."""
    store.runs.step(run, 1)
    worker = threading.Thread(target=play_claimed, args=(store, run), daemon=True)
    worker.start()
    until(lambda: bool(store.episodes.of_run(run)))
    until(lambda: [o.stage for o in store.episodes.outline(episode_id(run, 0))] == ["finished"])
    return worker


@pytest.mark.parametrize("claimed", [True, False])
@pytest.mark.usefixtures("no_workers")
def test_a_run_without_a_worker_is_called_stalled_and_another_goes_on(
    store: Store, plan: LivePlan, claimed: bool
) -> None:
    early = replace(store.runs, now=lambda: time.time() - 60)
    run = enqueue(replace(store, runs=early), plan, Ticket())[0]
    if claimed:
        assert store.runs.claim(run, f"{socket.gethostname()}:999999999")
    page = opened("live", run=run)
    assert ("has gone silent" if claimed else "No worker has taken") in shown(page)
    press(page, "resume")
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    assert "finished" in shown(page.run())


def test_a_run_whose_key_is_refused_says_so_here_and_in_its_replay(
    store: Store, plan: LivePlan, world: Sums
) -> None:
    world.server.answer = lambda _request: fail(401)
    run = enqueue(store, plan, Ticket())[0]
    play_claimed(store, run)
    page = opened("live", run=run)
    assert "refused the key" in page.error[0].value
    assert "interrupted" in shown(page)
    assert page.button(key="resume")
    replay = shown(opened("replay", ep=episode_id(run, 0)))
    assert "failure of the infrastructure" in replay
    assert "refused the key" in replay


def test_the_replay_of_a_cancelled_run_does_not_speak_of_a_dead_process(store: Store, plan: LivePlan) -> None:
    run = enqueue(store, replace(plan, step=True), Ticket())[0]
    worker = _stop_before_the_second_turn(store, run)
    store.runs.cancel(run)
    worker.join(60)
    page = opened("replay", ep=episode_id(run, 0))
    assert "interrupted: cancelled" in shown(page)
    assert not {"died", "--resume"} & set(shown(page).split())
    assert "Its run on the Live page" in shown(page)


def test_a_store_that_fails_meanwhile_is_told_in_one_sentence(
    store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("Nothing was stored: the disk is full.")

    run = enqueue(store, plan, Ticket())[0]
    assert store.runs.claim(run, owner())
    monkeypatch.setattr(Runs, "pause", full)
    page = opened("live", run=run)
    press(page, "pause")
    assert "disk is full" in page.toast[0].value
    monkeypatch.setattr(Runs, "control", full)
    page.run()
    assert not page.exception
    assert "This view cannot be shown" in shown(page)
