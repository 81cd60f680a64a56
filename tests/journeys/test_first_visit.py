"""A newcomer's first minutes: one command, and the sample runs can be browsed, stepped through, compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Browser

from storage.store import open_store
from tests.browsing import press, settled
from tests.journeys.newcomer import Newcomer, newcomer


@pytest.fixture(scope="module")
def person(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with newcomer(tmp_path_factory.mktemp("newcomer"), chromium) as sitting:
        yield sitting


def test_the_sample_runs_are_there(person: Newcomer) -> None:
    with closing(open_store(person.folder / "trinity-inspector" / "trinity.db")) as store:
        assert store.runs.sample_ids() == {run.id for run in store.runs.list()}
    person.open("/")
    person.page.get_by_text("These are sample runs").wait_for()
    report = json.loads(person.trinity("doctor", "--json"))
    assert report["store"]["episodes"] >= 400


def test_an_episode_is_replayed_by_key_and_its_link_leads_back(person: Newcomer) -> None:
    page = json.loads(person.trinity("episodes", "--where", "turns >= 3", "--limit", "1", "--json"))
    episode = page["episodes"][0]["id"]
    person.open(f"/replay?ep={episode}")
    person.page.get_by_text("Turn 1 of").last.wait_for()  # the keys belong to buttons of the drawn page
    press(person.page, "j")
    person.page.wait_for_url(re.compile(r"[?&]t=\d"))
    settled(person.page)
    turn = parse_qs(urlparse(person.page.url).query)["t"][0]
    link = person.page.url
    person.page.goto(link)
    settled(person.page)
    assert person.trouble == []
    assert parse_qs(urlparse(person.page.url).query)["ep"] == [episode]
    person.page.get_by_text(f"Turn {turn} of").last.wait_for()
    assert person.page.get_by_text("This view cannot be shown").count() == 0


def test_two_checkpoints_flips_open_the_aligned_pair(person: Newcomer) -> None:
    by_generation = {
        one["generation"]: one["id"]
        for one in json.loads(person.trinity("checkpoints", "--json"))
        if one["system"] == "trinity"
    }
    assert len(by_generation) >= 3
    first, last = (by_generation[place] for place in (min(by_generation), max(by_generation)))
    _, compared = json.loads(person.trinity("compare", first, last, "--json"))["ahead"]["policies"]
    assert compared["n"] >= 80
    assert compared["only_b"] > compared["only_a"]


def test_a_link_to_nothing_says_so_without_a_traceback(person: Newcomer) -> None:
    person.open("/replay?ep=enothing")
    assert person.page.locator('[data-testid="stException"]').count() == 0
    assert "enothing" in person.page.locator("body").inner_text()
