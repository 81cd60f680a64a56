"""Is what a run was billed counted, once and for good, whatever became of the replies?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from storage.recorder import Recorder
from tests.core.pool.faulty_server import Answer, chat, respond
from tests.ui.sums import Sums, sums

pytestmark = pytest.mark.integration

#: What a call costs, in US dollars.
CALL_USD = 18 * 10 / 1e6
#: An answer that breaks off, without counts of tokens: it is charged as the most that it can cost.
CUT: Answer = (respond(chat("forty-two")[:40]),)


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sums]:
    with sums(tmp_path, monkeypatch, n=2) as world:
        world.price(10.0)
        yield world


def test_a_run_that_taught_its_policies_is_resumed_at_what_it_has_spent(few: Sums) -> None:
    few.add_tasks("validation", 6)
    policies = ("--policy", "by-family", "--policy", "single:adder")
    stopped = few.run(*policies, "--validate", 6, "--max-cost", "0.0746")
    assert "could exceed the ceiling" in stopped.err, stopped.err
    run, spent = few.last_run()
    chosen_for = run.config["choice_usd"]
    assert spent > chosen_for > 0
    for _ in range(2):
        again = few.trinity("run", "--resume", run.id, "--max-cost", "0.0746")
        assert "could exceed the ceiling" in again.err, again.err
        run, later = few.last_run()
        assert (run.config["choice_usd"], later) == pytest.approx((chosen_for, spent))


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OperationalError("insert", {}, Exception("locked"))])
def test_a_reply_that_could_not_be_stored_counts_as_the_most_that_it_could_cost(
    few: Sums, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    store_reply: Callable[..., Any] = Recorder._replied

    def replied(*given: Any) -> None:
        store_reply(*given)
        monkeypatch.setattr(Recorder, "_replied", store_reply)
        raise fault

    monkeypatch.setattr(Recorder, "_replied", replied)
    assert few.run("--policy", "single:adder", "--max-cost", 50).code in (1, 130)
    run, lost = few.last_run()
    billed = len(few.server.requests)
    assert lost >= billed * CALL_USD > 0
    few.done("run", "--resume", run.id)
    _, spent = few.last_run()
    assert spent == pytest.approx(lost + (len(few.server.requests) - billed) * CALL_USD)


@pytest.mark.parametrize("policy", ["single:adder", "conductor:fixed:single:adder", "by-family"])
def test_calls_that_came_to_nothing_count_until_their_ceiling_is_reached(few: Sums, policy: str) -> None:
    """By-family is chosen by replies that a ledger keeps, which holds no failures."""
    few.add_tasks("validation", 6)
    few.server.answer = lambda request: CUT
    few.run("--policy", policy, "--validate", 6, "--max-cost", "0.5")
    run, spent = few.last_run()
    assert spent > 0
    with few.kept() as store:
        assert store.runs.unread_usd(run.id) == pytest.approx(spent)
    asked = len(few.server.requests)
    for _ in range(3):
        few.trinity("run", "--resume", run.id, "--max-cost", "0.5")
    _, at_last = few.last_run()
    assert at_last <= 0.5
    assert len(few.server.requests) / asked == pytest.approx(at_last / spent, rel=0.2)
