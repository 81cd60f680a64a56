"""What an evolution is: its learner, sizes and options, refused at once when nothing could come of them (no torch)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from core.errors import ConfigError
from core.evolution import pycma_search, random_search, reinforce, sep_cma
from core.evolution.cycles import PLAIN_CYCLES

LearnerName = Literal["sep-cma-es", "pycma", "reinforce", "random-search"]

#: Tasks on which an evolution's best single model and its cycle are chosen.
CHOOSING = 48

#: Repeats of each model on each question from which its label is taken (paper A.5).
LABEL_REPEATS = 3

#: Episodes that an evolution plays for its fitness where nothing else is said.
DEFAULT_BUDGET = 92_160

#: How many times as many tasks per candidate, or as few, an adaptive evolution may come to play.
ADAPTED_AT_MOST = 4


#: Settings that are counted, that must be above 0, and that may be 0 too.
_COUNTS = (
    "generations",
    "population",
    "tasks_per_candidate",
    "turn_budget",
    "rotate_every",
    "validate_every",
)
_POSITIVE = ("logit_spread", "step_size", "svf_spread", "svf_step_size", "learning_rate", "box")
_NOT_NEGATIVE = ("constant_spread", "diversity", "turn_cost")
#: Settings that may be left open.
_OPTIONAL = ("step_size", "svf_step_size", "constant_spread")
#: A step or a weight beyond this drives numbers of a head, kept as float32, out of their range.
_LARGEST = 1e6


def _is_number(value: object) -> bool:
    """Whether it is a number that a search can use; what a store or a file holds need not be one. NaN is none."""
    return type(value) in (int, float) and -_LARGEST <= float(value) <= _LARGEST  # type: ignore[arg-type]


#: Transcripts that the space is measured on; candidates with other SVF offsets read some of them anew.
SKETCHES, SVF_SKETCHES, SVF_CANDIDATES = 256, 32, 2


@dataclass(frozen=True, slots=True)
class EvolveConfig:
    """What an evolution is, fixed for its whole life.

    `learner`: sep-CMA-ES as in the paper, the library pycma that its authors used, or what they are compared with:
    REINFORCE, whose population is 1 and whose batch is `tasks_per_candidate` (Adam at `learning_rate`), or random
    search in a box of `box` step sizes. `logit_spread` is the standard deviation that the first generation's logits
    shall have over its candidates in what depends on the transcript, `constant_spread` in what does not (None: no
    difference is made, see `core.evolution.search`); the step size follows from the encoder's hidden states, or is
    `step_size`. `svf_spread` and `svf_step_size` are spread and step size of SVF offsets, where the template has
    any. `common`: one draw of tasks for all candidates of a generation, even over families; otherwise one per
    candidate from all tasks, with replacement, as the paper does. Replies are drawn anew every `rotate_every`
    generations, so that no candidate can learn single replies by heart. `rates` names the optimiser's learning
    rates (see `core.evolution.sep_cma`). Fitness is the mean reward; `diversity` and `turn_cost` weigh the released
    run's further terms (see `fitness.further_terms`). `label_questions`: on so many questions the head is first
    taught by labels (see `core.evolution.supervised`), and the search begins there. `adaptive`:
    `tasks_per_candidate` is where it begins; each generation plays more or fewer tasks, as far as its fitness could
    tell candidates apart."""

    learner: LearnerName = "sep-cma-es"
    generations: int = 120
    population: int = 96
    tasks_per_candidate: int = 8
    adaptive: bool = False
    common: bool = True
    logit_spread: float = 6.0
    constant_spread: float | None = 0.0
    step_size: float | None = None
    svf_spread: float = 1.0
    svf_step_size: float | None = None
    mirrored: bool = True
    rotate_every: int = 10
    turn_budget: int = 5
    validate_every: int = 10
    seed: int = 0
    rates: sep_cma.Preset = "pycma"
    diversity: float = 0.0
    turn_cost: float = 0.0
    learning_rate: float = 1e-2
    box: float = 10.0
    label_questions: int = 0

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value, words = getattr(self, name), name.replace("_", " ")
            if type(value) is not int or value < 1:
                raise ConfigError(
                    f"An evolution with {words} of {value} does nothing: give a whole number, at least 1."
                )
        if type(self.label_questions) is not int or self.label_questions < 0:
            raise ConfigError(
                f"Labels cannot be taken on {self.label_questions} questions: give a whole number, or 0 for none."
            )
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise ConfigError(
                f"A seed of {self.seed} cannot be used: give a whole number from 0 to 2**63 - 1."
            )
        for name in (*_POSITIVE, *_NOT_NEGATIVE):
            value, words = getattr(self, name), name.replace("_", " ")
            if value is None and name in _OPTIONAL:
                continue
            if not _is_number(value) or value < 0 or (value == 0 and name in _POSITIVE):
                fits = "a positive number" if name in _POSITIVE else "0 or a positive number"
                raise ConfigError(
                    f"An evolution's {words} cannot be {value}: give {fits}, at most {_LARGEST:,.0f}."
                )
        self._check_learner()

    def _check_learner(self) -> None:
        """What a learner refuses is refused before anything begins."""
        if self.learner not in get_args(LearnerName):
            raise ConfigError(
                f"There is no learner '{self.learner}': choose {', '.join(get_args(LearnerName))}."
            )
        if self.learner == "reinforce":
            if self.population != 1:
                raise ConfigError(
                    "REINFORCE plays one policy: give a population of 1, and its batch as tasks per candidate."
                )
            reinforce.start(np.zeros(1), self.learning_rate, seed=self.seed)
        elif self.learner == "pycma":
            pycma_search.start(np.zeros(1), 1.0, population=self.population, seed=self.seed)
        elif self.learner == "random-search":
            random_search.start(np.zeros(1), self.box, population=self.population, seed=self.seed)
        else:
            sep_cma.start(
                np.zeros(1),
                1.0,
                population=self.population,
                seed=self.seed,
                mirrored=self.mirrored,
                preset=self.rates,
            )


@dataclass(frozen=True, slots=True)
class Shape:
    """How a learner spreads its episodes by default."""

    generations: int
    population: int
    tasks_per_candidate: int
    rotate_every: int


def shape_of(learner: str, budget: int = DEFAULT_BUDGET) -> Shape:
    """How a learner spreads `budget` episodes: at least ten generations of them, where there are that many.

    pycma plays as the paper does, 32 candidates of 16 tasks, and asks for every reply anew. Random search gives each
    candidate 32 trials (paper A.5). 96 candidates of 8 tasks was the best use of sep-CMA-ES's episodes on validation
    tasks of the pocket world, batches of 128, with chances drawn anew for each, that of REINFORCE's."""
    each = max(1, budget // 10)
    if learner == "pycma":
        population, tasks, rotate_every = max(pycma_search.FEWEST, min(32, each // 16)), 16, 1
    elif learner == "reinforce":
        population, tasks, rotate_every = 1, min(128, each), 1
    elif learner == "random-search":
        population, tasks, rotate_every = max(1, min(16, each // 32)), min(32, each), 10
    else:
        population, tasks, rotate_every = 2 * max(1, min(48, each // 16)), 8, 10
    return Shape(max(1, budget // (population * tasks)), population, tasks, rotate_every)


def label_episodes(n_models: int, n_questions: int) -> int:
    """How many episodes the labels of so many questions take: every model's cycle is chosen on the first of them, then
    each model plays each of them LABEL_REPEATS times."""
    choosing = n_models * len(PLAIN_CYCLES) * min(CHOOSING, n_questions)
    return choosing + LABEL_REPEATS * n_models * n_questions


def transcripts_surveyed(svf: bool) -> int:
    """How many transcripts the encoder reads before an evolution, to measure the space that it searches."""
    return SKETCHES + (SVF_CANDIDATES * SVF_SKETCHES if svf else 0)


def controls_at_most(n_models: int, n_tasks: int) -> int:
    """How many episodes the controls of an evolution play at most."""
    return n_models * len(PLAIN_CYCLES) * min(CHOOSING, n_tasks) + 2 * n_tasks
