"""Totals agree from page to page or say what they leave out, and a play that two decided is counted as nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from storage.filters.episode_filter import EpisodeFilter
from storage.filters.listing import TWO_DECIDED
from storage.rows.engine import writing
from storage.rows.mapping import flag_bits
from storage.rows.schema import episode
from storage.store import Store
from tests.builders.sample_store import PLAYED, checkpoint, sample_store
from tests.builders.stores import begin_run
from tests.ui.pages import assert_literal, opened, shown, table_with
from ui.presentation.words import not_alone

pytestmark = pytest.mark.integration
LAST = checkpoint(30).id
BY_TWO = "decided by hand, or by two coordinators"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Of the last generation's plays two are forks, one was taken over by a person, and one by another coordinator;
    there is an unfinished live play too."""
    opened_store = sample_store(tmp_path / "trinity.db", 4)
    monkeypatch.setenv("TRINITY_STORE", opened_store.url)
    begin_run(opened_store, "rfork001", "fork", {})
    opened_store.runs.finish("rfork001")
    where = EpisodeFilter(policy=LAST, status="finished")
    one, two, three, four = [found.id for found in opened_store.episodes.page(where, limit=4).items]
    with writing(opened_store.engine) as connection:
        for changed, values in (
            ((one, two), {"run_id": "rfork001"}),
            ((three,), {"flags": flag_bits(["override"])}),
            ((four,), {"flags": flag_bits(["swapped"])}),
        ):
            connection.execute(episode.update().where(episode.c.id.in_(changed)).values(**values))
    yield opened_store
    opened_store.close()


def plainly(name: str, **query: str) -> str:
    page = opened(name, **query)
    assert_literal(page)
    return shown(page).replace("\\", "")


def test_every_page_says_what_its_total_leaves_out(store: Store) -> None:
    every = store.health().episodes
    aside = "3 live plays, requests or episodes of evolutions"
    in_all = f"{every} episodes in all (among them 2 forks and {aside}, which no total counts)"
    assert in_all in plainly("home")
    assert f"Episodes (among them 2 forks and {aside}, which no total counts)" in plainly("settings")
    assert f"**{every - 2}** episodes · :gray[2 forks left out]" in plainly("episodes")
    assert f"· {every - 2} episodes · :gray[2 forks left out]" in plainly("episodes", group="family")
    without = plainly("episodes", forks="without")
    assert f"**{every - 5}** episodes · :gray[2 forks and {aside} left out]" in without
    assert f"**{every}** episodes" in (whole := plainly("episodes", forks="with"))
    assert "left out" not in whole.split("episodes")[1]
    finished = sum(
        one.n for one in store.episodes.facets(EpisodeFilter(forks="without", status="finished")).policy
    )
    together = opened("pool").selectbox(key="scope_policy").options
    assert together[0].endswith(f" together · {every}"), "those too that two decided, which are of no policy"
    alone = opened("pool", policy=LAST).selectbox(key="scope_policy").options
    assert alone[0].endswith(f" · {every}"), "all of them, whichever is chosen"
    routing = opened("routing", mix="all")
    assert f"{finished} finished episodes of 4 policies" in shown(routing)
    switch = routing.button_group(key="facet_forks")
    assert (switch.label, switch.value) == ("Forks and live plays, requests, evolutions (5)", "hidden")
    assert switch.options == ["hidden", "included", "only forks"]


def test_a_play_that_two_decided_is_listed_by_its_own_name(store: Store) -> None:
    page = opened("episodes")
    names = list(page.dataframe[0].value["policy"])
    for others in (not_alone(["override"]), not_alone(["swapped"])):
        assert [name for name in names if name.endswith(others)] == [f"gen 30{others}"]
    alone = opened("episodes", policy=LAST, forks="with").dataframe[0].value
    assert set(alone["policy"]) == {"gen 30"}, "all are this policy's alone"
    options = page.selectbox(key="facet_policy").options
    assert f"gen 30 · {len(alone) - 2}" in options  # the forks are of the same list
    groups = opened("episodes", group="policy").dataframe[0].value
    (at,) = [place for place, name in enumerate(groups["group"]) if name == BY_TWO]
    assert groups["n"][at] == 2
    asked = parse_qs(urlsplit(groups["open"][at]).query)
    assert asked == {"q": [TWO_DECIDED]}
    assert len(opened("episodes", q=TWO_DECIDED).dataframe[0].value) == 2


def test_no_policys_figures_count_it(store: Store) -> None:
    n = len(store.episodes.page(EpisodeFilter(policy=LAST, run=PLAYED, status="finished"), limit=50).items)
    assert f"{n} finished episodes" in plainly("routing", policy=LAST)
    with_forks = plainly("routing", policy=LAST, forks="with")
    assert f"{n + 2} finished episodes" in with_forks
    costs = table_with(opened("verifier", part="cost", mix="all", forks="with"), "tokens_per_solved")
    by_policy = dict(zip(costs["name"], zip(costs["episodes"], costs["open"], strict=True), strict=True))
    assert by_policy["gen 30"][0] == n + 2
    assert by_policy[BY_TWO][0] == 2
    assert parse_qs(urlsplit(by_policy[BY_TWO][1]).query)["q"] == [TWO_DECIDED]
    matrix = opened("routing", part="tasks", by="policy", mix="all", forks="with")
    rows = table_with(matrix, "name")
    assert BY_TWO in list(rows["name"])
    table = opened("checkpoints", base=checkpoint(0).id, b=LAST).dataframe[0].value
    (link,) = (one for one in table["open"] if f"policy={LAST}&" in one)
    asked = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    assert store.episodes.page(EpisodeFilter.from_query(asked)).total.n == n
