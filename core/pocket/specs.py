"""The pool entries of the pocket models; torch is not needed to read them."""

from __future__ import annotations

from core.pool.spec import ModelSpec

TEMPERATURE = 0.8
MAX_TOKENS = 64


def pocket_spec(name: str) -> ModelSpec:
    """The pool entry of one pocket model. It runs here, so it costs nothing."""
    return ModelSpec(
        name=name,
        model=f"pocket/{name}",
        provider="pocket",
        dialect="terse",
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        price_in=0.0,
        price_out=0.0,
    )
