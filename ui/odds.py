"""The odds of one decision: every model and every role that could have been chosen, as pages and saved pages show
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.episode import ROLE_ORDER, Decision
from ui.figures import role_word, share
from ui.theme import model_colour

#: What an option says that may not be chosen.
MASKED = "masked"


@dataclass(frozen=True, slots=True)
class Joint:
    """One cell of the joint grid: probability 0 to 1, and whether it was chosen or is the likeliest."""

    p: float
    chosen: bool
    likeliest: bool

    @property
    def percent(self) -> str:
        """The probability in percent; a dot for next to nothing."""
        return f"{100 * self.p:.0f}" if self.p >= 0.005 else "·"


@dataclass(frozen=True, slots=True)
class Option:
    """A model or a role that could have been chosen."""

    name: str
    colour: str | None  # of a model's slot; roles have shapes
    p: float
    words: str
    note: str  # chosen, argmax or nothing
    logit: float | None
    joint: tuple[Joint, ...] = ()  # a model's cells, one per role
    other: float | None = None  # its probability by another head


def options(decision: Decision, models: Sequence[str]) -> tuple[list[Option], list[Option]]:
    """Every model and every role with its probability; two empty lists for a policy without any."""
    if not decision.model_probs or not decision.role_probs:
        return [], []
    grid = _grid(decision, models)
    model_options = [
        Option(
            name,
            model_colour(name, models),
            p,
            _words(p, decision.model_mask, i),
            _note(name, decision.model, decision.argmax_model),
            decision.model_logits[i] if decision.model_logits else None,
            grid[i],
        )
        for i, (name, p) in enumerate(zip(models, decision.model_probs, strict=False))
    ]
    role_options = [
        Option(
            role_word(role),
            None,
            p,
            _words(p, decision.role_mask, i),
            _note(role, decision.role, decision.argmax_role),
            decision.role_logits[i] if decision.role_logits else None,
        )
        for i, (role, p) in enumerate(zip(ROLE_ORDER, decision.role_probs, strict=True))
    ]
    return model_options, role_options


def _grid(decision: Decision, models: Sequence[str]) -> list[tuple[Joint, ...]]:
    chosen = (decision.model, decision.role)
    likeliest = (decision.argmax_model, decision.argmax_role)
    return [
        tuple(
            Joint(p * q, (name, role) == chosen, (name, role) == likeliest)
            for role, q in zip(ROLE_ORDER, decision.role_probs, strict=True)
        )
        for name, p in zip(models, decision.model_probs, strict=False)
    ]


def _words(p: float, mask: Sequence[bool], i: int) -> str:
    return MASKED if mask and not mask[i] else share(p)


def _note(one: object, chosen: object, likeliest: object) -> str:
    return "chosen" if one == chosen else "argmax" if one == likeliest else ""


def beside(options: Sequence[Option], other: Sequence[float]) -> list[Option]:
    """The options with another head's probabilities, told from the recorded one to it."""
    return [
        option if option.words == MASKED else replace(option, other=p, words=f"{option.words} → {share(p)}")
        for option, p in zip(options, other, strict=False)
    ]


def undecided(options: Sequence[Option]) -> list[Option]:
    """The options before anything is known of them."""
    return [replace(option, words="–", note="") for option in options]
