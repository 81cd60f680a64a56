"""A model that cannot be asked costs no request: others are asked in its place, and it is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.episode import Flag
from core.pool.circuits import FAILURES, OPEN_S, Circuits
from storage.analysis.health import model_health
from storage.files.interchange import import_file
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from tests.builders.interchange import export_runs
from tests.core.pool.faulty_server import Answer, Request, fail
from tests.ui.endpoint.server import PRICES, Served, episode_of, served, team
from ui.endpoint.tiers import Endpoint, Tier

TIERS = Endpoint(
    tier=(Tier("trinity", policy="round-robin", turns=3), Tier("alone", policy="single:a", turns=3))
)


def down(*models: str) -> Callable[[Request], Answer]:
    """Models of which these cannot be asked."""
    return lambda request: fail(503) if request.body["model"] in models else team()(request)


def asked_of(one: Served, model: str) -> int:
    return sum(request.body["model"] == model for request in one.models.requests)


@pytest.mark.integration
def test_no_request_is_lost_while_one_model_can_be_asked(tmp_path: Path) -> None:
    with served(tmp_path, down("a"), endpoint=TIERS, models="abc", entry=PRICES) as one:
        now = [1000.0]
        one.service.warm_up()
        one.service.engine.circuits.clock = lambda: now[0]
        for _ in range(FAILURES):
            answer = one.ask()
            assert answer.choices[0].message.content == "forty-two"
            trace = answer.model_extra["trinity"]
            assert [turn["model"] for turn in trace["turns"]] == ["a", "b", "c", "b"]
            assert trace["turns"][0]["flags"] == ["model_error", "failed_over"]
            assert "503" in trace["turns"][0]["error"]
            assert trace["end_reason"] == "accepted"
            assert trace["cost_usd"] == pytest.approx(3 * 25e-6)
            kept = episode_of(one, answer)
            assert (kept.turn_budget, len(kept.turns)) == (3, 4)
        assert asked_of(one, "a") == FAILURES
        assert "failed_over" in one.store.episodes.summary(kept.id).flags

        found = {row.model: row for row in model_health(one.store, EpisodeFilter(forks="with"))}
        assert (found["a"].replaced, found["b"].replaced) == (FAILURES, 0)
        rests_until = found["a"].rests_until
        assert rests_until is not None
        assert 0 < rests_until - one.store.now() <= OPEN_S
        assert found["b"].rests_until is None

        answer = one.ask()  # its circuit is open: it is not asked at all
        assert [turn["model"] for turn in answer.model_extra["trinity"]["turns"]] == ["b", "c", "b"]
        assert asked_of(one, "a") == FAILURES
        now[0] += OPEN_S + 1
        one.ask()  # one request tries it
        one.ask()
        assert asked_of(one, "a") == FAILURES + 1
        now[0] += OPEN_S + 1
        one.begin(team())
        assert one.ask().model_extra["trinity"]["turns"][0]["model"] == "a"
        assert one.ask().model_extra["trinity"]["turns"][0]["model"] == "a"


@pytest.mark.integration
def test_a_request_is_lost_only_where_nobody_is_left(tmp_path: Path) -> None:
    with served(tmp_path, down("a", "b"), endpoint=TIERS, entry=PRICES) as one:
        for model in ("trinity", "alone"):
            refusal = one.refused(model=model)
            assert (refusal.status_code, refusal.code) == (502, "pool_unavailable")
            assert "503" in refusal.message
        before = len(one.models.requests)
        for _ in range(FAILURES):  # with every circuit open, models are tried rather than nobody
            assert one.refused().code == "pool_unavailable"
        assert len(one.models.requests) > before


@pytest.mark.integration
def test_the_last_turn_is_a_workers_also_after_failures(tmp_path: Path) -> None:
    """A failed turn is none of the budget's, so the role of the last one is as it would have been."""
    tiers = Endpoint(tier=(Tier("trinity", policy="random", turns=2),))
    with served(tmp_path, down("a"), endpoint=tiers, models="abcd", entry=PRICES) as one:
        for seed in range(12):
            answer = one.ask(seed=seed)
            assert answer.choices[0].message.content == "forty-two"
            turns = answer.model_extra["trinity"]["turns"]
            assert len([turn for turn in turns if "failed_over" not in turn["flags"]]) <= 2


def test_an_episode_with_failed_turns_is_exported_and_read_again(tmp_path: Path, store: Store) -> None:
    with served(tmp_path, down("a"), endpoint=TIERS, models="abc", entry=PRICES) as one:
        kept = episode_of(one, one.ask())
        one.service.close()
        file = tmp_path / "served.jsonl.gz"
        export_runs(one.store, [kept.run_id], file)
        import_file(store, file)
    again = store.episodes.get(kept.id)
    assert again == kept
    assert again.task.conversation == kept.task.conversation != ()
    assert Flag.FAILED_OVER in again.turns[0].flags


def test_a_circuit_opens_after_failures_in_a_row_and_lets_one_try_through() -> None:
    now = [0.0]
    circuits = Circuits(lambda: now[0])
    circuits.failed("a")
    circuits.failed("a")
    circuits.replied("a")
    for _ in range(FAILURES - 1):
        circuits.failed("a")
    assert not circuits.is_open("a")
    circuits.failed("a")
    assert circuits.is_open("a")
    assert not circuits.is_open("b")
    now[0] += OPEN_S
    assert not circuits.is_open("a")  # half-open
    circuits.asked("a")
    assert circuits.is_open("a")  # while that one is under way
    circuits.failed("a")
    assert circuits.is_open("a")
    now[0] += OPEN_S
    circuits.asked("a")
    circuits.replied("a")
    assert not circuits.is_open("a")


@pytest.mark.integration
def test_what_is_too_long_for_one_model_goes_to_one_with_a_larger_window(tmp_path: Path) -> None:
    def reads_little(request: Request) -> Answer:
        words = "This model's maximum context length is 400 tokens."
        return fail(400, words) if request.body["model"] == "a" else team()(request)

    with served(tmp_path, reads_little, endpoint=TIERS, models="abc", entry=PRICES) as one:
        long = " ".join(["word"] * 3000)
        one.service.warm_up()
        for _ in range(FAILURES):
            answer = one.ask(long)
            assert answer.choices[0].message.content == "forty-two"
            turns = answer.model_extra["trinity"]["turns"]
            assert [turn["model"] for turn in turns] == ["a", "b", "c", "b"]
            assert "cannot hold a prompt this long" in turns[0]["error"]
        assert not one.service.engine.circuits.is_open("a"), "others may send it less"
        refusal = one.refused(long, model="alone")
        assert (refusal.status_code, refusal.code) == (400, "context_length_exceeded")
        assert "too long for every model" in refusal.message


@pytest.mark.integration
def test_a_conversation_longer_than_every_window_is_a_400_and_asks_nobody(tmp_path: Path) -> None:
    entry = f"{PRICES}\ncontext_window = 400\nmax_tokens = 100"
    with served(tmp_path, team(), endpoint=TIERS, models="abc", entry=entry) as one:
        refusal = one.refused(" ".join(["word"] * 3000))
        assert (refusal.status_code, refusal.code) == (400, "context_length_exceeded")
        assert "send less of it" in refusal.message
        assert one.models.requests == []
        assert one.ask().choices[0].message.content == "forty-two"
