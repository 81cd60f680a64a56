"""An outcome table as arrays over tasks and models: who is right, who is ahead and whether that is luck, what a second
model says beside a first, and which questions are a case of something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.analysis.metrics import ClusteredShare, difference_over_tasks, holm, share_over_tasks, sign_flip_p
from core.outcomes.table import OutcomeTable, load_table
from core.tasks.choices import options_of
from core.tasks.sets import load_outcome_tasks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: The splits of a table, in the order of their numbers in `Outcomes.split`.
SPLITS = ("evolve", "validation", "test")
#: A model that has answered less than this share of what another has cannot be the best single one: few tasks flatter.
SHARED = 0.5


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of `n` replies with its 95 % interval; `k` are right, None where they are graded by parts. `value` is
    None of nothing."""

    value: float | None
    ci95: tuple[float, float]
    n: int
    k: int | None = None


@dataclass(frozen=True, eq=False)
class Outcomes:
    """A table as arrays [tasks, models].

    `right` of `graded` samples are right; `rows` is how many samples there are, `read` and `failed` how many have an
    answer and an error. Of sample 0: `group` tells the answers to a task apart (-1 without one), `first` says whether
    it is right and `marked` what the table itself says of that (-1: unknown). `toll`: means over samples of tokens (in
    and out), cost (USD) and seconds, NaN where unknown. `halves`: (right, graded) of the samples of even and of odd
    number; `share` is what counts as accuracy: the share of right samples, or where a table grades by parts
    (`by_parts`) the mean score, NaN where there is none. By task: `domain`, an index into `domains`, `split`, one into
    SPLITS, and `options`, how many it lists (0: none). `comparable`: whether answers can be compared. `samples`: where
    there are several, `share` and `group` of each."""

    models: tuple[str, ...]
    domains: tuple[str, ...]
    domain: Ints
    split: Ints
    options: Ints
    right: Ints
    graded: Ints
    rows: Ints
    read: Ints
    failed: Ints
    group: Ints
    first: Ints
    marked: Ints
    toll: Mapping[str, Floats]
    halves: tuple[tuple[Ints, Ints], tuple[Ints, Ints]]
    share: Floats
    by_parts: bool
    comparable: bool
    samples: tuple[tuple[Floats, Ints], ...] = ()

    def of(self, tasks: str) -> Flags:
        """The tasks of a split, or `all` of them [tasks]."""
        return np.ones(len(self.split), bool) if tasks == "all" else self.split == SPLITS.index(tasks)

    @cached_property
    def contenders(self) -> Ints:
        """The models that can be the best single one, as indexes: those with at least SHARED of the most answers."""
        n = np.isfinite(self.share).sum(axis=0)
        return np.flatnonzero(n >= SHARED * n.max())

    def accuracy(self, tasks: Flags, model: int) -> Rate:
        """A model's accuracy on those of the tasks that it answered; samples of one task fall together."""
        if not self.by_parts:
            found = ClusteredShare.of(self.right[tasks, model], self.graded[tasks, model])
            return Rate(found.value, found.ci95, found.n, found.k)
        values, counts = _counted(self.share[tasks, model])
        n = sum(counts)
        mean, low, high = share_over_tasks(values, counts, n + 1)
        return Rate(mean if n else None, (low, high), n)

    def spent(self, name: str, tasks: Flags) -> Floats:
        """The mean of a toll over those tasks by model, NaN where none is known [models]."""
        values = self.toll[name][tasks]
        known = np.isfinite(values)
        total = np.where(known, values, 0.0).sum(axis=0)
        n = known.sum(axis=0)
        found: Floats = np.where(n > 0, total / np.maximum(n, 1), np.nan)
        return found


def outcomes(table: OutcomeTable, fold: int = 0) -> Outcomes:
    """A table's outcomes, its tasks in the splits of a fold; they are remembered by its files' digest. TaskError as of
    `load_outcome_tasks`."""
    return _outcomes(table.card.name, table.card.digest, fold)


@lru_cache(maxsize=8)
def _outcomes(name: str, _: str, fold: int) -> Outcomes:
    table = load_table(name)
    tasks = load_outcome_tasks(f"outcomes:{name}@{fold}")
    domains = tuple(sorted({task.family for task in tasks}))
    numbers, shape = table.numbers, table.first.shape
    place = numbers["task"].astype(np.int64) * shape[1] + numbers["model"]

    def count(which: NDArray[Any]) -> Ints:
        return np.bincount(place[which], minlength=shape[0] * shape[1]).reshape(shape)

    right, known, odd = numbers["right"] == 1, numbers["right"] >= 0, numbers["sample"] % 2 == 1
    toll = {column: table.over_samples(column) for column in ("cost", "seconds")}
    toll["tokens"] = table.over_samples("tokens_in") + table.over_samples("tokens_out")
    score = numbers["score"]
    by_parts = bool(((score > 0) & (score < 1)).any())
    return Outcomes(
        models=table.card.models,
        domains=domains,
        domain=np.array([domains.index(task.family) for task in tasks], np.int64),
        split=np.array([SPLITS.index(task.split) for task in tasks], np.int64),
        options=np.array(
            [len(options_of(task.question)) if task.grader == "choice" else 0 for task in tasks], np.int64
        ),
        right=count(right),
        graded=count(known),
        rows=table.count,
        read=count(numbers["group"] >= 0),
        failed=count(table.failed),
        group=table.of_first("group").astype(np.int64),
        first=table.of_first("right").astype(np.int64),
        marked=table.of_first("marked").astype(np.int64),
        toll=toll,
        halves=((count(right & ~odd), count(known & ~odd)), (count(right & odd), count(known & odd))),
        share=table.over_samples("score" if by_parts else "right"),
        by_parts=by_parts,
        comparable=table.card.answers,
        samples=tuple(table.each_sample("score" if by_parts else "right")),
    )


# Who is best, and is it luck?


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference of accuracies, `b` minus `a`, over the `n` tasks of both, with its 95 % interval, its p, and the
    accuracies there."""

    difference: float
    ci95: tuple[float, float]
    n: int
    p: float
    a: float
    b: float


@dataclass(frozen=True, slots=True)
class Lead:
    """How far the best model of a domain (None: of all) is ahead of the next over the tasks that both answered. `best`
    and `rival` are indexes of models; `holds`: more than luck, also when all domains are allowed for (Holm)."""

    domain: str | None
    best: int
    rival: int
    paired: Paired
    holds: bool = False


def leads(of: Outcomes, tasks: Flags) -> list[Lead]:
    """The lead over all these tasks, then of each domain that two models have answered. Holm's correction is over the
    domains."""
    all_tasks = _lead(of, tasks, None)
    found = [lead for i, name in enumerate(of.domains) if (lead := _lead(of, tasks & (of.domain == i), name))]
    held = holm([one.paired.p for one in found])
    corrected = [
        replace(one, holds=holds and one.paired.difference > 0)
        for one, holds in zip(found, held, strict=True)
    ]
    first = [
        replace(one, holds=one.paired.p < 0.05 and one.paired.difference > 0) for one in [all_tasks] if one
    ]
    return [*first, *corrected]


def _lead(of: Outcomes, tasks: Flags, name: str | None) -> Lead | None:
    answered = np.isfinite(of.share[tasks])
    if answered.any(axis=0).sum() < 2:
        return None
    total = np.where(answered, of.share[tasks], 0.0).sum(axis=0)
    shares = np.where(answered.any(axis=0), total / np.maximum(answered.sum(axis=0), 1), -1.0)
    best, rival = np.argsort(-shares, kind="stable")[:2].tolist()
    return Lead(name, best, rival, paired(of, tasks, rival, best))


def paired(of: Outcomes, tasks: Flags, a: int, b: int) -> Paired:
    """Model `b` minus model `a` over the tasks that both answered, as `compared` does it."""
    return compared(of.share[tasks, a], of.share[tasks, b], of.by_parts, f"{of.models[a]} {of.models[b]}")


def compared(a: Floats, b: Floats, by_parts: bool, key: str) -> Paired:
    """`b` minus `a`, the shares of the same tasks (NaN: none), over the tasks of both. Where a task is right or wrong p
    is McNemar's, exact; of several samples that of sign flips by task, drawn by the key, of grades `by_parts`
    Student's."""
    both = np.isfinite(a) & np.isfinite(b)
    differences = (b - a)[both].round(9)
    values, counts = _counted(differences)
    difference, low, high = difference_over_tasks(values, counts)
    p = _student_p(differences) if by_parts else sign_flip_p(values, counts, key=key)
    means = (float(own[both].mean()) if counts else 0.0 for own in (a, b))
    return Paired(difference, (low, high), len(differences), p, *means)


def _counted(values: Floats) -> tuple[list[float], list[int]]:
    """The finite ones of these values, least first, and how often each occurs."""
    found, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    return found.tolist(), counts.tolist()


def _student_p(differences: Floats) -> float:
    """The two-sided p of Student's test that these differences are 0 in the mean; 1 where they tell nothing."""
    from scipy.special import stdtr  # here, because importing scipy takes longer than all the rest

    n = len(differences)
    error = differences.std(ddof=1) / np.sqrt(n) if n > 1 else 0.0
    return float(2 * stdtr(n - 1, -abs(differences.mean()) / error)) if error else 1.0


# Two models


@dataclass(frozen=True, slots=True)
class Pair:
    """What asking model `b` beside model `a` shows, over the `n` tasks whose first samples both have a grade: `same`
    answer (two that cannot be read are not the same), and how many are right of these; where they differ, how many `a`
    has right, `b`, and neither. `alike`: of the tasks that `both_wrong`, those with the same wrong answer."""

    a: int
    b: int
    n: int
    same: int
    same_right: int
    a_right: int
    b_right: int
    neither: int
    both_wrong: int
    alike: int

    @property
    def differ(self) -> int:
        return self.n - self.same


def pair(of: Outcomes, tasks: Flags, a: int, b: int) -> Pair:
    """Two models side by side."""
    there = tasks & (of.first[:, a] >= 0) & (of.first[:, b] >= 0)
    one, other = of.first[there, a] == 1, of.first[there, b] == 1
    same = same_answer(of, a, b)[there]
    wrong = ~one & ~other
    counted = (there, same, same & one, ~same & one, ~same & other, ~same & wrong, wrong, same & wrong)
    n, *rest = (int(which.sum()) for which in counted)
    return Pair(a, b, n, *rest)


def same_answer(of: Outcomes, a: int, b: int) -> Flags:
    """Where two models' first answers are the same [tasks]."""
    found: Flags = (of.group[:, a] >= 0) & (of.group[:, a] == of.group[:, b])
    return found


def knowers(of: Outcomes, tasks: Flags) -> Ints:
    """How many models have each of these tasks right in their first sample [tasks]; -1 elsewhere, and where fewer than
    two grades are known, as what one model alone was asked tells nothing of the others."""
    n = (of.first == 1).sum(axis=1)
    found: Ints = np.where(tasks & ((of.first >= 0).sum(axis=1) > 1), n, -1)
    return found


def guessed_alone(of: Outcomes, tasks: Flags) -> tuple[Floats, Floats]:
    """How many of these tasks each model would have right alone by guessing [models], expected from the wrong answers
    to those that nobody has right and whose options are known.

    First, if who does not know falls on the right option as on any other: an answer that one model alone gives is then
    as likely to be the right one as each of the options that nobody chose. Guesses fall together there as wrong answers
    do. Second, if all guess evenly, each for itself: a wrong answer among K options then stands for 1 / (K - 1) right
    ones. Both are right in the mean under what they suppose."""
    there = (knowers(of, tasks) == 0) & (of.options > 1)
    group, options = of.group[there], of.options[there][:, None]
    given = group >= 0
    alike = ((group[:, :, None] == group[:, None, :]) & given[:, None, :]).sum(axis=2)
    distinct = np.where(given, 1 / np.maximum(alike, 1), 0.0).sum(axis=1, keepdims=True)
    unchosen = np.maximum(options - distinct.round(), 1)
    falling: Floats = (given & (alike == 1)) / unchosen
    even: Floats = given / (options - 1)
    return falling.sum(axis=0), even.sum(axis=0)


# Lists of questions

#: What a list of questions may hold: of all models, of one, of one beside another.
CASES = ("nobody", "one", "some", "everybody")
CASES_OF_ONE = ("right", "wrong", "only", "unread", "failed", "marks", "missing")
CASES_OF_TWO = ("same", "differ", "rescues", "alike")


def cases(of: Outcomes, tasks: Flags, case: str, model: int | None = None, other: int | None = None) -> Flags:
    """Which of these tasks are a case [tasks], by first samples where it is about answers.

    Of all models: right are `nobody`, `one` alone, `some` but not all, `everybody`. Of a model: it is `right`, `wrong`,
    `only` it is right, its reply could not be read or `failed`, its grade and the table's `marks` differ, it has no row
    (`missing`). Of two: they answer the `same`, they `differ`, the other one is right where it is not (`rescues`), both
    are wrong and answer `alike`. All tasks for what is none of these."""
    known = knowers(of, tasks)
    graded = (of.first >= 0).sum(axis=1)
    of_all: dict[str, Flags] = {
        "nobody": known == 0,
        "one": known == 1,
        "some": (known > 0) & (known < graded),
        "everybody": (known > 0) & (known == graded),
    }
    if case in of_all:
        return np.asarray(tasks & of_all[case])
    if model is None:
        return tasks
    first, mark = of.first[:, model], of.marked[:, model]
    of_one: dict[str, Flags] = {
        "right": first == 1,
        "wrong": first == 0,
        "only": (first == 1) & (known == 1),
        "unread": (of.rows[:, model] > 0) & (of.group[:, model] < 0),
        "failed": of.failed[:, model] > 0,
        "marks": (first >= 0) & (mark >= 0) & (first != mark),
        "missing": of.rows[:, model] == 0,
    }
    if case in of_one:
        return np.asarray(tasks & of_one[case])
    if other is None:
        return tasks
    same, both = same_answer(of, model, other), (first >= 0) & (of.first[:, other] >= 0)
    of_two: dict[str, Flags] = {
        "same": both & same,
        "differ": both & ~same,
        "rescues": (first == 0) & (of.first[:, other] == 1),
        "alike": both & same & (first == 0),
    }
    return np.asarray(tasks & of_two[case]) if case in of_two else tasks
