"""The episodes of one iteration: which questions with which models, played by the planner as it stands, and what each
of them earns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from core.conduct.planners import Conductor
from core.conduct.reading import read_workflow
from core.draws import derive_seed, uniform
from core.episode import EndReason, Episode, Reply, Status, Task, WritePlan
from core.errors import CheckpointError
from core.learning import Candidates
from core.planner.config import LearnConfig
from core.planner.planner import LanguagePlanner, as_reply
from core.planner.statistics import FREE_PLANS
from core.planner.subsets import random_subset
from core.planner.writing import Sampled
from core.workflow import MOST_STEPS, Workflow


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


@dataclass(frozen=True, slots=True)
class LearningPolicy(Conductor):
    """A planner as a policy of rollouts: it writes for each episode by a key of that episode's own, and the tokens that
    it wrote are kept."""

    planner: LanguagePlanner
    key: str
    written: dict[str, Sampled] = field(default_factory=dict)  # by episode

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """The planner's replies, by keys of the episodes."""
        sampled = self.planner.sample(requests, [f"{self.key}/{one.episode_id}" for one in requests])
        self.written.update(zip((one.episode_id for one in requests), sampled, strict=True))
        return [as_reply(one) for one in sampled]


def questions_of(config: LearnConfig, tasks: Sequence[Task], iteration: int) -> list[Task]:
    """The questions of an iteration, from 1: all of them are gone through in a random order, then in another one."""
    found = []
    for number in range((iteration - 1) * config.questions, iteration * config.questions):
        turn, place = divmod(number, len(tasks))
        order = np.argsort(uniform(f"{config.seed}/questions/{turn}", len(tasks)))
        found.append(tasks[int(order[place])])
    return found


def left_out_of(config: LearnConfig, models: Sequence[str], iteration: int, place: int) -> tuple[str, ...]:
    """The models that a question of an iteration, at this place of it, is played without: for many of them none."""
    key = f"{config.seed}/models/{iteration}/{place}"
    if float(uniform(f"{key}/partial")[0]) >= config.subset_share_at(iteration):
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
        episodes += [
            _episode(f"i{iteration}-{place}-{number}", task, planner, seed, left_out)
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
        tuple(earned(config, one) for one in played),
    )


def earned(config: LearnConfig, episode: Episode) -> float:
    """The reward of a played episode; NaN where it is missing."""
    if episode.status is not Status.FINISHED:
        return math.nan
    if episode.end_reason is not EndReason.COMPLETED:
        return config.unreadable
    return config.right if episode.correct else config.wrong


def exam_of(config: LearnConfig, planner: LanguagePlanner, tasks: Sequence[Task]) -> Candidates:
    """The planner on tasks that it does not learn on, with all models; the same chances in every validation."""
    seed = derive_seed((config.seed, "validation"))
    episodes = [_episode(f"v-{number}", task, planner, seed) for number, task in enumerate(tasks)]
    return Candidates(episodes, LearningPolicy(planner, f"{config.seed}/validation"))


def readable_freely(planner: LanguagePlanner, played: Sequence[Episode]) -> float:
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


def _episode(
    name: str, task: Task, planner: LanguagePlanner, seed: int, left_out: tuple[str, ...] = ()
) -> Episode:
    return Episode(
        id=name,
        run_id="",
        task=task,
        policy=planner.id,
        models=planner.models,
        turn_budget=MOST_STEPS,
        seed=seed,
        left_out=left_out,
    )
