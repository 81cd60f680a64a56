"""Planners in the store, and the iterations of their training, with its last state for exact resumption."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Engine, delete, exists, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from core.conduct.planners import CONDUCTOR
from core.errors import StoreError
from storage.rows.engine import fetch_mapping, fetch_mappings, fetch_rows, fetch_scalar, writing
from storage.rows.mapping import Row, Rows
from storage.rows.schema import episode, iteration, optimiser, planner
from storage.rows.summaries import IterationSummary, PlannerSummary
from storage.shelves.paid_replies import PaidReplies

#: A planner's name as a policy, in SQL.
PLANNER_POLICY = literal(CONDUCTOR).concat(planner.c.id)
_LIGHT = [column for column in planner.c if column.name != "files"]


@dataclass(frozen=True)
class Planners:
    """The planners of a store (`store.planners`) and their training."""

    engine: Engine
    now: Callable[[], float]

    def add(self, row: Row) -> None:
        """Keep a planner (a `planner_row`). One that is there stays as it is, but for a folder that has moved."""
        with writing(self.engine) as connection:
            if insert_planner(connection, row):
                return
            if row["folder"] is not None:
                moved = update(planner).where(planner.c.id == row["id"], planner.c.files.is_(None))
                connection.execute(moved.values(folder=row["folder"], size_bytes=row["size_bytes"]))

    def list(self, run_id: str | None = None) -> list[PlannerSummary]:
        """Planners, newest run first, then by iteration."""
        query = select(*_LIGHT).order_by(planner.c.run_id.desc(), planner.c.iteration, planner.c.id)
        if run_id is not None:
            query = query.where(planner.c.run_id == run_id)
        return [_summary(row) for row in fetch_mappings(self.engine, query)]

    def has(self, planner_id: str) -> bool:
        """Whether a planner of this id is kept."""
        query = select(planner.c.id).where(planner.c.id == planner_id)
        return fetch_scalar(self.engine, query) is not None

    def get(self, planner_id: str) -> PlannerSummary:
        """One planner without its files; StoreError when there is none with this id."""
        row = fetch_mapping(self.engine, select(*_LIGHT).where(planner.c.id == planner_id))
        if row is None:
            raise StoreError(
                f"The store holds no planner {planner_id}: `trinity checkpoints` lists those it has."
            )
        return _summary(row)

    def files(self, planner_id: str) -> bytes | None:
        """The zip archive of a planner's files; None where they are in its folder."""
        found = fetch_scalar(self.engine, select(planner.c.files).where(planner.c.id == planner_id))
        return None if found is None else bytes(found)

    def ids_with_episodes(self) -> frozenset[str]:
        """Ids of the planners that an episode was played by, finished or not."""
        played = exists().where(episode.c.policy == PLANNER_POLICY)
        return frozenset(id_ for (id_,) in fetch_rows(self.engine, select(planner.c.id).where(played)))

    # Training

    def add_iteration(
        self, entry: IterationSummary, state: bytes | None = None, kept: Row | None = None
    ) -> None:
        """Store one iteration, the planner `kept` after it and, where there is one, the state to go on from, in one
        transaction. StoreError when the iteration is already there: a resumed training goes on after its state."""
        try:
            with writing(self.engine, durable=True) as connection:
                if kept is not None:
                    insert_planner(connection, kept)
                insert_iteration(connection, entry)
                if state is not None:
                    connection.execute(delete(optimiser).where(optimiser.c.run_id == entry.run_id))
                    row = {"run_id": entry.run_id, "generation": entry.index, "state": state}
                    connection.execute(insert(optimiser), row)
        except IntegrityError as error:
            raise StoreError(
                f"Run {entry.run_id} already has iteration {entry.index}, or is not in the store."
            ) from error

    def iterations(self, run_id: str) -> Sequence[IterationSummary]:
        """The iterations of a run, first to last."""
        query = select(iteration).where(iteration.c.run_id == run_id).order_by(iteration.c.idx)
        return [to_iteration(row) for row in fetch_mappings(self.engine, query)]

    def state(self, run_id: str) -> tuple[int, bytes] | None:
        """(iteration, state after it), None before the first."""
        query = select(optimiser.c.generation, optimiser.c.state).where(optimiser.c.run_id == run_id)
        row = fetch_mapping(self.engine, query)
        return (row["generation"], bytes(row["state"])) if row else None

    def forget_after(self, run_id: str, index: int) -> None:
        """Drop iterations that a resumed training is going to make again; their planners are the same again."""
        later = (iteration.c.run_id == run_id) & (iteration.c.idx > index)
        with writing(self.engine) as connection:
            connection.execute(delete(iteration).where(later))

    def forget_state(self, run_id: str) -> None:
        """Drop the state of a training that is over."""
        with writing(self.engine) as connection:
            connection.execute(delete(optimiser).where(optimiser.c.run_id == run_id))

    def paid_replies(self, run_id: str) -> PaidReplies:
        """The ledger of replies that the run has paid for."""
        return PaidReplies(self.engine, run_id)


def planner_row(
    card: Mapping[str, Any],
    *,
    files: bytes | None,
    folder: str | None,
    size_bytes: int,
    run_id: str | None,
    created: float,
) -> Row:
    """A planner's row: its files as a zip archive, or the folder that they are in."""
    if (files is None) is (folder is None):
        raise ValueError("A planner's files are in the store or in a folder.")
    return {
        "id": card["id"],
        "run_id": run_id,
        "iteration": card["iteration"],
        "kind": card["kind"],
        "created": created,
        "card": json.dumps(dict(card), sort_keys=True),
        "files": files,
        "folder": folder,
        "size_bytes": size_bytes,
    }


def insert_planner(connection: Connection, row: Row) -> bool:
    """Insert a planner's row unless it is there; True when it is new. Its id is made of its content."""
    if connection.execute(select(planner.c.id).where(planner.c.id == row["id"])).scalar() is not None:
        return False
    connection.execute(insert(planner), dict(row))
    return True


def insert_iteration(connection: Connection, entry: IterationSummary) -> None:
    """Insert an iteration."""
    fields = asdict(entry)
    index = fields.pop("index")
    connection.execute(insert(iteration), {**fields, "idx": index, "stats": json.dumps(fields["stats"])})


def to_iteration(row: Rows) -> IterationSummary:
    """The iteration of a row."""
    fields: dict[str, Any] = {**row, "stats": json.loads(row["stats"])}
    return IterationSummary(index=fields.pop("idx"), **fields)


def _summary(row: Rows) -> PlannerSummary:
    return PlannerSummary(
        **{column.name: row[column.name] for column in _LIGHT} | {"card": json.loads(row["card"])}
    )
