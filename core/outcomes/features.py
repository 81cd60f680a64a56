"""What a learned router knows of a task: numbers made of its question, and its family where it is told that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from core.episode import Task

#: The hidden state that an encoder makes of a question, or how often its words and pairs of words occur, weighed by how
#: rare they are (TF-IDF).
FeatureName = Literal["states", "tfidf"]
FEATURES: tuple[FeatureName, ...] = get_args(FeatureName)

#: Words and pairs of words that are counted at most.
MOST_WORDS = 50_000
#: To how many directions TF-IDF is reduced where rows are compared by all their numbers (latent semantic analysis).
DIRECTIONS = 256

#: Questions -> hidden states [questions, hidden size].
States = Callable[[Sequence[str]], NDArray[np.float64]]


def reader_of(
    features: FeatureName,
    known: Sequence[Task],
    states: States | None = None,
    *,
    family: bool = False,
    dense: bool = False,
) -> Callable[[Sequence[Task]], Any]:
    """What makes rows of tasks, fitted to those that are known: hidden states of mean 0 and variance 1, or TF-IDF of
    length 1 over words, marks and pairs of them; `dense`: reduced to DIRECTIONS numbers of length 1. With `family` also
    one number for each known family, 1 for the task's own, times the mean length of the other numbers."""
    base = question_reader(features, [task.question for task in known], states, dense=dense)
    return _with_families(base, known) if family else lambda tasks: base([task.question for task in tasks])


def question_reader(
    features: FeatureName, known: Sequence[str], states: States | None = None, *, dense: bool = False
) -> Callable[[Sequence[str]], Any]:
    """The same of bare questions. ValueError for hidden states without what reads them."""
    if features == "tfidf":
        return _of_words(known, dense)
    if states is None:
        raise ValueError("Hidden states need an encoder that reads the questions.")
    return _of_states(known, states)


def _of_words(known: Sequence[str], dense: bool) -> Callable[[Sequence[str]], Any]:
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    words = TfidfVectorizer(
        sublinear_tf=True, ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", max_features=MOST_WORDS
    )
    try:
        rows = words.fit_transform(known)
    except ValueError:  # no text has a word, so that none says anything
        return lambda asked: np.zeros((len(asked), 0)) if dense else csr_matrix((len(asked), 0))
    size = min(DIRECTIONS, rows.shape[0], rows.shape[1] - 1)
    if not dense or size < 1:
        return lambda asked: words.transform(asked)
    reduced = TruncatedSVD(size, n_iter=3, random_state=0).fit(rows)
    return lambda asked: normalize(reduced.transform(words.transform(asked)))


def _of_states(known: Sequence[str], states: States) -> Callable[[Sequence[str]], Any]:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(states(known))
    return lambda asked: scaler.transform(states(asked))


def _with_families(
    base: Callable[[Sequence[str]], Any], known: Sequence[Task]
) -> Callable[[Sequence[Task]], Any]:
    from scipy.sparse import csr_matrix, hstack, issparse

    places = {name: place for place, name in enumerate(sorted({task.family for task in known}))}
    scale = _mean_length(base([task.question for task in known]))

    def read(tasks: Sequence[Task]) -> Any:
        own = np.zeros((len(tasks), len(places)))
        for row, task in enumerate(tasks):
            if task.family in places:
                own[row, places[task.family]] = scale
        rows = base([task.question for task in tasks])
        return csr_matrix(hstack([rows, csr_matrix(own)])) if issparse(rows) else np.hstack([rows, own])

    return read


def _mean_length(rows: Any) -> float:
    from scipy.sparse import issparse
    from scipy.sparse.linalg import norm

    lengths = norm(rows, axis=1) if issparse(rows) else np.linalg.norm(rows, axis=1)
    return float(lengths.mean()) if len(lengths) else 1.0
