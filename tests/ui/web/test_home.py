"""Home: three ways in, accuracies with intervals, the newest episodes, and the store's health."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from storage.store import Store
from tests.builders.sample_store import EVOLVED, PLAYED, checkpoint
from tests.ui.pages import opened, plainly, shown
from ui.presentation.runs import run_name
from ui.presentation.words import ago, policy_name, strip_text
from ui.web.kit.widgets import Standing, standings_figure

pytestmark = pytest.mark.usefixtures("samples")


@pytest.mark.integration
def test_a_first_visit_sees_where_to_begin(samples: Store) -> None:
    page = opened("home")
    assert [one.value for one in page.markdown if one.value[2:5] in ("1 ·", "2 ·", "3 ·")] == [
        "**1 · Replay an episode**",
        "**2 · Compare two policies**",
        "**3 · Play a problem live**",
    ]
    assert "Glossary" in shown(page)
    for words, outcome in (("A good example", True), ("A wrong ACCEPT", False)):
        link = next(one for one in page.page_link if words in one.label)
        [episode] = parse_qs(link.proto.query_string)["ep"]
        assert samples.episodes.summary(episode).correct is outcome
    beside = next(link for link in page.page_link if "Before and after" in link.label)
    first, last = (checkpoint(generation).id for generation in (0, 30))
    asked = parse_qs(beside.proto.query_string)
    assert (asked["base"], asked["b"]) == ([first], [last])
    assert asked["c"] == [f"{first},{checkpoint(8).id},{last}"]
    evolution = next(link for link in page.page_link if link.label.startswith("Newest evolution"))
    assert parse_qs(evolution.proto.query_string) == {"run": [EVOLVED]}
    assert f"**{run_name(samples.runs.get(PLAYED))}**" in plainly(page)
    (health,) = (one.value for one in page.caption if ":material/database:" in one.value)
    assert f"{samples.health().episodes:,} episodes" in health


def test_every_policy_of_a_run_has_its_interval(samples: Store) -> None:
    policies = samples.runs.policies(PLAYED)
    figure = standings_figure([Standing.of(one, {}) for one in policies])
    points = figure.data[0]
    assert len(points.x) == len(policies) == 4
    for share, up, down in zip(points.x, points.error_x.array, points.error_x.arrayminus, strict=True):
        assert 0 <= share - down <= share <= share + up <= 1


@pytest.mark.parametrize(
    ("policy", "generation", "name"),
    [
        ("cabc", 30, "gen 30"),
        ("cabc", None, "cabc"),
        ("single:jack", None, "jack alone"),
        ("random", None, "random model and role"),
        ("conductor:cabc", 60, "Conductor, iteration 60"),
        ("conductor:cabc", 0, "Conductor, iteration 0"),
        ("conductor:cabc", None, "Conductor (cabc)"),
        ("conductor:random", None, "random workflows"),
        ("conductor:fixed:chain:plato+sage+themis", None, "workflow chain of plato, sage, themis"),
        ("conductor:fixed:chain", None, "workflow chain"),
        ("conductor:prompted:jack", None, "workflows by jack"),
        ("conductor:prompted:openai:gpt", None, "workflows by openai:gpt"),
        ("conductor:same-model:jack:cabc", None, "workflows of Conductor (cabc) with jack alone"),
        ("conductor:same-model:jack:random", None, "random workflows with jack alone"),
        ("conductor:same-model:jack:fixed:chain:plato+sage", None, "workflow chain with jack alone"),
    ],
)
def test_policies_have_names_for_readers(policy: str, generation: int | None, name: str) -> None:
    assert policy_name(policy, generation) == name


def test_times_are_coarse() -> None:
    assert [ago(0, now) for now in (5, 130, 7200, 100_000)] == [
        "just now",
        "2 min ago",
        "2 hours ago",
        "1 day ago",
    ]


def test_a_strip_shows_revise_as_such() -> None:
    assert strip_text("T·a V·b✗ V·b✓") == "●a ▲b↻ ▲b✓"
    many = " ".join(f"W·{letter}" for letter in "abcdefgh")
    assert strip_text(many, 8) == "■a ■b ■c ■d ■e ■f ■g ■h"
    assert strip_text(f"{many} V·b✗", 4) == "■a ■b … 6 more … ▲b↻"
