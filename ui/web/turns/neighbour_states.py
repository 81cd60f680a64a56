"""The recorded decisions whose states lie nearest to one: what was chosen there, and how these episodes ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.analysis.rounding import read_half
from core.episode import Role
from storage.analysis.hidden_states import PastDecisions, StateTurn, read_past_decisions
from storage.store import Store
from ui.web.kit.cache import remembered

#: Decisions that are looked through, how many of the nearest are counted, and how many are shown.
SAMPLE, COUNTED, SHOWN = 4000, 50, 8


@dataclass(frozen=True, slots=True)
class NearDecision:
    """A decision near another: the cosine of both states, and whether both read the very same transcript."""

    turn: StateTurn
    cosine: float
    same_text: bool


@dataclass(frozen=True, slots=True)
class ChoiceCount:
    """What was chosen near by: how often, and how many of these episodes were judged, and ended right."""

    model: str
    role: Role
    n: int
    judged: int
    right: int


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The nearest decisions, nearest first, out of `compared` of `total`."""

    near: tuple[NearDecision, ...]
    compared: int
    total: int

    @property
    def choices(self) -> list[ChoiceCount]:
        """The choices among them, the most frequent first."""
        counted = Counter((one.turn.model, one.turn.role) for one in self.near)
        found = []
        for (model, role), n in counted.most_common():
            ends = [one.turn.correct for one in self.near if (one.turn.model, one.turn.role) == (model, role)]
            judged = [end for end in ends if end is not None]
            found.append(ChoiceCount(model, role, n, len(judged), sum(judged)))
        return found


def neighbourhood(
    store: Store, policies: Sequence[str], hidden: bytes, episode_id: str, digest: str
) -> Neighbourhood | None:
    """The decisions of other episodes nearest to a state, by cosine; None when the state cannot be read."""
    past = _past(store, policies)
    state = read_half(hidden, len(hidden) // 2)
    if state is None or not past.turns:
        return None if state is None else Neighbourhood((), 0, past.total)
    return nearest(past, state, episode_id, digest)


def nearest(
    past: PastDecisions, state: np.ndarray[tuple[int], np.dtype[np.float64]], episode_id: str, digest: str
) -> Neighbourhood:
    """The decisions of other episodes, among those loaded, that are nearest to a state by cosine."""
    if past.hidden.shape[1] != len(state):
        return Neighbourhood((), 0, past.total)
    lengths = np.linalg.norm(past.hidden, axis=1) * np.linalg.norm(state)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.nan_to_num(past.hidden @ state / lengths, nan=-1.0)
    foreign = np.array([turn.episode_id != episode_id for turn in past.turns], bool)
    order = [row for row in np.argsort(-cosines, kind="stable").tolist() if foreign[row]][:COUNTED]
    near = []
    for row in order:
        turn = past.turns[row]
        same_text = bool(digest) and turn.prompt_digest == digest
        near.append(NearDecision(turn, min(1.0, float(cosines[row])), same_text))
    return Neighbourhood(tuple(near), int(foreign.sum()), past.total)


@remembered(most=8, seconds=300)
def _past(store: Store, policies: Sequence[str]) -> PastDecisions:
    return read_past_decisions(store, policies, SAMPLE)
