"""Reviewing: which episodes of a list one reviewer has still to label, and how far reviewers agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from sqlalchemy import Engine, func, not_, select

from core.analysis.metrics import Kappa, cohen_kappa, krippendorff_alpha
from storage.filters.current_labels import current_labels
from storage.filters.episode_filter import EpisodeFilter, conditions
from storage.filters.listing import ORDERS
from storage.rows import paging
from storage.rows.engine import fetch_mappings, reading
from storage.rows.schema import episode, label
from storage.rows.summaries import CappedCount, Order
from storage.shelves.labels import Place, is_labelled, to_label

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
    """One place where two reviewers gave different values."""

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
    """Queues and agreement (`store.reviews`)."""

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
            total = paging.count_capped(connection, ids, COUNTED)
            done = select(func.count()).select_from(ids.where(is_labelled(author=author)).subquery())
            own = select(keyset.key, episode.c.id).where(episode.c.id == episode_id, *matching)
            here = connection.execute(own).first() if episode_id else None
            at = None
            if here is not None:
                before = ids.where(keyset.beyond((here[0], here[1]), True))
                at = paging.count_capped(connection, before, COUNTED).n + 1
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
