"""What in the transcript made a choice, kept per turn and checkpoint: places of words, never their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Engine, and_, delete, insert, select

from core.analysis.attribution import Attribution, WordAttribution
from storage.rows.engine import fetch_scalar, writing
from storage.rows.schema import at_turn, attribution, checkpoint, episode

T = TypeVar("T")
_PARTS, _WORDS = TypeAdapter(Attribution), TypeAdapter(WordAttribution)


@dataclass(frozen=True, slots=True)
class AttributedTurn:
    """A turn as one checkpoint decides it. `digest` (`core.analysis.attribution.digest_of`) tells what is kept of it
    from what was found for another transcript or choice."""

    episode_id: str
    index: int
    checkpoint_id: str
    digest: str


@dataclass(frozen=True)
class Attributions:
    """What made choices (`store.attributions`)."""

    engine: Engine

    def parts(self, turn: AttributedTurn) -> Attribution | None:
        return self._read(turn, "parts", _PARTS)

    def words(self, turn: AttributedTurn) -> WordAttribution | None:
        """What its words contribute, as far as it is worked out; None where nothing is kept."""
        return self._read(turn, "words", _WORDS)

    def add(self, turn: AttributedTurn, found: Attribution | WordAttribution) -> None:
        """Keep what was found in the place of what was kept before; nothing where the episode or the checkpoint is
        gone."""
        parts = isinstance(found, Attribution)
        body = (_PARTS.dump_json(found) if parts else _WORDS.dump_json(found)).decode()  # type: ignore[arg-type]
        kind: Literal["parts", "words"] = "parts" if parts else "words"
        here = {"episode_id": turn.episode_id, "idx": turn.index, "checkpoint_id": turn.checkpoint_id}
        there = select(episode.c.id).where(
            episode.c.id == turn.episode_id,
            select(checkpoint.c.id).where(checkpoint.c.id == turn.checkpoint_id).exists(),
        )
        with writing(self.engine) as connection:
            connection.execute(delete(attribution).where(_of(turn, kind)))
            if connection.execute(there).scalar() is not None:
                row = {**here, "kind": kind, "digest": turn.digest, "body": body}
                connection.execute(insert(attribution), row)

    def _read(self, turn: AttributedTurn, kind: str, type_: TypeAdapter[T]) -> T | None:
        query = select(attribution.c.body).where(_of(turn, kind), attribution.c.digest == turn.digest)
        body = fetch_scalar(self.engine, query)
        return None if body is None else type_.validate_json(body)


def _of(turn: AttributedTurn, kind: str) -> ColumnElement[bool]:
    return and_(
        at_turn(attribution, turn.episode_id, turn.index),
        attribution.c.checkpoint_id == turn.checkpoint_id,
        attribution.c.kind == kind,
    )
