"""What the store holds of the paper's tables: which rows were played under which seeds, and what they came to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.analysis.metrics import Mean, mean_over_seeds
from core.episode import Status
from storage.rows.summaries import EpisodeSummary, RunStatus
from storage.store import Store
from ui.runs.paper.table import Table, TableRow
from ui.runs.plans import known_plan
from ui.runs.settings.batch import BatchPlan, Suite


@dataclass(frozen=True, slots=True)
class StoredRow:
    """Where the store keeps one row under one seed; `evolution` is the run that evolved it, if one did."""

    run_id: str
    policy: str
    seed: int
    evolution: str


#: A learner's way: (episodes played so far, share of validation tasks solved).
Curve = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class PlayedRow:
    """One row under one seed with its episodes, and the `curve` of its learning, if it learned."""

    kept: StoredRow
    episodes: tuple[EpisodeSummary, ...]
    curve: Curve = ()


@dataclass(frozen=True, slots=True)
class RowResult:
    """What a row came to, over its seeds: `by_family` means, `against` the difference to the table's reference row
    on the same tasks and seeds, None for that row itself; `curves` are the learners' by seed."""

    row: TableRow
    label: str
    overall: Mean
    by_family: Mapping[str, float]
    by_seed: Mapping[int, float]
    against: Mean | None
    runs: tuple[StoredRow, ...] = ()
    curves: Mapping[int, Curve] = field(default_factory=dict)


#: What each run of a suite played, by the run's id, newest first.
Runs = dict[str, BatchPlan]


def suites(store: Store) -> list[tuple[Suite, Runs]]:
    """The suites of which the store holds finished rows, newest first, with their runs."""
    found: dict[str, tuple[Suite, Runs]] = {}
    for run in store.runs.list(kind="reproduction", status=RunStatus.FINISHED, limit=100_000):
        plan = known_plan(run)
        if isinstance(plan, BatchPlan) and plan.reproduction:
            suite = plan.reproduction.suite
            found.setdefault(suite.digest, (suite, {}))[1][run.id] = plan
    return list(found.values())


def stored(store: Store, runs: Runs, keys: set[str]) -> dict[str, list[PlayedRow]]:
    """The rows of these keys among runs of one suite, by key, seeds in order; of a repeated row the newest, and no seed
    that learned under other settings than the newest did."""
    found: dict[tuple[str, int], PlayedRow] = {}
    newest: dict[str, dict[str, Any]] = {}
    for run, plan in runs.items():
        row = plan.reproduction
        if row is None or row.row not in keys or (row.row, plan.seed) in found:
            continue
        learned = learned_under(store, row.learning)
        if newest.setdefault(row.row, learned) == learned:
            kept = StoredRow(run, plan.policies[0], plan.seed, row.learning)
            episodes = tuple(store.episodes.of_run(run))
            found[row.row, plan.seed] = PlayedRow(kept, episodes, row.curve or _curve(store, row.learning))
    rows: dict[str, list[PlayedRow]] = {}
    for (key, _), played in sorted(found.items(), key=lambda item: item[0]):
        rows.setdefault(key, []).append(played)
    return rows


def learned_under(store: Store, evolution: str) -> dict[str, Any]:
    """The configuration of the evolution or training behind a row, without what differs from seed to seed; empty for
    none."""
    if not evolution:
        return {}
    config = store.runs.get(evolution).config
    learner = "evolution" if "evolution" in config else "learning"
    return {**config, learner: {**config[learner], "seed": None}}


def _curve(store: Store, evolution: str) -> Curve:
    """What an evolution's validations came to; nothing for a row that none stands behind."""
    if not evolution:
        return ()
    updates = store.learning.updates(evolution)
    return tuple((one.episodes, one.validated) for one in updates if one.validated is not None)


def outcomes(table: Table, played: Mapping[str, Sequence[PlayedRow]]) -> list[RowResult]:
    """The table's rows of which something is stored; without its reference, none is put against another."""
    found = []
    values = {key: _values(some, table.measure) for key, some in played.items()}
    singles = [values[row.key] for row in table.rows if row.how.startswith("single:") and row.key in values]
    if any(row.how == "union" for row in table.rows) and (union := _union(singles)) is not None:
        values["union"] = union
    reference = table.reference if table.reference and table.reference.key in values else None
    for row in table.rows:
        if row.key not in values:
            continue
        mine, runs = values[row.key], tuple(one.kept for one in played.get(row.key, ()))
        families, overall = np.array(mine.families), mean_over_seeds(mine.values)
        against = None
        if reference is not None and row.key != reference.key and row.how != "union":
            against = _against(mine, values[reference.key])
        found.append(
            RowResult(
                row=row,
                label=label_of(row, [one.policy for one in runs], len(singles)),
                overall=overall if table.measure == "tokens" else overall.within(0.0, 1.0),
                by_family={one: _mean(mine.values[:, families == one]) for one in sorted(set(mine.families))},
                by_seed={seed: _mean(values) for seed, values in zip(mine.seeds, mine.values, strict=True)},
                against=against,
                runs=runs,
                curves={one.kept.seed: one.curve for one in played.get(row.key, ()) if one.curve},
            )
        )
    return found


def label_of(row: TableRow, policies: Sequence[str], singles: int | None = None) -> str:
    """A row's label; one by rank says which model it is, where its policies are known, and the union of how many
    `singles` it is."""
    if row.how == "union" and singles is not None:
        return f"{row.label}: {singles}"
    names = sorted(set(policies)) if row.how.startswith("single:") else []
    return f"{row.label}: {', '.join(name.removeprefix('single:') for name in names)}" if names else row.label


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """What is measured, [seeds, tasks], both in order, with the tasks' ids and families."""

    seeds: tuple[int, ...]
    tasks: tuple[str, ...]
    families: tuple[str, ...]
    values: NDArray[np.float64]


def _values(played: Sequence[PlayedRow], measure: str) -> _Values:
    families = {one.task_id: one.family for some in played for one in some.episodes}
    places = {task: place for place, task in enumerate(sorted(families))}
    values = np.full((len(played), len(places)), np.nan)
    for seed, some in enumerate(played):
        for one in some.episodes:
            if one.status is Status.FINISHED:
                value = one.tokens_out if measure == "tokens" else bool(one.correct)
                values[seed, places[one.task_id]] = value
    return _Values(
        tuple(one.kept.seed for one in played),
        tuple(places),
        tuple(families[task] for task in places),
        values,
    )


def _against(mine: _Values, reference: _Values) -> Mean | None:
    """Mine less the reference's, over the seeds and tasks that both have."""

    def shared(side: _Values, other: _Values) -> NDArray[np.float64]:
        return side.values[np.ix_(np.isin(side.seeds, other.seeds), np.isin(side.tasks, other.tasks))]

    difference = shared(mine, reference) - shared(reference, mine)
    return mean_over_seeds(difference) if difference.size else None


def _mean(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def _union(singles: Sequence[_Values]) -> _Values | None:
    """Solved by any single model, seed by seed; None where they share no seed."""
    seeds = (
        [seed for seed in singles[0].seeds if all(seed in one.seeds for one in singles)] if singles else []
    )
    if not seeds:
        return None
    stack = np.stack([one.values[[one.seeds.index(seed) for seed in seeds]] for one in singles])
    return _Values(tuple(seeds), singles[0].tasks, singles[0].families, np.nanmax(stack, axis=0))
