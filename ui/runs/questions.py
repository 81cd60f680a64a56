"""Questions of a task set as an encoder reads them before the first turn: their states, labelled, nothing played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from core.analysis.separability import FEWEST_POINTS, MOST_POINTS, Points
from core.episode import Decide, Role, Transcript
from core.errors import TaskError
from core.pocket.tasks import normalise_question
from core.tasks.sets import labelled_tasks
from storage.analysis.hidden_states import HiddenStates, StateTurn
from ui.presentation.theme import one_line

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder

#: Questions that a quick encoder reads in one go; a slow one reads each alone, so that one sees how far it is.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Questions:
    """Texts, each with the field `by` of its task as label; `total` is how many there were to draw from."""

    tasks: str
    by: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    total: int


def find_questions(tasks: str, by: str = "family", most: int = MOST_POINTS) -> Questions:
    """At most `most` questions of a task set. TaskError for an unknown set, a malformed file, a field that no task has,
    and too few questions."""
    found, total = labelled_tasks(tasks, by, most)
    if len(found) < FEWEST_POINTS:
        raise TaskError(
            f"{tasks} has {len(found)} questions with a field '{by}': fewer than {FEWEST_POINTS} tell nothing. "
            "Add some, or name another set."
        )
    return Questions(
        tasks, by, tuple(task.question for task, _ in found), tuple(label for _, label in found), total
    )


def read(encoder: Encoder, questions: Questions) -> Iterator[NDArray[np.float32]]:
    """The state [hidden size] of each question, in order, as it is read. An encoder remembers what it has read, so
    that one who stops half-way and asks again goes on from there."""
    at_once = 1 if encoder.in_parts else _AT_ONCE
    for start in range(0, len(questions.texts), at_once):
        asked = [
            Decide(Transcript(text), 0, f"question {start + i}")
            for i, text in enumerate(questions.texts[start : start + at_once])
        ]
        yield from encoder.encode(asked).states


def as_states(questions: Questions, read: Sequence[NDArray[np.float32]]) -> HiddenStates:
    """What was read, as it can be analysed."""
    hidden = np.array(read, np.float32)
    return _as_states(questions, hidden.shape[1], hidden.tobytes())


@lru_cache(maxsize=4)  # so that analyses of the same states know them again
def _as_states(questions: Questions, size: int, packed: bytes) -> HiddenStates:
    texts, n = questions.texts, len(questions.texts)
    keys: dict[str, int] = {}
    same = tuple(keys.setdefault(normalise_question(text), len(keys)) for text in texts)
    cut = [one_line(text, 200) for text in texts]
    points = Points(
        hidden=np.frombuffer(packed, np.float32).reshape(n, size),
        logits=np.zeros((n, 0), np.float32),
        families=questions.labels,
        models=("",) * n,
        tasks=same,
    )
    turns = tuple(
        StateTurn("", 0, label, text, "", Role.WORKER)
        for label, text in zip(questions.labels, cut, strict=True)
    )
    return HiddenStates(turns, points, (), questions.total, 0, texts, questions.by)
