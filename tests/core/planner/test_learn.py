"""Learning by reinforcement: what is earned, what is left out, and that a resumed learning is the undisturbed one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import pytest
import torch

from core.episode import Ask, Failure, Status, Task
from core.errors import CheckpointError, ConfigError, PoolError
from core.learning import play_all, statistics_json, statistics_of_json
from core.planner.config import PUBLISHED, LearnConfig
from core.planner.grpo import learn_from, new_optimiser
from core.planner.learn import Iteration, PlannerState, learn
from core.planner.planner import LanguagePlanner
from core.planner.rollouts import Rollouts, disputed_questions, questions_of, rollouts_of, unplayed
from core.planner.statistics import IterationStats, PlanStatistics
from core.pool.cache import CachedPool
from core.pool.pool import Pool
from core.tasks.graders import grade_many
from core.workflow import PlanFault
from tests.builders.pools import Line, ScriptedPool, specs
from tests.core.planner.tiny import MODELS, TASKS, right_by_ann, tiny_planner, tiny_pool, tiny_qwen2

CONFIG = LearnConfig(
    updates=1,
    iterations=3,
    questions=2,
    rollouts=4,
    learning_rate=1e-2,
    problems=6,
    probes=2,
    anchor_models=0.0,
    anchor_form=0.0,
    save_every=1,
    constrained=True,
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def iterations(
    config: LearnConfig = CONFIG, start: LanguagePlanner | None = None, **parts: object
) -> list[Iteration]:
    return list(begun(config, start, **parts))


def begun(
    config: LearnConfig = CONFIG, start: LanguagePlanner | None = None, **parts: object
) -> Iterator[Iteration]:
    settings = {"pool": tiny_pool(), "grade": grade_many, "tasks": TASKS, **parts}
    events = learn(config, start or short_lists(), **settings)  # type: ignore[arg-type]
    return (one for one in events if isinstance(one, Iteration))


def short_lists() -> LanguagePlanner:
    """A tiny planner that has written all it may after two steps."""
    return tiny_planner().frozen(most_steps=2)


@pytest.fixture(scope="module")
def straight(one_thread: None) -> list[Iteration]:
    """A learning from its begin to its end, on a clock that counts."""
    return iterations(validation_tasks=TASKS[:2], run="r1", clock=count().__next__)


def roll_out(
    config: LearnConfig, planner: LanguagePlanner, tasks: Sequence[Task], iteration: int, pool: Pool
) -> Rollouts:
    """What an iteration's rollouts come to."""
    candidates = unplayed(config, planner, tasks, iteration)
    return rollouts_of(config, candidates, play_all(candidates.episodes, candidates.policy, pool, grade_many))


def test_a_killed_learning_goes_on_to_the_same_weights(straight: list[Iteration]) -> None:
    assert [one.index for one in straight] == [0, 1, 2, 3]
    last = straight[1].state
    assert last is not None
    kept = PlannerState.from_bytes(last.to_bytes())
    assert kept.digest == last.digest
    resumed = iterations(validation_tasks=TASKS[:2], run="r1", state=kept)
    assert [one.index for one in resumed] == [2, 3]
    assert [known(one) for one in resumed] == [known(one) for one in straight[2:]]


def known(one: Iteration) -> tuple[str, str, str]:
    """Its state, its planner, and what depends neither on the clock nor on replies remembered from before."""
    told = {
        name: value
        for name, value in one.to_json().items()
        if name not in ("seconds", "calls", "calls_saved")
    }
    assert one.state is not None
    return one.state.digest, planner_of(one).id, json.dumps(told)


def planner_of(one: Iteration) -> LanguagePlanner:
    assert one.planner is not None
    return one.planner


def test_an_iteration_says_what_it_came_to(straight: list[Iteration]) -> None:
    start, first, *_, last = straight
    assert start.rollouts is None
    assert start.validation is not None
    assert (start.validation.n, start.validation.readable) == (2, 1.0)
    assert start.free == 0, "an untrained model writes nothing of the form without the grammar"
    assert first.validation is None
    assert math.isnan(first.free), "measured with validations alone"
    assert last.free == last.free
    rollouts = first.rollouts
    assert rollouts is not None
    assert rollouts.n == 8
    assert first.reward_mean == pytest.approx(0.5 + 0.5 * rollouts.right)
    assert sum(rollouts.topologies.values()) == pytest.approx(1)
    assert sum(share for (place, _), share in rollouts.models.items() if place == 0) == pytest.approx(1)
    assert rollouts.families["user"].n == 8
    assert first.written_tokens > 8 * 20
    assert first.seconds == 1, "by the clock, from what is asked to what was learned"
    assert first.learning_rate == CONFIG.rate(1) == 1e-2
    card = planner_of(last).card
    assert (card.kind, card.iteration, card.parent_run) == ("trained", 3, "r1")
    for one in (start, first, last):
        stored = json.loads(json.dumps(one.to_json()))
        assert IterationStats.stats_of(stored).to_json() == stored


@pytest.mark.integration
def test_weights_move_towards_what_earns_more_and_anchors_hold_the_choice_of_models_or_all_else() -> None:
    moved = shares_of_ann()
    assert moved[0] < 0.6
    assert moved[-1] > 0.8, moved
    held = shares_of_ann(anchor_models=30.0)
    assert max(held) < 0.65, held
    free = shares_of_ann(anchor_form=3.0)
    assert free[-1] > 0.8, free


def shares_of_ann(**anchors: float) -> list[float]:
    """Of each iteration the share of plans that begin with Ann, which earn more."""
    config = replace(
        CONFIG,
        rollouts=16,
        learning_rate=5e-2,
        iterations=4,
        subset_share=0.0,
        **anchors,  # type: ignore[arg-type]
    )
    start = short_lists()
    planner = start.frozen()
    optimiser, found = new_optimiser(planner, config), []
    for index in range(1, config.iterations + 1):
        rollouts = roll_out(config, planner, TASKS, index, tiny_pool())
        plans = [one.plans[0].workflow for one in rollouts.episodes]
        firsts = [plan is not None and plan.models[0] == 0 for plan in plans]
        found.append(sum(firsts) / len(firsts))
        earned = tuple(1.0 if first else 0.5 for first in firsts)
        learn_from(planner, start, optimiser, replace(rollouts, rewards=earned), config, index)
    return found


@pytest.mark.integration
def test_the_learning_leaves_the_planner_that_it_began_with_as_it_was() -> None:
    start = short_lists()
    before = start.frozen().card.weights_sha256
    done = iterations(replace(CONFIG, iterations=1, rollouts=16), start)
    assert start.frozen().card.weights_sha256 == before
    assert planner_of(done[-1]).card.weights_sha256 != before


@pytest.mark.integration
def test_infrastructure_failures_are_left_out_and_unreadable_plans_earn_nothing() -> None:
    def lost(ask: Ask) -> Line:
        return Failure("infrastructure", "cut off") if ask.model == "bob" else right_by_ann(ask)

    pool = ScriptedPool(specs(MODELS), lost)
    rollouts = roll_out(replace(CONFIG, rollouts=16), tiny_planner(), TASKS, 1, pool)
    pairs = list(zip(rollouts.rewards, rollouts.episodes, strict=True))
    assert {math.isnan(reward) for reward, _ in pairs} == {True, False}
    assert all(math.isnan(reward) == (one.status is Status.MISSING) for reward, one in pairs)
    done = iterations(replace(CONFIG, iterations=1, rollouts=16), pool=pool)
    assert done[-1].rollouts is not None
    assert done[-1].rollouts.missing > 0
    assert math.isfinite(done[-1].reward_mean)

    free = roll_out(CONFIG, tiny_planner(constrained=False), TASKS, 1, tiny_pool())
    assert set(free.rewards) == {0.0}
    assert free.signal == 0


def test_a_pool_that_does_not_answer_ends_the_learning() -> None:
    dead = ScriptedPool(specs(MODELS), lambda ask: Failure("infrastructure", "cut off"))
    with pytest.raises(PoolError, match=r"No model could be asked for the choice of questions \(cut off\)"):
        list(begun(pool=dead))
    config, state = replace(CONFIG, seed=2), next(begun(replace(CONFIG, seed=2))).state
    with pytest.raises(PoolError, match=r"No model could be asked in iteration \d \(cut off\)"):
        list(begun(config, pool=dead, state=state))


def test_without_any_difference_in_a_group_nothing_moves() -> None:
    start = tiny_planner(constrained=False)
    done = iterations(replace(CONFIG, iterations=1, constrained=False), start, validation_tasks=TASKS[:2])
    assert math.isnan(done[-1].free), "its readable share is that of free writing"
    assert done[-1].signal == 0
    assert done[-1].rollouts is not None
    assert done[-1].rollouts.readable == 0
    assert done[-1].rollouts.faults == {PlanFault.NO_LISTS: 8}
    assert planner_of(done[-1]).card.weights_sha256 == start.card.weights_sha256


def test_questions_are_those_that_the_pool_disagrees_on() -> None:
    easy, hard = replace(TASKS[0], id="easy", answer="-1"), replace(TASKS[1], id="hard", answer="77")
    pool = ScriptedPool(
        specs(MODELS), lambda ask: "answer -1" if "0 plus 0" in str(ask) else right_by_ann(ask)
    )
    kept = disputed_questions(replace(CONFIG, probes=0), MODELS, [easy, hard, *TASKS[2:5]], pool, grade_many)
    assert kept == TASKS[2:5]
    with pytest.raises(ConfigError, match="None of the 2 questions"):
        disputed_questions(replace(CONFIG, probes=0), MODELS, [easy, hard], pool, grade_many)


def test_every_question_comes_before_one_comes_again() -> None:
    drawn = [task.id for iteration in range(1, 5) for task in questions_of(CONFIG, TASKS, iteration)]
    assert sorted(drawn) == sorted(task.id for task in TASKS)


def test_a_group_shares_its_question_and_its_models_but_not_its_chances() -> None:
    config = replace(CONFIG, subset_share=1.0, subset_from=0.0, questions=8)
    episodes = unplayed(config, tiny_planner(), TASKS, 1).episodes
    groups = [episodes[start : start + 4] for start in range(0, len(episodes), 4)]
    assert all(len({(one.task.id, one.left_out) for one in group}) == 1 for group in groups)
    assert all(len({one.seed for one in group}) == len(group) for group in groups)
    assert {len(one.left_out) for one in episodes} == {1}  # at least 2 of 3 models stay
    late = replace(config, subset_from=0.5)  # of 3 iterations
    partial = [unplayed(late, tiny_planner(), TASKS, i).episodes for i in (1, 2, 3)]
    assert [any(one.left_out for one in episodes) for episodes in partial] == [False, True, True]
    played = roll_out(config, tiny_planner(), TASKS, 1, CachedPool(tiny_pool())).episodes
    assert all(turn.decision.model not in one.left_out for one in played for turn in one.turns)


@pytest.mark.integration
def test_the_published_recipe_runs_end_to_end_on_a_tiny_model() -> None:
    sizes = (PUBLISHED.iterations, PUBLISHED.questions, PUBLISHED.rollouts, PUBLISHED.problems)
    assert sizes == (200, 4, 64, 960)
    assert (PUBLISHED.learning_rate, PUBLISHED.warm_up, PUBLISHED.temperature) == (1e-6, 0.03, 1.0)
    config = replace(PUBLISHED, iterations=2, rollouts=8, save_every=1, constrained=True, seed=2)
    start, *done = iterations(config, tiny_qwen2(), pool=tiny_pool("general"))
    assert [one.index for one in done] == [1, 2]
    assert len({planner_of(one).card.weights_sha256 for one in (start, *done)}) == 3
    assert done[0].rollouts is not None
    assert done[0].rollouts.n == 32
    assert done[0].gradient > 0


def test_nothing_is_told_to_the_makers_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """trl reports each trainer to its makers, but not where it finds itself in a test."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _telemetry

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    told: list[object] = []
    monkeypatch.setattr(_telemetry._TELEMETRY_QUEUE, "put", told.append)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.setattr(constants, "is_offline_mode", lambda: False)
    list(begun(replace(CONFIG, iterations=1)))
    assert told == []


def test_parts_that_do_not_fit_are_refused() -> None:
    state = next(begun()).state
    assert state is not None
    with pytest.raises(ConfigError, match=r"begun with learning_rate 0.01 and cannot go on with 0.02"):
        list(begun(replace(CONFIG, learning_rate=2e-2), state=state))
    with pytest.raises(ConfigError, match="which is not there"):
        list(begun(state=state, tasks=TASKS[:1]))
    with pytest.raises(ConfigError, match="not the saved state"):
        PlannerState.from_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="was made for the models"):
        list(begun(pool=ScriptedPool(specs(("bob", "ann", "cid")), right_by_ann)))


@pytest.mark.parametrize(
    "fields",
    [
        {"iterations": 0},
        {"rollouts": 1},
        {"learning_rate": 0.0},
        {"temperature": 0.0},
        {"wrong": 1.0},
        {"subset_share": 2.0},
        {"batch": 3},
        {"anchor_models": -1.0},
        {"anchor_form": 0.5, "constrained": False},
    ],
)
def test_settings_that_cannot_be_used_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        replace(CONFIG, **fields)  # type: ignore[arg-type]


def test_rates_rise_and_then_fall_to_nothing() -> None:
    rates = [PUBLISHED.rate(number) for number in range(1, 201)]
    assert rates[5] == max(rates) == 1e-6
    assert rates[0] < rates[4]
    assert rates[-1] < 1e-9
    assert rates[6:] == sorted(rates[6:], reverse=True)


def test_statistics_of_nothing_are_not_known() -> None:
    empty = PlanStatistics(0)
    assert math.isnan(empty.right)
    stored = json.dumps(statistics_json(PlanStatistics, empty))
    assert json.loads(stored) == {"n": 0, "missing": 0, "tokens": 0}
    assert math.isnan(statistics_of_json(PlanStatistics, json.loads(stored)).right)


def test_only_what_lists_can_hold_is_learned_from() -> None:
    """The entropy that is reported, and what a planner is held by, are of the choices among what could be written."""
    planner, config = tiny_planner(), replace(CONFIG, questions=1, learning_rate=1e-6, anchor_form=0.5)
    rollouts = roll_out(config, planner, TASKS, 1, tiny_pool())
    expected = []
    for one in rollouts.written:
        ids = torch.tensor([[*one.prompt, *one.ids]])
        with torch.no_grad():
            logits = planner.model(ids).logits[0, len(one.prompt) - 1 : -1]
        open_ones = planner.biases(one) == 0
        assert all(bool(row[token]) for row, token in zip(open_ones, one.ids, strict=True))
        for row, known, chosen in zip(logits, open_ones, one.chosen, strict=True):
            if chosen:
                probabilities = row[known].softmax(-1)
                expected.append(-(probabilities * probabilities.log()).sum().item())
            else:
                assert int(known.sum()) == 1
    earned = replace(rollouts, rewards=(1.0, 0.5, 1.0, 0.5))
    update = learn_from(planner, planner.frozen(), new_optimiser(planner, config), earned, config, 1)
    assert update.entropy == pytest.approx(sum(expected) / len(expected), rel=1e-4)
    assert update.divergence == pytest.approx(0.0, abs=1e-6), "nothing was learned before"
