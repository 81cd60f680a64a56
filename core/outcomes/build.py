"""An outcome table made from files: recognised, read as a stream, each question and each answer counted once, graded,
and put on the shelf whole or not at all."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from core.episode import Task
from core.errors import ConfigError, TaskError
from core.outcomes.gather import Gathered
from core.outcomes.grading import grade_answers, read_answer
from core.outcomes.kinds import (
    LETTERS,
    Kind,
    Looked,
    Report,
    Wishes,
    look_at,
)
from core.outcomes.published import PUBLISHED
from core.outcomes.table import (
    JUDGES,
    JUDGES_FILE,
    PLANS,
    PLANS_FILE,
    ROWS,
    ROWS_FILE,
    TASKS_FILE,
    Card,
    OutcomeTable,
    check_free,
    put_table,
)
from core.outcomes.tabular import OWN, prices_of
from core.tasks.graders import grading_of
from core.tasks.sets import TABLE_GRADERS
from core.tasks.sources import sources_of
from core.texts import well_formed

KINDS: tuple[Kind, ...] = (*PUBLISHED, *OWN)

#: A table whose marks agree with our grades less often contradicts its own key.
_CONTRADICTION = 0.8
#: So many rows are graded and written together.
_BATCH = 8_000
_LICENCES = {"Apache License": "Apache-2.0", "MIT License": "MIT", "BSD 3-Clause": "BSD-3-Clause"}


def recognise(paths: Sequence[Path], kind: str, wishes: Wishes) -> tuple[Kind, list[Looked], list[str]]:
    """The kind of some files (else the one that is named), the files of it, and the names of those that lay in a folder
    and are none. TaskError where no file is of a known kind, or two are of different ones."""
    if kind and kind not in (names := [one.name for one in KINDS]):
        raise ConfigError(f"There is no kind of files '{kind}': choose one of {', '.join(names)}.")
    sources, loose = sources_of(list(paths))
    found: dict[str, list[Looked]] = defaultdict(list)
    others: list[Looked] = []
    for looked in map(look_at, sources):
        fitting = [one for one in KINDS if one.fits(looked)]
        if kind and looked.form not in ("", "object"):
            fitting = [one for one in KINDS if one.name == kind and not one.beside(looked)]
        elif looked.form == "csv" and "|" not in wishes.columns.get("model", "|"):
            fitting = [one for one in KINDS if one.name == "long-csv"]
        if fitting:
            found[fitting[0].name].append(looked)
        else:
            others.append(looked)
    if len(found) > 1:
        titles = [f"{found[one.name][0].source.name} is {one.title}" for one in KINDS if one.name in found]
        raise TaskError(f"{', and '.join(titles)}: add them as two tables.")
    if not found:
        what = others[0].source.name if others else "the folder"
        raise TaskError(
            f"Nothing in {what} is understood: give {', '.join(one.title for one in KINDS)}, or say which by --as."
        )
    of = next(one for one in KINDS if one.name in found)
    beside = [one for one in others if of.beside(one)]
    unknown = [one.source for one in others if one not in beside]
    if strangers := [one for one in unknown if one.path not in loose and not one.member]:
        raise TaskError(f"{strangers[0].name} is not understood beside {of.title}: leave it out.")
    return of, [*found[of.name], *beside], [one.name for one in unknown]


def add_table(
    name: str,
    paths: Sequence[Path],
    folder: Path,
    *,
    kind: str = "",
    wishes: Wishes | None = None,
    licence: str = "",
    source: str = "",
    processes: int | None = None,
    told: Callable[[str, int], None] = lambda what, n: None,
) -> OutcomeTable:
    """Make the table `name` of this data folder from files. `told` hears what is being done and how many rows of it
    are. TaskError or ConfigError, one sentence, for what cannot be used; then nothing stays behind."""
    check_free(name, folder)
    wishes = wishes or Wishes()
    if wishes.grader and wishes.grader not in TABLE_GRADERS:
        raise ConfigError(f"--grader cannot be '{wishes.grader}': choose one of {', '.join(TABLE_GRADERS)}.")
    of, looked, skipped = recognise(paths, kind, wishes)
    report = Report()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".outcomes-") as scratch:
        files = Path(scratch, "table")
        files.mkdir()
        with closing(sqlite3.connect(Path(scratch, "spool.db"), isolation_level=None)) as spool:
            gathered = Gathered(spool, wishes, report)
            for n, item in enumerate(of.read(looked, wishes, report), start=1):
                gathered.take(item)
                if not n % 1000:
                    told("rows read", n)
            tasks = gathered.settle()
            graded = _Graded(gathered, tasks, report)
            graded.write(files, processes, told)
        notes = [f"Left aside, as they are no {of.title}: {', '.join(skipped)[:300]}."] if skipped else []
        card = Card(
            name=name,
            kind=of.name,
            models=tuple(gathered.models),
            tasks=len(tasks),
            rows=graded.rows,
            source=well_formed(
                source or ", ".join(dict.fromkeys(one.source.path.name for one in looked))[:500]
            ),
            licence=well_formed(licence or _licence_beside(paths)),
            texts=all(gathered.asked[old].question for old in tasks),
            answers=any(one.grader != "recorded" for one in tasks.values()),
            samples=graded.samples,
            judges=(files / JUDGES_FILE).exists(),
            plans=(files / PLANS_FILE).exists(),
            prices={gathered.named(model): pair for model, pair in prices_of(looked).items()},
            notes=(*notes, *graded.notes()),
            grading={model: (graded.agreed[model], graded.marked[model]) for model in gathered.models},
        )
        return put_table(card, lambda draft: _move(files, draft), folder)


def _move(files: Path, draft: Path) -> None:
    for path in files.iterdir():
        path.replace(draft / path.name)


def _licence_beside(paths: Sequence[Path]) -> str:
    """The licence that a file LICENSE beside the files says by its first words; "" where none does."""
    for path in paths:
        beside = (path if path.is_dir() else path.parent) / "LICENSE"
        if beside.is_file():
            start = beside.read_bytes()[:400].decode("utf-8", "replace")
            return next((name for words, name in _LICENCES.items() if words in start), "")
    return ""


class _Graded:
    """The rows of a table graded, and what is counted meanwhile."""

    def __init__(self, gathered: Gathered, tasks: Mapping[int, Task], report: Report) -> None:
        self.gathered, self.tasks, self.report = gathered, tasks, report
        self.models = list(gathered.models)
        self.number = {old: new for new, old in enumerate(tasks)}
        self.rows = self.samples = 0
        self.agreed: Counter[str] = Counter()
        self.marked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()  # tasks
        self.given: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self.known = 0  # rows that are known to be right or wrong

    def write(self, files: Path, processes: int | None, told: Callable[[str, int], None]) -> None:
        """Write the files of the table, the card apart. TaskError where a grader cannot be used, and where nothing is
        known to be right or wrong."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        grade = grading_of(list(self.tasks.values()), processes=processes)
        with pq.ParquetWriter(files / ROWS_FILE, ROWS, compression="zstd") as out:
            for batch in self._batches():
                out.write_batch(pa.RecordBatch.from_pylist(list(self._rows(batch, grade)), schema=ROWS))
                told("answers graded", self.rows)
        if not self.known:
            raise TaskError("These files have neither a key nor a mark: nothing in them is right or wrong.")
        with (files / TASKS_FILE).open("w", encoding="utf-8") as lines:
            for task in self.tasks.values():
                key = (
                    {"tests": json.loads(task.answer)}
                    if task.grader == "program"
                    else {"answer": task.answer}
                )
                line = {
                    "id": task.id,
                    "question": task.question,
                    **key,
                    "grader": task.grader,
                    "family": task.family,
                }
                lines.write(json.dumps(line, ensure_ascii=False) + "\n")
        for name, file, schema in (("judge", JUDGES_FILE, JUDGES), ("plan", PLANS_FILE, PLANS)):
            read = self.gathered.spool.execute(f"select * from {name} order by task, model, rowid")  # noqa: S608
            found = [
                dict(zip(schema.names, (self.number[row[0]], *row[1:]), strict=True))
                for row in read
                if row[0] in self.number
            ]
            if found:
                pq.write_table(pa.Table.from_pylist(found, schema), files / file, compression="zstd")

    def _batches(self) -> Iterator[list[tuple[int, list[dict[str, Any]]]]]:
        """Rows by task, for some thousands of rows at a time."""
        read = self.gathered.spool.execute("select * from row order by task, model, sample")
        names = [column[0] for column in read.description]
        batch: list[tuple[int, list[dict[str, Any]]]] = []
        n = 0
        for task, rows in groupby(read, key=itemgetter(0)):
            if task in self.number:
                batch.append((task, [dict(zip(names, row, strict=True)) for row in rows]))
                n += len(batch[-1][1])
            if n >= _BATCH:
                yield batch
                batch, n = [], 0
        if batch:
            yield batch

    def _rows(
        self, batch: Sequence[tuple[int, list[dict[str, Any]]]], grade: Any
    ) -> Iterator[dict[str, Any]]:
        """The rows of some tasks as they are kept."""
        answers: list[tuple[Task, list[str | None]]] = []
        for old, rows in batch:
            task = self.tasks[old]
            if task.grader == "recorded":
                answers.append((task, [f"{self.models[row['model']]}#{row['sample']}" for row in rows]))
                continue
            read = [read_answer(task, row["reply"], row["given"]) for row in rows]
            for row, said in zip(rows, read, strict=True):
                taken = bool(row["reply"]) and said.answer is not None and not said.ours
                self.given[self.models[row["model"]]] += taken
                self.unread[self.models[row["model"]]] += said.answer is None
                if self._is_outside(said.answer, old):
                    self.report.add(
                        "answers are letters outside the options of their question and count as wrong"
                    )
            answers.append((task, [said.answer for said in read]))
        graded = grade_answers(answers, grade)
        for (old, rows), (task, own), grades in zip(batch, answers, graded, strict=True):
            for row, answer, one in zip(rows, own, grades, strict=True):
                yield self._row(
                    self.number[old], row, answer, task.grader == "recorded", one.right, one.group
                )

    def _is_outside(self, answer: str | None, old: int) -> bool:
        most = self.gathered.asked[old].options
        return bool(
            answer
            and most
            and self.tasks[old].grader == "choice"
            and len(answer) == 1
            and LETTERS.find(answer) >= most
        )

    def _row(
        self,
        task: int,
        row: dict[str, Any],
        answer: str | None,
        recorded: bool,
        right: bool | None,
        group: int,
    ) -> dict[str, Any]:
        marked = None if row["marked"] is None else bool(row["marked"])
        if recorded:
            right = marked
        elif answer is None:  # a call that failed is no wrong answer
            right = marked if row["error"] and not row["reply"] else False
        model = self.models[row["model"]]
        self.rows += 1
        self.samples = max(self.samples, row["sample"] + 1)
        self.answered[model] += row["sample"] == 0
        self.known += right is not None
        if marked is not None and right is not None and not recorded:
            self.marked[model] += 1
            self.agreed[model] += marked == right
        score = row["score"] if row["score"] is not None else None if right is None else float(right)
        kept = {
            name: row[name]
            for name in ("model", "sample", "reply", "tokens_in", "tokens_out", "cost", "seconds")
        }
        return {
            **kept,
            "task": task,
            "answer": answer,
            "group": group,
            "right": right,
            "score": score,
            "marked": marked,
            "error": row["error"],
        }

    def notes(self) -> tuple[str, ...]:
        """What is stated of the table, a sentence each."""
        found = [f"{n:,} {words}." for words, n in self.report.counts.items() if n]
        if changed := self.gathered.changed_names:
            found.append(f"Models are named here {', '.join(changed[:20])}.")
        few = [
            f"{model} {n / len(self.tasks):.0%}"
            for model in self.models
            if (n := self.answered[model]) < 0.95 * len(self.tasks)
        ]
        if few:
            found.append(f"Models with answers to fewer than 95 % of the tasks: {', '.join(few)}.")
        for counts, words in (
            (self.given, "no answer could be read in the reply, and the one that the table gives was taken"),
            (self.unread, "there is no answer"),
        ):
            if counts.total():
                by_model = ", ".join(f"{model} {n:,}" for model, n in counts.items() if n)
                found.append(f"In {counts.total():,} rows {words} ({by_model}).")
        n, agreed = self.marked.total(), self.agreed.total()
        if n and agreed < _CONTRADICTION * n:
            found.append(
                f"The table's own marks contradict its key: they agree with our grades in {agreed:,} of {n:,} "
                "rows only. Look at them by trinity outcomes show --disagreements."
            )
        if textless := sum(not self.gathered.asked[old].question for old in self.tasks):
            found.append(
                f"{textless:,} of {len(self.tasks):,} tasks have no question text: only policies that read "
                "none can play them."
            )
        return tuple(found)
