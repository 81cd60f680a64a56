"""Counts and times what an evolution saves against the naive loop, and what a second process brings.

Ours is `core.evolution.evolve` on the pocket world from its beginning to its end, by default as long as an evolution is
by default (some ten minutes): the nearer candidates come to each other, the more they share. It reads part by part, as
every large encoder does, though the pocket encoder is small: a forward is one prompt's tokens through all layers, and
what was read of its beginning is not read again. `--whole` reads whole prompts in batches. The naive loop, a forward
per decision and a call per turn, plays episodes of the last generation again, one after the other, as many as `--naive`
says; the same seeds give it the same episodes. `--generations 0` leaves this out.

Then evolutions of `--shared` generations of 48 candidates x 8 tasks (0 leaves this out) in one process and in two, each
with nothing beside it and beside a process that counts, `--repeats` times in turn, once all models are loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.states import Encoded, Reading
from core.episode import Ask, Episode, EpisodeFinished, Reply
from core.evolution.config import EvolveConfig
from core.evolution.evolve import Generation, evolve
from core.learning import episodes_of
from core.play.drive import drive
from core.pocket import MODELS, threads
from core.pocket.pool import PocketPool
from core.processes import Processes
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from tests.bench._frame import Figures, run, say


class TimedPool(PocketPool):
    """The pocket pool, with the seconds it takes to reply."""

    seconds = 0.0

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """As the pocket pool does."""
        began = time.perf_counter()
        replies = list(super().ask(asks))
        self.seconds += time.perf_counter() - began
        yield from replies


def measure(
    generations: int = 120,
    population: int = 96,
    replicates: int = 8,
    naive: Annotated[int, "episodes of the naive loop"] = 48,
    shared: Annotated[int, "generations in one process and in two"] = 2,
    repeats: Annotated[int, "of each of them"] = 3,
    whole: Annotated[bool, "ours reads whole prompts in batches, as it does with a small encoder"] = False,
) -> Figures:
    """Both parts, or one where the other has no generations."""
    found: Figures = {
        "versions": {name: version(name) for name in ("torch", "transformers", "numpy")},
        "cores": os.cpu_count(),
    }
    if generations:
        workload = {"generations": generations, "population": population, "replicates": replicates}
        config = EvolveConfig(generations=generations, population=population, tasks_per_candidate=replicates)
        found |= {"workload": workload, **against_naive(config, naive, whole)}
    if shared:
        found["processes"] = in_one_and_in_two(shared, repeats)
    return found


def against_naive(config: EvolveConfig, naive: int, whole: bool) -> Figures:
    """Ours beside the naive loop."""
    plain, pool = load_encoder("pocket"), TimedPool()
    with patch.object(threads, "SMALL", threads.SMALL if whole else 0):
        encoder = load_encoder("pocket")
    encode, reading = encoder.encode, [0.0]

    def timed_encode(*arguments: Any, **named: Any) -> Encoded:
        began = time.perf_counter()
        found = encode(*arguments, **named)
        reading[0] += time.perf_counter() - began
        return found

    encoder.encode = timed_encode  # type: ignore[method-assign]
    template = Checkpoint.begin(MODELS, encoder.identity)
    tasks = load_tasks("pocket", "evolve", 1000, 0)
    began = time.perf_counter()
    generations = []
    for one in evolve(config, template, encoder=encoder, pool=pool, grade=grade_many, tasks=tasks):
        if not isinstance(one, Generation):
            continue
        generations.append(one)
        say(f"generation {one.index} of {config.generations}")
    seconds = time.perf_counter() - began
    where = {"replying": pool.seconds / seconds, "reading transcripts": reading[0] / seconds}
    where["all else"] = 1 - sum(where.values())
    played = config.generations * config.population * config.tasks_per_candidate
    decisions = sum(one.decisions for one in generations)
    forwards = sum(one.forwards for one in generations)
    turns_asked = sum(one.calls + one.calls_saved for one in generations)
    calls = sum(one.calls for one in generations)

    fresh = episodes_of(tasks[:naive], MODELS, seed=1, turn_budget=config.turn_budget, prefix="naive")
    naive_rate, naive_accuracy = play_naively(generations[-1].checkpoint, plain, pool, fresh)
    ours_rate = played / seconds
    ratios = {
        "forwards_saved": decisions / forwards,
        "calls_saved": turns_asked / calls,
        "episodes_per_second": ours_rate / naive_rate,
    }
    measured = {
        "episodes": played,
        "seconds": seconds,
        "decisions": decisions,
        "forwards": forwards,
        "turns_asked": turns_asked,
        "calls": calls,
        "episodes_per_second": ours_rate,
        "where_the_time_goes": where,
        "naive_episodes": len(fresh),
        "naive_episodes_per_second": naive_rate,
        "naive_accuracy": naive_accuracy,
    }
    return {"measured": measured, "ratios": ratios}


def play_naively(
    checkpoint: Checkpoint, encoder: Encoder, pool: PocketPool, episodes: Sequence[Episode]
) -> tuple[float, float]:
    """Episodes a second of a loop that reads each transcript anew, one episode after the other, and its accuracy."""
    policy = Coordinator(checkpoint, encoder)
    given, read = encoder.states_given, encoder.forwards
    began = time.perf_counter()
    solved = []
    for episode in episodes:
        for event in drive(episode, policy, pool, grade_many):
            encoder.forget()  # so that each decision is read anew
            if isinstance(event, EpisodeFinished):
                solved.append(bool(event.episode.correct))
    seconds = time.perf_counter() - began
    assert encoder.forwards - read == encoder.states_given - given, "it must read each transcript anew"
    return len(episodes) / seconds, float(np.mean(solved))


def in_one_and_in_two(generations: int, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Episodes a second [least, median, most] in one process and in two, and their ratio within each repeat, with
    nothing beside them and beside a busy process."""
    numbers = {"one": Processes(1), "two": Processes(2, preload=["core.coordinator.encoder"], worth_s=0)}
    rates: dict[str, dict[str, list[float]]] = {}
    reached = set()
    try:
        for processes in numbers.values():
            evolved(1, processes)  # all models loaded, the helper started
        for repeat in range(repeats):
            for beside in ("nothing beside", "a busy process beside"):
                row = rates.setdefault(beside, {"one": [], "two": [], "ratio": []})
                for name, processes in numbers.items():
                    with busy(beside != "nothing beside"):
                        rate, checkpoint = evolved(generations, processes)
                    row[name].append(rate)
                    reached.add(checkpoint)
                row["ratio"].append(row["two"][-1] / row["one"][-1])
                say(f"repeat {repeat + 1} of {repeats}, {beside}: {row['ratio'][-1]:.2f}")
    finally:
        numbers["two"].close()
    assert len(reached) == 1, "one process and two must reach the same checkpoint"
    return {
        beside: {name: [min(some), float(np.median(some)), max(some)] for name, some in row.items()}
        for beside, row in rates.items()
    }


def evolved(generations: int, processes: Processes) -> tuple[float, str]:
    """Episodes a second of one evolution from its generation 0 on, and the checkpoint it reaches."""
    encoder, pool = load_encoder("pocket", processes=processes), PocketPool(processes=processes)
    config = EvolveConfig(generations=generations, population=48, tasks_per_candidate=8)
    course = evolve(
        config,
        Checkpoint.begin(MODELS, encoder.identity),
        encoder=encoder,
        pool=pool,
        grade=grade_many,
        tasks=load_tasks("pocket", "evolve", 200, 0),
    )
    while isinstance(next(course), Reading):
        pass
    began = time.perf_counter()
    *_, last = course
    assert isinstance(last, Generation)
    played = generations * config.population * config.tasks_per_candidate
    return played / (time.perf_counter() - began), last.checkpoint.id


@contextmanager
def busy(wanted: bool) -> Iterator[None]:
    """Another process that counts for as long as the block runs, and never for more than ten minutes."""
    if not wanted:
        yield
        return
    counting = "import time\nend = time.monotonic() + 600\nwhile time.monotonic() < end: pass"
    process = subprocess.Popen([sys.executable, "-c", counting])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    run(measure)
