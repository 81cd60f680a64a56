"""What runs have learned: checkpoints of coordinators and planners, never changed once kept, and the updates
(generations, iterations) with the last state for bit-exact resumption."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from sqlalchemy import Column, Connection, Engine, case, delete, exists, insert, literal, not_, select, update
from sqlalchemy.exc import IntegrityError

from core.checkpoint import Checkpoint
from core.conduct.planners import CONDUCTOR
from core.errors import StoreError
from core.play.policies import needs_no_checkpoint
from storage.rows.engine import fetch_mapping, fetch_mappings, fetch_rows, fetch_scalar, reading, writing
from storage.rows.full_episodes import TimedEpisode, insert_episodes
from storage.rows.mapping import Row, Rows, from_row, to_row
from storage.rows.schema import candidate, checkpoint, episode, learning_update, optimiser
from storage.rows.summaries import PLANNER_KINDS, CandidateSummary, CheckpointSummary, UpdateSummary
from storage.shelves.replies import PaidReplies

_LIGHT = [column for column in checkpoint.c if column.name != "weights"]
_IS_PLANNER = checkpoint.c.kind.in_(PLANNER_KINDS)
#: What a checkpoint is called as a policy, in SQL.
POLICY = case((_IS_PLANNER, literal(CONDUCTOR).concat(checkpoint.c.id)), else_=checkpoint.c.id)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a store (`store.checkpoints`)."""

    engine: Engine
    now: Callable[[], float]

    def add(
        self,
        checkpoint_id: str,
        config: Mapping[str, Any],
        weights: bytes | None,
        **place: Unpack[CheckpointPlace],
    ) -> None:
        """Keep a checkpoint (a `checkpoint_row`); the same again changes nothing but where a folder is, other content
        under its id is a StoreError."""
        row = checkpoint_row(checkpoint_id, config, weights, self.now(), **place)
        folder, size_bytes = row["folder"], row["size_bytes"]
        with writing(self.engine) as connection:
            if not insert_checkpoint(connection, row) and folder is not None:
                moved = update(checkpoint).where(
                    checkpoint.c.id == checkpoint_id, checkpoint.c.weights.is_(None)
                )
                connection.execute(moved.values(folder=folder, size_bytes=size_bytes))

    def list(self, run_id: str | None = None, *, planners: bool | None = False) -> list[CheckpointSummary]:
        """Coordinators or `planners` (None: both), newest run first, then by generation."""
        query = select(*_LIGHT).order_by(checkpoint.c.run_id.desc(), checkpoint.c.generation, checkpoint.c.id)
        if run_id is not None:
            query = query.where(checkpoint.c.run_id == run_id)
        if planners is not None:
            query = query.where(_IS_PLANNER if planners else not_(_IS_PLANNER))
        return [from_row(CheckpointSummary, row) for row in fetch_mappings(self.engine, query)]

    def policies_with_episodes(self) -> frozenset[str]:
        """The checkpoints that decided an episode, finished or not, by what they are called as policies."""
        decided = exists().where(episode.c.policy == POLICY)
        return frozenset(name for (name,) in fetch_rows(self.engine, select(POLICY).where(decided)))

    def has(self, checkpoint_id: str, *, planner: bool | None = False) -> bool:
        """Whether a coordinator, or a `planner` (None: either), of this id is kept."""
        query = select(_IS_PLANNER).where(checkpoint.c.id == checkpoint_id)
        found = fetch_scalar(self.engine, query)
        return found is not None and planner in (None, bool(found))

    def named(self, policy: str) -> CheckpointSummary | None:
        """The checkpoint that a policy of this name is; None where it is none that is kept."""
        row = fetch_mapping(
            self.engine, select(*_LIGHT).where(checkpoint.c.id == policy.removeprefix(CONDUCTOR))
        )
        return None if row is None else from_row(CheckpointSummary, row)

    def get(self, checkpoint_id: str) -> CheckpointSummary:
        """One checkpoint without its weights; StoreError when there is none with this id."""
        return from_row(CheckpointSummary, self._row(checkpoint_id, *_LIGHT))

    def weights(self, checkpoint_id: str) -> bytes | None:
        """A checkpoint's numbers as safetensors bytes, a planner's files as a zip archive, None where they are in its
        folder; StoreError when there is none with this id."""
        found = self._row(checkpoint_id, checkpoint.c.weights)["weights"]
        return None if found is None else bytes(found)

    def load(self, checkpoint_id: str) -> Checkpoint:
        row = self._row(checkpoint_id, checkpoint.c.config, checkpoint.c.weights, not_planner=True)
        return Checkpoint.from_bytes(row["config"], bytes(row["weights"]))

    def find(self, checkpoint_id: str) -> Checkpoint | None:
        return self.load(checkpoint_id) if self.has(checkpoint_id) else None

    def of_run(self, run_id: str) -> Sequence[Checkpoint]:
        query = (
            select(checkpoint.c.config, checkpoint.c.weights)
            .where(checkpoint.c.run_id == run_id, checkpoint.c.generation.is_not(None), not_(_IS_PLANNER))
            .order_by(checkpoint.c.generation)
        )
        return [
            Checkpoint.from_bytes(config, bytes(weights))
            for config, weights in fetch_rows(self.engine, query)
        ]

    def _row(self, checkpoint_id: str, *columns: Column[Any], not_planner: bool = False) -> Rows:
        query = select(*columns).where(checkpoint.c.id == checkpoint_id)
        row = fetch_mapping(self.engine, query.where(not_(_IS_PLANNER)) if not_planner else query)
        if row is None:
            raise StoreError(
                f"The store holds no checkpoint {checkpoint_id}: `trinity checkpoints` lists those it has."
            )
        return row


class CheckpointPlace(TypedDict, total=False):
    """Where a checkpoint comes from, what it is, and where its files are when they are not in the store."""

    run_id: str | None
    generation: int | None
    kind: str
    folder: str | None
    size_bytes: int | None


def checkpoint_row(
    checkpoint_id: str,
    config: Mapping[str, Any],
    weights: bytes | None,
    created: float,
    **place: Unpack[CheckpointPlace],
) -> Row:
    """A checkpoint's row, with its weights or the folder that they are in. `digest` is over its canonical config and,
    of a coordinator, its weights; a planner's id is made of what its files say, however they are packed."""
    kind, folder, size_bytes = place.get("kind", "head"), place.get("folder"), place.get("size_bytes")
    if (weights is None) is (folder is None):
        raise ValueError("A checkpoint's weights are in the store or in a folder.")
    canonical = json.dumps(dict(config), sort_keys=True)
    hashed = b"" if weights is None or kind in PLANNER_KINDS else weights
    return {
        "id": checkpoint_id,
        "run_id": place.get("run_id"),
        "generation": place.get("generation"),
        "kind": kind,
        "digest": hashlib.sha256(canonical.encode() + b"\0" + hashed).hexdigest(),
        "created": created,
        "config": json.loads(canonical),
        "weights": weights,
        "folder": folder,
        "size_bytes": len(weights or b"") if size_bytes is None else size_bytes,
    }


def check_decides(connection: Connection, policy: str, models: Sequence[str]) -> None:
    """StoreError unless this is the id of a policy that can decide turns of these models."""
    if needs_no_checkpoint(policy, models):
        return
    found = connection.execute(select(checkpoint.c.config).where(checkpoint.c.id == policy)).scalar()
    if found is None:
        raise StoreError(
            f"There is no policy or checkpoint '{policy}' that could decide this episode's turns: give the id of a "
            "checkpoint, random, random-model, round-robin or single:MODEL with one of its models."
        )
    if found.get("models") != list(models):
        raise StoreError(f"Checkpoint {policy} was made for other models: choose one of this episode's pool.")


def insert_checkpoint(connection: Connection, row: Mapping[str, Any]) -> bool:
    """Insert a checkpoint's row unless it is there; True when it is new. StoreError for other content."""
    held = connection.execute(select(checkpoint.c.digest).where(checkpoint.c.id == row["id"])).scalar()
    if held is None:
        connection.execute(insert(checkpoint), dict(row))
    elif held != row["digest"]:
        raise StoreError(f"The store already holds a different checkpoint under the id {row['id']}.")
    return held is None


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
    row = to_row(entry)
    connection.execute(insert(learning_update), {"idx": row.pop("index"), **row})
    of = {"run_id": entry.run_id, "generation": entry.index}
    if rows := [{**of, "idx": one.pop("index"), **one} for one in map(to_row, candidates)]:
        connection.execute(insert(candidate), rows)


def read_candidates(connection: Connection, run_id: str, index: int) -> list[CandidateSummary]:
    query = (
        select(candidate)
        .where(candidate.c.run_id == run_id, candidate.c.generation == index)
        .order_by(candidate.c.idx)
    )
    rows = connection.execute(query).mappings()
    return [from_row(CandidateSummary, row, index=row["idx"]) for row in rows]
