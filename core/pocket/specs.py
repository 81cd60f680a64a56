"""The pool entries of the pocket models; torch is not needed to read them."""

from __future__ import annotations

from core.pool.spec import ModelSpec

#: A Worker's second try shall differ from its first: only then is it worth checking and trying again.
WORKER_TEMPERATURE = 1.6
#: At 1.6 these two hardly get anything right.
COOLER = {"abacus": 1.4, "pip": 1.2}
#: Plans are long; one slip spoils them.
THINKER_TEMPERATURE = 1.0
#: A judge shall not waver.
VERIFIER_TEMPERATURE = 0.3

MAX_TOKENS = 64


def pocket_spec(name: str) -> ModelSpec:
    """The pool entry of one pocket model. It runs here, so it costs nothing."""
    return ModelSpec(
        name=name,
        model=f"pocket/{name}",
        provider="pocket",
        dialect="terse",
        temperature=COOLER.get(name, WORKER_TEMPERATURE),
        role_temperature={"thinker": THINKER_TEMPERATURE, "verifier": VERIFIER_TEMPERATURE},
        max_tokens=MAX_TOKENS,
        price_in=0.0,
        price_out=0.0,
    )
