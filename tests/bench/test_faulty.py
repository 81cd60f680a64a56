"""Streams over a pool with a faulty model, on a small scale."""

from __future__ import annotations

import pytest

from core.pocket import MODELS
from tests.bench import _faulty, endpoint

pytestmark = pytest.mark.usefixtures("forked_servers")


@pytest.mark.process
def test_what_is_lost_and_how_long_a_first_word_takes_is_measured() -> None:
    found = endpoint.measure(clients=4, seconds=1.0, wait=0.09, faulty=True)
    assert 0.03 <= found["model"]["first_content_s_p50"] < 1.0
    for tier in _faulty.TIERS:
        figures = found[tier]
        assert figures["requests"] > 4
        assert figures["lost"] == sum(figures["why"].values()) < figures["requests"] / 2
        assert figures["first_progress_s_p50"] <= figures["first_content_s_p50"] <= figures["whole_s_p95"]
    assert sum(found["once"]["faults"].values()) + sum(found["team"]["faults"].values()) > 0
    once = found["once"]
    assert once["sent_as_it_came"] == once["requests"] - once["lost"]  # its only turn is the answer's
    assert once["first_content_since_its_turn_s_p50"] >= 0.03


def test_no_model_says_what_another_one_does() -> None:
    assert len({*map(_faulty.said_by, MODELS)}) == 7
