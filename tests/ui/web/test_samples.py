"""Samples on the pages: shown and named as such at first, kept apart from one's own, and one click away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from streamlit.testing.v1 import AppTest

from storage.recorder import record
from storage.rows.summaries import RunKind
from storage.store import Store
from tests.builders.recorded import episode, events_of
from tests.builders.sample_store import EVOLVED, PLAYED, sample_store
from tests.builders.stores import begin_run, mark_samples
from tests.ui.pages import opened, plainly, shown
from ui.presentation.runs import run_name, run_names

pytestmark = pytest.mark.integration
OWN = "rown"


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that holds samples only, as after a first start."""
    store = sample_store(tmp_path / "trinity.db", n=5)
    mark_samples(store, *(run.id for run in store.runs.list()))
    monkeypatch.setenv("TRINITY_STORE", store.url)
    yield store
    store.close()


@pytest.fixture
def mixed(sampled: Store) -> Store:
    """The same with a run of one's own: two episodes."""
    record_own(sampled, "run", "e-own-one", "e-own-two")
    return sampled


def record_own(store: Store, kind: RunKind, *names: str) -> None:
    """A run of one's own with these episodes."""
    begin_run(store, OWN, kind, {})
    for name in names:
        mine = replace(episode(name), run_id=OWN, policy="random", generation=None)
        list(record(store, events_of(mine)))
    store.runs.finish(OWN)


def test_samples_are_named_on_home_until_there_are_runs_of_ones_own(sampled: Store) -> None:
    page = opened("home")
    assert "These are sample runs" in plainly(page)
    assert f"**{run_name(sampled.runs.get(PLAYED))}**" in plainly(page)
    assert "(sample)" in plainly(page)


def test_a_live_play_leaves_the_samples_where_they_are(sampled: Store) -> None:
    record_own(sampled, "live", "e-own")
    said = shown(opened("home"))
    assert "These are sample runs" in said
    assert "Your own runs" not in said
    page = opened("episodes")
    assert len(page.dataframe[0].value) > 1
    assert "sample episodes left out" not in shown(page)


def test_home_shows_ones_own_and_leads_to_the_samples(mixed: Store) -> None:
    page = opened("home")
    said = plainly(page)
    assert f"**{run_name(mixed.runs.get(OWN))}**" in said
    assert f"**{run_name(mixed.runs.get(PLAYED))}**" not in said
    assert "Your own runs are shown" in said
    link = next(one for one in page.page_link if "sample episodes" in one.label)
    assert link.proto.query_string == "samples=only"
    opens = [one for one in page.page_link if one.proto.query_string.startswith("ep=")]
    doors = {one.label: one.proto.query_string.removeprefix("ep=") for one in opens if "**" in one.label}
    newest = [one for one in opens if one.label not in doors]
    assert {one.proto.query_string for one in newest} == {"ep=e-own-one", "ep=e-own-two"}
    wrong = mixed.episodes.summary(doors[":blue[**A wrong ACCEPT**]"])
    assert "false_accept" in wrong.flags, "one's own have none: the door leads to a sample"


def _runs(page: AppTest) -> set[str]:
    """The runs that the bar of a page that adds up offers."""
    return {option.split(" · ")[0] for option in page.selectbox(key="scope_run").options}


@pytest.mark.parametrize("name", ["episodes", "routing", "verifier", "pool"])
def test_each_page_counts_ones_own_and_samples_are_one_click_away(mixed: Store, name: str) -> None:
    page = opened(name)
    assert page.pills(key="facet_samples").value == "hidden"
    names = run_names(mixed, [OWN, PLAYED])
    assert name == "episodes" or _runs(page) == {names[OWN]}
    page.pills(key="facet_samples").set_value("with").run()
    assert not page.exception
    assert page.query_params["samples"] == "with"
    assert page.pills(key="facet_samples").value == "with"
    assert name == "episodes" or _runs(page) >= set(names.values())
    page.pills(key="facet_samples").set_value("hidden").run()
    assert "samples" not in page.query_params


@pytest.mark.parametrize("name", ["episodes", "routing", "verifier", "pool"])
def test_without_runs_of_ones_own_samples_are_shown_and_there_is_nothing_to_switch(
    sampled: Store, name: str
) -> None:
    page = opened(name)
    assert not [one for one in page.pills if one.key == "facet_samples"]
    assert "No episode" not in shown(page)


def test_addresses_that_name_a_sample_run_or_checkpoint_still_open(mixed: Store) -> None:
    [checkpoint, *_] = [one for one in mixed.episodes.of_run(PLAYED) if one.checkpoint_id]
    for where in ({"run": PLAYED}, {"policy": checkpoint.policy}, {"samples": "only"}):
        page = opened("episodes", **where)
        assert len(page.dataframe[0].value) >= 5
        assert "e-own" not in str(page.dataframe[0].value.to_dict())
    assert f"**Turn 1 of {checkpoint.turns}**" in shown(opened("replay", ep=checkpoint.id))


def test_checkpoints_compares_ones_own_and_offers_the_samples(sampled: Store) -> None:
    assert "Samples, which came with the program" in plainly(opened("checkpoints"))
    record_own(sampled, "run", "e-own")
    page = opened("checkpoints")
    assert "Choose two policies or more" in shown(page)
    link = next(one for one in page.page_link if "sample checkpoints" in one.label)
    chosen = parse_qs(link.proto.query_string)["c"][0]
    assert "Samples, which came with the program" in plainly(opened("checkpoints", c=chosen))


def test_a_view_of_samples_says_so_at_the_side(mixed: Store) -> None:
    page = opened("episodes", view=mixed.views.add("Samples", {"samples": "only"}).id)
    assert len(page.dataframe[0].value) > 2
    assert page.pills(key="facet_samples").value == "only"


def test_sample_checkpoints_and_runs_are_named_so_where_they_are_chosen(mixed: Store) -> None:
    page = opened("evolution", run=EVOLVED)
    assert all(option.endswith("· sample") for option in page.selectbox[0].options)
    page = opened("live")
    named = [option for option in page.selectbox(key="policy_choice").options if option.startswith("gen ")]
    assert named
    assert all("· sample" in option for option in named)
