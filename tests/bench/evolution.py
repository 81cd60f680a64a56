"""Counts what an evolution saves against the naive loop (a forward per decision, a call per turn), and times both.

    trinity bench evolution [--generations 60] [--population 192] [--replicates 8] [--naive 48] [--json]

Ours is `core.evolution.evolve` on the pocket world from its beginning to its end, by default as long as an evolution is
by default (some ten minutes): the nearer candidates come to each other, the more they share. The naive loop plays
episodes of the last generation again, one after the other, each decision by a forward of its own and each turn by a
call of its own, as many as `--naive` says; the same seeds give it the same episodes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoded, load_encoder
from core.drive import drive
from core.episode import Ask, EpisodeFinished, Reply
from core.evolution.config import EvolveConfig
from core.evolution.evolve import evolve
from core.evolution.fitness import episodes_of
from core.pocket import MODELS
from core.pocket.pool import PocketPool
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks


class TimedPool(PocketPool):
    """The pocket pool, with the seconds it takes to reply."""

    seconds = 0.0

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """As the pocket pool does."""
        began = time.perf_counter()
        replies = list(super().ask(asks))
        self.seconds += time.perf_counter() - began
        yield from replies


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="trinity bench evolution", description=__doc__)
    parser.add_argument("--generations", type=int, default=60)
    parser.add_argument("--population", type=int, default=192)
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--naive", type=int, default=48, help="episodes of the naive loop")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()

    encoder, pool = load_encoder("pocket"), TimedPool()
    encode, reading = encoder.encode, [0.0]

    def timed_encode(*arguments: Any, **named: Any) -> Encoded:
        began = time.perf_counter()
        found = encode(*arguments, **named)
        reading[0] += time.perf_counter() - began
        return found

    encoder.encode = timed_encode  # type: ignore[method-assign]
    template = Checkpoint.begin(MODELS, encoder.identity)
    config = EvolveConfig(
        generations=asked.generations, population=asked.population, tasks_per_candidate=asked.replicates
    )
    tasks = load_tasks("pocket", "evolve", 1000, 0)
    began = time.perf_counter()
    generations = []
    for one in evolve(config, template, encoder=encoder, pool=pool, grade=grade_many, tasks=tasks):
        generations.append(one)
        print(f"generation {one.index} of {config.generations}", file=sys.stderr)
    seconds = time.perf_counter() - began
    where = {"replying": pool.seconds / seconds, "reading transcripts": reading[0] / seconds}
    where["all else"] = 1 - sum(where.values())
    played = config.generations * config.population * config.tasks_per_candidate
    decisions = sum(one.decisions for one in generations)
    forwards = sum(one.forwards for one in generations)
    turns_asked = sum(one.calls + one.calls_saved for one in generations)
    calls = sum(one.calls for one in generations)

    last = generations[-1].checkpoint
    fresh = episodes_of(tasks[: asked.naive], MODELS, seed=1, turn_budget=config.turn_budget, prefix="naive")
    policy = Coordinator(last, encoder)
    given, read = encoder.given, encoder.forwards
    began = time.perf_counter()
    solved = []
    for episode in fresh:
        for event in drive(episode, policy, pool, grade_many):
            encoder.forget()  # so that each decision is read anew
            if isinstance(event, EpisodeFinished):
                solved.append(bool(event.episode.correct))
    naive_seconds = time.perf_counter() - began
    assert encoder.forwards - read == encoder.given - given, "the naive loop must read each transcript anew"

    ours_rate, naive_rate = played / seconds, len(fresh) / naive_seconds
    ratios = {
        "forwards_saved": decisions / forwards,
        "calls_saved": turns_asked / calls,
        "episodes_per_second": ours_rate / naive_rate,
    }
    measured = {
        "episodes": played,
        "decisions": decisions,
        "forwards": forwards,
        "turns_asked": turns_asked,
        "calls": calls,
        "episodes_per_second": ours_rate,
        "where_the_time_goes": where,
        "naive_episodes_per_second": naive_rate,
        "naive_accuracy": float(np.mean(solved)),
    }
    versions = {name: version(name) for name in ("torch", "transformers", "numpy")}
    if asked.json:
        workload = {
            "generations": asked.generations,
            "population": asked.population,
            "replicates": asked.replicates,
        }
        print(
            json.dumps({"workload": workload, "versions": versions, "measured": measured, "ratios": ratios})
        )
        return
    print(f"{played:,} episodes in {seconds:.0f} s: {ours_rate:.0f} a second; {versions}")
    print("time: " + ", ".join(f"{name} {share:.0%}" for name, share in where.items()))
    print(
        f"{decisions:,} transcripts to read, {forwards:,.0f} forwards: {ratios['forwards_saved']:.1f} times fewer"
    )
    print(f"{turns_asked:,} replies wanted, {calls:,} calls: {ratios['calls_saved']:.1f} times fewer")
    print(
        f"naive loop: {naive_rate:.1f} episodes a second over {len(fresh)}; ours is "
        f"{ratios['episodes_per_second']:.0f} times as fast"
    )


if __name__ == "__main__":
    main()
