"""`trinity run` with models that cost money: estimates, ceilings, and what is never paid for twice."""

from __future__ import annotations

from contextlib import closing

import pytest

from core.evolution.cycles import CYCLES
from storage.store import open_store
from tests.ui.cli.test_run import last_run, validation_tasks
from tests.ui.sums import Sums
from ui.runs import wiring


def test_paid_models_ask_for_a_ceiling(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(10.0)
    result = world.run("--policy", "random")
    assert result.code == 1
    assert "up to 60 calls, at most $" in result.err
    assert "set a ceiling with --max-cost USD" in result.err
    assert world.server.requests == []
    assert open_store(world.store).runs.list() == []


@pytest.fixture
def paid(world: Sums, monkeypatch: pytest.MonkeyPatch) -> Sums:
    """The world with models that cost money: a call at most $0.0418, really about $0.0001."""
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(10.0)
    return world


def test_a_ceiling_is_never_exceeded_and_the_run_can_go_on(paid: Sums) -> None:
    result = paid.run("--policy", "round-robin", "--max-cost", "0.043", "--json")
    assert "Go on with" in result.err
    run, spent = last_run(paid)
    assert run.status == "interrupted"
    assert 0 < spent <= 0.043
    calls = len(paid.server.requests)
    again = paid.trinity("run", "--resume", run.id, "--max-cost", "0.043")
    assert f"ceiling of $0.0430 (${spent:.4f} spent)" in again.err, "a resumed run knows what it has spent"
    assert len(paid.server.requests) == calls
    rows = paid.trinity("run", "--resume", run.id, "--max-cost", "10", "--json").json
    assert rows[0]["n"] == 12
    assert len(paid.server.requests) == 6 * 3 + 6 * 5, "nothing is paid for twice"


def test_a_ceiling_that_a_whole_wave_could_exceed_is_still_used_up(paid: Sums) -> None:
    result = paid.run("--policy", "round-robin", "--max-cost", "0.25", "--json")
    assert result.json[0]["n"] == 12, result.err
    assert "Stopped" not in result.err


def test_choosing_role_cycles_is_paid_below_the_ceiling(paid: Sums) -> None:
    validation_tasks(paid)
    result = paid.run("--policy", "single:adder", "--validate", 6, "--max-cost", "0.0001")
    assert result.code == 1
    assert "could exceed the ceiling of $0.0001" in result.err
    assert paid.server.requests == []


def test_a_run_begins_at_what_choosing_its_cycles_cost(paid: Sums) -> None:
    validation_tasks(paid)
    result = paid.run("--policy", "single:adder", "--validate", 6, "--max-cost", "0.5", "--n", 1)
    assert result.code == 0, result.err
    run, spent = last_run(paid)
    assert run.config["choice_usd"] > 10 * spent > 0


def test_trials_of_role_cycles_are_kept_as_they_come_and_never_paid_twice(paid: Sums) -> None:
    validation_tasks(paid)
    arguments = ("--policy", "single:adder", "--validate", 6, "--n", 2, "--max-cost")
    assert paid.run(*arguments, "9").code == 0
    undisturbed = len(paid.server.requests)
    (wiring.data_folder() / "cycles.json").unlink()
    paid.server.requests.clear()
    short = paid.run(*arguments, "0.05")
    assert "The next episode could exceed the ceiling" in short.err
    begun, _ = last_run(paid)
    assert 20 < len(paid.server.requests) < undisturbed
    again = paid.trinity("run", "--resume", begun.id, "--max-cost", "9")
    assert f"Up to {5 * (len(CYCLES) * 6 + 2)} calls" in again.err, "what is tried is part of the estimate"
    assert f"for single:adder: {len(CYCLES) * 6} episodes" in again.err
    assert "choosing cycles $" in again.err
    assert "single:adder plays worker, verifier" in again.err
    assert len(paid.server.requests) == undisturbed
    done, spent = last_run(paid)
    assert done.config["choice_usd"] + spent == pytest.approx(undisturbed * 18 * 10 / 1e6)
    with closing(open_store(paid.store)) as store:
        assert store.learning.paid_replies(done.id).recall() == []


def test_an_unknown_price_cannot_be_kept_below_a_ceiling(
    world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    world.price(10.0)
    file = world.folder / "pool.toml"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "price" not in line))
    result = world.run("--policy", "random", "--max-cost", "1")
    assert result.code == 1
    assert "The price of adder, guesser is not known" in result.err
