"""An evolution's numbers: bands, shares, ranks, what rounding may turn, and figures that Plotly accepts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import plotly.graph_objects as go
import pytest

from core.analysis.head_lens import cosines, head_rows, rounding
from core.analysis.metrics import wilson_interval
from core.checkpoint import Checkpoint, reads_alike
from core.episode import Decision, EndReason, Role, Status
from core.errors import StoreError
from core.evolution.config import EvolveConfig
from core.evolution.fitness import EpisodeStatistics, GenerationStats
from core.learning import statistics_json, statistics_of_json
from storage.analysis.counterfactual import RecordedTurn, score
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import CandidateSummary, EpisodeSummary, RunStatus, UpdateSummary
from storage.store import Store, open_store
from tests.builders.checkpoints import checkpoint
from tests.builders.stores import begin_run, kept_generation
from tests.ui.web.evolutions import asked_of_learned
from ui.answers.asked import Asked, Side
from ui.answers.blocks import Areas, Estimates, Points, Strip, Trend
from ui.answers.evolution import choices, cosine_grid, distances_of, manners, population
from ui.answers.learning import Shown, fitness, pace, standings
from ui.runs.course import Lineage, binomial_error, control_words, rank_correlation, share_entropy, tasks_each
from ui.runs.settings.learning import EvolutionPlan
from ui.web.analysis.draw import figure_of

MODELS = ("alpha", "<b>beta</b>", "gamma")
HEADS = ["linear", "low-rank", "sparse", "block-diagonal-2", "block-diagonal-10", "turn-aware"]


def told(accuracy: float, n: int, worker: float = 0.5, **more: float) -> dict[str, Any]:
    """What episodes came to, as a run keeps it."""
    shares = {"alpha worker": worker, "<b>beta</b> verifier": 1 - worker}
    return {
        "accuracy": accuracy,
        "n": n,
        "missing": 0,
        "turns_mean": 3.0,
        "accept_rate": 0.5,
        "shares": shares,
        **more,
    }


def lineage(generations: int = 4, **evolution: Any) -> Lineage:
    """Fitness grows by a tenth; validated at the even ones; controls at the end."""
    entries = []
    for index in range(generations):
        stats: dict[str, Any] = {"calls": 10, "calls_saved": 30}
        if index:
            stats["episodes"] = told(index / 10, 24, 1 - index / 10, error=0.07)
        if index % 2 == 0:
            stats["validation"] = told(0.2 + index / 10, 50)
        if index == generations - 1:
            stats["controls"] = {"random walk": told(0.1, 50), "single:alpha T W V": told(0.3, 50)}
        mean = index / 10 if index else 0.2
        entries.append(
            kept_generation(
                "r1", index, mean + 0.2, mean, mean, 0.5, 24 * index, 2.0 * index, f"c{index}", stats
            )
        )
    config = EvolveConfig(**{"population": 6, "generations": generations - 1, **evolution})
    plan = EvolutionPlan("pocket", 1, 1, "pocket", "pocket", None, config, models=MODELS)
    return Lineage("r1", plan, tuple(entries))


def asked(store: Store, at: int, second: Lineage | None = None, **chosen: str) -> Asked:
    """A made-up evolution is asked about, and a second one beside it."""
    subject = Shown(lineage(), at, second)
    return Asked(store, (), Side("", "r1", EpisodeFilter()), choices=chosen, subject=subject)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    """A store that holds nothing."""
    with closing(open_store(tmp_path / "store.db")) as opened:
        yield opened


def test_a_candidates_band_is_binomial_and_the_means_knows_common_tasks(empty: Store) -> None:
    assert binomial_error(0.5, 8) == pytest.approx(math.sqrt(0.25 / 8))
    assert binomial_error(1.2, 8) == 0.0
    assert binomial_error(0.5, 0) == 0.0
    assert tasks_each(lineage(), 2) == 4
    assert tasks_each(lineage(), 0) is None
    error = binomial_error(0.3, 4)
    [trend] = fitness(asked(empty, 1)).blocks
    assert isinstance(trend, Trend)
    candidate, mean = trend.bands.values()
    assert candidate[2] == pytest.approx((3, 0.3 - error, 0.3 + error))
    assert mean[2] == pytest.approx((3, 0.3 - 0.07, 0.3 + 0.07))


def test_validations_and_controls_stand_with_their_intervals(empty: Store) -> None:
    one = asked(empty, 1)
    best = standings(replace(one, subject=Shown(lineage(5), 1, None)))
    assert best is not None
    assert best.sentence == (
        "Generation 4 (best, last): 60.0 % (46 to 72); best single: alpha (T W V): 30.0 % (19 to 44)."
    )
    [lines] = best.blocks
    assert isinstance(lines, Estimates)
    assert [(line.name, line.estimate.k, line.plain) for line in lines.lines] == [
        ("generation 4 (best, last)", 30, False),
        ("best single: alpha (T W V)", 15, True),
        ("generation 0 (start)", 10, True),
        ("random walk", 5, True),
    ]
    measured = statistics_of_json(EpisodeStatistics, told(0.6, 50))
    assert measured.interval == wilson_interval(30, 50)
    assert statistics_json(EpisodeStatistics, measured) == told(0.6, 50)
    assert control_words("random walk") == "random walk"
    [trend] = fitness(one).blocks
    assert isinstance(trend, Trend)
    names = ["best", "mean", "median", "validation", "random walk", "best single: alpha (T W V)"]
    assert [trace.name for trace in trend.traces] == names
    validated = trend.traces[3].points
    assert [(point.x, point.estimate.ci95) for point in validated] == [
        (0, wilson_interval(10, 50)),
        (2, wilson_interval(20, 50)),
    ]


def test_learners_are_named_and_an_older_run_is_sep_cma_es() -> None:
    assert lineage().learner == "sep-cma-es"
    assert lineage(learner="reinforce", population=1).learner_words == "REINFORCE"
    nested = lineage(learner="random-search")
    assert (nested.learner_words, nested.reach_words) == ("random search", "half a box")
    assert lineage().steps == {}


def test_shares_are_summed_and_their_entropy_is_in_nats() -> None:
    shares = {("a", Role.WORKER): 0.25, ("a", Role.THINKER): 0.25, ("b", Role.WORKER): 0.5}
    assert share_entropy(shares, "model") == pytest.approx(math.log(2))
    assert share_entropy(shares, "role") == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert share_entropy(shares, "pair") == pytest.approx(1.5 * math.log(2))


def test_rank_correlation_is_spearmans() -> None:
    assert rank_correlation([1, 20, 300, 4000], [2, 4, 8, 6]) == pytest.approx(0.8)
    assert rank_correlation([1, 2, 2, 3], [5, 6, 6, 70]) == pytest.approx(1.0), "ties share their ranks"
    assert rank_correlation([1, 2, 3], [1, 1, 1]) is None
    assert rank_correlation([1, 2], [1, 2]) is None


def test_distances_are_shown_only_where_every_candidate_has_one() -> None:
    assert distances_of(lineage().stats[1], 2) is None
    kept = GenerationStats.of({"distances": [1.0, 2.0]})
    assert distances_of(kept, 2) == (1.0, 2.0)
    assert distances_of(kept, 3) is None


# Heads


def made(kind: str, seed: int) -> Checkpoint:
    """Random weights of a kind."""
    return checkpoint(MODELS, 24, kind, seed=seed, generation=seed)


def decision(state: np.ndarray[Any, Any], **changes: Any) -> Decision:
    """One that holds only a state."""
    return Decision(model="alpha", role=Role.WORKER, hidden_state=state.astype("<f2").tobytes(), **changes)


def line(index: int) -> RecordedTurn:
    """A recorded turn."""
    episode = EpisodeSummary(
        "e1", "r1", "t", "<i>math</i>", "q", "x", None, None, Status.FINISHED, True, EndReason.ACCEPTED, 2, "",
        0, 0, 0.0, 0.0, None, None, (), 0.0, 1.0,
    )  # fmt: skip
    return RecordedTurn(episode, index, "alpha", Role.WORKER)


@pytest.mark.parametrize("kind", HEADS)
def test_rounding_never_moves_a_logit_further_than_its_bound(kind: str) -> None:
    rng = np.random.default_rng(3)
    states = (rng.normal(size=(200, 24)) * 10.0 ** rng.integers(-6, 3, (200, 1))).astype(np.float32)
    kept = states.astype("<f2").astype(np.float64)
    turns = [index % 5 for index in range(200)]
    one = made(kind, 1)
    vector = one.head_vector.astype(float)
    moved = np.abs(one.head.logits(states, vector, turns) - one.head.logits(kept, vector, turns))
    bound = rounding(one.head, kept, vector)
    assert (moved <= bound * (1 + 2**-9) + 1e-12).all()
    assert bound.shape == moved.shape


def test_a_choice_within_rounding_is_not_claimed() -> None:
    head = made("linear", 1)
    weight = np.zeros((6, 24), np.float32)
    weight[1, 0], weight[2, 0], weight[3, 0] = 1.0, 1.0 + 1e-5, 3.0
    close = head.with_vector(weight.ravel())
    weight[2, 0] = 1.5
    clear = head.with_vector(weight.ravel(), generation=2)
    found = score([close, clear], [line(0)], [decision(np.ones(24))])
    assert found.unsure.tolist() == [[True, False]]
    assert found.slots[0, 1] == 2
    assert found.leads[0, 1] == pytest.approx(0.5)
    assert found.deviation is None
    figure = figure_of(Strip(found, 1))
    assert figure.data[0].z[0][0] < 0
    assert "too close to tell" in figure.data[0].customdata[0][0]
    assert figure.data[1].text[0] == "?"


def test_what_was_masked_is_never_chosen() -> None:
    one = made("linear", 5)
    free = score([one], [line(0)], [decision(np.ones(24))])
    best = int(free.slots[0, 0])
    mask = tuple(slot != best for slot in range(3))
    found = score([one], [line(0)], [decision(np.ones(24), model_mask=mask)])
    assert found.slots[0, 0] != best


def test_states_are_shared_only_by_checkpoints_that_read_alike() -> None:
    ours = made("linear", 1).to_config()
    assert reads_alike(ours, made("turn-aware", 2).to_config())
    assert not reads_alike(ours, {**ours, "token_position": -1})
    assert not reads_alike(ours, {**ours, "encoder": {"name": "e", "digest": "other", "hidden_size": 24}})
    assert not reads_alike(ours, {**ours, "svf_layout": [["w", 2]]})
    assert not reads_alike(ours, {**ours, "models": ["alpha"]})


@pytest.mark.parametrize("kind", HEADS)
def test_rows_are_what_each_logit_reads(kind: str) -> None:
    one = made(kind, 4)
    rows = head_rows(one)
    if kind == "low-rank":
        assert rows is None
        return
    assert rows is not None
    state = np.random.default_rng(0).normal(size=(1, 24))
    z = one.head.logits(state, one.head_vector.astype(float), [0])
    turn = np.zeros_like(z)
    if kind == "turn-aware":
        turn = one.head.logits(np.zeros((1, 24)), one.head_vector.astype(float), [0])
    assert state @ rows[:, :24].T == pytest.approx(z - turn)
    found = cosines(rows)
    assert np.diag(found) == pytest.approx(np.ones(6))
    assert (np.abs(found) <= 1 + 1e-9).all()


@pytest.mark.parametrize("axis", ["gen", "episodes", "time"])
@pytest.mark.parametrize("by", ["pair", "model", "role"])
def test_every_picture_is_one_that_plotly_takes_and_draws_names_as_text(
    empty: Store, axis: str, by: str
) -> None:
    one = asked(empty, 1, lineage(6), x=axis, by=by)
    found = score([made("linear", 1), made("linear", 2)], [line(0)], [decision(np.ones(24))])
    rows = head_rows(made("linear", 1))
    assert rows is not None
    manner = manners(one)
    assert manner is not None
    shares = choices(one).blocks
    blocks = [*fitness(one).blocks, *pace(one).blocks, *shares, *manner.blocks, Strip(found, 1)]
    for block in (*blocks, cosine_grid(rows, [*MODELS, "t", "w", "v"])):
        figure = figure_of(cast(Any, block)).to_dict()
        go.Figure(figure)  # validates
        assert "<b>beta" not in str(figure)
        assert "<i>math" not in str(figure)
    for areas in shares:
        assert isinstance(areas, Areas)
        assert np.sum([area.shares for area in areas.areas], axis=0) == pytest.approx(1)


def test_a_row_of_zeros_has_no_direction() -> None:
    cells = cosine_grid(np.zeros((6, 24)), MODELS * 2).cells
    assert {cell.value for of in cells for cell in of} == {None}


def test_candidates_are_told_with_what_is_missing(empty: Store) -> None:
    stats = {"best": 0.75, "mean": 0.5, "median": 0.5, "sigma": 0.5, "distances": [1.0, 2.0, 3.0]}
    begin_run(empty, "r1", "evolve", {})
    candidates = [
        CandidateSummary(0, 0.5, 4),
        CandidateSummary(1, None, 4, 4),
        CandidateSummary(2, 0.75, 4, 1),
    ]
    empty.learning.add(UpdateSummary("r1", 1, 12, 1.0, stats=stats), candidates=candidates)
    answer = population(asked_of_learned(empty, "r1"))
    assert answer.sentence == (
        "3 candidates, best 75.0 %, mean 50.0 %. 1 have no fitness: all of their episodes are missing."
    )
    [points] = answer.blocks
    assert isinstance(points, Points)
    assert [(point.x, point.estimate.value, point.estimate.n) for point in points.points] == [
        (1.0, 0.5, 4),
        (3.0, 0.75, 3),
    ]
    go.Figure(figure_of(points).to_dict())  # validates


def test_a_ceiling_and_an_engine_change_only_while_nobody_works(empty: Store) -> None:
    store = empty
    store.runs.create("r1", "evolve", {"max_cost_usd": 1.0, "name": "x"}, owner="elsewhere:1")
    with pytest.raises(StoreError, match="stop it first"):
        store.runs.change("r1", {"max_cost_usd": 2.0})
    store.runs.change("r1", {"max_cost_usd": 2.0}, dead="elsewhere:1")
    store.runs.finish("r1", RunStatus.INTERRUPTED, owner="elsewhere:1")
    store.runs.change("r1", {"max_cost_usd": 3.0, "engine": "ray"})
    assert store.runs.get("r1").config == {"max_cost_usd": 3.0, "name": "x", "engine": "ray"}
