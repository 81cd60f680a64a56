"""Which turns of an episode a reader steps over: one role's, those that changed the answer, those with a mark, all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from core.episode import Role
from storage.summaries import TurnOutline
from ui import state
from ui.course import happenings
from ui.theme import ROLE_LOOKS

_PARAM, _KEY = "only", "only_turns"


def _of_role(role: Role) -> Callable[[Sequence[TurnOutline]], list[int]]:
    return lambda outlines: [one.index for one in outlines if one.role is role]


def _changed(outlines: Sequence[TurnOutline]) -> list[int]:
    """The turns after which the answer was another one, the first answer among them."""
    before = [None, *(one.answer_after for one in outlines)]
    return [
        one.index for one, was in zip(outlines, before, strict=False) if one.answer_after not in (None, was)
    ]


def _marked(outlines: Sequence[TurnOutline]) -> list[int]:
    return [index for index, here in enumerate(happenings(outlines)) if here]


#: What the address says -> its words, and the turns that are kept.
FOLDS: dict[str, tuple[str, Callable[[Sequence[TurnOutline]], list[int]]]] = {
    "thinker": ("Only Thinkers", _of_role(Role.THINKER)),
    "worker": ("Only Workers", _of_role(Role.WORKER)),
    "verifier": ("Only Verifiers", _of_role(Role.VERIFIER)),
    "changed": ("Answer changed", _changed),
    "marked": ("With a mark", _marked),
}


def fold(outlines: Sequence[TurnOutline], cursor: int) -> list[int]:
    """The indices of the turns that are shown, in order. The one at hand always is."""
    kept = FOLDS.get(state.param(_PARAM) or "")
    return sorted({cursor, *kept[1](outlines)}) if kept else list(range(len(outlines)))


def fold_words(shown: Sequence[int], cursor: int, total: int) -> str:
    """Where the cursor is, for the foot of the page: `Turn 4 of 7`, and among how many when some are folded away."""
    here = f"Turn {cursor + 1:,} of {total:,}"
    return here if len(shown) == total else f"{here} · {len(shown):,} shown"


def fold_control(outlines: Sequence[TurnOutline], *, judged: bool) -> None:
    """The choice, which stands in the address as `only`. What was found out about turns is no choice unless `judged`,
    and a kind that no turn is of is none."""
    offered = {
        name: f"{words} ({len(turns)})"
        for name, (words, kept) in FOLDS.items()
        if (judged or name != "marked") and (turns := kept(outlines))
    }
    asked = state.param(_PARAM) or ""
    if asked in FOLDS and asked not in offered:
        offered[asked] = FOLDS[asked][0]
    st.session_state[_KEY] = asked if asked in offered else ""
    st.selectbox(
        "Turns shown",
        ["", *offered],
        key=_KEY,
        format_func=lambda name: offered.get(name, "Every turn"),
        label_visibility="collapsed",
        width=170,
        on_change=lambda: state.set_params(**{_PARAM: st.session_state[_KEY]}),
        help=f"Fold the others away: the strip and J and K then go over {ROLE_LOOKS[Role.WORKER].word}s only, say",
    )
