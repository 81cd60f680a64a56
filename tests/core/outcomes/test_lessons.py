"""What models make of tasks: read from a table, or asked; the same wherever both are possible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.episode import Ask, Message, Role, Task, Verdict
from core.errors import PoolError
from core.outcomes.lessons import TRIALS, Known, best_setting, known_outcomes, table_behind
from core.outcomes.pool import RecordedPool
from core.pool.cache import CachedPool
from core.tasks.graders import grade_many
from tests.builders.pools import Line, ScriptedPool, specs
from tests.core.outcomes.tables import Answered, small_table

MODELS = ("alpha", "beta", "gamma")


ANSWERS: dict[str, list[Answered]] = {
    "alpha": ["A", "C", ""],
    "beta": ["A", "B", "A"],
    "gamma": ["B", "B", "D"],
}
COSTS = {"alpha": 0.5, "beta": 1.0, "gamma": 1.5}


def test_a_table_is_read_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    answers: dict[str, list[Answered]] = {"alpha": ["A", None, ""], "beta": ANSWERS["beta"]}
    answers["gamma"] = [("B", "A"), "B", "D"]
    table = small_table(tmp_path, answers, costs=COSTS)
    known = known_outcomes(RecordedPool(table), [table.tasks[2], table.tasks[0], table.tasks[1]])
    assert known.models == MODELS
    np.testing.assert_array_equal(known.right, [[0, 1, 0], [1, 1, 0.5], [np.nan, 0, 0]])
    assert known.group.tolist() == [[-1, 0, 3], [0, 0, 1], [-1, 1, 1]]
    np.testing.assert_array_equal(known.tokens[1:], [[120, 130, 140], [np.nan, 130, 140]])
    np.testing.assert_array_equal(known.cost[1:], [[0.5, 1, 1.5], [np.nan, 1, 1.5]])


def test_a_wrapped_pool_is_read_from_the_table_of_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    table = small_table(tmp_path / "trinity-inspector", ANSWERS)
    pool = CachedPool(RecordedPool(table))
    assert table_behind(pool) == table
    assert known_outcomes(pool, table.tasks).right.tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert pool.misses == 0


def test_models_that_are_not_recorded_are_asked_once_each() -> None:
    said = {
        "alpha": ["answer 4", "answer 9"],
        "beta": ["answer 4.0", "answer 7"],
        "gamma": ["hm", "answer 7"],
    }
    tasks = [Task("t0", "What is 2 + 2?", "4", "number"), Task("t1", "What is 3 + 3?", "6", "number")]

    def say(ask: Ask) -> Line:
        return said[ask.model]["3 + 3" in ask.messages[-1].content]

    pool = ScriptedPool(specs(MODELS), say)
    known = known_outcomes(pool, tasks, grade_many)
    assert known.right.tolist() == [[1, 1, 0], [0, 0, 0]]
    assert known.group.tolist() == [[0, 0, -1], [0, 1, 1]]
    with pytest.raises(PoolError, match="have to be asked"):
        known_outcomes(pool, tasks)


def test_a_task_of_another_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PoolError, match="small has no task strange"):
        known_outcomes(RecordedPool(small_table(tmp_path, ANSWERS)), [Task("strange", "?", "A", "choice")])


def test_some_of_the_tasks_can_be_taken(tmp_path: Path) -> None:
    table = small_table(tmp_path, ANSWERS)
    known: Known = known_outcomes(RecordedPool(table), table.tasks)
    assert known.of(np.array([2, 0])).right.tolist() == [[0, 1, 0], [1, 1, 0]]
    assert known.of(known.right[:, 0] == 1).group.tolist() == [[0, 0, 1]]


def test_no_rule_has_more_trials_than_another() -> None:
    assert best_setting([3, 1, 2], lambda setting: -abs(setting - 2)) == 2
    assert best_setting([1, 3], lambda setting: -abs(setting - 2)) == 1  # of equals the first
    with pytest.raises(ValueError, match="21 settings"):
        best_setting(range(TRIALS + 1), float)


def test_a_remembered_reply_of_a_recorded_model_is_of_its_role_and_of_what_it_judged(tmp_path: Path) -> None:
    table = small_table(tmp_path, ANSWERS)
    pool = CachedPool(RecordedPool(table))
    worker = Ask("beta", Role.WORKER, (Message("user", table.tasks[0].question),))

    def said(ask: Ask) -> Verdict | None:
        [(_, reply)] = pool.ask([ask])
        assert reply.recorded is not None
        return reply.recorded.verdict

    judges = replace(worker, role=Role.VERIFIER, judged="A")
    for _ in range(2):
        assert said(worker) is None
        assert said(judges) is Verdict.ACCEPT
        assert said(replace(judges, judged="B")) is Verdict.REVISE
    assert pool.hits == 3
