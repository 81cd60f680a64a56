"""Separable CMA-ES (Ros and Hansen 2008): state in, state out; any generation can be drawn again.

Update and constants follow N. Hansen, "The CMA Evolution Strategy: A Tutorial" (arXiv 1604.00772; equation
numbers below are its own), with one variance per coordinate instead of a matrix. Two presets of rates, each named
for the library that has them. Neither is Ros and Hansen's as written, where the rate of the rank-one update is scaled
by (n + 2) / 3 as well:

    cmaes   as the library cmaes 0.13: the full matrix's rates, that of the rank-mu update times (n + 2) / 3
    pycma   as pycma 4.5 with CMA_diagonal: faster rates of the diagonal, negative weights for the worse half,
            and an exponential update that keeps variances positive (Hansen 2008, "Adaptive Encoding")

Both adapt the step size by its path's length. pycma itself turns to two-point adaptation from 300 dimensions,
unless AdaptSigma says otherwise. Ours beside it: mirrored pairs, weights averaged over ties, missing fitness
left out, and a generation without information moves nothing.

Pairs and ties make the recombined step shorter than the ranks' weights say: the two of a pair cancel each other in
part. The paths therefore use the effective number (mu_eff) of the weights as they were really given out, so that
random fitness leaves the step size where it is. In mirrored pairs the step path's length is also taken as it will
be once its start at zero is forgotten; without them it is the libraries' own, which lets the first steps shrink.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import numpy as np

from core.episode import Episode
from core.errors import ConfigError
from core.evolution.learner_state import LearnerState, Vector, check_told

Preset = Literal["pycma", "cmaes"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SepCMAState(LearnerState):
    """Everything the optimiser knows; states with equal digests go on equally, bit for bit.

    `mean`, `variances` (the diagonal of C), `path` (p_c) and `step_path` (p_sigma) have shape [n],
    `step_size` is sigma. `path` is kept in the preset's coordinates: cmaes scaled, pycma isotropic."""

    kind: ClassVar = "sep_cma"

    variances: Vector
    path: Vector
    step_path: Vector
    mirrored: bool = True
    preset: Preset = "pycma"

    def __post_init__(self) -> None:
        if self.preset not in get_args(Preset):
            raise ValueError("unknown rates")

    @classmethod
    def start(
        cls,
        mean: Vector,
        step_size: float,
        *,
        population: int | None = None,
        seed: int,
        scales: Vector | None = None,
        mirrored: bool = True,
        preset: Preset = "pycma",
    ) -> SepCMAState:
        """The state before the first generation. `population` None: as usual. `scales` [n]: steps over `step_size`."""
        if preset not in get_args(Preset):
            raise ConfigError(f"There are no rates '{preset}': choose {' or '.join(get_args(Preset))}.")
        n = len(mean)
        size = population or default_population(n, mirrored)
        if not (step_size > 0 and math.isfinite(step_size)):
            raise ConfigError(f"A step size of {step_size} cannot search: give a positive number.")
        if size < 2 or (mirrored and size % 2):
            raise ConfigError(
                f"A population of {size} does not fit: give at least 2, and an even number for mirrored pairs."
            )
        if scales is not None and not (
            scales.shape == (n,) and np.isfinite(scales).all() and (scales > 0).all()
        ):
            raise ConfigError(f"The scales of a search among {n} numbers must be {n} positive numbers.")
        return cls(
            mean=np.array(mean, float),
            variances=np.ones(n) if scales is None else np.asarray(scales, float) ** 2,
            path=np.zeros(n),
            step_path=np.zeros(n),
            step_size=float(step_size),
            population=size,
            seed=seed,
            mirrored=mirrored,
            preset=preset,
        )

    def normals(self) -> Vector:
        """The generation's standard normal numbers [rows, n]; of mirrored pairs the first half."""
        rows = self.population // 2 if self.mirrored else self.population
        return _draw(self.seed, self.generation, rows, len(self.mean))

    def ask(self) -> Vector:
        """The generation's candidates [population, n] ~ N(m, sigma^2 C)."""
        normals = self.normals()
        candidates = np.empty((self.population, len(self.mean)))
        steps = candidates[: len(normals)]
        np.multiply(normals, self.step_size * np.sqrt(self.variances), out=steps)
        if self.mirrored:
            np.subtract(self.mean, steps, out=candidates[len(normals) :])
        steps += self.mean
        return candidates

    def tell(self, fitness: Vector, played: Sequence[Episode] = ()) -> SepCMAState:
        """Without information (fewer than two known values, or all equal) only the generation number moves on."""
        fitness = check_told(fitness, self.population)
        moved = replace(self, generation=self.generation + 1)
        known = np.isfinite(fitness)
        if known.sum() < 2 or np.ptp(fitness[known]) == 0:
            return moved
        rates = _rates(len(self.mean), int(known.sum()), self.preset)
        mean_z, surplus, mu_eff = _recombine(fitness, rates.weights, self.normals())
        scale = np.sqrt(self.variances)
        step = scale * mean_z  # (eq. 41)

        keep_s = 1 - rates.c_sigma
        step_path = (
            keep_s * self.step_path + math.sqrt(rates.c_sigma * (2 - rates.c_sigma) * mu_eff) * step / scale
        )  # (eq. 43)
        length = float(np.linalg.norm(step_path))
        settled = length / math.sqrt(1 - keep_s ** (2 * moved.generation))
        growth = min(
            1.0, rates.c_sigma / rates.d_sigma * ((settled if self.mirrored else length) / rates.chi_n - 1)
        )

        delayed = length / math.sqrt(1 - keep_s ** (2 * (moved.generation + rates.h_delay)))
        h_sigma = float(delayed < rates.h_length)
        push = h_sigma * math.sqrt(rates.c_c * (2 - rates.c_c) * mu_eff)
        forgotten = rates.c_1 * (1 - h_sigma) * rates.c_c * (2 - rates.c_c)
        if self.preset == "pycma":
            path = (1 - rates.c_c) * self.path + push * step / scale
            surprise = (rates.c_1 - forgotten) * (path**2 - 1) + rates.c_mu * surplus
            variances = self.variances * np.exp(math.log(2) * surprise)
        else:
            path = (1 - rates.c_c) * self.path + push * step  # (eq. 45)
            keep_c = 1 + forgotten - rates.c_1 + rates.c_mu * surplus
            variances = keep_c * self.variances + rates.c_1 * path**2  # (eq. 47), its diagonal
        return replace(
            moved,
            mean=self.mean + self.step_size * step,  # (eq. 42)
            variances=variances,
            path=path,
            step_path=step_path,
            step_size=self.step_size * math.exp(growth),  # (eq. 44)
        )


def default_population(n: int, mirrored: bool = True) -> int:
    """4 + 3 ln n (eq. 48), rounded up, and made even for mirrored pairs: 32 for the paper's 10,240 numbers."""
    size = math.ceil(4 + 3 * math.log(n))
    return size + size % 2 if mirrored else size


@lru_cache(maxsize=1)  # ask and tell of one generation need the same numbers
def _draw(seed: int, generation: int, rows: int, n: int) -> Vector:
    key = hashlib.sha256(f"sep-cma/{seed}/{generation}".encode()).digest()[:16]
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
    normals = generator.standard_normal((rows, n))
    normals.setflags(write=False)
    return normals


def _recombine(fitness: Vector, weights: Vector, normals: Vector) -> tuple[Vector, Vector, float]:
    """The better half's mean of the normal numbers and the weighted sum of their squares less 1, each [n], and mu_eff
    of that mean: 1 over its variance under random selection. `fitness` [population], `weights` by rank of the known
    ones."""
    known = np.isfinite(fitness)
    signed, positive = np.zeros(len(fitness)), np.zeros(len(fitness))
    signed[known] = tied_weights(fitness[known], weights)
    positive[known] = tied_weights(fitness[known], np.maximum(weights, 0.0))
    total, rows = signed.sum(), len(normals)
    if rows < len(fitness):  # one row stands for a pair: z and -z
        signed = signed[:rows] + signed[rows:]
        positive = positive[:rows] - positive[rows:]
    variance = float(positive @ positive)
    # Where each pair is a tie the mean stays: a step of length 0, whatever its weight.
    return positive @ normals, signed @ normals**2 - total, 1 / variance if variance > 0 else 0.0


def tied_weights(fitness: Vector, weights: Vector) -> Vector:
    """Weights by rank, best first; candidates of equal fitness share the weights of their ranks."""
    order = np.argsort(-fitness, kind="stable")
    shared = np.empty(len(fitness))
    shared[order] = weights
    values, counts = np.unique(fitness, return_counts=True)
    for value in values[counts > 1]:
        tied = fitness == value
        shared[tied] = shared[tied].mean()
    return shared


@dataclass(frozen=True, slots=True, eq=False)
class _Rates:
    weights: Vector  # by rank, best first; those above 0 sum to 1
    c_1: float
    c_mu: float
    c_c: float
    c_sigma: float
    d_sigma: float
    chi_n: float  # E||N(0, I)||
    h_length: float  # a step path longer than this stalls `path`
    h_delay: int


@lru_cache(maxsize=64)
def _rates(n: int, population: int, preset: Preset) -> _Rates:
    return (_pycma_rates if preset == "pycma" else _cmaes_rates)(n, population)


def _cmaes_rates(n: int, population: int) -> _Rates:
    mu = population // 2
    positive = math.log(mu + 1) - np.log(np.arange(1, mu + 1))  # (eq. 49)
    weights = np.concatenate([positive / positive.sum(), np.zeros(population - mu)])
    mu_eff = 1 / float(np.sum(weights**2))
    c_mu_full = 2 / mu_eff / (n + math.sqrt(2)) ** 2 + (1 - 1 / mu_eff) * min(
        1.0, (2 * mu_eff - 1) / ((n + 2) ** 2 + mu_eff)
    )
    c_sigma = (mu_eff + 2) / (n + mu_eff + 3)
    chi_n = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    return _Rates(
        weights=weights,
        c_1=2 / ((n + 1.3) ** 2 + mu_eff),
        c_mu=(n + 2) / 3 * c_mu_full,  # Ros and Hansen's factor for the diagonal
        c_c=4 / (n + 4),
        c_sigma=c_sigma,
        d_sigma=1 + 2 * max(0.0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_sigma,
        chi_n=chi_n,
        h_length=(1.4 + 2 / (n + 1)) * chi_n,
        h_delay=1,
    )


def _pycma_rates(n: int, population: int) -> _Rates:
    """cma 4.5: recombination_weights.py, options_parameters.py (names that end in _sep), sigma_adaptation.py.

    For a population of 6 or more: below it pycma mirrors on its own."""
    raw = math.log((population + 1) / 2) - np.log(np.arange(1, population + 1))  # (eq. 49)
    better, worse = np.maximum(raw, 0.0), np.minimum(raw, 0.0)
    better /= better.sum()
    worse /= -worse.sum()
    mu_eff, mu_eff_worse = 1 / float(np.sum(better**2)), 1 / float(np.sum(worse**2))
    c_1 = 1 / (n + 2 * math.sqrt(n) + mu_eff / n)
    c_mu = min(1 - c_1, (0.25 + mu_eff + 1 / mu_eff - 2) / (n + 4 * math.sqrt(n) + mu_eff / 2))
    against = min(1 + c_1 / c_mu, 1 + 2 * mu_eff_worse / (mu_eff + 2))  # (eq. 50 to 53)
    c_sigma = min(0.5, (mu_eff + 2) / (n + mu_eff + 3))
    inner = max(1.0, 3 * (1 - 0.5 ** (n / 9)))
    if n <= 100:
        chi_n = math.sqrt(2) * math.gamma((n + 1) / 2) / math.gamma(n / 2)
    else:
        chi_n = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (32 * n**2))
    return _Rates(
        weights=better + against * worse,
        c_1=c_1,
        c_mu=c_mu,
        c_c=(1 + 1 / n + mu_eff / n) / (math.sqrt(n) + 1 / n + 2 * mu_eff / n),
        c_sigma=c_sigma,
        d_sigma=1 + 2 * max(0.0, inner * math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_sigma,
        chi_n=chi_n,
        h_length=math.sqrt(n * (2 + 4 / (n + 1))),
        h_delay=0,
    )
