"""The recorded training recipes: shape, data mix, steps and seed of every pocket model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.pocket import FAMILIES, HELD_OUT_FAMILIES, TRAINED_FAMILIES
from core.pocket.corpus import Skill

#: What reads the transcript for the coordinator. It learns the next token of transcripts and nothing else.
ENCODER = "encoder"

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


def _favour(favourites: Mapping[str, float], rest: float) -> dict[str, float]:
    """Family weights: the favourites as given, `rest` for other trained families, a little of the held-out ones."""
    return {**dict.fromkeys(HELD_OUT_FAMILIES, 0.03), **dict.fromkeys(TRAINED_FAMILIES, rest), **favourites}


EVEN: dict[Skill, float] = {"think": 0.3, "solve": 0.1, "follow": 0.3, "check": 0.3}
PLAN: dict[Skill, float] = {"think": 0.6, "follow": 0.05, "check": 0.35}
WORK: dict[Skill, float] = {"solve": 0.1, "follow": 0.55, "check": 0.35}
OWN_FAMILY: dict[Skill, float] = {"think": 0.3, "solve": 0.1, "follow": 0.35, "check": 0.25}
JUDGE: dict[Skill, float] = {"solve": 0.08, "check": 0.92}

_EVERYTHING = dict.fromkeys(FAMILIES, 0.125)
_MOSTLY_ELSEWHERE = {**dict.fromkeys(HELD_OUT_FAMILIES, 0.18), **dict.fromkeys(TRAINED_FAMILIES, 0.07)}
_NUMBERS = _favour({"math": 0.4, "code": 0.4}, 0.1)
_COMPUTED = _favour({"math": 0.5, "code": 0.35}, 0.05)
_HARD_TO_JUDGE = _favour({"math": 0.4, "code": 0.4, "logic": 0.3}, 0.08)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("atlas", "plans word problems and code", mixed(_NUMBERS, PLAN), seed=2),
        Recipe("abacus", "computes word problems and code", mixed(_COMPUTED, WORK), seed=3),
        Recipe(
            "plato", "orderings, planned and solved", mixed(_favour({"logic": 0.8}, 0.05), OWN_FAMILY), seed=4
        ),
        Recipe(
            "sage", "facts, recalled and chosen", mixed(_favour({"knowledge": 0.8}, 0.05), OWN_FAMILY), seed=5
        ),
        Recipe("themis", "judges answers", mixed(_HARD_TO_JUDGE, JUDGE), seed=6),
        Recipe("jack", "a bit of everything", mixed(_MOSTLY_ELSEWHERE, EVEN), seed=7),
        Recipe("pip", "too small for most of it", mixed(_EVERYTHING, EVEN), 2000, width=64, layers=2, seed=8),
        Recipe(ENCODER, "reads the transcript; not in the pool", steps=1000, width=96, batch=32, seed=9),
    )
}
