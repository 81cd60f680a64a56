"""Which episodes an export takes, how much that is, and their list lines one by one in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Select, func, select

from core.errors import StoreError
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.filters.listing import LIGHT, count_capped, to_summary
from storage.filters.vocabulary import current_labels
from storage.rows.engine import fetch_scalar, reading
from storage.rows.full_episodes import no_episode
from storage.rows.schema import episode, label, text
from storage.rows.summaries import CappedCount, EpisodeSummary
from storage.store import Store

T = TypeVar("T")

#: What a filter lets through, or these ids.
Selection = EpisodeFilter | Sequence[str]

#: Rows fetched at once while a list is streamed.
FETCH = 1000


def selection_query(selection: Selection, dialect: str) -> Select[str]:
    return select(episode.c.id).where(*selection_conditions(selection, dialect))


def selection_conditions(selection: Selection, dialect: str) -> list[ColumnElement[bool]]:
    if isinstance(selection, EpisodeFilter):
        return conditions(selection, dialect)
    return [episode.c.id.in_(selection)]


def selected_ids(connection: Connection, selection: Selection) -> list[str]:
    """The ids of a selection in their own order; StoreError for one that the store does not hold, and for none."""
    query = selection_query(selection, connection.dialect.name).order_by(episode.c.id)
    found = list(connection.execute(query).scalars())
    if not isinstance(selection, EpisodeFilter) and (lost := sorted(set(selection) - set(found))):
        raise no_episode(lost[0])
    if not found:
        raise StoreError("No episode matches: leave a filter out.")
    return found


def count_episodes(store: Store, selection: Selection, cap: int) -> CappedCount:
    """How many episodes a selection has, counted up to `cap`."""
    matching = selection_query(selection, store.engine.dialect.name)
    with reading(store.engine) as connection:
        return count_capped(connection, matching, cap)


def count_turns(store: Store, selection: Selection) -> int:
    chosen = selection_conditions(selection, store.engine.dialect.name)
    return int(fetch_scalar(store.engine, select(func.coalesce(func.sum(episode.c.turns), 0)).where(*chosen)))


def count_characters(store: Store, selection: Selection) -> int:
    """How long all texts of a selection are together. It reads them all: count first."""
    wanted = selection_query(selection, store.engine.dialect.name)
    length = func.coalesce(func.sum(func.length(text.c.body)), 0)
    return int(fetch_scalar(store.engine, select(length).where(text.c.episode_id.in_(wanted))))


def last_count(counts: Iterable[T], nothing: T) -> T:
    """The last of the counts that come while a file is written, which is then complete; `nothing` where none came."""
    return reduce(lambda _, count: count, counts, nothing)


def stream_summaries(store: Store, selection: Selection) -> Iterator[EpisodeSummary]:
    """The list lines of a selection, newest first, as they are read."""
    with reading(store.engine) as connection:
        query = (
            select(*LIGHT)
            .where(*selection_conditions(selection, connection.dialect.name))
            .order_by(episode.c.started.desc(), episode.c.id.desc())
            .execution_options(yield_per=FETCH)
        )
        for row in connection.execute(query).mappings():
            yield to_summary(row)


# Labels as columns

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
        return tuple(PREFIX + name for name in self.names)

    def of(self, episode_id: str, index: int | None = None) -> dict[str, str | None]:
        """Every column of one episode, or of its turn `index` (from 0); None: no label."""
        given = self.values.get((episode_id, index), {})
        return {PREFIX + name: given.get(name) for name in self.names}


def label_columns(connection: Connection, selection: Selection, *, of_turns: bool) -> LabelColumns:
    """The labels that count on a selection's episodes as wholes, or on their turns. One query."""
    about = label.c.idx.is_not(None) if of_turns else label.c.idx.is_(None)
    given: dict[tuple[str, int | None], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in connection.execute(
        current_labels(label.c.episode_id.in_(selection_query(selection, connection.dialect.name)), about)
    ):
        values = given[row.episode_id, row.idx][row.name]
        if row.value not in values:
            values.append(row.value)
    names = sorted({name for found in given.values() for name in found})
    joined = {
        place: {name: _BETWEEN.join(values) for name, values in found.items()}
        for place, found in given.items()
    }
    return LabelColumns(tuple(names), joined)
