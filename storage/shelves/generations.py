"""Generations and candidates of evolution runs, with the optimiser's last state for bit-exact resume."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select
from sqlalchemy.exc import IntegrityError

from core.errors import StoreError
from storage.rows.engine import fetch_mapping, fetch_mappings, reading, writing
from storage.rows.full_episodes import TimedEpisode, insert_episodes
from storage.rows.mapping import Rows
from storage.rows.schema import candidate, generation, optimiser
from storage.rows.summaries import CandidateSummary, GenerationSummary
from storage.shelves.checkpoints import insert_checkpoint
from storage.shelves.paid_replies import PaidReplies


@dataclass(frozen=True)
class Evolution:
    """The generations of a store (`store.evolution`)."""

    engine: Engine

    def add(
        self,
        entry: GenerationSummary,
        candidates: Sequence[CandidateSummary],
        state: bytes,
        checkpoint: Mapping[str, Any] | None = None,
        played: Sequence[TimedEpisode] = (),
    ) -> None:
        """Store one generation, its candidates, its checkpoint, the optimiser's state and those of the episodes
        `played` in it that are kept, in one transaction: none of it is ever there without the rest.

        `state` replaces that of the generation before. `checkpoint` is a `checkpoints.checkpoint_row`.
        StoreError when the generation is already there: a resumed run goes on after the last one.
        """
        try:
            with writing(self.engine, durable=True) as connection:
                if checkpoint is not None:
                    insert_checkpoint(connection, checkpoint)
                insert_generation(connection, entry, candidates)
                connection.execute(delete(optimiser).where(optimiser.c.run_id == entry.run_id))
                row = {"run_id": entry.run_id, "generation": entry.index, "state": state}
                connection.execute(insert(optimiser), row)
                insert_episodes(connection, played)
        except IntegrityError as error:
            raise StoreError(
                f"Run {entry.run_id} already has generation {entry.index}, or is not in the store."
            ) from error

    def paid_replies(self, run_id: str) -> PaidReplies:
        """The ledger of replies that the run has paid for."""
        return PaidReplies(self.engine, run_id)

    def generations(self, run_id: str) -> list[GenerationSummary]:
        """The generations of a run, first to last."""
        query = select(generation).where(generation.c.run_id == run_id).order_by(generation.c.idx)
        return [to_generation(row) for row in fetch_mappings(self.engine, query)]

    def candidates(self, run_id: str, index: int) -> list[CandidateSummary]:
        """The candidates of one generation, in order."""
        with reading(self.engine) as connection:
            return read_candidates(connection, run_id, index)

    def state(self, run_id: str) -> tuple[int, bytes] | None:
        """(last generation, optimiser state), None before the first."""
        query = select(optimiser.c.generation, optimiser.c.state).where(optimiser.c.run_id == run_id)
        row = fetch_mapping(self.engine, query)
        return (row["generation"], bytes(row["state"])) if row else None


def insert_generation(
    connection: Connection, entry: GenerationSummary, candidates: Sequence[CandidateSummary]
) -> None:
    """Insert a generation and its candidates."""
    fields = asdict(entry)
    index = fields.pop("index")
    connection.execute(insert(generation), {**fields, "idx": index, "stats": json.dumps(fields["stats"])})
    rows = []
    for one in candidates:
        row = asdict(one)
        rows.append({"run_id": entry.run_id, "generation": index, "idx": row.pop("index"), **row})
    if rows:
        connection.execute(insert(candidate), rows)


def read_candidates(connection: Connection, run_id: str, index: int) -> list[CandidateSummary]:
    """The candidates of one generation, in order."""
    query = (
        select(candidate.c.idx, candidate.c.fitness, candidate.c.rollouts, candidate.c.missing)
        .where(candidate.c.run_id == run_id, candidate.c.generation == index)
        .order_by(candidate.c.idx)
    )
    return [CandidateSummary(*row) for row in connection.execute(query)]


def to_generation(row: Rows) -> GenerationSummary:
    """The generation of a row."""
    fields: dict[str, Any] = {**row, "stats": json.loads(row["stats"])}
    return GenerationSummary(index=fields.pop("idx"), **fields)
