"""Samples and one's own episodes: what a filter shows of either, and that neither is counted as the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storage.analysis.routing import traffic_of
from storage.analysis.standings import PolicySide, figures, policies_with_episodes, sides_of
from storage.filters.episode_filter import WHOLE_STORE, EpisodeFilter, as_expression, filter_of_address
from storage.recorder import record
from storage.rows.summaries import PURPOSES, RunKind
from storage.store import Store
from tests.builders.recorded import episode, events_of
from tests.builders.stores import begin_run, filled_store, mark_samples

SAMPLE, OWN = "rsample", "rown"


def played(store: Store, run: str, names: str, policy: str = "random", kind: RunKind = "run") -> None:
    """A run with an episode for each letter."""
    begin_run(store, run, kind, {})
    for name in names:
        one = replace(episode(f"e-{name}"), run_id=run, policy=policy, generation=None)
        list(record(store, events_of(one)))
    store.runs.finish(run)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with three sample episodes."""
    opened = filled_store(tmp_path / "trinity.db", _samples)
    yield opened
    opened.close()


def _samples(store: Store, _: int) -> None:
    played(store, SAMPLE, "abc")
    mark_samples(store, SAMPLE)


def listed(store: Store, where: EpisodeFilter = EpisodeFilter()) -> set[str]:  # noqa: B008
    return {one.id for one in store.episodes.page(where).items}


SAMPLES = {"e-a", "e-b", "e-c"}


def test_samples_are_shown_until_there_is_an_episode_of_ones_own(store: Store) -> None:
    assert listed(store) == SAMPLES
    assert store.episodes.facets().samples == 0
    played(store, OWN, "d")
    assert listed(store) == {"e-d"}
    facets = store.episodes.facets()
    assert facets.samples == 3
    assert [one.value for one in facets.run] == [OWN]
    assert store.runs.get(SAMPLE).is_sample
    assert not store.runs.get(OWN).is_sample
    assert store.runs.sample_ids() == {SAMPLE}


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        (EpisodeFilter(samples="with"), {*SAMPLES, "e-d"}),
        (EpisodeFilter(samples="only"), SAMPLES),
        (EpisodeFilter(samples="without"), {"e-d"}),
        (EpisodeFilter(run=SAMPLE), SAMPLES),
        (EpisodeFilter(q="sample == True"), SAMPLES),
        (EpisodeFilter(q='id == "e-a"'), {"e-a"}),
        (EpisodeFilter(q=as_expression(EpisodeFilter(samples="with"))), {*SAMPLES, "e-d"}),
        (WHOLE_STORE, {*SAMPLES, "e-d"}),
        (EpisodeFilter(samples="nonsense"), set()),
    ],
)
def test_a_filter_says_which_it_means(store: Store, where: EpisodeFilter, shown: set[str]) -> None:
    played(store, OWN, "d")
    assert listed(store, where) == shown
    assert filter_of_address(where.to_query(), None) in (where, where.without("samples"))


def test_facets_say_how_many_samples_there_are_whichever_way_they_are_counted(store: Store) -> None:
    played(store, OWN, "d")
    for samples in ("with", "only", "without"):
        assert store.episodes.facets(EpisodeFilter(samples=samples)).samples == 3
    assert store.episodes.facets(EpisodeFilter(run=SAMPLE)).samples == 0  # it was asked for by name


def test_a_policy_that_only_samples_played_is_still_found(store: Store) -> None:
    played(store, OWN, "d", policy="round-robin")
    assert listed(store, EpisodeFilter(policy="random")) == SAMPLES
    assert listed(store, EpisodeFilter(policy="round-robin")) == {"e-d"}


def test_what_a_run_is_for_says_what_its_episodes_count_as(store: Store) -> None:
    for letter, kind in zip("defghijkl", PURPOSES, strict=True):
        played(store, f"r{kind}", letter, kind=kind)
    of_kind = {kind: f"e-{letter}" for letter, kind in zip("defghijkl", PURPOSES, strict=True)}
    for purpose in set(PURPOSES.values()):
        own = {name for kind, name in of_kind.items() if PURPOSES[kind] == purpose}
        assert listed(store, EpisodeFilter(q=f'purpose == "{purpose}"')) == own
    assert listed(store, EpisodeFilter(q='purpose == "sample"')) == SAMPLES
    assert listed(store, EpisodeFilter(q="measured")) == {of_kind["run"], of_kind["reproduction"]}
    assert listed(store, EpisodeFilter(q="measured", samples="with")) == {
        of_kind["run"],
        of_kind["reproduction"],
        *SAMPLES,
    }
    assert listed(store, EpisodeFilter(q="evolution")) == {of_kind["evolve"], of_kind["train"]}
    assert listed(store, EpisodeFilter(q="fork")) == {of_kind["fork"]}


@pytest.mark.parametrize("kind", ["live", "fork", "serve"])
def test_samples_stay_beside_what_is_no_recorded_run(store: Store, kind: RunKind) -> None:
    played(store, OWN, "d", kind=kind)
    assert listed(store, EpisodeFilter(forks="with")) == {*SAMPLES, "e-d"}
    assert listed(store) == (SAMPLES if kind == "fork" else {*SAMPLES, "e-d"})
    assert store.episodes.facets().samples == 0
    assert listed(store, EpisodeFilter(forks="without")) == SAMPLES
    assert traffic_of(store, EpisodeFilter())[""].episodes == 3


def test_an_evolution_takes_the_place_of_samples_in_lists_and_not_in_totals(store: Store) -> None:
    played(store, OWN, "d", kind="evolve")
    assert listed(store) == {"e-d"}
    assert store.episodes.facets().samples == 3
    assert listed(store, EpisodeFilter(forks="without")) == SAMPLES
    assert traffic_of(store, EpisodeFilter())[""].episodes == 3


def test_totals_never_mix_the_two(store: Store) -> None:
    played(store, OWN, "de")
    assert traffic_of(store, EpisodeFilter())[""].episodes == 2
    assert traffic_of(store, EpisodeFilter(samples="with"))[""].episodes == 5
    candidates = policies_with_episodes(store)
    assert {(one.run, one.sample, one.n) for one in candidates} == {(OWN, False, 2), (SAMPLE, True, 3)}
    [side] = sides_of(candidates, "random")
    assert figures(store, [side])[0].summary.n == 2
    [named] = sides_of(candidates, "random", SAMPLE)
    assert figures(store, [named])[0].summary.n == 3
    assert figures(store, [PolicySide("random")])[0].summary.n == 2
