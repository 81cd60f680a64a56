"""Which turn mattered: every turn forked with its own runner-up, and what that says in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from core.analysis.metrics import wilson_interval
from core.episode import ROLE_ORDER, Change, Decision, Episode, Role
from core.errors import ConfigError, StoreError
from core.heads import softmax
from core.play.forking import right_reply
from core.pool.spec import digest_of_specs
from storage.store import Store
from tests.ui.pages import opened, press, shown
from tests.ui.sums import Sums
from ui.runs.forks.planning import more_of, plan_every_turn, runner_up_change
from ui.runs.forks.results import (
    ForkSide,
    TurnOutcome,
    by_turn,
    decisive,
    decisive_words,
    luck_words,
    read_results,
)
from ui.runs.plans import ForkPlan, plan_of
from ui.runs.play import play
from ui.runs.wiring import pool_specs


def recorded(world: Sums, store: Store) -> str:
    """An episode of a coordinator that knows odds: `random` does."""
    found = world.run("--policy", "random", "--n", 3, "--turns", 3, "--json")
    assert found.code == 0, found.err
    return store.runs.list(kind="run")[0].id


def test_every_turn_is_forked_with_its_own_runner_up(world: Sums, store: Store) -> None:
    run = recorded(world, store)
    episode = next(one for one in store.episodes.of_run(run) if one.turns == 3)
    result = world.trinity("fork", episode.id, "--every-turn", "--n", 2, "--json")
    assert result.code == 0, result.err
    told = result.json
    assert [one["turn"] for one in told["turns"]] == [1, 2, 3]
    parent = store.episodes.get(episode.id)
    for one, turn in zip(told["turns"], parent.turns, strict=True):
        assert one["unchanged"]["n"] == 2
        assert 1 <= one["other"]["n"] <= 2
        assert one["change"]["value"] not in (turn.decision.model, turn.decision.role.value)
    plan = plan_of(store.runs.get(told["run"]), ForkPlan)
    assert plan.every_turn == episode.id
    assert store.episodes.get(episode.id) == parent, "the recorded episode is only read"
    outcomes = by_turn(plan, read_results(store, told["run"], plan))
    assert [one.unchanged.n for one in outcomes] == [2, 2, 2]

    more = more_of(store, plan, 1)
    assert [one.baseline for one in more.branches] == [3, 3, 3]
    assert all(len(one.reused) >= 3 for one in more.branches), "what was played stands"


def test_every_turn_can_be_given_a_right_reply_instead(world: Sums, store: Store) -> None:
    run = recorded(world, store)
    episode = next(one for one in store.episodes.of_run(run) if one.correct is False)
    parent = store.episodes.get(episode.id)
    wrong = [turn.index + 1 for turn in parent.turns if right_reply(parent, turn.index)]
    result = world.trinity("fork", episode.id, "--every-turn", "--right-replies", "--n", 2, "--json")
    assert result.code == 0, result.err
    assert [one["turn"] for one in result.json["turns"]] == wrong
    assert {one["change"]["kind"] for one in result.json["turns"]} <= {"reply", "verdict"}
    plan = plan_of(store.runs.get(result.json["run"]), ForkPlan)
    assert more_of(store, plan, 1).right_replies
    words = decisive_words(
        by_turn(plan, read_results(store, result.json["run"], plan)),
        recorded_right=False,
        other="right reply",
    )
    assert (
        "decided it: with the reply" in words
        or "decided it: with the verdict" in words
        or "No single turn decided it" in words
    )
    alone = world.trinity("fork", episode.id, "--turn", 1, "--right-replies")
    assert alone.code == 1
    assert "goes with --every-turn" in alone.err
    page = opened("forks", ep=episode.id, every="replies")
    assert page.button_group(key="every_turn_change").value == "replies"
    assert "The same with runner-ups" in shown(opened("forks", run=result.json["run"]))


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
    refused = world.trinity("fork", alone, "--every-turn", "--n", 2)
    assert refused.code == 1
    assert "no odds" in refused.err
    both = world.trinity("fork", alone, "--every-turn", "--turn", 1, "--model", "guesser")
    assert both.code == 1
    assert "--every-turn" in both.err
    specs = pool_specs(str(world.folder / "pool.toml"))
    with pytest.raises(StoreError, match="no episode nobody"):
        plan_every_turn(store, "nobody", n=2, pool="pool.toml", specs=specs)
    assert digest_of_specs(specs)


def side(right: int, n: int) -> ForkSide:
    low, high = wilson_interval(right, n)
    return ForkSide(right, n, n, right / n if n else None, low, high, False, ())


def outcomes(*counts: tuple[int, int]) -> list[TurnOutcome]:
    return [
        TurnOutcome(turn, Change("model", "sage"), side(unchanged, 5), side(other, 5))
        for turn, (unchanged, other) in enumerate(counts)
    ]


def test_the_decisive_turn_is_the_earliest_that_turns_the_ending_round() -> None:
    lost = outcomes((1, 2), (0, 4), (0, 5))
    found = decisive(lost, recorded_right=False)
    assert found is not None
    assert found.turn == 1
    assert decisive_words(lost, recorded_right=False) == (
        "Turn 2 decided it: played by sage, it was right 4 times in 5, unchanged 0 times in 5."
    )
    assert decisive(outcomes((5, 4), (4, 1)), recorded_right=True) == outcomes((5, 4), (4, 1))[1]
    assert decisive(outcomes((0, 0), (0, 1)), recorded_right=False) is None
    assert decisive_words(outcomes((0, 0)), recorded_right=False) == (
        "No single turn decided it: the runner-up made it right more often at no turn."
    )
    assert decisive_words(outcomes((3, 4), (1, 2)), recorded_right=False) == (
        "No single turn decided it. The largest effect is at turn 1: played by sage, it was right 4 times in 5, "
        "unchanged 3 times in 5."
    )
    assert decisive_words(outcomes((1, 0), (5, 3)), recorded_right=True).endswith(
        "turn 2: played by sage, it was right 3 times in 5, unchanged 5 times in 5."
    )


@pytest.mark.parametrize(
    ("unchanged", "right", "said"),
    [
        (5, False, "Replayed unchanged from turn 1 it was right 5 times in 5: the miss was bad luck."),
        (0, False, "it was right 0 times in 5: a wrong answer is the usual outcome."),
        (0, True, "the success was good luck."),
        (
            1,
            False,
            "right 1 time in 5: too few plays to say if the miss was bad luck (95 % interval 4 to 62 %).",
        ),
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
    done = world.trinity("fork", episode, "--turn", 1, "--n", 1, "--baseline", 1, "--json")
    assert done.code == 0, done.err
    assert done.json["change"] == {"kind": likely.kind, "value": likely.value}
    page = opened("forks", ep=episode, t="1")
    assert "This is the runner-up" in shown(page)
    assert page.button_group(key="fork_kind").value == likely.kind
    chosen = page.selectbox(key="fork_to_Played " + ("by" if likely.kind == "model" else "as"))
    assert chosen.value == likely.value


def test_the_runner_up_is_the_choice_that_was_least_behind(world: Sums, store: Store) -> None:
    parent = store.episodes.get(store.episodes.of_run(recorded(world, store))[0].id)

    def decided(
        models: tuple[float, float], roles: tuple[float, float, float], mask: tuple[bool, ...] = ()
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

    by_role = dict(zip(ROLE_ORDER, (0, 1, 2), strict=True))
    roles = [0.0, 0.0, 0.0]
    roles[by_role[Role.WORKER]], roles[by_role[Role.THINKER]], roles[by_role[Role.VERIFIER]] = 3.0, 2.5, 0.0
    logits = (roles[0], roles[1], roles[2])
    assert runner_up_change(decided((2.0, 1.0), logits), 0) == Change("role", "thinker")
    assert runner_up_change(decided((2.0, 1.9), logits), 0) == Change("model", "guesser")
    masked = decided((2.0, 1.9), logits, mask=(True, False))
    assert runner_up_change(masked, 0) == Change("role", "thinker")
    bare: Decision = replace(parent.turns[0].decision, model_probs=(), role_probs=())
    assert runner_up_change(replace(parent, turns=(replace(parent.turns[0], decision=bare),)), 0) is None


def test_no_decision_without_logits_is_forked() -> None:
    with pytest.raises(ConfigError, match="between 1 and"):
        plan_every_turn(None, "e", n=0, pool="", specs=())  # type: ignore[arg-type]
