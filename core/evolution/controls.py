"""The controls of an evolution: its own random walk, and the best single model at the same turn budget."""

from __future__ import annotations

from collections.abc import Sequence

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder
from core.episode import Task
from core.evolution.config import CHOOSING, EvolveConfig
from core.evolution.cycles import PLAIN_CYCLES, choose_cycles, try_cycles
from core.evolution.evolve import random_walk, unplayed, validation_seed
from core.evolution.fitness import statistics_of
from core.evolution.generation_stats import EpisodeStatistics
from core.evolution.search import Survey, space_of
from core.learning import play_all
from core.play.drive import GradeMany
from core.play.policies import SINGLE, single_policy
from core.play.policy import Policy
from core.pool.pool import Pool


def controls(
    config: EvolveConfig,
    template: Checkpoint,
    *,
    encoder: Encoder,
    pool: Pool,
    grade: GradeMany,
    tasks: Sequence[Task],
    validation_tasks: Sequence[Task],
    surveyed: Survey | None = None,
) -> dict[str, EpisodeStatistics]:
    """Play what learned nothing, the controls of an evolution of `template` on `tasks`, with the seeds of its
    validation. By name: "random walk", or a model and its cycle such as "single:ann T W"."""

    def play(policy: Policy, prefix: str) -> EpisodeStatistics:
        episodes = unplayed(config, template, validation_tasks, prefix, validation_seed(config))
        return statistics_of(play_all(episodes, policy, pool, grade))

    found = {}
    if config.learner == "sep-cma-es":  # the others have no walk of their own
        end = random_walk(config, space_of(config, template, encoder, tasks, surveyed))
        walk = template.with_vector(end, kind="random walk")
        found["random walk"] = play(Coordinator(walk, encoder), "walk")
    names = [f"{SINGLE}{model}" for model in template.models]
    trials = try_cycles(
        names,
        pool,
        grade,
        validation_tasks[:CHOOSING],
        turn_budget=config.turn_budget,
        seed=validation_seed(config),
        cycles=PLAIN_CYCLES,
        protocol=template.protocol,
    )
    chosen = choose_cycles(trials)
    name = max(names, key=lambda one: chosen[one].accuracy)
    cycle = chosen[name].cycle
    single = single_policy(name.removeprefix(SINGLE), template.models, cycle)
    letters = " ".join(role.value[0].upper() for role in cycle)
    return {**found, f"{name} {letters}": play(single, "single")}
