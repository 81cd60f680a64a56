"""The space an evolution searches: heads around a first one, and how far its first candidates lie apart.

Hidden states of language models share one large direction, their mean (Ethayarajh 2019). A head drawn at random
mostly multiplies that direction, so it prefers the same model and the same role whatever it reads: nearly all of a
first generation would be constant policies, the best of them "always Worker", and a role that pays only in its place
is lost before it was tried there. So the search takes shorter steps along the shared direction, as the wanted spread
of constant preferences says, than along what tells transcripts apart. Heads stay the paper's linear maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.checkpoint import Checkpoint
from core.coordinator.encoder import Encoder
from core.draws import pick, uniform
from core.episode import ROLE_ORDER, Decide, Task, Transcript, TranscriptEntry

Vector = NDArray[np.float64]

#: Transcripts that the space is measured on.
SKETCHES = 256


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpace:
    """Heads around `origin` float64 [(models + 3) x hidden size], and the optimiser's first `step_size` among them.

    Along the unit vector `shared` float64 [hidden size] a move counts `share` of its length; 1.0 is a plain search."""

    origin: Vector
    step_size: float
    shared: Vector
    share: float

    def heads(self, points: Vector) -> Vector:
        """The heads that points of the search [..., (models + 3) x hidden size] stand for, of the same shape."""
        if self.share == 1.0:
            return points
        moves = (points - self.origin).reshape(*points.shape[:-1], -1, len(self.shared))
        moves = moves - (1.0 - self.share) * (moves @ self.shared)[..., None] * self.shared
        heads: Vector = self.origin + moves.reshape(points.shape)
        return heads


def survey(
    encoder: Encoder,
    tasks: Sequence[Task],
    template: Checkpoint,
    turn_budget: int,
    *,
    logit_spread: float,
    constant_spread: float | None,
    step_size: float | None = None,
) -> SearchSpace:
    """Measure the space around `template` on sketched transcripts of `tasks`; asks no model of the pool.

    The logits of the first candidates shall have standard deviation `logit_spread` in what depends on the
    transcript and `constant_spread` in what does not; None: one spread for all. `step_size` replaces the first."""
    states = encoder.encode(
        sketches(tasks, template.models, turn_budget),
        input_format=template.input_format,
        token_position=template.token_position,
    ).states.astype(float)
    origin, mean = np.asarray(template.vector, float), states.mean(axis=0)
    length = float(np.linalg.norm(mean))
    shared = mean / length
    if constant_spread is not None:
        states = states - (states @ shared)[:, None] * shared
    step = logit_spread / float(np.linalg.norm(states, axis=1).mean()) if step_size is None else step_size
    share = 1.0 if constant_spread is None else constant_spread / (step * length)
    return SearchSpace(origin, step, shared, share)


def sketches(
    tasks: Sequence[Task], models: Sequence[str], turn_budget: int, n: int = SKETCHES
) -> list[Decide]:
    """n transcripts of every length up to the budget: real questions, random models and roles, blank replies.

    In trials the mean state of such transcripts and of played ones had a cosine of 0.997 (pocket encoder)."""
    requests = []
    for index in range(n):
        task, length = tasks[index % len(tasks)], index % turn_budget
        whom, what = uniform(f"sketch/{index}", 2 * length).reshape(2, length)
        entries = tuple(
            TranscriptEntry(
                ROLE_ORDER[pick(np.ones(len(ROLE_ORDER)), b)], models[pick(np.ones(len(models)), a)], "..."
            )
            for a, b in zip(whom, what, strict=True)
        )
        requests.append(Decide(Transcript(task.question, entries), length, f"sketch/{index}"))
    return requests
