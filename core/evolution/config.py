"""What an evolution is: its learner, sizes and options, refused at once when nothing could come of them; where the
defaults are not the paper's, and which of its episodes are kept (no torch)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from core.checkpoint import Checkpoint
from core.episode import Episode
from core.errors import ConfigError
from core.evolution.cycles import PLAIN_CYCLES
from core.evolution.learners import FEWEST, begin
from core.evolution.sep_cma import Preset
from core.fields import MOST_TASKS, LearnerSeed, Setting, Turns, check
from core.play.policies import CANDIDATE

LearnerName = Literal["sep-cma-es", "pycma", "reinforce", "random-search"]
RecordName = Literal["none", "share", "all"]
#: Of how many candidates of each generation a share keeps the episodes.
SHARED_CANDIDATES = 4

#: Tasks on which an evolution's best single model and its cycle are chosen.
CHOOSING = 48

#: Repeats of each model on each question from which its label is taken (paper A.5).
LABEL_REPEATS = 3

#: Episodes that an evolution plays for its fitness where nothing else is said.
DEFAULT_BUDGET = 92_160

#: How many times as many tasks per candidate, or as few, an adaptive evolution may come to play.
ADAPTED_AT_MOST = 4


#: The learners that search with a population of candidates.
SEARCHES: tuple[LearnerName, ...] = ("sep-cma-es", "pycma", "random-search")
#: A step or a weight beyond this drives numbers of a head, kept as float32, out of their range.
_LARGEST = 1e6

#: Transcripts that the space is measured on; candidates with other SVF offsets read some of them anew.
SKETCHES, SVF_SKETCHES, SVF_CANDIDATES = 256, 32, 2


@dataclass(frozen=True, slots=True)
class EvolveConfig:
    """What an evolution is, fixed for its whole life.

    `learner`: sep-CMA-ES as in the paper, the library pycma that its authors used, or what they are compared with:
    REINFORCE, whose population is 1 and whose batch is `tasks_per_candidate`, or random search in a box.
    `logit_spread` is the standard deviation that the first generation's logits shall have over its candidates in what
    depends on the transcript, `constant_spread` in what does not (None: no difference is made, see
    `core.evolution.search`); the step size follows from the encoder's hidden states. `common`: tasks are drawn evenly
    over families. Replies are drawn anew now and then, so that no candidate can learn single replies by heart. Fitness
    is the mean reward; `diversity` and `turn_cost` weigh the released run's further terms (see
    `fitness.further_terms`). Labels: see `core.evolution.baselines`."""

    learner: Annotated[LearnerName, Setting(option="--learner", metavar="NAME", term="Learner")] = (
        "sep-cma-es"
    )
    """sep-cma-es, or one to compare it with: pycma, reinforce, random-search."""
    generations: Annotated[
        int, Setting(ge=1, le=MOST_TASKS, option="--generations", term="Generation", open=True)
    ] = 120
    """How many generations. Left out: as many as make 92,160 episodes."""
    population: Annotated[
        int,
        Setting(
            "Candidates in each",
            ge=1,
            le=MOST_TASKS,
            word="auto",
            option="--population",
            metavar="N|auto",
            term="Candidate",
            learners=SEARCHES,
            open=True,
        ),
    ] = 96
    """Candidates per generation; auto: 4 + 3 ln n for n numbers. Left out: 96; pycma 32, random-search 16,
    reinforce 1."""
    tasks_per_candidate: Annotated[int, Setting(ge=1, le=MOST_TASKS, option="--replicates", open=True)] = 8
    """Tasks each candidate plays per generation. Left out: 8; pycma 16, random-search 32, reinforce 128."""
    adaptive: Annotated[bool, Setting("Adapt the number of tasks", learners=SEARCHES)] = False
    """Begin with so many tasks, then as many as tell candidates apart."""
    common: Annotated[bool, Setting("Common tasks for all candidates")] = True
    """One draw of tasks for all candidates; false: one for each with replacement, as in the paper."""
    rotate_every: Annotated[int, Setting("New replies every", ge=1, open=True)] = 10
    """Replies are drawn anew every so many generations. Left out: 10; pycma and reinforce 1."""
    turn_budget: Turns = 5
    validate_every: Annotated[int, Setting(group="tasks", ge=1, option="--validate-every")] = 10
    """Measure the mean every so many generations."""
    seed: LearnerSeed = 0
    rates: Annotated[Preset, Setting("Learning rates", group="search", learners=("sep-cma-es",))] = "pycma"
    """Learning rates of sep-CMA-ES by their library."""
    mirrored: Annotated[
        bool, Setting("Mirrored pairs", group="search", option="--mirrored", learners=("sep-cma-es",))
    ] = True
    """Candidates in mirrored pairs, or each on its own."""
    logit_spread: Annotated[
        float, Setting("First spread of the logits", group="search", gt=0, le=_LARGEST, learners=SEARCHES)
    ] = 6.0
    """How far the first candidates' logits spread; sets the step size."""
    constant_spread: Annotated[
        float | None,
        Setting(
            "Spread of what is constant",
            group="search",
            ge=0,
            le=_LARGEST,
            word="plain",
            learners=SEARCHES,
            open=True,
        ),
    ] = 0.0
    """logit_spread of preferences that no transcript changes; 0: none, "plain": no difference. Left out: 0 with the
    pocket pool, else as logit_spread."""
    step_size: Annotated[
        float | None, Setting(group="search", gt=0, le=_LARGEST, learners=SEARCHES, open=True)
    ] = None
    """The head's first step size. Left out: by logit_spread."""
    svf_spread: Annotated[
        float, Setting("Spread by singular values", group="search", gt=0, le=_LARGEST, learners=SEARCHES)
    ] = 1.0
    """How far the first candidates' logits spread by singular values alone."""
    svf_step_size: Annotated[
        float | None,
        Setting("SVF step size", group="search", gt=0, le=_LARGEST, learners=SEARCHES, open=True),
    ] = None
    """Their first step size. Left out: by svf_spread."""
    learning_rate: Annotated[float, Setting(group="search", gt=0, le=_LARGEST, learners=("reinforce",))] = (
        1e-2
    )
    """REINFORCE's, for Adam."""
    box: Annotated[
        float, Setting("Half of its box", group="search", gt=0, le=_LARGEST, learners=("random-search",))
    ] = 10.0
    """Half of random search's box, in step sizes."""
    label_questions: Annotated[
        int,
        Setting("Questions with labels", group="search", ge=0, le=MOST_TASKS, option="--labels", metavar="N"),
    ] = 0
    """First teach the head which model does best on each of N questions, asked three times."""
    teacher: Annotated[
        str, Setting("Teacher of the head", group="search", option="--teacher", metavar="POLICY")
    ] = ""
    """A policy that plays those N questions in the models' place: the head learns to choose as it does."""
    diversity: Annotated[float, Setting("Weight of diversity", group="reward", ge=0, le=_LARGEST)] = 0.0
    """Weight of the entropy of chosen models in the fitness (released run: 0.15)."""
    turn_cost: Annotated[float, Setting("Weight of turns", group="reward", ge=0, le=_LARGEST)] = 0.0
    """Weight of turns taken, against the fitness (released run: 0.1)."""

    def __post_init__(self) -> None:
        check(self)
        if self.teacher and not self.label_questions:
            raise ConfigError("A teacher needs questions to play: say how many with --labels.")
        begin(self, np.zeros(1))  # what a learner refuses is refused before anything begins


def shape_of(learner: str, budget: int = DEFAULT_BUDGET) -> dict[str, int]:
    """How a learner spreads `budget` episodes, as fields of an `EvolveConfig`: at least ten generations
    of them, where there are that many.

    pycma plays as the paper does, 32 candidates of 16 tasks, and asks for every reply anew. Random search gives each
    candidate 32 trials (paper A.5). 96 candidates of 8 tasks was the best use of sep-CMA-ES's episodes on validation
    tasks of the pocket world, batches of 128, with chances drawn anew for each, that of REINFORCE's."""
    each = max(1, budget // 10)
    if learner == "pycma":
        population, tasks, rotate_every = max(FEWEST, min(32, each // 16)), 16, 1
    elif learner == "reinforce":
        population, tasks, rotate_every = 1, min(128, each), 1
    elif learner == "random-search":
        population, tasks, rotate_every = max(1, min(16, each // 32)), min(32, each), 10
    else:
        population, tasks, rotate_every = 2 * max(1, min(48, each // 16)), 8, 10
    return {
        "generations": max(1, budget // (population * tasks)),
        "population": population,
        "tasks_per_candidate": tasks,
        "rotate_every": rotate_every,
    }


def label_episodes(n_models: int, n_questions: int, repeats: int = LABEL_REPEATS) -> int:
    """How many episodes the labels of so many questions take: every model's cycle is chosen on the first of them, then
    each model plays each of them so many times."""
    choosing = n_models * len(PLAIN_CYCLES) * min(CHOOSING, n_questions)
    return choosing + repeats * n_models * n_questions


def controls_at_most(n_models: int, n_tasks: int) -> int:
    """How many episodes the controls of an evolution play at most."""
    return n_models * len(PLAIN_CYCLES) * min(CHOOSING, n_tasks) + 2 * n_tasks


#: What differs, in a sentence each. `trinity evolve --preset paper` leaves out all but the last two.
DEPARTURES = (
    "The optimiser is our own, with pycma's learning rates; the paper's is pycma itself, which adapts the step size "
    "by comparing two points.",
    "Candidates come in mirrored pairs.",
    "The first step size follows from the encoder's hidden states, so that logits spread by 6; the paper's is 0.03.",
    "With the pocket pool the search leaves out preferences that are the same for every transcript.",
    "96 candidates play 8 tasks each in a generation; the paper's 32 play 16.",
    "All candidates of a generation play the same tasks, evenly from every family; the paper draws each candidate's "
    "own, with replacement.",
    "Chances and replies are common to all candidates and are used again for ten generations; the paper draws and asks "
    "every time.",
    "An evolution plays 92,160 episodes where it is not told otherwise; the paper's 60 generations play 30,720.",
    "Candidates whose fitness is equal share their weight, and a generation in which no episode ended changes nothing.",
    "The mean is validated every 10 generations on 200 tasks; the paper's every 5 on 300.",
    "Singular values stay as they are unless --svf is given; the paper evolves them too.",
)

#: The paper's own setting, as fields of an `EvolveConfig`; 32 candidates, 16 tasks and fresh replies go with pycma.
PAPER_SETTING: Mapping[str, Any] = {
    "learner": "pycma",
    "step_size": 0.03,
    "svf_step_size": 0.03,
    "constant_spread": None,
    "common": False,
    "mirrored": False,
}


@dataclass(frozen=True, slots=True)
class Recording:
    """Names the episodes of the evolution `run_id` that are kept: with `share` those of each validation and of
    SHARED_CANDIDATES candidates in each generation, evenly spread over the population and so not chosen by how they
    did; with `all` those of each validation and of every candidate.

    A name says generation and place in it, and so is the same when the generation has to be played again."""

    run_id: str = ""
    record: RecordName = "none"

    def of_candidates(self, played: Sequence[Sequence[Episode]], generation: int) -> tuple[Episode, ...]:
        """The episodes to keep of those that each candidate of a generation has played."""
        chosen: Sequence[int] = ()
        if self.record == "all":
            chosen = range(len(played))
        elif self.record == "share":
            n = min(SHARED_CANDIDATES, len(played))
            chosen = [place * len(played) // n for place in range(n)]
        return tuple(
            self._named(
                episode,
                f"{generation:04d}-{candidate:03d}-{number:03d}",
                f"{CANDIDATE}{self.run_id}/{generation}/{candidate}",
                generation,
            )
            for candidate in chosen
            for number, episode in enumerate(played[candidate])
        )

    def of_validation(self, played: Sequence[Episode], checkpoint: Checkpoint) -> tuple[Episode, ...]:
        """The episodes to keep of those that a generation's checkpoint has played on held-apart tasks."""
        if self.record == "none":
            return ()
        generation = checkpoint.generation or 0
        return tuple(
            self._named(episode, f"{generation:04d}-v-{number:03d}", checkpoint.id, generation)
            for number, episode in enumerate(played)
        )

    def _named(self, played: Episode, place: str, policy: str, generation: int) -> Episode:
        name = f"e{self.run_id[1:]}-{place}"
        turns = tuple(replace(turn, episode_id=name) for turn in played.turns)
        judgements = tuple(replace(one, episode_id=name) for one in played.judgements)
        own: dict[str, Any] = {"id": name, "run_id": self.run_id, "turns": turns, "judgements": judgements}
        return replace(played, policy=policy, generation=generation, **own)
