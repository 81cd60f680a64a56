"""The pool entries of the pocket models; torch is not needed to read them."""

from __future__ import annotations

from core.pool.spec import ModelSpec

#: A Worker's second try shall differ from its first: only then is it worth checking and trying again. Those who know
#: a family by heart need more of it than the generalists, and at more than 1.2 pip hardly gets anything right.
WORKER_TEMPERATURES = {
    "atlas": 2.2,
    "abacus": 2.2,
    "plato": 2.2,
    "sage": 2.2,
    "themis": 1.6,
    "jack": 1.6,
    "pip": 1.2,
}
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
        temperature=WORKER_TEMPERATURES[name],
        role_temperature={"thinker": THINKER_TEMPERATURE, "verifier": VERIFIER_TEMPERATURE},
        max_tokens=MAX_TOKENS,
        price_in=0.0,
        price_out=0.0,
    )
