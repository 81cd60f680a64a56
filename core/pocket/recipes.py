"""The recorded training recipes: shape, data mix, steps and seed of every pocket model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.pocket import ENCODER, FAMILIES
from core.pocket.corpus import Skill

Mix = dict[tuple[str, Skill], float]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model is trained. `mix` weighs (family, skill) pairs; `peak_rate` is the highest learning rate."""

    name: str
    purpose: str
    mix: Mix = field(default_factory=dict)
    steps: int = 4000
    width: int = 128
    layers: int = 3
    batch: int = 48
    peak_rate: float = 5e-3
    seed: int = 0


def mixed(families: Mapping[str, float], skills: Mapping[Skill, float]) -> Mix:
    """Independent weights for families and skills, multiplied."""
    return {
        (family, skill): a * b for family, a in families.items() for skill, b in skills.items() if a * b > 0
    }


def _favour(**favourites: float) -> dict[str, float]:
    """Family weights: the favourites as given, a little of each other."""
    return {**dict.fromkeys(FAMILIES, 0.025), **favourites}


# Skills are taught apart: no model plans, computes and judges well, and a coordinator has something to put together.
EVEN: dict[Skill, float] = {"think": 0.3, "solve": 0.1, "follow": 0.35, "check": 0.25}

_PROGRAMS = _favour(math=0.25, code=0.55, units=0.05, sequences=0.05)
_NUMBERS = _favour(math=0.4, code=0.4, units=0.05, sequences=0.05)
_WORDS = _favour(logic=0.55, knowledge=0.25, dates=0.05, sets=0.05)
_ALL = _favour(math=0.22, code=0.2, logic=0.28, knowledge=0.2)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("atlas", "plans computations", mixed(_PROGRAMS, {"think": 0.85, "solve": 0.15}), 3000, seed=2),
        Recipe(
            "abacus", "computes by a plan", mixed(_NUMBERS, {"follow": 0.85, "solve": 0.15}), 3250, seed=3
        ),
        Recipe(
            "plato",
            "plans orderings and recalls facts",
            mixed(_WORDS, {"think": 0.9, "solve": 0.1}),
            2500,
            seed=4,
        ),
        Recipe(
            "sage", "answers by a plan in words", mixed(_WORDS, {"follow": 0.9, "solve": 0.1}), 2750, seed=5
        ),
        Recipe("themis", "judges answers", mixed(_ALL, {"check": 0.92, "solve": 0.08}), 6000, seed=6),
        Recipe("jack", "a bit of everything", mixed(dict.fromkeys(FAMILIES, 1.0), EVEN), 6000, seed=7),
        Recipe("pip", "too small for most of it", mixed(_ALL, EVEN), 1500, width=64, layers=2, seed=8),
        Recipe(ENCODER, "reads the transcript; not in the pool", steps=1000, width=96, batch=32, seed=9),
    )
}
