"""Why a choice came about, in a sentence: the words that speak most for it, and what would have been the likeliest
choice without a part of the text."""

from __future__ import annotations

from collections.abc import Mapping

from core.analysis.attribution import QUESTION, Attribution, PartLeftOut, WordAttribution, WordLeftOut
from core.episode import Role, Transcript, Verdict
from ui.presentation.theme import one_line
from ui.presentation.words import pair_words

#: The most words that are quoted, and the most parts whose absence is told.
_QUOTED, _TOLD = 3, 2
#: The share of all that speaks for a choice from which on a few words or a part are most of it.
_MOST = 0.5
_NOTHING = "nothing in the text"
#: What each role contributes to a transcript.
SAID: dict[Role, str] = {Role.THINKER: "plan", Role.WORKER: "answer", Role.VERIFIER: "verdict"}


def reason(
    found: Attribution,
    words: WordAttribution | None,
    transcript: Transcript,
    verdicts: Mapping[int, Verdict],
) -> str:
    """A sentence or two, plain text. `words`: what each word contributes, None as long as that is not known; `verdicts`
    are those that were read from the replies, by their place in the transcript."""
    likeliest = found.full.likeliest
    spoke = _for_it(found, words, transcript, verdicts)
    if likeliest != found.chosen:
        drawn = f"Drawn against the odds: the likeliest choice was {_pair(likeliest)}"
        return f"{drawn}. For {_pair(found.chosen)} spoke {spoke}; {_without(found, transcript, verdicts)}."
    first = (
        f"{spoke[0].upper()}{spoke[1:]}" if spoke != _NOTHING else f"{_NOTHING.capitalize()} speaks for it"
    )
    return f"{first}; {_without(found, transcript, verdicts)}."


def part_words(transcript: Transcript, place: int, verdicts: Mapping[int, Verdict] | None = None) -> str:
    """A part of a transcript within a sentence, plain text: `the question`, `jack's plan (turn 1)`, and by its verdict
    where that is known: `jack's REVISE (turn 2)`."""
    if place == QUESTION:
        return "the question"
    entry = transcript.entries[place]
    said = (verdicts or {}).get(place) or SAID[entry.role]
    return f"{one_line(entry.model, 40)}'s {said} (turn {place + 1})"


def _for_it(
    found: Attribution,
    words: WordAttribution | None,
    transcript: Transcript,
    verdicts: Mapping[int, Verdict],
) -> str:
    """What speaks for the choice, the words where they are known."""
    positive = (
        sorted((one for one in words.words if one.gives > 0), key=lambda one: -one.gives) if words else []
    )
    if positive:
        told = positive[:_QUOTED]
        how = _how(sum(one.gives for one in told), sum(one.gives for one in positive))
        return f"{how} {_quoted(told, transcript)}"
    parts = sorted((one for one in found.parts if one.gives > 0), key=lambda one: -one.gives)
    if parts:
        how = _how(parts[0].gives, sum(one.gives for one in parts))
        return f"{how} {part_words(transcript, parts[0].part, verdicts)}"
    return _NOTHING


def _how(told: float, all_of_it: float) -> str:
    return "mostly" if told >= _MOST * all_of_it else "many words together, above all"


def _quoted(told: list[WordLeftOut], transcript: Transcript) -> str:
    """The words in quotation marks and where they stand, those of one part together, the part with the strongest
    first."""
    by_part: dict[int, list[WordLeftOut]] = {}
    for one in told:
        by_part.setdefault(one.part, []).append(one)
    places = [
        f"{_quotation(part, sorted(own, key=lambda one: one.start), transcript)} in "
        f"{part_words(transcript, part)}"
        for part, own in by_part.items()
    ]
    return f"the word{'s' if len(told) > 1 else ''} {', '.join(places[:-1])}{' and ' * (len(places) > 1)}{places[-1]}"


def _quotation(part: int, own: list[WordLeftOut], transcript: Transcript) -> str:
    """Words of a part in their order; an ellipsis stands for what is between them."""
    text = transcript.question if part == QUESTION else transcript.entries[part].text
    quoted, end = "", 0
    for one in own:
        between = " " if not text[end : one.start].strip() else " … "
        quoted += (between if quoted else "") + one_line(text[one.start : one.end], 24)
        end = one.end
    return f"“{quoted}”"


def _without(found: Attribution, transcript: Transcript, verdicts: Mapping[int, Verdict]) -> str:
    """What would have been the likeliest choice without a part."""
    changed = sorted(
        (one for one in found.parts if one.without.likeliest != found.full.likeliest),
        key=lambda one: -abs(one.gives),
    )
    if not changed:
        return "without any one part of the text the likeliest choice would have been the same"
    told = " and ".join(_instead(one, transcript, verdicts) for one in changed[:_TOLD])
    more = len(changed) - _TOLD
    others = f", and without {more} more part{'s' if more > 1 else ''} another one too" if more > 0 else ""
    return f"{told}{others}"


def _instead(one: PartLeftOut, transcript: Transcript, verdicts: Mapping[int, Verdict]) -> str:
    model, role = one.without.likeliest
    before = transcript.entries[-1] if transcript.entries else None
    again = " again" if before is not None and (before.model, before.role) == (model, role) else ""
    part = part_words(transcript, one.part, verdicts)
    return f"without {part} the likeliest choice would have been {_pair(one.without.likeliest)}{again}"


def _pair(pair: tuple[str, Role]) -> str:
    return pair_words(pair[1], one_line(pair[0], 40))
