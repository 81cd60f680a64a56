"""Which turn mattered, and was it bad luck? Every turn forked with its own runner-up, and an episode replayed unchanged
until luck can be told: planned, played, stopped, told in words."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from core.analysis.metrics import wilson_interval
from core.analysis.power import MOST_PLAYS, luck_verdict
from core.changes import Change, Fork
from core.episode import ROLE_ORDER, Decision, Episode, Role, Status
from core.errors import ConfigError, StoreError
from core.heads import softmax
from core.play.forking import right_reply
from storage.files.interchange import import_file
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.rows import schema
from storage.rows.engine import writing
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.builders.interchange import export_runs
from tests.builders.stores import new_store
from tests.ui.pages import opened, press, shown, waiting
from tests.ui.runs.forking import finished, refused
from tests.ui.sums import Sums
from ui.runs.forks import planning
from ui.runs.forks import play as forks_play
from ui.runs.forks.planning import more_of, plan_every_turn, plan_luck, runner_up_change
from ui.runs.forks.play import prepare
from ui.runs.forks.results import (
    ForkSide,
    Luck,
    TurnOutcome,
    by_turn,
    decisive,
    decisive_words,
    endings,
    luck_runs,
    luck_words,
    read_luck,
    read_results,
)
from ui.runs.lease import owner
from ui.runs.plans import ForkPlan, LivePlan, plan_of
from ui.runs.play import play
from ui.runs.queue import Ticket, enqueue
from ui.runs.spending import price
from ui.runs.wiring import pool_specs
from ui.runs.worker import play_claimed


def recorded(world: Sums, store: Store) -> str:
    """An episode of a coordinator that knows odds: `random` does."""
    found = world.run("--policy", "random", "--n", 3, "--turns", 3, "--json")
    assert found.code == 0, found.err
    return store.runs.list(kind="run")[0].id


def test_every_turn_is_forked_with_its_own_runner_up(world: Sums, store: Store) -> None:
    run = recorded(world, store)
    episode = next(one for one in store.episodes.of_run(run) if one.turns == 3)
    parent = store.episodes.get(episode.id)
    told = every_turn(world, episode.id, "--n", 2)
    assert [one["turn"] for one in told["turns"]] == [1, 2, 3]
    for one, turn in zip(told["turns"], parent.turns, strict=True):
        assert one["unchanged"]["n"] == 2
        assert 1 <= one["other"]["n"] <= 2
        assert one["change"]["value"] not in (turn.decision.model, turn.decision.role.value)
    plan = plan_of(store.runs.get(told["run"]), ForkPlan)
    assert plan.every_turn == episode.id
    assert store.episodes.get(episode.id) == parent, "the recorded episode is only read"
    assert [one.unchanged.n for one in by_turn(plan, read_results(store, told["run"], plan))] == [2, 2, 2]
    more = more_of(store, plan, 1)
    assert [one.baseline for one in more.branches] == [3, 3, 3]
    assert all(len(one.reused) >= 3 for one in more.branches), "what was played stands"


def every_turn(world: Sums, episode: str, *more: object) -> Any:
    result = world.done("fork", episode, "--every-turn", *more, "--json")
    return result.json


def test_every_turn_can_be_given_a_right_reply_instead(world: Sums, store: Store) -> None:
    run = recorded(world, store)
    episode = next(one for one in store.episodes.of_run(run) if one.correct is False)
    parent = store.episodes.get(episode.id)
    told = every_turn(world, episode.id, "--right-replies", "--n", 2)
    wrong = [turn.index + 1 for turn in parent.turns if right_reply(parent, turn.index)]
    assert [one["turn"] for one in told["turns"]] == wrong
    assert {one["change"]["kind"] for one in told["turns"]} <= {"reply", "verdict"}
    plan = plan_of(store.runs.get(told["run"]), ForkPlan)
    assert more_of(store, plan, 1).right_replies
    found = by_turn(plan, read_results(store, told["run"], plan))
    words = decisive_words(found, recorded_right=False, other="right reply")
    assert re.search("decided it: with the (reply|verdict)|No single turn decided it", words)
    refused(world, "fork", episode.id, "--turn", 1, "--right-replies", says="goes with --every-turn")
    page = opened("forks", ep=episode.id, every="replies")
    assert page.button_group(key="every_turn_change").value == "replies"
    assert "The same with runner-ups" in shown(opened("forks", run=told["run"]))


def more_of_replay(episode: str) -> AppTest:
    """The replay of an episode with its menu open."""
    page = opened("replay", ep=episode)
    page.session_state["more"] = True  # as the browser opens it
    return page.run()


def test_a_page_plays_on_from_every_turn_and_tells_which_mattered(
    world: Sums, store: Store, no_workers: None
) -> None:
    episode = store.episodes.of_run(recorded(world, store))[0].id
    assert more_of_replay(episode).button(key="every_turn").label == "Which turn mattered?"
    page = opened("forks", ep=episode, every="1")
    assert "At most" in shown(page)
    page.slider(key="every_turn_n").set_value(2).run()
    press(page, "fork_start")
    run = store.runs.list(kind="fork")[0]
    assert plan_of(run, ForkPlan).every_turn == episode
    for _ in play(store, run.id):
        pass
    found = shown(opened("forks", run=run.id))
    assert "Replayed unchanged from turn 1 it was right" in found
    assert "decided it" in found
    assert "Which turn mattered?" in shown(press(more_of_replay(episode), "every_turn")), "its newest run"
    assert "which turn mattered" in shown(opened("forks"))


def test_what_cannot_be_forked_at_every_turn_is_refused(world: Sums, store: Store) -> None:
    world.run("--policy", "single:adder", "--n", 1, "--json")
    alone = store.episodes.of_run(store.runs.list(kind="run")[0].id)[0].id
    refused(world, "fork", alone, "--every-turn", "--n", 2, says="no odds")
    refused(world, "fork", alone, "--every-turn", "--turn", 1, "--model", "guesser", says="--every-turn")
    specs = pool_specs(str(world.folder / "pool.toml"))
    with pytest.raises(StoreError, match="no episode nobody"):
        plan_every_turn(store, "nobody", n=2, pool="pool.toml", specs=specs)


def side(right: int, n: int) -> ForkSide:
    low, high = wilson_interval(right, n)
    return ForkSide(right, n, n, right / n if n else None, low, high, False, ())


def outcomes(*counts: tuple[int, int]) -> list[TurnOutcome]:
    return [
        TurnOutcome(turn, Change("model", "sage"), side(unchanged, 5), side(other, 5))
        for turn, (unchanged, other) in enumerate(counts)
    ]


NONE = "No single turn decided it"


@pytest.mark.parametrize(
    ("counts", "right", "turn", "says"),
    [
        (
            [(1, 2), (0, 4), (0, 5)],
            False,
            1,
            "Turn 2 decided it: played by sage, it was right 4 times in 5, unchanged 0 times in 5.",
        ),
        ([(5, 4), (4, 1)], True, 1, "it was right 1 time in 5, unchanged 4 times in 5."),
        ([(0, 0), (0, 1)], False, None, f"{NONE}. The largest effect is at turn 2: "),
        ([(0, 0)], False, None, f"{NONE}: the runner-up made it right more often at no turn."),
        (
            [(3, 4), (1, 2)],
            False,
            None,
            f"{NONE}. The largest effect is at turn 1: played by sage, it was right 4 times in 5, unchanged 3 times",
        ),
        (
            [(1, 0), (5, 3)],
            True,
            None,
            "turn 2: played by sage, it was right 3 times in 5, unchanged 5 times in 5.",
        ),
    ],
)
def test_the_decisive_turn_is_the_earliest_that_turns_the_ending_round(
    counts: list[tuple[int, int]], right: bool, turn: int | None, says: str
) -> None:
    found = outcomes(*counts)
    decided = decisive(found, recorded_right=right)
    assert (decided and decided.turn) == turn
    assert says in decisive_words(found, recorded_right=right)


@pytest.mark.parametrize(
    ("unchanged", "right", "said"),
    [
        (5, False, "Replayed unchanged from turn 1 it was right 5 times in 5: the miss was bad luck."),
        (0, False, "it was right 0 times in 5: a wrong answer is the usual outcome."),
        (0, True, "the success was good luck."),
        (1, False, "1 time in 5: too few plays to say if the miss was bad luck (95 % interval 4 to 62 %)."),
        (3, True, "too few plays to say if the success was good luck (95 % interval 23 to 88 %)."),
        (5, True, "a right answer is the usual outcome."),
    ],
)
def test_luck_is_what_the_unchanged_episode_comes_to(unchanged: int, right: bool, said: str) -> None:
    assert luck_words(outcomes((unchanged, 0)), recorded_right=right).endswith(said)
    assert luck_words([], recorded_right=right) == ""


def test_a_fork_is_of_the_runner_up_where_no_change_is_named(world: Sums, store: Store) -> None:
    episode = store.episodes.of_run(recorded(world, store))[0].id
    likely = runner_up_change(store.episodes.get(episode), 0)
    assert likely is not None
    done = world.done("fork", episode, "--turn", 1, "--n", 1, "--baseline", 1, "--json")
    assert done.json["change"] == {"kind": likely.kind, "value": likely.value}
    page = opened("forks", ep=episode, t="1")
    assert "This is the runner-up" in shown(page)
    assert page.button_group(key="fork_kind").value == likely.kind
    chosen = page.selectbox(key="fork_to_Played " + ("by" if likely.kind == "model" else "as"))
    assert chosen.value == likely.value


def test_the_runner_up_is_the_choice_that_was_least_behind(world: Sums, store: Store) -> None:
    parent = store.episodes.get(store.episodes.of_run(recorded(world, store))[0].id)

    def decided(
        models: tuple[float, float], roles: tuple[float, ...], mask: tuple[bool, ...] = ()
    ) -> Episode:
        was = parent.turns[0]
        decision = replace(
            was.decision,
            model="adder",
            role=Role.WORKER,
            model_probs=tuple(softmax(np.array(models))),
            role_probs=tuple(softmax(np.array(roles))),
            model_mask=mask,
            role_mask=(),
        )
        return replace(parent, turns=(replace(was, decision=decision), *parent.turns[1:]))

    of_role = {Role.WORKER: 3.0, Role.THINKER: 2.5, Role.VERIFIER: 0.0}
    logits = tuple(of_role[role] for role in ROLE_ORDER)
    assert runner_up_change(decided((2.0, 1.0), logits), 0) == Change("role", "thinker")
    assert runner_up_change(decided((2.0, 1.9), logits), 0) == Change("model", "guesser")
    masked = decided((2.0, 1.9), logits, mask=(True, False))
    assert runner_up_change(masked, 0) == Change("role", "thinker")
    bare: Decision = replace(parent.turns[0].decision, model_probs=(), role_probs=())
    assert runner_up_change(replace(parent, turns=(replace(parent.turns[0], decision=bare),)), 0) is None


def test_no_decision_without_logits_is_forked() -> None:
    with pytest.raises(ConfigError, match="between 1 and"):
        plan_every_turn(None, "e", n=0, pool="", specs=())  # type: ignore[arg-type]


WRONG = EpisodeFilter(q="correct == False")


@pytest.fixture
def missed(world: Sums, store: Store) -> str:
    """An episode that ends wrong whoever replays it: its only model is one too high, and nobody else is asked."""
    world.run("--policy", "single:guesser", "--n", "2", "--validate", "0")
    return store.episodes.page(WRONG).items[0].id


def words(page: AppTest) -> str:
    return shown(page).replace("\\", "").replace("\u2060", "")


def played(store: Store, plan: ForkPlan) -> tuple[str, Luck]:
    run = finished(store, plan)
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


def test_what_is_drawn_is_drawn_anew(world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a random policy also the first choice, which may have been the unlucky draw."""
    monkeypatch.setattr(planning, "MOST_PLAYS", 8)
    world.run("--policy", "random", "--n", "4", "--turns", "3")
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
        ((True,) * 8, "the success was no good luck, it is the rule."),
        ((False,) * 8, "the success was good luck."),
    ],
)
def test_the_sentence_says_no_more_than_the_plays_do(outcomes: tuple[bool, ...], says: str) -> None:
    right = "success" in says
    assert Luck(outcomes, luck_verdict(outcomes), recorded_right=right).sentence.endswith(says)


def child(number: int, correct: bool | None, status: Status = Status.FINISHED) -> Any:
    fork = Fork("e", 0, None, number)
    return SimpleNamespace(summary=SimpleNamespace(status=status), correct=correct, fork=fork)


def test_plays_count_in_their_order_whichever_is_over_first() -> None:
    assert endings([child(2, True), child(0, False), child(1, None, Status.RUNNING)]) == (False,)
    assert endings([child(0, False), child(1, None, Status.MISSING), child(2, True)]) == (False, True)
    assert endings([child(1, True)]) == ()


def test_a_run_that_was_stopped_goes_on_with_what_it_has(
    world: Sums, store: Store, missed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_luck(store, missed)
    run = enqueue(store, plan, Ticket(), owner=owner())[0]
    # As those side by side may end in any order, no more of them are than are counted before it is stopped.
    monkeypatch.setattr(forks_play, "_FEWEST", 3)
    with closing(prepare(store, plan).play(store, run)) as events:
        while len(read_luck(store, run, plan).outcomes) < 3:
            next(events)
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
    assert world.run("--policy", policy, "--n", "2").code == 0
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
                connection.execute(update(schema.run).values(config={}))
            why = "with which models it was played is not recorded, as of imported episodes"
        case "fork":
            run, _ = played(store, plan_luck(store, missed))
            missed = forks.of_runs(store, [run])[run][0].id
            why = "it is a fork itself"
        case "hand":
            with writing(store.engine) as connection:
                first = update(schema.turn).where(schema.turn.c.episode_id == missed, schema.turn.c.idx == 0)
                connection.execute(first.values(origin="override"))
            why = "a person chose who took turn 1"
        case _:
            run = enqueue(store, replace(plan, policy="single:guesser", temperature=1.2), Ticket())[0]
            assert play_claimed(store, run) == 0
            missed = store.episodes.of_run(run)[0].id
            why = "its models were asked at a temperature of 1.2"
    with pytest.raises(ConfigError, match=f"cannot be replayed unchanged: .*{why}"):
        plan_luck(elsewhere, missed)
    if elsewhere is not store:
        elsewhere.close()


def test_trinity_fork_asks_it_too(world: Sums, store: Store, missed: str) -> None:
    done = world.done("fork", missed, "--luck", "--json")
    told_so = {"episode": missed, "right": 0, "n": 8, "recorded_right": False, "ends_right_more_often": False}
    assert done.json.items() >= told_so.items()
    assert "in less than 5 of 100 cases" in done.err
    refused(world, "fork", missed, "--luck", "--turn", 2, says="--luck cannot be combined with --turn")
    refused(world, "fork", "--luck", says="Name the episode: trinity fork EPISODE --luck")


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
    told = opened("forks", run=run)
    assert "in less than 5 of 100 cases" in words(told)
    for page in (told, opened("replay", ep=missed, t="1"), opened("episodes", peek=missed)):
        assert said in words(page), page.title
        assert f"luck_{missed}" not in {one.key for one in page.button}
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
    world.run("--policy", "single:guesser", "--n", "2", "--validate", "0", "--max-cost", "1")
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
    assert f"luck_{missed}" not in {one.key for one in page.button}, "a button that nobody could press"
    assert "is not on this machine" in words(page)
    assert "is not on this machine" in words(opened("forks", ep=missed, luck="1"))
