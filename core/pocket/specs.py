"""The pool entries of the pocket models; torch is not needed to read them."""

from __future__ import annotations

from core.pool.spec import ModelSpec

#: What each model samples at, in every role: the temperature at which it does best alone, at its best cycle of roles,
#: on validation tasks (`trinity pocket temperatures` measures it). Frozen before any test task was drawn.
TEMPERATURES = {
    "atlas": 0.25,
    "abacus": 0.25,
    "plato": 0.25,
    "sage": 0.25,
    "themis": 0.75,
    "jack": 0.5,
    "pip": 0.25,
}

#: Who plans, who works and who judges, by trained family: the team of somebody who knows what the models were taught.
#: It is a ceiling to compare with; nothing that learns is told of it.
TEAMS = {
    "math": ("atlas", "abacus", "themis"),
    "logic": ("plato", "sage", "themis"),
    "knowledge": ("plato", "sage", "themis"),
    "code": ("atlas", "abacus", "themis"),
}

MAX_TOKENS = 64


def pocket_spec(name: str) -> ModelSpec:
    """The pool entry of one pocket model. It runs here, so it costs nothing."""
    return ModelSpec(
        name=name,
        model=f"pocket/{name}",
        provider="pocket",
        dialect="terse",
        temperature=TEMPERATURES.get(name, 1.0),  # a name that is none is refused by the pool
        max_tokens=MAX_TOKENS,
        price_in=0.0,
        price_out=0.0,
    )
