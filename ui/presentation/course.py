"""The course of an episode: what happened at each turn, where the blunders are, and its strip cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from core.episode import ROLE_ORDER, Flag, Role, Verdict
from storage.rows.summaries import LOW_MARGIN, TurnOutline
from ui.presentation.theme import (
    ROLE_STYLES,
    Mark,
    correct_mark,
    flag_words,
    ink_on,
    model_colour,
    one_line,
    verdict_mark,
)

#: What a blunder is, in words, for sheets of keys.
BLUNDER_WORDS = "a wrong answer that stayed, a right one lost or sent back, or a wrong one accepted"
#: A low margin in words.
LOW_WORDS = f"a margin below {LOW_MARGIN:g} logits"
SENT_BACK_WORDS = "sent a right answer back"

Tone = Literal["good", "bad", "warn", "info", "quiet"]
Shape = Literal["circle", "square", "triangle"]


@dataclass(frozen=True, slots=True)
class CellMark:
    """A glyph with its word; the word is always there, in the cell or in its tooltip."""

    glyph: str
    word: str
    tone: Tone = "quiet"


class Happening(Enum):
    """Something at a turn worth stopping at, as its cell is marked."""

    FIRST_RIGHT = CellMark("★", "first right", "good")
    FIXED = CellMark("★", "fixed", "good")
    WRONG_SINCE = CellMark("✕", "wrong since here", "bad")
    BROKE = CellMark("✕", "broke it", "bad")
    FALSE_ACCEPT = CellMark("!", "accepted a wrong answer", "bad")
    SAME_AND_WRONG = CellMark("!", "the same wrong answer", "bad")
    SENT_BACK = CellMark("↩", SENT_BACK_WORDS, "bad")
    LOW_MARGIN = CellMark("≈", "low margin", "warn")
    UNREADABLE = CellMark("?", "unreadable", "warn")
    NOTHING_TO_JUDGE = CellMark("∅", "no answer to check", "warn")
    OVERRIDE = CellMark("☞", "by hand", "info")
    ERROR = CellMark("⚠", "model failed", "bad")
    CUT = CellMark("…", "cut", "warn")


#: Turns a reader should see first.
BLUNDERS = frozenset(
    {
        Happening.WRONG_SINCE,
        Happening.BROKE,
        Happening.FALSE_ACCEPT,
        Happening.SAME_AND_WRONG,
        Happening.SENT_BACK,
    }
)


@dataclass(frozen=True, slots=True)
class StripCell:
    """One turn as it is drawn. `entropy` is the share of its maximum (0 to 1); `label` says all in words."""

    letter: str
    shape: Shape
    colour: str
    ink: str
    model: str
    answer: CellMark
    label: str
    verdict: CellMark | None = None
    marks: tuple[CellMark, ...] = ()
    entropy: float | None = None
    pending: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """One episode's cells; None is a gap left by an alignment. `name` is short, such as "A"."""

    cells: tuple[StripCell | None, ...]
    name: str = ""


#: At the first turn that another policy decided.
NEW_DECIDER = CellMark("⇄", "new decider", "info")
#: The answer in force after a turn: right, wrong, or judged by nobody.
_ANSWERS: dict[bool | None, tuple[str, Tone]] = {
    True: ("●", "good"),
    False: ("✕", "bad"),
    None: ("○", "quiet"),
}
_UNREADABLE = {Flag.VERDICT_UNREADABLE, Flag.NO_ANSWER, Flag.NO_SUGGESTION}
_CUT = {Flag.TRUNCATED, Flag.PROMPT_OVERFLOW, Flag.PROMPT_SHORTENED}
#: The tones of a verdict's mark, by its colour on a page.
_TONES: dict[str, Tone] = {"green": "good", "red": "bad", "orange": "warn"}
_SHAPES: dict[Role, Shape] = {Role.THINKER: "circle", Role.WORKER: "square", Role.VERIFIER: "triangle"}


def happenings(outlines: Sequence[TurnOutline]) -> tuple[tuple[Happening, ...], ...]:
    """What happened at each turn, in order; most turns have nothing."""
    found: list[tuple[Happening, ...]] = []
    wrong_from = wrong_since(outlines)
    seen_right = False
    before: bool | None = None
    for outline in outlines:
        now = outline.correct_after if outline.stage == "finished" else before
        lost, flags = before is True and now is not True, set(outline.flags)
        false_accept = outline.verdict is Verdict.ACCEPT and (now is False or outline.answer_after is None)
        here = {
            Happening.FIRST_RIGHT: now is True and not seen_right,
            Happening.FIXED: now is True and before is not True and seen_right,
            Happening.BROKE: lost,
            Happening.WRONG_SINCE: outline.index == wrong_from and not lost,
            Happening.FALSE_ACCEPT: false_accept and Flag.BY_AGREEMENT not in flags,
            Happening.SAME_AND_WRONG: false_accept and Flag.BY_AGREEMENT in flags,
            Happening.SENT_BACK: sent_back(outline),
            Happening.ERROR: bool(outline.error) or Flag.MODEL_ERROR in flags,
            Happening.UNREADABLE: not flags.isdisjoint(_UNREADABLE),
            Happening.NOTHING_TO_JUDGE: Flag.NOTHING_TO_JUDGE in flags,
            Happening.CUT: not flags.isdisjoint(_CUT),
            Happening.LOW_MARGIN: outline.margin is not None and outline.margin < LOW_MARGIN,
            Happening.OVERRIDE: outline.origin == "override",
        }
        found.append(tuple(happening for happening, holds in here.items() if holds))
        seen_right, before = seen_right or now is True, now
    return tuple(found)


def wrong_since(outlines: Sequence[TurnOutline]) -> int | None:
    """The turn since which the answer has been wrong, its index. Later turns may have missed chances to mend it. None
    while the answer is right, there is none, or nobody judged it."""
    since: int | None = None
    for outline in outlines:
        if outline.stage == "finished":
            wrong = outline.correct_after is False
            since = (outline.index if since is None else since) if wrong else None
    return since


def sent_back(outline: TurnOutline) -> bool:
    """Whether a Verifier asked for a revision of a right answer, and did not only answer otherwise."""
    return (
        outline.stage == "finished"
        and Flag.BY_AGREEMENT not in outline.flags
        and outline.role is Role.VERIFIER
        and outline.verdict is Verdict.REVISE
        and outline.correct_after is True
    )


def blunders(outlines: Sequence[TurnOutline]) -> tuple[int, ...]:
    """Indices of the turns at which it went wrong, a right answer was lost or sent back, or a wrong one accepted."""
    return tuple(i for i, here in enumerate(happenings(outlines)) if BLUNDERS & set(here))


def next_of(turns: Sequence[int], after: int) -> int | None:
    """The next of `turns` after the cursor, going round to the first; None when there are none."""
    return next((turn for turn in turns if turn > after), turns[0] if turns else None)


def turn_words(outline: TurnOutline, total: int | None) -> str:
    """One turn as a sentence, plain text. `total` is None while more turns may come."""
    place = f"Turn {outline.index + 1}{'' if total is None else f' of {total}'}"
    parts = [place, ROLE_STYLES[outline.role].word, one_line(outline.model, 40)]
    if outline.stage != "finished":
        return ", ".join([*parts, "not finished"])
    if mark := verdict_of(outline):
        parts.append(mark.word)
    if outline.answer_after is None:
        parts.append("no answer yet")
    else:
        answer = one_line(outline.answer_after, 60)
        parts.append(f"answer {answer} is {correct_mark(outline.correct_after).word}")
    if sent_back(outline):
        parts.append(SENT_BACK_WORDS)
    return ", ".join([*parts, *flag_words(outline.flags)])


def verdict_of(outline: TurnOutline) -> Mark | None:
    """The mark of a Verifier's turn; None for a turn without a verdict."""
    said = (Flag.VERDICT_UNREADABLE, Flag.BY_AGREEMENT, Flag.SELF_VERIFIED)
    unreadable, compared, itself = (flag in outline.flags for flag in said)
    return verdict_mark(outline.verdict, unreadable=unreadable, compared=compared, itself=itself)


def cells(
    outlines: Sequence[TurnOutline],
    models: Sequence[str],
    *,
    running: bool = False,
    only: Sequence[int] | None = None,
) -> tuple[StripCell, ...]:
    """The strip cells of an episode, or those of the turns `only`; `models` are its pool slots in head order. While
    it is `running` its unfinished turn pulses."""
    most_entropy = math.log(max(2, len(models) * len(ROLE_ORDER)))
    marks = happenings(outlines)
    turns = range(len(outlines)) if only is None else only
    total = None if running else len(outlines)
    return tuple(
        _cell(outlines[i], outlines[i - 1] if i else None, models, total, marks[i], most_entropy, running)
        for i in turns
    )


def lane(outlines: Sequence[TurnOutline], models: Sequence[str], *, running: bool = False) -> Lane:
    """One episode as a strip lane."""
    return Lane(cells(outlines, models, running=running))


def _cell(
    outline: TurnOutline,
    before: TurnOutline | None,
    models: Sequence[str],
    total: int | None,
    here: Sequence[Happening],
    most_entropy: float,
    running: bool,
) -> StripCell:
    colour = model_colour(outline.model, models)
    unfinished = outline.stage != "finished"
    mark = verdict_of(outline)
    uncertainty = None if outline.entropy is None else min(1.0, max(0.0, outline.entropy / most_entropy))
    return StripCell(
        letter=ROLE_STYLES[outline.role].letter,
        shape=_SHAPES[outline.role],
        colour=colour,
        ink=ink_on(colour),
        model=one_line(outline.model, 40),
        verdict=None if mark is None else CellMark(mark.glyph, mark.word, _TONES.get(mark.tone, "quiet")),
        answer=CellMark("…", "writing" if running else "cut off") if unfinished else _answer(outline, before),
        marks=tuple(happening.value for happening in here),
        entropy=uncertainty,
        label=turn_words(outline, total)
        + ("" if uncertainty is None else f"; the bar: {100 * uncertainty:.0f} % unsure"),
        pending=unfinished and running,
    )


def _answer(outline: TurnOutline, before: TurnOutline | None) -> CellMark:
    """The answer in force after a turn; quiet where it stands since an earlier one, and without a mark of its own where
    the turn's role neither gives nor judges answers."""
    if outline.answer_after is None:
        return CellMark("·", "no answer")
    text = one_line(outline.answer_after, 60) or "(empty)"
    glyph, tone = _ANSWERS[outline.correct_after]
    own = outline.role is Role.WORKER and Flag.NO_ANSWER not in outline.flags
    if before is not None and not own and before.answer_after == outline.answer_after:
        if outline.role is Role.THINKER:
            return CellMark("·", f"so far {text}")
        return CellMark(glyph, f"still {text}")
    return CellMark(glyph, text, tone)


def counted_turns(turns: int, budget: int) -> str:
    """How many turns of its budget an episode took; failures that others made good, and an answer that was written
    again in the form that was asked for, do not count."""
    more = turns - budget
    beyond = f" and {more} that {'does' if more == 1 else 'do'} not count" if more > 0 else ""
    return f"{min(turns, budget)} of {budget} turns{beyond}"
