"""What would be picked if some models could not be: recorded logits chosen from again without them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import and_, case, func, select

from core.heads import softmax
from storage.analysis.routing import counted_episodes
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import reading
from storage.rows.mapping import to_floats
from storage.rows.schema import episode, turn
from storage.store import Store

#: The logits of so many changed picks are read: enough for shares to a percent.
MOST_READ = 50_000
#: A decision of a head.
_DECIDED = and_(turn.c.stage == "finished", func.length(turn.c.model_logits) > 0, turn.c.origin == "policy")


@dataclass(frozen=True, slots=True)
class Without:
    """`changed` of `turns` decisions of a head would fall on another model, in `touched` of `episodes` episodes.
    `takers`: model -> the probability it would take over, summed over the `read` changed picks."""

    turns: int
    changed: int
    episodes: int
    touched: int
    read: int
    takers: dict[str, float]


def without_models(store: Store, where: EpisodeFilter, off: Sequence[str]) -> Without:
    """The decisions that a head made, without the models `off`: a pick changes exactly where it was one of them,
    as the others keep their order and their ratios. Two queries; no model is asked."""
    gone = turn.c.model.in_(list(off))
    counts = (
        select(
            func.count(),
            func.sum(case((gone, 1), else_=0)),
            func.count(turn.c.episode_id.distinct()),
            func.count(case((gone, turn.c.episode_id)).distinct()),
        )
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(*counted_episodes(store, where), _DECIDED)
    )
    picks = (
        select(episode.c.models, turn.c.model_logits, turn.c.model_mask)
        .join(episode, episode.c.id == turn.c.episode_id)
        .where(*counted_episodes(store, where), _DECIDED, gone)
        .limit(MOST_READ)
    )
    with reading(store.engine) as connection:
        turns, changed, episodes, touched = connection.execute(counts).one()
        alike: dict[tuple[str, str], list[bytes]] = {}
        for models, logits, mask in connection.execute(picks):
            alike.setdefault((models, mask), []).append(bytes(logits))
    takers: dict[str, float] = {}
    for (models, mask), logits in alike.items():
        for model, p in _taken(json.loads(models), logits, mask, off).items():
            takers[model] = takers.get(model, 0.0) + p
    read = sum(map(len, alike.values()))
    ordered = dict(sorted(takers.items(), key=lambda one: (-one[1], one[0])))
    return Without(turns, changed or 0, episodes, touched, read, ordered)


def each_missed(store: Store, where: EpisodeFilter, models: Sequence[str]) -> dict[str, Without]:
    """What each of these models, left out alone, would change, the least first; who would take over is not read. Two
    queries, however many the models are."""
    counts = func.count(), func.count(turn.c.episode_id.distinct())
    decided = (*counted_episodes(store, where), _DECIDED)
    total = select(*counts).join(episode, episode.c.id == turn.c.episode_id).where(*decided)
    with reading(store.engine) as connection:
        turns, episodes = connection.execute(total).one()
        by_model = total.add_columns(turn.c.model).group_by(turn.c.model)
        picks = {model: (changed, touched) for changed, touched, model in connection.execute(by_model)}
    found = []
    for model in models:
        changed, touched = picks.get(model, (0, 0))
        found.append((model, Without(turns, changed, episodes, touched, 0, {})))
    return dict(sorted(found, key=lambda one: one[1].changed))


def _taken(models: Sequence[str], logits: Sequence[bytes], mask: str, off: Sequence[str]) -> dict[str, float]:
    """Probability over the models that may still be chosen, summed over decisions; empty when none may."""
    left = [model not in off and (not mask or mask[i] == "1") for i, model in enumerate(models)]
    if not any(left):
        return {}
    z = np.array([to_floats(one) for one in logits])
    summed = softmax(z, left).sum(axis=0)
    return {model: float(p) for model, p, remains in zip(models, summed, left, strict=True) if remains}
