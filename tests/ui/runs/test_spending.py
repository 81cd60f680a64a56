"""What counts as free, and what is charged where a server tells no token counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from core.episode import (
    Ask,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Failure,
    Message,
    Reply,
    Role,
    Status,
    Task,
    Usage,
)
from core.errors import BudgetError
from core.play.drive import drive_many
from core.play.policies import PLAN_WORK_CHECK, single_policy
from core.pool.costs import most_usd
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from core.tasks.graders import grade_many
from tests.core.pool.faulty_server import Answer, Request, faulty_server
from tests.ui.endpoint.server import team
from ui.runs.spending import MeteredPool, is_free

HERE, THERE = "http://127.0.0.1:8000/v1", "https://api.example.com/v1"


@pytest.mark.parametrize(
    ("spec", "free"),
    [
        (ModelSpec("m", base_url=HERE), True),
        (ModelSpec("m", base_url=HERE, api_key_env="KEY"), False),  # a gateway to others
        (ModelSpec("m", base_url=HERE, price_in=1.0, price_out=1.0), False),
        (ModelSpec("m", base_url=HERE, price_in=1.0), False),
        (ModelSpec("m", base_url=THERE), False),
        (ModelSpec("m", base_url=THERE, price_in=0.0, price_out=0.0), True),
        (ModelSpec("m", provider="pocket"), True),
    ],
)
def test_free_is_what_has_no_price_on_this_machine_or_a_price_of_nothing(spec: ModelSpec, free: bool) -> None:
    assert is_free(spec) is free


@dataclass
class _Uncounted:
    """A pool whose server tells no token counts, or fails."""

    specs: tuple[ModelSpec, ...]
    error: Failure | None = None

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        for index, _ in enumerate(asks):
            yield index, Reply("42", usage=Usage(), error=self.error)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        yield Reply("42", usage=Usage(), error=self.error)


def test_a_reply_without_token_counts_is_charged_at_its_bound() -> None:
    spec = ModelSpec("m", base_url=THERE, price_in=1.0, price_out=10.0, max_tokens=1000)
    ask = Ask("m", Role.WORKER, (Message("user", "hi"),))
    bound = most_usd(spec, ask.messages)
    metered = MeteredPool(_Uncounted((spec,)), ceiling_usd=2.5 * bound)
    assert [reply.text for _, reply in metered.ask([ask])] == ["42"]
    assert [one for one in metered.stream(ask) if isinstance(one, Reply)]
    assert metered.spent_usd == pytest.approx(2 * bound)
    assert metered.reckoned.at_bound == 2
    with pytest.raises(BudgetError):
        list(metered.ask([ask]))
    flight = MeteredPool(_Uncounted((spec,)), ceiling_usd=2.5 * bound).flight()
    flight.add([ask] * 3)  # two fit beside each other, and then nothing does
    assert [number for number, _ in flight.ready()] == [0, 1]
    assert flight.under_way == 1
    with pytest.raises(BudgetError):
        list(flight.ready())
    failing = MeteredPool(_Uncounted((spec,), Failure("infrastructure", "Down.")), ceiling_usd=bound)
    list(failing.ask([ask]))
    assert (failing.spent_usd, failing.reckoned.at_bound) == (0.0, 0)


def test_near_a_ceiling_what_was_begun_ends_whole() -> None:
    """Of episodes that are played side by side, under a ceiling that pays for half of them, none is cut."""
    accepts = [number % 3 == 0 for number in range(60)]

    def answer(request: Request) -> Answer:
        number = int(re.findall(r"Task (\d+)", str(request.body))[0])
        return (0.01, *team(accept=accepts[number])(request))

    tasks = [Task(f"t{number}", f"Task {number}: what is it?", "5") for number in range(len(accepts))]
    episodes = [Episode(f"e{one.id}", "r", one, "single:m", ("m",), turn_budget=6) for one in tasks]
    ceiling = 7e-6 * sum(3 if accept else 6 for accept in accepts) / 2
    happened: list[Event] = []
    with faulty_server(answer) as server:
        spec = ModelSpec("m", base_url=server.url, price_in=0.0, price_out=1.0, max_tokens=20, concurrency=8)
        metered = MeteredPool(HttpPool([spec]), ceiling_usd=ceiling)
        policy = single_policy("m", ("m",), PLAN_WORK_CHECK)
        with pytest.raises(BudgetError, match="The next episode could exceed the ceiling"):
            happened.extend(drive_many(episodes, policy, metered, grade_many))
    ended = [one.episode for one in happened if isinstance(one, EpisodeFinished)]
    assert len(ended) == sum(isinstance(one, EpisodeStarted) for one in happened)
    assert all(one.status is Status.FINISHED for one in ended)
    assert 0.7 * ceiling < metered.spent_usd <= ceiling
    assert metered.spent_usd == pytest.approx(len(server.requests) * 7e-6)
    assert server.most_in_flight > 4, "they are still played side by side"
