"""The recorded training recipes: shape, data mix, steps and seed of every pocket model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.pocket import HELD_OUT_FAMILIES, TRAINED_FAMILIES
from core.pocket.corpus import Skill

#: The shared starting point of six of the seven models.
BASE = "base"

Mix = dict[tuple[str, Skill], float]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model is trained. `mix` weighs (family, skill) pairs; `peak_rate` is AdamW's highest learning rate."""

    name: str
    purpose: str
    steps: int
    mix: Mix = field(default_factory=dict)
    from_base: bool = True
    width: int = 128
    layers: int = 3
    batch: int = 48
    peak_rate: float = 1e-3
    seed: int = 0


def mixed(families: Mapping[str, float], skills: Mapping[Skill, float]) -> Mix:
    """Independent weights for families and skills, multiplied."""
    return {(family, skill): a * b for family, a in families.items() for skill, b in skills.items() if a * b > 0}


def _favour(favourites: Mapping[str, float], rest: float) -> dict[str, float]:
    """Family weights: the favourites as given, `rest` for the other trained families, a little of the held-out ones."""
    return {
        **dict.fromkeys(HELD_OUT_FAMILIES, 0.05),
        **dict.fromkeys(TRAINED_FAMILIES, rest),
        **favourites,
    }


EVEN: dict[Skill, float] = {"think": 0.3, "solve": 0.15, "follow": 0.25, "check": 0.3}
_ALL = _favour({}, 0.2)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(BASE, "shared start, not in the pool", 5000, mixed(_ALL, EVEN), from_base=False, peak_rate=2e-3, seed=1),
    )
}
