"""How requests ended, and where their time went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from core.episode import EndReason, Status
from storage.analysis.requests import MOST_REQUESTS, Request, Requests
from storage.filters.expression import Every, Holds, Name, Node, join_nodes
from storage.store import Store
from ui.answers.asked import Asked
from ui.answers.blocks import Address, Answer, Bars, Block, Code, Column, Mark, Series, Table, Way
from ui.answers.requests.subject import (
    ALL,
    FAILED,
    PAGE,
    clock,
    equals,
    listed,
    rated,
    requests,
    share,
    window,
)
from ui.presentation.theme import END_WORDS, percent
from ui.presentation.words import ago, seconds, several, share_words

_ENDED = "How many requests were there, and how did they end?"
#: At most so many bars, and how long each may be, in seconds.
_MOST_BARS = 32
_STEPS_S = (60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)
#: The parts of a request's time, in the order in which they are shown.
_PARTS: dict[str, tuple[str, Callable[[Request], float | None]]] = {
    "waiting": ("waiting for models", lambda one: one.waiting_s),
    "deciding": ("deciding", lambda one: one.deciding_s),
    "recording": ("recording", lambda one: one.recording_s),
    "rest": ("all else", lambda one: one.rest_s),
}
_STATUS_WORDS = {
    Status.RUNNING: "under way",
    Status.INTERRUPTED: "interrupted: the server stopped",
    Status.MISSING: "no model could be asked",
    Status.FINISHED: "finished",
}


@dataclass(frozen=True, slots=True)
class _Group:
    """Requests that have something in common, and the condition that lists them."""

    name: str
    found: Sequence[Request]
    node: Node


def ended(asked: Asked) -> Answer:
    """How many requests there were, whose they were, and how they ended."""
    found = requests(asked)
    if not found.found:
        return _none(asked, found)
    blocks: list[Block] = [_over_time(asked, found)]
    for key, words, column, groups in (
        ("ends", "How they ended", "Ended", _by_end(found)),
        ("tiers", "By the model that was asked for", "Model asked for", _by_tier(found)),
        ("keys", "By key", "Key", _by_key(found)),
        ("doors", "By address", "Address", _by_door(found)),
    ):
        if len(groups) > 1 or key == "tiers":
            blocks.append(_groups_table(asked, groups, words, column, key))
    notes = [
        "A request failed if it came to no answer; one that its client cancelled did not. Requests under way count "
        "neither way. Requests whose texts are not kept count as all others. An answer that lacked the form that was "
        "asked for, which its client was told as an error, counts as an answer.",
        "Failed over: a model could not be asked, and another one was. Repaired: an answer was written again, in the "
        "form that was asked for. Rated right: what clients sent to POST /v1/feedback; a score counts as right from "
        "0.5 on. Whoever sends feedback is no random sample of those who ask.",
    ]
    if found.removed:
        notes.append(f"Not counted: {several(found.removed, 'request')} of this time, removed since.")
    if found.cut:
        notes.append(f"Only the {MOST_REQUESTS:,} newest requests are counted: choose a shorter time.")
    ways = [Way("All of these requests", listed(asked))]
    if any(one.failed for one in found.found):
        ways.append(Way("Failed", listed(asked, FAILED)))
    for name in ("failed_over", "repaired"):
        if any(getattr(one, name) for one in found.found):
            words = name.replace("_", " ").capitalize()
            ways.append(Way(words, listed(asked, Holds(Name("flags"), name))))
    return Answer("ended", _ENDED, _ended_words(found), blocks, notes, ways=ways)


def _none(asked: Asked, found: Requests) -> Answer:
    """What is said where there is no request to count."""
    of, last = window(asked), asked.read(_last)
    if last is None:
        said = "No request has been served yet. Serve a pool as one model, and send it a question:"
        return Answer("ended", _ENDED, said, [Code("trinity serve --pool pool.toml")])
    narrowed = " for these conditions" if of.where.to_query() else ""
    said = f"There is no request{narrowed} in this time. The last one of all was {ago(last, of.until)}."
    if found.removed:
        said = f"Of this time there is no request but {found.removed:,} that were removed since."
    ways = [] if of.since is None else [Way("All requests that there are", Address(PAGE, {"since": ALL}))]
    return Answer("ended", _ENDED, said, ways=ways)


def _last(store: Store) -> float | None:
    """When the newest request of a store was asked, Unix seconds."""
    return store.endpoint.last_asked()


def _ended_words(found: Requests) -> str:
    over = found.over
    failed = share(over, lambda one: one.failed)
    said = [f"{several(len(found.found), 'request')}."]
    if over and failed.value is not None and failed.ci95 is not None:
        said.append(
            f"{failed.k:,} failed: {share_words(failed.value, failed.ci95)}."
            if failed.k
            else f"None failed (95 % interval: up to {percent(failed.ci95[1])})."
        )
    cancelled, under_way = sum(one.cancelled for one in over), len(found.found) - len(over)
    if cancelled:
        said.append(f"{cancelled:,} {'was' if cancelled == 1 else 'were'} cancelled.")
    if under_way:
        said.append(f"{under_way:,} {'is' if under_way == 1 else 'are'} under way.")
    for name, words in (
        ("failed_over", "failed over to another model"),
        ("repaired", "had an answer repaired"),
    ):
        if n := sum(getattr(one, name) for one in found.found):
            said.append(f"{n:,} {words}.")
    of = rated(found.found)
    if of.n and of.value is not None and of.ci95 is not None:
        said.append(f"Clients rated {of.n:,}: right {share_words(of.value, of.ci95)}.")
    else:
        said.append("No client has rated an answer.")
    return " ".join(said)


def _over_time(asked: Asked, found: Requests) -> Bars:
    """Requests by when they were begun, answered or not; each bar leads to its list."""
    of = window(asked)
    begin, end = found.found[0].begun_at, max(of.until, found.found[-1].begun_at)
    step = next((one for one in _STEPS_S if (end - begin) / one < _MOST_BARS), _STEPS_S[-1])
    first = int(begin // step)
    n = int(end // step) - first + 1
    kinds: dict[str, tuple[str, Callable[[Request], bool]]] = {
        "answered": ("neutral", lambda one: one.is_over and not one.failed and not one.cancelled),
        "failed": ("wrong", lambda one: one.failed),
        "cancelled or under way": ("unsure", lambda one: not one.is_over or one.cancelled),
    }
    counts = {name: [0] * n for name in kinds}
    for one in found.found:
        place = min(max(int(one.begun_at // step) - first, 0), n - 1)
        counts[next(name for name, (_, holds) in kinds.items() if holds(one))][place] += 1
    starts = [(first + i) * step for i in range(n)]
    return Bars(
        [_bar_words(at, step, begin, end) for at in starts],
        [
            Series(name, counts[name], tone)  # type: ignore[arg-type]  # one of the tones
            for name, (tone, _) in kinds.items()
            if name == "answered" or any(counts[name])
        ],
        (f"begun (UTC, {_step_words(step)} a bar)", "requests"),
        marks=[Mark(to=listed(asked, begin=max(at, of.since or 0.0), end=at + step)) for at in starts],
        key="over_time",
    )


def _bar_words(at: float, step: int, begin: float, end: float) -> str:
    """When a bar begins: its time of day, its day, or both."""
    day, time = clock(at)[:10], clock(at, day=False)
    if step >= 86_400:
        return day
    return time if end - begin <= 86_400 else f"{day[5:]} {time}"


def _step_words(step: int) -> str:
    for unit, words in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if step >= unit:
            return several(step // unit, words)
    return f"{step} s"


def _by_end(found: Requests) -> list[_Group]:
    groups: defaultdict[EndReason | Status, list[Request]] = defaultdict(list)
    for one in found.found:
        groups[one.end_reason or one.status].append(one)
    return _sorted(
        _Group(END_WORDS[why], of, equals("end_reason", why.value))
        if isinstance(why, EndReason)
        else _Group(
            _STATUS_WORDS[why],
            of,
            join_nodes(Every, [equals("status", why.value), equals("end_reason", None)]),
        )
        for why, of in groups.items()
    )


def _by_tier(found: Requests) -> list[_Group]:
    return by_tier(found.found)


def by_tier(found: Sequence[Request]) -> list[_Group]:
    """Requests by the model that was asked for, most first."""
    groups: defaultdict[str, list[Request]] = defaultdict(list)
    for one in found:
        groups[one.tier].append(one)
    return _sorted(_Group(name, of, equals("tier", name)) for name, of in groups.items())


def _by_key(found: Requests) -> list[_Group]:
    groups: defaultdict[str | None, list[Request]] = defaultdict(list)
    for one in found.found:
        groups[None if one.key_id is None else found.keys.get(one.key_id, one.key_id)].append(one)
    return _sorted(_Group(name or "without a key", of, equals("key", name)) for name, of in groups.items())


def _by_door(found: Requests) -> list[_Group]:
    groups: defaultdict[str, list[Request]] = defaultdict(list)
    for one in found.found:
        groups[one.door].append(one)
    # A door's name is the last part of its address, but for one.
    words = {"chat": "/v1/chat/completions"}
    return _sorted(
        _Group(words.get(name, f"/v1/{name}"), of, equals("door", name)) for name, of in groups.items()
    )


def _sorted(groups: Iterable[_Group]) -> list[_Group]:
    return sorted(groups, key=lambda one: (-len(one.found), one.name))


def _groups_table(asked: Asked, groups: Sequence[_Group], title: str, words: str, key: str) -> Table:
    every = sum(len(one.found) for one in groups) or 1
    failing = key != "ends"

    def flagged(name: str) -> Column:
        return Column(
            name,
            name.replace("_", " ").capitalize(),
            "count",
            lambda one: sum(getattr(request, name) for request in one.found),
        )

    return Table.of(
        groups,
        Column("name", words, get=lambda one: one.name),
        Column("requests", "Requests", "count", lambda one: len(one.found)),
        Column("share", "Of all", "part", lambda one: len(one.found) / every),
        *[
            Column(
                "failed",
                "Failed",
                "estimate",
                lambda one: share(_over(one), lambda of: of.failed),
                "Of those that are over.",
            )
        ]
        * failing,
        *(flagged(name) for name in ("failed_over", "repaired") if _any(groups, name)),
        Column("rated", "Rated", "count", lambda one: rated(one.found).n, "Requests with feedback"),
        Column("right", "Rated right", "estimate", lambda one: rated(one.found)),
        Column("last", "Last", "time", lambda one: one.found[-1].begun_at),
        Column("open", "Episodes", "link", lambda one: listed(asked, one.node)),
        title=title,
        key=key,
    )


def _any(groups: Sequence[_Group], name: str) -> bool:
    return any(getattr(request, name) for one in groups for request in one.found)


def _over(group: _Group) -> list[Request]:
    return [one for one in group.found if one.is_over]


def latency(asked: Asked) -> Answer | None:
    """Where the time of requests went."""
    over = requests(asked).over
    if not over:
        return None
    split = [one for one in over if one.rest_s is not None]
    groups = [one for one in by_tier(split) if one.found]
    blocks: list[Block] = []
    if split:
        blocks.append(
            Bars(
                [one.name for one in groups],
                [
                    Series(words, [round(1000 * _mean(one.found, get)) for one in groups], "kind")
                    for words, get in _PARTS.values()
                ],
                ("model asked for", "mean milliseconds of a request"),
                level=True,
                marks=[Mark(to=listed(asked, one.node)) for one in groups],
                key="mean_ms",
            )
        )
    blocks += [_parts_table(over, split), _tiers_table(asked, over)]
    notes: list[Block] = [
        "The whole is from when the request was read to when its end was stored: reading it from the network, and "
        "sending the answer, come on top. Waiting: calls of models under way, by the seconds that each reply took; "
        "calls side by side count once. Deciding: choosing who speaks next, with waiting for the decisions made in the "
        "same pass; and writing workflows, by planners that are no model of the pool. Recording: storing every event, "
        "all but the last commit. All else: waiting while the one thread of the endpoint serves other requests, and "
        "checks of the answer's form.",
        "p50: half of the requests took no longer; p95: 95 of 100. Those of parts do not add up to those of the whole; "
        "shares of the time do.",
    ]
    if len(split) < len(over):
        notes.append(
            f"Of {several(len(over) - len(split), 'request')} deciding and recording were not measured: only the whole "
            "and waiting are known of them."
        )
    said = _latency_words(over, split)
    return Answer("latency", "Where did their time go?", said, blocks, notes)


def _mean(found: Sequence[Request], get: Callable[[Request], float | None]) -> float:
    return sum(get(one) or 0.0 for one in found) / len(found)


def percentile(values: Sequence[float], rank: int) -> float | None:
    """The p50, p95 ... of these; None of none."""
    return float(np.percentile(values, rank)) if values else None


def _latency_words(over: Sequence[Request], split: Sequence[Request]) -> str:
    half, most = (percentile([one.whole_s or 0.0 for one in over], rank) or 0.0 for rank in (50, 95))
    said = f"Half of {several(len(over), 'request')} took at most {seconds(half)}, 95 of 100 at most {seconds(most)}."
    total = sum(one.whole_s or 0.0 for one in split)
    if not total:
        return said
    shares = [
        f"{percent(sum(get(one) or 0.0 for one in split) / total)} {words}" for words, get in _PARTS.values()
    ]
    return (
        f"{said} Of all their time went {', '.join(shares[:-1])}, and {shares[-1]}: waiting while the endpoint's one "
        "thread works for other requests, and checks of answers."
    )


def _parts_table(over: Sequence[Request], split: Sequence[Request]) -> Table:
    total = sum(one.whole_s or 0.0 for one in split) or 1.0
    rows: list[tuple[str, list[float], float | None]] = [
        ("the whole request", [one.whole_s or 0.0 for one in over], None)
    ]
    for key, (words, get) in _PARTS.items():
        of = over if key == "waiting" else split
        values = [value for one in of if (value := get(one)) is not None]
        rows.append((words, values, sum(get(one) or 0.0 for one in split) / total if split else None))
    return Table.of(
        [one for one in rows if one[1]],
        Column("part", "Part", get=lambda one: one[0]),
        Column("requests", "Requests", "count", lambda one: len(one[1])),
        Column("p50", "p50, seconds", "number", lambda one: percentile(one[1], 50), "Half took no longer", 3),
        Column(
            "p95", "p95, seconds", "number", lambda one: percentile(one[1], 95), "95 of 100 took no longer", 3
        ),
        Column("share", "Of all time", "part", lambda one: one[2]),
        title="By part",
        key="parts",
    )


def _tiers_table(asked: Asked, over: Sequence[Request]) -> Table:
    def at(rank: int, get: Callable[[Request], float | None], key: str, words: str) -> Column:
        def value(group: _Group) -> float | None:
            return percentile([found for one in group.found if (found := get(one)) is not None], rank)

        return Column(f"{key}_p{rank}", f"{words} p{rank}", "number", value, "In seconds", 3)

    def whole(one: Request) -> float | None:
        return one.whole_s

    parts = [at(50, get, key, words.capitalize()) for key, (words, get) in _PARTS.items() if key != "rest"]
    return Table.of(
        by_tier(over),
        Column("name", "Model asked for", get=lambda one: one.name),
        Column("requests", "Requests", "count", lambda one: len(one.found)),
        at(50, whole, "whole", "Whole"),
        at(95, whole, "whole", "Whole"),
        *parts,
        Column("open", "Episodes", "link", lambda one: listed(asked, one.node)),
        title="By the model that was asked for, in seconds",
        key="tiers_s",
    )
