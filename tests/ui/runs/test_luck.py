"""Was it bad luck? An episode replayed unchanged until that can be told: planned, played, stopped, told."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from core.analysis.luck import MOST_PLAYS, told
from core.episode import EpisodeFinished, Fork, Status
from core.errors import ConfigError
from storage.files.interchange import export_runs, import_file
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.rows.engine import writing
from storage.rows.schema import run as run_table
from storage.rows.schema import turn
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.builders.stores import new_store
from tests.ui.pages import opened, press, shown, waiting
from tests.ui.sums import Sums
from ui.runs.forks.planning import more_of, plan_luck
from ui.runs.forks.play import prepare
from ui.runs.forks.results import Luck, ended, luck_runs, read_luck
from ui.runs.lease import owner
from ui.runs.plans import ForkPlan, LivePlan, plan_of
from ui.runs.queue import Ticket, enqueue
from ui.runs.spending import price
from ui.runs.worker import play_claimed

WRONG = EpisodeFilter(q="correct == False")


@pytest.fixture
def missed(world: Sums, store: Store) -> str:
    """An episode that ends wrong whoever replays it: its only model is one too high, and nobody else is asked."""
    world.run("--policy", "single:guesser", "--n", "4", "--validate", "0")
    return store.episodes.page(WRONG).items[0].id


def words(page: AppTest) -> str:
    return shown(page).replace("\\", "").replace("\u2060", "")


def played(store: Store, plan: ForkPlan) -> tuple[str, Luck]:
    run = enqueue(store, plan, Ticket.new())[0]
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED, store.runs.get(run).error
    return run, read_luck(store, run, plan)


def test_it_is_replayed_until_it_can_be_told_and_no_more(world: Sums, store: Store, missed: str) -> None:
    before, parent = forks.episode_digests(store, [missed]), store.episodes.get(missed)
    plan = plan_luck(store, missed)
    assert (plan.to_play, plan.asks_luck) == (MOST_PLAYS, True)
    run, found = played(store, plan)
    assert plan_of(store.runs.get(run), ForkPlan) == plan
    assert found.outcomes == (False,) * 8, "eight alike are the fewest that tell it"
    assert found.sentence == (
        "Replayed unchanged it was right 0 times in 8: the miss was no bad luck, it is the rule."
    )
    assert forks.episode_digests(store, [missed]) == before
    children = [store.episodes.get(one.id) for one in forks.of_runs(store, [run])[run]]
    assert len({one.seed for one in children} | {parent.seed}) == 9, "each with draws of its own"
    for number, child in enumerate(children):
        assert child.fork is not None
        kept = Fork(missed, 0, None, number, child.fork.prefix, plan.pool_digest, held=False)
        assert (child.fork, child.policy, child.turn_budget) == (kept, parent.policy, parent.turn_budget)
        assert [turn.decision.origin for turn in child.turns] == ["policy"] * len(child.turns)
    again = plan_luck(store, missed)
    assert again.to_play == MOST_PLAYS - 8, "what was played counts"
    with pytest.raises(ConfigError, match="replayed unchanged at most 40 times"):
        more_of(store, plan, 8)


def test_what_is_drawn_is_drawn_anew(world: Sums, store: Store) -> None:
    """Of a random policy also the first choice, which may have been the unlucky draw."""
    world.run("--policy", "random", "--n", "12", "--turns", "3")
    wrong = store.episodes.page(WRONG).items
    run, _ = played(store, plan_luck(store, wrong[0].id))
    first = [store.episodes.get(one.id).turns[0].decision for one in forks.of_runs(store, [run])[run]]
    assert len({(one.model, one.role) for one in first}) > 1


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        ((), "Not replayed to its end yet."),
        ((True,) + (False,) * 4, "right 1 time in 5: too few plays to say if the miss was bad luck."),
        ((True, True, False), "right 2 times in 3: too few plays to say if the miss was bad luck."),
        ((True,) * 8, "right 8 times in 8: the miss was bad luck."),
        ((True, False) * 20, "right 20 times in 40: even 40 plays do not say if the miss was bad luck."),
        (
            (False,) * 8 + (True,) * 3,
            "right 0 times in 8 (3 more plays ended after it could be told): the miss was no bad luck, it is the rule.",
        ),
    ],
)
def test_the_sentence_says_no_more_than_the_plays_do(outcomes: tuple[bool, ...], says: str) -> None:
    assert Luck(outcomes, told(outcomes), recorded_right=False).sentence.endswith(says)


def test_of_a_success_it_is_asked_the_other_way_round() -> None:
    wins, losses = (True,) * 8, (False,) * 8
    assert Luck(wins, told(wins), recorded_right=True).sentence.endswith(
        "the success was no good luck, it is the rule."
    )
    assert Luck(losses, told(losses), recorded_right=True).sentence.endswith("the success was good luck.")


def child(number: int, correct: bool | None, status: Status = Status.FINISHED) -> Any:
    class Summary:
        pass

    class Child:
        pass

    one, summary = Child(), Summary()
    summary.status = status  # type: ignore[attr-defined]
    one.summary, one.correct, one.fork = summary, correct, Fork("e", 0, None, number)  # type: ignore[attr-defined]
    return one


def test_plays_count_in_their_order_whichever_is_over_first() -> None:
    assert ended([child(2, True), child(0, False), child(1, None, Status.RUNNING)]) == (False,)
    assert ended([child(0, False), child(1, None, Status.MISSING), child(2, True)]) == (False, True)
    assert ended([child(1, True)]) == ()


def test_a_run_that_was_stopped_goes_on_with_what_it_has(world: Sums, store: Store, missed: str) -> None:
    plan = plan_luck(store, missed)
    run = enqueue(store, plan, Ticket.new(), owner=owner())[0]
    with closing(prepare(store, plan).play(store, run)) as events:
        over = (event for event in events if isinstance(event, EpisodeFinished))
        for _ in range(3):
            next(over)
    store.runs.finish(run, RunStatus.CANCELLED, owner=owner())
    page = opened("replay", ep=missed, t="1")
    assert "too few plays to say" in words(page)
    assert page.button(key=f"luck_{missed}").label == "Replay it further"
    further = plan_luck(store, missed)
    assert further.to_play <= MOST_PLAYS - 3
    assert played(store, further)[1].outcomes[:8] == (False,) * 8


def test_what_was_taken_out_before_it_began_is_as_never_asked(
    world: Sums, store: Store, missed: str, no_workers: None
) -> None:
    press(opened("replay", ep=missed, t="1"), f"luck_{missed}")
    [run] = waiting(store)
    store.runs.cancel(run)
    assert luck_runs(store) == {}
    assert opened("replay", ep=missed, t="1").button(key=f"luck_{missed}").label == "Was it bad luck?"


def test_a_workflow_is_kept_and_every_step_asked_again(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = "conductor:fixed:solvers:guesser+guesser+adder+guesser"
    assert world.run("--policy", policy, "--n", "4").code == 0
    wrong = store.episodes.page(WRONG).items[0].id
    plan, parent = plan_luck(store, wrong), store.episodes.get(wrong)
    assert plan.branches[0].anew == (0, 1, 2, 3)
    run, found = played(store, plan)
    assert found.told is not None
    children = [store.episodes.get(one.id) for one in forks.of_runs(store, [run])[run]]
    for one in children:
        assert [plan.workflow for plan in one.plans] == [plan.workflow for plan in parent.plans]
        assert not [turn for turn in one.turns if turn.reply.finish_reason == "reused"]
        assert len(one.turns) == 4
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(1.0)
    bound = price(store, replace(plan, max_cost_usd=1.0))
    assert bound.most.calls == MOST_PLAYS * parent.turn_budget


@pytest.mark.parametrize("change", ["pool", "moved", "imported", "fork", "hand", "live"])
def test_what_cannot_be_replayed_unchanged_says_why(
    world: Sums, store: Store, missed: str, plan: LivePlan, change: str, tmp_path: Path
) -> None:
    elsewhere = store
    match change:
        case "pool":
            text = (world.folder / "pool.toml").read_text()
            (world.folder / "pool.toml").write_text(text.replace("price_in", "temperature = 0.9\nprice_in"))
            why = "the models of pool.toml, with which it was played, or their settings have changed since"
        case "moved":
            (world.folder / "pool.toml").rename(world.folder / "other.toml")
            why = "the pool that it was played with, pool.toml, is not on this machine"
        case "imported":
            export_runs(store, [store.episodes.get(missed).run_id], tmp_path / "run.jsonl")
            elsewhere = new_store(tmp_path / "elsewhere.db")
            import_file(elsewhere, tmp_path / "run.jsonl")
            with writing(elsewhere.engine) as connection:
                connection.execute(update(run_table).values(config="{}"))
            why = "with which models it was played is not recorded, as of imported episodes"
        case "fork":
            run, _ = played(store, plan_luck(store, missed))
            missed = forks.of_runs(store, [run])[run][0].id
            why = "it is a fork itself"
        case "hand":
            with writing(store.engine) as connection:
                first = update(turn).where(turn.c.episode_id == missed, turn.c.idx == 0)
                connection.execute(first.values(origin="override"))
            why = "a person chose who took turn 1"
        case _:
            run = enqueue(store, replace(plan, policy="single:guesser", temperature=1.2), Ticket.new())[0]
            assert play_claimed(store, run) == 0
            missed = store.episodes.of_run(run)[0].id
            why = "its models were asked at a temperature of 1.2"
    with pytest.raises(ConfigError, match=f"cannot be replayed unchanged: .*{why}"):
        plan_luck(elsewhere, missed)
    if elsewhere is not store:
        elsewhere.close()


def test_trinity_fork_asks_it_too(world: Sums, store: Store, missed: str) -> None:
    done = world.trinity("fork", missed, "--luck", "--json")
    assert done.code == 0, done.err
    told_so = {
        name: done.json[name] for name in ("episode", "right", "n", "recorded_right", "ends_right_more_often")
    }
    assert told_so == {
        "episode": missed,
        "right": 0,
        "n": 8,
        "recorded_right": False,
        "ends_right_more_often": False,
    }
    assert "in less than 5 of 100 cases" in done.err
    beside = world.trinity("fork", missed, "--luck", "--turn", 2)
    assert beside.code == 1
    assert "--luck cannot be combined with --turn" in beside.err
    assert world.trinity("fork", "--luck").code == 1


def test_a_wrong_episode_has_the_button_and_then_the_answer(
    world: Sums, store: Store, missed: str, no_workers: None
) -> None:
    page = opened("replay", ep=missed, t="1")
    assert page.button(key=f"luck_{missed}").label == "Was it bad luck?"
    press(page, f"luck_{missed}")
    [run] = waiting(store)
    waits = opened("forks", run=run)
    assert "Was it bad luck?" in words(waits)
    assert "Not replayed to its end yet" in words(waits)
    assert "It is being replayed" in words(opened("replay", ep=missed, t="1"))
    press(opened("forks", ep=missed, luck="1"), "luck_start")
    assert waiting(store) == [run], "a second tab comes to the run that is under way"
    assert play_claimed(store, run) == 0
    said = "Replayed unchanged it was right 0 times in 8: the miss was no bad luck, it is the rule."
    for name, query in (
        ("forks", {"run": run}),
        ("replay", {"ep": missed, "t": "1"}),
        ("episodes", {"peek": missed}),
    ):
        page = opened(name, **query)
        assert said in words(page), name
        assert f"luck_{missed}" not in {one.key for one in page.button}
    assert "in less than 5 of 100 cases" in words(opened("forks", run=run))
    assert "replayed unchanged, right 0 of 8" in words(opened("forks"))
    world.run("--policy", "single:adder", "--n", "1", "--validate", "0")
    right = store.episodes.page(EpisodeFilter(policy="single:adder")).items[0].id
    assert "bad luck" not in words(opened("replay", ep=right, t="1"))
    assert "bad luck" not in words(opened("replay", ep=missed, t="1", zen="1"))


def test_what_costs_money_is_asked_for_first(
    world: Sums, store: Store, no_workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(1.0)
    world.run("--policy", "single:guesser", "--n", "4", "--validate", "0", "--max-cost", "1")
    missed = store.episodes.page(WRONG).items[0].id
    press(opened("replay", ep=missed, t="1"), f"luck_{missed}")
    assert waiting(store) == []
    form = opened("forks", ep=missed, luck="1")
    assert "These models cost money: up to" in words(form)
    assert form.button(key="luck_start").disabled
    form.number_input(key="fork_max_cost").set_value(0.5).run()
    press(form, "luck_start")
    [run] = waiting(store)
    assert plan_of(store.runs.get(run), ForkPlan).max_cost_usd == 0.5


def test_where_it_cannot_be_replayed_the_page_says_why(
    world: Sums, store: Store, missed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.folder / "pool.toml").rename(world.folder / "other.toml")
    monkeypatch.setenv("TRINITY_POOL", "pocket")
    page = opened("replay", ep=missed, t="1")
    assert page.button(key=f"luck_{missed}").disabled
    assert "is not on this machine" in words(page)
    assert "is not on this machine" in words(opened("forks", ep=missed, luck="1"))
