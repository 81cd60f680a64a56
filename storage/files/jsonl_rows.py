"""What the store holds, as lines of an interchange file: runs or episodes to export, twins to compare."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, or_, select

from core.episode import Status
from core.errors import StoreError
from storage.files.jsonl import (
    Body,
    CheckpointLine,
    EpisodeLine,
    GenerationLine,
    Head,
    IterationLine,
    LabelLine,
    OptimiserLine,
    PlannerLine,
    RunLine,
)
from storage.rows.full_episodes import chunks, read_timed_episodes, rows_among
from storage.rows.mapping import Row, Rows
from storage.rows.schema import checkpoint, episode, generation, iteration, label, optimiser, planner, run
from storage.rows.summaries import RunStatus
from storage.shelves.generations import read_candidates
from storage.shelves.planners import PLANNER_POLICY

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
#: Objects that stand in their columns as JSON.
_OBJECTS = ("config", "stats", "card")
#: So many episodes are in memory at once.
_EPISODES = 100


def row_of_line(line: RunLine | IterationLine | OptimiserLine | LabelLine) -> Row:
    """The row of a line that has a column for each field."""
    return {
        _COLUMNS.get(name, name): json.dumps(value) if name in _OBJECTS else value
        for name, value in line
        if name != "kind"
    }


def _line_of_row(kind: type[L], row: Rows, **given: Any) -> L:
    """The line of a row, but for the fields that are given."""
    for name in kind.model_fields.keys() - {"kind", *given}:
        value = row[_COLUMNS.get(name, name)]
        given[name] = json.loads(value) if name in _OBJECTS else value
    return kind(**given)


def lines_of_runs(connection: Connection, run_ids: Sequence[str]) -> Iterator[Body]:
    """Everything of these runs, in the order in which a reader needs it. StoreError for an unknown run."""
    yield from _runs(connection, run_ids)
    played = select(episode.c.checkpoint_id).where(episode.c.run_id.in_(run_ids))
    yield from _checkpoints(
        connection, run_ids, or_(checkpoint.c.run_id.in_(run_ids), checkpoint.c.id.in_(played))
    )
    played_by = select(episode.c.policy).where(episode.c.run_id.in_(run_ids))
    yield from _planners(
        connection, run_ids, or_(planner.c.run_id.in_(run_ids), PLANNER_POLICY.in_(played_by))
    )
    for run_id in run_ids:
        yield from _generations(connection, run_id)
        yield from _iterations(connection, run_id)
        if (last := _optimiser(connection, run_id)) is not None:
            yield last
    for run_id in run_ids:
        ids = select(episode.c.id).where(episode.c.run_id == run_id).order_by(episode.c.id)
        yield from _episodes(connection, connection.execute(ids).scalars().all())


def lines_of_episodes(
    connection: Connection, run_ids: Sequence[str], episode_ids: Sequence[str]
) -> Iterator[Body]:
    """These episodes with what they refer to: their runs, and the checkpoints and planners they were played by."""
    yield from _runs(connection, run_ids)
    seen: set[str] = set()
    for some in chunks(episode_ids):
        played = select(episode.c.checkpoint_id).where(episode.c.id.in_(some))
        played_by = select(episode.c.policy).where(episode.c.id.in_(some))
        players: tuple[Iterator[CheckpointLine | PlannerLine], ...] = (
            _checkpoints(connection, run_ids, checkpoint.c.id.in_(played)),
            _planners(connection, run_ids, PLANNER_POLICY.in_(played_by)),
        )
        for line in chain.from_iterable(players):
            if line.id not in seen:
                seen.add(line.id)
                yield line
    yield from _episodes(connection, episode_ids)


def runs_of(connection: Connection, episode_ids: Sequence[str]) -> list[str]:
    """The runs that these episodes are of, each once, in the order of their ids."""
    rows = rows_among(connection, select(episode.c.run_id), episode.c.id, episode_ids)
    return sorted({row["run_id"] for row in rows})


def known_values(connection: Connection, column: ColumnElement[str], wanted: Iterable[str]) -> set[str]:
    """Those of `wanted` that stand in a column."""
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
        case GenerationLine():
            return next(_generations(connection, line.run, generation.c.idx == line.index), None)
        case OptimiserLine():
            return _optimiser(connection, line.run)
        case CheckpointLine():
            query = select(checkpoint).where(checkpoint.c.id == line.id)
            row = connection.execute(query).mappings().first()
            # Which run an equal checkpoint came from, and when, is not its content.
            if row is None:
                return None
            return _line_of_row(CheckpointLine, row, run=line.run, created=line.created)
        case IterationLine():
            return next(_iterations(connection, line.run, iteration.c.idx == line.index), None)
        case PlannerLine():
            query = select(planner).where(planner.c.id == line.id)
            row = connection.execute(query).mappings().first()
            if row is None:
                return None
            # Nor where its files are, or how they are packed: its id is made of what they say.
            place = {
                name: getattr(line, name) for name in ("run", "created", "files", "folder", "size_bytes")
            }
            return _line_of_row(PlannerLine, row, **place)


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
    status = RunStatus(row["status"])
    return _line_of_row(RunLine, row, status=RunStatus.INTERRUPTED if status in _ALIVE else status)


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


def _generations(
    connection: Connection, run_id: str, *where: ColumnElement[bool]
) -> Iterator[GenerationLine]:
    query = select(generation).where(generation.c.run_id == run_id, *where).order_by(generation.c.idx)
    for row in connection.execute(query).mappings().all():
        candidates = tuple(read_candidates(connection, run_id, row["idx"]))
        yield _line_of_row(GenerationLine, row, candidates=candidates)


def _planners(
    connection: Connection, run_ids: Sequence[str], wanted: ColumnElement[bool]
) -> Iterator[PlannerLine]:
    """The wanted planners; a run that is not in the file is not named."""
    query = select(planner).where(wanted).order_by(planner.c.run_id, planner.c.iteration, planner.c.id)
    for row in connection.execute(query).mappings():
        yield _line_of_row(PlannerLine, row, run=row["run_id"] if row["run_id"] in run_ids else None)


def _iterations(connection: Connection, run_id: str, *where: ColumnElement[bool]) -> Iterator[IterationLine]:
    query = select(iteration).where(iteration.c.run_id == run_id, *where).order_by(iteration.c.idx)
    for row in connection.execute(query).mappings().all():
        yield _line_of_row(IterationLine, row)


def _optimiser(connection: Connection, run_id: str) -> OptimiserLine | None:
    row = connection.execute(select(optimiser).where(optimiser.c.run_id == run_id)).mappings().first()
    return None if row is None else _line_of_row(OptimiserLine, row)


def _episodes(connection: Connection, ids: Sequence[str]) -> Iterator[EpisodeLine | LabelLine]:
    """Each episode, then its labels."""
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
