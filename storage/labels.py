"""What people say about episodes, turns and words of a reply: labels that are only ever added to.

Of the labels of one author under one name at one place the latest counts; the others are its history. A label that
is withdrawn gets a further row without a value, so that nothing is ever changed or lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, and_, exists, func, insert, or_, select

from core.errors import ConfigError, StoreError
from storage.engine import reading, writing
from storage.lines import LabelLine
from storage.mapping import Rows
from storage.schema import episode, label, text, turn
from storage.summaries import FacetValue

#: The name of a label that is nothing but its note.
NOTE = "note"
#: The longest name or value, author and note, in characters.
LONGEST_WORD, LONGEST_AUTHOR, LONGEST_NOTE = 60, 60, 5000
_QUOTE_CUT = 200


@dataclass(frozen=True, slots=True)
class Place:
    """What a label is about: an episode, one of its turns (from 0), or a `span` of characters, [start, end), of
    what was replied in that turn."""

    episode_id: str
    index: int | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """One thing that one author said at a time (Unix seconds). An empty value withdraws what was said before."""

    place: Place
    name: str
    value: str
    note: str
    author: str
    at: float
    quote: str = ""  # the words of the span, cut; only where one episode's labels are read


@dataclass(frozen=True, slots=True)
class NameInUse:
    """A name with the values that count now, and on how many episodes it is."""

    name: str
    values: tuple[FacetValue, ...]  # labels by value, most frequent first
    episodes: int


@dataclass(frozen=True)
class Labels:
    """The labels of a store (`store.labels`)."""

    engine: Engine
    now: Callable[[], float]

    def say(self, place: Place, name: str, value: str, *, author: str, note: str = "") -> Label:
        """Add a label. ConfigError for words that cannot be used, StoreError for a place that there is not."""
        if not value.strip():
            raise ConfigError("A label needs a value, such as quality=good.")
        return self.put(place, [(name, value)], author=author, note=note)[0]

    def withdraw(self, place: Place, name: str, *, author: str, note: str = "") -> Label:
        """Take back what this author said under this name at this place; it stays in the history. StoreError when
        nothing of the kind counts."""
        return self.put(place, [(name, "")], author=author, note=note)[0]

    def put(
        self, place: Place, pairs: Sequence[tuple[str, str]], *, author: str, note: str = ""
    ) -> tuple[Label, ...]:
        """Say several (name, value) pairs about one place, all or none of them; an empty value withdraws."""
        if not (author := " ".join(author.split())) or len(author) > LONGEST_AUTHOR:
            raise ConfigError(f"A label needs its author's name, of at most {LONGEST_AUTHOR} characters.")
        if len(note := note.strip()) > LONGEST_NOTE:
            raise ConfigError(f"The note has {len(note):,} characters: {LONGEST_NOTE:,} are the most.")
        at = self.now()
        said = tuple(
            Label(place, _word(name, "name"), _word(value, "value"), note, author, at)
            for name, value in pairs
        )
        if not all(one.name for one in said):
            raise ConfigError("A label needs a name, such as quality=good.")
        if gone := [one.name for one in said if not one.value]:
            mine = {
                one.name for one in self.of(place.episode_id) if (one.place, one.author) == (place, author)
            }
            if missing := [name for name in gone if name not in mine]:
                raise StoreError(f"{author} has no label '{missing[0]}' there that could be withdrawn.")
        with writing(self.engine) as connection:
            _check_place(connection, place)
            connection.execute(insert(label), [_row(one) for one in said])
        return said

    def of(self, episode_id: str) -> tuple[Label, ...]:
        """What counts now about an episode, its turns and their words, in the order it was said."""
        return counting(self.history(episode_id))

    def history(self, episode_id: str) -> tuple[Label, ...]:
        """Everything ever said about an episode, oldest first, what was replaced and withdrawn included."""
        quote = func.substr(text.c.body, label.c.span_start + 1, label.c.span_end - label.c.span_start)
        spoken = and_(
            text.c.episode_id == label.c.episode_id,
            text.c.idx == label.c.idx,
            text.c.kind == "reply",
            label.c.span_start.is_not(None),
        )
        query = (
            select(label, func.substr(quote, 1, _QUOTE_CUT).label("quote"))
            .select_from(label.outerjoin(text, spoken))
            .where(label.c.episode_id == episode_id)
            .order_by(label.c.at, label.c.id)
        )
        with reading(self.engine) as connection:
            return tuple(to_label(row) for row in connection.execute(query).mappings())

    def in_use(self) -> tuple[NameInUse, ...]:
        """Every name that counts somewhere with its values, most frequent first."""
        counting = latest().subquery()
        columns = counting.c.name, counting.c.value
        counted = select(*columns, func.count()).group_by(*columns)
        spread = select(counting.c.name, func.count(counting.c.episode_id.distinct())).group_by(
            counting.c.name
        )
        values: dict[str, list[FacetValue]] = defaultdict(list)
        with reading(self.engine) as connection:
            for name, value, n in connection.execute(counted):
                values[name].append(FacetValue(value, n))
            episodes: dict[str, int] = {name: n for name, n in connection.execute(spread)}  # noqa: C416
        named = [
            NameInUse(name, tuple(sorted(found, key=lambda one: (-one.n, one.value))), episodes[name])
            for name, found in values.items()
        ]
        return tuple(sorted(named, key=lambda one: (-one.episodes, one.name)))

    def spoken(self) -> dict[str, list[str]]:
        """Every name, value and author ever used, each in order: what a line that asks for labels can offer."""
        used: dict[str, set[str]] = {"name": set(), "value": set(), "author": set()}
        with reading(self.engine) as connection:
            for row in connection.execute(select(label.c.name, label.c.value, label.c.author).distinct()):
                for column, word in row._mapping.items():
                    used[column].add(word)
        return {column: sorted(words - {""}) for column, words in used.items()}

    def authors(self) -> tuple[FacetValue, ...]:
        """Who has labels that count, and on how many episodes; the busiest first."""
        counting = latest().subquery()
        query = select(counting.c.author, func.count(counting.c.episode_id.distinct())).group_by(
            counting.c.author
        )
        with reading(self.engine) as connection:
            found = [FacetValue(author, n) for author, n in connection.execute(query)]
        return tuple(sorted(found, key=lambda one: (-one.n, one.value)))


def labelled(
    name: str | None = None, value: str | None = None, author: str | None = None
) -> ColumnElement[bool]:
    """The condition on `episode` that such a label counts on it, on one of its turns or on words of one. None means
    any name, value or author."""
    wanted = [
        column == given
        for column, given in ((label.c.name, name), (label.c.value, value), (label.c.author, author))
        if given is not None
    ]
    return episode.c.id.in_(select(label.c.episode_id).where(*wanted, counts()))


def counts() -> ColumnElement[bool]:
    """The condition on `label` that a row counts: it withdraws nothing, and no later one replaces it."""
    later = label.alias("later")
    same = ("episode_id", "idx", "span_start", "span_end", "name", "author")
    replaced = exists(
        select(later.c.id).where(
            *(later.c[one].is_not_distinct_from(label.c[one]) for one in same),
            or_(later.c.at > label.c.at, and_(later.c.at == label.c.at, later.c.id > label.c.id)),
        )
    )
    return and_(label.c.value != "", ~replaced)


def counting(history: Sequence[Label]) -> tuple[Label, ...]:
    """What counts of a history: of each author's labels under one name at one place the last, unless that
    withdraws it; in the order it was said."""
    last = {(one.place, one.name, one.author): one for one in history}
    return tuple(sorted((one for one in last.values() if one.value), key=lambda one: one.at))


def latest(*where: ColumnElement[bool]) -> Select[Any]:
    """The rows that count among those which `where` leaves: conditions on episode, name and author."""
    order = func.row_number().over(
        partition_by=[
            label.c.episode_id,
            label.c.idx,
            label.c.span_start,
            label.c.span_end,
            label.c.name,
            label.c.author,
        ],
        order_by=[label.c.at.desc(), label.c.id.desc()],
    )
    ranked = select(label, order.label("place")).where(*where).subquery()
    return (
        select(ranked)
        .where(ranked.c.place == 1, ranked.c.value != "")
        .order_by(ranked.c.episode_id, ranked.c.at, ranked.c.id)
    )


def to_label(row: Rows) -> Label:
    """The label of a row; its quote when the row has one."""
    span = None if row["span_start"] is None else (row["span_start"], row["span_end"])
    return Label(
        place=Place(row["episode_id"], row["idx"], span),
        name=row["name"],
        value=row["value"],
        note=row["note"],
        author=row["author"],
        at=row["at"],
        quote=row.get("quote") or "",
    )


def lines_of_labels(connection: Connection, episode_ids: Sequence[str]) -> Mapping[str, list[LabelLine]]:
    """Every row about these episodes as lines of an interchange file, in the order it was said."""
    found: dict[str, list[LabelLine]] = defaultdict(list)
    query = select(label).where(label.c.episode_id.in_(episode_ids)).order_by(label.c.at, label.c.id)
    for row in connection.execute(query).mappings():
        fields = {name: row[name] for name in ("span_start", "span_end", "name", "value", "note", "author")}
        found[row["episode_id"]].append(
            LabelLine(episode=row["episode_id"], turn=row["idx"], at=row["at"], **fields)
        )
    return found


def insert_line(connection: Connection, line: LabelLine) -> None:
    """The row of a line; its episode must be there."""
    span = None if line.span_start is None or line.span_end is None else (line.span_start, line.span_end)
    place = Place(line.episode, line.turn, span)
    said = Label(place, line.name, line.value, line.note, line.author, line.at)
    connection.execute(insert(label), _row(said))


def _row(said: Label) -> dict[str, Any]:
    start, end = said.place.span or (None, None)
    return {
        "episode_id": said.place.episode_id,
        "idx": said.place.index,
        "span_start": start,
        "span_end": end,
        "name": said.name,
        "value": said.value,
        "note": said.note,
        "author": said.author,
        "at": said.at,
    }


def _word(given: str, what: str) -> str:
    """A name or value on one line; ConfigError when it is too long or would break `name=value`."""
    word = " ".join(given.split())
    if len(word) > LONGEST_WORD or "=" in word or not word.isprintable():
        raise ConfigError(
            f"A label's {what} is one line of at most {LONGEST_WORD} characters without an equals sign."
        )
    return word


def _check_place(connection: Connection, place: Place) -> None:
    """StoreError, one sentence, for an episode, a turn or words that the store does not have."""
    known = connection.execute(select(episode.c.id).where(episode.c.id == place.episode_id)).first()
    if known is None:
        raise StoreError(f"The store holds no episode {place.episode_id}, so nothing was labelled.")
    if place.index is None:
        if place.span is not None:
            raise StoreError("Words can only be labelled in the reply of one turn: name the turn.")
        return
    here = and_(turn.c.episode_id == place.episode_id, turn.c.idx == place.index)
    if connection.execute(select(turn.c.idx).where(here)).first() is None:
        raise StoreError(
            f"Episode {place.episode_id} has no turn {place.index + 1}, so nothing was labelled."
        )
    if place.span is not None:
        reply = select(func.length(text.c.body)).where(
            text.c.episode_id == place.episode_id, text.c.idx == place.index, text.c.kind == "reply"
        )
        start, end = place.span
        if not 0 <= start < end <= (connection.execute(reply).scalar() or 0):
            raise StoreError("The labelled words lie outside of the turn's reply.")
