"""Why a choice came about, as a sentence: its words, and what the text without a part would have led to."""

from __future__ import annotations

from core.analysis.attribution import Attribution, Lead, PartLeftOut, WordAttribution, WordLeftOut
from core.episode import Role, Transcript, TranscriptEntry, Verdict
from ui.presentation.story import part_words, reason

QUESTION = "On which day of the week falls 3 May?"
TEXT = Transcript(
    QUESTION,
    (
        TranscriptEntry(Role.WORKER, "sage", "answer Monday"),
        TranscriptEntry(Role.VERIFIER, "jack", "verdict REVISE count again"),
    ),
)
VERDICTS = {1: Verdict.REVISE}
CHOSEN, OTHER, BEFORE = ("sage", Role.WORKER), ("atlas", Role.THINKER), ("jack", Role.VERIFIER)


def part(place: int, gives: float, likeliest: tuple[str, Role] = CHOSEN) -> PartLeftOut:
    return PartLeftOut(place, gives, Lead(1.0 - gives, likeliest, 0.4))


def attribution(*parts: PartLeftOut, likeliest: tuple[str, Role] = CHOSEN) -> Attribution:
    return Attribution(CHOSEN, BEFORE, Lead(1.0, likeliest, 0.5), parts)


def word(text: str, gives: float, place: int = -1) -> WordLeftOut:
    body = QUESTION if place < 0 else TEXT.entries[place].text
    start = body.index(text)
    return WordLeftOut(place, start, start + len(text), gives)


def words(*found: WordLeftOut) -> WordAttribution:
    return WordAttribution(found, len(found), len(found))


def test_it_begins_with_the_words_and_ends_with_what_would_have_been_without_a_part() -> None:
    found = attribution(part(-1, 2.0), part(0, 0.1), part(1, 1.5, BEFORE))
    told = reason(
        found, words(word("week", 0.2), word("day", 0.7), word("On", 0.9), word("3", -0.4)), TEXT, VERDICTS
    )
    assert told == (
        "Mostly the words “On … day … week” in the question; without jack's REVISE (turn 2) the likeliest choice would "
        "have been Verifier on jack again."
    )


def test_words_side_by_side_are_quoted_as_one_and_those_of_several_parts_apart() -> None:
    found = attribution(part(-1, 1.0))
    told = reason(found, words(word("falls", 0.5), word("week", 0.6), word("REVISE", 0.4, 1)), TEXT, VERDICTS)
    assert told.startswith(
        "Mostly the words “week falls” in the question and “REVISE” in jack's verdict (turn 2); "
    )
    assert told.endswith("; without any one part of the text the likeliest choice would have been the same.")


def test_many_small_words_are_not_called_most_of_it() -> None:
    small = [word(one, 0.1) for one in QUESTION.split()]
    told = reason(attribution(part(-1, 1.0)), words(*small), TEXT, {})
    assert told.startswith("Many words together, above all the words “")


def test_without_words_the_strongest_part_is_named() -> None:
    found = attribution(part(-1, 0.2), part(0, 1.5), part(1, -0.3))
    assert reason(found, None, TEXT, {}).startswith("Mostly sage's answer (turn 1); without any one part")
    assert reason(attribution(part(-1, -1.0)), None, TEXT, {}).startswith(
        "Nothing in the text speaks for it; "
    )


def test_a_choice_that_was_drawn_is_set_against_the_likeliest_and_not_against_itself() -> None:
    """Without a part the likeliest choice stays what it was with it: that is no change, though it was not drawn."""
    found = attribution(part(-1, 0.5, OTHER), part(0, 0.2, OTHER), part(1, 0.1, CHOSEN), likeliest=OTHER)
    told = reason(found, words(word("On", 0.9)), TEXT, VERDICTS)
    assert told == (
        "Drawn against the odds: the likeliest choice was Thinker on atlas. For Worker on sage spoke mostly the word "
        "“On” in the question; without jack's REVISE (turn 2) the likeliest choice would have been Worker on sage."
    )


def test_many_parts_that_change_it_are_counted() -> None:
    found = attribution(part(-1, 3.0, OTHER), part(0, 2.0, BEFORE), part(1, 1.0, OTHER))
    told = reason(found, None, TEXT, {})
    assert (
        "without the question the likeliest choice would have been Thinker on atlas and without sage's answer"
        in told
    )
    assert told.endswith("Verifier on jack again, and without 1 more part another one too.")


def test_parts_in_words() -> None:
    assert part_words(TEXT, -1) == "the question"
    assert part_words(TEXT, 1) == "jack's verdict (turn 2)"
    assert part_words(TEXT, 1, VERDICTS) == "jack's REVISE (turn 2)"
