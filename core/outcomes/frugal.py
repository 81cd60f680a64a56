"""Who reads replies: a scorer that says how likely one is right, and the cascade of FrugalGPT (Chen, Zaharia and Zou
2023), in which models answer one after the other until it believes the reply.

Theirs scores with DistilBERT and optimises the list of models and a threshold for each under a budget; here the scorer
is a logistic regression for each model, on TF-IDF of the question, on TF-IDF of the reply and on its length, and one
threshold and the number of models, in order of strength, are chosen for accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.episode import Task
from core.outcomes.features import question_reader
from core.outcomes.lessons import Known, best_setting, known_of_table
from core.outcomes.rules import Came, asked_first, right_of
from core.outcomes.table import OutcomeTable
from core.play.ensembles import Said, Tally

#: Models at most, and how sure the scorer has to be: the settings that are tried.
FRUGAL = tuple((n, sure) for n in (2, 3, 4) for sure in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9))
#: How large the coefficients of a probe may become (scikit-learn's C): the best of 0.0001, 0.001 and 0.01 on validation
#: tasks of MMLU-Pro for SmolLM2's states.
PROBE_FREEDOM = 0.001
#: So many characters of a reply are read: its first half and its last.
_CHARACTERS = 8_000
#: By this the logarithm of a reply's length is divided, so that it weighs about as much as the words.
_LENGTH = 8.0


@dataclass(frozen=True, slots=True)
class Scorer:
    """How likely a model's reply to a question is right, by both texts. `chances`: of each model that was learned from,
    rows of features -> chance to be right."""

    questions: Callable[[Sequence[str]], Any]
    replies: Callable[[Sequence[str]], Any]
    chances: Mapping[str, Callable[[Any], NDArray[np.float64]]]

    def __call__(self, model: str, said: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """The chance of each (question, text) of a model [replies]; NaN for a model that was not learned from."""
        if model not in self.chances or not said:
            return np.full(len(said), np.nan)
        return self.chances[model](self.rows(said))

    def rows(self, said: Sequence[tuple[str, str]]) -> Any:
        """Features of (question, text) [replies, numbers]."""
        from scipy.sparse import csr_matrix, hstack

        texts = [_shown(text) for _, text in said]
        lengths = [[np.log1p(len(text)) / _LENGTH] for _, text in said]
        parts = (self.questions([question for question, _ in said]), self.replies(texts), csr_matrix(lengths))
        return csr_matrix(hstack(parts))


def _shown(text: str) -> str:
    half = _CHARACTERS // 2
    return text if len(text) <= _CHARACTERS else f"{text[:half]} {text[-half:]}"


def learned_scorer(table: OutcomeTable, tasks: Sequence[Task], slots: Sequence[int]) -> Scorer:
    """A scorer that learned from the replies of these models to these tasks."""
    said = {table.card.models[slot]: _replies(table, tasks, slot) for slot in slots}
    texts = [_shown(text) for rows in said.values() for _, text, _ in rows]
    asked = question_reader("tfidf", [task.question for task in tasks])
    scorer = Scorer(asked, question_reader("tfidf", texts), {})
    chances = {
        model: _chance(
            scorer.rows([(question, text) for question, text, _ in rows]), [one for *_, one in rows]
        )
        for model, rows in said.items()
        if rows
    }
    return Scorer(asked, scorer.replies, chances)


def _chance(rows: Any, right: Sequence[bool]) -> Callable[[Any], NDArray[np.float64]]:
    """What says how likely rows like these are right; the same of all where all are right, or none."""
    from sklearn.linear_model import LogisticRegression

    if len(set(right)) < 2:
        return lambda asked: np.full(asked.shape[0], float(right[0]))
    learned = LogisticRegression(max_iter=300).fit(rows, right)
    return lambda asked: np.asarray(learned.predict_proba(asked)[:, 1])


def probe(
    states: NDArray[np.float64], right: NDArray[np.float64]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """A linear probe (Alain and Bengio 2016): hidden states [rows, hidden size] -> the chance that an answer which
    stands in them is right, by a logistic regression. Rows with a NaN teach nothing, and are told NaN."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    taught = np.isfinite(states).all(axis=1) & np.isfinite(right)
    solved = right[taught] > 0.5
    learned: Any = None
    if 0 < solved.sum() < len(solved):
        regression = LogisticRegression(C=PROBE_FREEDOM, max_iter=500)
        learned = make_pipeline(StandardScaler(), regression).fit(states[taught], solved)

    def chance(asked: NDArray[np.float64]) -> NDArray[np.float64]:
        found, there = np.full(len(asked), np.nan), np.isfinite(asked).all(axis=1)
        if there.any() and len(solved):
            found[there] = float(solved[0]) if learned is None else learned.predict_proba(asked[there])[:, 1]
        return found

    return chance


def _replies(table: OutcomeTable, tasks: Sequence[Task], slot: int) -> list[tuple[str, str, bool]]:
    """Question, reply, and whether it is right, of a model's first reply to each task."""
    texts, right = table.texts["reply"], table.numbers["right"]
    rows = [(task, int(table.first[table.task_index[task.id], slot])) for task in tasks]
    return [
        (task.question, texts[row].as_py(), bool(right[row])) for task, row in rows if row >= 0 <= right[row]
    ]


def scores_of_replies(
    scorer: Scorer, table: OutcomeTable, tasks: Sequence[Task], slots: Sequence[int]
) -> NDArray[np.float64]:
    """What the scorer says of the first replies of these models to these tasks [tasks, models]; NaN for others."""
    found = np.full((len(tasks), len(table.card.models)), np.nan)
    texts, places = table.texts["reply"], np.array([table.task_index[task.id] for task in tasks], int)
    for slot in slots:
        rows = table.first[places, slot]
        there = np.flatnonzero(rows >= 0).tolist()
        said = [(tasks[place].question, texts[int(rows[place])].as_py()) for place in there]
        found[there, slot] = scorer(table.card.models[slot], said)
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
        return stands, bool(scorer(last.model, [(question, last.text)])[0] >= sure)

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
