"""Rows of `trinity reproduce` as one readable JSON file, written from a store and read back for the page Results; and
which of the differences that they state hold when all are allowed for, and on which seeds.

The file holds figures, intervals and digests, no episodes; `sample_runs/results.json` is one that comes with the
program. Shares and their differences are from 0 to 1. Null says that something is not known."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from core.analysis.metrics import holm, mean_p
from core.errors import ConfigError, StoreError
from core.pocket import WEIGHTS
from core.settings import POCKET_POOL
from storage.files.atomic import atomic_file
from storage.store import Store
from ui.presentation.comparison import enumerated
from ui.presentation.theme import percent
from ui.program import commit, version
from ui.runs import wiring
from ui.runs.paper.tables import (
    COUNTED,
    TABLES,
    Part,
    PlayedRow,
    RowResult,
    SeedRun,
    Table,
    cells,
    label_of,
    outcomes,
)
from ui.runs.settings.batch import Suite

#: What comes with the program is called so, beside the sample runs.
NAME = "results.json"
#: The grids of settings, which were played at other budgets or seeds, and so are other files.
GRID_NAMES = {
    "grids": "grids.json",
    "grid-finals": "grid_finals.json",
    "label-grids": "label_grids.json",
    "conductor-grids": "conductor_grids.json",
}


class Results(Part):
    """A whole file. `measured` is a day as YYYY-MM-DD, `program` the version that measured, `commit` that of its
    checkout, `world` a digest of the pocket models, `command` what plays it all again; `notes` are sentences that
    belong beside the figures; `cells` are those of the counted tables, by table, row and column."""

    format: Literal["trinity-results"] = "trinity-results"
    version: Literal[1] = 1
    measured: str
    program: str | None
    commit: str | None = None
    world: str | None = None
    command: str | None = None
    conditions: Suite
    notes: tuple[str, ...]
    rows: tuple[RowResult, ...]
    cells: dict[str, dict[str, dict[str, float]]] = Field(default_factory=dict)

    def outcomes(self, table: Table) -> list[RowResult]:
        """The rows of a table of which the file tells, in the table's order, as they are called in it."""
        found = {one.row: one for one in self.rows if one.measure == table.measure}
        return [
            one if row.how == "union" else one.model_copy(update={"label": label_of(row, one.policies or ())})
            for row in table.rows
            if (one := found.get(row.key))
        ]


def file_of(table: Table) -> str:
    """The name of the shipped file that has this table."""
    return GRID_NAMES.get(table.id, NAME)


def shipped(name: str = NAME) -> Results | None:
    """The results that came with the program; None where there are none. ConfigError for a damaged file."""
    path = wiring.SAMPLE_RUNS / name
    return read(path) if path.is_file() else None


def read(path: Path) -> Results:
    """The results that a file holds; ConfigError, one sentence, for one that cannot be read."""
    try:
        return Results.model_validate_json(path.read_bytes())
    except OSError as error:
        why = error.strerror or str(error)
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
    raise ConfigError(
        f"The results in {path} cannot be read ({why}): install the program again, or write them with "
        "`trinity reproduce --show --save FILE`."
    )


def save(
    store: Store, suite: Suite, tables: Sequence[Table], played: Mapping[str, Sequence[PlayedRow]], path: Path
) -> int:
    """Write the rows of these tables that a store holds, each once; returns how many.

    A file that is there already keeps its other rows, cells and notes; a row all of whose seeds are in the file with
    the same outcomes stays as it is there, other seeds included, and has its differences to other rows added, which
    are over the seeds that both rows have. It must be of the same suite and the same world, else ConfigError. The file
    appears whole or not at all. StoreError where there is no row, or for an unwritable place.
    """
    world = world_digest() if suite.pool == POCKET_POOL else None
    before = _before(path, suite, world)
    rows = _rows(store, suite, tables, played)
    found = {
        table.id: {name: dict(row) for name, row in counted.items()}
        for table in tables
        if table.measure in COUNTED and (counted := cells(store, table, played))
    }
    if not rows:
        raise StoreError(
            "The store holds no row of these tables, so there is nothing to save: play them first."
        )
    earlier = before.rows if before else ()
    for old in earlier:
        again = rows.get((old.measure, old.row))
        if again and _holds(old, again):
            rows[old.measure, old.row] = old.model_copy(update={"against": old.against | again.against})
    runs = {some.kept.run_id for of in played.values() for some in of}
    day = datetime.fromtimestamp(max(store.runs.get(run).created for run in runs), UTC)
    seeds = {seed for one in (*earlier, *rows.values()) for seed in one.seeds}
    named = {*_tables_of(before), *(table.id for table in tables)}
    results = Results(
        measured=f"{day:%Y-%m-%d}",
        program=version(),
        commit=commit(),
        world=world,
        command=_command([table for table in TABLES if table in named], suite, seeds),
        conditions=suite,
        notes=before.notes if before else (),
        rows=tuple(({(row.measure, row.row): row for row in earlier} | rows).values()),
        cells={**(before.cells if before else {}), **found},
    )
    with atomic_file(path) as draft:
        draft.write_text(results.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return len(rows)


def _before(path: Path, suite: Suite, world: str | None) -> Results | None:
    """The file that is added to, its rows told who played them; None where there is none."""
    if not path.is_file():
        return None
    before = read(path)
    if before.conditions != suite or before.world != world:
        raise ConfigError(
            f"{path} holds results of other settings or of another world: save to another file, or remove it first."
        )
    rows = tuple(row.model_copy(update={"commit": row.commit or before.commit}) for row in before.rows)
    return before.model_copy(update={"rows": rows})


def _holds(old: RowResult, again: RowResult) -> bool:
    """Whether a row of a file has every seed of another, with the same outcome of every task."""
    there, here = (
        {seed: played.outcomes for seed, played in (one.runs or {}).items()} for one in (old, again)
    )
    return bool(here) and here.items() <= there.items()


def _rows(
    store: Store, suite: Suite, tables: Sequence[Table], played: Mapping[str, Sequence[PlayedRow]]
) -> dict[tuple[str, str], RowResult]:
    """The measured rows of these tables that a store holds, by measure and key, each once and with its digests."""
    rows: dict[tuple[str, str], RowResult] = {}
    for table in tables:
        for one in outcomes(table, played) if table.measure not in COUNTED else ():
            tasks = store.episodes.tasks(one.kept[0].run_id) if one.kept else []
            digests: dict[str, Any] = {
                "n": len(tasks) or None,
                "tasks_digest": _digest([task.content for task in tasks]) if tasks else None,
                "runs": {
                    some.kept.seed: _seed_run(store, suite, one.row, some) for some in played.get(one.row, ())
                }
                or None,
            }
            made = one.model_copy(update=digests)
            rows.setdefault((made.measure, made.row), made).against.update(made.against)
    return rows


def _seed_run(store: Store, suite: Suite, row: str, played: PlayedRow) -> SeedRun:
    evolution = store.runs.get(played.kept.evolution).config if played.kept.evolution else {}
    ended = sorted((one.task_id, one.correct, one.tokens_out) for one in played.episodes)
    return SeedRun(config=_digest([suite.fields, row, evolution]), outcomes=_digest(ended))


@dataclass(frozen=True, slots=True)
class Checked:
    """One seed of a row beside the one in a file: both means, and whether they played the same, with the same
    outcomes."""

    label: str
    measure: str
    seed: int
    there: float
    here: float
    same_config: bool
    same_outcomes: bool

    @property
    def words(self) -> str:
        """What came of it."""
        if self.same_outcomes:
            return "equal, task by task" + ("" if self.same_config else ", under settings written otherwise")
        return "same settings, other outcomes" if self.same_config else "other settings or another world"


def check(
    store: Store,
    suite: Suite,
    tables: Sequence[Table],
    played: Mapping[str, Sequence[PlayedRow]],
    results: Results,
) -> list[Checked]:
    """What a store holds of these tables beside a file, seed by seed, for the rows that both have."""
    known = {(str(one.measure), one.row): one for one in results.rows}
    same_world = suite.pool != POCKET_POOL or results.world == world_digest()
    return [
        Checked(
            label=mine.label,
            measure=mine.measure,
            seed=seed,
            there=other.by_seed[seed],
            here=mine.by_seed[seed],
            same_config=same_world and theirs.config == ours.config,
            same_outcomes=theirs.outcomes == ours.outcomes,
        )
        for key, mine in _rows(store, suite, tables, played).items()
        if (other := known.get(key))
        for seed, ours in (mine.runs or {}).items()
        if (theirs := (other.runs or {}).get(seed))
    ]


def world_digest() -> str:
    """A digest of the pocket models' weights."""
    files = sorted(WEIGHTS.glob("*/model.safetensors"))
    return _digest([[file.parent.name, hashlib.sha256(file.read_bytes()).hexdigest()] for file in files])


def _tables_of(results: Results | None) -> list[str]:
    words = shlex.split(results.command or "") if results else []
    return list(takewhile(lambda word: not word.startswith("--"), words[2:]))


def _command(tables: Sequence[str], suite: Suite, seeds: Iterable[int]) -> str:
    words = ["trinity", "reproduce", *tables, "--seeds", ",".join(map(str, sorted(seeds)))]
    asked, usual = ({**asdict(one), **asdict(one.computing)} for one in (suite, Suite()))
    for name, value in asked.items():
        if name not in ("validation", "computing") and value != usual[name]:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


#: A difference: the row, the row that it is put against, and what is measured.
Pair = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Differences:
    """The p of every difference that has an interval (1 where that holds 0), and which hold among all of them (Holm
    1979)."""

    ps: dict[Pair, float]
    held: frozenset[Pair]

    @classmethod
    def of(cls, tables: Iterable[tuple[Table, Sequence[RowResult]]]) -> Differences:
        """Of several tables; a difference that stands in two of them is one."""
        ps: dict[Pair, float] = {}
        for table, found in tables:
            for one in found:
                pair, difference = _pair(table, one), table.difference(one)
                if pair is None or difference is None or not difference.has_interval or pair in ps:
                    continue
                # An interval that holds 0 has a p above 0.05, which never holds among several.
                differs = difference.low > 0 or difference.high < 0
                ps[pair] = mean_p(difference, _differences(table, one, found)) if differs else 1.0
        return cls.allowing(ps)

    @classmethod
    def allowing(cls, ps: dict[Pair, float]) -> Differences:
        """Of these p, each allowing for all."""
        held = holm(list(ps.values()))
        return cls(ps, frozenset(pair for pair, holds in zip(ps, held, strict=True) if holds))

    def mark(self, table: Table, one: RowResult) -> str:
        """Whether a row's difference holds: `yes`, `no`; empty where there is none, or no interval."""
        pair = _pair(table, one)
        return "" if pair is None else self.says(pair)

    def says(self, pair: Pair) -> str:
        """The same of a pair."""
        return "" if pair not in self.ps else "yes" if pair in self.held else "no"

    @property
    def column(self) -> str:
        """What a column of marks is called."""
        return f"holds among {len(self.ps)}"

    def words(self, where: str) -> str:
        """How many there are and what survives, two sentences; empty for fewer than two. `where` they stand."""
        n, alone = len(self.ps), sum(p < 0.05 for p in self.ps.values())
        if n < 2:
            return ""
        return (
            f"{n} differences to a reference are stated in {where}. Taken alone, {alone} of their intervals leave out "
            f"0; allowing for all {n} (Holm's correction, 5 % for all together), {len(self.held)} hold."
        )


def _pair(table: Table, one: RowResult) -> Pair | None:
    reference = table.reference
    if reference is None or table.difference(one) is None:
        return None
    return one.row, reference.key, table.measure


def _reference(table: Table, found: Sequence[RowResult]) -> RowResult | None:
    key = table.reference.key if table.reference else None
    return next((one for one in found if one.row == key), None)


def _shared(one: RowResult, reference: RowResult) -> list[int]:
    return [seed for seed in one.by_seed if seed in reference.by_seed]


def _differences(table: Table, one: RowResult, found: Sequence[RowResult]) -> list[float]:
    reference = _reference(table, found)
    if reference is None:
        return []
    return [one.by_seed[seed] - reference.by_seed[seed] for seed in _shared(one, reference)]


def seeds_words(table: Table, one: RowResult, found: Sequence[RowResult]) -> str:
    """`2 seeds` for a difference that is over fewer seeds than the reference has; else empty."""
    reference = _reference(table, found)
    if reference is None or table.difference(one) is None:
        return ""
    n = len(_shared(one, reference))
    return f"{n} seed{'' if n == 1 else 's'}" if 0 < n < len(reference.by_seed) else ""


def on_fewer_seeds(table: Table, found: Sequence[RowResult]) -> list[str]:
    """What the reference has on those seeds, sentences: two means side by side then differ by something else."""
    reference = _reference(table, found)
    if reference is None:
        return []
    marks = {
        tuple(_shared(one, reference)): words for one in found if (words := seeds_words(table, one, found))
    }
    said = []
    for seeds, words in sorted(marks.items()):
        mean = math.fsum(reference.by_seed[seed] for seed in seeds) / len(seeds)
        value = f"{mean:,.0f}" if table.measure == "tokens" else percent(mean)
        named = f"seed{'' if len(seeds) == 1 else 's'} {enumerated([str(one) for one in seeds])}"
        said.append(f"A difference marked “{words}” is to the reference's {value} on {named} alone.")
    return said
