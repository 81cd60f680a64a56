"""An episode's `meta` column: JSON of other programs' notes, and of facts of our own under reserved keys.

Interchange files of versions 1 and 2 hold an episode's facts in the same form; so this is the one place that reads it.
What another program notes under a reserved key stands apart, in an object under `meta`, and is never taken for a fact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypedDict, get_args

from core.episode import BASELINE, CHANGE_KINDS, FORK, Change, Episode, Fork, Removable

_REMOVED = "_removed"
_KINDS: tuple[Removable, ...] = get_args(Removable)
_STRANGERS = "meta"
_OURS = frozenset(
    (
        *("generation", "error", "deciders", "left_out", _STRANGERS, *(kind + _REMOVED for kind in _KINDS)),
        *("fork", "fork_number", "fork_change", "fork_prefix", "fork_pool", "fork_held"),
    )
)


class Facts(TypedDict):
    """The fields of an episode that its notes hold."""

    generation: int | None
    left_out: tuple[str, ...]
    deciders: dict[int, str]
    fork: Fork | None
    error: str | None
    removed: dict[Removable, str]
    meta: dict[str, str]


def notes_of(episode: Episode) -> str:
    """The JSON text of an episode's `meta` column."""
    fork = episode.fork
    ours = {
        "generation": None if episode.generation is None else str(episode.generation),
        "deciders": json.dumps(episode.deciders) if episode.deciders else None,
        "left_out": json.dumps(episode.left_out) if episode.left_out else None,
        "error": episode.error,
        **{kind + _REMOVED: day for kind, day in episode.removed.items()},
    }
    if fork is not None:
        ours |= {
            "fork": fork.part,
            "fork_number": None if fork.number is None else str(fork.number),
            "fork_change": json.dumps([fork.change.kind, fork.change.value]) if fork.change else None,
            "fork_prefix": fork.prefix,
            "fork_pool": fork.pool,
            "fork_held": str(int(fork.held)),
        }
    clashing = {key: value for key, value in episode.meta.items() if key in _OURS}
    theirs = {key: value for key, value in episode.meta.items() if key not in _OURS}
    known = {key: value for key, value in ours.items() if value is not None}
    return json.dumps({**theirs, **known, **({_STRANGERS: clashing} if clashing else {})})


def facts_of(column: str, parent: str | None, turn: int | None) -> Facts:
    """The facts in the column of an episode that was forked from `parent` at `turn`, both None for most."""
    return facts(json.loads(column), parent, turn)


def facts(notes: Mapping[str, Any], parent: str | None, turn: int | None) -> Facts:
    """The facts in parsed notes; an unreadable value under a reserved key counts as absent."""
    theirs = notes.get(_STRANGERS)
    return Facts(
        generation=_number(notes.get("generation")),
        left_out=_names(notes.get("left_out")),
        deciders=_deciders(notes),
        fork=None if parent is None else _fork(notes, parent, turn or 0),
        error=notes.get("error"),
        removed={kind: notes[kind + _REMOVED] for kind in _KINDS if kind + _REMOVED in notes},
        meta={key: value for key, value in notes.items() if key not in _OURS}
        | (theirs if isinstance(theirs, dict) else {} if theirs is None else {_STRANGERS: theirs}),
    )


def deciders_in(column: str) -> dict[int, str]:
    """`Episode.deciders` in a column."""
    return _deciders(json.loads(column))


def with_deciders(column: str, deciders: Mapping[int, str]) -> str:
    """The column with other deciders."""
    rest = {key: value for key, value in json.loads(column).items() if key != "deciders"}
    return json.dumps({**rest, "deciders": json.dumps(deciders)} if deciders else rest)


def removed_in(column: str) -> dict[Removable, str]:
    """`Episode.removed` in a column."""
    return facts_of(column, None, None)["removed"]


def with_removed(column: str, kind: Removable, day: str) -> str:
    """The column with the day on which such things were removed."""
    return json.dumps({**json.loads(column), kind + _REMOVED: day})


def mentions_removed(kind: Removable) -> str:
    """A part of every column that notes such a removal."""
    return f'"{kind}{_REMOVED}"'


def _fork(notes: Mapping[str, Any], parent: str, turn: int) -> Fork:
    change, number = _change(notes.get("fork_change")), _number(notes.get("fork_number"))
    if notes.get("fork") != (FORK if change else BASELINE):
        return Fork(parent, turn)
    held = notes.get("fork_held") != "0"
    return Fork(parent, turn, change, number, notes.get("fork_prefix", ""), notes.get("fork_pool", ""), held)


def _change(value: str | None) -> Change | None:
    found = _json(value)
    match found:
        case [str(kind), str(value)] if kind in CHANGE_KINDS:
            return Change(kind, value)
    return None


def _deciders(notes: Mapping[str, Any]) -> dict[int, str]:
    found = _json(notes.get("deciders"))
    if not isinstance(found, dict) or not all(_number(turn) is not None for turn in found):
        return {}
    return {int(turn): str(found[turn]) for turn in sorted(found, key=int)}


def _names(value: str | None) -> tuple[str, ...]:
    found = _json(value)
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and re.fullmatch(r"-?[0-9]{1,19}", value) else None


def _json(value: str | None) -> object:
    try:
        return json.loads(value) if value is not None else None
    except (ValueError, RecursionError):
        return None
