"""Policies on every fold of recorded models: each is chosen, or taught, on a fold's evolve and validation tasks and
plays its test tasks. No episode is stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from core.analysis.metrics import Mean, difference_over_tasks, share_over_tasks
from core.episode import Flag, Role, Status
from core.errors import ConfigError
from core.play.policies import SINGLE, Cycle, Pupil
from core.settings import Computing
from core.tasks.sets import FOLDS, OUTCOMES_PREFIX, load_tasks
from ui.runs import wiring

if TYPE_CHECKING:
    from core.outcomes.table import OutcomeTable
    from storage.store import Store

#: The file of those that came with the program.
NAME = "recorded.json"
#: A recorded model says the same each time: once is enough, and its own check costs nothing.
_ALONE: Cycle = (Role.WORKER, Role.VERIFIER)


@dataclass(frozen=True, slots=True)
class Played:
    """A policy on one fold, of each task: whether it was solved (NaN: nobody could be asked), the calls that were paid,
    and their tokens, sent and written."""

    policy: str
    fold: int
    tasks: Sequence[str]
    right: Sequence[float]
    calls: Sequence[int]
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class FoldsRow:
    """A policy on all folds. Intervals are over tasks, as one may stand in several folds; `less`: its accuracy less
    that of others, by their names, on the same tasks of the same folds."""

    policy: str
    tasks: int
    solved: Mean
    by_fold: dict[int, float]
    calls: float
    tokens: float
    less: dict[str, Mean] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conditions:
    """How policies are played on folds: with what a coordinator reads (`encoder`, `computing`), how many turns it has,
    and whether it takes the likeliest choice or draws one."""

    encoder: str | None
    computing: Computing
    turns: int = 5
    argmax: bool = True
    split: str = "test"


@dataclass(frozen=True, slots=True)
class FoldsTable:
    """Rows as they were measured elsewhere: of which outcome table (`name`, and `table` with its edition), of so many
    `models`, on which day, and by what a coordinator read. `against`: the policies that the others are put against.
    `note`: what has to be known of them besides."""

    name: str
    table: str
    source: str
    licence: str
    models: int
    measured: str
    encoder: str
    folds: list[int]
    split: str
    against: list[str]
    rows: list[FoldsRow]
    note: str = ""


def shipped_folds() -> list[FoldsTable]:
    """The tables that came with the program. ConfigError for a damaged file."""
    path = wiring.SAMPLE_RUNS / NAME
    if not path.is_file():
        return []
    try:
        return TypeAdapter(list[FoldsTable]).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"The results in {path} cannot be read ({str(error).splitlines()[0]}): install the program again."
        ) from error


def play_folds(
    store: Store, table: OutcomeTable, names: Sequence[str], folds: Sequence[int], how: Conditions
) -> Iterator[Played]:
    """Each policy on each fold, fold by fold; coordinators that are taught for it are kept as checkpoints of the store.
    ConfigError for a policy or a fold that cannot be played."""
    from core.evolution.baselines import Arena
    from core.evolution.cycles import ChosenCycle
    from core.outcomes.pool import RecordedPool, recorded_grading
    from core.tasks.graders import grade_many
    from ui.runs.policies import Policies, pupil_of
    from ui.runs.policy_kinds import Lessons

    if wrong := [fold for fold in folds if not 0 <= fold < FOLDS]:
        raise ConfigError(f"There is no fold {wrong[0]}: give numbers from 0 to {FOLDS - 1}.")
    pool = RecordedPool(table)
    models = tuple(spec.name for spec in pool.specs)
    pupils = [pupil_of(name, models) for name in names]
    reads = any(pupil is not None and pupil.reads for pupil in pupils)
    reader = wiring.encoder_for(f"{OUTCOMES_PREFIX}{table.card.name}", how.encoder) if reads else ""
    alone = {model: ChosenCycle(_ALONE, math.nan) for model in models}
    policies = Policies(
        store,
        models,
        argmax=how.argmax,
        encoder=how.encoder,
        computing=how.computing,
        cycles={f"{SINGLE}{model}": _ALONE for model in models},
    )
    for fold in folds:
        parts = {
            part: load_tasks(f"{OUTCOMES_PREFIX}{table.card.name}@{fold}", part, None, 0)
            for part in ("evolve", "validation", how.split)
        }
        arena = Arena(pool, recorded_grading(table, grade_many), how.turns, fold)
        lessons = Lessons(
            store,
            arena,
            alone,
            parts["validation"],
            parts["evolve"],
            parts[how.split],
            reader,
            how.computing,
        )
        policies.stands_for = partial(_of_fold, store, f"{OUTCOMES_PREFIX}{table.card.name}", fold)
        for name in names:
            policy = policies.resolve(name.replace("{fold}", str(fold)), may_learn=True)
            policy = policy.teach(lessons) if isinstance(policy, Pupil) else policy
            episodes = arena.play(policy, parts[how.split])
            paid = [[turn for turn in one.turns if Flag.REUSED not in turn.flags] for one in episodes]
            yield Played(
                name,
                fold,
                [one.task.id for one in episodes],
                [float(bool(one.correct)) if one.status is Status.FINISHED else math.nan for one in episodes],
                [*map(len, paid)],
                [sum(t.reply.usage.tokens_in + t.reply.usage.tokens_out for t in turns) for turns in paid],
            )


def _of_fold(store: Store, table: str, fold: int, name: str) -> str:
    """The checkpoint that plays a fold of a table's tasks under this name: the name of an evolution stands for its best
    one. ConfigError for what was evolved on other tasks of the table: it may have learned from those that it would be
    tested on."""
    from storage.analysis.defaults import best_of_each_run, validated_checkpoints

    if store.checkpoints.has(name):
        run = store.checkpoints.get(name).run_id
    elif run := store.runs.find(name, "evolve"):
        kept = store.checkpoints.list(run)
        name = best_of_each_run(kept, validated_checkpoints(store, kept)).get(run, name)
    tasks = str(store.runs.get(run).config.get("tasks")) if run else ""
    of, _, learned = tasks.partition("@")
    if of == table and (learned or "0") != str(fold):
        raise ConfigError(
            f"'{name}' was evolved on {tasks} and may have seen test tasks of fold {fold}: evolve one on "
            f"{table}@{fold}, or leave this fold out."
        )
    return name


def rows_of(played: Sequence[Played], against: Sequence[str]) -> list[FoldsRow]:
    """A row for each policy, put against some of them."""
    by_policy: dict[str, list[Played]] = {}
    for one in played:
        by_policy.setdefault(one.policy, []).append(one)
    if unknown := [name for name in against if name not in by_policy]:
        raise ConfigError(f"'{unknown[0]}' was not played: name it by --policy as well.")
    outcomes = {name: _outcomes(own) for name, own in by_policy.items()}
    return [
        replace(
            _row(name, own),
            less={other: _less(outcomes[name], outcomes[other]) for other in against if other != name},
        )
        for name, own in by_policy.items()
    ]


def _by_task(outcomes: Mapping[tuple[int, str], float]) -> list[float]:
    """The mean of each task over the folds that it stands in."""
    found: dict[str, list[float]] = {}
    for (_, task), value in outcomes.items():
        found.setdefault(task, []).append(value)
    return [sum(values) / len(values) for values in found.values()]


def _outcomes(played: Sequence[Played]) -> dict[tuple[int, str], float]:
    return {
        (one.fold, task): right
        for one in played
        for task, right in zip(one.tasks, one.right, strict=True)
        if not math.isnan(right)
    }


def _row(name: str, played: Sequence[Played]) -> FoldsRow:
    outcomes = _outcomes(played)
    shares = _by_task(outcomes)
    solved = Mean(*share_over_tasks(shares, [1] * len(shares), len(outcomes)))
    own = {one.fold: [right for (fold, _), right in outcomes.items() if fold == one.fold] for one in played}
    by_fold = {fold: sum(rights) / len(rights) for fold, rights in own.items() if rights}
    n = max(1, sum(len(one.tasks) for one in played))
    calls, tokens = sum(sum(one.calls) for one in played) / n, sum(sum(one.tokens) for one in played) / n
    return FoldsRow(name, len(shares), solved, by_fold, calls, tokens)


def _less(one: dict[tuple[int, str], float], other: dict[tuple[int, str], float]) -> Mean:
    values = _by_task({key: one[key] - other[key] for key in one if key in other})
    return Mean(*difference_over_tasks(values, [1] * len(values)))
