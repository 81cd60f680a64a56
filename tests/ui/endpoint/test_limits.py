"""Limits by day and month, of a key and of the whole endpoint: exact, told by whose they are, anew with the period."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from core.episode import Ask, Message, Reply, Role, Usage
from core.pool.costs import bound_usd
from core.pool.spec import ModelSpec
from storage.shelves.endpoint import ApiKey, Limits, Quota
from storage.store import Store, open_store
from tests.builders.stores import new_store
from tests.core.pool.faulty_server import Answer, Request
from tests.ui.endpoint.server import CALL_USD, PRICES, role_of, served, team
from ui.cli import main
from ui.endpoint import tiers as tiers_of
from ui.endpoint.ledger import Ceiling, Ledger, OwnBooks, Sender
from ui.endpoint.tiers import Endpoint, Tier, read_endpoint

ONCE = (Tier("trinity", policy="single:a", turns=1),)
SPEC = ModelSpec("a", price_in=1.0, price_out=2.0, max_tokens=20)
ASK = Ask("a", Role.WORKER, (Message("user", "How many?"),))
NOON = datetime(2026, 3, 31, 12, tzinfo=UTC).timestamp()
DAY_S = 86_400.0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("limits", "taken", "words"),
    [
        (Limits(day=Quota(requests=2)), 2, "this key's limit of 2 requests a day"),
        (Limits(month=Quota(tokens=30)), 2, "this key's limit of 30 tokens a month"),
        (Limits(day=Quota(usd=2.5 * CALL_USD + 0.001)), 2, "this key's limit of $0.0011 a day"),
    ],
)
def test_a_key_s_limit_stops_its_requests_and_no_others(
    tmp_path: Path, limits: Limits, taken: int, words: str
) -> None:
    entry = f"{PRICES}\nmax_tokens = 20"
    with served(tmp_path, team(), endpoint=Endpoint(tier=ONCE), models="a", entry=entry) as one:
        mine = one.with_key(day=limits.day, month=limits.month)
        if limits.day.usd:
            bound = bound_usd(SPEC, ASK)
            assert CALL_USD < bound < 0.001
            mine = one.with_key(day=Quota(usd=bound + 1.5 * CALL_USD))
            words = "this key's limit of"
        for _ in range(taken):
            mine.ask()
        refusal = mine.refused()
        assert (refusal.status_code, refusal.code) == (429, "cost_ceiling")
        assert words in refusal.message
        assert "it begins anew at" in refusal.message
        assert 0 < int(refusal.response.headers["retry-after"]) <= 32 * DAY_S
        assert one.ask().choices[0].message.content == "forty-two"
        again = one.store.endpoint.use(0.0, one.store.endpoint.keys()[0].id)
        assert (again.requests, again.tokens) == (taken + (limits.day.usd is not None), 18 * taken)
        assert again.usd == pytest.approx(taken * CALL_USD)


@pytest.mark.integration
def test_a_key_is_bound_by_what_a_call_can_cost_at_the_tokens_that_its_request_states(tmp_path: Path) -> None:
    entry = f"{PRICES}\nmax_tokens = 100_000"
    with served(tmp_path, team(), endpoint=Endpoint(tier=ONCE), models="a", entry=entry) as one:
        narrow = one.with_key(day=Quota(usd=0.001))  # 500 tokens, where the model may write 100,000
        assert "limit of $0.0010 a day" in narrow.refused().message
        assert narrow.ask(max_tokens=20).choices[0].message.content == "forty-two"
        assert one.store.endpoint.use(0.0, one.store.endpoint.keys()[0].id).usd == pytest.approx(CALL_USD)


@pytest.mark.integration
def test_the_endpoint_s_own_limit_holds_for_all(tmp_path: Path) -> None:
    file = tmp_path / "tiers.toml"
    file.write_text(
        'day_requests = 3\nmonth_usd = 5\n[[tier]]\nname = "trinity"\npolicy = "single:a"\nturns = 1\n'
    )
    endpoint = read_endpoint(file, tmp_path)
    with served(tmp_path, team(), endpoint=endpoint, models="a", entry=PRICES) as one:
        one.ask()
        one.with_key().ask()
        one.ask()
        for asking in (one, one.with_key()):
            refusal = asking.refused()
            assert "this endpoint's limit of 3 requests a day" in refusal.message
            assert "day_requests in endpoint.toml" in refusal.message


def test_a_month_of_traffic_stays_within_every_limit_to_the_cent(tmp_path: Path) -> None:
    """Many keys with limits of every kind, requests that cost less than their bounds, days that pass, restarts."""
    draw, now = random.Random(0), [NOON - 29 * DAY_S]
    store = new_store(tmp_path / "t.db", lambda: now[0])
    keys = [
        store.endpoint.add_key(
            f"key {n}",
            Limits(
                max_cost_usd=draw.choice([None, 0.0005]),
                day=Quota(draw.choice([None, 0.0001]), draw.choice([None, 4]), draw.choice([None, 50])),
                month=Quota(draw.choice([None, 0.0008]), draw.choice([None, 30]), draw.choice([None, 700])),
            ),
        )[0]
        for n in range(12)
    ]
    quotas = {"day": Quota(usd=0.004, requests=40), "month": Quota(tokens=18_000)}
    taken, refused = [], Counter[str]()
    ledger = Ledger({"a": SPEC}, OwnBooks(store, quotas=quotas), store)
    for number in range(1_200):
        now[0] += 30 * DAY_S / 1_200
        if draw.random() < 0.02:  # served anew: all is read from the store again
            ledger = Ledger(
                {"a": SPEC}, OwnBooks(store, spent_usd=store.endpoint.charged_usd(), quotas=quotas), store
            )
        key, name = draw.choice([None, *keys]), f"e{number:05d}"
        sender = Sender(key, now[0])
        if (ceiling := ledger.admit(sender)) is not None:
            refused[f"{ceiling.of} {ceiling.period} {ceiling.what}"] += 1
            continue
        store.endpoint.note(name, key.id if key else None, "chat", "trinity")
        allowed = ledger.allows(name, sender, ASK, None)
        if isinstance(allowed, Ceiling):
            refused[f"call: {allowed.of} {allowed.period}"] += 1
            taken.append((now[0], key, 0.0, 0))
            ledger.over(name)
            continue
        written = draw.randint(0, 20)
        usage = Usage(9, written, (9 * 1.0 + written * 2.0) / 1e6)
        reply = Reply("42", usage=usage)
        store.endpoint.charge(name, ledger.cost_usd(name, 0, reply), tokens=9 + written)
        ledger.replied(name, sender, 0, reply)
        ledger.over(name)
        taken.append((now[0], key, usage.cost_usd or 0.0, 9 + written))
    check(store, taken, keys, quotas)
    assert {"key day requests", "key day tokens", "key month requests", "call: key day", "call: key "} <= {
        *refused
    }
    assert refused.total() > 100
    assert len(taken) > 200
    store.close()


def test_a_request_that_midnight_passes_stays_below_the_limit_of_its_day(tmp_path: Path) -> None:
    """What it costs is of the day that it began in, and so is the limit that its later calls are below."""
    now, bound = [NOON + DAY_S / 2 - 1.0], bound_usd(SPEC, ASK)
    store = new_store(tmp_path / "t.db", lambda: now[0])
    key, _ = store.endpoint.add_key("mine", Limits(day=Quota(usd=1.5 * bound)))
    ledger = Ledger({"a": SPEC}, OwnBooks(store), store)
    sender = Sender(key, now[0])
    assert ledger.admit(sender) is None
    store.endpoint.note("e1", key.id, "chat", "trinity")
    assert isinstance(ledger.allows("e1", sender, ASK, None), Ask)
    dear = Reply("42", usage=Usage(9, 20, bound))
    store.endpoint.charge("e1", bound, tokens=29)
    ledger.replied("e1", sender, 0, dear)
    now[0] += 2.0
    refused = ledger.allows("e1", sender, ASK, None)
    assert isinstance(refused, Ceiling)
    assert (refused.of, refused.period) == ("key", "day")
    ledger.over("e1")
    second = Sender(key, now[0])
    for name in ("e2", "e3"):  # the new day is free, and what is taken in it is none of the old one's
        assert ledger.admit(second) is None
        store.endpoint.note(name, key.id, "chat", "trinity")
    assert isinstance(ledger.allows("e2", second, ASK, None), Ask)
    ledger.replied("e2", second, 0, replace(dear, usage=Usage(9, 20, bound / 4)))
    now[0] += DAY_S
    assert isinstance(ledger.allows("e2", second, ASK, None), Ask)
    ledger.replied("e2", second, 0, replace(dear, usage=Usage(9, 20, bound / 4)))
    third = Sender(key, now[0])
    assert isinstance(ledger.allows("e4", third, ASK, None), Ask)
    ledger.replied("e4", third, 0, dear)
    assert isinstance(ledger.allows("e2", second, ASK, None), Ask)
    store.close()


@pytest.mark.integration
def test_a_request_is_of_the_day_in_which_it_was_admitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Midnight passes after it was let in, and before its row and its first call."""
    midnight, admit = NOON + DAY_S / 2, OwnBooks.admit
    now = [midnight - 1.0]

    def admitted(books: OwnBooks, *about: Any) -> Ceiling | None:
        found = admit(books, *about)
        now[0] = midnight + 1.0
        return found

    monkeypatch.setattr(OwnBooks, "admit", admitted)
    with served(tmp_path, team(), endpoint=Endpoint(tier=ONCE), models="a", clock=lambda: now[0]) as one:
        mine = one.with_key(day=Quota(tokens=18))
        first = mine.ask()
        assert first.created == int(midnight - 1.0)
        assert one.store.endpoint.use(midnight).requests == 0
        assert one.store.endpoint.use(0.0).tokens == 18
        assert mine.ask().choices[0].message.content == "forty-two"  # what the first one took is of yesterday
        assert one.store.endpoint.use(midnight).requests == 1
        assert mine.refused().status_code == 429


@pytest.mark.integration
def test_a_call_that_no_longer_fits_says_when_to_come_again_by_the_store_s_clock(tmp_path: Path) -> None:
    an_hour_before = NOON + DAY_S / 2 - 3600.0
    once = Endpoint(tier=ONCE)
    with served(
        tmp_path, team(), endpoint=once, models="a", entry=PRICES, clock=lambda: an_hour_before
    ) as one:
        refusal = one.with_key(day=Quota(usd=CALL_USD / 10)).refused()
        assert "begins anew at 2026-04-01 00:00 UTC" in refusal.message
        assert refusal.response.headers["retry-after"] == "3600"


@pytest.mark.integration
def test_a_call_that_was_under_way_when_the_endpoint_died_counts_as_much_as_it_could_cost(
    tmp_path: Path,
) -> None:
    """What the store holds at that moment is served again: its model's server may bill the call. What was answered
    before costs what it cost, and no more than once."""
    asked, go_on = threading.Event(), threading.Event()

    def slow(request: Request) -> Answer:
        if role_of(request) == "Worker":
            asked.set()
            go_on.wait(10.0)
        return team()(request)

    entry = f"{PRICES}\nmax_tokens = 20"
    with served(tmp_path, slow, models="a", entry=entry) as one, ThreadPoolExecutor(1) as thread:
        answer = thread.submit(one.ask)
        assert asked.wait(10.0)
        worker = one.models.requests[-1].body["messages"]
        bound = bound_usd(
            SPEC, Ask("a", Role.WORKER, tuple(Message(m["role"], m["content"]) for m in worker))
        )
        with (
            closing(sqlite3.connect(tmp_path / "trinity.db")) as now,
            closing(sqlite3.connect(tmp_path / "after.db")) as copy,
        ):
            now.backup(copy)
        pool = str(tmp_path / "pool.toml")
        with closing(open_store(tmp_path / "after.db")) as after:
            assert OwnBooks.of(after, pool, None, None).spent_usd == pytest.approx(CALL_USD)  # it plays still
            after.runs.mark_interrupted(is_dead=lambda _: True)
            for _ in range(2):
                books = OwnBooks.of(after, pool, None, None)
                assert books.spent_usd == pytest.approx(CALL_USD + bound)
            assert after.endpoint.use(0.0).usd == pytest.approx(CALL_USD + bound)
        go_on.set()
        assert answer.result().choices[0].message.content == "forty-two"
        one.until_idle()
        one.store.runs.mark_interrupted(is_dead=lambda _: True)
        assert OwnBooks.of(one.store, pool, None, None).spent_usd == pytest.approx(3 * CALL_USD)


def check(store: Store, taken: list[Any], keys: list[ApiKey], quotas: dict[str, Quota]) -> None:
    """What was taken in each period, by whom, beside the limits and the store's books."""
    bound = bound_usd(SPEC, ASK)
    for form, period in (("%Y-%m-%d", "day"), ("%Y-%m", "month")):
        books: dict[tuple[str, str | None], list[Any]] = {}
        for at, key, usd, tokens in taken:
            when = f"{datetime.fromtimestamp(at, UTC):{form}}"
            for owner in {None, key.id if key else None}:
                books.setdefault((when, owner), []).append((usd, tokens))
        limits: dict[str | None, Quota] = {one.id: getattr(one.limits, period) for one in keys}
        limits[None] = quotas[period]
        for (when, owner), rows in books.items():
            quota, start = limits[owner], datetime.strptime(when, form).replace(tzinfo=UTC).timestamp()
            usd, tokens = sum(row[0] for row in rows), sum(row[1] for row in rows)
            assert quota.usd is None or usd <= quota.usd + 1e-12
            assert quota.requests is None or len(rows) <= quota.requests
            assert (
                quota.tokens is None or tokens < quota.tokens + 29
            )  # the last call may be larger than what is left
            later = store.endpoint.use(start, owner).usd - store.endpoint.use(start + 31 * DAY_S, owner).usd
            assert later >= usd - 1e-12
    for key in keys:
        own = sum(usd for _, whose, usd, _ in taken if whose == key)
        assert store.endpoint.charged_usd(key.id) == pytest.approx(own)
        assert key.limits.max_cost_usd is None or own <= key.limits.max_cost_usd
    assert bound < 0.001


def test_a_period_begins_anew_at_midnight_utc(tmp_path: Path) -> None:
    now = [NOON]
    store = new_store(tmp_path / "t.db", lambda: now[0])
    books = OwnBooks(store, quotas={"day": Quota(requests=1), "month": Quota(requests=2)})
    assert books.admit(Sender(None, now[0])) is None
    ceiling = books.admit(Sender(None, now[0]))
    assert ceiling is not None
    assert (ceiling.period, ceiling.until) == ("day", NOON + DAY_S / 2)
    assert "2026-04-01 00:00 UTC" in ceiling.words
    now[0] = NOON + DAY_S / 2  # a new day, and a new month
    assert books.admit(Sender(None, now[0])) is None
    store.close()


def test_keys_are_made_with_limits_and_listed_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "t.db"))
    with pytest.raises(SystemExit):
        main(
            ["keys", "add", "laptop", "--day-usd", "2", "--month-requests", "1000", "--month-tokens", "50000"]
        )
    with pytest.raises(SystemExit):
        main(["keys", "list"])
    told = " ".join(capsys.readouterr().out.split())
    assert "$2.00 a day" in told
    assert "1,000 requests, 50,000 tokens a month" in told


@pytest.mark.integration
def test_a_request_is_ordered_at_once_only_where_nothing_has_to_be_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = Endpoint(tier=(*ONCE, Tier("best")))
    with served(tmp_path, team(), endpoint=tiers, models="a") as one:
        ready = one.service.is_ready
        assert not ready("trinity", None, None), "no run has begun"
        one.ask()
        assert ready("trinity", None, None)
        assert ready("trinity", False, None)
        assert not ready("trinity", True, None), "another policy has to be loaded"
        assert ready("best", None, None)
        monkeypatch.setattr(tiers_of, "KNOWN_S", 0.0)
        assert not ready("best", None, None), "the store says anew which is best"
        assert not ready("trinity@c0000000000", None, None)
        free, limited = (
            one.store.endpoint.add_key("k", limits)[0] for limits in (Limits(), Limits(day=Quota(requests=9)))
        )
        assert ready("trinity", None, free)
        assert not ready("trinity", None, limited), "what is left of its limit has to be asked for"
        one.service.engine.close()
        assert not ready("trinity", None, None), "the next request begins another run"


@pytest.mark.integration
@pytest.mark.parametrize(("entry", "level"), [("", "NORMAL"), (PRICES, "FULL")])
def test_replies_of_models_that_are_free_need_not_survive_a_power_cut(
    tmp_path: Path, entry: str, level: str
) -> None:
    with served(tmp_path, team(), endpoint=Endpoint(tier=ONCE), models="a", entry=entry) as one:
        levels = ["NORMAL"]

        @event.listens_for(one.store.engine, "before_cursor_execute")
        def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith("PRAGMA synchronous"):
                levels.append(statement.split("=")[1])
            elif statement.startswith("UPDATE turn"):
                levels.append(levels[-1])

        one.ask()
        assert levels[-1] == level
