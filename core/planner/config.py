"""What the learning of a planner is: its sizes, rates and rewards, refused at once when they cannot be used (no torch).

`LearnConfig()` is the recipe at pocket scale and `PUBLISHED` the one that was published for a model of 7 billion
parameters (arXiv 2512.04388). Both are run by the same code.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.errors import ConfigError

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

    `learning_rate` is the peak: a rise over the first `warm_up` of the iterations, then a cosine down to zero. An
    iteration's rollouts are learned from in `updates` steps of AdamW, in batches of at most `batch` replies (0: as many
    as there are). `clip` bounds the ratio of new to old probabilities where `updates` is above 1.

    `anchor_models` and `anchor_form` hold a planner to the one that its learning began with: times the divergence of
    its probabilities from that one's (KL, nats per token), they are added to the loss, the first for tokens that name a
    model and the second for all others. Both fall with the learning rate. A small planner would else write the workflow
    that is best on average for every question, long before it has seen which model is good at what. They are 0 in the
    published recipe.

    `problems` is how many questions are kept, of those that the pool's models disagree on: single models and `probes`
    random workflows, some right and some wrong. After the share `subset_from` of the iterations, a share `subset_share`
    of an iteration's questions is played with a random subset of `least_models` models or more.

    `constrained`: rollouts can write nothing but lists, and they are learned from by the probabilities among the tokens
    that lists can hold. Without it a small planner, which makes its mistakes in long lists, learns to write single
    steps before anything else. Checkpoint and validation come every `save_every` and `validate_every` iterations, and
    after the last."""

    iterations: int = 240
    questions: int = 32
    rollouts: int = 8
    learning_rate: float = 1.5e-3
    warm_up: float = 0.03
    temperature: float = 1.0
    updates: int = 4
    batch: int = 0
    clip: float = 0.2
    anchor_models: float = 0.1
    anchor_form: float = 0.5
    loss: Loss = "dapo"
    max_grad_norm: float = 1.0
    unreadable: float = 0.0
    wrong: float = 0.5
    right: float = 1.0
    problems: int = 960
    probes: int = 8
    subset_share: float = 0.5
    subset_from: float = 0.6
    least_models: int = 2
    constrained: bool = True
    save_every: int = 20
    validate_every: int = 20
    gradient_checkpointing: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("iterations", "questions", "updates", "problems", "save_every", "validate_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is at least 1, not {getattr(self, name)}.")
        if self.rollouts < 2:
            raise ConfigError(f"A group has at least 2 rollouts to compare, not {self.rollouts}.")
        if not (0 < self.learning_rate < 1 and math.isfinite(self.learning_rate)):
            raise ConfigError(f"The learning rate is above 0 and below 1, not {self.learning_rate}.")
        if not 0 < self.temperature < math.inf:
            raise ConfigError(f"Rollouts are sampled at a temperature above 0, not {self.temperature}.")
        if not self.unreadable <= self.wrong < self.right:
            raise ConfigError(
                "A right answer earns more than a wrong one, and that no less than an unreadable plan."
            )
        if not (0 <= self.subset_share <= 1 and 0 <= self.subset_from <= 1 and 0 <= self.warm_up < 1):
            raise ConfigError("subset_share, subset_from and warm_up are shares between 0 and 1.")
        if not (0 <= self.anchor_models < math.inf and 0 <= self.anchor_form < math.inf):
            raise ConfigError("anchor_models and anchor_form are 0 or more.")
        if self.is_anchored and not self.constrained:
            raise ConfigError(
                "A planner that may write anything is held to nothing: set anchor_models and anchor_form to 0."
            )
        if self.least_models < 1 or self.probes < 0 or self.batch < 0:
            raise ConfigError("least_models is at least 1; probes and batch are not negative.")
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

    def subset_share_at(self, iteration: int) -> float:
        """The share of an iteration's questions, from 1, that are played with a part of the pool."""
        return self.subset_share if iteration > self.subset_from * self.iterations else 0.0

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


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
