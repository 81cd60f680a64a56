"""What counts as free, and what is charged where a server tells no token counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
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
from tests.core.pool.faulty_server import Answer, Request, chat, faulty_server, ok, respond
from tests.core.pool.hosted_calls import QUICK
from tests.ui.endpoint.server import team
from ui.runs.spending import MeteredPool, Reckoned, is_free

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


CUT: Answer = (respond(chat("forty-two")[:40]),)
COUNTED: Answer = (respond(chat("forty-two").replace(b'"id"', b'"n": NaN, "id"')),)


@pytest.mark.parametrize("ceiling", [0.9, 1.0, 2.5, 7.4, None])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_answers_that_cannot_be_read_stay_below_the_ceiling(ceiling: float | None, streamed: bool) -> None:
    """Each try may be billed as the most that it can cost: all of them together stay below."""
    ask = Ask("m", Role.WORKER, (Message("user", "hi"),))
    with faulty_server(CUT) as server:
        spec = ModelSpec("m", base_url=server.url, price_in=1.0, price_out=10.0, max_tokens=1000)
        most = most_usd(spec, ask.messages)
        pool = HttpPool([spec], limits=QUICK)
        metered = MeteredPool(pool, None if ceiling is None else ceiling * most)
        expected = pytest.raises(BudgetError) if ceiling is not None else nullcontext()
        with expected:
            for _ in range(9):
                list(metered.stream(ask) if streamed else metered.ask([ask] * 3))
        pool.close()
    tries = len(server.requests)
    assert metered.spent_usd == pytest.approx(tries * most)
    assert metered.reckoned.unread_usd == pytest.approx(tries * most)
    if ceiling is None:
        assert tries == 2 * metered.reckoned.unread == (18 if streamed else 54)
    else:
        assert tries == int(ceiling), "as many as fit, and not one more"


def test_what_is_kept_free_for_another_try_is_given_back() -> None:
    """A call that needs no other try leaves its room to the next."""
    ask = Ask("m", Role.WORKER, (Message("user", "hi"),))
    with faulty_server(COUNTED, *[ok()] * 5) as server:
        spec = ModelSpec("m", base_url=server.url, price_in=0.0, price_out=10.0, max_tokens=1000)
        pool = HttpPool([spec], limits=QUICK)
        metered = MeteredPool(pool, 2.05 * most_usd(spec, ask.messages))
        replies = [reply for _ in range(5) for _, reply in metered.ask([ask])]
        pool.close()
    assert [one.text for one in replies] == ["fine"] * 5
    assert metered.spent_usd == pytest.approx(6 * 70e-6), "the unreadable one is charged by its counts"
    assert metered.reckoned == Reckoned(at_bound=0, unread=1, unread_usd=7 * 10.0 / 1e6)


def test_zeros_are_no_counts_and_the_ceiling_comes() -> None:
    zeros = chat("fine", usage=dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0))
    ask = Ask("m", Role.WORKER, (Message("user", "hi"),))
    with faulty_server((respond(zeros),)) as server:
        spec = ModelSpec("m", base_url=server.url, price_in=1.0, price_out=10.0, max_tokens=1000)
        pool = HttpPool([spec], limits=QUICK)
        metered = MeteredPool(pool, 3.5 * most_usd(spec, ask.messages))
        with pytest.raises(BudgetError):
            list(metered.ask([ask] * 9))
        pool.close()
    assert len(server.requests) == metered.reckoned.at_bound == 3
