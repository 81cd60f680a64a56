"""What calls to the models of a pool have taken on average, and how many of an evolution's calls were really made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import case, func, select

from core.episode import EDITED, Flag, Status, Verdict
from storage.analysis.routing import own_turns
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import fetch_rows, reading
from storage.rows.schema import candidate, episode, learning_update, run, turn
from storage.store import Store

EVERY_EPISODE = EpisodeFilter(forks="with")
#: The newest turns and generations that are looked at.
MOST_READ, MOST_GENERATIONS = 20_000, 500


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
    """Means by model, and the calls that an episode made; `n` is the number of recorded replies behind them. `accepts`
    is the share of verdicts that accept; a half where there is none."""

    models: dict[str, CallMeans]
    calls_per_episode: float
    accepts: float = 0.5

    @property
    def n(self) -> int:
        return sum(one.n for one in self.models.values())


def pool_means(store: Store, pool: str) -> PoolMeans | None:
    """The means of a pool's recorded calls, by the digest that its runs keep; None where none is recorded. Turns that
    forks carry were counted in their parents, and a fork is no whole episode: none tells how many calls one makes."""
    took = case((turn.c.flags.like(f"%{Flag.REUSED}%"), None), else_=turn.c.latency_s)
    played = (
        select(
            *(turn.c.episode_id, turn.c.model, turn.c.tokens_in, turn.c.tokens_out, turn.c.verdict),
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
    accepted = case((played.c.verdict == Verdict.ACCEPT, 1), else_=0)
    whole = case((played.c.fork_turn.is_(None), played.c.episode_id))
    episodes = select(
        *(func.count(whole.distinct()), func.count(whole)),
        *(func.count(played.c.episode_id.distinct()), func.count()),
        *(func.count(played.c.verdict), func.sum(accepted)),
    ).select_from(played)
    with reading(store.engine) as connection:
        n, calls, with_forks, all_calls, judged, accepts = connection.execute(episodes).one()
        rows = connection.execute(by_model).all()
    if not with_forks:
        return None
    return PoolMeans(
        {model: CallMeans(k, *(float(mean or 0) for mean in means)) for model, k, *means in rows},
        calls / n if n else all_calls / with_forks,
        accepts / judged if judged else 0.5,
    )


@dataclass(frozen=True, slots=True)
class SharedCalls:
    """A generation of an evolution: its number, how many candidates played how many tasks each, the calls that were
    made, and those that were answered by what another candidate had got. `config` is its run's."""

    index: int
    candidates: int
    tasks: int
    made: int
    saved: int
    config: Mapping[str, Any]


def shared_calls(store: Store, pool: str) -> list[SharedCalls]:
    """The newest generations of evolutions of this pool, by the digest that runs keep, as far as they counted calls."""
    of_it = (candidate.c.run_id == learning_update.c.run_id, candidate.c.generation == learning_update.c.idx)
    n, tasks = (
        select(one).where(*of_it).scalar_subquery() for one in (func.count(), func.max(candidate.c.rollouts))
    )
    query = (
        select(learning_update.c.idx, n, tasks, learning_update.c.stats, run.c.config)
        .join(run, run.c.id == learning_update.c.run_id)
        .where(run.c.pool == pool, run.c.kind == "evolve", learning_update.c.idx > 0)
        .order_by(run.c.created.desc(), learning_update.c.idx)
        .limit(MOST_GENERATIONS)
    )
    found = []
    for index, candidates, each, stats, config in fetch_rows(store.engine, query):
        counts = json.loads(stats)
        made, saved = (counts.get(name) for name in ("calls", "calls_saved"))
        if made is not None and saved is not None and made + saved and candidates and each:
            found.append(SharedCalls(index, candidates, each, made, saved, json.loads(config)))
    return found
