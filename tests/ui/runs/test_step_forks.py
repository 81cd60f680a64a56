"""Forks of a workflow's step in use: planned, played, killed, resumed, exported, on pages and by `trinity fork`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from core.changes import Change
from core.conduct.planners import planner_policy
from core.episode import Ask, Episode, EpisodeFinished, Flag, Replied, Reply, Task, TurnStarted, Usage
from core.errors import ConfigError
from core.play.drive import drive_many
from core.play.policies import new_episode
from core.pool.spec import digest_of_specs
from core.tasks.graders import grade_many
from storage.files.interchange import import_file
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.recorder import record
from storage.store import Store
from tests.builders.interchange import export_runs
from tests.builders.pools import ScriptedPool, specs
from tests.builders.stores import new_store
from tests.ui.pages import opened, press, shown, waiting
from tests.ui.runs.forking import finished, planned, played, refused
from tests.ui.sums import Sums
from ui.presentation.steps import change_words
from ui.runs.forks.planning import find_turns, plan_forks
from ui.runs.forks.play import ForkParts
from ui.runs.forks.results import read_results
from ui.runs.lease import owner
from ui.runs.plans import ForkPlan, plan_of, to_config
from ui.runs.spending import price
from ui.runs.worker import play_claimed

#: Of three solvers only the last is right, so that the merger takes the answer of the two others.
POLICY = "conductor:fixed:solvers:guesser+guesser+adder+guesser"


@pytest.fixture
def parent(world: Sums, store: Store) -> str:
    """A workflow's episode that ended wrong, though one of its three solvers was right."""
    assert world.run("--policy", POLICY, "--n", "4").code == 0
    return store.episodes.page(EpisodeFilter(q="correct == False")).items[0].id


def test_a_step_by_another_model_is_played_against_the_step_as_it_was(
    world: Sums, store: Store, parent: str
) -> None:
    before, digest = store.episodes.get(parent), forks.episode_digests(store, [parent])
    plan = planned(world, store, (parent, 1))
    assert plan.branches[0].anew == (1, 3)
    world.server.requests.clear()
    run = finished(store, plan)
    results = read_results(store, run, plan)
    assert plan_of(store.runs.get(run)) == plan
    assert (results.baseline.right, results.fork.right, results.fork.n) == (0, 3, 3)
    assert "Changed, 3 of 3 were right. The change helps: +100 points" in results.verdict
    assert len(world.server.requests) == 6 * 2, "the step and the merger alone are asked again"
    assert (store.episodes.get(parent), results.parents_unchanged) == (before, True)
    assert forks.episode_digests(store, [parent]) == digest
    children = forks.of_runs(store, [run])[run]
    assert [one.seed for one in children[:3]] == [one.seed for one in children[3:]]
    child = store.episodes.get(children[3].id)
    assert [turn.decision.model for turn in child.turns] == ["guesser", "adder", "adder", "guesser"]
    for kept in (0, 2):
        assert child.turns[kept].reply.text == before.turns[kept].reply.text
    assert (child.plans[0].reply, child.policy) == (before.plans[0].reply, POLICY)
    assert Flag.REUSED in child.turns[2].flags
    assert planned(world, store, (parent, 1)).to_play == 0, "what the store holds is not played again"
    assert planned(world, store, (parent, 1), change=Change("subtask", "Solve it.")).to_play == 3
    assert planned(world, store, (parent, 2), change=Change("model", "guesser")).to_play == 6


def test_carried_replies_are_paid_by_the_parent_and_left_out_of_the_price(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.price(3.0)
    monkeypatch.setenv("SUMS_KEY", "k")
    assert world.run("--policy", POLICY, "--n", "2", "--max-cost", "1").code == 0
    parent = store.episodes.page(EpisodeFilter(q="correct == False")).items[0].id
    plan = replace(planned(world, store, (parent, 0)), max_cost_usd=1.0)
    most = price(store, plan).most
    assert most.calls == 6 * 2
    assert most.cost_usd is not None
    run = finished(store, plan)
    results = read_results(store, run, plan)
    each = [store.episodes.get(one.id).turns for one in forks.of_runs(store, [run])[run]]
    spent = sum(turns[index].reply.usage.cost_usd or 0.0 for turns in each for index in (0, 3))
    assert results.spent_usd == pytest.approx(spent)
    assert store.runs.spent_usd(run) == pytest.approx(spent)
    assert 0 < spent < most.cost_usd
    assert all(turns[index].reply.usage.cost_usd == 0.0 for turns in each for index in (1, 2))
    certain = planned(world, store, (parent, 3), change=Change("reply", "fine ACCEPT"))
    assert (certain.branches[0].certain, certain.branches[0].n) == (True, 1)
    assert price(store, certain).most.calls == 3, "the baseline's last step, and nothing of the fork"


def test_a_forked_workflow_is_exported_imported_filtered_and_left_out_of_totals(
    world: Sums, store: Store, parent: str, tmp_path: Path
) -> None:
    run = finished(store, planned(world, store, (parent, 2), change=Change("access", "1,2")))
    export_runs(store, [run], file := tmp_path / "out.jsonl")
    other = new_store(tmp_path / "b.db")
    import_file(other, file)
    for one in forks.of_runs(store, [run])[run]:
        assert other.episodes.get(one.id) == store.episodes.get(one.id)
        assert one.fork.change in (None, Change("access", "1,2"))
    export_runs(other, [run], again := tmp_path / "again.jsonl")
    assert again.read_bytes() == file.read_bytes()
    other.close()
    found = store.episodes.page(EpisodeFilter(q="fork == True and fork_turn == 3"))
    assert found.total.n == 6
    assert store.episodes.page(EpisodeFilter()).total.n == 4, "forks stand aside unless they are asked for"


def test_many_workflows_at_once_leave_out_what_is_no_step(world: Sums, store: Store, parent: str) -> None:
    assert world.run("--policy", "single:guesser", "--n", "4").code == 0
    batch = "at=first"
    picks = find_turns(store, batch, 20)
    assert len(picks) == 8
    plan = planned(world, store, *picks, change=Change("subtask", "Plan it first."), batch=batch)
    assert (len(plan.branches), plan.skipped) == (4, 4)
    coordinated = next(one for one, _ in picks if store.episodes.get(one).policy == "single:guesser")
    with pytest.raises(ConfigError, match="is no step of a workflow"):
        planned(world, store, (coordinated, 0), change=Change("subtask", "Plan it first."))
    mixed = planned(world, store, *picks, batch=batch, n=1, baseline=1)
    assert len(mixed.branches) == 8
    assert played(store, mixed).difference.n == 8


# A killed run

MODELS = ("ann", "bob", "cid")
TASK = Task("t1", "What is six times seven?", "42", "number")


def told(ask: Ask) -> Reply:
    text = f"{ask.model} {ask.seed} {ask.sample} <answer>{42 if ask.seed % 2 else 41}</answer>"
    return Reply(text, usage=Usage(9, 7, 0.5))


def parts(store: Store, pool: ScriptedPool, plan: ForkPlan, parent: Episode) -> ForkParts:
    return ForkParts(plan, pool, {parent.id: parent}, grade_many)


@pytest.mark.integration
def test_a_run_killed_anywhere_ends_alike_and_asks_for_no_recorded_reply_again(tmp_path: Path) -> None:
    policy = planner_policy("conductor:fixed:debate", MODELS)
    listed = specs(MODELS, "general")

    def begun_at(name: str) -> tuple[Store, Episode, ForkPlan, str]:
        store = new_store(tmp_path / name)
        store.runs.create("r1", "run", {})
        first = new_episode("r1", 0, TASK, policy, turns=5, seed=1, argmax=False)
        *_, last = record(store, drive_many([first], policy, ScriptedPool(listed, told), grade_many))
        assert isinstance(last, EpisodeFinished)
        plan = plan_forks(
            store, [(first.id, 1)], Change("model", "ann"), n=2, baseline=2, pool="scripted", specs=listed
        )
        assert plan.pool_digest == digest_of_specs(listed)
        store.runs.create("r2", "fork", to_config(plan), owner=owner())
        return store, store.episodes.get(first.id), plan, "r2"

    store, parent, plan, run = begun_at("straight.db")
    pool = ScriptedPool(listed, told)
    total = len([*parts(store, pool, plan, parent).play(store, run)])
    straight = [store.episodes.get(one.id) for one in forks.of_runs(store, [run])[run]]
    calls = len(pool.asks)
    assert calls == 4 * 4, "all but the first of the two that begin"
    store.close()
    for stops in range(0, total, 17):
        store, parent, plan, run = begun_at(f"{stops}.db")
        first = ScriptedPool(listed, told)
        events = parts(store, first, plan, parent).play(store, run)
        begun: dict[tuple[str, int], TurnStarted] = {}
        replied: set[tuple[str, int]] = set()
        for place, event in enumerate(events):
            if isinstance(event, TurnStarted):
                begun[event.episode_id, event.index] = event
            if isinstance(event, Replied):
                replied.add((event.episode_id, event.index))
            if place == stops:
                break
        events.close()
        rest = ScriptedPool(listed, told)
        for _ in parts(store, rest, plan, parent).play(store, run):
            pass
        assert [store.episodes.get(one.id) for one in straight] == straight
        assert not {(ask.episode, ask.sample) for ask in rest.asks} & replied
        assert store.runs.spent_usd(run) == calls * 0.5
        store.close()


# The pages and the command line


@pytest.mark.usefixtures("no_workers")
def test_replay_leads_to_a_changed_step_and_the_page_to_its_verdict(
    world: Sums, store: Store, parent: str
) -> None:
    replay = opened("replay", ep=parent, t="2")
    links = [link for link in replay.page_link if link.label.startswith(("another", "other"))]
    labels = [link.label for link in links]
    assert labels == ["another model", "another subtask", "other access", "another reply"]
    assert "change=access" in links[2].query_string
    zen = opened("replay", ep=parent, t="2", zen="1")
    assert not [link for link in zen.page_link if link.label == "another model"]
    page = opened("forks", ep=parent, t="2", change="model")
    text = shown(page)
    assert "Turns 1 and 3 stay as they are, turns 2 and 4 are asked again" in text
    assert "that repeat the recorded step and every step that reads it" in text
    assert page.button_group(key="fork_kind").options == ["Model", "Subtask", "Access", "Reply"]
    page = opened("forks", ep=parent, t="4", change="access")
    assert "already has this access" in shown(page)
    assert page.button(key="fork_start").disabled
    page.button_group(key=f"fork_access_{parent}_3").set_value(["3"]).run()
    assert "no step would read turn 1" in shown(page)
    page = opened("forks", ep=parent, t="2", change="subtask")
    page.text_area(key=f"fork_subtask_{parent}_1").set_value("Plan it first.").run()
    page.number_input(key="fork_n").set_value(2).run()
    page.number_input(key="fork_baseline").set_value(2).run()
    press(page, "fork_start")
    (run,) = waiting(store)
    assert play_claimed(store, run) == 0
    text = shown(opened("forks", run=run))
    assert "What if turn 2 had been asked “Plan it first.”?" in text.replace("\\", "")
    assert "Asked again: turns 2 and 4. Every other step keeps what it said" in text
    assert "The recorded episode is unchanged." in text
    fork = forks.of_runs(store, [run])[run][-1].id
    replay_text = shown(opened("replay", ep=fork)).replace("\\", "")
    assert "By a fork, turn 2 was **asked “Plan it first.”**" in replay_text


def test_a_batch_of_workflows_offers_what_fits_every_step(world: Sums, store: Store, parent: str) -> None:
    page = opened("forks", batch=urlencode({"policy": POLICY, "at": "last"}))
    assert page.button_group(key="fork_kind").options == ["Model", "Subtask"]


def test_trinity_fork_changes_a_step(world: Sums, store: Store, parent: str) -> None:
    few = ("--n", 2, "--baseline", 2)
    done = world.done("fork", parent, "--turn", 2, "--model", "adder", *few, "--json")
    assert (done.json["fork"]["right"], done.json["baseline"]["right"]) == (2, 0)
    assert "Asked again: turns 2 and 4" in done.err
    done = world.trinity("fork", parent, "--turn", 2, "--subtask", "Plan it.", *few, "--json")
    assert done.json["change"] == {"kind": "subtask", "value": "Plan it."}
    assert world.run("--policy", "conductor:fixed:debate", "--n", "1").code == 0
    debate = store.episodes.page(EpisodeFilter(policy="conductor:fixed:debate")).items[0].id
    done = world.done("fork", debate, "--turn", 4, "--access", " 3,1, 2", *few, "--json")
    assert done.json["change"] == {"kind": "access", "value": "1,2,3"}
    assert "would be sent the same as before" in done.err, "told before it plays"
    for arguments, says in (
        (["--turn", 4, "--access", "none"], "no step would read turn 1"),
        (["--turn", 4, "--access", "5"], "cannot read turn 5: choose among 1, 2, 3, or none"),
        (["--turn", 4, "--access", "all of it"], "such as 1,2"),
        (["--turn", 2, "--subtask", " "], "subtask must have between 1"),
        (["--turn", 2, "--model", "eve"], "no model 'eve'"),
        (["--turn", 2, "--role", "thinker"], "is a step of a workflow"),
        (["--turn", 2, "--model", "adder", "--access", "1"], "exactly one thing"),
    ):
        refused(world, "fork", parent, *arguments, says=says)


def test_a_change_of_access_says_what_is_read() -> None:
    assert change_words(Change("access", "1,2,4")) == "able to read only turns 1, 2 and 4"
    assert change_words(Change("access", "2")) == "able to read only turn 2"
    assert change_words(Change("access", "")) == "able to read the problem alone"
