"""What counts as free, what is charged where a server tells no token counts; and does what is expected come near what
is then spent?"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import insert

from core.coordinator.encoder import Encoder, load_encoder
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
from core.evolution.config import EvolveConfig
from core.play.drive import drive_many
from core.play.policies import PLAN_WORK_CHECK, single_policy
from core.pocket import threads
from core.pool.costs import bound_usd
from core.pool.hosted import HttpPool
from core.pool.pool import BackgroundPool
from core.pool.spec import ModelSpec, Service
from core.tasks.graders import grade_many
from storage.analysis.costs import CallMeans, PoolMeans, pool_means, shared_calls
from storage.rows.engine import writing
from storage.rows.schema import candidate, learning_update
from storage.store import Store, open_store
from tests.builders.stores import begin_run, empty_store, new_store
from tests.core.pool.faulty_server import (
    QUICK,
    Answer,
    FaultyServer,
    Request,
    chat,
    faulty_server,
    ok,
    respond,
)
from tests.ui.endpoint.server import CALL_USD, PRICES, role_of, team
from tests.ui.pages import command
from ui.runs import expectation as expectations
from ui.runs.expectation import Part, expectation, longest, reading_time
from ui.runs.plans import plan_of
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.learning import EvolutionPlan
from ui.runs.spending import MeteredPool, Reckoned, is_free
from ui.runs.wiring import pool_specs

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
    bound = bound_usd(spec, ask)
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


@dataclass
class _Slow(BackgroundPool):
    """A pool whose calls are answered by hand; `began` is told of each as it begins."""

    specs: tuple[ModelSpec, ...]
    began: Callable[[], object]
    ahead: int = 8
    calls: list[Future[Reply]] = field(default_factory=list)

    def begin(self, ask: Ask, on_piece: Callable[[str], None] | None = None) -> Future[Reply]:
        self.began()
        self.calls.append(Future())
        return self.calls[-1]


def test_what_calls_can_cost_is_noted_before_they_begin_and_kept_where_no_reply_comes() -> None:
    spec = ModelSpec("m", base_url=THERE, price_in=1.0, price_out=10.0, max_tokens=1000)
    ask = Ask("m", Role.WORKER, (Message("user", "hi"),))
    bound, noted = bound_usd(spec, ask), [(0.0, 0.0)]
    slow = _Slow((spec,), began=lambda: at_begin.append(noted[-1]))
    at_begin: list[tuple[float, float]] = []
    metered = MeteredPool(slow, None, note=lambda *usd: noted.append(usd))
    flight = metered.flight()
    flight.add([ask] * 4)
    assert [*flight.ready(wait=False)] == []
    assert at_begin == [(4 * bound, 0.0)] * 4
    slow.calls[1].set_result(Reply("42", usage=Usage(cost_usd=0.5)))
    assert [number for number, _ in flight.ready(wait=False)] == [1]
    assert noted[-1] == (4 * bound, 0.0), "its reply may not be stored yet"
    flight.cancel(0)
    [*flight.ready(wait=False)]
    assert noted[-1] == pytest.approx((2 * bound, bound))
    flight.close()
    metered.note()
    assert noted[-1] == pytest.approx((0.0, 3 * bound))
    assert metered.spent_usd == pytest.approx(0.5 + 3 * bound)
    assert metered.replies_usd == pytest.approx(0.5)
    broken = Future[Reply]()
    broken.set_exception(OSError("gone"))
    slow.begin = lambda *_: at_begin.append(noted[-1]) or broken  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(OSError, match="gone"):
        [*metered.stream(ask)]
    metered.note()
    assert at_begin[-1] == pytest.approx((bound, 3 * bound))
    assert noted[-1] == pytest.approx((0.0, 4 * bound))


def test_a_call_of_a_batch_that_is_given_up_amid_its_replies_has_none() -> None:
    spec = ModelSpec("m", base_url=THERE, price_in=1.0, price_out=10.0, max_tokens=1000)
    ask = Ask("m", Role.WORKER, (Message("user", "hi"),))
    metered = MeteredPool(_Uncounted((spec,)), None)
    flight = metered.flight()
    flight.add([ask] * 3)
    came = []
    for number, _ in flight.ready():
        came.append(number)
        if number == 0:
            flight.cancel(1)
    assert came == [0, 2]
    assert metered.spent_usd == pytest.approx(3 * bound_usd(spec, ask))


def test_of_what_is_free_nothing_is_noted() -> None:
    noted: list[tuple[float, float]] = []
    spec = ModelSpec("m", provider="pocket", price_in=1.0, price_out=1.0)
    metered = MeteredPool(_Uncounted((spec,)), None, note=lambda *usd: noted.append(usd))
    list(metered.ask([Ask("m", Role.WORKER, (Message("user", "hi"),))]))
    metered.note()
    assert noted == []


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
        most = bound_usd(spec, ask)
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
        metered = MeteredPool(pool, 2.05 * bound_usd(spec, ask))
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
        metered = MeteredPool(pool, 3.5 * bound_usd(spec, ask))
        with pytest.raises(BudgetError):
            list(metered.ask([ask] * 9))
        pool.close()
    assert len(server.requests) == metered.reckoned.at_bound == 3


@contextmanager
def paid_models(
    folder: Path,
    answer: Callable[[Request], Answer],
    names: str = "m",
    price: str = PRICES,
    splits: Sequence[str] = ("test",) * 12,
) -> Iterator[tuple[FaultyServer, list[str]]]:
    """Models that cost something, on one server, with a task for each of these splits; the options that name them."""
    tasks = [
        {"question": f"{n} + 3?", "answer": "5", "grader": "number", "split": split}
        for n, split in enumerate(splits)
    ]
    empty_store(folder / "t.db")
    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    with faulty_server(answer) as server, pytest.MonkeyPatch.context() as patch:
        models = (f'[[model]]\nname = "{name}"\nbase_url = "{server.url}"\n{price}\n' for name in names)
        (folder / "pool.toml").write_text("".join(models))
        patch.setenv("TRINITY_STORE", str(folder / "t.db"))
        yield server, ["--pool", str(folder / "pool.toml"), "--tasks", str(folder / "tasks.jsonl")]


@pytest.mark.integration
def test_a_second_run_is_expected_to_cost_what_it_then_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with paid_models(tmp_path, team("5")) as (_, own):
        arguments = ["run", *own, "--policy", "single:m", "--max-cost", "1"]
        assert command([*arguments, "--n", "3"]) == 0
        assert "Nothing is recorded of these models yet" in " ".join(capsys.readouterr().err.split())
        assert command([*arguments, "--n", "12", "--seed", "1"]) == 0
        told = " ".join(capsys.readouterr().err.split())
        with closing(open_store(tmp_path / "t.db")) as store:
            newest = store.runs.list()[0]
            spent = store.runs.spent_usd(newest.id)
            plan = plan_of(newest, BatchPlan)
            again = expectation(store, plan, pool_specs(plan.pool))
    found = re.search(r"To expect: about (\d+) calls, \$([\d.]+) and", told)
    assert found is not None, told
    assert float(found[2]) == pytest.approx(spent, rel=0.2)
    assert int(found[1]) == pytest.approx(spent / CALL_USD, rel=0.1)
    assert again is not None
    assert again.cost_usd == pytest.approx(spent, rel=0.2)


@pytest.mark.parametrize(
    ("limits", "hours", "words"),
    [
        ({}, 0.9, ""),  # each model takes 120 calls of 54 s, two at a time
        ({"concurrency": 1}, 3.6, "there's concurrency of 1"),
        ({"requests_per_minute": 2}, 2.0, "there's 2 requests a minute"),
        ({"tokens_per_minute": 100}, 4.8, "there's 100 tokens a minute"),
        ({"requests_per_minute": 2, "tokens_per_minute": 100}, 4.8, "there's 100 tokens a minute"),
        ({"requests_per_minute": 600, "tokens_per_minute": 90_000, "concurrency": 64}, 0.9, ""),
    ],
)
def test_hours_are_those_of_the_tightest_limit(limits: dict[str, int], hours: float, words: str) -> None:
    service = Service("there", **limits)
    specs = [ModelSpec(name, concurrency=2, service=service) for name in ("a", "b")]
    means = PoolMeans({name: CallMeans(10, 100.0, 20.0, 0.0, 54.0) for name in ("a", "b")}, 3.0)
    parts = [Part("episodes", {"a": 120.0, "b": 120.0}, None)]
    seconds, limit = longest(parts, specs, means)
    assert limit == words
    assert seconds / 3600 == pytest.approx(hours)


def test_means_are_of_this_pool_alone(samples: Store) -> None:
    assert pool_means(samples, "another") is None


def test_an_encoder_is_to_read_each_transcript_or_only_what_is_new_in_it(
    samples: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of an episode's three transcripts, of 60, 100 and 140 tokens.
    means = PoolMeans({"a": CallMeans(9, 100.0, 40.0, 0.0, 1.0)}, 3.0)
    monkeypatch.setattr(expectations, "pool_means", lambda *_: means)
    monkeypatch.setattr(threads, "SMALL", 0)
    monkeypatch.setattr(Encoder, "tokens_per_s", lambda _: 10.0)
    encoder, pool = load_encoder("pocket"), pool_specs("pocket")
    plan = BatchPlan(("a", "b"), "pocket", "test", 12, 0, 5, False, "pocket")
    parts = reading_time(samples, plan, pool, encoder, 2)
    assert parts is not None
    assert parts.tokens == pytest.approx(2 * 12 * (60 + 40 + 40))
    encoder.in_parts = False
    whole = reading_time(samples, plan, pool, encoder, 2)
    assert whole is not None
    assert whole.tokens == pytest.approx(2 * 12 * (60 + 100 + 140))
    assert "about 7,200 tokens, which takes 12 minutes at the 10 tokens a second" in whole.sentence()
    config = EvolveConfig(generations=1, population=4, tasks_per_candidate=2, turn_budget=5)
    evolution = EvolutionPlan("pocket", 8, 6, evolution=config, svf="1")
    evolved = reading_time(samples, evolution, pool, encoder)
    assert evolved is not None
    assert evolved.tokens > 4 * 2 * 300, "each candidate of its own"
    monkeypatch.setattr(expectations, "pool_means", lambda *_: None)
    assumed = reading_time(samples, plan, pool, encoder, 2)
    assert assumed is not None
    replies = 4 * expectations.ASSUMED_REPLY
    questions = assumed.tokens / (2 * 12 * 5) - replies / 2
    assert 20 < questions < 120, "the mean length of a question"
    assert "With replies of 200 tokens" in assumed.sentence()
    encoder.in_parts = True
    in_parts = reading_time(samples, evolution, pool, encoder)
    assert in_parts is not None
    assert in_parts.tokens == pytest.approx((4 * 2 + 2 * 6) * (questions + replies), rel=0.3)
    monkeypatch.undo()
    assert reading_time(samples, plan, pool, load_encoder("pocket")) is None, "a small one reads quickly"


def add_update(store: Store, run: str, index: int, stats: dict[str, int]) -> None:
    numbers = dict.fromkeys(("episodes", "wall_s", "spent_usd", "unread_usd"), 0)
    with writing(store.engine) as connection:
        row = {"run_id": run, "idx": index, "stats": stats, **numbers}
        connection.execute(insert(learning_update), row)


def test_what_evolutions_shared_is_of_this_pool_alone(tmp_path: Path) -> None:
    store = new_store(tmp_path / "t.db")
    assert shared_calls(store, "mine") == []
    for name, pool in (("r1", "mine"), ("r2", "another")):
        begin_run(store, name, "evolve", {"evolution": {"common": True}})
        store.runs.note_pool(name, pool)
    counts: list[dict[str, int]] = [
        {"calls": 90, "calls_saved": 0},
        {"calls": 30, "calls_saved": 70},
        {"calls": 10, "calls_saved": 90},
        {},
    ]
    for name in ("r1", "r2"):
        for index, stats in enumerate(counts):  # what came before the first generation is not counted
            add_update(store, name, index, stats)
            with writing(store.engine) as connection:
                for place in range(6):
                    row = {"run_id": name, "generation": index, "idx": place, "rollouts": 4, "missing": 0}
                    connection.execute(insert(candidate), row)
    found = shared_calls(store, "mine")
    assert [(one.index, one.candidates, one.tasks, one.made, one.saved) for one in found] == [
        (1, 6, 4, 30, 70),
        (2, 6, 4, 10, 90),
    ]
    store.close()


def says_what_it_read(request: Request) -> Answer:
    """Replies as long as real ones, no two alike: a plan, an answer, and a verdict that accepts two times in five."""
    dice = hashlib.sha256(json.dumps(request.body, sort_keys=True).encode()).hexdigest()
    match role_of(request):
        case "Thinker":
            text = f"<suggestion>Think of {dice}.</suggestion>"
        case "Worker":
            text = f"It is known of {dice}. <answer>{5 if int(dice[:2], 16) % 3 == 1 else 0}</answer>"
        case _:
            tag = request.body["messages"][-1]["content"].rsplit("VERDICT-", 1)[1].split(":")[0]
            verdict = "ACCEPT" if int(dice[:2], 16) % 5 < 2 else "REVISE"
            text = f"{dice}\nVERDICT-{tag}: {verdict}"
    return ok(text)


@pytest.mark.integration
def test_an_evolution_is_expected_to_cost_what_it_then_costs(
    tmp_path: Path, tiny_encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = ["evolve", "evolve", "evolve", "validation"] * 4
    with paid_models(tmp_path, says_what_it_read, "abc", splits=splits) as (_, own):
        own += ["--max-cost", "9"]
        assert command(["run", *own, "--policy", "random", "--split", "evolve", "--n", "12"]) == 0
        with closing(open_store(tmp_path / "t.db")) as store:
            begin_run(store, "rother", "evolve", {})  # of another pool, whose candidates shared nearly all
            add_update(store, "rother", 1, {"calls": 1, "calls_saved": 999})
        capsys.readouterr()
        evolve = ["evolve", *own, "--encoder", str(tiny_encoder), "--validation", "4", "--generations", "2"]
        assert command([*evolve, "--population", "4", "--replicates", "2"]) == 0
        told = " ".join(capsys.readouterr().err.split())
        with closing(open_store(tmp_path / "t.db")) as store:
            newest = store.runs.list()[0]
            spent = store.runs.spent_usd(newest.id)
            plan = plan_of(newest, EvolutionPlan)
            again = expectation(store, plan, pool_specs(plan.pool))
    found = re.search(r"To expect: about ([\d,]+) calls, \$([\d.]+)", told)
    assert found is not None, told
    assert float(found[2]) == pytest.approx(spent, rel=0.3)
    assert int(found[1].replace(",", "")) == pytest.approx(spent / CALL_USD, rel=0.3)
    assert again is not None
    assert again.cost_usd == pytest.approx(spent, rel=0.25), "a second one by what the first one shared"


@pytest.mark.integration
def test_an_accuracy_is_told_of_whole_episodes_and_of_what_a_ceiling_cut_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    price = "price_in = 0.0\nprice_out = 1000000.0\nmax_tokens = 7\nconcurrency = 1"
    with paid_models(tmp_path, team("5"), price=price) as (server, own):
        arguments = ["run", *own, "--policy", "single:m", "--max-cost"]
        assert command([*arguments, "10"]) == 1
        out = capsys.readouterr()
        assert "1 of 12 episodes were cut" in " ".join(out.err.split()), "a ceiling below the first one"
        assert "11 of 12 episodes were never begun" in " ".join(out.err.split())
        assert "%" not in out.out.split("cut short")[1].split("\n")[0]
        assert len(server.requests) == 1
        server.requests.clear()
        assert command([*arguments, "70"]) == 1  # an episode costs 21
        out = capsys.readouterr()
        assert "cut" not in out.out + out.err
        assert "9 of 12 episodes were never begun" in " ".join(out.err.split())
        assert re.search(r"single:m +100.0 % +43.9 to 100.0 +3 ", out.out), out.out
        assert len(server.requests) == 9
