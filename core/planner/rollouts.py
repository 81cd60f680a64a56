"""The questions that are learned on, the episodes of one iteration on them, and what each of these earns.

Where every rollout of a question succeeds, or every one fails, there is no advantage and nothing is learned. What can
be told before the planner has learned anything: whether single models and random workflows come to both. So those
questions are kept that the pool's models disagree on. A random subset of the models teaches to do without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.conduct.planners import FixedPlanner, WrappedPlanner, random_workflow
from core.conduct.prompts import WORDS, words_of
from core.conduct.reading import read_workflow
from core.conduct.session import Planner
from core.draws import derive_seed, uniform
from core.episode import EndReason, Episode, Reply, Status, Task, WritePlan
from core.errors import CheckpointError, ConfigError
from core.learning import Candidates, check_answered, episodes_of, play_all
from core.planner.config import LearnConfig
from core.planner.planner import LanguagePlanner, Sampled, as_reply
from core.planner.statistics import FREE_PLANS
from core.play.drive import GradeMany
from core.pool.pool import Pool
from core.pool.spec import slots_of
from core.workflow import MOST_STEPS, Workflow

#: Questions that are probed at once: enough to fill batches, and not many more than are needed.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Played episodes, the `size` rollouts of each question one after the other, with the tokens that the planner wrote
    for each and what each earns (NaN: missing)."""

    size: int
    episodes: tuple[Episode, ...]
    written: tuple[Sampled, ...]
    rewards: tuple[float, ...]

    @property
    def reward_mean(self) -> float:
        """Over those that are not missing; NaN where all are."""
        known = [reward for reward in self.rewards if not math.isnan(reward)]
        return sum(known) / len(known) if known else math.nan

    @property
    def signal(self) -> float:
        """The share of groups whose known rewards differ."""
        groups = [self.rewards[start : start + self.size] for start in range(0, len(self.rewards), self.size)]
        differ = [len({reward for reward in group if not math.isnan(reward)}) > 1 for group in groups]
        return sum(differ) / len(differ)


class LearningPolicy(WrappedPlanner):
    """A planner as a policy of rollouts: it writes for each episode by a key of that episode's own, and the tokens that
    it wrote are kept."""

    def __init__(self, planner: LanguagePlanner, key: str) -> None:
        super().__init__(planner)
        self.planner, self.key = planner, key
        self.written: dict[str, Sampled] = {}  # by episode

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """The planner's replies, by keys of the episodes."""
        sampled = self.planner.sample(requests, [f"{self.key}/{one.episode_id}" for one in requests])
        self.written.update(zip((one.episode_id for one in requests), sampled, strict=True))
        return [as_reply(one) for one in sampled]


def disputed_questions(
    config: LearnConfig, models: Sequence[str], tasks: Sequence[Task], pool: Pool, grade: GradeMany
) -> list[Task]:
    """The first `config.problems` tasks, in their order, that some probes solve and others do not. ConfigError where
    there are none, PoolError where no model could be asked."""
    kept: list[Task] = []
    for start in range(0, len(tasks), _AT_ONCE):
        some = tasks[start : start + _AT_ONCE]
        solved = _probe_all(config, tuple(models), some, pool, grade)
        kept += [task for task in some if len(solved[task.id]) > 1]
        if len(kept) >= config.problems:
            break
    if not kept:
        raise ConfigError(
            f"None of the {len(tasks)} questions is solved by some of the pool's models and not by others: nothing can "
            "be learned on them. Choose others, or more probes."
        )
    return kept[: config.problems]


def _probe_all(
    config: LearnConfig, models: tuple[str, ...], tasks: Sequence[Task], pool: Pool, grade: GradeMany
) -> dict[str, set[bool]]:
    """By task, what its probes came to: True where one was right, False where one was wrong."""
    seed = derive_seed((config.seed, "probes"))
    found: dict[str, set[bool]] = {task.id: set() for task in tasks}
    played: list[Episode] = []
    for number in range(len(models) + config.probes):
        planner = _probe(
            models, number, f"{config.seed}/probes/{number}", words_of(slots_of(pool.specs)) or (*WORDS,)
        )
        episodes = _episodes(tasks, planner, seed, f"p{number}")
        played += play_all(episodes, planner, pool, grade)
    check_answered(played, "for the choice of questions")
    for one in played:
        if one.correct is not None:
            found[one.task.id].add(one.correct)
    return found


def _probe(models: tuple[str, ...], number: int, key: str, words: tuple[str, ...]) -> FixedPlanner:
    """A single model that solves, for each of the models; after those random workflows of these words."""
    slots = tuple(range(len(models)))
    alone = Workflow((number % len(models),), ("solve",), ((),))
    workflow = alone if number < len(models) else random_workflow(key, slots, words)
    return FixedPlanner(f"conductor:probe:{number}", models, workflow)


def questions_of(config: LearnConfig, tasks: Sequence[Task], iteration: int) -> list[Task]:
    """The questions of an iteration, from 1: all of them are gone through in a random order, then in another one."""
    found = []
    for number in range((iteration - 1) * config.questions, iteration * config.questions):
        turn, place = divmod(number, len(tasks))
        order = np.argsort(uniform(f"{config.seed}/questions/{turn}", len(tasks)))
        found.append(tasks[int(order[place])])
    return found


def random_subset(key: str, n: int, least: int = 2) -> tuple[int, ...]:
    """`least` to `n` - 1 of n slots, each number of them equally likely, in order, drawn by `key`; all of them where
    there are not more than `least`."""
    draws = uniform(key, n + 1)
    size = n if n <= least else least + int(draws[0] * (n - least))
    order = sorted(range(n), key=lambda slot: float(draws[1 + slot]))
    return tuple(sorted(order[:size]))


def left_out_of(config: LearnConfig, models: Sequence[str], iteration: int, place: int) -> tuple[str, ...]:
    """The models that a question of an iteration, at this place of it, is played without: for many of them none."""
    key = f"{config.seed}/models/{iteration}/{place}"
    share = config.subset_share if iteration > config.subset_from * config.iterations else 0.0
    if float(uniform(f"{key}/partial")[0]) >= share:
        return ()
    kept = random_subset(key, len(models), config.least_models)
    return tuple(name for slot, name in enumerate(models) if slot not in kept)


def unplayed(
    config: LearnConfig, planner: LanguagePlanner, tasks: Sequence[Task], iteration: int
) -> Candidates:
    """The rollouts of an iteration. All of a question's may name the same models, and each has chances of its own: with
    shared ones, a model that was lucky once would be lucky in the whole group."""
    seeds = [derive_seed((config.seed, "replies", iteration, number)) for number in range(config.rollouts)]
    episodes = []
    for place, task in enumerate(questions_of(config, tasks, iteration)):
        left_out = left_out_of(config, planner.models, iteration, place)
        [first] = _episodes([task], planner, 0, "i")
        episodes += [
            replace(first, id=f"i{iteration}-{place}-{number}", seed=seed, left_out=left_out)
            for number, seed in enumerate(seeds)
        ]
    return Candidates(episodes, LearningPolicy(planner, f"{config.seed}/rollouts"))


def rollouts_of(config: LearnConfig, candidates: Candidates, played: Sequence[Episode]) -> Rollouts:
    """Played candidates with what the planner wrote for them, and what each earns."""
    assert isinstance(candidates.policy, LearningPolicy)
    written = candidates.policy.written
    if unwritten := [one for one in played if one.id not in written]:  # nothing to learn from
        raise CheckpointError(f"The planner could not write all of its workflows: {unwritten[0].error}")
    return Rollouts(
        config.rollouts,
        tuple(played),
        tuple(written[one.id] for one in played),
        tuple(reward_of(config, one) for one in played),
    )


def reward_of(config: LearnConfig, episode: Episode) -> float:
    """The reward of a played episode; NaN where it is missing."""
    if episode.status is not Status.FINISHED:
        return math.nan
    if episode.end_reason is not EndReason.COMPLETED:
        return config.unreadable
    return config.right if episode.correct else config.wrong


def exam_of(config: LearnConfig, planner: LanguagePlanner, tasks: Sequence[Task]) -> Candidates:
    """The planner on tasks that it does not learn on, with all models; the same chances in every validation."""
    episodes = _episodes(tasks, planner, derive_seed((config.seed, "validation")), "v")
    return Candidates(episodes, LearningPolicy(planner, f"{config.seed}/validation"))


def free_share(planner: LanguagePlanner, played: Sequence[Episode]) -> float:
    """The share of readable plans that a planner writes without the grammar that forces their form, for the questions
    of the first `FREE_PLANS` of these episodes; NaN for a planner that writes without one anyway."""
    asked = [one for one in played if one.plans][:FREE_PLANS]
    if not planner.card.constrained or not asked:
        return math.nan
    allowed = tuple(range(len(planner.models)))
    requests = [
        WritePlan(one.plans[0].messages, one.task.question, allowed, f"free/{one.seed}/{one.task.id}")
        for one in asked
    ]
    read = (
        read_workflow(one.text, allowed=allowed, mode=planner.mode)
        for one in planner.freely().write(requests)
    )
    return sum(isinstance(one, Workflow) for one in read) / len(asked)


def _episodes(tasks: Sequence[Task], planner: Planner, seed: int, prefix: str) -> list[Episode]:
    models, budget = planner.models, MOST_STEPS
    return episodes_of(tasks, models, seed=seed, turn_budget=budget, prefix=prefix, policy=planner.id)
