"""What the learning of a planner is: its sizes, rates and rewards, refused at once when they cannot be used (no torch).

`LearnConfig()` is the recipe at pocket scale and `PUBLISHED` the one that was published for a model of 7 billion
parameters (arXiv 2512.04388). Both are run by the same code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from core.errors import ConfigError
from core.fields import MOST_TASKS, LearnerSeed, Setting, check

#: How the loss of single tokens is put together, by the names of the library `trl`: the mean of each reply's mean
#: ("grpo"), the mean over all tokens ("dapo"), the sum over the most tokens that there can be ("dr_grpo").
Loss = Literal["grpo", "dapo", "dr_grpo"]


@dataclass(frozen=True, slots=True)
class LearnConfig:
    """The settings of one learning, fixed for its whole life.

    Each of `iterations` plays `questions` x `rollouts` episodes; the rollouts of one question are its group. A rollout
    whose plan cannot be read earns `unreadable`, one whose answer is wrong `wrong`, one whose answer is right `right`;
    one that an infrastructure failure ended is left out of its group. Its advantage is its reward less the group's
    mean, over the group's standard deviation.

    An iteration's rollouts are learned from in `updates` steps of AdamW. The anchors (KL, nats per token) fall with the
    learning rate. A small planner would else write the workflow that is best on average for every question, long before
    it has seen which model is good at what. They are 0 in the published recipe. Without `constrained`, a small planner,
    which makes its mistakes in long lists, learns to write single steps before anything else; with it, rollouts are
    learned from by the probabilities among the tokens that lists can hold. Checkpoint and validation come every so many
    iterations, and after the last."""

    iterations: Annotated[int, Setting(ge=1, le=MOST_TASKS, option="--iterations", term="Iteration")] = 240
    """How many iterations."""
    questions: Annotated[int, Setting("Questions in each", ge=1, le=MOST_TASKS, option="--questions")] = 32
    """Questions in each."""
    rollouts: Annotated[
        int, Setting("Rollouts of each question", ge=2, le=MOST_TASKS, option="--rollouts", term="Rollout")
    ] = 8
    """Workflows written and played for each question."""
    seed: LearnerSeed = 0
    validate_every: Annotated[int, Setting(group="tasks", ge=1, option="--validate-every")] = 20
    """Measure it every so many iterations."""
    save_every: Annotated[int, Setting(ge=1, option="--save-every")] = 20
    """Keep a checkpoint every so many iterations."""
    learning_rate: Annotated[float, Setting(group="search", gt=0, lt=1)] = 1.5e-3
    """The highest learning rate of AdamW."""
    warm_up: Annotated[float, Setting("Rise of the rate", group="search", ge=0, lt=1)] = 0.03
    """Share of the iterations over which it rises; then it falls by a cosine."""
    temperature: Annotated[float, Setting(group="search", gt=0)] = 1.0
    """At which workflows are sampled."""
    updates: Annotated[int, Setting(group="search", ge=1)] = 4
    """Optimiser steps in an iteration."""
    batch: Annotated[int, Setting(group="search", ge=0)] = 0
    """Replies that go through the model at once; 0: all of a step."""
    clip: Annotated[float, Setting(group="search", gt=0)] = 0.2
    """Bound on the ratio of new to old probabilities, where there are several updates."""
    anchor_models: Annotated[float, Setting(group="search", ge=0)] = 0.1
    """How strongly its choice of models is held to the planner it began as: weight of the divergence."""
    anchor_form: Annotated[float, Setting(group="search", ge=0)] = 0.5
    """The same for all else that it writes: number of steps, subtasks and access."""
    loss: Annotated[Loss, Setting(group="search")] = "dapo"
    """How the loss of tokens is averaged, as trl calls it."""
    max_grad_norm: Annotated[float, Setting("Largest gradient", group="search", gt=0)] = 1.0
    """The gradient's norm is cut to this."""
    constrained: Annotated[bool, Setting(group="search")] = True
    """The planner can write nothing but lists that can be read."""
    gradient_checkpointing: Annotated[bool, Setting(group="search")] = False
    """Less memory for more time, for large models."""
    unreadable: Annotated[float, Setting("Unreadable plan", group="reward")] = 0.0
    """Reward of a plan that cannot be read."""
    wrong: Annotated[float, Setting("Wrong answer", group="reward")] = 0.5
    """Reward of a wrong answer."""
    right: Annotated[float, Setting("Right answer", group="reward")] = 1.0
    """Reward of a right answer."""
    problems: Annotated[int, Setting("Questions kept", group="tasks", ge=1)] = 960
    """Questions that are kept, of those that single models and random workflows disagree on."""
    probes: Annotated[int, Setting("Random workflows", group="tasks", ge=0)] = 8
    """Random workflows that are tried on each question, besides every model alone, to find that out."""
    subset_share: Annotated[
        float, Setting("Questions with a part of the pool", group="tasks", ge=0, le=1)
    ] = 0.5
    """Share of questions that are played with a random part of the pool."""
    subset_from: Annotated[float, Setting("Part of the pool from", group="tasks", ge=0, le=1)] = 0.6
    """From which share of the iterations on they are."""
    least_models: Annotated[int, Setting("Fewest models", group="tasks", ge=1)] = 2
    """The fewest models of such a part."""

    def __post_init__(self) -> None:
        check(self)
        if not self.unreadable <= self.wrong < self.right:
            raise ConfigError(
                "A right answer earns more than a wrong one, and that no less than an unreadable plan."
            )
        if self.is_anchored and not self.constrained:
            raise ConfigError(
                "A planner that may write anything is held to nothing: set anchor_models and anchor_form to 0."
            )
        if (self.questions * self.rollouts) % (self.updates * (self.batch or 1)):
            raise ConfigError(
                f"{self.questions * self.rollouts} rollouts cannot be parted into {self.updates} updates of batches of "
                f"{self.batch or 'any number'}: choose numbers that divide them."
            )

    @property
    def is_anchored(self) -> bool:
        """Whether anything holds the planner to its beginning."""
        return bool(self.anchor_models or self.anchor_form)

    def rate(self, iteration: int) -> float:
        """The learning rate of an iteration, from 1."""
        rise = max(1, math.ceil(self.warm_up * self.iterations))
        if iteration <= rise:
            return self.learning_rate * iteration / rise
        done = (iteration - rise - 1) / max(self.iterations - rise, 1)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


#: The published recipe, for PUBLISHED_MODEL: 960 problems, 200 iterations of 4 questions x 64 rollouts. Prompts have up
#: to 8,192 tokens: the instruction is shown whole, and models without names.
PUBLISHED = LearnConfig(
    iterations=200,
    questions=4,
    rollouts=64,
    learning_rate=1e-6,
    warm_up=0.03,
    temperature=1.0,
    updates=1,
    batch=4,
    anchor_models=0.0,
    anchor_form=0.0,
    loss="grpo",
    problems=960,
    subset_share=0.0,
    constrained=False,
    save_every=20,
    validate_every=20,
    gradient_checkpointing=True,
)
PUBLISHED_MODEL = "Qwen/Qwen2.5-7B"
