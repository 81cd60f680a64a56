"""How the models of a pool have been answering: calls, failures, times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import case, func, select

from core.episode import Flag, Status
from core.pool.circuits import FAILURES, OPEN_S
from storage.analysis.costs import of_the_pool
from storage.analysis.routing import own_turns
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.filters.vocabulary import played_for
from storage.rows.engine import reading
from storage.rows.schema import episode, plan, turn
from storage.store import Store

#: The newest calls whose times are read: enough for a 95th percentile of each model.
MOST_READ = 50_000
#: The newest calls of the endpoint, by which it is known which model it leaves alone.
MOST_SERVED = 500


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """The calls to one model, its turns and its plans. `failed`: it answered with a failure of its own; `lost`: it
    could not be asked, which ended the episode as missing; `replaced`: it could not be asked, and another model was
    asked in its place (part of `failed`). Latencies in seconds, `last` and `rests_until`, up to when the endpoint
    leaves it alone, in Unix seconds. `tokens_per_s` were written by its calls while they were waited for; None where
    none was."""

    model: str
    calls: int
    failed: int
    lost: int
    latency_p50_s: float | None
    latency_p95_s: float | None
    last: float
    tokens_per_s: float | None = None
    replaced: int = 0
    rests_until: float | None = None

    @property
    def error_share(self) -> float:
        return (self.failed + self.lost) / self.calls if self.calls else 0.0


def model_health(store: Store, where: EpisodeFilter) -> list[ModelHealth]:
    """Each model that was asked in these episodes, finished or not, measured or not, by name. Turns that a fork
    carries, replies that were reused or recorded and those written by hand are no calls. Three queries."""
    chosen = conditions(where, store.engine.dialect.name)
    calls = (
        func.coalesce(turn.c.finish_reason, "") != "not_asked",
        turn.c.flags.not_like(f"%{Flag.REUSED}%"),
        turn.c.recorded.is_(None),
        *own_turns(where),
    )
    lost = case((episode.c.status == Status.MISSING, case((turn.c.stage == "finished", 0), else_=1)), else_=0)
    failed = case((turn.c.error_kind.is_not(None), case((turn.c.stage == "finished", 1), else_=0)), else_=0)
    of_these = select(turn.c.episode_id).join(episode, episode.c.id == turn.c.episode_id)
    counts = (
        of_these.with_only_columns(
            turn.c.model,
            func.count(),
            func.sum(failed),
            func.sum(lost),
            func.max(turn.c.started),
            func.sum(case((turn.c.flags.like(f"%{Flag.FAILED_OVER}%"), 1), else_=0)),
        )
        .where(*chosen, *calls)
        .group_by(turn.c.model)
    )
    newest = (
        of_these.with_only_columns(turn.c.model, turn.c.latency_s, turn.c.tokens_out)
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
    served = (
        of_these.with_only_columns(turn.c.model, turn.c.flags, turn.c.started, turn.c.latency_s)
        .where(*chosen, *calls, turn.c.stage == "finished", played_for("served"))
        .order_by(turn.c.started.desc())
        .limit(MOST_SERVED)
    )
    last_served: defaultdict[str, list[float | None]] = defaultdict(list)  # when each failed, of the newest
    times: defaultdict[str, list[float]] = defaultdict(list)
    written: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])  # tokens, seconds
    with reading(store.engine) as connection:
        rows = {
            model: [n, fails or 0, gone or 0, last, replaced or 0]
            for model, n, fails, gone, last, replaced in connection.execute(counts)
        }
        for model, latency_s, tokens in connection.execute(newest):
            times[model].append(latency_s)
            if tokens and latency_s:
                written[model][0] += tokens
                written[model][1] += latency_s
        for model, flags, started, latency_s in connection.execute(served):
            failed_at = started + (latency_s or 0.0) if Flag.FAILED_OVER in flags else None
            if len(last_served[model]) < FAILURES:
                last_served[model].append(failed_at)
        for model, latency_s, error, at, status in connection.execute(plans):
            row = rows.setdefault(model, [0, 0, 0, at, 0])
            row[0] += 1
            row[1 if status != Status.MISSING else 2] += error is not None
            row[3] = max(row[3], at)
            times[model] += [] if latency_s is None else [latency_s]
    return [
        ModelHealth(
            model,
            n,
            failed,
            lost,
            *_percentiles(times[model]),
            last,
            written[model][0] / written[model][1] if model in written else None,
            replaced,
            _rests_until(last_served[model], store.now()),
        )
        for model, (n, failed, lost, last, replaced) in sorted(rows.items())
    ]


def _rests_until(failed: Sequence[float | None], now: float) -> float | None:
    """Until when a model's circuit is open, by when its newest calls failed (`core.pool.circuits`)."""
    at = [one for one in failed if one is not None]
    is_open = len(at) == FAILURES and now < max(at) + OPEN_S
    return max(at) + OPEN_S if is_open else None


def _percentiles(values: list[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    p50, p95 = np.percentile(values, (50, 95))
    return float(p50), float(p95)
