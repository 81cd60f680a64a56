"""How a pool's models have been answering: calls, failures, how long they took, and when they were last heard of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from sqlalchemy import case, func, select

from core.episode import Flag, Status
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.rows.engine import reading
from storage.rows.schema import episode, turn
from storage.store import Store

#: The newest calls whose times are read: enough for a 95th percentile of each model.
MOST_READ = 50_000


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """The calls to one model. `failed`: it answered with a failure of its own; `lost`: it could not be asked, which
    ended the episode as missing. Times in seconds, of calls that were made and not reused; `last` in Unix seconds."""

    model: str
    calls: int
    failed: int
    lost: int
    latency_p50_s: float | None
    latency_p95_s: float | None
    last: float

    @property
    def error_share(self) -> float:
        """Of all calls, those that failed or were lost."""
        return (self.failed + self.lost) / self.calls if self.calls else 0.0


def model_health(store: Store, where: EpisodeFilter) -> list[ModelHealth]:
    """Each model that was asked in these episodes, finished or not, measured or not, by name. Two queries."""
    chosen = conditions(where, store.engine.dialect.name)
    asked = func.coalesce(turn.c.finish_reason, "") != "not_asked"
    anew = turn.c.flags.not_like(f"%{Flag.REUSED}%")
    lost = case((episode.c.status == Status.MISSING, case((turn.c.stage == "finished", 0), else_=1)), else_=0)
    failed = case((turn.c.error_kind.is_not(None), case((turn.c.stage == "finished", 1), else_=0)), else_=0)
    of_these = select(turn.c.episode_id).join(episode, episode.c.id == turn.c.episode_id)
    counts = (
        of_these.with_only_columns(
            turn.c.model, func.count(), func.sum(failed), func.sum(lost), func.max(turn.c.started)
        )
        .where(*chosen, asked)
        .group_by(turn.c.model)
    )
    newest = (
        of_these.with_only_columns(turn.c.model, turn.c.latency_s)
        .where(*chosen, asked, turn.c.stage == "finished", turn.c.latency_s.is_not(None), anew)
        .order_by(turn.c.started.desc())
        .limit(MOST_READ)
    )
    times: defaultdict[str, list[float]] = defaultdict(list)
    with reading(store.engine) as connection:
        rows = connection.execute(counts).all()
        for model, latency_s in connection.execute(newest):
            times[model].append(latency_s)
    return [
        ModelHealth(model, calls, fails or 0, gone or 0, *_percentiles(times[model]), last)
        for model, calls, fails, gone, last in sorted(rows, key=lambda row: str(row[0]))
    ]


def _percentiles(values: list[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    p50, p95 = np.percentile(values, (50, 95))
    return float(p50), float(p95)
