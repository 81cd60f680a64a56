"""What requests cost beside the best single model: by its calls in them, by its own run, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.analysis.metrics import Mean
from core.episode import EndReason, Episode, Protocol, Status, Usage
from storage.analysis.requests import (
    FEWEST_CALLS,
    Beside,
    Call,
    Request,
    added_up,
    beside_single,
    best_single,
    prices_of,
    read_requests,
    single_calls,
)
from storage.analysis.standings import Setting
from storage.filters.episode_filter import EpisodeFilter
from storage.recorder import record
from storage.rows.engine import writing
from storage.rows.schema import served, turn
from storage.store import Store
from tests.builders.recorded import episode, events_of
from tests.builders.stores import POOL, begin_run, new_store, record_finished_run

SENT, WRITTEN = 2e-6, 8e-6


def call(tokens_in: int, tokens_out: int, bare_in: int | None = None) -> Call:
    usd = SENT * tokens_in + WRITTEN * tokens_out
    return Call("b", usd, tokens_in, tokens_out, tokens_in if bare_in is None else bare_in)


def request(cost_usd: float | None, of: Call | None = None, bare_in: int = 100) -> Request:
    """A request that is over, with one call to the model b as a Worker, or none."""
    made = Request(
        *("e", None, "chat", "trinity", 0.0, 0.0, Status.FINISHED, EndReason.ACCEPTED, "random"),
        *(Setting(3, False, Protocol.PAPER, POOL), cost_usd, 1_000, False, False, 1.0, 0.1, 0.1),
    )
    made.bare_in = bare_in
    made.calls = {} if of is None else {"b": of}
    return made


def test_prices_are_read_off_calls() -> None:
    found = prices_of([call(100, 20), call(300, 10), call(50, 90)])
    assert found == pytest.approx((SENT, WRITTEN))
    assert prices_of([Call("b", None, 100, 20, 100)]) is None
    assert prices_of([]) is None


def test_a_call_counts_without_the_tokens_of_earlier_turns() -> None:
    calls = [call(500 + 10 * n, 40 + n, bare_in=100 + n) for n in range(FEWEST_CALLS)]
    found = beside_single([request(0.01, one) for one in calls], "b", [], in_dollars=True)
    alone = np.mean([SENT * one.bare_in + WRITTEN * one.tokens_out for one in calls])
    assert found.alone == pytest.approx(alone)
    assert found.saved is not None
    assert found.saved.mean == pytest.approx(alone - 0.01)
    assert (found.calls, found.by_run) == (FEWEST_CALLS, False)


def test_with_too_few_calls_its_own_run_tells_how_long_its_answers_are() -> None:
    few = [request(0.01, call(500, 40, 100), bare_in=200) for _ in range(FEWEST_CALLS - 1)]
    assert beside_single(few, "b", [], in_dollars=True) == Beside(len(few), 0.01, len(few))
    own_run = [call(60, 30), *[call(50, 30 + n % 3) for n in range(1, FEWEST_CALLS)]]
    found = beside_single(few, "b", own_run, in_dollars=True)
    written = np.mean([one.tokens_out for one in own_run])
    assert found.by_run
    assert found.alone == pytest.approx(SENT * 200 + WRITTEN * written)
    tokens = beside_single(few, "b", own_run, in_dollars=False)
    assert tokens.each == 1_000
    assert tokens.alone == pytest.approx(200 + written)


@pytest.mark.parametrize("share", [0.15, 1.0])
def test_the_interval_holds_in_95_of_100_days(share: float) -> None:
    """Also where each request's own call is part of what it cost, so that both means move together."""
    rng, held, days, n = np.random.default_rng(7), 0, 400, 200
    base, written = 2e-4, 60.0
    truth = (SENT * 100 + WRITTEN * written) - (base + (SENT * 100 + WRITTEN * written) * share)
    for _ in range(days):
        found = []
        for longer, calls in zip(rng.exponential(written, n), rng.random(n) < share, strict=True):
            one = Call("b", SENT * 100 + WRITTEN * longer, 100, longer, 100)
            others = base * rng.exponential()
            found.append(request(others + (one.cost_usd or 0.0) * calls, one if calls else None))
        saved = beside_single(found, "b", [], in_dollars=True).saved
        held += saved is not None and saved.low <= truth <= saved.high
    assert 0.92 <= held / days <= 0.98


def test_savings_of_tiers_add_up_where_each_is_known() -> None:
    one, other = (
        Beside(10, 2.0, 10, 3.0, Mean(1.0, 0.5, 1.5)),
        Beside(20, 2.0, 20, 1.0, Mean(-1.0, -1.2, -0.8)),
    )
    found = added_up([one, other])
    assert found is not None
    assert found.mean == pytest.approx(10 - 20)
    assert (found.high - found.low) / 2 == pytest.approx(np.hypot(5.0, 4.0))
    assert added_up([one, Beside(3, 1.0, 0)]) is None
    assert added_up([]) is None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(new_store(tmp_path / "trinity.db", now=lambda: 1_000.0)) as store:
        yield store


def alone(run: str, number: int, policy: str, right: bool) -> Episode:
    """An episode of one policy, as a run that is over holds it."""
    made = episode(f"{run}-{policy}-{number}", ("35", "35"), said=None)
    turns = tuple(replace(one, reply=replace(one.reply, usage=Usage(30, 12, 0.001))) for one in made.turns)
    return replace(made, run_id=run, policy=policy, correct=right, turns=turns)


def test_the_best_single_model_is_of_the_run_in_which_most_models_played_alone(store: Store) -> None:
    assert best_single(store, POOL) is None
    record_finished_run(store, "r1", "run", {}, [alone("r1", n, "single:z", True) for n in range(5)])
    assert best_single(store, POOL) is None, "one model alone is not the best of several"
    shares = {"single:a": 2, "single:b": 4, "random": 5}
    played = [alone("r2", n, name, n < right) for name, right in shares.items() for n in range(5)]
    record_finished_run(store, "r2", "run", {}, played)
    best = best_single(store, POOL)
    assert best is not None
    assert (best.model, best.right, best.n, best.models, best.run) == ("b", 4, 5, 2, "r2")
    assert best_single(store, "another pool") is None
    calls = single_calls(store, best)
    assert [(one.model, one.tokens_in, one.tokens_out) for one in calls] == [("b", 30, 12)] * 5


def test_calls_side_by_side_are_waited_for_once_and_old_requests_have_no_parts(store: Store) -> None:
    begin_run(store, "r1", "serve", {})
    made = replace(episode("r1-00000", ("35", "35"), said=None), run_id="r1")
    list(record(store, events_of(made)))
    store.endpoint.note(made.id, None, "chat", "trinity", at=990.0)
    with writing(store.engine) as connection:
        for index, (started, latency_s) in enumerate([(1000.0, 4.0), (1001.0, 1.0), (1003.0, 3.0)]):
            row = turn.update().where(turn.c.episode_id == made.id, turn.c.idx == index)
            # The first is a Verifier before any answer: nobody was asked, and nothing sent.
            connection.execute(row.values(started=started, latency_s=latency_s, tokens_in=70 * index))
        connection.execute(turn.delete().where(turn.c.idx > 2))
    found = read_requests(store, EpisodeFilter(), None)
    [one] = found.found
    assert one.waiting_s == pytest.approx(6.0)
    assert one.whole_s == pytest.approx(10.0), "it was asked ten seconds before it was begun"
    assert (one.deciding_s, one.recording_s, one.rest_s) == (None, None, None)
    assert one.bare_in == 70
    with writing(store.engine) as connection:
        store.endpoint.note_times(made.id, 1.0, 0.5, connection)
    [one] = read_requests(store, EpisodeFilter(), None).found
    assert one.rest_s == pytest.approx(10.0 - 6.0 - 1.0 - 0.5)
    assert read_requests(store, EpisodeFilter(), 1_001.0).found == []
    with writing(store.engine) as connection:
        connection.execute(served.update().values(at=1_000.0))
    store.episodes.delete([made.id])
    gone = read_requests(store, EpisodeFilter(), None)
    assert (gone.found, gone.removed) == ([], 1)
