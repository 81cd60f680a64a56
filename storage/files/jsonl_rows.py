"""What the store holds, as lines of an interchange file: runs or episodes to export, twins to compare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, or_, select

from core.episode import Status
from core.errors import StoreError
from storage.files.jsonl import (
    Body,
    CheckpointLine,
    EpisodeLine,
    Head,
    LabelLine,
    OptimiserLine,
    RunLine,
    UpdateLine,
)
from storage.rows.full_episodes import chunks, read_timed_episodes, rows_among
from storage.rows.mapping import Row, Rows
from storage.rows.schema import checkpoint, episode, label, learning_update, optimiser, run
from storage.rows.summaries import PLANNER_KINDS, RunStatus
from storage.shelves.checkpoints import POLICY
from storage.shelves.learning import read_candidates

L = TypeVar("L", bound=Body)

_ALIVE = (RunStatus.QUEUED, RunStatus.RUNNING)
#: Fields of lines that stand in columns of another name.
_COLUMNS = {
    "run": "run_id",
    "run_kind": "kind",
    "head_kind": "kind",
    "index": "idx",
    "episode": "episode_id",
    "turn": "idx",
}
#: So many episodes are in memory at once.
_EPISODES = 100


def row_of_line(line: RunLine | OptimiserLine | LabelLine) -> Row:
    return {_COLUMNS.get(name, name): value for name, value in line if name != "kind"}


def _line_of_row(kind: type[L], row: Rows, **given: Any) -> L:
    for name in kind.model_fields.keys() - {"kind", *given}:
        given[name] = row[_COLUMNS.get(name, name)]
    return kind(**given)


def lines_of_runs(connection: Connection, run_ids: Sequence[str]) -> Iterator[Body]:
    """Everything of these runs, in the order in which a reader needs it. StoreError for an unknown run."""
    yield from _runs(connection, run_ids)
    played = select(episode.c.policy).where(episode.c.run_id.in_(run_ids))
    yield from _checkpoints(connection, run_ids, or_(checkpoint.c.run_id.in_(run_ids), POLICY.in_(played)))
    for run_id in run_ids:
        yield from _updates(connection, run_id)
        if (last := _optimiser(connection, run_id)) is not None:
            yield last
    for run_id in run_ids:
        ids = select(episode.c.id).where(episode.c.run_id == run_id).order_by(episode.c.id)
        yield from _episodes(connection, connection.execute(ids).scalars().all())


def lines_of_episodes(
    connection: Connection, run_ids: Sequence[str], episode_ids: Sequence[str]
) -> Iterator[Body]:
    """These episodes with what they refer to: their runs, and the checkpoints they were played by."""
    yield from _runs(connection, run_ids)
    seen: set[str] = set()
    for some in chunks(episode_ids):
        played = select(episode.c.policy).where(episode.c.id.in_(some))
        for line in _checkpoints(connection, run_ids, POLICY.in_(played)):
            if line.id not in seen:
                seen.add(line.id)
                yield line
    yield from _episodes(connection, episode_ids)


def runs_of(connection: Connection, episode_ids: Sequence[str]) -> list[str]:
    rows = rows_among(connection, select(episode.c.run_id), episode.c.id, episode_ids)
    return sorted({row["run_id"] for row in rows})


def known_values(connection: Connection, column: ColumnElement[str], wanted: Iterable[str]) -> set[str]:
    rows = rows_among(connection, select(column.label("value")), column, sorted(wanted))
    return {row["value"] for row in rows}


def stored_episodes(connection: Connection, episode_ids: Sequence[str]) -> dict[str, EpisodeLine]:
    """What the store holds under these ids, as lines; most ids of an import are new."""
    ids = sorted(known_values(connection, episode.c.id, episode_ids))
    lines = _episodes(connection, ids)
    return {line.episode.id: line for line in lines if isinstance(line, EpisodeLine)}


def stored_twin(connection: Connection, line: Head) -> Body | None:
    """What the store holds under the line's id, as a line; None when that is nothing."""
    match line:
        case RunLine():
            return _run(connection, line.id)
        case UpdateLine():
            return next(_updates(connection, line.run, learning_update.c.idx == line.index), None)
        case OptimiserLine():
            return _optimiser(connection, line.run)
        case CheckpointLine():
            query = select(checkpoint).where(checkpoint.c.id == line.id)
            row = connection.execute(query).mappings().first()
            if row is None:
                return None
            # Which run an equal checkpoint came from, and when, is not its content. Nor is where a planner's files are,
            # or how they are packed: its id is made of what they say.
            planner = row["kind"] in PLANNER_KINDS
            place = ("run", "created", *(("weights", "folder", "size_bytes") if planner else ()))
            return _line_of_row(CheckpointLine, row, **{name: getattr(line, name) for name in place})


def _runs(connection: Connection, run_ids: Sequence[str]) -> Iterator[RunLine]:
    for run_id in run_ids:
        line = _run(connection, run_id)
        if line is None:
            raise StoreError(f"The store holds no run {run_id}: list the runs to see which there are.")
        yield line


def _run(connection: Connection, run_id: str) -> RunLine | None:
    row = connection.execute(select(run).where(run.c.id == run_id)).mappings().first()
    if row is None:
        return None
    status = RunStatus.INTERRUPTED if row["status"] in _ALIVE else row["status"]
    return _line_of_row(RunLine, row, status=status)


def _checkpoints(
    connection: Connection, run_ids: Sequence[str], wanted: ColumnElement[bool]
) -> Iterator[CheckpointLine]:
    """The wanted checkpoints; a run that is not in the file is not named."""
    query = (
        select(checkpoint)
        .where(wanted)
        .order_by(checkpoint.c.run_id, checkpoint.c.generation, checkpoint.c.id)
    )
    for row in connection.execute(query).mappings():
        yield _line_of_row(CheckpointLine, row, run=row["run_id"] if row["run_id"] in run_ids else None)


def _updates(connection: Connection, run_id: str, *where: ColumnElement[bool]) -> Iterator[UpdateLine]:
    query = (
        select(learning_update)
        .where(learning_update.c.run_id == run_id, *where)
        .order_by(learning_update.c.idx)
    )
    for row in connection.execute(query).mappings().all():
        candidates = tuple(read_candidates(connection, run_id, row["idx"]))
        yield _line_of_row(UpdateLine, row, candidates=candidates)


def _optimiser(connection: Connection, run_id: str) -> OptimiserLine | None:
    row = connection.execute(select(optimiser).where(optimiser.c.run_id == run_id)).mappings().first()
    return None if row is None else _line_of_row(OptimiserLine, row)


def _episodes(connection: Connection, ids: Sequence[str]) -> Iterator[EpisodeLine | LabelLine]:
    for chunk in chunks(ids, _EPISODES):
        labels = lines_of_labels(connection, chunk)
        for one in read_timed_episodes(connection, chunk):
            full = one.episode
            if full.status is Status.RUNNING:
                full = replace(full, status=Status.INTERRUPTED)
            times = {name: getattr(one, name) for name in ("started", "finished", "turn_started")}
            yield EpisodeLine(episode=full, **times)
            yield from labels.get(full.id, ())


def lines_of_labels(connection: Connection, episode_ids: Sequence[str]) -> Mapping[str, list[LabelLine]]:
    """Every label of these episodes, replaced and withdrawn ones included, oldest first."""
    found: dict[str, list[LabelLine]] = defaultdict(list)
    query = select(label).where(label.c.episode_id.in_(episode_ids)).order_by(label.c.at, label.c.id)
    for row in connection.execute(query).mappings():
        found[row["episode_id"]].append(_line_of_row(LabelLine, row))
    return found
