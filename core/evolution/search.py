"""The space an evolution searches: vectors around a first one, and how far its first candidates lie apart.

Hidden states of language models share one large direction, their mean (Ethayarajh 2019). A head drawn at random
mostly multiplies that direction, so it prefers the same model and the same role whatever it reads: nearly all of a
first generation would be constant policies, the best of them "always Worker", and a role that pays only in its place
is lost before it was tried there. So the search takes shorter steps along the shared direction, as the wanted spread
of constant preferences says, than along what tells transcripts apart. Heads stay what they are in the paper.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import encode_for, read_each_for
from core.coordinator.encoder import Encoder
from core.coordinator.states import Reading
from core.coordinator.svf import Offsets
from core.draws import draw_index, uniform
from core.episode import ROLE_ORDER, Decide, Task, Transcript, TranscriptEntry
from core.errors import ConfigError
from core.evolution.config import SKETCHES, SVF_CANDIDATES, SVF_SKETCHES, EvolveConfig
from core.evolution.fitness import Step
from core.evolution.learner_state import Vector
from core.learning import outcome

CANDIDATES = 32  # that the space is measured on
_SVF_PROBE = 0.03  # the authors' first step size


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What is measured of an encoder before an evolution, on sketched transcripts of its tasks: the first `steps` by
    block, and the `mean_state` float64 [hidden size]. What is kept of it is the same again to the last bit."""

    steps: Mapping[str, Step]
    mean_state: Vector

    @property
    def packed(self) -> str:
        """The mean state as base64 of little-endian numbers of 64 bits."""
        return base64.b64encode(np.asarray(self.mean_state, "<f8").tobytes()).decode("ascii")

    @classmethod
    def kept(cls, steps: Mapping[str, Step], packed: str, template: Checkpoint) -> Survey | None:
        """What a generation 0 kept of it; None where that is nothing, or not of this template."""
        try:
            found = np.frombuffer(base64.b64decode(packed, validate=True), "<f8").astype(float)
        except ValueError:
            return None
        blocks = {"head", "svf"} if template.svf_layout else {"head"}
        fits = found.shape == (template.encoder.hidden_size,) and bool(np.isfinite(found).all())
        return cls(steps, found) if fits and steps.keys() == blocks else None


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpace:
    """Vectors around the template's, as surveyed. Along the direction that hidden states share, the head's logits shall
    spread by `constant_spread`, None: as along any other."""

    template: Checkpoint
    survey: Survey
    constant_spread: float | None

    @property
    def step_size(self) -> float:
        """The optimiser's first step size, that of the head."""
        return self.survey.steps["head"].step_size

    @property
    def scales(self) -> Vector:
        """The first step of every number [n], relative to `step_size`."""
        scales = np.ones(len(self.template.vector))
        if "svf" in self.survey.steps:
            scales[: self.template.svf_size] = self.survey.steps["svf"].step_size / self.step_size
        return scales

    def vectors(self, points: Vector) -> Vector:
        """The vectors that points of the search [..., n] stand for, of the same shape."""
        if self.constant_spread is None:
            return points
        constant = self.constant_spread / self.step_size
        return _fold(self.template, points, self.survey.mean_state, constant)


def space_of(
    config: EvolveConfig,
    template: Checkpoint,
    encoder: Encoder,
    tasks: Sequence[Task],
    surveyed: Survey | None = None,
    n: int | None = None,
) -> SearchSpace:
    """The space around `template`, measured by a `survey` on `tasks` where none was `surveyed` yet."""
    surveyed = surveyed or survey_of(config, template, encoder, tasks, n)
    return SearchSpace(template, surveyed, config.constant_spread)


def survey_of(
    config: EvolveConfig,
    template: Checkpoint,
    encoder: Encoder,
    tasks: Sequence[Task],
    n: int | None = None,
) -> Survey:
    """What a `survey` comes to."""
    return outcome(survey(config, template, encoder, tasks, n))


def survey(
    config: EvolveConfig,
    template: Checkpoint,
    encoder: Encoder,
    tasks: Sequence[Task],
    n: int | None = None,
) -> Generator[Reading, None, Survey]:
    """Measure the space around `template` on `n` sketched transcripts of `tasks` (None: `config.SKETCHES`); asks no
    model of the pool. Yields how far the encoder is with them.

    Where the configuration gives no step size, it follows from the spread of logits that it wants."""
    requests = sketches(tasks, template.models, config.turn_budget, n)
    probed = min(SVF_SKETCHES, len(requests))
    total = len(requests) + (SVF_CANDIDATES * probed if template.svf_layout else 0)
    states = np.zeros((len(requests), encoder.hidden_size))
    for done, (place, row) in enumerate(read_each_for(template, encoder, requests), 1):
        states[place] = row.states[0]
        yield Reading(done, total)
    mean = states.mean(axis=0)
    if not mean.any():
        raise ConfigError(
            "The encoder gives the same empty state for every transcript: nothing can be evolved on it."
        )
    turns = [request.index for request in requests]
    draws = np.random.default_rng(0).standard_normal((CANDIDATES, len(template.vector)))
    draws[:, : template.svf_size] = 0.0

    def spread(step: float) -> float:
        points = template.vector + step * draws
        vectors = points if config.constant_spread is None else _fold(template, points, mean, 0.0)
        z = [template.head.logits(states, one[template.svf_size :], turns) for one in vectors]
        return float(np.sqrt(np.var(z, axis=0).mean()))

    head_step = config.step_size
    if head_step is None:
        head_step = _step_size_for(spread, config.logit_spread)
    steps = {"head": Step(head_step, spread(head_step))}
    if template.svf_layout:
        shift = yield from _svf_shift(encoder, template, requests, states, total)
        spread_per_step = head_step * shift / _SVF_PROBE
        svf_step = config.svf_step_size
        if svf_step is None:
            svf_step = config.svf_spread / spread_per_step
        steps["svf"] = Step(svf_step, svf_step * spread_per_step)
    return Survey(steps, mean)


def _fold(template: Checkpoint, points: Vector, mean: Vector, constant: float) -> Vector:
    """Points whose head's moves from the template are, along what its arrays read of the mean state, scaled so that
    a step of 1 moves the logits by `constant` there."""
    head, start = template.head, template.svf_size
    origin = np.asarray(template.vector, float)
    folded = np.array(points, float)
    for vector in folded.reshape(-1, len(origin)):
        moves = head.arrays(vector[start:])
        first = head.arrays(origin[start:])
        for name, read in head.read(mean, vector[start:].copy()).items():
            length = float(np.linalg.norm(read))
            if length == 0:
                continue
            along = (moves[name] - first[name]) @ (read / length)
            moves[name] -= (1.0 - constant / length) * np.outer(along, read / length)
    return folded


def _step_size_for(spread: Callable[[float], float], wanted: float) -> float:
    """The step size at which the spread is as wanted: it grows with the step, at most like its third power."""
    step = 1.0
    for _ in range(60):
        found = spread(step)
        if abs(found / wanted - 1) < 1e-6:
            break
        step *= (wanted / found) ** 0.5
    return step


def _svf_shift(
    encoder: Encoder, template: Checkpoint, requests: Sequence[Decide], states: Vector, total: int
) -> Generator[Reading, None, float]:
    """How far offsets of the probe's size move a hidden state, on average."""
    done, rng, requests = len(requests), np.random.default_rng(1), requests[:SVF_SKETCHES]
    moved = []
    for _ in range(SVF_CANDIDATES):
        values = (_SVF_PROBE * rng.standard_normal(template.svf_size)).astype(np.float32)
        after = encode_for(template, encoder, requests, Offsets(template.svf_layout, values)).states
        moved.append(np.linalg.norm(after.astype(float) - states[: len(requests)], axis=1).mean())
        done += len(requests)
        yield Reading(done, total)
    shift = float(np.mean(moved))
    if shift == 0:
        raise ConfigError("These SVF offsets do not change a hidden state: choose other matrices.")
    return shift


def sketches(
    tasks: Sequence[Task], models: Sequence[str], turn_budget: int, n: int | None = None
) -> list[Decide]:
    """`n` transcripts (None: SKETCHES) of every length up to the budget: real questions, random models and roles,
    blank replies.

    In trials the mean state of such transcripts and of played ones had a cosine of 0.997 (pocket encoder)."""
    requests = []
    for index in range(n or SKETCHES):
        task, length = tasks[index % len(tasks)], index % turn_budget
        whom, what = uniform(f"sketch/{index}", 2 * length).reshape(2, length)
        entries = tuple(
            TranscriptEntry(
                ROLE_ORDER[draw_index(np.ones(len(ROLE_ORDER)), b)],
                models[draw_index(np.ones(len(models)), a)],
                "...",
            )
            for a, b in zip(whom, what, strict=True)
        )
        requests.append(Decide(Transcript(task.question, entries), length, f"sketch/{index}"))
    return requests
