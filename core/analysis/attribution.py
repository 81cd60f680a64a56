"""What in the transcript made a choice: the decision taken again without each part of it, and without each word.

The choice is a pair of model and role. Its lead over the runner-up, the likeliest other pair in the full transcript, is
a difference of logits, or equally the logarithm of how many times likelier it is. What a part contributes is the lead
with everything less the lead without it. These are exact figures for the coordinator at hand, not estimates; what two
parts do together is in neither.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from core.analysis.head_lens import runner_up
from core.episode import ROLE_ORDER, Decide, Decision, Role, Transcript, TranscriptEntry
from core.errors import ConfigError
from core.play.policies import Policy

Pair = tuple[str, Role]
Method = Literal["leaving out", "gradients"]

#: The question's place among the parts; earlier replies are counted from 0.
QUESTION = -1

#: Gradients are taken on so many stretches of their way, each worked out by itself.
STRETCHES = 10

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Lead:
    """How far the `chosen` pair is ahead of the `rival` in some transcript: `value` in logits. `likeliest` is the pair
    that would be the likeliest there, with its probability `p`."""

    value: float
    likeliest: Pair
    p: float


@dataclass(frozen=True, slots=True)
class PartLeftOut:
    """A part of the transcript, the question or an earlier reply, and the lead without it. `gives`: how far the part
    moves the lead, in logits; positive where it speaks for the choice."""

    part: int
    gives: float
    without: Lead


@dataclass(frozen=True, slots=True)
class WordLeftOut:
    """A word of a part, by its characters from `start` to `end`, and how far it moves the lead."""

    part: int
    start: int
    end: int
    gives: float


@dataclass(frozen=True, slots=True)
class Attribution:
    """What the parts of a transcript contribute to a choice. `logits`: those with nothing left out, of the models, then
    of the roles."""

    chosen: Pair
    rival: Pair
    full: Lead
    parts: tuple[PartLeftOut, ...]
    logits: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class WordAttribution:
    """What words contribute, as far as it is worked out: `done` of `steps`. Left out one by one, a step is a word; by
    integrated gradients (`core.coordinator.gradients`) it is a stretch of the way from a transcript without words to
    the whole one; `rest` is what replies of blanks alone contribute, and `error` by how many logits the sum of all
    misses what the lead changed on that way."""

    words: tuple[WordLeftOut, ...]
    done: int
    steps: int
    method: Method = "leaving out"
    rest: float = 0.0
    error: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be worked out."""
        return self.done >= self.steps


def by_part(policy: Policy, request: Decide, chosen: Pair, rival: Pair | None = None) -> Attribution:
    """Leave out the question and every earlier reply in turn, all in one batch. `rival`: what the choice is put
    against; the runner-up where it is None. ConfigError where there is nothing to put it against, or the coordinator
    does not read a transcript."""
    if request.messages:
        raise ConfigError(
            "Attribution needs a coordinator that reads the transcript; this one reads the chat of the "
            "released protocol, whose words cannot be left out one by one."
        )
    parts = [QUESTION, *range(len(request.transcript.entries))]
    full, *others = policy.decide([request, *(without_part(request, part) for part in parts)])
    rival = rival or rival_of(policy, full, chosen)
    lead = lead_of(policy, full, chosen, rival)
    found = [
        PartLeftOut(part, lead.value - without.value, without)
        for part, decision in zip(parts, others, strict=True)
        for without in [lead_of(policy, decision, chosen, rival)]
    ]
    return Attribution(chosen, rival, lead, tuple(found), (*full.model_logits, *full.role_logits))


def leave_out(
    policy: Policy, request: Decide, found: Attribution, places: Sequence[tuple[int, int, int]]
) -> list[WordLeftOut]:
    """Each of these words left out in turn, all in one batch, of the choice that `found` is about."""
    decisions = policy.decide([without_words(request, [place]) for place in places])
    return [
        WordLeftOut(*place, found.full.value - lead_of(policy, decision, found.chosen, found.rival).value)
        for place, decision in zip(places, decisions, strict=True)
    ]


def as_decided(request: Decide, decision: Decision, *, reads_chat: bool) -> Decide:
    """The request with the masks that were in force at a decision, so that it is taken again as it was.
    `reads_chat`: whether the coordinator reads the chat of the released rules, where there is one, and not the
    transcript."""
    return replace(
        request,
        model_mask=decision.model_mask,
        role_mask=decision.role_mask,
        messages=request.messages if reads_chat else (),
    )


def check_gradients(input_format: str) -> None:
    """ConfigError where words cannot be told apart by gradients: captum is missing, or a chat is read."""
    if input_format == "chat":
        raise ConfigError(
            "This checkpoint reads the transcript as one chat message, in which gradients cannot tell words apart."
        )
    if importlib.util.find_spec("captum") is None:
        raise ConfigError(
            "An encoder of this size needs the library captum for attribution: pip install "
            "'trinity-inspector[attribution]'."
        )


def own_choice(decision: Decision) -> Pair:
    """The pair that the coordinator itself chose: what a person or a Thinker put in its place is no choice of its own,
    and its likeliest stands for it."""
    assert decision.argmax_role is not None
    if decision.origin == "policy":
        return decision.model, decision.role
    model = decision.argmax_model if decision.origin == "override" else decision.model
    return model, decision.argmax_role


def digest_of(request: Decide, chosen: Pair | None) -> str:
    """Tells apart what an attribution holds for: the transcript, the masks, and the choice (None: whatever is the
    likeliest). 128 bits of SHA-256, in hex."""
    transcript = request.transcript
    entries = [[one.role, one.model, one.text] for one in transcript.entries]
    content = [transcript.question, entries, request.model_mask, request.role_mask, chosen]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def words_of(transcript: Transcript) -> list[tuple[int, int, int]]:
    """Every word of a transcript: its part, and its characters there. A word is what stands between blanks."""
    texts = [(QUESTION, transcript.question), *((i, one.text) for i, one in enumerate(transcript.entries))]
    return [(part, *match.span()) for part, text in texts for match in _WORD.finditer(text)]


def without_part(request: Decide, part: int) -> Decide:
    """The request with the question empty, or without an earlier reply."""
    transcript = request.transcript
    if part == QUESTION:
        return replace(request, transcript=replace(transcript, question=""))
    entries = tuple(one for i, one in enumerate(transcript.entries) if i != part)
    return replace(request, transcript=replace(transcript, entries=entries))


def without_words(request: Decide, places: Sequence[tuple[int, int, int]]) -> Decide:
    """The request without some words; the blanks around them stay."""
    by_part: dict[int, list[tuple[int, int]]] = {}
    for part, start, end in places:
        by_part.setdefault(part, []).append((start, end))

    def cut(part: int, text: str) -> str:
        for start, end in sorted(by_part.get(part, ()), reverse=True):
            text = text[:start] + text[end:]
        return text

    transcript = request.transcript
    entries = tuple(
        TranscriptEntry(one.role, one.model, cut(i, one.text)) for i, one in enumerate(transcript.entries)
    )
    return replace(request, transcript=Transcript(cut(QUESTION, transcript.question), entries))


def rival_of(policy: Policy, decision: Decision, chosen: Pair) -> Pair:
    """The likeliest pair besides the chosen one: another model or another role, whichever costs less. ConfigError where
    nothing else was allowed."""
    model, role = policy.models.index(chosen[0]), ROLE_ORDER.index(chosen[1])
    found: list[tuple[float, Pair]] = []
    for what, logits, place, mask in (
        ("model", decision.model_logits, model, decision.model_mask),
        ("role", decision.role_logits, role, decision.role_mask),
    ):
        # Of the pairs that differ in both, none is likelier than the better of these two.
        best = [i for i in range(len(logits)) if not mask or mask[i]]
        likeliest = max(best, key=lambda i: logits[i], default=place)
        other = likeliest if likeliest != place else runner_up(logits, place, mask)
        if other is not None and what == "model":
            found.append((logits[other] - logits[place], (policy.models[other], chosen[1])))
        elif other is not None:
            found.append((logits[other] - logits[place], (chosen[0], ROLE_ORDER[other])))
    if not found:
        raise ConfigError("Nothing else could have been chosen at this turn, so nothing made the choice.")
    gains = [gain for gain, _ in found if gain > 0]
    if len(gains) == 2:  # a choice that was drawn although both are likelier otherwise
        return found[0][1][0], found[1][1][1]
    return max(found, key=lambda one: one[0])[1]


def lead_of(policy: Policy, decision: Decision, chosen: Pair, rival: Pair) -> Lead:
    """How far the chosen pair is ahead of the rival in a decision, and what is the likeliest there."""

    def score(pair: Pair) -> float:
        model, role = policy.models.index(pair[0]), ROLE_ORDER.index(pair[1])
        return decision.model_logits[model] + decision.role_logits[role]

    p = max(decision.model_probs) * max(decision.role_probs)
    assert decision.argmax_role is not None
    return Lead(score(chosen) - score(rival), (decision.argmax_model, decision.argmax_role), p)


def times_likelier(lead: float) -> float:
    """A lead in logits as how many times likelier the choice is than its rival."""
    return math.exp(min(lead, 700.0))
