"""The updates of runs that learn, with the last state for bit-exact resumption: generations and iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Engine, delete, insert, select
from sqlalchemy.exc import IntegrityError

from core.errors import StoreError
from storage.rows.engine import fetch_mapping, fetch_mappings, reading, writing
from storage.rows.full_episodes import TimedEpisode, insert_episodes
from storage.rows.mapping import Row, from_row
from storage.rows.schema import candidate, learning_update, optimiser
from storage.rows.summaries import CandidateSummary, UpdateSummary
from storage.shelves.checkpoints import insert_checkpoint
from storage.shelves.replies import PaidReplies


@dataclass(frozen=True)
class Learning:
    """What the runs of a store have learned (`store.learning`)."""

    engine: Engine

    def add(
        self,
        entry: UpdateSummary,
        *,
        state: bytes | None = None,
        checkpoint: Row | None = None,
        candidates: Sequence[CandidateSummary] = (),
        played: Sequence[TimedEpisode] = (),
    ) -> None:
        """Store one update, its candidates, its checkpoint, the state to go on from and those of the episodes `played`
        in it that are kept, in one transaction: none of it is ever there without the rest.

        `state` replaces that of an update before; empty: it is in a file. `checkpoint` is a
        `checkpoints.checkpoint_row`. StoreError when the update is already there: a resumed run goes on after the last
        one with a state."""
        try:
            with writing(self.engine, durable=True) as connection:
                if checkpoint is not None:
                    insert_checkpoint(connection, checkpoint)
                insert_update(connection, entry, candidates)
                if state is not None:
                    connection.execute(delete(optimiser).where(optimiser.c.run_id == entry.run_id))
                    row = {"run_id": entry.run_id, "generation": entry.index, "state": state}
                    connection.execute(insert(optimiser), row)
                insert_episodes(connection, played)
        except IntegrityError as error:
            raise StoreError(
                f"Run {entry.run_id} already has generation or iteration {entry.index}, or is not in the store."
            ) from error

    def updates(self, run_id: str) -> list[UpdateSummary]:
        query = (
            select(learning_update).where(learning_update.c.run_id == run_id).order_by(learning_update.c.idx)
        )
        return [from_row(UpdateSummary, row, index=row["idx"]) for row in fetch_mappings(self.engine, query)]

    def candidates(self, run_id: str, index: int) -> list[CandidateSummary]:
        with reading(self.engine) as connection:
            return read_candidates(connection, run_id, index)

    def state(self, run_id: str) -> tuple[int, bytes] | None:
        """(number of the update, state after it), None before the first."""
        query = select(optimiser.c.generation, optimiser.c.state).where(optimiser.c.run_id == run_id)
        row = fetch_mapping(self.engine, query)
        return (row["generation"], bytes(row["state"])) if row else None

    def forget_from(self, run_id: str, index: int) -> None:
        """Drop the updates that a resumed run is going to make again; their checkpoints are the same again."""
        later = (learning_update.c.run_id == run_id) & (learning_update.c.idx >= index)
        with writing(self.engine) as connection:
            connection.execute(delete(learning_update).where(later))

    def forget_state(self, run_id: str) -> None:
        with writing(self.engine) as connection:
            connection.execute(delete(optimiser).where(optimiser.c.run_id == run_id))

    def paid_replies(self, run_id: str) -> PaidReplies:
        """The ledger of replies that the run has paid for."""
        return PaidReplies(self.engine, run_id)


def insert_update(
    connection: Connection, entry: UpdateSummary, candidates: Sequence[CandidateSummary]
) -> None:
    row = asdict(entry)
    connection.execute(insert(learning_update), {"idx": row.pop("index"), **row})
    of = {"run_id": entry.run_id, "generation": entry.index}
    if rows := [{**of, "idx": one.pop("index"), **one} for one in map(asdict, candidates)]:
        connection.execute(insert(candidate), rows)


def read_candidates(connection: Connection, run_id: str, index: int) -> list[CandidateSummary]:
    query = (
        select(candidate)
        .where(candidate.c.run_id == run_id, candidate.c.generation == index)
        .order_by(candidate.c.idx)
    )
    rows = connection.execute(query).mappings()
    return [from_row(CandidateSummary, row, index=row["idx"]) for row in rows]
