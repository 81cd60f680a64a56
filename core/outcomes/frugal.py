"""A cascade that reads replies, as FrugalGPT (Chen, Zaharia and Zou 2023): models answer one after the other until a
scorer believes the reply.

Theirs scores with DistilBERT and optimises the list of models and a threshold for each under a budget; here the scorer
is a logistic regression on TF-IDF of question and reply, and one threshold and the number of models, in order of
strength, are chosen for accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.episode import Task
from core.outcomes.lessons import Known, best_setting, known_of_table
from core.outcomes.rules import Came, asked_first, right_of
from core.outcomes.table import OutcomeTable
from core.play.ensembles import Said, Tally

#: Models at most, and how sure the scorer has to be: the settings that are tried.
FRUGAL = tuple((n, sure) for n in (2, 3, 4) for sure in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9))
#: So many characters of a reply are read, its last ones, and so many words and pairs of them are known.
_CHARACTERS, _WORDS = 600, 30_000
#: How far the regression is held back (scikit-learn's C).
_FREEDOM = 1.0


@dataclass(frozen=True, slots=True)
class Scorer:
    """How likely a reply to a question is right, by its text and by who wrote it."""

    vectorise: Any
    regression: Any

    def __call__(self, question: str, said: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """The chance of each (model, text) [replies]."""
        rows = self.vectorise.transform([_shown(question, model, text) for model, text in said])
        chance: NDArray[np.float64] = self.regression.predict_proba(rows)[:, 1]
        return chance


def _shown(question: str, model: str, text: str) -> str:
    # One word that no text has: the regression learns how good each model is.
    return f"model{model.encode().hex()} {question[:_CHARACTERS]} {text[-_CHARACTERS:]}"


def learned_scorer(table: OutcomeTable, tasks: Sequence[Task], slots: Sequence[int]) -> Scorer:
    """A scorer that learned from the replies of these models to these tasks."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    texts, right = [], []
    for task, model, text, is_right in _replies(table, tasks, slots):
        texts.append(_shown(task.question, model, text))
        right.append(is_right)
    vectorise = TfidfVectorizer(
        max_features=_WORDS, sublinear_tf=True, token_pattern=r"(?u)\S+", dtype=np.float32
    )
    rows = vectorise.fit_transform(texts)
    learned = LogisticRegression(C=_FREEDOM, max_iter=200, solver="liblinear").fit(rows, right)
    return Scorer(vectorise, learned)


def _replies(
    table: OutcomeTable, tasks: Sequence[Task], slots: Sequence[int]
) -> list[tuple[Task, str, str, bool]]:
    texts, right = table.texts["reply"], table.numbers["right"]
    found = []
    for task in tasks:
        for slot in slots:
            row = int(table.first[table.task_index[task.id], slot])
            if row >= 0 and right[row] >= 0:
                found.append((task, table.card.models[slot], texts[row].as_py(), bool(right[row])))
    return found


def scores_of_replies(
    scorer: Scorer, table: OutcomeTable, tasks: Sequence[Task], slots: Sequence[int]
) -> NDArray[np.float64]:
    """What the scorer says of the replies of these models to these tasks [tasks, models]; NaN for others."""
    found = np.full((len(tasks), len(table.card.models)), np.nan)
    texts = table.texts["reply"]
    for place, task in enumerate(tasks):
        rows = [(slot, int(table.first[table.task_index[task.id], slot])) for slot in slots]
        said = [(table.card.models[slot], texts[row].as_py()) for slot, row in rows if row >= 0]
        if said:
            found[place, [slot for slot, row in rows if row >= 0]] = scorer(task.question, said)
    return found


def until_believed(
    known: Known, order: NDArray[np.int64], scores: NDArray[np.float64], most: int, sure: float
) -> Came:
    """Models in order until one's reply has such a score, at most so many; else the last answer stands."""
    order = asked_first(known, order)[:, :most]
    able = np.minimum(np.isfinite(known.right).sum(axis=1), most)
    stands, calls = np.full(len(order), -1), able.copy()
    over = np.zeros(len(order), bool)
    for k in range(order.shape[1]):
        slot = order[:, k]
        asked = ~over & (k < able)
        here = np.arange(len(order)), slot
        answered = asked & (known.group[here] >= 0)
        stands = np.where(answered, slot, stands)
        believed = answered & (np.nan_to_num(scores[here]) >= sure)
        calls = np.where(believed, k + 1, calls)
        over |= believed
    return Came(right_of(known, stands, able > 0), calls, stands)


def believed(scorer: Callable[[str, Sequence[tuple[str, str]]], NDArray[np.float64]], sure: float) -> Tally:
    """The latest answer stands, and it is enough once the scorer believes the reply that it stands in."""

    def tally(question: str, said: Sequence[Said]) -> tuple[int | None, bool]:
        stands = next((place for place in reversed(range(len(said))) if said[place].answer is not None), None)
        if stands is None or stands != len(said) - 1:
            return stands, False
        last = said[-1]
        return stands, bool(scorer(question, [(last.model, last.text)])[0] >= sure)

    return tally


def choose_frugal(
    table: OutcomeTable, evolve: Sequence[Task], validation: Sequence[Task], order: NDArray[np.int64]
) -> tuple[Scorer, int, float]:
    """The scorer that learned from evolve tasks, and how many models and how sure by validation tasks."""
    slots = [int(slot) for slot in order[: max(n for n, _ in FRUGAL)]]
    scorer = learned_scorer(table, evolve, slots)
    scores, known = (
        scores_of_replies(scorer, table, validation, slots),
        known_of_table(table, validation).each[0],
    )
    n, sure = best_setting(FRUGAL, lambda one: until_believed(known, order, scores, *one).score)
    return scorer, n, sure
