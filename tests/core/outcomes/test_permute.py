"""The control whose replies are right by chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.episode import Role
from core.errors import TaskError
from core.learning import play_all
from core.outcomes.lessons import known_of_table
from core.outcomes.permute import permute_table
from core.outcomes.pool import RecordedPool
from core.play.policies import new_episode, single_policy
from core.tasks.graders import grade_many
from core.tasks.sets import FOLDS, load_tasks
from tests.core.outcomes.tables import small_answers, small_table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "trinity-inspector"


def test_every_model_is_right_as_often_as_before_in_every_split_of_every_fold(folder: Path) -> None:
    table = small_table(folder, small_answers(400), costs={"ann": 1.0, "bob": 2.0, "cyd": 3.0})
    made = permute_table(table, "control", 3, folder)
    for fold in range(FOLDS):
        for split in ("evolve", "validation", "test"):
            before, after = (
                known_of_table(one, load_tasks(f"outcomes:{one.card.name}@{fold}", split, None, 0))
                for one in (table, made)
            )
            assert after.right.mean(axis=0) == pytest.approx(before.right.mean(axis=0))
    assert made.card.models == table.card.models
    assert [task.question for task in made.tasks] == [task.question for task in table.tasks]
    assert made.texts["reply"].equals(table.texts["reply"])
    assert np.array_equal(made.toll["cost"], table.toll["cost"])


def test_neither_family_nor_the_other_models_tell_who_is_right(folder: Path) -> None:
    table = small_table(folder, small_answers(2000))
    before, after = (
        known_of_table(one, one.tasks).right for one in (table, permute_table(table, "c", 0, folder))
    )
    law = np.array([task.family == "law" for task in table.tasks])
    assert before[law, 0].mean() - before[~law, 0].mean() > 0.5
    assert abs(after[law, 0].mean() - after[~law, 0].mean()) < 0.08
    assert abs(np.corrcoef(before[:, 0], before[:, 1])[0, 1]) > 0.3
    assert abs(np.corrcoef(after[:, 0], after[:, 1])[0, 1]) < 0.08


def test_a_seed_draws_the_same_again_and_a_taken_name_is_refused(folder: Path) -> None:
    table = small_table(folder)
    rights = [
        permute_table(table, f"c{place}", seed, folder).numbers["right"]
        for place, seed in enumerate((1, 1, 2))
    ]
    assert np.array_equal(rights[0], rights[1])
    assert not np.array_equal(rights[0], rights[2])
    with pytest.raises(TaskError, match="There is an outcome table 'c0' already"):
        permute_table(table, "c0", 1, folder)


def test_it_plays_without_verifiers_and_is_graded_by_its_marks(folder: Path) -> None:
    answers = {"ann": [("A", "B"), "A", "C", "A"], "bob": ["B", "A", None, "D"]}
    made = permute_table(small_table(folder, answers), "control", 0, folder)  # type: ignore[arg-type]
    pool = RecordedPool(made)
    assert all(Role.VERIFIER.value not in spec.roles for spec in pool.specs)
    policy = single_policy("bob", ("ann", "bob"), (Role.WORKER,))
    tasks = [task for place, task in enumerate(made.tasks) if place != 2]
    played = play_all(
        [new_episode("r", i, task, policy, turns=1, seed=0, argmax=False) for i, task in enumerate(tasks)],
        policy,
        pool,
        grade_many,
    )
    known = known_of_table(made, tasks).right[:, 1]
    assert [one.correct for one in played] == known.astype(bool).tolist()
    assert [one.answer for one in played] == 3 * ["bob#0"]
