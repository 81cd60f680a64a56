"""Labels and second opinions of a selection of episodes, for files: as columns of episodes and turns, and as rows.

A column holds the labels that count under one name: the values of all authors, each once, in the order they were
given. Author, note and the labelled words stand in the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, func, select

from storage.files.selection import FETCH, Selection, selection_query
from storage.filters.current_labels import current_labels
from storage.rows import mapping
from storage.rows.mapping import Row
from storage.rows.schema import label, same_turn, second_opinion, text, turn

#: A column's name begins so; what follows is the labels' name.
PREFIX = "label_"
_BETWEEN = " | "


@dataclass(frozen=True, slots=True)
class LabelColumns:
    """One column per label name of a selection, for whole episodes or for turns (with the words of their replies)."""

    names: tuple[str, ...]
    values: Mapping[tuple[str, int | None], Mapping[str, str]]

    @property
    def titles(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(PREFIX + name for name in self.names)

    def of(self, episode_id: str, index: int | None = None) -> dict[str, str | None]:
        """Every column of one episode, or of its turn `index` (from 0); None: no label."""
        given = self.values.get((episode_id, index), {})
        return {PREFIX + name: given.get(name) for name in self.names}


def label_columns(connection: Connection, selection: Selection, *, of_turns: bool) -> LabelColumns:
    """The labels that count on a selection's episodes as wholes, or on their turns. One query."""
    about = label.c.idx.is_not(None) if of_turns else label.c.idx.is_(None)
    given: dict[tuple[str, int | None], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in connection.execute(current_labels(_within(connection, selection), about)):
        values = given[row.episode_id, row.idx][row.name]
        if row.value not in values:
            values.append(row.value)
    names = sorted({name for found in given.values() for name in found})
    joined = {
        place: {name: _BETWEEN.join(values) for name, values in found.items()}
        for place, found in given.items()
    }
    return LabelColumns(tuple(names), joined)


def label_rows(connection: Connection, selection: Selection) -> Iterator[Row]:
    """Each label that counts, with the words it is about; turns from 1, times in microseconds."""
    found = current_labels(_within(connection, selection)).subquery()
    spoken = and_(same_turn(text, found), text.c.kind == "reply", found.c.span_start.is_not(None))
    words = func.substr(text.c.body, found.c.span_start + 1, found.c.span_end - found.c.span_start)
    query = (
        select(found, words.label("words"))
        .select_from(found.outerjoin(text, spoken))
        .order_by(found.c.episode_id, found.c.at, found.c.id)
    )
    for row in connection.execute(query.execution_options(yield_per=FETCH)).mappings():
        yield {**row, "turn": _from_one(row["idx"]), "said": round(row["at"] * 1e6)}


def opinion_rows(connection: Connection, selection: Selection) -> Iterator[Row]:
    """Each second opinion: a checkpoint's logits at a turn, and whether it read there what the turn's own did."""
    query = (
        select(second_opinion, (turn.c.prompt_digest == second_opinion.c.prompt_digest).label("same_input"))
        .join(turn, same_turn(second_opinion))
        .where(second_opinion.c.episode_id.in_(selection_query(selection, connection.dialect.name)))
        .order_by(second_opinion.c.episode_id, second_opinion.c.idx, second_opinion.c.checkpoint_id)
    )
    for row in connection.execute(query.execution_options(yield_per=FETCH)).mappings():
        logits = {name: list(mapping.to_floats(row[name])) for name in ("model_logits", "role_logits")}
        yield {**row, **logits, "turn": _from_one(row["idx"])}


def _within(connection: Connection, selection: Selection) -> ColumnElement[bool]:
    return label.c.episode_id.in_(selection_query(selection, connection.dialect.name))


def _from_one(index: int | None) -> int | None:
    return None if index is None else index + 1
