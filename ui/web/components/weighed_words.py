"""Texts as they were read, each word tinted and underlined by how far it moves a choice; drawn as text, whatever it
says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ui.presentation.theme import one_line, plain
from ui.web.components import component

_HTML = '<div class="weighed" role="group"></div>'
#: A word that moves the choice by less of what the strongest does is not marked.
_FAINT = 0.05
#: A text is cut after so many characters.
MOST_CHARACTERS = 6_000


@dataclass(frozen=True, slots=True)
class WeighedText:
    """A text and its words: from where to where each stands, and by how many logits it moves the choice."""

    heading: str
    text: str
    words: Sequence[tuple[int, int, float]]


def weighed_words(texts: Sequence[WeighedText], strongest: float, *, key: str, what: str) -> None:
    """Draw the texts; a word that moves the choice by `strongest` logits has the full tint. `what` says in words what
    is shown."""
    data = {"blocks": [block(one, strongest) for one in texts], "said": what}
    component("weighed_words", _HTML)(key=key, data=data)


def block(one: WeighedText, strongest: float) -> dict[str, Any]:
    """What one text is drawn from: its pieces in order, each with its weight from -1 to 1 (0: not marked) and the words
    that hovering shows."""
    pieces: list[tuple[str, float, str]] = []
    at, end = 0, min(len(one.text), MOST_CHARACTERS)
    for start, stop, gives in sorted(one.words):
        if start >= end:
            break
        share = gives / strongest if strongest else 0.0
        if abs(share) < _FAINT:
            continue
        pieces.append((plain(one.text[at:start]), 0.0, ""))
        pieces.append(
            (plain(one.text[start:stop]), round(max(-1.0, min(1.0, share)), 3), f"{gives:+.3f} logits")
        )
        at = stop
    rest = plain(one.text[at : max(at, end)])
    left = len(one.text) - max(at, end)
    pieces.append((f"{rest}\n… {left:,} more characters" if left > 0 else rest, 0.0, ""))
    return {"heading": one_line(one.heading, 80), "pieces": [list(piece) for piece in pieces if piece[0]]}
