"""Separable CMA-ES (Ros and Hansen 2008): state in, state out, every generation drawn again from its number alone.

Constants and update follow N. Hansen, "The CMA Evolution Strategy: A Tutorial" (arXiv 1604.00772; equation numbers
below are its own), with the learning rates of the diagonal covariance scaled by (n + 2) / 3 as Ros and Hansen do, and
rates as in the library cmaes. Ours beside it: mirrored pairs, weights averaged over ties, missing fitness left out,
and a generation without information moves nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from core.errors import ConfigError

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SepCMAState:
    """Everything the optimiser knows; `mean`, `variances` (the diagonal of C), `path` (p_c) and `step_path` (p_sigma)
    have shape [n], `step_size` is sigma. Equal states go on equally."""

    mean: Vector
    variances: Vector
    path: Vector
    step_path: Vector
    step_size: float
    population: int
    seed: int
    mirrored: bool = True
    generation: int = 0

    def to_bytes(self) -> bytes:
        """Safetensors with the scalars beside the vectors, exact to the last bit."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        scalars = {name: getattr(self, name) for name in _SCALARS} | {"step_size": self.step_size.hex()}
        return save(arrays, metadata={"sep_cma": json.dumps(scalars, sort_keys=True)})

    @classmethod
    def from_bytes(cls, data: bytes) -> SepCMAState:
        """The state that `to_bytes` wrote; ConfigError for anything else."""
        try:
            length = int.from_bytes(data[:8], "little")
            scalars = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["sep_cma"])
            return cls(**load(data), **{**scalars, "step_size": float.fromhex(scalars["step_size"])})
        except (
            Exception
        ) as error:  # whatever a foreign file breaks in three formats is one mistake to the user
            raise ConfigError(
                "This is not the saved state of an evolution: resume from the run that wrote it."
            ) from error

    @property
    def digest(self) -> str:
        """SHA-256 over the whole state."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


_ARRAYS = ("mean", "variances", "path", "step_path")
_SCALARS = ("population", "seed", "mirrored", "generation")


def start(
    mean: Vector, step_size: float, *, population: int | None = None, seed: int, mirrored: bool = True
) -> SepCMAState:
    """The state before the first generation. `population` None: 4 + 3 ln n, rounded up (eq. 48), made even if mirrored."""
    n = len(mean)
    size = population or math.ceil(4 + 3 * math.log(n))
    size += size % 2 if mirrored and population is None else 0
    if not (step_size > 0 and math.isfinite(step_size)):
        raise ConfigError(f"A step size of {step_size} cannot search: give a positive number.")
    if size < 2 or (mirrored and size % 2):
        raise ConfigError(
            f"A population of {size} does not fit: give at least 2, and an even number for mirrored pairs."
        )
    zeros = np.zeros(n)
    return SepCMAState(
        np.array(mean, float), np.ones(n), zeros, zeros, float(step_size), size, seed, mirrored
    )


def normals(state: SepCMAState) -> Vector:
    """The generation's standard normal numbers [population, n], from a counter keyed by seed and generation."""
    key = hashlib.sha256(f"sep-cma/{state.seed}/{state.generation}".encode()).digest()[:16]
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
    if not state.mirrored:
        return generator.standard_normal((state.population, len(state.mean)))
    half = generator.standard_normal((state.population // 2, len(state.mean)))
    return np.concatenate([half, -half])


def ask(state: SepCMAState) -> Vector:
    """The generation's candidates [population, n] ~ N(m, sigma^2 C)."""
    candidates: Vector = state.mean + state.step_size * np.sqrt(state.variances) * normals(state)
    return candidates


def tell(state: SepCMAState, fitness: Vector, z: Vector | None = None) -> SepCMAState:
    """The state after the generation. `fitness` [population] is to be maximised, NaN where it is missing.

    Without information (fewer than two known values, or all equal) only the generation number moves on. `z` replaces
    the generation's own normal numbers (for tests against other libraries)."""
    fitness = np.asarray(fitness, float)
    if fitness.shape != (state.population,):
        raise ConfigError(
            f"A generation of {state.population} candidates cannot be told {fitness.size} fitness values."
        )
    moved = replace(state, generation=state.generation + 1)
    known = np.isfinite(fitness)
    if known.sum() < 2 or np.ptp(fitness[known]) == 0:
        return moved
    n = len(state.mean)
    rates = _rates(n, int(known.sum()))
    weights = tied_weights(fitness[known], rates.weights)
    scale = np.sqrt(state.variances)
    y = scale * (normals(state) if z is None else z)[known]
    step = weights @ y  # (eq. 41)

    keep_s = 1 - rates.c_sigma
    step_path = (
        keep_s * state.step_path
        + math.sqrt(rates.c_sigma * (2 - rates.c_sigma) * rates.mu_eff) * step / scale
    )
    length = float(np.linalg.norm(step_path))
    step_size = state.step_size * math.exp(
        rates.c_sigma / rates.d_sigma * (length / rates.chi_n - 1)
    )  # (eq. 44)

    settled = length / math.sqrt(1 - keep_s ** (2 * (moved.generation + 1)))
    h_sigma = float(settled < (1.4 + 2 / (n + 1)) * rates.chi_n)
    path = (1 - rates.c_c) * state.path + h_sigma * math.sqrt(
        rates.c_c * (2 - rates.c_c) * rates.mu_eff
    ) * step
    forgotten = rates.c_1 * (1 - h_sigma) * rates.c_c * (2 - rates.c_c)
    variances = (
        (1 + forgotten - rates.c_1 - rates.c_mu * weights.sum()) * state.variances
        + rates.c_1 * path**2
        + rates.c_mu * (weights @ y**2)
    )  # (eq. 47, its diagonal)
    return replace(
        moved,
        mean=state.mean + state.step_size * step,
        variances=variances,
        path=path,
        step_path=step_path,
        step_size=step_size,
    )


def tied_weights(fitness: Vector, weights: Vector) -> Vector:
    """Recombination weights by rank, best first; candidates of equal fitness share the weights of their ranks."""
    order = np.argsort(-fitness, kind="stable")
    shared = np.empty(len(fitness))
    shared[order] = weights
    for value in np.unique(fitness):
        tied = fitness == value
        shared[tied] = shared[tied].mean()
    return shared


@dataclass(frozen=True, slots=True)
class _Rates:
    weights: Vector
    mu_eff: float
    c_1: float
    c_mu: float
    c_c: float
    c_sigma: float
    d_sigma: float
    chi_n: float


@lru_cache(maxsize=64)
def _rates(n: int, population: int) -> _Rates:
    mu = population // 2
    positive = math.log(mu + 1) - np.log(np.arange(1, mu + 1))  # (eq. 49)
    weights = np.concatenate([positive / positive.sum(), np.zeros(population - mu)])
    mu_eff = 1 / float(np.sum(weights**2))
    c_mu_full = 2 / mu_eff / (n + math.sqrt(2)) ** 2 + (1 - 1 / mu_eff) * min(
        1.0, (2 * mu_eff - 1) / ((n + 2) ** 2 + mu_eff)
    )
    c_sigma = (mu_eff + 2) / (n + mu_eff + 3)
    return _Rates(
        weights=weights,
        mu_eff=mu_eff,
        c_1=2 / ((n + 1.3) ** 2 + mu_eff),
        c_mu=(n + 2) / 3 * c_mu_full,  # Ros and Hansen's factor for the diagonal
        c_c=4 / (n + 4),
        c_sigma=c_sigma,
        d_sigma=1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_sigma,
        chi_n=math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2)),
    )
