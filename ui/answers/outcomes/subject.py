"""What is asked about an outcome table: which one, which way it is split, and which of its tasks; and the addresses of
its page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.analysis.metrics import ClusteredShare
from core.errors import ConfigError
from core.outcomes.matrix import SPLITS, Flags, Outcomes, Rate, outcomes
from core.outcomes.table import OutcomeTable
from core.tasks.sets import FOLDS
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.answers.asked import Asked, Side
from ui.answers.blocks import Address, Choice, Estimate
from ui.presentation.comparison import p_words
from ui.presentation.theme import percent, signed_points

PAGE = "outcomes"
#: Which tasks are counted -> its words.
ON: dict[str, str] = {"all": "All questions", **{name: f"The {name} split" for name in SPLITS}}
#: What counts in a table that grades by parts.
BY_PARTS = (
    "This table grades by parts: accuracy is the mean score, 0 to 1, and a question is right where it is 1."
)
#: What the address of a list of questions, or of one of them, says beside the table.
_OF_LISTS = ("domain", "model", "other", "case", "at", "task", "sample")


@dataclass(frozen=True, eq=False, slots=True)
class Viewed:
    """A table, the fold (0 to 4) that splits it, and which tasks are counted (a split, or `all`)."""

    table: OutcomeTable
    fold: int
    on: str


def asked_of_table(store: Store, table: OutcomeTable, fold: int = 0, on: str = "all", **more: Any) -> Asked:
    """A table, asked about by itself; `store` has the policies that ran on it. `more`: further fields of Asked.
    ConfigError for a fold or split that there is not."""
    if fold not in range(FOLDS):
        raise ConfigError(f"There is no fold {fold}: choose one of 0 to {FOLDS - 1}.")
    if on not in ON:
        raise ConfigError(f"There is no split '{on}': choose one of {', '.join(ON)}.")
    viewed = Viewed(table, fold, on)
    side = Side("", table.card.name, EpisodeFilter())
    n = int(outcomes(table, fold).of(on).sum())
    return Asked(store, (side,), side, subject=viewed, counted={side.name: n}, **more)


def viewed(asked: Asked) -> Viewed:
    """The subject, if it is a table."""
    assert isinstance(asked.subject, Viewed)
    return asked.subject


def matrix(asked: Asked) -> Outcomes:
    """The table as arrays."""
    of = viewed(asked)
    return outcomes(of.table, of.fold)


def counted(asked: Asked) -> Flags:
    """The tasks that are counted [tasks]."""
    return matrix(asked).of(viewed(asked).on)


def there(asked: Asked, part: str, **more: str | None) -> Address:
    """Another part of the page about the same tasks; nothing of a list is kept but what is given."""
    of = viewed(asked)
    here = {
        "table": of.table.card.name,
        "fold": str(of.fold) if of.fold else None,
        "on": of.on if of.on != "all" else None,
        "part": part,
    }
    return Address(PAGE, {**here, **dict.fromkeys(_OF_LISTS), **more})


def questions(asked: Asked, case: str | None = None, **more: str | None) -> Address:
    """The list of questions that are a case of `core.outcomes.matrix.cases`."""
    return there(asked, "questions", case=case, **more)


def estimate(rate: Rate | ClusteredShare) -> Estimate:
    """A rate as a value; where replies are graded by parts it counts nothing."""
    return Estimate(rate.value, rate.ci95 if rate.n else None, rate.k, None if rate.k is None else rate.n)


def share(k: int, n: int) -> Estimate:
    """`k` of `n` tasks, each counted once."""
    return estimate(ClusteredShare(k, n, n, k, k, n))


def points(difference: float, ci95: tuple[float, float]) -> str:
    """A difference in points with its interval."""
    return f"{signed_points(difference)} points ({signed_points(ci95[0])} to {signed_points(ci95[1])})"


def luck_words(holds: bool, p: float, among: str = "") -> str:
    """Whether a difference is luck, with its p, and `among` what it is allowed for: alone it can look like more."""
    if not among or not (holds or p < 0.05):
        return f"{'more than luck' if holds else 'perhaps luck'} (p {p_words(p)})"
    alone = f"p {p_words(p)} for it alone"
    if holds:
        return f"more than luck, also with {among} compared ({alone})"
    return f"perhaps luck, as {among} were compared ({alone})"


def luck(holds: bool | None) -> str:
    """The same in a cell; nothing where nothing is compared."""
    return "" if holds is None else "no" if holds else "possible"


def part_of(k: int, n: int) -> str:
    """A share in words, or that there is none."""
    return percent(k / n) if n else "none"


def short(names: Sequence[str], most: int = 14) -> list[str]:
    """Names of so many characters at most, told apart by the words that only one of them has."""
    cut = [name if len(name) <= most else f"{name[: most - 1]}…" for name in names]
    found = list(cut)
    for i, name in enumerate(names):
        others = [other for j, other in enumerate(names) if cut[j] == cut[i] and i != j]
        own = [word for word in re.split(r"[-_@/ ]", name) if all(word not in other for other in others)]
        if others and own:
            last = own[0][: most - 2]
            found[i] = f"{name[: most - 1 - len(last)]}…{last}"
    return distinct_names(found)


def distinct_names(names: Sequence[str]) -> list[str]:
    """The same names, with a number behind those that are still equal."""
    return [
        name if names.count(name) == 1 else f"{name[:11]}…{names[: i + 1].count(name)}"
        for i, name in enumerate(names)
    ]


def strongest(asked: Asked) -> list[int]:
    """All models, the most accurate on the counted tasks first."""
    of, tasks = matrix(asked), counted(asked)
    shares = [of.accuracy(tasks, model).value for model in range(len(of.models))]
    return [int(model) for model in np.argsort([-(value or 0.0) for value in shares], kind="stable")]


def model_choice(
    asked: Asked, name: str, words: str, order: Sequence[int], default: int | None, **also: str | None
) -> Choice:
    """A model by its name; without a default also none."""
    of = matrix(asked)
    options: Mapping[str, str] = {of.models[model]: of.models[model] for model in order}
    if default is None:
        return asked.choice(name, words, {"": "Any model", **options}, look="list", also=also)
    return asked.choice(name, words, options, of.models[default], look="list", also=also)
