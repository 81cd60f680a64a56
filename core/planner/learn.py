"""Teaches a planner by reinforcement on real episodes, one yielded iteration after the other; and all that its learning
needs to go on, as a state and its bytes.

From a state that was yielded it goes on to the same end, on one CPU thread bit for bit: an iteration depends on the
settings, the seed and the state before it, and on nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from core.episode import Episode, Task
from core.errors import ConfigError
from core.learning import Candidates, Played, Playing, is_due, share_calls
from core.learning import learn as learn_by
from core.planner.config import LearnConfig
from core.planner.grpo import check_installed, learn_from, named_weights, new_optimiser
from core.planner.planner import LanguagePlanner
from core.planner.rollouts import disputed_questions, exam_of, free_share, rollouts_of, unplayed
from core.planner.statistics import IterationStats, statistics_of
from core.play.drive import GradeMany
from core.pool.pool import Pool
from core.pool.spec import slots_of

_KIND = "grpo"
#: What AdamW keeps of each weight.
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, eq=False)
class PlannerState:
    """Weights and the optimiser's moments by name after an `iteration`, the ids of the questions that are learned on,
    and the settings as JSON. `tensors` are `weights.NAME` and, once a step was made, `step.NAME`, `exp_avg.NAME` and
    `exp_avg_sq.NAME`."""

    iteration: int
    questions: tuple[str, ...]
    config: str
    tensors: Mapping[str, Tensor]

    def to_bytes(self) -> bytes:
        """The state as safetensors; what is no tensor is JSON in its metadata."""
        rest = {"iteration": self.iteration, "questions": list(self.questions), "config": self.config}
        return save(dict(self.tensors), metadata={_KIND: json.dumps(rest, sort_keys=True)})

    @classmethod
    def from_bytes(cls, data: bytes) -> PlannerState:
        """Inverse of `to_bytes`; ConfigError for anything else."""
        try:
            tensors = load(data)
            length = int.from_bytes(data[:8], "little")
            rest = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_KIND])
            questions = tuple(str(name) for name in rest["questions"])
            return cls(int(rest["iteration"]), questions, str(rest["config"]), tensors)
        except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise ConfigError(
                "This is not the saved state of a planner's learning: resume from the run that wrote it."
            ) from error

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the whole state."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def state_of(
    planner: LanguagePlanner,
    optimiser: torch.optim.Optimizer,
    iteration: int,
    questions: tuple[str, ...],
    config: LearnConfig,
) -> PlannerState:
    """A copy of where a learning stands."""
    tensors: dict[str, Tensor] = {}
    for name, weight in named_weights(planner):
        tensors[f"weights.{name}"] = weight.detach().cpu().clone()
        kept = optimiser.state.get(weight, {})
        tensors |= {
            f"{moment}.{name}": kept[moment].detach().cpu().clone() for moment in _MOMENTS if moment in kept
        }
    return PlannerState(iteration, questions, _settings(config), tensors)


def restore(
    state: PlannerState, planner: LanguagePlanner, optimiser: torch.optim.Optimizer, config: LearnConfig
) -> None:
    """Put the weights and moments of a state in place. ConfigError where it belongs to other settings or weights."""
    if state.config != _settings(config):
        was, now = json.loads(state.config), json.loads(_settings(config))
        name = next((one for one in now if was.get(one) != now[one]), "settings")
        raise ConfigError(
            f"This learning was begun with {name} {was.get(name)} and cannot go on with {now.get(name)}: keep it."
        )
    for name, weight in named_weights(planner):
        found = state.tensors.get(f"weights.{name}")
        if found is None or found.shape != weight.shape:
            raise ConfigError("This learning was begun with a planner of another shape: keep it.")
        with torch.no_grad():
            weight.copy_(found)
        moments = {
            one: state.tensors[f"{one}.{name}"] for one in _MOMENTS if f"{one}.{name}" in state.tensors
        }
        if moments:
            optimiser.state[weight] = {
                one: tensor.clone() if one == "step" else tensor.to(weight.device, copy=True)
                for one, tensor in moments.items()
            }


def _settings(config: LearnConfig) -> str:
    return json.dumps(asdict(config), sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Iteration(IterationStats):
    """One finished iteration; number 0 is the start. `planner` is a checkpoint of its own, and `state` all that is
    needed to go on; both are there when they are due (`LearnConfig.save_every`), after the last and at the start."""

    planner: LanguagePlanner | None = None
    state: PlannerState | None = None


@dataclass(frozen=True, slots=True)
class Asked(Candidates):
    """An iteration's rollouts, and when they were asked for, by the clock."""

    since: float


@dataclass(frozen=True, slots=True)
class Training:
    """A planner as what learns: it writes workflows for some questions, and is moved in place by what they earned.
    `start` is what it is held to; `run` is noted in its checkpoints; `clock` gives seconds."""

    noun: ClassVar = "iteration"

    config: LearnConfig
    start: LanguagePlanner
    planner: LanguagePlanner
    optimiser: torch.optim.Optimizer
    questions: Sequence[Task]
    validation_tasks: Sequence[Task]
    run: str
    clock: Callable[[], float]

    def begin(self) -> Iteration:
        """The planner as it stands."""
        return self._saved(Iteration(index=0))

    def ask(self, after: Iteration) -> Asked:
        """The next iteration's rollouts, several for each of its questions."""
        found = unplayed(self.config, self.planner, self.questions, after.index + 1)
        return Asked(found.episodes, found.policy, self.clock())

    def tell(self, after: Iteration, candidates: Asked, played: Played) -> Iteration:
        """The iteration that follows from what the rollouts earned."""
        index = after.index + 1
        rollouts = rollouts_of(self.config, candidates, played.episodes)
        update = learn_from(self.planner, self.start, self.optimiser, rollouts, self.config, index)
        iteration = Iteration(
            index=index,
            reward_mean=rollouts.reward_mean,
            signal=rollouts.signal,
            rollouts=statistics_of(rollouts.episodes),
            learning_rate=self.config.rate(index),
            loss=update.loss,
            entropy=update.entropy,
            divergence=update.divergence,
            gradient=update.gradient,
            written_tokens=sum(len(one.ids) for one in rollouts.written),
            calls=played.calls,
            calls_saved=played.calls_saved,
            seconds=self.clock() - candidates.since,
        )
        return self._saved(iteration)

    def exam(self, update: Iteration) -> Candidates:
        """The planner on its validation tasks."""
        return exam_of(self.config, self.planner, self.validation_tasks)

    def tell_exam(self, update: Iteration, played: list[Episode]) -> Iteration:
        """With the statistics of its validation."""
        return replace(update, validation=statistics_of(played), free=free_share(self.planner, played))

    def _saved(self, iteration: Iteration) -> Iteration:
        """With checkpoint and state, where they are due."""
        index, start = iteration.index, self.start.card
        if not is_due(index, self.config.save_every, self.config.iterations):
            return iteration
        saved = self.planner.frozen(
            kind="trained" if index else start.kind,
            iteration=index,
            parent_run=self.run,
            temperature=start.temperature,
        )
        kept = tuple(task.id for task in self.questions)
        state = state_of(self.planner, self.optimiser, index, kept, self.config)
        return replace(iteration, planner=saved, state=state)


def learn(
    config: LearnConfig,
    start: LanguagePlanner,
    *,
    pool: Pool,
    grade: GradeMany,
    tasks: Sequence[Task],
    validation_tasks: Sequence[Task] = (),
    state: PlannerState | None = None,
    run: str = "",
    clock: Callable[[], float] = float,
) -> Iterator[Iteration | Playing]:
    """Yield iteration 0 (the start, validated) and then each finished iteration, up to `config.iterations`; before
    each, how far its episodes are.

    `start` is a planner after its warm-up, of which a copy learns; of `tasks` the questions are kept that the pool's
    models disagree on. With `state`, of an iteration that was yielded, the next is the one after it. Equal calls are
    shared; a `pool` that is a CachedPool does that by itself. `run` is noted in the checkpoints; `clock` gives
    seconds (left out: no time is told). ConfigError for parts that do not fit, PoolError when no model could be asked
    for a whole iteration."""
    check_installed()
    models = tuple(spec.name for spec in slots_of(pool.specs))
    start.card.check_pool(tuple(name for name in models if name in start.models))
    pool = share_calls(pool)
    planner = start.frozen(temperature=config.temperature, constrained=config.constrained)
    optimiser = new_optimiser(planner, config)
    if state is None:
        questions = disputed_questions(config, start.models, tasks, pool, grade)
    else:
        restore(state, planner, optimiser, config)
        by_id = {task.id: task for task in tasks}
        if absent := [name for name in state.questions if name not in by_id]:
            raise ConfigError(
                f"This learning was begun with the question {absent[0]}, which is not there: keep its tasks."
            )
        questions = [by_id[name] for name in state.questions]
    training = Training(config, start, planner, optimiser, questions, validation_tasks, run, clock)
    after = Iteration(index=state.iteration) if state else None
    rhythm = {"updates": config.iterations, "validate_every": config.validate_every}
    yield from learn_by(training, **rhythm, pool=pool, grade=grade, after=after)
