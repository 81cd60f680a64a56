"""What is asked about the endpoint: its requests of a filter from a time on, and the lists of them behind numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from core.analysis.metrics import wilson_interval
from storage.analysis.requests import BestSingle, Request, Requests, best_single, read_requests
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.expression import Compare, Every, Name, Node, join_nodes, write_expression
from storage.filters.parser import parse_expression
from storage.store import Store
from storage.upkeep.retention import moment_of
from ui.answers.asked import Asked, Side
from ui.answers.blocks import Address, Estimate

PAGE = "requests"
#: All requests there are, in the place of an age.
ALL = "all"
#: What is asked about where nothing is said.
TODAY = "24h"


#: What holds of a request that failed (`storage.analysis.requests.Request.failed`), in the filter language.
FAILED = parse_expression(
    'status != "running" and end_reason not in ("cancelled", "tool_calls") and not any("no_answer" not in turn.flags '
    "and turn.error == None and turn.tokens_out != None "
    'and (turn.step == None and turn.role == "worker" or turn.step != None and turn.answer != None))'
)


@dataclass(frozen=True, slots=True)
class Window:
    """Requests of a filter that were begun in a time: `since` and `until` in Unix seconds, None for all there are;
    `words` say it, such as `24h`."""

    where: EpisodeFilter
    words: str
    since: float | None
    until: float


def asked_of_requests(
    store: Store, where: EpisodeFilter, since: str = TODAY, *, now: float, **more: Any
) -> Asked:
    """The requests of a filter since an age or a date (`ALL`: all of them), to the minute. `now` in Unix seconds;
    `more`: further fields of Asked. ConfigError for what is no age."""
    begin = None if since == ALL else moment_of(since, now).timestamp() // 60 * 60
    name = "all requests" if begin is None else f"requests since {clock(begin)}"
    side = Side("", name, where)
    asked = Asked(
        store, (side,), side, subject=Window(where, since, begin, now), counts_of="requests", **more
    )
    return replace(asked, counted={name: len(requests(asked).found)})


def window(asked: Asked) -> Window:
    """The subject, if it is one."""
    assert isinstance(asked.subject, Window)
    return asked.subject


def requests(asked: Asked) -> Requests:
    """The requests that are asked about."""
    of = window(asked)
    return asked.read(read_requests, of.where, of.since)


def any_found(asked: Asked) -> bool:
    """Whether there is any."""
    return bool(requests(asked).found)


def best_of(asked: Asked) -> BestSingle | None:
    """The best single model of the pool that played the newest request; None where that was not measured."""
    found = requests(asked).found
    return asked.read(best_single, found[-1].setting.pool) if found else None


def clock(at: float, *, day: bool = True) -> str:
    """A time (Unix seconds) in UTC: `2026-11-28 09:30 UTC`, without its day `09:30`."""
    return f"{datetime.fromtimestamp(at, UTC):{'%Y-%m-%d %H:%M UTC' if day else '%H:%M'}}"


def equals(name: str, value: str | None) -> Compare:
    """The condition that a field of an episode has this value."""
    return Compare(Name(name), "==", value)


def listed(asked: Asked, *more: Node, begin: float | None = None, end: float | None = None) -> Address:
    """The list of these requests for which more conditions hold, begun from `begin` to before `end`."""
    of = window(asked)
    parts = [write_expression(join_nodes(Every, [equals("purpose", "served"), *more]))]
    since = of.since if begin is None else begin
    parts += [] if since is None else [f'started >= "{_moment(since)}"']
    parts += [] if end is None else [f'started < "{_moment(end)}"']
    return Address("episodes", of.where.narrow(" and ".join(parts)).to_query())


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def share(found: Iterable[Request], holds: Callable[[Request], bool]) -> Estimate:
    """The share of requests for which something holds, with Wilson's interval."""
    every = list(found)
    k, n = sum(map(holds, every)), len(every)
    return Estimate(k / n, wilson_interval(k, n), k, n) if n else Estimate(None, None, 0, 0)


def rated(found: Sequence[Request]) -> Estimate:
    """Of requests with feedback, the share that was right as their clients said."""
    return share([one for one in found if one.right is not None], lambda one: bool(one.right))
