"""Which checkpoints and policies to show first where nobody has chosen: decided here for every page and command.

One's own come before samples, those that have played before those that never did, of these the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.analysis.metrics import wilson_interval
from core.evolution.fitness import EpisodeStatistics, GenerationStats
from core.play.policies import SINGLE
from storage.analysis.standings import (
    PolicyInRun,
    PolicySide,
    count_shared_tasks,
    figures,
    policies_with_episodes,
    sides_of,
)
from storage.rows.summaries import CheckpointSummary
from storage.store import Store

#: More than this many policies in one picture can no longer be told apart.
MOST_SIDES = 8
#: Part of the newest checkpoint's tasks that another must have played to be compared with it.
_ENOUGH = 0.5
#: Policies that nobody learned or wrote, beside the models alone.
_CONTROLS = ("random", "random-model", "round-robin")


def newest_first(store: Store, checkpoints: Iterable[CheckpointSummary]) -> list[CheckpointSummary]:
    """Those that decided an episode before those that never did, the newest first."""
    played = store.checkpoints.policies_with_episodes()
    ordered = sorted(checkpoints, key=age, reverse=True)
    return sorted(ordered, key=lambda one: one.policy not in played)


def age(one: CheckpointSummary) -> tuple[float, int]:
    """Larger for a later one."""
    return one.created, one.generation or 0


def own_first(played: Sequence[PolicyInRun]) -> list[PolicyInRun]:
    """Who played in one's own runs; in the samples where there are none."""
    return [one for one in played if not one.sample] or list(played)


def _played(store: Store, samples: bool) -> set[str]:
    """Who has recorded episodes: in the `samples`, else in one's own as soon as there are any."""
    found = policies_with_episodes(store)
    return {one.policy for one in ([one for one in found if one.sample] if samples else own_first(found))}


def default_checkpoints(store: Store, *, samples: bool = False) -> list[str]:
    """Ids of the newest evolution's checkpoints that have recorded episodes of the same tasks, oldest generation
    first: at most MOST_SIDES, the oldest, the newest and evenly between. Empty when no evolution has two of them.
    `samples`: of those that came with the program, else of one's own as soon as anything of one's own has played."""
    here = _played(store, samples)
    evolutions: dict[str | None, list[str]] = {}
    for one in store.checkpoints.list():
        if one.id in here and one.generation is not None:
            evolutions.setdefault(one.run_id, []).append(one.id)
    return next((found for ids in evolutions.values() if (found := comparable(store, ids))), [])


def default_planner(store: Store, *, samples: bool = False) -> str | None:
    """The policy of the newest planner that has recorded episodes; None for none. `samples` as above."""
    here = _played(store, samples)
    played = [one for one in store.checkpoints.list(planners=True) if one.policy in here]
    newest = max(played, key=age, default=None)
    return newest.policy if newest else None


def comparable(store: Store, ids: Sequence[str]) -> list[str]:
    """Which of the policies that have played, oldest first, are compared by default: those with enough of the newest
    one's tasks, at most MOST_SIDES of them. Empty for fewer than two."""
    shared = count_shared_tasks(store, ids[-1], ids)
    same = [one for one in ids if shared.get(one, 0) >= _ENOUGH * shared[ids[-1]]]
    return evenly(same, MOST_SIDES) if len(same) > 1 else []


def evenly(ids: Sequence[str], most: int) -> list[str]:
    """At most so many of them (two or more): the first, the last, and evenly between."""
    if len(ids) <= most:
        return list(ids)
    return [ids[round(i * (len(ids) - 1) / (most - 1))] for i in range(most)]


def best_and_baseline(
    store: Store, policies: Sequence[str], *, samples: bool = False
) -> tuple[str | None, str]:
    """(baseline, best) of these policies, of which there is at least one: the checkpoint with most tasks right among
    those that are compared by default, and the first generation of its evolution. Where these have not played, the
    newest checkpoint, else what is no control, the first of them, beside the random policy; None: that has not played
    either. `samples` as above."""
    ids = [one for one in default_checkpoints(store, samples=samples) if one in policies]
    if len(ids) > 1:
        accuracy = _accuracies(store, ids)
        return ids[0], max(reversed(ids[1:]), key=accuracy.__getitem__)
    played = [one for one in store.checkpoints.list() if one.id in policies]
    newest = [one.id for one in played if one.run_id == played[0].run_id][-1:]
    others = [one for one in policies if one not in _CONTROLS and not one.startswith(SINGLE)]
    best = [*newest, *others, *(one for one in policies if one != "random"), *policies][0]
    return ("random" if "random" in policies and best != "random" else None), best


def most_telling(store: Store, names: Sequence[str], own: str) -> str | None:
    """Which of these policies to show at first beside `own`: of the checkpoints that played, those of its run where
    there are any, the one before it; where it is the oldest, or no checkpoint, the most accurate. None: there are no
    names."""
    played = store.checkpoints.policies_with_episodes()
    checkpoints = {one.id: one for one in store.checkpoints.list()}
    ours = checkpoints.get(own)
    seen = [checkpoints[name] for name in names if name in played and name in checkpoints]
    kin = [one for one in seen if ours and one.run_id == ours.run_id] or seen
    if not kin:
        return names[0] if names else None
    if older := [one for one in kin if ours and age(one) < age(ours)]:
        return max(older, key=age).id
    accuracy = _accuracies(store, [one.id for one in kin])
    return max(kin, key=lambda one: (accuracy[one.id], age(one))).id


def own_and_shipped(store: Store, models: Sequence[str], own: str | None = None) -> list[str]:
    """Whom to play against each other at first, the baseline first: `own`, else the newest checkpoint of one's own that
    chooses among these models; and beside it the best that came with the program or, where none of these fits, the best
    single model."""
    samples = store.runs.sample_ids()
    fitting = [one for one in store.checkpoints.list() if one.models == tuple(models)]
    mine = [one for one in fitting if one.run_id not in samples]
    if own is None and mine:
        own = max(mine, key=age).id
    run = next((one.run_id for one in fitting if one.id == own), None)
    shipped = [one.id for one in fitting if one.run_id in samples and one.run_id != run]
    if own is None and shipped:
        own, shipped = _surely_best(store, shipped), []
    best = _surely_best(store, shipped or [f"{SINGLE}{model}" for model in models])
    return [one for one in (best, own) if one is not None]


@dataclass(frozen=True, slots=True)
class ValidatedCheckpoint:
    """A checkpoint's result on the held-apart tasks of its evolution, and the best single model's there, where it was
    played. `alike` is what results must have in common to be compared."""

    id: str
    run: str
    generation: int
    result: EpisodeStatistics
    turns: int | None
    single: tuple[str, EpisodeStatistics] | None
    alike: tuple[str, ...]

    @property
    def is_behind(self) -> bool:
        """Whether the best single model solved more of the same tasks."""
        return self.single is not None and self.single[1].accuracy > self.result.accuracy


def validated_checkpoints(
    store: Store, checkpoints: Iterable[CheckpointSummary]
) -> list[ValidatedCheckpoint]:
    """The results of those of these checkpoints that have any; those of the newest evolution last."""
    by_run: dict[str, set[str]] = {}
    for one in checkpoints:
        by_run.setdefault(one.run_id or "", set()).add(one.id)
    found: list[ValidatedCheckpoint] = []
    for run in sorted(by_run.keys() - {""}):
        config = store.runs.get(run).config
        search = config.get("evolution", {})
        conditions = [config.get(name) for name in ("tasks", "digest", "validation", "protocol", "models")]
        conditions += [search.get("turn_budget"), search.get("seed")]
        generations = store.learning.updates(run)
        stats = [GenerationStats.of(one.stats) for one in generations]
        controls = stats[-1].controls.items() if stats else ()
        singles = [(name.removeprefix(SINGLE), one) for name, one in controls if name.startswith(SINGLE)]
        found += [
            ValidatedCheckpoint(
                str(one.checkpoint_id),
                run,
                one.index,
                has.validation,
                search.get("turn_budget"),
                max(singles, key=lambda single: single[1].accuracy, default=None),
                tuple(map(str, conditions)),
            )
            for one, has in zip(generations, stats, strict=True)
            if one.checkpoint_id in by_run[run] and has.validation and has.validation.n
        ]
    return found


def best_validated(results: Sequence[ValidatedCheckpoint]) -> str | None:
    """The best of those that can be compared with the newest evolution's; of equals the latest. None of none."""
    comparable = [one for one in results if one.alike == results[-1].alike]
    best = max(comparable, key=lambda one: (one.result.accuracy, one.run, one.generation), default=None)
    return best.id if best else None


def best_or_newest(
    checkpoints: Sequence[CheckpointSummary], results: Sequence[ValidatedCheckpoint]
) -> str | None:
    """Of these checkpoints, whose results these are, the best validated one, else the newest; None of none."""
    newest = max(
        checkpoints, key=lambda one: (one.run_id or "", one.generation or 0, one.created), default=None
    )
    return best_validated(results) or (newest.id if newest else None)


def best_of_each_run(
    checkpoints: Iterable[CheckpointSummary], results: Sequence[ValidatedCheckpoint]
) -> dict[str, str]:
    """Run, or where there is none the checkpoint itself -> the best validated checkpoint of it, else the last."""
    found = {one.run_id or one.id: one.id for one in checkpoints}
    for run in {one.run for one in results}:
        found[run] = best_validated([one for one in results if one.run == run]) or found[run]
    return found


def _surely_best(store: Store, policies: Sequence[str]) -> str | None:
    """By the lower end of its interval in the run in which it played most, so that a few lucky plays do not make a
    best."""
    most = {one.policy: one for one in sorted(policies_with_episodes(store), key=lambda one: one.n)}
    surely = dict.fromkeys(policies, 0.0)
    for one in figures(store, [PolicySide(name, most[name].run) for name in policies if name in most]):
        surely[one.side.policy] = wilson_interval(one.summary.correct, one.summary.n)[0]
    return max(policies, key=surely.__getitem__, default=None)


def _accuracies(store: Store, policies: Sequence[str]) -> dict[str, float]:
    """Of each policy, the share of right episodes under the setting that it was played most under; 0 for what has no
    episodes that count."""
    played = policies_with_episodes(store)
    sides = [found[0] for policy in policies if (found := sides_of(played, policy))]
    shares = {one.side.policy: one.summary.accuracy or 0.0 for one in figures(store, sides)}
    return dict.fromkeys(policies, 0.0) | shares
