"""Labels as lines of an interchange file, written and read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, insert, select

from storage.files.jsonl import LabelLine
from storage.rows.schema import label

#: Fields of a line that are columns of `label` as they are.
_SHARED = ("span_start", "span_end", "name", "value", "note", "author")


def lines_of_labels(connection: Connection, episode_ids: Sequence[str]) -> Mapping[str, list[LabelLine]]:
    """Every row about these episodes as lines of an interchange file, oldest first."""
    found: dict[str, list[LabelLine]] = defaultdict(list)
    query = select(label).where(label.c.episode_id.in_(episode_ids)).order_by(label.c.at, label.c.id)
    for row in connection.execute(query).mappings():
        fields = {name: row[name] for name in _SHARED}
        found[row["episode_id"]].append(
            LabelLine(episode=row["episode_id"], turn=row["idx"], at=row["at"], **fields)
        )
    return found


def insert_lines(connection: Connection, lines: Sequence[LabelLine]) -> None:
    """The rows of lines; their episodes must be there."""
    rows = [
        {
            "episode_id": line.episode,
            "idx": line.turn,
            **{name: getattr(line, name) for name in (*_SHARED, "at")},
        }
        for line in lines
    ]
    if rows:
        connection.execute(insert(label), rows)


def misplaced(line: LabelLine, places: Mapping[str, Mapping[int, int | None]]) -> str | None:
    """Why a label cannot be where it says, as half a sentence; None when it can. `places`: of
    `labels.labelled_places`."""
    turns = places.get(line.episode)
    if turns is None:
        return "refers to something that is neither in the file nor in the store"
    if line.turn is None:
        return None
    if line.turn not in turns:
        return (
            f"has an unusable value at turn (the episode's turns, {len(turns)} counted from 0, are allowed)"
        )
    length = turns[line.turn]
    if line.span_end is not None and length is not None and line.span_end > length:
        return f"has an unusable value at span_end (up to {length:,}, the length of the reply, is allowed)"
    return None
