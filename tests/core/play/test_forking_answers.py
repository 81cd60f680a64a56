"""Which changes of a coordinator's turn cannot change the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.episode import Change, Episode, Status
from core.play.forking import keeps_answer
from tests.builders.recorded import episode


@pytest.fixture
def parent() -> Episode:
    """An episode of a Thinker, a Worker and a Verifier, say, whose last turn is the last that its budget allows."""
    made = episode("e-parent")
    return replace(made, turn_budget=len(made.turns), status=Status.FINISHED)


def test_to_stop_keeps_the_answer_where_it_was_there_already(parent: Episode) -> None:
    for index in range(1, len(parent.turns)):
        same = parent.turns[index - 1].answer_after == parent.answer
        assert keeps_answer(parent, index, Change("stop")) is same


def test_at_the_last_turn_only_who_works_can_change_the_answer(parent: Episode) -> None:
    last = len(parent.turns) - 1
    before = parent.turns[last - 1].answer_after == parent.answer
    assert keeps_answer(parent, last, Change("role", "thinker")) is before
    assert not keeps_answer(parent, last, Change("role", "worker"))
    assert not keeps_answer(parent, last, Change("policy", "random"))


def test_what_can_still_be_played_on_or_is_not_over_may_change_it(parent: Episode) -> None:
    last = len(parent.turns) - 1
    more = replace(parent, turn_budget=parent.turn_budget + 1)
    assert not keeps_answer(more, last, Change("role", "thinker"))
    assert not keeps_answer(replace(parent, status=Status.INTERRUPTED), last, Change("stop"))
