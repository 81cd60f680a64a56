"""Labels of episodes, turns and words of a reply, given by people and only ever added to; which episodes of a list one
reviewer has still to label, and how far reviewers agree.

Of the labels of one author under one name at one place the latest counts; the others are its history. A label that
is withdrawn gets a further row without a value, so that nothing is ever changed or lost."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, Subquery, and_, func, insert, not_, select

from core.analysis.metrics import Kappa, cohen_kappa, krippendorff_alpha
from core.errors import ConfigError, StoreError
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.filters.listing import ORDERS, count_capped
from storage.filters.vocabulary import current_labels, is_current
from storage.rows.engine import fetch_mappings, fetch_rows, reading, writing
from storage.rows.full_episodes import rows_among
from storage.rows.mapping import Rows
from storage.rows.schema import episode, label, same_turn, text, turn
from storage.rows.summaries import CappedCount, FacetValue, Order

#: The name of a label that is nothing but its note.
NOTE = "note"
#: The longest name or value, author and note, in characters.
LONGEST_WORD, LONGEST_AUTHOR, LONGEST_NOTE = 60, 60, 5000
_QUOTE_CUT = 200
#: Fields of a label that stand in columns of the same name.
_SHARED = ("name", "value", "note", "author", "at")


@dataclass(frozen=True, slots=True)
class Place:
    """What a label is about: an episode, one of its turns (from 0), or a `span` of characters, [start, end), of
    what was replied in that turn."""

    episode_id: str
    index: int | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """One label of one author, given at a time (Unix seconds). An empty value withdraws the one before."""

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

    def add(self, place: Place, name: str, value: str, *, author: str, note: str = "") -> Label:
        """Add a label. ConfigError for words that cannot be used, StoreError for a place that does not exist."""
        if not value.strip():
            raise ConfigError("A label needs a value, such as quality=good.")
        return self.add_all(place, [(name, value)], author=author, note=note)[0]

    def withdraw(self, place: Place, name: str, *, author: str, note: str = "") -> Label:
        """Withdraw this author's label of this name at this place. StoreError when nothing of the kind counts."""
        return self.add_all(place, [(name, "")], author=author, note=note)[0]

    def add_all(
        self, place: Place, pairs: Sequence[tuple[str, str]], *, author: str, note: str = ""
    ) -> tuple[Label, ...]:
        """Add several (name, value) pairs to one place, all or none of them; an empty value withdraws. ConfigError
        for words that cannot be used, StoreError for a place that does not exist or nothing to withdraw."""
        if not (author := " ".join(author.split())) or len(author) > LONGEST_AUTHOR:
            raise ConfigError(f"A label needs its author's name, of at most {LONGEST_AUTHOR} characters.")
        if len(note := note.strip()) > LONGEST_NOTE:
            raise ConfigError(f"The note has {len(note):,} characters: {LONGEST_NOTE:,} are the most.")
        at = self.now()
        given = tuple(
            Label(place, _word(name, "name"), _word(value, "value"), note, author, at)
            for name, value in pairs
        )
        if not all(one.name for one in given):
            raise ConfigError("A label needs a name, such as quality=good.")
        if gone := [one.name for one in given if not one.value]:
            mine = {
                one.name for one in self.of(place.episode_id) if (one.place, one.author) == (place, author)
            }
            if missing := [name for name in gone if name not in mine]:
                raise StoreError(f"{author} has no label '{missing[0]}' there that could be withdrawn.")
        with writing(self.engine) as connection:
            _check_place(connection, place)
            connection.execute(insert(label), [label_row(one) for one in given])
        return given

    def of(self, episode_id: str) -> tuple[Label, ...]:
        return current_of(self.history(episode_id))

    def history(self, episode_id: str) -> tuple[Label, ...]:
        """Every label ever given to an episode, oldest first, replaced and withdrawn ones included."""
        quote = func.substr(text.c.body, label.c.span_start + 1, label.c.span_end - label.c.span_start)
        spoken = and_(same_turn(text, label), text.c.kind == "reply", label.c.span_start.is_not(None))
        query = (
            select(label, func.substr(quote, 1, _QUOTE_CUT).label("quote"))
            .select_from(label.outerjoin(text, spoken))
            .where(label.c.episode_id == episode_id)
            .order_by(label.c.at, label.c.id)
        )
        return tuple(to_label(row) for row in fetch_mappings(self.engine, query))

    def in_use(self) -> tuple[NameInUse, ...]:
        """Every name that counts somewhere with its values, most frequent first."""
        counting = current_labels().subquery()
        columns = counting.c.name, counting.c.value
        counted = select(*columns, func.count()).group_by(*columns)
        spread = _episodes_by(counting, counting.c.name)
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

    def vocabulary(self) -> dict[str, list[str]]:
        """Every name, value and author ever used, each in order: what a line that asks for labels can offer."""
        used: dict[str, set[str]] = {"name": set(), "value": set(), "author": set()}
        for row in fetch_mappings(self.engine, select(*(label.c[column] for column in used)).distinct()):
            for column, word in row.items():
                used[column].add(word)
        return {column: sorted(words - {""}) for column, words in used.items()}

    def authors(self) -> tuple[FacetValue, ...]:
        """Who has labels that count, and on how many episodes; the busiest first."""
        counting = current_labels().subquery()
        rows = fetch_rows(self.engine, _episodes_by(counting, counting.c.author))
        found = [FacetValue(author, n) for author, n in rows]
        return tuple(sorted(found, key=lambda one: (-one.n, one.value)))


def _episodes_by(labels: Subquery, column: ColumnElement[str]) -> Select[str, int]:
    return select(column, func.count(labels.c.episode_id.distinct())).group_by(column)


def is_labelled(author: str | None = None) -> ColumnElement[bool]:
    """The condition on `episode` that a label of this author (None: of anybody) is on it, a turn or words of one."""
    wanted = [] if author is None else [label.c.author == author]
    return episode.c.id.in_(select(label.c.episode_id).where(*wanted, is_current()))


def current_of(history: Sequence[Label]) -> tuple[Label, ...]:
    last = {(one.place, one.name, one.author): one for one in history}
    return tuple(sorted((one for one in last.values() if one.value), key=lambda one: one.at))


def to_label(row: Rows) -> Label:
    """The label of a row; its quote when the row has one."""
    span = None if row["span_start"] is None else (row["span_start"], row["span_end"])
    return Label(
        place=Place(row["episode_id"], row["idx"], span),
        **{name: row[name] for name in _SHARED},
        quote=row.get("quote") or "",
    )


def labelled_places(
    connection: Connection, episode_ids: Sequence[str]
) -> Mapping[str, Mapping[int, int | None]]:
    """What can be labelled of these episodes: by episode the turns, each with the characters of its reply, None where
    there is no reply (it may have been removed). Unknown episodes are left out."""
    query = (
        select(episode.c.id, turn.c.idx, func.length(text.c.body).label("length"))
        .outerjoin(turn, turn.c.episode_id == episode.c.id)
        .outerjoin(text, same_turn(text) & (text.c.kind == "reply"))
    )
    found: dict[str, dict[int, int | None]] = {}
    for row in rows_among(connection, query, episode.c.id, episode_ids):
        turns = found.setdefault(row["id"], {})
        if row["idx"] is not None:
            turns[row["idx"]] = row["length"]
    return found


def label_row(given: Label) -> dict[str, Any]:
    start, end = given.place.span or (None, None)
    return {
        "episode_id": given.place.episode_id,
        "idx": given.place.index,
        "span_start": start,
        "span_end": end,
        **{name: getattr(given, name) for name in _SHARED},
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
    turns = labelled_places(connection, [place.episode_id]).get(place.episode_id)
    if turns is None:
        raise StoreError(f"The store holds no episode {place.episode_id}, so nothing was labelled.")
    if place.index is None:
        if place.span is not None:
            raise StoreError("Words can only be labelled in the reply of one turn: name the turn.")
        return
    if place.index not in turns:
        raise StoreError(
            f"Episode {place.episode_id} has no turn {place.index + 1}, so nothing was labelled."
        )
    if place.span is not None:
        start, end = place.span
        if not 0 <= start < end <= (turns[place.index] or 0):
            raise StoreError("The labelled words lie outside of the turn's reply.")


def find_span(reply: str, quote: str) -> tuple[int, int]:
    """Where the quoted words stand in a reply, as [start, end); line breaks and spaces may differ. ConfigError when
    they do not stand there, or more than once."""
    words = [re.escape(word) for word in quote.split()]
    found = list(re.finditer(r"\s+".join(words), reply)) if words else []
    if len(found) == 1:
        return found[0].span()
    if found:
        raise ConfigError(f"The reply contains these words {len(found)} times: quote a few more around them.")
    raise ConfigError("This turn's reply does not contain these words: copy them exactly.")


_EVERYTHING = EpisodeFilter()
#: How far a queue is counted: a reviewer who reads episode after episode wants to know how long it is.
COUNTED = 20_000
#: The value taken for a reviewer who reviewed an episode and did not give it a label that has one value only.
NOT_GIVEN = "not given"


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How many of a queue's episodes one reviewer has labelled, and which of them one stands at (from 1; None when
    the queue does not hold it)."""

    labelled: int
    total: CappedCount
    at: int | None

    @property
    def share(self) -> float:
        """Between 0 and 1; over a capped total at most 1."""
        return min(1.0, self.labelled / self.total.n) if self.total.n else 0.0


@dataclass(frozen=True, slots=True)
class Disagreement:
    place: Place
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Two reviewers on one name: `counts[i][j]` items that `a` gave the i-th value and `b` the j-th."""

    a: str
    b: str
    values: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    kappa: Kappa
    differing: tuple[Disagreement, ...]


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """All reviewers on one name, pairs with most items first. `alpha` (Krippendorff) is over `items` that two or
    more gave a value; None where that cannot be told. `ticked`: the name has one value only, so that leaving
    it off an episode one has reviewed counts as a value too."""

    name: str
    pairs: tuple[PairAgreement, ...]
    alpha: float | None
    items: int
    ticked: bool


@dataclass(frozen=True)
class Reviews:
    engine: Engine

    def progress(
        self,
        author: str,
        where: EpisodeFilter = _EVERYTHING,
        *,
        order: Order = "newest",
        episode_id: str | None = None,
    ) -> QueueProgress:
        """How far this reviewer is with a list of episodes, and where in it an episode stands. Three queries."""
        keyset, matching = ORDERS[order], conditions(where, self.engine.dialect.name)
        ids = select(episode.c.id).where(*matching)
        with reading(self.engine) as connection:
            total = count_capped(connection, ids, COUNTED)
            done = select(func.count()).select_from(ids.where(is_labelled(author=author)).subquery())
            own = select(keyset.key, episode.c.id).where(episode.c.id == episode_id, *matching)
            here = connection.execute(own).first() if episode_id else None
            at = None
            if here is not None:
                before = ids.where(keyset.beyond((here[0], here[1]), True))
                at = count_capped(connection, before, COUNTED).n + 1
            return QueueProgress(int(connection.execute(done).scalar_one()), total, at)

    def next(
        self,
        author: str,
        where: EpisodeFilter = _EVERYTHING,
        *,
        order: Order = "newest",
        after: str | None = None,
        backwards: bool = False,
        unlabelled: bool = True,
    ) -> str | None:
        """The episode after (or before) one in a list that this reviewer has not labelled, or simply the next one;
        without `after`, or when the list does not hold it, the first. None at the end."""
        keyset, matching = ORDERS[order], conditions(where, self.engine.dialect.name)
        if unlabelled:
            matching = [*matching, not_(is_labelled(author=author))]
        query = select(episode.c.id).where(*matching)
        with reading(self.engine) as connection:
            here = connection.execute(select(keyset.key, episode.c.id).where(episode.c.id == after)).first()
            if here is not None:
                query = query.where(keyset.beyond((here[0], here[1]), backwards))
            return connection.execute(keyset.ordered(query, backwards).limit(1)).scalar()

    def agreement(self, name: str, where: EpisodeFilter = _EVERYTHING) -> ReviewerAgreement:
        """How far the reviewers of a list agree on a name, over whole episodes, turns and spans alike."""
        ids = select(episode.c.id).where(*conditions(where, self.engine.dialect.name))
        current = current_labels(label.c.episode_id.in_(ids))
        labels = [to_label(row) for row in fetch_mappings(self.engine, current)]
        named = [one for one in labels if one.name == name]
        ticked = len({one.value for one in named}) == 1
        given: dict[Place, dict[str, str]] = defaultdict(dict)
        if ticked:
            for one in labels:  # to have labelled an episode at all is to have reviewed it
                given[Place(one.place.episode_id)][one.author] = NOT_GIVEN
        for one in named:
            place = Place(one.place.episode_id) if ticked else one.place
            given[place][one.author] = one.value
        return _agreement(name, given, ticked)


def _agreement(name: str, given: dict[Place, dict[str, str]], ticked: bool) -> ReviewerAgreement:
    values = tuple(sorted({value for by in given.values() for value in by.values()}))
    authors = sorted({author for by in given.values() for author in by})
    pairs = [_pair(a, b, values, given) for a, b in combinations(authors, 2)]
    shared = [tuple(by.values()) for by in given.values() if len(by) > 1]
    return ReviewerAgreement(
        name=name,
        pairs=tuple(sorted((one for one in pairs if one.kappa.n), key=lambda one: -one.kappa.n)),
        alpha=krippendorff_alpha(shared),
        items=len(shared),
        ticked=ticked,
    )


def _pair(a: str, b: str, values: Sequence[str], given: dict[Place, dict[str, str]]) -> PairAgreement:
    both = [(place, by[a], by[b]) for place, by in given.items() if a in by and b in by]
    counts = [[0] * len(values) for _ in values]
    for _, mine, yours in both:
        counts[values.index(mine)][values.index(yours)] += 1
    return PairAgreement(
        a=a,
        b=b,
        values=tuple(values),
        counts=tuple(map(tuple, counts)),
        kappa=cohen_kappa(counts),
        differing=tuple(Disagreement(place, x, y) for place, x, y in both if x != y),
    )
