"""The paper's tables as they come out on a pool of one's own: which rows there are, and what the store holds of them.

A row is played by `ui.runs.reproduction`, once per seed, and kept as a run whose config says which row it is. Tables
are read from those runs alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.analysis import published
from core.analysis.metrics import Mean, mean_over_seeds
from core.analysis.published import PublishedTable
from core.episode import Status
from core.evolution.departures import DEPARTURES, PAPER_SETTING
from storage.analysis.routing import chosen_by_family
from storage.rows.summaries import EpisodeSummary, RunStatus
from storage.store import Store
from ui.runs.plans import ReproducePlan, Suite, known_plan


@dataclass(frozen=True, slots=True)
class TableRow:
    """A policy that is measured: `how` names the recipe, `held_out` and `turns` where it is played.

    Recipes: "evolved:NAME" (one of EVOLVED), "only:RANK" (evolved with the single model of this rank alone),
    "single:RANK" (the single model of this rank at its best cycle), "random", "router", "labels" (a router of labels),
    "cloned" (the coordinator's head taught by labels), "cascade", "majority" and "mixture". `voted`: five episodes of
    the same policy side by side, and the majority of their answers."""

    how: str
    label: str
    published: str = ""
    held_out: bool = False
    turns: int | None = None  # None: the suite's
    voted: bool = False

    @property
    def is_coordinator(self) -> bool:
        """Whether the others of its table are put against it: the coordinator, at the suite's own turn budget."""
        return self.how == "evolved:trinity" and self.turns is None and not self.voted

    @property
    def key(self) -> str:
        """Tells rows apart."""
        parts = [self.how, "held-out" if self.held_out else "", "voted" if self.voted else ""]
        parts.append("" if self.turns is None else f"{self.turns} turns")
        return " ".join(part for part in parts if part)


#: What makes an evolved row differ from plain sep-CMA-ES over a linear head: fields of an evolution's outline, and
#: under "evolution" those of its configuration.
EVOLVED: Mapping[str, Mapping[str, Any]] = {
    "trinity": {},
    "svf": {"svf": "-2"},
    "no-thinker": {"barred": ("thinker",)},
    "no-roles": {"barred": ("thinker", "verifier")},
    "last-token": {"token_position": -1},
    "low-rank": {"head": "low-rank"},
    "sparse": {"head": "sparse"},
    "block-diagonal-2": {"head": "block-diagonal-2"},
    "block-diagonal-10": {"head": "block-diagonal-10"},
    "turn-aware": {"head": "turn-aware"},
    "low-rank-plain": {"head": "low-rank", "evolution": {"constant_spread": None}},
    "paper": {"evolution": PAPER_SETTING},
    "labels-first": {},
    "reinforce": {"evolution": {"learner": "reinforce"}},
    "random-search": {"evolution": {"learner": "random-search"}},
}

#: Those that are taught by labels before they evolve.
LABELS_FIRST = frozenset({"labels-first"})

_LABELS_FIRST = TableRow("evolved:labels-first", "labels first, then sep-CMA-ES")
_CLONED = TableRow("cloned", "supervised labels, the coordinator's own head", "supervised labels")
_VOTED = TableRow("evolved:trinity", "coordinator, majority of five side by side", voted=True)
_PAPER = TableRow("evolved:paper", "the paper's own setting (pycma, 32 x 16, step size 0.03)", "w/o SVF")
_TRINITY = TableRow("evolved:trinity", "sep-CMA-ES, linear head, no SVF", "TRINITY")
_SVF = TableRow("evolved:svf", "with SVF of the second-to-last layer", "TRINITY")
_NO_THINKER = TableRow("evolved:no-thinker", "without Thinker", "w/o Thinker")
_NO_ROLES = TableRow("evolved:no-roles", "Workers only", "w/o tri-role")
_LAST_TOKEN = TableRow("evolved:last-token", "last token's state", "last token")
_SEARCHES = (
    TableRow("evolved:reinforce", "REINFORCE", "REINFORCE"),
    TableRow("evolved:random-search", "random search", "random search"),
)
_ONE_MODEL = (
    TableRow("only:1", "best single model, roles evolved", "GPT-5 only"),
    TableRow("only:2", "second single model, roles evolved", "Gemini 2.5 Pro only"),
    TableRow("only:3", "third single model, roles evolved", "Claude-4-Sonnet only"),
)
_LABELS = TableRow("labels", "supervised labels", "supervised labels")
_MAJORITY = TableRow("majority", "majority of five, best single model")
_MIXTURE = TableRow("mixture", "Mixture-of-Agents", "Mixture-of-Agents")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the paper: its rows here, and what it published. `measure`: "accuracy", "tokens" (mean output tokens
    per question) or "selection" (shares of models by family)."""

    id: str
    name: str
    title: str
    rows: tuple[TableRow, ...]
    published: PublishedTable
    measure: str = "accuracy"
    note: str = ""


TABLES: Mapping[str, Table] = {
    table.id: table
    for table in (
        Table(
            "all",
            "All rows",
            "The coordinator beside everything else, at the same budget of episodes",
            (
                replace(_TRINITY, label="coordinator: sep-CMA-ES, linear head, no SVF", published="w/o SVF"),
                _PAPER,
                _LABELS_FIRST,
                _VOTED,
                _SVF,
                _NO_THINKER,
                replace(_NO_ROLES, label="Workers only (no roles)"),
                _LAST_TOKEN,
                *(
                    TableRow(f"evolved:{kind}", f"head {kind}", kind)
                    for kind in ("sparse", "block-diagonal-10", "block-diagonal-2")
                ),
                TableRow("evolved:turn-aware", "head turn-aware"),
                TableRow("evolved:low-rank", "head low-rank", "low-rank"),
                TableRow("evolved:low-rank-plain", "head low-rank, shared direction searched too"),
                *_SEARCHES,
                _CLONED,
                replace(_LABELS, label="router of labels, each model at its best cycle of roles"),
                TableRow("router", "learned single-turn router, each model at its best cycle of roles"),
                TableRow("cascade", "cascade with a judge"),
                TableRow("single:1", "best single model (chosen on validation tasks)"),
                *_ONE_MODEL,
                TableRow("majority", "majority of five"),
                TableRow("random", "random model and role"),
                TableRow("mixture", "Mixture-of-Agents"),
            ),
            published.AVERAGES,
            note="The paper's averages are over its four benchmarks: other models, other tasks, so only how rows "
            "relate can be compared. Its heads were evolved with SVF.",
        ),
        Table(
            "1",
            "Zero-shot",
            "Zero-shot on held-out families: does the coordinator beat every single model where it never evolved?",
            (
                replace(_TRINITY, held_out=True),
                *(
                    TableRow(f"single:{rank}", f"single model {rank}", name, held_out=True)
                    for rank, name in enumerate(list(published.ZERO_SHOT.rows)[1:], start=1)
                ),
            ),
            published.ZERO_SHOT,
            note="Single models by rank, the best on validation tasks first, each at its best cycle of roles.",
        ),
        Table(
            "2",
            "Ablations",
            "Ablations: what does each part of the coordinator bring?",
            (
                _SVF,
                replace(_TRINITY, published="w/o SVF"),
                _NO_THINKER,
                _NO_ROLES,
                _LAST_TOKEN,
                *_ONE_MODEL,
            ),
            published.ABLATIONS,
            note="The paper's TRINITY has SVF. Here every row but the first goes without it, so each ablation "
            "is to be read against the second row.",
        ),
        Table(
            "3",
            "Heads",
            "Heads: is the plain linear one the best?",
            (
                replace(_TRINITY, label="linear", published="linear"),
                *(
                    TableRow(f"evolved:{kind}", kind, kind)
                    for kind in ("low-rank", "sparse", "block-diagonal-2", "block-diagonal-10")
                ),
                TableRow("evolved:turn-aware", "turn-aware"),
                TableRow("evolved:low-rank-plain", "low-rank, shared direction searched too"),
            ),
            published.HEADS,
        ),
        Table(
            "4",
            "Learners",
            "Learners at the same budget of episodes: is evolution worth it?",
            (
                *_SEARCHES,
                _CLONED,
                replace(_LABELS, label="router of labels", published=""),
                _LABELS_FIRST,
                replace(_TRINITY, label="sep-CMA-ES", published="sep-CMA-ES"),
                replace(_PAPER, published="sep-CMA-ES"),
            ),
            published.LEARNERS,
            note="Departures of the row sep-CMA-ES from the paper: " + " ".join(DEPARTURES),
        ),
        Table(
            "9",
            "Tokens",
            "Output tokens per question: what does the coordination cost?",
            (
                _TRINITY,
                _MIXTURE,
                TableRow("router", "learned single-turn router", "RouterDC"),
                TableRow("cascade", "cascade with a judge"),
                _MAJORITY,
                TableRow("single:1", "best single model"),
            ),
            published.OUTPUT_TOKENS,
            measure="tokens",
        ),
        Table(
            "turns",
            "Turn budgets",
            "Turn budgets: does accuracy rise with the turns it may take? (the same coordinator, not evolved again)",
            tuple(
                TableRow(
                    "evolved:trinity",
                    f"{turns} turn{'s' if turns > 1 else ''}",
                    f"{turns} turns",
                    turns=turns,
                )
                for turns in range(1, 7)
            ),
            published.TURN_BUDGETS,
        ),
        Table(
            "selection",
            "Selection",
            "Selection: which models does the coordinator choose for which kind of task?",
            (_TRINITY,),
            published.SELECTION,
            measure="selection",
        ),
        Table(
            "combinations",
            "Combinations",
            "Other ways to combine the same models",
            (
                _TRINITY,
                TableRow("router", "learned single-turn router (as RouteLLM)", "RouterDC"),
                replace(_LABELS, published=""),
                _VOTED,
                TableRow("cascade", "cascade with a judge (as FrugalGPT)"),
                _MAJORITY,
                TableRow("mixture", "Mixture-of-Agents, one layer", "Mixture-of-Agents"),
                TableRow("random", "random model and role", "random"),
                *(TableRow(f"single:{rank}", f"single model {rank}") for rank in range(1, 8)),
                TableRow("union", "per-question union of the single models", "per-question best"),
            ),
            published.COMBINATIONS,
            note="The union counts a question as solved when any single model solved it: a ceiling, not a policy.",
        ),
    )
}


def needed(tables: Sequence[Table]) -> list[TableRow]:
    """The rows that have to be played for these tables, each once; the union comes from the single models."""
    rows = {row.key: row for table in tables for row in table.rows if row.how != "union"}
    return list(rows.values())


@dataclass(frozen=True, slots=True)
class StoredRow:
    """Where the store keeps one row under one seed; `evolution` is the run that evolved it, if one did."""

    run_id: str
    policy: str
    seed: int
    evolution: str


@dataclass(frozen=True, slots=True)
class PlayedRow:
    """One row under one seed with its episodes."""

    kept: StoredRow
    episodes: tuple[EpisodeSummary, ...]


@dataclass(frozen=True, slots=True)
class RowResult:
    """What a row came to, over its seeds: `by_family` means, `against` the difference to the table's reference row
    on the same tasks and seeds, None for that row itself."""

    row: TableRow
    label: str
    overall: Mean
    by_family: Mapping[str, float]
    by_seed: Mapping[int, float]
    against: Mean | None
    runs: tuple[StoredRow, ...] = ()


#: What each run of a suite played, by the run's id, newest first.
Runs = dict[str, ReproducePlan]


def suites(store: Store) -> list[tuple[Suite, Runs]]:
    """The suites of which the store holds finished rows, newest first, with their runs."""
    found: dict[str, tuple[Suite, Runs]] = {}
    for run in store.runs.list(kind="run", status=RunStatus.FINISHED, limit=100_000):
        plan = known_plan(run)
        if isinstance(plan, ReproducePlan):
            found.setdefault(plan.suite.digest, (plan.suite, {}))[1][run.id] = plan
    return list(found.values())


def stored(store: Store, runs: Runs, keys: set[str]) -> dict[str, list[PlayedRow]]:
    """The rows of these keys among runs of one suite, by key, seeds in order; of a repeated row the newest."""
    found: dict[tuple[str, int], PlayedRow] = {}
    for run, plan in runs.items():
        place = plan.row, plan.seed
        if plan.row in keys and place not in found:
            episodes = tuple(store.episodes.of_run(run))
            kept = StoredRow(run, plan.policy, plan.seed, plan.evolution)
            found[place] = PlayedRow(kept, episodes)
    rows: dict[str, list[PlayedRow]] = {}
    for (key, _), played in sorted(found.items(), key=lambda item: item[0]):
        rows.setdefault(key, []).append(played)
    return rows


def outcomes(table: Table, played: Mapping[str, Sequence[PlayedRow]]) -> list[RowResult]:
    """The table's rows of which something is stored. The reference is the row that stands for the coordinator."""
    found = []
    values = {key: _values(some, table.measure) for key, some in played.items()}
    singles = [values[row.key] for row in table.rows if row.how.startswith("single:") and row.key in values]
    if singles and any(row.how == "union" for row in table.rows):
        values["union"] = _union(singles)
    reference = next((row for row in table.rows if row.is_coordinator and row.key in values), None)
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
                label=label_of(row, [one.policy for one in runs]),
                overall=overall if table.measure == "tokens" else overall.within(0.0, 1.0),
                by_family={one: _mean(mine.values[:, families == one]) for one in sorted(set(mine.families))},
                by_seed={seed: _mean(values) for seed, values in zip(mine.seeds, mine.values, strict=True)},
                against=against,
                runs=runs,
            )
        )
    return found


def label_of(row: TableRow, policies: Sequence[str]) -> str:
    """A row's label; one by rank says which model it is, where its policies are known."""
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


def _union(singles: Sequence[_Values]) -> _Values:
    """Solved by any single model, seed by seed."""
    seeds = [seed for seed in singles[0].seeds if all(seed in one.seeds for one in singles)]
    stack = np.stack([one.values[[one.seeds.index(seed) for seed in seeds]] for one in singles])
    return _Values(tuple(seeds), singles[0].tasks, singles[0].families, np.nanmax(stack, axis=0))


def selection(store: Store, played: Sequence[PlayedRow]) -> dict[str, dict[str, float]]:
    """Share of each model among all choices, by family, over the seeds of a row."""
    counts: dict[str, Counter[str]] = {}
    for one in played:
        for family, model, n in chosen_by_family(store, one.kept.run_id):
            counts.setdefault(family, Counter())[model] += n
    return {
        family: {model: count / sum(models.values()) for model, count in sorted(models.items())}
        for family, models in sorted(counts.items())
    }
