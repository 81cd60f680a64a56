"""A month of small traffic with limits by key: what is refused, and whether every book says the same.

    trinity bench month --json

Clients with keys of all kinds of limits ask a real endpoint over HTTP, whose models are a local server that keeps its
own bill. The clock of the store moves on with every request, so that thirty days pass, and the endpoint is served anew
several times on the way. Afterwards everything is put beside what the models' server billed: spending by key, day and
month, each limit, each refusal, each episode. As long as a key has one request at a time (--each 1), what it had taken
when a request was refused is known to the token; with more, those under way beside it count with all that they can
cost.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
from sqlalchemy import select

from core.pool.costs import MOST_UNREAD
from storage.rows.engine import fetch_mappings
from storage.rows.schema import served
from storage.store import Store
from tests.bench._frame import Figures, run, run_apart, say
from tests.builders.own_models import tag_in
from tests.builders.stores import new_store
from tests.core.pool.faulty_server import (
    Answer,
    Request,
    chat,
    events,
    fail,
    faulty_server,
    respond,
    stream_head,
)
from tests.ui.endpoint.server import listening, role_of, said_to
from ui.cli import main
from ui.endpoint.api import endpoint_app
from ui.endpoint.service import Service
from ui.endpoint.tiers import Endpoint, Tier

DAY_S = 86_400.0
FIRST = datetime(2026, 3, 17, 6, tzinfo=UTC).timestamp()
#: The models with their prices in USD per million tokens sent and written, and the most tokens that they write.
PRICES = {"a": (1.0, 2.0), "b": (0.5, 4.0)}
MOST_WRITTEN = 40
#: A model alone, asked once, and another that plans, answers and checks.
ENDPOINT = Endpoint(tier=(Tier("once", policy="single:a", turns=1), Tier("team", policy="single:b", turns=3)))
MODEL_OF = {"once": "a", "team": "b"}
#: The limits of which each key has some, as `trinity keys add` names them.
LIMITS: Mapping[str, Sequence[float | int | None]] = {
    "max-cost": (None, None, None, 0.003),
    "day-usd": (None, None, 0.0004, 0.001),
    "day-requests": (None, None, 5, 20),
    "day-tokens": (None, None, 300, 900),
    "month-usd": (None, None, 0.003),
    "month-requests": (None, None, 60),
    "month-tokens": (None, None, 3000),
}
#: One call in so many is answered by a 500.
FAULT = 41
#: Sums of floating point numbers that differ by less, in USD, are the same: far below what one token costs.
SAME_USD = 1e-9
What = Literal["usd", "requests", "tokens"]
_LIMIT = re.compile(r"this key's limit of (?:\$[\d.,]+\d|[\d,]+ (requests|tokens)) a (day|month)")


@dataclass
class Models:
    """What the models' server answers and what it bills, by the number of a request: USD, tokens, answered calls.
    `sizes`: of each model and role, the bytes of a prompt by which a call's bound is reckoned."""

    usd: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    tokens: Counter[int] = field(default_factory=Counter)
    calls: Counter[int] = field(default_factory=Counter)
    sizes: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    def __call__(self, request: Request) -> Answer:
        """Answer a request, and bill it."""
        model, role, prompt = request.body["model"], role_of(request), said_to(request)
        number = int(re.findall(r"Request (\d+)", prompt)[0])
        size = sum(len(one["content"].encode()) + 16 for one in request.body["messages"])
        self.sizes.setdefault((model, role), set()).add(size)
        dice = random.Random(f"{number}/{role}")
        if dice.randrange(FAULT) == 0:
            return fail(500, "The engine is overloaded")
        text = "forty-two" if role == "Worker" else "Count them."
        if role == "Verifier":
            text = f"It holds.\nVERDICT-{tag_in(prompt)}: ACCEPT"
        sent, written = len(prompt) // 4, dice.randint(1, MOST_WRITTEN)
        self.usd[number] += (sent * PRICES[model][0] + written * PRICES[model][1]) / 1e6
        self.tokens[number] += sent + written
        self.calls[number] += 1
        usage = {"prompt_tokens": sent, "completion_tokens": written}
        if request.body.get("stream"):
            return (_events(text, usage),)
        return (respond(chat(text, usage=usage), kept=True),)

    def bound_usd(self, tier: str, calls: int) -> float:
        """The most that the next call of a request can cost, of which so many calls are answered."""
        model = MODEL_OF[tier]
        role = "Worker" if tier == "once" else ("Thinker", "Worker", "Verifier")[calls]
        sent, written = PRICES[model]
        return (max(self.sizes.get((model, role), {0})) * sent + MOST_WRITTEN * written) / 1e6


def _events(text: str, usage: Mapping[str, int]) -> bytes:
    return stream_head() + events(text, usage=usage)


@dataclass
class Key:
    """A key as its owner knows it: its limits by their options, and its requests in order."""

    id: str
    text: str
    limits: dict[str, float | int]
    asked: list[Asked] = field(default_factory=list)

    def beside(self, one: Asked) -> list[Asked]:
        """Its requests that were under way together with one of them."""
        return [it for it in self.asked if it is not one and it.sent <= one.over and one.sent <= it.over]

    def passing(self, one: Asked, *, itself: bool = False) -> list[Asked]:
        """Its requests that midnight passed at the beginning or the end of a day of one of them. Between a request's
        admission, its row and its first call the hurried clock may pass midnight: then the ledger counts it in the new
        day, and the store in the old one."""
        days = _start(one.sent, "day"), _start(one.over, "day")
        passed = [it for it in self.asked if it.passes_midnight and (itself or it is not one)]
        return [it for it in passed if {_start(it.sent, "day"), _start(it.over, "day")} & {*days}]


@dataclass
class Asked:
    """One request as its client saw it: the store's clock when it was sent and when it was over, the status, the words
    of a refusal, the episode's id and what it is said to have cost."""

    number: int
    tier: str
    sent: float
    over: float = 0.0
    status: int = 0
    refusal: str = ""
    episode: str = ""
    usd: float | None = None

    @property
    def passes_midnight(self) -> bool:
        """Whether it was over on another day than it was sent."""
        return _start(self.sent, "day") != _start(self.over, "day")

    @property
    def outcome(self) -> str:
        """What became of it: answered, refused before it was begun or before a call, or failed."""
        if self.status == 200:
            return "answered"
        if "No more requests fit" in self.refusal:
            return "not admitted"
        return "no further call" if "The next call could exceed" in self.refusal else "failed"


def measure(
    requests: Annotated[int, "requests in all"] = 5000,
    keys: Annotated[int, "keys"] = 200,
    at_once: Annotated[int, "requests under way at a time"] = 16,
    each: Annotated[int, "requests of a key under way at a time"] = 1,
    restarts: Annotated[int, "how often the endpoint is served anew"] = 4,
    days: Annotated[float, "days that pass"] = 30.0,
    seed: Annotated[int, "decides who asks, and what limits keys have"] = 0,
) -> Figures:
    """Serve while days pass on the store's clock, and check every book."""
    began, dice = time.monotonic(), random.Random(seed)
    clock, models = Clock(days * DAY_S / requests), Models()
    with tempfile.TemporaryDirectory() as folder, faulty_server(models) as behind:
        place = Path(folder)
        (place / "pool.toml").write_text(_pool(behind.url))
        store = new_store(place / "trinity.db", clock)
        owners = [*_made_keys(place / "trinity.db", keys, dice)]
        say(f"{len(owners)} keys were made")
        ends = [requests * part // (restarts + 1) for part in range(restarts + 2)]
        for numbers in (range(*two) for two in pairwise(ends)):
            _serve_part(store, place, owners, clock, numbers, (min(at_once, each * keys), each), dice)
            say(f"{numbers.stop} requests, day {(clock.now - FIRST) / DAY_S:.1f}")
        found = Books(store, owners, models).figures()
        store.close()
    return found | {"seconds": round(time.monotonic() - began, 1)}


@dataclass
class Clock:
    """The store's clock, Unix seconds, which moves on by a step with each request."""

    step: float
    now: float = FIRST

    def __call__(self) -> float:
        return self.now


def _pool(url: str) -> str:
    return "".join(
        f'[[model]]\nname = "{name}"\nbase_url = "{url}"\nattempts = 1\nmax_tokens = {MOST_WRITTEN}\n'
        f"price_in = {price[0]}\nprice_out = {price[1]}\nconcurrency = 32\n"
        for name, price in PRICES.items()
    )


def _made_keys(store: Path, n: int, dice: random.Random) -> Iterator[Key]:
    """Keys with limits, made as anybody makes them."""
    for number in range(n):
        drawn = {name: dice.choice(values) for name, values in LIMITS.items()}
        limits = {name: value for name, value in drawn.items() if value is not None}
        options = [word for name, value in limits.items() for word in (f"--{name}", str(value))]
        command = ["keys", "add", f"key {number}", *options, "--store", str(store), "--json"]
        with redirect_stdout(StringIO()) as said, redirect_stderr(StringIO()):
            try:
                main(command)
            except SystemExit as ended:
                if ended.code:
                    raise RuntimeError(f"No key could be made: {' '.join(command)}") from None
        told = json.loads(said.getvalue())
        yield Key(told["id"], told["key"], limits)


def _serve_part(
    store: Store,
    place: Path,
    owners: Sequence[Key],
    clock: Clock,
    numbers: Iterable[int],
    at_once: tuple[int, int],
    dice: random.Random,
) -> None:
    """Serve anew, until these requests were asked."""
    service = Service(store, str(place / "pool.toml"), ENDPOINT)
    app = endpoint_app(service, prefix="/v1", needs_key=True)
    with listening(app) as port:
        run_apart(_ask_many(f"http://127.0.0.1:{port}", owners, clock, numbers, at_once, dice))
    service.close()


async def _ask_many(
    url: str,
    owners: Sequence[Key],
    clock: Clock,
    numbers: Iterable[int],
    at_once: tuple[int, int],
    dice: random.Random,
) -> None:
    """So many requests at a time, and so many of one key; the first keys ask most."""
    busy, waiting = Counter[str](), iter(numbers)
    weights = [1 / (place + 5) for place in range(len(owners))]

    async def client(http: httpx.AsyncClient) -> None:
        for number in waiting:
            free = [busy[one.id] < at_once[1] for one in owners]
            [key] = dice.choices(owners, [w * f for w, f in zip(weights, free, strict=True)])
            busy[key.id] += 1
            clock.now += clock.step
            one = Asked(number, dice.choice([*MODEL_OF]), clock.now)
            key.asked.append(one)
            await _ask(http, url, key, one, streams=dice.random() < 0.25)
            one.over = clock.now
            busy[key.id] -= 1

    limits = httpx.Limits(max_connections=at_once[0])
    async with httpx.AsyncClient(timeout=60.0, limits=limits, trust_env=False) as http:
        await asyncio.gather(*(client(http) for _ in range(at_once[0])))


async def _ask(http: httpx.AsyncClient, url: str, key: Key, one: Asked, *, streams: bool) -> None:
    """One request, and what its client sees of it."""
    words = f"Request {one.number:06d}: how many are there?"
    body = {"model": one.tier, "messages": [{"role": "user", "content": words}], "stream": streams}
    headers = {"Authorization": f"Bearer {key.text}"}
    answer = await http.post(f"{url}/v1/chat/completions", json=body, headers=headers)
    one.status, one.episode = answer.status_code, answer.headers.get("x-trinity-episode", "")
    if answer.status_code == 200 and streams:
        lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
        told = json.loads(lines[-1])
        if "error" in told:
            one.status = 429 if told["error"]["code"] == "cost_ceiling" else 502
    else:
        told = answer.json()
    one.refusal = told.get("error", {}).get("message", "")
    one.usd = told.get("trinity", {}).get("cost_usd")


@dataclass
class Took:
    """What requests have taken."""

    usd: float = 0.0
    requests: int = 0
    tokens: int = 0


@dataclass
class Books:
    """What clients saw, beside what the models' server billed and what the store says. `mismatches`: how often
    something was otherwise than it has to be, by what it is."""

    store: Store
    owners: Sequence[Key]
    models: Models
    mismatches: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    off_usd: float = 0.0  # the largest difference of two sums that should be the same
    examples: list[str] = field(default_factory=list)  # refusals that were not due
    periods: int = 0  # days and months of keys that were checked
    _over: dict[str, float] = field(default_factory=dict)  # beyond a limit, at most, by what

    def figures(self) -> Figures:
        """Check all of it."""
        rows = {row["episode_id"]: row for row in fetch_mappings(self.store.engine, select(served))}
        outcomes, of_keys = Counter[str](), 0.0
        for key in self.owners:
            taken: dict[tuple[str, float], Took] = defaultdict(Took)
            for one in key.asked:
                outcomes[one.outcome] += 1
                at = self._found(key, one, rows)
                self._count(key, one, at, taken)
            self._check_use(key, taken)
            of_keys += taken["ever", 0.0].usd
        billed, stored = sum(self.models.usd.values()), self.store.endpoint.charged_usd()
        seen = sum(one.usd or 0.0 for key in self.owners for one in key.asked if one.outcome == "answered")
        answered = [one.number for key in self.owners for one in key.asked if one.outcome == "answered"]
        self._same("sum of what answers are said to cost", seen, sum(self.models.usd[n] for n in answered))
        self._same("sum of all keys", of_keys, billed)
        self._same("sum in the store", stored, billed)
        asked = [one for key in self.owners for one in key.asked]
        self.mismatches["requests that the store has and no client"] += len(
            rows.keys() - {one.episode for one in asked}
        )
        mismatches = {name: n for name, n in self.mismatches.items() if n}
        return {
            "requests": len(asked),
            "keys": len(self.owners),
            "keys_with_limits": sum(bool(key.limits) for key in self.owners),
            "passed_midnight": sum(one.passes_midnight for one in asked),
            "outcomes": dict(outcomes),
            "refused": dict(self.refused.most_common()),
            "periods_checked": self.periods,
            "in_store": len(rows),
            "billed_usd": round(billed, 6),
            "stored_usd": round(stored, 6),
            "largest_difference_usd": self.off_usd,
            "beyond_a_limit": {name: round(n, 9) for name, n in self._over.items()},
            "mismatches": mismatches,
            "examples": self.examples[:5],
            "not_kept": [*mismatches],
        }

    def _found(self, key: Key, one: Asked, rows: Mapping[str, Any]) -> float:
        """When the store says that a request was asked, after a look at all that it says of it; when it was sent, of
        one that was not admitted."""
        if one.outcome == "not admitted":
            self.mismatches["not admitted, yet asked of a model"] += one.number in self.models.calls
            return one.sent
        row = rows.get(one.episode)
        if row is None:
            self.mismatches["not found in the store"] += 1
            return one.sent
        episode = self.store.episodes.get(one.episode)
        billed = self.models.usd[one.number]
        self.mismatches["another key's"] += row["key_id"] != key.id
        self.mismatches["another question's"] += f"{one.number:06d}" not in episode.task.question
        self.mismatches["asked at another time"] += not one.sent <= row["at"] <= one.over
        self.mismatches["tokens"] += row["tokens"] != self.models.tokens[one.number]
        self._same("cost of a request in the store", row["charged_usd"], billed)
        self._same(
            "cost of its episode", sum(turn.reply.usage.cost_usd or 0.0 for turn in episode.turns), billed
        )
        if one.outcome == "answered":
            self._same("cost as its client was told", one.usd or 0.0, billed)
        return float(row["at"])

    def _count(self, key: Key, one: Asked, at: float, taken: dict[tuple[str, float], Took]) -> None:
        """Whether a refusal was due; else what the request adds to what its key has taken, and how far that is beyond
        a limit."""
        books = {
            "day": taken["day", _start(at, "day")],
            "month": taken["month", _start(at, "month")],
            "ever": taken["ever", 0.0],
        }
        before = {name: Took(book.usd, book.requests, book.tokens) for name, book in books.items()}
        if one.outcome != "not admitted":
            for book in books.values():
                book.usd += self.models.usd[one.number]
                book.requests += 1
                book.tokens += self.models.tokens[one.number]
        if one.outcome in ("not admitted", "no further call"):
            self._check_due(key, one, books)
        for period, book in books.items():
            for what in ("usd", "requests"):
                passed = key.passing(one, itself=True) if period == "day" else []
                elsewhere = sum(self.models.usd[other.number] for other in passed)
                used = getattr(book, what) - (elsewhere if what == "usd" else len(passed))
                self._beyond(f"{period} {what}", used, _limit(key, period, what))
            if one.outcome != "not admitted":  # the last request may take more tokens than were left
                most = _limit(key, period, "tokens")
                others = {id(it): it for it in (*key.beside(one), *key.passing(one))}
                beside = sum(self.models.tokens[other.number] for other in others.values())
                if most is not None and before[period].tokens - beside >= most:
                    self.mismatches[f"admitted with all tokens of the {period} taken"] += 1

    def _check_due(self, key: Key, one: Asked, books: Mapping[str, Took]) -> None:
        """Whether the limit that a refusal names was used up, or the next call could have gone beyond it."""
        said = _LIMIT.search(one.refusal)
        what, period = ((said[1] or "usd"), said[2]) if said else ("usd", "ever")
        self.refused[f"{one.outcome}: {period} {what}"] += 1
        most = _limit(key, period, what)
        if most is None:
            self.mismatches["refused by a limit that its key has not"] += 1
            return
        used: float = getattr(books[period], what)
        if one.outcome == "no further call":
            used += self.models.bound_usd(one.tier, self.models.calls[one.number])
        for other in key.beside(
            one
        ):  # which was under way: it may have been booked first, or kept its bound free
            most_usd = MOST_UNREAD * max(self.models.bound_usd(other.tier, calls) for calls in range(3))
            used += {"usd": self.models.usd[other.number] + most_usd, "requests": 1}.get(
                what, self.models.tokens[other.number]
            )
        if what != "requests" and period != "ever":
            taken = self.models.usd if what == "usd" else self.models.tokens
            used += sum(taken[other.number] for other in key.passing(one))
        due = used > most if one.outcome == "no further call" else used >= most
        self.mismatches[f"refusals that were not due, {period} {what}"] += not due
        if not due:
            days = [round((at - _start(FIRST, "day")) / DAY_S, 3) for at in (one.sent, one.over)]
            self.examples.append(
                f"{key.id}, {one.tier} {one.number}, days {days}: {used:.6f} of {most}, "
                f"{self.models.calls[one.number]} calls; {one.refusal}"
            )

    def _beyond(self, name: str, used: float, most: float | None) -> None:
        if most is not None:
            self._over[name] = max(self._over.get(name, 0.0), used - most)
            self.mismatches[f"beyond the limit: {name}"] += used > most + SAME_USD

    def _check_use(self, key: Key, taken: Mapping[tuple[str, float], Took]) -> None:
        """What a key took in each period, beside the store's books of it."""
        for (period, start), mine in taken.items():
            end = _end(start, period)
            first, later = (self.store.endpoint.use(at, key.id) for at in (start, end))
            self.periods += 1
            self._same(f"spending of a key, {period}", first.usd - later.usd, mine.usd)
            self.mismatches[f"requests of a key, {period}"] += (
                first.requests - later.requests != mine.requests
            )
            self.mismatches[f"tokens of a key, {period}"] += first.tokens - later.tokens != mine.tokens

    def _same(self, what: str, one: float, other: float) -> None:
        self.off_usd = max(self.off_usd, abs(one - other))
        self.mismatches[what] += abs(one - other) > SAME_USD


def _limit(key: Key, period: str, what: str) -> float | None:
    return key.limits.get("max-cost" if (period, what) == ("ever", "usd") else f"{period}-{what}")


def _start(at: float, period: str) -> float:
    moment = datetime.fromtimestamp(at, UTC)
    return datetime(moment.year, moment.month, moment.day if period == "day" else 1, tzinfo=UTC).timestamp()


def _end(start: float, period: str) -> float:
    """The end of a day or a month that begins then; of all time, far away."""
    if period == "ever":
        return FIRST + 10_000 * DAY_S
    return _start(start + 32 * DAY_S, "month") if period == "month" else start + DAY_S


if __name__ == "__main__":
    run(measure)
