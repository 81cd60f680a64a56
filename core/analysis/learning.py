"""When a coordinator learned what: the mean probability of a choice at the same turns, generation after generation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from core.analysis.metrics import Mean, student_reach
from core.episode import Role

Array = NDArray[np.float64]
#: A change lasts from a generation on when at most this part of the generations from there on cannot be told from the
#: first of all.
UNTOLD = 0.05
#: Whether a probability is above (1) or below (-1) that of the first generation, or neither can be told (0).
Side = Literal[-1, 0, 1]


class AnswerState(StrEnum):
    """What there is to judge before a turn."""

    NONE = "none"
    UNJUDGED = "unjudged"  # no Verifier has spoken since the latest answer
    JUDGED = "judged"  # a Verifier has, and the episode went on


def answer_states(turns: Iterable[tuple[Role, bool]]) -> list[AnswerState]:
    """What there was to judge before each turn of an episode, given its (role, whether it left an answer of its own)
    in order. A Verifier whose verdict could not be read has judged: the episode goes on as after REVISE."""
    now, before = AnswerState.NONE, []
    for role, answered in turns:
        before.append(now)
        if role is Role.WORKER and answered:
            now = AnswerState.UNJUDGED
        elif role is Role.VERIFIER and now is AnswerState.UNJUDGED:
            now = AnswerState.JUDGED
    return before


@dataclass(frozen=True, slots=True)
class Spell:
    """Generations in a row, `first` to `last`, that lie on one `side` of the first generation of all."""

    side: Side
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """The mean probability of a choice over `turns` turns of `tasks` tasks, for each of the `generations` (their
    numbers, ascending), with an interval that draws tasks anew. `changes` are the means of the differences from the
    first generation at the same turns, [0] of which is 0."""

    generations: tuple[int, ...]
    means: tuple[Mean, ...]
    changes: tuple[Mean, ...]
    turns: int
    tasks: int

    @cached_property
    def spells(self) -> tuple[Spell, ...]:
        """All spells above or below the first generation, in order: an interval of the change that leaves out 0."""
        found, at = [], 0
        for side, group in groupby(self._sides):
            n = len(list(group))
            if side:
                found.append(Spell(side, self.generations[at], self.generations[at + n - 1]))
            at += n
        return tuple(found)

    @property
    def lasting(self) -> Spell | None:
        """What was learned, and since when: from the first generation on one side of the beginning such that the last
        is on it too, none between is on the other, and at least 95 % of them (1 - UNTOLD) are on it. None: the last
        generation cannot be told from the first."""
        sides = self._sides
        side, since = sides[-1], None
        held = 0
        for at in range(len(sides) - 1, -1, -1):
            if side == 0 or sides[at] == -side:
                break
            held += sides[at] == side
            if sides[at] == side and held >= (1 - UNTOLD) * (len(sides) - at):
                since = at
        return None if since is None else Spell(side, self.generations[since], self.generations[-1])

    @property
    def passing(self) -> Spell | None:
        """The longest spell that did not last, on the other side than what did where something did, the latest of
        equals. None: there is none."""
        side = self.lasting.side if self.lasting else 0
        passed = [one for one in self.spells if one.side != side]
        return max(passed, key=lambda one: (self._length(one), one.first), default=None)

    def mostly_since(self) -> int | None:
        """The first generation from which to the end the interval lies above one half; None: there is none."""
        since = None
        for generation, mean in zip(self.generations, self.means, strict=True):
            if not (mean.has_interval and mean.low > 0.5):
                since = None
            elif since is None:
                since = generation
        return since

    def extreme(self, spell: Spell) -> tuple[int, Mean]:
        """The generation within a spell that is farthest from the first of all, and its mean."""
        within = [
            pair
            for pair in zip(self.generations, self.means, strict=True)
            if spell.first <= pair[0] <= spell.last
        ]
        return max(within, key=lambda pair: spell.side * pair[1].mean)

    @cached_property
    def _sides(self) -> tuple[Side, ...]:
        return tuple(_side(change) for change in self.changes)

    def _length(self, spell: Spell) -> int:
        return sum(spell.first <= one <= spell.last for one in self.generations)


def learning_curve(
    generations: Sequence[int], values: Array, tasks: NDArray[np.int64]
) -> LearningCurve | None:
    """The curve of probabilities `values` [turns, generations] at turns of these `tasks` [turns]; None without any."""
    if not len(values):
        return None
    return LearningCurve(
        tuple(generations),
        tuple(mean.within(0.0, 1.0) for mean in clustered_means(values, tasks)),
        tuple(mean.within(-1.0, 1.0) for mean in clustered_means(values - values[:, :1], tasks)),
        len(values),
        len(np.unique(tasks)),
    )


def clustered_means(values: Array, clusters: NDArray[np.int64]) -> list[Mean]:
    """The mean of each column of `values` [n, columns] over rows that come in `clusters` [n], each row counting once.

    The interval is Student's, with the standard error of a ratio whose clusters are drawn anew; one cluster alone has
    none."""
    _, place = np.unique(clusters, return_inverse=True)
    n, count = len(values), int(place.max()) + 1
    means = values.mean(axis=0)
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, place, values - means)
    if count < 2:
        return [Mean(float(mean), math.nan, math.nan) for mean in means]
    halves = student_reach(count - 1) * np.sqrt((sums**2).sum(axis=0) * count / (count - 1)) / n
    halves[halves < 1e-12] = 0.0  # what rounding leaves of values that are all the same
    return [
        Mean(float(mean), float(mean - half), float(mean + half))
        for mean, half in zip(means, halves, strict=True)
    ]


def _side(change: Mean) -> Side:
    if not change.has_interval or (change.low <= 0 <= change.high):
        return 0
    return 1 if change.mean > 0 else -1
