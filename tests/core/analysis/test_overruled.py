"""What was proposed where a person chose otherwise, drawn again from what is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.analysis.head_lens import overruled_pair
from core.changes import Fork
from core.draws import turn_key
from core.episode import Decide, Decision, Episode, Protocol, Role, Task, Transcript
from core.play.policies import RandomPolicy, override_decision

MODELS = ("ann", "bob", "eve")
EPISODE = Episode(
    id="e", run_id="r", task=Task("t", "How many?", "42"), policy="random", models=MODELS, seed=3
)


def taken_over(index: int) -> tuple[Decision, Decision]:
    """What was drawn for a turn, and the turn as a person decided it."""
    request = Decide(Transcript("How many?"), index, turn_key(EPISODE.seed, EPISODE.task.id, index))
    [drawn] = RandomPolicy(MODELS).decide([request])
    return drawn, override_decision(drawn, ("eve", Role.VERIFIER), MODELS)


@pytest.mark.parametrize("index", range(8))
def test_what_was_drawn_is_drawn_again(index: int) -> None:
    drawn, decision = taken_over(index)
    assert overruled_pair(decision, MODELS, EPISODE, index) == (drawn.model, drawn.role)
    assert overruled_pair(drawn, MODELS, EPISODE, index) is None


def test_without_chance_it_is_the_likeliest() -> None:
    decision = replace(taken_over(0)[1], sampled=False, argmax_model="bob", argmax_role=Role.THINKER)
    assert overruled_pair(decision, MODELS, EPISODE, 0) == ("bob", Role.THINKER)
    assert overruled_pair(replace(decision, argmax_model="", argmax_role=None), MODELS, EPISODE, 0) is None


def test_nothing_is_claimed_where_it_cannot_be_told() -> None:
    decision = taken_over(0)[1]
    for other in (replace(EPISODE, fork=Fork("p", 0)), replace(EPISODE, protocol=Protocol.RELEASED)):
        assert overruled_pair(decision, MODELS, other, 0) is None
    assert overruled_pair(replace(decision, role_probs=()), MODELS, EPISODE, 0) is None
