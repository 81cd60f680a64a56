"""Which episodes a list shows: a frozen filter that travels in a URL and compiles to SQL conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from sqlalchemy import ColumnElement, exists, false, select

from core.episode import EndReason, Role, Status
from storage import search
from storage.mapping import flag_bits
from storage.schema import episode, turn
from storage.summaries import EPISODE_FLAGS

_OUTCOMES: dict[str, bool | None] = {"right": True, "wrong": False, "none": None}
#: The fields that take one of a few values.
CHOICES: dict[str, tuple[str, ...]] = {
    "correct": tuple(_OUTCOMES),
    "end_reason": tuple(EndReason),
    "status": tuple(Status),
    "flag": EPISODE_FLAGS,
    "role": tuple(Role),
}
_NUMBERS = ("min_turns", "max_turns")
_LONGEST = 200
_MOST_TURNS = 10**6  # no episode has as many, and no database refuses the number


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """All conditions must hold; None means "any". Values come from `Facets`, so they can be clicked together.

    `correct` is "right", "wrong" or "none"; `model` and `role` match episodes with at least one such turn
    (the same turn when both are given); `text` is searched in questions and replies.
    """

    run: str | None = None
    policy: str | None = None
    checkpoint: str | None = None
    family: str | None = None
    task: str | None = None
    correct: str | None = None
    end_reason: str | None = None
    status: str | None = None
    flag: str | None = None
    min_turns: int | None = None
    max_turns: int | None = None
    model: str | None = None
    role: str | None = None
    text: str | None = None

    def to_query(self) -> dict[str, str]:
        """The filter as URL query parameters; unset fields are left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> EpisodeFilter:
        """The filter a URL asks for; unknown keys and unusable values are ignored: stale links open."""
        found: dict[str, str | int] = {}
        for field in fields(cls):
            value = query.get(field.name, "")
            if not value or len(value) > _LONGEST:
                continue
            if field.name in _NUMBERS:
                if value.isascii() and value.isdecimal() and len(value) < 7:
                    found[field.name] = int(value)
            elif value in CHOICES.get(field.name, (value,)):
                found[field.name] = value
        return cls(**found)  # type: ignore[arg-type]  # numbers and texts sorted above

    def without(self, name: str) -> EpisodeFilter:
        """The same filter with one field open."""
        return replace(self, **{name: None})


def conditions(where: EpisodeFilter, dialect: str) -> list[ColumnElement[bool]]:
    """The filter as conditions on `episode`. A value that nothing can match gives a false condition."""
    if any(getattr(where, name) not in (None, *choices) for name, choices in CHOICES.items()):
        return [false()]
    found: list[ColumnElement[bool]] = []
    for value, column in (
        (where.run, episode.c.run_id),
        (where.policy, episode.c.policy),
        (where.checkpoint, episode.c.checkpoint_id),
        (where.family, episode.c.family),
        (where.task, episode.c.task_id),
        (where.end_reason, episode.c.end_reason),
        (where.status, episode.c.status),
    ):
        if value is not None:
            found.append(column == value)
    if where.correct is not None:
        found.append(episode.c.correct.is_(_OUTCOMES[where.correct]))
    if where.flag is not None:
        found.append(episode.c.flags.op("&")(flag_bits([where.flag])) != 0)
    if where.min_turns is not None:
        found.append(episode.c.turns >= min(where.min_turns, _MOST_TURNS))
    if where.max_turns is not None:
        found.append(episode.c.turns <= min(where.max_turns, _MOST_TURNS))
    if where.model is not None or where.role is not None:
        found.append(_has_turn(where.model, where.role))
    if where.text is not None and (match := search.matching(where.text, dialect)) is not None:
        found.append(match)
    return found


def _has_turn(model: str | None, role: str | None) -> ColumnElement[bool]:
    such = select(turn.c.idx).where(turn.c.episode_id == episode.c.id)
    if model is not None:
        such = such.where(turn.c.model == model)
    if role is not None:
        such = such.where(turn.c.role == role)
    return exists(such)
