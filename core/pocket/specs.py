"""The pool entries of the pocket models; torch is not needed to read them."""

from __future__ import annotations

from core.pool.spec import ModelSpec

#: Hot enough that a second try differs from the first: only then is it worth checking and trying again.
TEMPERATURE = 1.2

#: A judge shall not waver.
JUDGE_TEMPERATURE = 0.3

MAX_TOKENS = 64


def temperature_of(name: str) -> float:
    """What a pocket model samples at."""
    return JUDGE_TEMPERATURE if name == "themis" else TEMPERATURE


def pocket_spec(name: str) -> ModelSpec:
    """The pool entry of one pocket model. It runs here, so it costs nothing."""
    return ModelSpec(
        name=name,
        model=f"pocket/{name}",
        provider="pocket",
        dialect="terse",
        temperature=temperature_of(name),
        max_tokens=MAX_TOKENS,
        price_in=0.0,
        price_out=0.0,
    )
