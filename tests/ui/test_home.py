"""Home: three ways in, accuracies with intervals, the newest episodes, and the store's health."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from storage.store import Store
from tests.ui.pages import opened, shown
from tests.ui.sample_store import EVOLVED, PLAYED, checkpoint
from ui.widgets import Standing, ago, standings_figure, strip_text, who

pytestmark = pytest.mark.usefixtures("samples")


def test_a_first_visit_sees_where_to_begin(samples: Store) -> None:
    page = opened("home")
    text = shown(page)
    for words in (
        "1 · Replay an episode",
        "2 · Compare two checkpoints",
        "3 · Play a problem live",
        "glossary",
    ):
        assert words in text
    beside = next(link for link in page.page_link if "Before and after" in link.label)
    first, last = (checkpoint(generation).id for generation in (0, 30))
    asked = parse_qs(beside.proto.query_string)
    assert (asked["base"], asked["b"]) == ([first], [last])
    assert asked["c"] == [f"{first},{checkpoint(8).id},{last}"]
    evolution = next(link for link in page.page_link if link.label.startswith("Newest evolution"))
    assert parse_qs(evolution.proto.query_string) == {"run": [EVOLVED]}
    assert f"**{PLAYED}**" in text
    assert f"{samples.health().episodes:,} episodes" in text


def test_every_policy_of_a_run_has_its_interval(samples: Store) -> None:
    policies = samples.runs.policies(PLAYED)
    figure = standings_figure([Standing.of(one) for one in policies])
    points = figure.data[0]
    assert len(points.x) == len(policies) == 4
    for share, up, down in zip(points.x, points.error_x.array, points.error_x.arrayminus, strict=True):
        assert 0 <= share - down <= share <= share + up <= 1


def test_policies_have_names_for_readers() -> None:
    assert who("cabc", 30) == "generation 30 (cabc)"
    assert who("single:jack") == "jack alone"
    assert who("random") == "random model and role"
    assert who("cabc") == "cabc"


def test_times_are_coarse() -> None:
    assert [ago(0, now) for now in (5, 130, 7200, 100_000)] == [
        "just now",
        "2 min ago",
        "2 hours ago",
        "1 day ago",
    ]


def test_a_strip_shows_revise_as_such() -> None:
    assert strip_text("V·b✗ V·b✓") == "V·b↻ V·b✓"
