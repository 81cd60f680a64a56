"""Calls to the models of a pool: what they have taken on average, how models have been answering, and how many
transcripts an encoder's window would cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import case, func, select

from core.episode import EDITED, Decide, Flag, Status, Task, Transcript, Verdict
from core.play.session import recorded_requests
from core.pool.spec import ModelSpec, digest_of_specs
from core.tokens import PromptTokens
from storage.analysis.costs import of_the_pool
from storage.analysis.routing import own_turns
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.rows.engine import fetch_rows, reading
from storage.rows.schema import candidate, episode, learning_update, plan, run, turn
from storage.store import Store

EVERY_EPISODE = EpisodeFilter(forks="with")
#: The newest turns and generations that are looked at.
MOST_TURNS, MOST_GENERATIONS = 20_000, 500


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
        .limit(MOST_TURNS)
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
        made, saved = (stats.get(name) for name in ("calls", "calls_saved"))
        if made is not None and saved is not None and made + saved and candidates and each:
            found.append(SharedCalls(index, candidates, each, made, saved, config))
    return found


#: The newest calls whose times are read: enough for a 95th percentile of each model.
MOST_READ = 50_000


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """The calls to one model, its turns and its plans. `failed`: it answered with a failure of its own; `lost`: it
    could not be asked, which ended the episode as missing. Times in seconds; `last` in Unix seconds."""

    model: str
    calls: int
    failed: int
    lost: int
    latency_p50_s: float | None
    latency_p95_s: float | None
    last: float

    @property
    def error_share(self) -> float:
        return (self.failed + self.lost) / self.calls if self.calls else 0.0


def model_health(store: Store, where: EpisodeFilter) -> list[ModelHealth]:
    """Each model that was asked in these episodes, finished or not, measured or not, by name. Turns that a fork
    carries, replies that were reused and those written by hand are no calls. Three queries."""
    chosen = conditions(where, store.engine.dialect.name)
    calls = (
        func.coalesce(turn.c.finish_reason, "") != "not_asked",
        turn.c.flags.not_like(f"%{Flag.REUSED}%"),
        *own_turns(where),
    )
    lost = case((episode.c.status == Status.MISSING, case((turn.c.stage == "finished", 0), else_=1)), else_=0)
    failed = case((turn.c.error_kind.is_not(None), case((turn.c.stage == "finished", 1), else_=0)), else_=0)
    of_these = select(turn.c.episode_id).join(episode, episode.c.id == turn.c.episode_id)
    counts = (
        of_these.with_only_columns(
            turn.c.model, func.count(), func.sum(failed), func.sum(lost), func.max(turn.c.started)
        )
        .where(*chosen, *calls)
        .group_by(turn.c.model)
    )
    newest = (
        of_these.with_only_columns(turn.c.model, turn.c.latency_s)
        .where(*chosen, *calls, turn.c.stage == "finished", turn.c.latency_s.is_not(None))
        .order_by(turn.c.started.desc())
        .limit(MOST_READ)
    )
    # A model of the pool that plans is asked for that too. Forks carry their parents' plans.
    plans = (
        select(plan.c.planner, plan.c.latency_s, plan.c.error_kind, plan.c.at, episode.c.status)
        .join(episode, episode.c.id == plan.c.episode_id)
        .where(*chosen, of_the_pool(), episode.c.fork_turn.is_(None))
        .order_by(plan.c.at.desc())
        .limit(MOST_READ)
    )
    times: defaultdict[str, list[float]] = defaultdict(list)
    with reading(store.engine) as connection:
        rows = {
            model: [n, fails or 0, gone or 0, last]
            for model, n, fails, gone, last in connection.execute(counts)
        }
        for model, latency_s in connection.execute(newest):
            times[model].append(latency_s)
        for model, latency_s, error, at, status in connection.execute(plans):
            row = rows.setdefault(model, [0, 0, 0, at])
            row[0] += 1
            row[1 if status != Status.MISSING else 2] += error is not None
            row[3] = max(row[3], at)
            times[model] += [] if latency_s is None else [latency_s]
    return [
        ModelHealth(model, n, failed, lost, *_percentiles(times[model]), last)
        for model, (n, failed, lost, last) in sorted(rows.items())
    ]


def _percentiles(values: list[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    p50, p95 = np.percentile(values, (50, 95))
    return float(p50), float(p95)


#: Recorded episodes, and questions, that are looked at: hundreds of transcripts, in well under two seconds.
MOST_EPISODES, MOST_QUESTIONS = 40, 200


@dataclass(frozen=True, slots=True)
class WindowCut:
    """Of `n` transcripts, `cut` are longer than the window; they are `recorded` ones, or questions alone. With neither
    there is no `share`."""

    cut: int
    n: int
    recorded: bool

    @property
    def share(self) -> float | None:
        return self.cut / self.n if self.n else None


def window_cut(
    store: Store, tokens: PromptTokens, specs: Sequence[ModelSpec], tasks: Sequence[Task]
) -> WindowCut:
    """What the encoder's window would cut of the newest recorded transcripts of a pool; where there are none, of the
    questions of the `tasks`."""
    newest = EpisodeFilter(q=f'pool == "{digest_of_specs(specs)}" and turns > 1', forks="with")
    requests = [
        request
        for one in store.episodes.page(newest, limit=MOST_EPISODES).items
        for request in recorded_requests(store.episodes.get(one.id))
    ]
    recorded = bool(requests)
    if not recorded:
        requests = [Decide(Transcript(task.question), 0, "") for task in tasks[:MOST_QUESTIONS]]
    cut = sum(tokens.prompt(one, "chat" if one.messages else "segments").overflow for one in requests)
    return WindowCut(cut, len(requests), recorded)
