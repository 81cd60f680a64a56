"""The recorded training recipes: shape, data mix, steps and seed of every pocket model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.pocket import HELD_OUT_FAMILIES, TRAINED_FAMILIES
from core.pocket.corpus import Skill

#: The shared starting point of six of the seven models.
BASE = "base"

#: What reads the transcript for the coordinator. It learns the next token of transcripts and nothing else.
ENCODER = "encoder"

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
PLAN: dict[Skill, float] = {"think": 0.8, "solve": 0.1, "follow": 0.05, "check": 0.05}
WORK: dict[Skill, float] = {"think": 0.0, "solve": 0.45, "follow": 0.55, "check": 0.0}
PLAN_AND_WORK: dict[Skill, float] = {"think": 0.3, "solve": 0.3, "follow": 0.4, "check": 0.0}
JUDGE: dict[Skill, float] = {"think": 0.05, "solve": 0.05, "follow": 0.05, "check": 0.85}

_EVERYTHING = _favour({}, 0.2)
_NUMBERS = _favour({"math": 0.4, "code": 0.4}, 0.05)
_STEPS = 3500

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(BASE, "the shared start; not in the pool", 5000, mixed(_EVERYTHING, EVEN), from_base=False, peak_rate=2e-3, seed=1),
        Recipe("atlas", "plans with numbers: word problems and code", _STEPS, mixed(_NUMBERS, PLAN), seed=2),
        Recipe("abacus", "computes: word problems and code, with a plan or without", _STEPS, mixed(_NUMBERS, WORK), seed=3),
        Recipe("plato", "orderings, planned and solved", _STEPS, mixed(_favour({"logic": 0.8}, 0.05), PLAN_AND_WORK), seed=4),
        Recipe("sage", "facts, recalled and chosen", _STEPS, mixed(_favour({"knowledge": 0.8}, 0.05), PLAN_AND_WORK), seed=5),
        Recipe("themis", "judges answers of every family", _STEPS, mixed(_EVERYTHING, JUDGE), seed=6),
        Recipe("jack", "a bit of everything", _STEPS, mixed(_EVERYTHING, EVEN), seed=7),
        Recipe("pip", "small and hardly trained", 900, mixed(_EVERYTHING, EVEN), from_base=False, width=64, layers=2, peak_rate=2e-3, seed=8),
        Recipe(ENCODER, "reads the transcript; not in the pool", 2500, from_base=False, width=96, layers=3, batch=32, peak_rate=2e-3, seed=9),
    )
}
