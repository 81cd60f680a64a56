"""What the store holds, as lines of an interchange file: runs or episodes to export, twins to compare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, or_, select

from core.episode import Status
from core.errors import StoreError
from storage.files.jsonl import (
    Body,
    CheckpointLine,
    EpisodeLine,
    GenerationLine,
    LabelLine,
    OptimiserLine,
    RunLine,
)
from storage.files.label_lines import lines_of_labels
from storage.rows.full_episodes import chunks, read_episodes
from storage.rows.mapping import Rows
from storage.rows.schema import candidate, checkpoint, episode, generation, optimiser, run, turn
from storage.rows.summaries import CandidateSummary, RunStatus

_ALIVE = (RunStatus.QUEUED, RunStatus.RUNNING)


def lines_of_runs(connection: Connection, run_ids: Sequence[str]) -> Iterator[Body]:
    """Everything of these runs, in the order in which a reader needs it. StoreError for an unknown run."""
    yield from _runs(connection, run_ids)
    played = select(episode.c.checkpoint_id).where(episode.c.run_id.in_(run_ids))
    yield from _checkpoints(connection, run_ids, or_(checkpoint.c.run_id.in_(run_ids), _used(played)))
    for run_id in run_ids:
        yield from _generations(connection, run_id)
    for run_id in run_ids:
        ids = select(episode.c.id).where(episode.c.run_id == run_id).order_by(episode.c.id)
        yield from _episodes(connection, connection.execute(ids).scalars().all())


def lines_of_episodes(
    connection: Connection, run_ids: Sequence[str], episode_ids: Sequence[str]
) -> Iterator[Body]:
    """These episodes with what they refer to: the runs they are of and the checkpoints they were played by."""
    yield from _runs(connection, run_ids)
    seen: set[str] = set()
    for some in chunks(episode_ids):
        played = select(episode.c.checkpoint_id).where(episode.c.id.in_(some))
        for line in _checkpoints(connection, run_ids, _used(played)):
            if line.id not in seen:
                seen.add(line.id)
                yield line
    yield from _episodes(connection, episode_ids)


def runs_of(connection: Connection, episode_ids: Sequence[str]) -> list[str]:
    """The runs that these episodes are of, each once, in the order of their ids."""
    found: set[str] = set()
    for some in chunks(episode_ids):
        found.update(connection.execute(select(episode.c.run_id).where(episode.c.id.in_(some))).scalars())
    return sorted(found)


def known_values(connection: Connection, column: ColumnElement[str], wanted: Iterable[str]) -> set[str]:
    """Those of `wanted` that stand in a column."""
    found: set[str] = set()
    for some in chunks(sorted(wanted)):
        found.update(connection.execute(select(column).where(column.in_(some))).scalars())
    return found


def stored_episodes(connection: Connection, episode_ids: Sequence[str]) -> dict[str, EpisodeLine]:
    """What the store holds under these ids, as lines; most ids of an import are new."""
    ids = sorted(known_values(connection, episode.c.id, episode_ids))
    lines = _episodes(connection, ids)
    return {line.episode.id: line for line in lines if isinstance(line, EpisodeLine)}


def stored_twin(
    connection: Connection, line: RunLine | CheckpointLine | GenerationLine | OptimiserLine
) -> Body | None:
    """What the store holds under the line's id, as a line; None when that is nothing."""
    found: Iterable[Body | None]
    match line:
        case RunLine():
            found = [_run(connection, line.id)]
        case GenerationLine():
            found = _generations(connection, line.run, only=line.index)
        case OptimiserLine():
            found = [_optimiser(connection, line.run)]
        case CheckpointLine():
            query = select(checkpoint).where(checkpoint.c.id == line.id)
            # Which run an equal checkpoint came from, and when, is not its content.
            found = [
                _checkpoint(row).model_copy(update={"run": line.run, "created": line.created})
                for row in connection.execute(query).mappings()
            ]
    return next(iter(found), None)


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
    same = ("id", "created", "started", "finished", "error")
    return RunLine(
        run_kind=row["kind"],
        status=RunStatus.INTERRUPTED if status in _ALIVE else status,
        config=json.loads(row["config"]),
        **{name: row[name] for name in same},
    )


def _used(played: Select[tuple[str | None]]) -> ColumnElement[bool]:
    return checkpoint.c.id.in_(played)


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
        line = _checkpoint(row)
        yield line if line.run in run_ids else line.model_copy(update={"run": None})


def _checkpoint(row: Rows) -> CheckpointLine:
    return CheckpointLine(
        id=row["id"],
        run=row["run_id"],
        generation=row["generation"],
        head_kind=row["kind"],
        created=row["created"],
        config=json.loads(row["config"]),
        weights=bytes(row["weights"]),
    )


def _generations(
    connection: Connection, run_id: str, only: int | None = None
) -> Iterator[GenerationLine | OptimiserLine]:
    query = select(generation).where(generation.c.run_id == run_id).order_by(generation.c.idx)
    if only is not None:
        query = query.where(generation.c.idx == only)
    for row in connection.execute(query).mappings().all():
        fields: dict[str, Any] = dict(row)
        index = fields.pop("idx")
        fields["run"] = fields.pop("run_id")
        fields["stats"] = json.loads(fields["stats"])
        members = (
            select(candidate.c.idx, candidate.c.fitness, candidate.c.rollouts, candidate.c.missing)
            .where(candidate.c.run_id == run_id, candidate.c.generation == index)
            .order_by(candidate.c.idx)
        )
        candidates = tuple(CandidateSummary(*member) for member in connection.execute(members))
        yield GenerationLine(index=index, candidates=candidates, **fields)
    if only is None and (last := _optimiser(connection, run_id)) is not None:
        yield last


def _optimiser(connection: Connection, run_id: str) -> OptimiserLine | None:
    row = connection.execute(select(optimiser).where(optimiser.c.run_id == run_id)).first()
    return OptimiserLine(run=run_id, generation=row.generation, state=bytes(row.state)) if row else None


def _episodes(connection: Connection, ids: Sequence[str]) -> Iterator[EpisodeLine | LabelLine]:
    """Each episode, then its labels."""
    for chunk in chunks(ids, 100):
        times = {
            row.id: row
            for row in connection.execute(
                select(episode.c.id, episode.c.started, episode.c.finished).where(episode.c.id.in_(chunk))
            )
        }
        began: dict[str, list[float]] = {one: [] for one in chunk}
        turns = (
            select(turn.c.episode_id, turn.c.started)
            .where(turn.c.episode_id.in_(chunk), turn.c.stage == "finished")
            .order_by(turn.c.episode_id, turn.c.idx)
        )
        for episode_id, at in connection.execute(turns):
            began[episode_id].append(at)
        labels = lines_of_labels(connection, chunk)
        for full in read_episodes(connection, chunk):
            running = full.status is Status.RUNNING
            yield EpisodeLine(
                started=times[full.id].started,
                finished=times[full.id].finished,
                turn_started=tuple(began[full.id]),
                episode=replace(full, status=Status.INTERRUPTED) if running else full,
            )
            yield from labels.get(full.id, ())
