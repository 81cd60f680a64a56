"""Checkpoints: the flip table, its tasks and links, the verdict, routing and configuration."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from core.comparison import compare_counts
from storage.routing import routing
from storage.store import Store
from tests.browsing import settled
from tests.ui.conftest import Served
from tests.ui.pages import opened, shown
from tests.ui.sample_store import MODELS, PLAYED, checkpoint
from ui.views.checkpoints import KINDS, flat, flip_rows, shares, verdict

pytestmark = pytest.mark.usefixtures("samples")


def test_it_opens_on_the_first_and_the_last_generation(samples: Store) -> None:
    page = opened("checkpoints")
    assert page.selectbox(key="side_a").value == checkpoint(0).id
    assert page.selectbox(key="side_b").value == checkpoint(30).id
    counts = samples.episodes.flip_counts(checkpoint(0).id, checkpoint(30).id)
    assert counts.n == 22
    assert f"**{counts.only_b}**" in page.button(key="cell_only_b").label
    assert "McNemar p" in [metric.label for metric in page.metric]


def test_a_cell_lists_its_tasks_and_each_opens_the_pair(samples: Store) -> None:
    page = opened("checkpoints")
    page.button(key="cell_only_b").click().run()
    assert page.query_params["kind"] == "only_b"
    expected = samples.episodes.flips(checkpoint(0).id, checkpoint(30).id, kind="only_b")
    table = page.dataframe[0].value
    assert len(table) == len(expected)
    assert list(table["pair"]) == [f"/pair?a={one.a_episode}&b={one.b_episode}" for one in expected]
    assert set(table["outcome"]) == {"Only B right"}
    assert len(flip_rows(expected)) == len(expected)


def test_sides_are_chosen_and_swapped_in_the_address() -> None:
    page = opened("checkpoints", base="random", b=checkpoint(8).id)
    assert page.selectbox(key="side_a").value == "random"
    page.button(key="swap").click().run()
    assert (page.query_params["base"], page.query_params["b"]) == (checkpoint(8).id, "random")
    page.selectbox(key="side_b").select(checkpoint(8).id).run()
    assert "the same policy" in shown(page)


def test_a_stale_side_falls_back_and_says_so() -> None:
    page = opened("checkpoints", base="cgone")
    assert page.selectbox(key="side_a").value == checkpoint(0).id
    assert len(page.info) == 1
    assert "cgone has not played here" in page.info[0].value
    assert not opened("checkpoints").info


@pytest.mark.parametrize(
    ("only_a", "only_b", "words"),
    [
        (1, 4, "can never show more than luck"),
        (5, 9, "may be luck"),
        (2, 20, "B is better"),
        (20, 2, "A is better"),
    ],
)
def test_the_verdict_claims_no_more_than_the_flips_show(only_a: int, only_b: int, words: str) -> None:
    assert words in verdict(compare_counts(20, only_a, only_b, 10, key="k"))


def test_routing_shares_add_up(samples: Store) -> None:
    routed = routing(samples, PLAYED, checkpoint(30).id)
    turns = sum(one.turns for one in samples.episodes.of_run(PLAYED, checkpoint(30).id))
    assert sum(one.n for one in routed) == turns
    assert sum(map(sum, shares(routed, MODELS))) == pytest.approx(1.0)


def test_only_what_differs_in_the_configuration_is_listed() -> None:
    page = opened("checkpoints")
    keys = list(page.dataframe[1].value.iloc[:, 0])
    assert "generation" in keys
    assert "encoder.name" not in keys
    assert flat({"a": {"b": 1}, "c": 2}) == {"a.b": "1", "c": "2"}


def test_a_cell_and_then_its_link_lead_to_the_pair(tab: Page, served: Served) -> None:
    sides = checkpoint(0).id, checkpoint(30).id
    found = {kind: served.store.episodes.flips(*sides, kind=kind) for kind in KINDS}
    kind = next(kind for kind in KINDS if found[kind])
    tab.goto("/checkpoints")
    tab.locator(f".st-key-cell_{kind} button").first.click()
    tab.wait_for_url(f"**kind={kind}*")
    settled(tab)
    flip = found[kind][0]
    tab.goto(f"/pair?a={flip.a_episode}&b={flip.b_episode}")
    tab.locator(".strip button").first.wait_for()
