"""The odds of one decision: every model and every role that could have been chosen, and how the choice came about."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from core.analysis.head_lens import Pair
from core.episode import ROLE_ORDER, Decision, Role
from ui.presentation.theme import model_colour, one_line, percent
from ui.presentation.words import pair_words, role_word

#: The words of an option that may not be chosen.
MASKED = "masked"


@dataclass(frozen=True, slots=True)
class JointCell:
    """One cell of the joint grid: probability 0 to 1, and whether it was chosen, is the likeliest, or was proposed and
    not chosen."""

    p: float
    chosen: bool
    likeliest: bool
    proposed: bool

    @property
    def percent(self) -> str:
        """The probability in percent; a dot for next to nothing."""
        return f"{100 * self.p:.0f}" if self.p >= 0.005 else "·"


@dataclass(frozen=True, slots=True)
class Option:
    """A model or a role that could have been chosen. `chosen`: it was, or is about to be; `note` says so in a word, or
    that it was proposed or the likeliest, else it is empty."""

    name: str
    colour: str | None  # of a model's slot; roles have shapes
    p: float
    words: str
    chosen: bool
    note: str
    logit: float | None
    joint: tuple[JointCell, ...] = ()  # a model's cells, one per role
    other: float | None = None  # its probability by another head


def options(
    decision: Decision, models: Sequence[str], *, proposed: Pair | None = None, waiting: bool = False
) -> tuple[list[Option], list[Option]]:
    """Every model and every role with its probability; two empty lists for a policy without any. `proposed`: what the
    policy proposed where a person had a say; `waiting`: the turn is not played yet, and the choice can still change."""
    if not decision.model_probs or not decision.role_probs:
        return [], []
    joint = _joint(decision, models)
    chosen, likeliest = (decision.model, decision.role), (decision.argmax_model, decision.argmax_role)
    word = "chosen" if not waiting else "proposed" if proposed == chosen else "yours"

    def option(side: int, name: str | Role, i: int) -> Option:
        """A model (`side` 0) or a role (1), the i-th."""
        probs = (decision.model_probs, decision.role_probs)[side]
        mask = (decision.model_mask, decision.role_mask)[side]
        logits = (decision.model_logits, decision.role_logits)[side]
        said = (chosen[side], word), (proposed and proposed[side], "proposed"), (likeliest[side], "argmax")
        return Option(
            role_word(name) if isinstance(name, Role) else name,
            None if isinstance(name, Role) else model_colour(name, models),
            probs[i],
            MASKED if mask and not mask[i] else percent(probs[i]),
            name == chosen[side],
            next((note for one, note in said if one == name), ""),
            logits[i] if logits else None,
        )

    def row(model: str) -> tuple[JointCell, ...]:
        pairs = [(model, role) for role in ROLE_ORDER]
        return tuple(
            JointCell(joint[pair], pair == chosen, pair == likeliest, pair == proposed != chosen)
            for pair in pairs
        )

    played = models[: len(decision.model_probs)]
    return (
        [replace(option(0, name, i), joint=row(name)) for i, name in enumerate(played)],
        [option(1, role, i) for i, role in enumerate(ROLE_ORDER)],
    )


def _joint(decision: Decision, models: Sequence[str]) -> dict[tuple[str, Role], float]:
    """The probability of every pair; empty for a policy without any."""
    return {
        (model, role): p * q
        for model, p in zip(models, decision.model_probs, strict=False)
        for role, q in zip(ROLE_ORDER, decision.role_probs, strict=False)
    }


def with_other_head(options: Sequence[Option], other: Sequence[float]) -> list[Option]:
    """The options with another head's probabilities; their words say both, `recorded → other`."""
    return [
        option if option.words == MASKED else replace(option, other=p, words=f"{option.words} → {percent(p)}")
        for option, p in zip(options, other, strict=False)
    ]


def apart_words(
    ours: Decision, models: Sequence[str], theirs: Decision, other_models: Sequence[str], kl: float
) -> str:
    """How far the odds of a second decision are from those of the first, as markdown: whether both find the same pair
    likeliest, how much surer the second is of it, and `kl`, D_KL(ours || theirs) in nats."""
    (pair, p), (other, q) = _likeliest(ours, models), _likeliest(theirs, other_models)
    if pair != other:
        how = next((words for below, words in _DIVERGENCES if kl < below), "very different")
        words = f"**Another likeliest choice**, from {how} probabilities"
    else:
        surer = q * (1 - p) / max(p * (1 - q), 1e-12)  # the ratio of the odds
        how = next((words for least, words in _SURER if surer >= least), "but far less certain")
        words = f"**Same likeliest choice, {how}** ({percent(q)} instead of {percent(p)})"
    if math.isinf(kl):
        return f"{words}; some choices that were possible in the first are impossible in the second."
    return f"{words}. KL divergence {kl:.{3 if kl < 1 else 1}f}; 0 means the same."


#: From this ratio of odds on -> how sure the second decision is.
_SURER = (
    (10.0, "but far more certain"),
    (2.0, "but more certain"),
    (0.5, "and about as certain"),
    (0.1, "but less certain"),
)
#: Below so many nats -> what the probabilities are.
_DIVERGENCES = ((0.001, "nearly the same"), (0.1, "similar"), (1.0, "different"))


def _likeliest(decision: Decision, models: Sequence[str]) -> tuple[Pair, float]:
    joint = _joint(decision, models)
    pair = max(joint, key=joint.__getitem__)
    return pair, joint[pair]


def undecided(options: Sequence[Option]) -> list[Option]:
    """The options before anything is known about them."""
    return [replace(option, words="–", note="", chosen=False) for option in options]


@dataclass(frozen=True, slots=True)
class Alternative:
    """A pair that was not chosen: its probability and by how many nats the chosen pair was ahead of it."""

    model: str
    role: Role
    p: float
    margin: float


def alternatives(decision: Decision, models: Sequence[str]) -> list[Alternative]:
    """The three likeliest pairs that were not chosen, best first."""
    pairs = _joint(decision, models)
    mine = pairs.pop((decision.model, decision.role), 0.0)
    ranked = sorted(pairs.items(), key=lambda pair: -pair[1])[:3]
    return [
        Alternative(model, role, p, math.log(mine / p) if mine > 0 else -math.inf)
        for (model, role), p in ranked
        if p > 0
    ]


def masked_words(decision: Decision, models: Sequence[str], missing: Collection[str] = ()) -> str:
    """How many models could not be chosen, plain text; empty where all could. `missing`: those of which an outcome
    table has no answer to the question."""
    masked = [model for model, may in zip(models, decision.model_mask, strict=False) if not may]
    if not masked:
        return ""
    alone = len(masked) == len(models) - 1
    who = "No other model" if alone else f"{len(masked)} of {len(models)} models"
    why = ": the table has no answer of theirs to this question" if {*masked} <= {*missing} else ""
    return f"{who} could {'' if alone else 'not '}be chosen{why}."


def choice_words(
    decision: Decision,
    models: Sequence[str],
    strong: Callable[[str], str] = str,
    *,
    proposed: Pair | None = None,
) -> str:
    """How the choice came about: sampled or argmax, likely or lucky, or made by hand. `strong` stresses a few words,
    and escapes them where the text is markup. `proposed`: what the policy had proposed where a person chose; None where
    that is not known."""

    def pair(model: str, role: Role) -> str:
        return strong(pair_words(role, one_line(model, 40)))

    joint = _joint(decision, models)
    chosen, p = pair(decision.model, decision.role), percent(joint.get((decision.model, decision.role), 0.0))
    likeliest = ""
    if decision.argmax_model and decision.argmax_role is not None:
        argmax = decision.argmax_model, decision.argmax_role
        likeliest = f"; argmax would have been {pair(*argmax)} at {percent(joint.get(argmax, 0.0))}"
    if decision.origin == "override":
        if proposed is not None:
            own = f"{pair(*proposed)}, at {percent(joint.get(proposed, 0.0))}"
            return f"{chosen} was chosen {strong('by hand')}. Proposed was {own}; it was overruled."
        return f"{chosen} was chosen {strong('by hand')}{likeliest}."
    if decision.origin == "suggested_role":
        return f"The Thinker of the turn before asked for this role: {chosen}."
    if decision.origin == "repair":
        return (
            f"The answer had not the form that was asked for: {chosen}, whose answer it is, writes it again."
        )
    if not decision.model_probs:
        return (
            f"{chosen} was chosen {strong('without a head')}: this policy has no logits and no probabilities."
        )
    if not decision.role_probs:
        drawn = percent(max(decision.model_probs))
        return f"{chosen}: the model {strong('drawn at random')}, every allowed one at {drawn}, the role by a cycle."
    if not decision.argmax_model:
        return f"{strong('Drawn at random')}: {chosen}, like every allowed pair at {p}."
    if not decision.sampled:
        return f"{strong('Argmax')}: {chosen} is the likeliest pair at {p}."
    if (decision.argmax_model, decision.argmax_role) == (decision.model, decision.role):
        return f"{strong('Sampled')}, and it drew the likeliest pair: {chosen} at {p}."
    return f"{strong('Sampled')}: it drew {chosen} at {p}{likeliest}."
