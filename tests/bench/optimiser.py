"""Times a generation of sep-CMA-ES (ask and tell) beside the libraries cmaes and pycma, in one process.

Each library does what its users would call: `ask` for every candidate, then `tell` with their values, from the same
start and on the same fitness, in turns, so that a noisy machine is noisy for all. Checkpoints: our state's file,
written and read back, beside pycma's pickle; what comes back must go on bit for bit.
"""

from __future__ import annotations

import pickle
import statistics
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from core.evolution.sep_cma import SepCMAState
from tests.bench._frame import Figures, milliseconds, run

Vector = NDArray[np.float64]
SIGMA = 0.1


def fitness(candidates: Vector) -> Vector:
    """The negative sphere around 1, cheap beside any optimiser."""
    return -np.asarray(((candidates - 1.0) ** 2).sum(axis=1))


def ours(n: int, population: int, mirrored: bool) -> Callable[[], None]:
    """One generation of ours per call."""
    state = SepCMAState.start(
        np.zeros(n), SIGMA, population=population, seed=1, mirrored=mirrored, preset="pycma"
    )

    def generation() -> None:
        nonlocal state
        state = state.tell(fitness(state.ask()))

    return generation


def cmaes(n: int, population: int) -> Callable[[], None]:
    """One generation of cmaes' SepCMA per call."""
    from cmaes import SepCMA

    optimiser = SepCMA(mean=np.zeros(n), sigma=SIGMA, population_size=population, seed=1)

    def generation() -> None:
        asked = [optimiser.ask() for _ in range(population)]
        optimiser.tell(list(zip(asked, (-fitness(np.array(asked))).tolist(), strict=True)))

    return generation


def pycma(n: int, population: int) -> tuple[Callable[[], None], Callable[[], bytes]]:
    """One generation of pycma with CMA_diagonal per call, and its checkpoint."""
    import cma

    optimiser = cma.CMAEvolutionStrategy(
        np.zeros(n), SIGMA, {"popsize": population, "CMA_diagonal": True, "seed": 1, "verbose": -9}
    )

    def generation() -> None:
        asked = optimiser.ask()
        optimiser.tell(asked, (-fitness(np.array(asked))).tolist())

    return generation, lambda: pickle.dumps(optimiser)


def generations(n: int, population: int, repeats: int) -> dict[str, float]:
    """Median milliseconds of a generation by optimiser, its fitness (the same for all) taken off."""
    theirs, _ = pycma(n, population)
    optimisers = {
        "ours": ours(n, population, True),
        "ours, without pairs": ours(n, population, False),
        "cmaes": cmaes(n, population),
        "pycma": theirs,
    }
    for generation in optimisers.values():
        generation()
    candidates = np.zeros((population, n))
    empty = statistics.median(milliseconds(lambda: fitness(candidates)) for _ in range(repeats))
    times: dict[str, list[float]] = {name: [] for name in optimisers}
    for _ in range(repeats):
        for name, generation in optimisers.items():
            times[name].append(milliseconds(generation))
    return {name: statistics.median(found) - empty for name, found in times.items()}


def checkpoints(n: int, population: int) -> dict[str, float]:
    """Bytes of our checkpoint and of pycma's, and how long ours takes to write and read back."""
    generation, pickled = pycma(n, population)
    generation()
    state = SepCMAState.start(np.zeros(n), SIGMA, population=population, seed=1, preset="pycma")
    state = state.tell(fitness(state.ask()))
    kept = state.to_bytes()
    back = SepCMAState.from_bytes(kept)
    assert back.tell(fitness(back.ask())).digest == (state.tell(fitness(state.ask())).digest), (
        "a restored state must go on bit for bit"
    )
    took = milliseconds(lambda: SepCMAState.from_bytes(state.to_bytes()))
    return {"ours_bytes": len(kept), "pycma_bytes": len(pickled()), "ours_round_trip_ms": took}


def measure(
    n: Annotated[int, "numbers in the vector"] = 10240, population: int = 32, repeats: int = 50
) -> Figures:
    """Times and sizes of ours beside the others'."""
    warnings.simplefilter("ignore")  # pycma warns about what it was told to do
    times, sizes = generations(n, population, repeats), checkpoints(n, population)
    return {
        "workload": {"n": n, "population": population, "repeats": repeats},
        "versions": {name: version(name) for name in ("numpy", "cmaes", "cma")},
        "measured": {"generation_ms": times, "checkpoint": sizes},
        "ratios": {
            "vs_cmaes": times["cmaes"] / times["ours"],
            "vs_pycma": times["pycma"] / times["ours"],
            "checkpoint_vs_pycma": sizes["pycma_bytes"] / sizes["ours_bytes"],
        },
    }


if __name__ == "__main__":
    run(measure)
