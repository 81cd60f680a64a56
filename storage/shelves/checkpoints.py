"""Checkpoints in the store: config and weights, never changed once kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Engine, exists, insert, select

from core.checkpoint import Checkpoint
from core.errors import StoreError
from core.play.policies import needs_no_checkpoint
from storage.rows.engine import fetch_mapping, fetch_mappings, fetch_rows, fetch_scalar, writing
from storage.rows.mapping import Rows
from storage.rows.schema import checkpoint, episode
from storage.rows.summaries import CheckpointSummary

_LIGHT = [column for column in checkpoint.c if column.name != "weights"]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a store (`store.checkpoints`)."""

    engine: Engine
    now: Callable[[], float]

    def add(
        self,
        checkpoint_id: str,
        config: Mapping[str, Any],
        weights: bytes,
        *,
        run_id: str | None = None,
        generation: int | None = None,
        kind: str = "head",
    ) -> None:
        """Keep a checkpoint; the same again changes nothing, other content under its id is a StoreError."""
        at = self.now()
        row = checkpoint_row(
            checkpoint_id, config, weights, run_id=run_id, generation=generation, kind=kind, created=at
        )
        with writing(self.engine) as connection:
            insert_checkpoint(connection, row)

    def list(self, run_id: str | None = None) -> list[CheckpointSummary]:
        """Checkpoints, newest run first, then by generation."""
        query = select(*_LIGHT).order_by(checkpoint.c.run_id.desc(), checkpoint.c.generation, checkpoint.c.id)
        if run_id is not None:
            query = query.where(checkpoint.c.run_id == run_id)
        return [_summary(row) for row in fetch_mappings(self.engine, query)]

    def ids_with_episodes(self) -> frozenset[str]:
        """Ids of the checkpoints that decided an episode, finished or not."""
        decided = exists().where(episode.c.policy == checkpoint.c.id)
        return frozenset(id_ for (id_,) in fetch_rows(self.engine, select(checkpoint.c.id).where(decided)))

    def has(self, checkpoint_id: str) -> bool:
        """Whether a checkpoint of this id is kept."""
        query = select(checkpoint.c.id).where(checkpoint.c.id == checkpoint_id)
        return fetch_scalar(self.engine, query) is not None

    def get(self, checkpoint_id: str) -> CheckpointSummary:
        """One checkpoint without its weights; StoreError when there is none with this id."""
        return _summary(self._row(checkpoint_id, *_LIGHT))

    def weights(self, checkpoint_id: str) -> bytes:
        """A checkpoint's numbers as safetensors bytes; StoreError when there is none with this id."""
        return bytes(self._row(checkpoint_id, checkpoint.c.weights)["weights"])

    def load(self, checkpoint_id: str) -> Checkpoint:
        """A checkpoint with its numbers, as a value; StoreError when there is none with this id."""
        row = self._row(checkpoint_id, checkpoint.c.config, checkpoint.c.weights)
        return Checkpoint.from_bytes(json.loads(row["config"]), bytes(row["weights"]))

    def find(self, checkpoint_id: str) -> tuple[CheckpointSummary, bytes] | None:
        """One checkpoint with its numbers as safetensors bytes; None when none of this id is kept."""
        query = select(checkpoint).where(checkpoint.c.id == checkpoint_id)
        row = fetch_mapping(self.engine, query)
        return None if row is None else (_summary(row), bytes(row["weights"]))

    def of_run(self, run_id: str) -> Sequence[tuple[CheckpointSummary, bytes]]:
        """Every checkpoint of a run with its numbers as safetensors bytes, by generation."""
        query = select(checkpoint).where(checkpoint.c.run_id == run_id).order_by(checkpoint.c.generation)
        return [(_summary(row), bytes(row["weights"])) for row in fetch_mappings(self.engine, query)]

    def _row(self, checkpoint_id: str, *columns: Column[Any]) -> Rows:
        row = fetch_mapping(self.engine, select(*columns).where(checkpoint.c.id == checkpoint_id))
        if row is None:
            raise StoreError(
                f"The store holds no checkpoint {checkpoint_id}: `trinity checkpoints` lists those it has."
            )
        return row


def checkpoint_row(
    checkpoint_id: str,
    config: Mapping[str, Any],
    weights: bytes,
    *,
    run_id: str | None,
    generation: int | None,
    kind: str,
    created: float,
) -> dict[str, Any]:
    """A checkpoint's row; `digest` is over its canonical config and weights."""
    canonical = json.dumps(dict(config), sort_keys=True)
    return {
        "id": checkpoint_id,
        "run_id": run_id,
        "generation": generation,
        "kind": kind,
        "digest": hashlib.sha256(canonical.encode() + b"\0" + weights).hexdigest(),
        "created": created,
        "config": canonical,
        "weights": weights,
        "size_bytes": len(weights),
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
    if json.loads(found).get("models") != list(models):
        raise StoreError(f"Checkpoint {policy} was made for other models: choose one of this episode's pool.")


def insert_checkpoint(connection: Connection, row: Mapping[str, Any]) -> bool:
    """Insert a checkpoint's row unless it is there; True when it is new. StoreError for other content."""
    held = connection.execute(select(checkpoint.c.digest).where(checkpoint.c.id == row["id"])).scalar()
    if held is None:
        connection.execute(insert(checkpoint), dict(row))
    elif held != row["digest"]:
        raise StoreError(f"The store already holds a different checkpoint under the id {row['id']}.")
    return held is None


def _summary(row: Rows) -> CheckpointSummary:
    return CheckpointSummary(
        **{column.name: row[column.name] for column in _LIGHT} | {"config": json.loads(row["config"])}
    )
