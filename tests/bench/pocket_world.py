"""What the pocket world shows: evolved coordinators against every baseline, on fresh test tasks.

Run it with the last checkpoints of some evolutions (folders written by `trinity checkpoints export`), each with the
seed it was evolved from, which its random walk needs too:

    python -m tests.bench.pocket_world 0=FOLDER 1=FOLDER 2=FOLDER --n 1000 --commit "$(git rev-parse HEAD)"

It prints one row per policy: accuracy with a 95 % Wilson interval, share of episodes that end by ACCEPT, mean turns,
and for each checkpoint the paired difference with its bootstrap interval and exact McNemar p. It asserts nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from core.analysis.metrics import mcnemar_p, mean_over_tasks, wilson_interval
from core.checkpoint import Checkpoint, load_checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import load_encoder
from core.draws import derive_seed
from core.episode import ROLE_ORDER, EndReason, Episode, Role, Task
from core.evolution.baselines import Arena, best_cycles, learned_router
from core.evolution.config import EvolveConfig
from core.evolution.cycles import PolicyPerRequest
from core.evolution.evolve import random_walk
from core.evolution.search import space_of
from core.play.policies import CyclePolicy, RandomPolicy, cycle_policy, single_policy
from core.pocket import TRAINED_FAMILIES
from core.pocket.pool import PocketPool
from core.pocket.tasks import draw_tasks
from core.pool.cache import CachedPool
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks

#: The hand-made ceiling: each family's specialists plan and work, the judge checks.
HAND_MADE: Mapping[str, tuple[tuple[str, ...], tuple[Role, ...]]] = {
    "math": (("atlas", "abacus", "themis"), (Role.THINKER, Role.WORKER, Role.VERIFIER)),
    "code": (("atlas", "abacus", "themis"), (Role.THINKER, Role.WORKER, Role.VERIFIER)),
    "logic": (("plato", "plato", "themis"), (Role.THINKER, Role.WORKER, Role.VERIFIER)),
    "knowledge": (("sage", "sage", "themis"), (Role.THINKER, Role.WORKER, Role.VERIFIER)),
}


@dataclass
class Table:
    """Rows as they are measured; every row's outcomes are kept for paired comparison."""

    rows: dict[str, list[bool]] = field(default_factory=dict)

    def add(self, name: str, episodes: Sequence[Episode]) -> None:
        """Measure and print one row."""
        right = [bool(episode.correct) for episode in episodes]
        self.rows[name] = right
        low, high = wilson_interval(sum(right), len(right))
        accepted = np.mean([episode.end_reason is EndReason.ACCEPTED for episode in episodes])
        turns = np.mean([len(episode.turns) for episode in episodes])
        families: dict[str, list[bool]] = {}
        for episode in episodes:
            families.setdefault(episode.task.family, []).append(bool(episode.correct))
        by_family = "  ".join(f"{family} {np.mean(values):.2f}" for family, values in families.items())
        print(
            f"{name:34} {np.mean(right):.3f} [{low:.3f}, {high:.3f}]  "
            f"accept {accepted:.2f}  turns {turns:.2f}  {by_family}",
            flush=True,
        )

    def compare(self, name: str, other: str) -> None:
        """Print the paired difference of two rows."""
        pairs = list(zip(self.rows[name], self.rows[other], strict=True))
        won, lost = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
        outcomes = [lost, won, len(pairs) - lost - won]
        difference, low, high = mean_over_tasks([-1.0, 1.0, 0.0], outcomes, key=f"{name}/{other}")
        print(
            f"  {name} - {other}: {difference:+.3f} [{low:+.3f}, {high:+.3f}]  "
            f"won {won} lost {lost}  McNemar p {mcnemar_p(won, lost):.2g}",
            flush=True,
        )


def tasks_of(split: str, n: int, seed: int) -> list[Task]:
    """n tasks, evenly over the four trained families."""
    return [
        task
        for family in TRAINED_FAMILIES
        for task in draw_tasks(family, split, n // len(TRAINED_FAMILIES), seed)
    ]


def family_router(
    arena: Arena, steps: Mapping[str, tuple[tuple[str, ...], tuple[Role, ...]]], tasks: Sequence[Task]
) -> PolicyPerRequest:
    """The hand-made ceiling: per family a cycle of (models, roles) by someone who knows the pool."""
    policies = {
        family: CyclePolicy(arena.models, models, cycle, "hand-made")
        for family, (models, cycle) in steps.items()
    }
    by_question = {task.question: policies[task.family] for task in tasks}
    return PolicyPerRequest(
        "hand-made", arena.models, lambda request: by_question[request.transcript.question]
    )


def evolved_from(text: str) -> tuple[int, Path]:
    """`SEED=FOLDER` as a pair."""
    seed, folder = text.split("=", 1)
    return int(seed), Path(folder)


def main() -> None:
    """Measure every row and print the comparisons."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoints", nargs="+", type=evolved_from, metavar="SEED=FOLDER")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--validation", type=int, default=120)
    parser.add_argument("--commit", default="0")
    options = parser.parse_args()
    torch.set_num_threads(1)

    seed = derive_seed((options.commit,)) % 10**9
    test, validation = tasks_of("test", options.n, seed), tasks_of("validation", options.validation, seed)
    evolved_on = load_tasks("pocket", "evolve", 1000, 0)
    encoder = load_encoder("pocket")
    arena = Arena(CachedPool(PocketPool()), grade_many, seed=seed)
    table = Table()
    print(
        f"seed {seed} from commit {options.commit}; {len(test)} test tasks, {len(validation)} validation tasks"
    )

    cycles = best_cycles(arena, validation)
    print(
        json.dumps(
            {
                name: ["".join(role[0] for role in one.cycle), round(one.accuracy, 3)]
                for name, one in cycles.items()
            }
        )
    )
    best = max(arena.models, key=lambda name: cycles[name].accuracy)  # on validation tasks
    single = single_policy(best, arena.models, cycles[best].cycle)
    solved = []
    for model in arena.models:
        episodes = arena.play(single_policy(model, arena.models, cycles[model].cycle), test)
        solved.append([bool(episode.correct) for episode in episodes])
        table.add(f"single:{model}", episodes)
    union = np.any(np.array(solved), axis=0)
    print(f"{'per-question union':34} {union.mean():.3f}")
    table.add("random", arena.play(RandomPolicy(arena.models), test))
    table.add(
        "random-model",
        arena.play(cycle_policy("random-model", arena.models, cycles["random-model"].cycle), test),
    )
    router_tasks = tasks_of("evolve", 800, seed)
    table.add("router", arena.play(learned_router(arena, cycles, encoder, router_tasks, test), test))
    table.add("hand-made", arena.play(family_router(arena, HAND_MADE, test), test))

    for number, folder in options.checkpoints:
        last = load_checkpoint(folder)
        name = f"evolved-{number}"
        table.add(name, arena.play(Coordinator(last, encoder), test))
        table.add(f"{name} argmax", arena.play(Coordinator(last, encoder, argmax=True), test))
        for masked in (Role.THINKER, Role.VERIFIER):
            allowed = [role is not masked for role in ROLE_ORDER]
            table.add(
                f"{name} without {masked}", arena.play(Coordinator(last, encoder), test, role_mask=allowed)
            )
            table.compare(name, f"{name} without {masked}")
            label = f"{name} argmax without {masked}"
            table.add(label, arena.play(Coordinator(last, encoder, argmax=True), test, role_mask=allowed))
            table.compare(f"{name} argmax", label)
        zeros = Checkpoint.begin(last.models, last.encoder)
        config = EvolveConfig(generations=last.generation or 1, seed=number)
        space = space_of(config, zeros, encoder, evolved_on)
        walked = last.with_vector(random_walk(config, space))
        table.add(f"{name} generation 0", arena.play(Coordinator(zeros, encoder), test))
        table.add(f"{name} random walk", arena.play(Coordinator(walked, encoder), test))
        for variant in (name, f"{name} argmax"):
            for other in (
                single.id,
                "random",
                "random-model",
                "router",
                "hand-made",
                f"{name} generation 0",
                f"{name} random walk",
            ):
                table.compare(variant, other)


if __name__ == "__main__":
    main()
