"""The clients that the suite has, through the benchmark of clients."""

from __future__ import annotations

import pytest

from tests.bench import clients
from tests.bench._agents import Way

pytestmark = pytest.mark.usefixtures("forked_servers")


@pytest.mark.process
def test_anthropic_s_own_client_takes_a_task_to_its_end_in_every_way() -> None:
    """Loops with forced tools, its tool runner, and texts to stop at, streamed and not, by both tiers."""
    found = clients.measure("anthropic", policy="random")
    assert "not_kept" not in found, found
    [name] = {*found} - {"failed"}
    assert {tier: len(ways) for tier, ways in found[name].items()} == dict.fromkeys(clients.TIERS, 8)


def test_what_a_client_got_wrong_is_told_and_a_client_that_is_not_there_is_left_out() -> None:
    def fails() -> object:
        raise ValueError("no answer")

    assert clients._outcome(Way("w", lambda: 42)) == "ok: '42'"
    assert clients._outcome(Way("w", lambda: 99)) == "FAILED: no 42: '99'"
    assert clients._outcome(Way("w", fails)) == "FAILED: ValueError: no answer"
    missing = clients._outcomes("no-such-client", (), "http://127.0.0.1:9/v1", [])
    assert missing == ("no-such-client", {"left out": "it is not installed"})
