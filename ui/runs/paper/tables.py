"""The paper's tables as they are played on a pool of one's own (`tables.toml`, read), and what the store holds of them:
which rows were played under which seeds, and what they came to."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter

from core.analysis.metrics import Mean, mean_over_seeds
from core.episode import Status
from core.evolution.config import DEPARTURES, PAPER_SETTING
from core.evolution.fitness import label_weights
from core.heads import HeadKind, head_of
from storage.analysis.routing import chosen_by_family
from storage.rows.summaries import EpisodeSummary, RunStatus
from storage.store import Store
from ui.runs.plans import runs_of
from ui.runs.settings.batch import BatchPlan, Suite

#: The tasks of a row: a split of the suite's tasks, or its held-out families. "unseen" has the templates that nothing
#: was trained or evolved on; settings are chosen on "validation".
Where = Literal["test", "held-out", "unseen", "validation"]

#: How a policy is played: as it is; with the likeliest choice each time; five episodes side by side, of which the most
#: frequent answer counts; with a role masked; or without models that are drawn for each task.
Way = Literal[
    "", "argmax", "voted", "without thinker", "without verifier", "without 1 model", "without 2 models"
]

#: What is measured: the share of tasks solved, mean output tokens per question; or, without intervals, shares of models
#: by family, questions that each model is best at, numbers to learn.
Measure = Literal["accuracy", "tokens", "selection", "labels", "parameters"]
COUNTED: tuple[Measure, ...] = ("selection", "labels", "parameters")


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of the paper: one number per column and row."""

    name: str = "nothing like it"
    columns: tuple[str, ...] = ()
    rows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A policy that is measured: `how` names it, `on` the tasks, `turns` and `played` the way it is played.

    Any name that `trinity run --policy` takes; or, of what is learned or chosen in the suite: "evolved:NAME" (a
    coordinator, one of EVOLVED), "only:RANK" (one evolved with the single model of this rank alone), "single:RANK" (the
    single model of this rank at its best cycle), "majority:RANK", "walk" (the coordinator's random walk), "start" (its
    generation 0), "union" (solved by any single model); "trained:NAME" (a planner, one of TRAINED), "warm-up:NAME" (the
    same before it is trained), "same-model:NAME" (its workflows with the best model for all steps), "workflow:NAME" (a
    frozen workflow with its best team) and "random-workflow"."""

    how: str
    label: str
    published: str = ""
    on: Where = "test"
    turns: int | None = None  # None: the suite's
    played: Way = ""

    @property
    def is_coordinator(self) -> bool:
        """Whether it is the coordinator as it is, at the suite's turn budget."""
        return self.how in ("evolved:trinity", "evolved:default") and self.turns is None and not self.played

    @property
    def is_conductor(self) -> bool:
        """Whether it is the trained planner as it is."""
        return self.how == "trained:default" and self.on == "test" and not self.played

    @property
    def key(self) -> str:
        """Tells rows apart."""
        parts = [self.how, "" if self.on == "test" else self.on, self.played]
        parts.append("" if self.turns is None else f"{self.turns} turns")
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the paper: its rows here, and what it published. `question`: what it answers, in a few words;
    `curves`: whether learners are shown as they learn."""

    id: str
    name: str
    question: str
    title: str
    rows: tuple[TableRow, ...]
    published: PublishedTable = PublishedTable()
    measure: Measure = "accuracy"
    note: str = ""
    curves: bool = False

    @property
    def reference(self) -> TableRow | None:
        """The row that the others are put against: the coordinator, or the trained planner, that comes first."""
        return next((row for row in self.rows if row.is_coordinator or row.is_conductor), None)

    def row(self, key: str) -> TableRow:
        """Its row of this key."""
        return next(row for row in self.rows if row.key == key)

    def difference(self, one: RowResult) -> Mean | None:
        """How much a row has more than the reference; None for the reference itself, or where that is not there."""
        return one.against.get(self.reference.key) if self.reference else None

    @property
    def compared(self) -> str:
        """What a column of differences to its reference is called."""
        trained = self.reference is not None and self.reference.is_conductor
        return f"minus {'trained planner' if trained else 'coordinator'}, same seeds"


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("tables.toml").read_text("utf-8"))


def _tables() -> dict[str, Table]:
    known = {name: {"id": name, **fields} for name, fields in _data()["tables"].items()}
    known["4"]["note"] = known["4"]["note"].replace("{departures}", " ".join(DEPARTURES))
    return TypeAdapter(dict[str, Table]).validate_python(known)


def _evolved(fields: Mapping[str, Any]) -> dict[str, Any]:
    own = fields.get("evolution", {})
    own = PAPER_SETTING if own == "paper" else own
    return {**fields, "evolution": {name: None if value == "none" else value for name, value in own.items()}}


TABLES: Mapping[str, Table] = _tables()
#: The tables' ids by subject, as a reader looks for them.
SUBJECTS: Mapping[str, Sequence[str]] = _data()["subjects"]
#: What makes an evolved row differ from plain sep-CMA-ES over a linear head (see the file).
EVOLVED: Mapping[str, Mapping[str, Any]] = {
    name: _evolved(fields) for name, fields in _data()["evolved"].items()
}
#: What makes a training differ from that of `trinity train` by default: fields of its LearnConfig.
TRAINED: Mapping[str, Mapping[str, Any]] = _data()["trained"]
#: How many times the paper's budget `trinity evolve` has by default.
DEFAULT_BUDGETS: int = EVOLVED["default"]["budgets"]


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


class Part(BaseModel):
    """A part of a file of results."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


#: A learner's way: (episodes played so far, share of validation tasks solved).
Curve = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class PlayedRow:
    """One row under one seed with its episodes, and the `curve` of its learning, if it learned."""

    kept: StoredRow
    episodes: tuple[EpisodeSummary, ...]
    curve: Curve = ()


class SeedRun(Part):
    """What one seed of a row played, in digests: `config` over the suite, the row and its evolution's configuration,
    `outcomes` over what became of every task. Equal configs on one machine give equal outcomes."""

    config: str
    outcomes: str


def _mean_of(figure: object) -> object:
    """A figure of a file as a Mean, with NaN for a bound that is not known."""
    if not isinstance(figure, dict):
        return figure
    known = {name: math.nan if value is None else float(value) for name, value in figure.items()}
    if known.keys() != {"mean", "low", "high"}:
        raise ValueError("a figure has a mean, its low and its high bound")
    return Mean(**known)


def _figure_of(found: Mean) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in asdict(found).items()}


#: A mean with its 95 % interval; in a file a bound that is not known is null.
Figure = Annotated[Mean, BeforeValidator(_mean_of), PlainSerializer(_figure_of)]


class RowResult(Part):
    """What a row came to, over its seeds: `row` is its `TableRow.key`, `value` the mean, `by_family` means, `against`
    the differences to the coordinators of the tables, by the key of their rows, on the same tasks and seeds. `policies`
    are who played, checkpoint ids among them, seed by seed; `curves` are a learner's by seed.

    In a file: `tasks_digest` is over the content of the `n` tasks, `runs` what each seed played; `commit` is that of
    the checkout that played it, where the file was added to later. `kept` is where the store has it, in no file."""

    row: str
    measure: Literal["accuracy", "tokens"]
    label: str
    value: Figure
    against: dict[str, Figure]
    by_family: dict[str, float]
    by_seed: dict[int, float]
    seeds: tuple[int, ...]
    n: int | None = None
    policies: tuple[str, ...] | None = None
    tasks_digest: str | None = None
    runs: dict[int, SeedRun] | None = None
    curves: dict[int, Curve] | None = None
    commit: str | None = None
    kept: tuple[StoredRow, ...] = Field(default=(), exclude=True)


#: More runs of rows than any store has.
MOST_ROWS = 100_000
#: What each run of a suite played, by the run's id, newest first.
Runs = dict[str, BatchPlan]


def suites(store: Store) -> list[tuple[Suite, Runs]]:
    """The suites of which the store holds finished rows, newest first, with their runs."""
    found: dict[str, tuple[Suite, Runs]] = {}
    for run, plan in runs_of(store, "reproduction", BatchPlan, status=RunStatus.FINISHED, limit=MOST_ROWS):
        if plan.reproduction:
            suite = plan.reproduction.suite
            found.setdefault(suite.digest, (suite, {}))[1][run.id] = plan
    return list(found.values())


def rows_of(store: Store, suite: Suite) -> Runs:
    """The finished rows of a suite."""
    return next((runs for one, runs in suites(store) if one == suite), {})


def read_rows(store: Store, runs: Runs, keys: set[str]) -> dict[str, list[PlayedRow]]:
    """The rows of these keys among runs of one suite, by key, seeds in order; of a repeated row the newest, and no seed
    that learned under other settings than the newest did."""
    found: dict[tuple[str, int], PlayedRow] = {}
    newest: dict[str, dict[str, Any]] = {}
    for run, plan in runs.items():
        row = plan.reproduction
        if row is None or row.row not in keys or (row.row, plan.seed) in found:
            continue
        learned = learning_config(store, row.learning)
        if newest.setdefault(row.row, learned) == learned:
            kept = StoredRow(run, plan.policies[0], plan.seed, row.learning)
            episodes = tuple(store.episodes.of_run(run))
            found[row.row, plan.seed] = PlayedRow(kept, episodes, row.curve or _curve(store, row.learning))
    rows: dict[str, list[PlayedRow]] = {}
    for (key, _), played in sorted(found.items(), key=lambda item: item[0]):
        rows.setdefault(key, []).append(played)
    return rows


def learning_config(store: Store, evolution: str) -> dict[str, Any]:
    """The configuration of the evolution or training behind a row, without what differs from seed to seed; empty for
    none."""
    if not evolution:
        return {}
    config = store.runs.get(evolution).config
    learner = "evolution" if "evolution" in config else "learning"
    return {**config, learner: {**config[learner], "seed": None}}


def _curve(store: Store, evolution: str) -> Curve:
    if not evolution:
        return ()
    updates = store.learning.updates(evolution)
    return tuple((one.episodes, one.validated) for one in updates if one.validated is not None)


def outcomes(table: Table, played: Mapping[str, Sequence[PlayedRow]]) -> list[RowResult]:
    """The table's rows of which something is stored; without its reference, none is put against another."""
    values = {key: _values(some, table.measure) for key, some in played.items()}
    singles = [values[row.key] for row in table.rows if row.how.startswith("single:") and row.key in values]
    if singles and any(row.how == "union" for row in table.rows) and (union := _union(singles)):
        values["union"] = union
    families = {one.task_id: one.family for some in played.values() for each in some for one in each.episodes}
    reference, found = table.reference, []
    for row in table.rows:
        if row.key not in values:
            continue
        mine, some = values[row.key], played.get(row.key, ())
        tasks = _tasks(mine)
        overall = mean_over_seeds(_array(mine, mine, tasks))
        policies = tuple(one.kept.policy for one in some)
        against = {}
        if reference and reference.key in values and row.key != reference.key and row.how != "union":
            difference = _difference(mine, values[reference.key])
            against = {reference.key: difference} if difference else {}
        by_family: dict[str, list[str]] = {}
        for task in tasks:
            by_family.setdefault(families[task], []).append(task)
        found.append(
            RowResult(
                row=row.key,
                measure="tokens" if table.measure == "tokens" else "accuracy",
                label=label_of(row, policies, len(singles)),
                value=overall if table.measure == "tokens" else overall.within(0.0, 1.0),
                against=against,
                by_family={one: _mean(_array(mine, mine, own)) for one, own in sorted(by_family.items())},
                by_seed={seed: _mean(_array(mine, [seed], tasks)) for seed in mine},
                seeds=tuple(mine),
                policies=policies or None,
                curves={one.kept.seed: one.curve for one in some if one.curve} or None,
                kept=tuple(one.kept for one in some),
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


#: What is measured, by seed and task; NaN where an episode is missing.
_Values = Mapping[int, Mapping[str, float]]


def _values(played: Sequence[PlayedRow], measure: str) -> _Values:
    def value(one: EpisodeSummary) -> float:
        if one.status is not Status.FINISHED:
            return math.nan
        return float(one.tokens_out if measure == "tokens" else bool(one.correct))

    return {some.kept.seed: {one.task_id: value(one) for one in some.episodes} for some in played}


def _tasks(values: _Values) -> list[str]:
    return sorted({task for of_seed in values.values() for task in of_seed})


def _array(values: _Values, seeds: Iterable[int], tasks: Sequence[str]) -> NDArray[np.float64]:
    return np.array([[values[seed].get(task, math.nan) for task in tasks] for seed in seeds])


def _difference(mine: _Values, reference: _Values) -> Mean | None:
    """Mine less the reference's, over the seeds and tasks that both have."""
    seeds = [seed for seed in mine if seed in reference]
    tasks = sorted({*_tasks(mine)} & {*_tasks(reference)})
    if not (seeds and tasks):
        return None
    return mean_over_seeds(_array(mine, seeds, tasks) - _array(reference, seeds, tasks))


def _mean(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def _union(singles: Sequence[_Values]) -> _Values:
    """Solved by any single model, seed by seed; nothing where they share no seed."""
    seeds, tasks = [seed for seed in singles[0] if all(seed in one for one in singles)], _tasks(singles[0])
    if not seeds:
        return {}
    best = np.nanmax(np.stack([_array(one, seeds, tasks) for one in singles]), axis=0)
    return {seed: dict(zip(tasks, row, strict=True)) for seed, row in zip(seeds, best.tolist(), strict=True)}


#: Rows of columns, by name.
Cells = Mapping[str, Mapping[str, float]]


def cells(store: Store, table: Table, played: Mapping[str, Sequence[PlayedRow]]) -> Cells:
    """The cells of a counted table; nothing where its rows have not been played."""
    if table.measure == "selection":
        return selection(store, played.get(table.rows[0].key, ()))
    if table.measure == "labels":
        return labels([played[row.key] for row in table.rows if row.key in played])
    return parameters(store, table, played)


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


def labels(singles: Sequence[Sequence[PlayedRow]]) -> dict[str, dict[str, float]]:
    """How many questions each model is best at, by family: most often right over the seeds that all have
    played, equals in equal parts."""
    if not singles:
        return {}
    family_of = {one.task_id: one.family for seed in singles[0] for one in seed.episodes}
    shared = set.intersection(*({seed.kept.seed for seed in seeds} for seeds in singles))
    solved = np.zeros((len(singles), len(family_of)))
    for model, seeds in enumerate(singles):
        for seed in (one for one in seeds if one.kept.seed in shared):
            right = {one.task_id: bool(one.correct) for one in seed.episodes}
            solved[model] += [right.get(task, False) for task in family_of]
    weights = label_weights(solved)
    names = [seeds[0].kept.policy.removeprefix("single:") for seeds in singles]
    families = np.array(list(family_of.values()))
    return {
        family: dict(zip(names, weights[:, families == family].sum(axis=1).tolist(), strict=True))
        for family in sorted(set(family_of.values()))
    }


def parameters(
    store: Store, table: Table, played: Mapping[str, Sequence[PlayedRow]]
) -> dict[str, dict[str, float]]:
    """How many numbers each kind of head has for the pool and the encoder of the table's rows, and how many singular
    values the row with SVF scales."""
    some = [store.checkpoints.load(played[row.key][0].kept.policy) for row in table.rows if row.key in played]
    if not some:
        return {}
    models, width = len(some[0].models), some[0].encoder.hidden_size
    scaled = max(one.svf_size for one in some)
    sizes: dict[str, float] = {kind: head_of(kind, models, width).size for kind in get_args(HeadKind)}
    if scaled:
        sizes = {"SVF": scaled, **sizes}
    return {name: {"parameters": size} for name, size in sizes.items()}
