"""What coordination won or lost on the same tasks: a policy compared with every model alone and with the best of them
task by task; and tasks that one policy played several times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, func, not_, or_, select

from core.analysis.metrics import Mean, difference_over_tasks, share_over_tasks
from core.play.policies import SINGLE
from storage.analysis.routing import ModelInRole, counted_episodes
from storage.analysis.standings import SETTING, Setting, setting_conditions
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.listing import FIRST_NOT_RIGHT, FIRST_RIGHT, RIGHT
from storage.filters.vocabulary import IS_MIXED
from storage.rows.engine import fetch_rows
from storage.rows.progress import strip_moves
from storage.rows.schema import episode, run
from storage.store import Store

#: Models alone that share fewer tasks than this part of what the best covered shares would leave too few for all.
ENOUGH = 0.5
MOST_MISSED, MOST_REPLICATED, MOST_REPLICATES = 50, 50, 500
_UNKNOWN = Mean(0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class PolicyOnTask:
    """One policy on one task: its episodes, the right ones, and one episode of each outcome."""

    n: int
    right: int
    right_episode: str | None
    wrong_episode: str | None

    @property
    def share(self) -> float:
        return self.right / self.n


@dataclass(frozen=True, slots=True)
class MissedTask:
    """A task that a model alone solves more often than the policy does."""

    task_id: str
    question: str
    ours: PolicyOnTask
    best: str
    theirs: PolicyOnTask


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model alone, or None for the best of them task by task, compared with the policy: its mean share of right
    episodes over the tasks, and the policy's minus it. Intervals draw tasks anew."""

    name: str | None
    accuracy: Mean
    ahead: Mean


@dataclass(frozen=True, slots=True)
class Regret:
    """The policy on the `tasks` that it and every contestant have played, all under one setting (turn budget, rules
    and pool): the first of the `settings` that the policy was played under, that with most episodes."""

    policy: str
    settings: tuple[Setting, ...]
    tasks: int
    accuracy: Mean
    contestants: tuple[Contestant, ...]
    left_out: dict[str, int]  # models alone that share too few tasks, with how many
    missed: tuple[MissedTask, ...]


def regret(store: Store, where: EpisodeFilter, policy: str) -> Regret:
    """The policy's episodes of the filter against the store's models alone, in any run. Three queries. `tasks` is 0
    when no model alone has played any of its tasks. `missed` has at most MOST_MISSED tasks, the worst first."""
    its = replace(where, policy=policy)
    settings = _settings(store, its)
    if not settings:
        return Regret(policy, (), 0, _UNKNOWN, (), {}, ())
    ours = _by_task(store, its, and_(*setting_conditions(settings[0]))).get(policy, {})
    # Whether a model alone draws its choices makes no difference: it has none.
    any_choice = [and_(*setting_conditions(replace(settings[0], argmax=argmax))) for argmax in (False, True)]
    alone = _by_task(store, EpisodeFilter(family=where.family, task=where.task), or_(*any_choice), SINGLE)
    alone.pop(policy, None)
    shared = {name: len(ours.keys() & of.keys()) for name, of in alone.items()}
    most_shared = max(shared.values(), default=0)
    rivals = sorted(name for name, n in shared.items() if n and n >= ENOUGH * most_shared)
    tasks = sorted(set(ours).intersection(*(alone[name] for name in rivals))) if rivals else []
    left_out = {name: n for name, n in shared.items() if name not in rivals}
    if not tasks:
        return Regret(policy, settings, 0, _UNKNOWN, (), left_out, ())
    mine = _shares(ours, tasks)
    theirs = np.array([_shares(alone[name], tasks) for name in rivals])
    played = [sum(alone[name][task].n for task in tasks) for name in rivals]
    contestants = [
        Contestant(name, _accuracy(of, episodes), Mean(*difference_over_tasks(*_counted(mine - of))))
        for name, of, episodes in [
            *zip(rivals, theirs, played, strict=True),
            (None, theirs.max(axis=0), max(played)),
        ]
    ]
    worst = np.argsort(mine - theirs.max(axis=0), kind="stable")[:MOST_MISSED]
    missed = []
    for i in worst:
        if mine[i] < theirs[:, i].max():
            task, best = tasks[i], rivals[int(theirs[:, i].argmax())]
            missed.append(MissedTask(task[1], task[2], ours[task], best, alone[best][task]))
    return Regret(
        policy,
        settings,
        len(tasks),
        _accuracy(mine, sum(ours[task].n for task in tasks)),
        tuple(contestants),
        left_out,
        tuple(missed),
    )


def _settings(store: Store, where: EpisodeFilter) -> tuple[Setting, ...]:
    """What the filter's episodes were played under, most episodes first."""
    query = (
        select(*SETTING)
        .join(run, run.c.id == episode.c.run_id)
        .where(*counted_episodes(store, where))
        .group_by(*SETTING)
        .order_by(func.count().desc(), *SETTING)
    )
    return tuple(Setting(*row) for row in fetch_rows(store.engine, query))


_Task = tuple[int, str, str]  # key, id, question


def _accuracy(shares: NDArray[np.float64], episodes: int) -> Mean:
    """The mean of one share per task, played `episodes` times in all."""
    return Mean(*share_over_tasks(*_counted(shares), episodes))


def _counted(values: NDArray[np.float64]) -> tuple[list[float], list[int]]:
    distinct, counts = np.unique(values.round(12), return_counts=True)
    return distinct.tolist(), counts.tolist()


def _shares(of: dict[_Task, PolicyOnTask], tasks: Sequence[_Task]) -> NDArray[np.float64]:
    return np.array([of[task].share for task in tasks])


def _by_task(
    store: Store, where: EpisodeFilter, under: ColumnElement[bool], begins: str = ""
) -> dict[str, dict[_Task, PolicyOnTask]]:
    """Policy -> task -> how it was played under a setting, of policies whose name begins so."""
    keys = (episode.c.policy, episode.c.task_key)
    query = (
        select(
            *keys,
            func.min(episode.c.task_id),
            func.min(episode.c.question),
            func.count(),
            RIGHT,
            FIRST_RIGHT,
            FIRST_NOT_RIGHT,
        )
        .where(*counted_episodes(store, where), under)
        .group_by(*keys)
    )
    if begins:
        # A range, so that an index serves it.
        query = query.where(episode.c.policy >= begins, episode.c.policy < begins + "\U0010ffff")
    found: dict[str, dict[_Task, PolicyOnTask]] = {}
    for policy, key, task_id, question, *played in fetch_rows(store.engine, query):
        found.setdefault(policy, {})[key, task_id, question] = PolicyOnTask(*played)
    return found


# Replicates


@dataclass(frozen=True, slots=True)
class ReplicatedTask:
    """A task that one policy finished `n` times, `right` of them right."""

    policy: str
    task_id: str
    question: str
    n: int
    right: int


@dataclass(frozen=True, slots=True)
class Replicate:
    """One of several episodes of a task."""

    episode_id: str
    models: tuple[str, ...]  # head order
    moves: tuple[ModelInRole, ...]
    strip: str
    correct: bool | None


def replicated_tasks(store: Store, where: EpisodeFilter) -> list[ReplicatedTask]:
    """Tasks with several episodes of one policy, those first whose outcome hung most on luck. One query."""
    n = func.count()
    query = (
        select(episode.c.policy, func.min(episode.c.task_id), func.min(episode.c.question), n, RIGHT)
        .where(*counted_episodes(store, where), not_(IS_MIXED))
        .group_by(episode.c.task_key, episode.c.policy)
        .having(n > 1)
        .order_by((RIGHT * (n - RIGHT)).desc(), n.desc(), func.min(episode.c.id))
        .limit(MOST_REPLICATED)
    )
    return [ReplicatedTask(*row) for row in fetch_rows(store.engine, query)]


def replicates(store: Store, where: EpisodeFilter, policy: str, task_id: str) -> list[Replicate]:
    """The episodes of one task by one policy, oldest first."""
    wanted = replace(where, policy=policy, task=task_id)
    query = (
        select(episode.c.id, episode.c.models, episode.c.strip, episode.c.correct)
        .where(*counted_episodes(store, wanted))
        .order_by(episode.c.id)
        .limit(MOST_REPLICATES)
    )
    found = []
    for id_, models, strip, right in fetch_rows(store.engine, query):
        moves = tuple(ModelInRole(*move) for move in strip_moves(models, strip))
        found.append(Replicate(id_, models, moves, strip, right))
    return found
