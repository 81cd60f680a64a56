"""What calls to the models of a pool have taken on average, and how many of an evolution's calls were really made."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import case, func, select

from core.episode import EDITED, Flag, Status
from storage.analysis.routing import own_turns
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import reading
from storage.rows.schema import episode, generation, run, turn
from storage.store import Store

EVERY_EPISODE = EpisodeFilter(forks="with")
#: The newest turns that are looked at.
MOST_READ = 20_000


@dataclass(frozen=True, slots=True)
class CallMeans:
    """A model's recorded replies: their number, and the means of tokens sent, written and billed as read before, and
    of seconds."""

    n: int
    tokens_in: float
    tokens_out: float
    tokens_cached: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class PoolMeans:
    """Means by model, and the calls that an episode made; `n` is the number of recorded replies behind them."""

    models: dict[str, CallMeans]
    calls_per_episode: float

    @property
    def n(self) -> int:
        return sum(one.n for one in self.models.values())


def pool_means(store: Store, pool: str) -> PoolMeans | None:
    """The means of a pool's recorded calls, by the digest that its runs keep; None where none is recorded. Turns that
    forks carry were counted in their parents, and a fork is no whole episode: none tells how many calls one makes."""
    took = case((turn.c.flags.like(f"%{Flag.REUSED}%"), None), else_=turn.c.latency_s)
    played = (
        select(
            *(turn.c.episode_id, turn.c.model, turn.c.tokens_in, turn.c.tokens_out),
            func.coalesce(turn.c.tokens_cached, 0).label("tokens_cached"),
            took.label("latency_s"),
            episode.c.fork_turn,
        )
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(run, run.c.id == episode.c.run_id)
        .where(
            run.c.pool == pool,
            episode.c.status == Status.FINISHED,
            turn.c.stage == "finished",
            turn.c.error_kind.is_(None),
            func.coalesce(turn.c.finish_reason, "").not_in(("not_asked", EDITED)),
            *own_turns(EVERY_EPISODE),
        )
        .order_by(episode.c.started.desc())
        .limit(MOST_READ)
        .subquery()
    )
    by_model = select(
        played.c.model,
        func.count(),
        func.avg(played.c.tokens_in),
        func.avg(played.c.tokens_out),
        func.avg(played.c.tokens_cached),
        func.avg(played.c.latency_s),
    ).group_by(played.c.model)
    whole = case((played.c.fork_turn.is_(None), played.c.episode_id))
    episodes = select(
        *(func.count(whole.distinct()), func.count(whole)),
        *(func.count(played.c.episode_id.distinct()), func.count()),
    ).select_from(played)
    with reading(store.engine) as connection:
        n, calls, with_forks, all_calls = connection.execute(episodes).one()
        rows = connection.execute(by_model).all()
    if not with_forks:
        return None
    return PoolMeans(
        {model: CallMeans(k, *(float(mean or 0) for mean in means)) for model, k, *means in rows},
        calls / n if n else all_calls / with_forks,
    )


def share_of_calls_made(store: Store) -> float | None:
    """Of the calls that evolutions of this store asked for, those that were made: the others were answered by replies
    that another candidate had got. None where no evolution counted them."""
    made = func.json_extract(generation.c.stats, "$.calls")
    saved = func.json_extract(generation.c.stats, "$.calls_saved")
    if store.engine.dialect.name == "postgresql":
        from sqlalchemy import Float, cast
        from sqlalchemy.dialects.postgresql import JSONB

        stats = cast(generation.c.stats, JSONB)
        made, saved = (stats[name].astext.cast(Float) for name in ("calls", "calls_saved"))
    counted = case((generation.c.idx > 0, 1), else_=0)
    query = select(func.sum(made * counted), func.sum((made + saved) * counted))
    with reading(store.engine) as connection:
        asked, all_ = connection.execute(query).one()
    return asked / all_ if all_ else None
