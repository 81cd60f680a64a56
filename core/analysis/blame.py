"""Which turn of an episode that ended wrong is named for it, from what is written alone: nothing is played.

The earliest turn whose text already holds the wrong value, a plan as much as an answer; where no text does, or the
value stands in the question as well, the first turn that gave the wrong answer. Only turns after the last right answer
was given count. It is a rule of thumb: another choice
at that turn need not have helped, which only playing on from it can tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from core.episode import Episode, Role, Turn

#: Why a turn is named: its plan, or its own reply, holds the wrong value; or it gave the wrong answer; or no turn gave
#: any answer, and it is the last one that could have.
Why = Literal["plan", "text", "answer", "none"]


@dataclass(frozen=True, slots=True)
class Blame:
    """The turn that is named, from 0, why, and the wrong value (empty where there is none)."""

    turn: int
    why: Why
    value: str = ""


def blame(episode: Episode) -> Blame | None:
    """The turn to name for a wrong ending; None for an episode that ended right, that nobody judged, or without
    turns."""
    if episode.correct is not False or not episode.turns:
        return None
    value = (episode.answer or "").strip()
    if not value:
        able = [turn.index for turn in episode.turns if turn.decision.role is Role.WORKER]
        return Blame(able[-1] if able else episode.turns[-1].index, "none")
    # Before a right answer stood, whatever was wrong had been mended.
    right = [turn.correct_after is True for turn in episode.turns]
    since = max((i + 1 for i in range(len(right)) if right[i] and not (i and right[i - 1])), default=0)
    given = next(turn.index for turn in episode.turns[since:] if turn.answer_after == episode.answer)
    # A short value stands in many texts by chance, and one of the question is in every text about it.
    if holds(episode.task.question, value):
        return Blame(given, "answer", value)
    first = next((turn for turn in episode.turns[since:given] if holds(_text(turn), value)), None)
    if first is None:
        return Blame(given, "answer", value)
    return Blame(first.index, "plan" if first.decision.role is Role.THINKER else "text", value)


def holds(text: str, value: str) -> bool:
    """Whether a value stands in a text as a word or number of its own."""
    pattern = rf"(?<![\w.,-]){re.escape(value)}(?![\w-])(?![.,]\d)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def _text(turn: Turn) -> str:
    return f"{turn.suggestion}\n{turn.reply.text}"
