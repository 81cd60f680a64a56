"""Which turns of an episode a reader steps over: one role's, those that changed the answer, those with a mark, all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from core.episode import Role
from storage.rows.summaries import TurnOutline
from ui.presentation.course import happenings
from ui.web.kit import state

_PARAM, _KEY = "only", "only_turns"


def _of_role(role: Role) -> Callable[[Sequence[TurnOutline]], list[int]]:
    return lambda outlines: [one.index for one in outlines if one.role is role]


def _changed(outlines: Sequence[TurnOutline]) -> list[int]:
    """The turns after which the answer was another one, the first answer among them."""
    answers = [None, *(one.answer_after for one in outlines)]
    return [turn for turn, (before, after) in enumerate(pairwise(answers)) if after not in (None, before)]


def _marked(outlines: Sequence[TurnOutline]) -> list[int]:
    return [index for index, here in enumerate(happenings(outlines)) if here]


#: What the address says -> its words, and the turns that are kept.
FILTERS: dict[str, tuple[str, Callable[[Sequence[TurnOutline]], list[int]]]] = {
    "thinker": ("Only Thinkers", _of_role(Role.THINKER)),
    "worker": ("Only Workers", _of_role(Role.WORKER)),
    "verifier": ("Only Verifiers", _of_role(Role.VERIFIER)),
    "changed": ("Answer changed", _changed),
    "marked": ("With a mark", _marked),
}


def shown_turns(outlines: Sequence[TurnOutline], cursor: int) -> list[int]:
    """The indices of the turns that are shown, in order; the one at the cursor always is."""
    chosen = FILTERS.get(state.param(_PARAM) or "")
    return sorted({cursor, *chosen[1](outlines)}) if chosen else list(range(len(outlines)))


def position_words(shown: Sequence[int], cursor: int, total: int) -> str:
    """Where the cursor is, for the foot of the page: `Turn 4 of 7`, and among how many when some are folded away."""
    here = f"Turn {cursor + 1:,} of {total:,}"
    return here if len(shown) == total else f"{here} · {len(shown):,} shown"


def turn_filter(outlines: Sequence[TurnOutline], *, judged: bool) -> None:
    """The field that chooses which turns are shown; its value stands in the address as `only`. Kinds without a turn are
    not offered, nor is `marked` unless the episode may be `judged`."""
    offered = {
        name: f"{words} ({len(turns)})"
        for name, (words, turns_of) in FILTERS.items()
        if (judged or name != "marked") and (turns := turns_of(outlines))
    }
    chosen = state.param(_PARAM) or ""
    if chosen in FILTERS:
        offered.setdefault(chosen, FILTERS[chosen][0])
    state.address_select(
        "Turns shown",
        {"": "Every turn", **offered},
        name=_PARAM,
        key=_KEY,
        widget="list",
        label_visibility="collapsed",
        width=170,
        help="Hides the other turns: the strip and the keys J and K then go over these turns only",
    )
