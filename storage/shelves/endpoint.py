"""Keys of the endpoint, and the requests that were asked with them.

A key is told once, when it is made; the store holds a digest of its secret part. A revoked key stays in the list, so
that its requests keep their owner.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Float,
    Integer,
    bindparam,
    exists,
    func,
    insert,
    select,
    true,
    update,
)

from core.errors import StoreError
from core.ids import episode_id
from storage.rows.engine import fetch_mappings, fetch_rows, fetch_scalar, writing
from storage.rows.mapping import Rows, from_row
from storage.rows.schema import api_key, episode, label, run, served
from storage.rows.summaries import RunStatus
from storage.shelves.episodes import visible_name

#: The names of labels that a client's feedback becomes: right or wrong, and a score from 0 to 1.
RIGHT, SCORE = FEEDBACK = ("feedback", "feedback score")
#: How a key looks: the product, the key's id, its secret.
_KEY = re.compile(r"trinity-([a-z2-7]{8})-([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Quota:
    """What requests may take together in a day or a month (UTC): US dollars, how many, tokens; None: no limit."""

    usd: float | None = None
    requests: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What requests of a key may take: of money all together (US dollars), of turns and seconds each; None where it has
    no limit of its own. `leave_out` are models and providers that it does without."""

    max_cost_usd: float | None = None
    max_turns: int | None = None
    deadline_s: float | None = None
    leave_out: tuple[str, ...] = ()
    day: Quota = Quota()
    month: Quota = Quota()


@dataclass(slots=True)
class Use:
    """What requests have taken."""

    usd: float = 0.0
    requests: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret, with how often it was used and what that cost (US dollars)."""

    id: str
    name: str
    created: float
    revoked: float | None
    limits: Limits
    requests: int = 0
    charged_usd: float = 0.0
    last_used: float | None = None


@dataclass(frozen=True)
class Endpoint:
    """Keys and requests of the endpoint (`store.endpoint`)."""

    engine: Engine
    now: Callable[[], float]

    def add_key(self, name: str, limits: Limits = Limits()) -> tuple[ApiKey, str]:
        """Make a key; it, and the text to ask with, which nobody can read again. StoreError for a name that is none."""
        words = visible_name(name, "key")
        identity = "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz234567") for _ in range(8))
        secret, at = secrets.token_urlsafe(32), self.now()
        row = {
            "id": identity,
            "name": words,
            "digest": _digest(secret),
            "created": at,
            **_limit_columns(limits),
        }
        with writing(self.engine) as connection:
            connection.execute(insert(api_key), row)
        return ApiKey(identity, words, at, None, limits), f"trinity-{identity}-{secret}"

    def keys(self) -> Sequence[ApiKey]:
        """All keys with their use, newest first."""
        use = (
            select(
                served.c.key_id,
                func.count().label("requests"),
                func.sum(served.c.charged_usd).label("charged_usd"),
                func.max(served.c.at).label("last_used"),
            )
            .group_by(served.c.key_id)
            .subquery()
        )
        query = select(api_key, use.c.requests, use.c.charged_usd, use.c.last_used).outerjoin(
            use, use.c.key_id == api_key.c.id
        )
        rows = fetch_mappings(self.engine, query.order_by(api_key.c.created.desc(), api_key.c.id))
        return [_key(row) for row in rows]

    def has_keys(self) -> bool:
        query = select(func.count()).select_from(api_key).where(api_key.c.revoked.is_(None))
        return bool(fetch_scalar(self.engine, query))

    def revoke(self, key_id: str) -> ApiKey:
        """Refuse a key from now on. StoreError when there is none of this id or name, or several of this name."""
        found = [one for one in self.keys() if key_id in (one.id, one.name) and one.revoked is None]
        if len(found) != 1:
            raise StoreError(
                f"No valid key is called '{key_id[:40]}'; see trinity keys list."
                if not found
                else f"Several keys are called '{key_id[:40]}': give the id of one, see trinity keys list."
            )
        with writing(self.engine) as connection:
            connection.execute(update(api_key).where(api_key.c.id == found[0].id).values(revoked=self.now()))
        return found[0]

    def find(self, text: str) -> ApiKey | None:
        """The valid key of this text; None for any other. Digests are compared in constant time."""
        parts = _KEY.fullmatch(text)
        rows = fetch_mappings(self.engine, select(api_key).where(api_key.c.id == (parts[1] if parts else "")))
        row = next(iter(rows), None)
        expected = row["digest"] if row else _digest("")
        same = hmac.compare_digest(_digest(parts[2] if parts else text), expected)
        return _key(row) if row and same and row["revoked"] is None else None

    def note(
        self,
        episode_id: str,
        key_id: str | None,
        door: str,
        model: str,
        connection: Connection | None = None,
        *,
        at: float | None = None,
    ) -> None:
        """Remember that an episode is a request's, asked `at` (Unix seconds; left out: now). Within a transaction where
        one is given."""
        asked = self.now() if at is None else at
        row = {"episode_id": episode_id, "key_id": key_id, "door": door, "model": model, "at": asked}
        with nullcontext(connection) if connection else writing(self.engine) as within:
            within.execute(_NOTE, row)

    def key_of(self, episode_id: str) -> str | None:
        """The id of the key that a request was asked with, None without one. StoreError where there is no such
        request."""
        query = select(served.c.key_id).where(served.c.episode_id == episode_id)
        if not (rows := fetch_mappings(self.engine, query)):
            raise StoreError(f"There is no request '{episode_id[:80]}' in this store.")
        key: str | None = rows[0]["key_id"]
        return key

    def last_asked(self) -> float | None:
        """When the newest request was asked, Unix seconds; None for none."""
        at: float | None = fetch_scalar(self.engine, select(func.max(served.c.at)))
        return at

    def tiers(self) -> list[str]:
        """The models that requests have asked for, by name."""
        query = select(served.c.model).distinct().order_by(served.c.model)
        return [name for (name,) in fetch_rows(self.engine, query)]

    def rated(self, since: float) -> list[str]:
        """The episodes of requests from a time on (Unix seconds) that have feedback, oldest first."""
        about = (label.c.episode_id == served.c.episode_id, label.c.name.in_(FEEDBACK))
        query = select(served.c.episode_id).where(
            served.c.at >= since, exists(select(label.c.id).where(*about))
        )
        return [row["episode_id"] for row in fetch_mappings(self.engine, query.order_by(served.c.at))]

    def charge(
        self,
        episode_id: str,
        usd: float,
        connection: Connection | None = None,
        *,
        tokens: int = 0,
        under_way_usd: float = 0.0,
    ) -> None:
        """Add to what a request has taken, durably: ceilings are kept over it. `under_way_usd`: the most that those of
        its calls can cost whose answers have still to come. Within a transaction where one is given."""
        more = {"of": episode_id, "usd": usd, "more": tokens, "left": under_way_usd}
        with nullcontext(connection) if connection else writing(self.engine, durable=True) as within:
            within.execute(_CHARGE, more)

    def note_under_way(self, bounds: Mapping[str, float]) -> None:
        """Remember the most that calls of these requests can cost that are about to be made, in US dollars."""
        with writing(self.engine) as connection:
            connection.execute(_UNDER_WAY, [{"of": of, "left": usd} for of, usd in bounds.items()])

    def charge_lost(self, episodes: Collection[str] | None = None) -> None:
        """Charge requests whose process is gone with the most that their calls under way could cost: their models'
        servers may bill them. `episodes`: the requests; left out: all whose run nobody plays."""
        played = select(episode.c.id).join(run, run.c.id == episode.c.run_id)
        played = played.where(run.c.status == RunStatus.RUNNING)
        gone = served.c.episode_id.not_in(played) if episodes is None else served.c.episode_id.in_(episodes)
        lost = (served.c.under_way_usd > 0, gone)
        if not fetch_rows(self.engine, select(served.c.episode_id).where(*lost).limit(1)):
            return  # mostly there are none: then no write lock is taken
        charged = {"charged_usd": served.c.charged_usd + served.c.under_way_usd, "under_way_usd": 0.0}
        with writing(self.engine, durable=True) as connection:
            connection.execute(update(served).where(*lost).values(charged))

    def note_times(
        self, episode_id: str, deciding_s: float, recording_s: float, connection: Connection
    ) -> None:
        """Remember how many seconds of a request deciding and recording took, within a transaction."""
        times = {"of": episode_id, "deciding": deciding_s, "recording": recording_s}
        connection.execute(_TIMES, times)

    def charged_usd(self, key_id: str | None = None) -> float:
        return self._charged(true() if key_id is None else served.c.key_id == key_id)

    def use(self, since: float, key_id: str | None = None) -> Use:
        """What requests from a time on (Unix seconds) have taken, of one key or of all."""
        columns = (func.sum(served.c.charged_usd), func.count(), func.sum(served.c.tokens))
        whose = true() if key_id is None else served.c.key_id == key_id
        [(usd, requests, tokens)] = fetch_rows(
            self.engine, select(*columns).where(served.c.at >= since, whose)
        )
        return Use(float(usd or 0.0), requests, int(tokens or 0))

    def use_of(self, episodes: Collection[str]) -> dict[str, Use]:
        """What each of these requests has taken, as far as it is known here."""
        query = select(served.c.episode_id, served.c.charged_usd, served.c.tokens)
        rows = fetch_rows(self.engine, query.where(served.c.episode_id.in_(episodes)))
        return {name: Use(usd, 1, tokens) for name, usd, tokens in rows}

    def charged_in(self, runs: Sequence[str]) -> float:
        begins = (episode_id(run, 0).rpartition("-")[0] for run in runs)
        return sum(
            self._charged(served.c.episode_id.startswith(f"{one}-", autoescape=True)) for one in begins
        )

    def _charged(self, requests: ColumnElement[bool]) -> float:
        query = select(func.coalesce(func.sum(served.c.charged_usd), 0.0)).where(requests)
        return float(fetch_scalar(self.engine, query) or 0.0)


# For every request: making these statements takes longer than running them.
_NOTE = insert(served)
_CHARGE = (
    update(served)
    .where(served.c.episode_id == bindparam("of"))
    .values(
        charged_usd=served.c.charged_usd + bindparam("usd", type_=Float),
        tokens=served.c.tokens + bindparam("more", type_=Integer),
        under_way_usd=bindparam("left"),
    )
)
_UNDER_WAY = (
    update(served).where(served.c.episode_id == bindparam("of")).values(under_way_usd=bindparam("left"))
)
_TIMES = (
    update(served)
    .where(served.c.episode_id == bindparam("of"))
    .values(deciding_s=bindparam("deciding"), recording_s=bindparam("recording"))
)


def looks_like_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


#: The columns of quotas, by period and what.
_QUOTAS = {
    period: {what: f"{period}_{what}" for what in ("usd", "requests", "tokens")}
    for period in ("day", "month")
}


def _limit_columns(limits: Limits) -> dict[str, object]:
    own = asdict(limits)
    quotas = {period: own.pop(period) for period in _QUOTAS}
    return own | {f"{period}_{what}": value for period, of in quotas.items() for what, value in of.items()}


def _limits(row: Rows) -> Limits:
    quotas = {
        period: Quota(**{what: row[name] for what, name in of.items()}) for period, of in _QUOTAS.items()
    }
    return from_row(Limits, row, **quotas)


def _key(row: Rows) -> ApiKey:
    used = {name: row.get(name) or 0 for name in ("requests", "charged_usd")}
    return from_row(ApiKey, row, limits=_limits(row), last_used=row.get("last_used"), **used)
