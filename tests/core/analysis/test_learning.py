"""Since when a coordinator chooses what: bands by task, and the generation from which a choice differs for good."""

from __future__ import annotations

import math

import numpy as np
import pytest

from core.analysis.learning import (
    AnswerState,
    LearningCurve,
    Spell,
    answer_states,
    clustered_means,
    learning_curve,
)
from core.episode import Role

T, W, V = Role.THINKER, Role.WORKER, Role.VERIFIER
NONE, UNJUDGED, JUDGED = AnswerState.NONE, AnswerState.UNJUDGED, AnswerState.JUDGED


def test_an_answer_stands_unjudged_until_a_verifier_has_spoken() -> None:
    turns = [(V, False), (T, False), (W, False), (W, True), (T, False), (W, False), (V, False), (T, False)]
    assert answer_states(turns) == [NONE, NONE, NONE, NONE, UNJUDGED, UNJUDGED, UNJUDGED, JUDGED]
    # Another answer has to be judged anew; a Worker that finds none leaves what was judged.
    assert answer_states([(W, True), (V, False), (W, False), (W, True), (V, False)])[1:] == [
        UNJUDGED,
        JUDGED,
        JUDGED,
        UNJUDGED,
    ]


def curve(*levels: float, spread: float = 0.1, tasks: int = 40, seed: int = 0) -> LearningCurve:
    """Generations 0, 5, 10 ... whose probabilities lie around these levels, in two turns of each task; the first is
    the same at every turn, as of a head of zeros."""
    draws = np.random.default_rng(seed).normal(size=(tasks, len(levels))) * spread
    draws[:, 0] = 0
    values = np.repeat(np.clip(np.array(levels) + draws, 0, 1), 2, axis=0)
    found = learning_curve([5 * i for i in range(len(levels))], values, np.repeat(np.arange(tasks), 2))
    assert found is not None
    return found


def test_learned_is_what_stays_apart_from_the_first_generation_to_the_end() -> None:
    found = curve(0.33, 0.33, 0.5, 0.33, 0.6, 0.7, 0.9)
    assert found.spells == (Spell(1, 10, 10), Spell(1, 20, 30))
    assert found.lasting == Spell(1, 20, 30)  # not from 10 on: at 15 it was as at first
    assert found.passing is None  # what passed was on the same side
    assert found.mostly_since() == 20
    assert found.extreme(Spell(1, 20, 30))[0] == 30


def test_a_generation_in_twenty_that_cannot_be_told_does_not_restart_the_count() -> None:
    up = [0.6] * 12
    assert curve(0.33, *up, 0.33, *up).lasting == Spell(1, 5, 125)
    assert curve(0.33, *up, 0.33, 0.33, *up).lasting == Spell(1, 75, 130)  # two of 26 are more
    assert curve(0.33, *up, 0.1, *up).lasting == Spell(1, 70, 125)  # one on the other side does
    assert curve(0.33, *up, *up, 0.33).lasting is None  # the last generation has to hold it itself


def test_what_was_unlearned_is_said_too() -> None:
    found = curve(0.33, 0.8, 0.9, 0.7, 0.33, 0.1, 0.1)
    assert found.lasting == Spell(-1, 25, 30)
    assert found.passing == Spell(1, 5, 15)
    assert found.extreme(Spell(1, 5, 15))[0] == 10
    assert found.mostly_since() is None
    gone = curve(0.33, 0.8, 0.1, 0.1, 0.33)
    assert gone.lasting is None
    assert gone.passing == Spell(-1, 10, 15)  # the longest


def test_nothing_is_claimed_that_tasks_drawn_anew_could_undo() -> None:
    up_and_down = np.tile([0.1, -0.1], 20)[:, None]
    still = learning_curve([0, 1], np.hstack([np.full((40, 1), 0.33), 0.33 + up_and_down]), np.arange(40))
    assert still is not None
    assert (still.spells, still.lasting, still.passing) == ((), None, None)
    # Every turn of one task has learned it, all others have not.
    values = np.full((60, 2), 1 / 3)
    values[:30, 1] = 1.0
    one_task = learning_curve([0, 1], values, np.array([0] * 30 + list(range(1, 31))))
    assert one_task is not None
    assert one_task.means[1].mean == pytest.approx(2 / 3)
    assert one_task.lasting is None
    alone = learning_curve([0, 1], values, np.zeros(60, np.int64))
    assert alone is not None
    assert not alone.means[1].has_interval
    assert alone.spells == ()
    assert learning_curve([0, 1], np.zeros((0, 2)), np.zeros(0, np.int64)) is None


def test_a_first_generation_that_prefers_something_is_what_changes_are_measured_from() -> None:
    """The change is taken turn by turn: both generations vary widely over tasks, and their difference does not."""
    tasks = np.arange(30)
    base = np.linspace(0.05, 0.85, 30)
    found = learning_curve([0, 1], np.column_stack([base, base + 0.05]), tasks)
    assert found is not None
    assert found.means[0].high > found.means[1].low  # the bands overlap
    assert found.lasting == Spell(1, 1, 1)


@pytest.mark.parametrize(("tasks", "between"), [(20, 0.3), (60, 0.3), (60, 0.05)])
def test_the_interval_covers_what_it_promises_where_a_task_has_several_turns(
    tasks: int, between: float
) -> None:
    rng = np.random.default_rng(7)
    covered, trials = 0, 1500
    for _ in range(trials):
        sizes = rng.integers(1, 8, tasks)
        levels = np.clip(0.5 + rng.uniform(-1, 1, tasks) * between, 0, 1)
        clusters = np.repeat(np.arange(tasks), sizes)
        values = np.clip(levels[clusters] + rng.normal(size=len(clusters)) * 0.1, 0, 1)
        (mean,) = clustered_means(values[:, None], clusters)
        covered += mean.low <= 0.5 <= mean.high
    assert 0.93 <= covered / trials <= 0.975


def test_values_that_are_all_the_same_are_known_exactly() -> None:
    (mean,) = clustered_means(np.full((7, 1), 1 / 3), np.array([0, 0, 1, 1, 2, 2, 2]))
    assert mean.low == mean.high == mean.mean
    assert math.isclose(mean.mean, 1 / 3)
