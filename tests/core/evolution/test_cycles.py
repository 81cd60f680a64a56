"""Role cycles: every one is tried, the best is chosen, and an outage neither counts nor passes for an answer."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from core.episode import Ask, Episode, Failure, Role, Status, Task
from core.errors import PoolError
from core.evolution.cycles import CYCLES, PLAIN_CYCLES, Trial, calls_of_cycles, choose_cycles, try_cycles
from core.play.policies import PLAN_WORK_CHECK, Cycle
from core.pool.cache import CachedPool
from core.pool.spec import ModelSpec
from core.tasks.graders import grade_many
from tests.builders.pools import Line, ScriptedPool, specs

SPECS = specs(["ann"])
TASKS = [Task(f"t{k}", f"What is {k} + 0?", str(k), "number") for k in range(4)]
WORK: Cycle = (Role.WORKER,)
WORK_CHECK: Cycle = (Role.WORKER, Role.VERIFIER)


def knowing(ask: Ask) -> Line:
    """Right answers, readable plans, and a Verifier that believes."""
    number = ask.messages[-1].content.split("What is ")[1].split()[0]
    return {Role.WORKER: f"answer {number}", Role.THINKER: "plan", Role.VERIFIER: "ACCEPT"}[ask.role]


def trial(cycle: Cycle, correct: bool | None, turns: int = 0) -> Trial:
    """A trial of "ann" that ended right, wrong, or (None) missing."""
    status = Status.MISSING if correct is None else Status.FINISHED
    one = Episode("e", "r", TASKS[0], "p", ("ann",), status=status, correct=correct, error="down")
    return Trial("ann", cycle, replace(one, turns=(None,) * turns))  # type: ignore[arg-type]


def test_all_role_cycles_are_tried_once() -> None:
    names = ["".join(role[0] for role in cycle) for cycle in CYCLES]
    assert len(names) == len(set(names)) == 23
    assert {"w", "tw", "twv", "wvw"} <= set(names)
    assert not {"ww", "www", "tv", "t"} & set(names)


def test_every_cycle_plays_every_task_and_the_quickest_right_one_wins() -> None:
    trials = list(try_cycles(["single:ann"], ScriptedPool(SPECS, knowing), grade_many, TASKS, turn_budget=3))
    assert len(trials) == len(CYCLES) * len(TASKS)
    assert {one.cycle for one in trials} == set(CYCLES)
    chosen = choose_cycles(trials)["single:ann"]
    assert (chosen.cycle, chosen.accuracy, chosen.missing) == (WORK_CHECK, 1.0, 0)


def test_a_missing_episode_counts_for_nothing() -> None:
    trials = [trial(WORK, None), trial(WORK, True), trial(WORK_CHECK, True), trial(WORK_CHECK, False)]
    chosen = choose_cycles(trials)["ann"]
    assert (chosen.cycle, chosen.accuracy, chosen.missing) == (WORK, 1.0, 1)


def test_of_equals_the_shortest_in_turns_then_in_roles() -> None:
    turns = [trial(WORK, True, 3), trial(PLAN_WORK_CHECK, True, 2)]
    assert choose_cycles(turns)["ann"].cycle == PLAN_WORK_CHECK
    roles = [trial(PLAN_WORK_CHECK, True), trial(WORK, True)]
    assert choose_cycles(roles)["ann"].cycle == WORK


def test_an_outage_chooses_nothing() -> None:
    silent = ScriptedPool(SPECS, lambda _: Failure("infrastructure", "connection refused"))
    with pytest.raises(PoolError, match="connection refused"):
        choose_cycles(try_cycles(["single:ann"], silent, grade_many, TASKS, turn_budget=2))


@pytest.mark.parametrize("cycles", [CYCLES, PLAIN_CYCLES, (WORK,), (PLAN_WORK_CHECK,)])
@pytest.mark.parametrize("accepts", [0.0, 1.0])
@pytest.mark.parametrize("turn_budget", [1, 3, 5])
def test_the_calls_of_cycles_are_those_that_are_made(
    cycles: tuple[Cycle, ...], accepts: float, turn_budget: int
) -> None:
    count = itertools.count()

    def never_alike(ask: Ask) -> Line:
        if ask.role is Role.VERIFIER:
            tag = ask.messages[-1].content.rsplit("VERDICT-", 1)[1].split(":")[0]
            return f"VERDICT-{tag}: {'ACCEPT' if accepts else 'REVISE'}"
        name = "answer" if ask.role is Role.WORKER else "suggestion"
        return f"<{name}>{next(count)}</{name}>"

    pool = CachedPool(ScriptedPool([ModelSpec("ann", provider="scripted")], never_alike))
    list(try_cycles(["single:ann"], pool, grade_many, TASKS, turn_budget=turn_budget, cycles=cycles))
    assert pool.misses == len(TASKS) * calls_of_cycles(cycles, turn_budget, accepts)


def test_of_some_verdicts_that_accept_there_are_as_many_calls_as_between() -> None:
    assert calls_of_cycles([WORK_CHECK], 5, 0.4) == pytest.approx(1 + 1 + 0.6 + 0.6 + 0.36)
