"""The one bar of a replay, at the foot of the page: steps, ways on from the turn, and menus.

What only a menu offers has a key all the same: a button that is not seen listens for it. What the menu shows of it is a
second button, for a shut menu is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from core.episode import Role
from storage.rows.summaries import EpisodeSummary, TurnOutline
from storage.store import Store
from ui.presentation.course import BLUNDER_WORDS, LOW_WORDS, blunders, low_margins, next_of
from ui.presentation.theme import label
from ui.presentation.words import decider_words
from ui.web.kit import state
from ui.web.kit.buttons import tool
from ui.web.kit.cache import run_names
from ui.web.kit.widgets import outcome_badge
from ui.web.pickers.basket import basket_words, toggle
from ui.web.pickers.checkpoints import generation_of
from ui.web.turns.variations import family_of

#: The episodes before and after one in the list that the reader came from.
Near = tuple[str | None, str | None]
#: The other episodes of a task, as they are grouped where one is chosen to compare with.
OTHERS, REPEATS = "The same task under other policies", "Repeats: the same policy, drawn again"
FORKS = "Forks: turns of one episode kept, one thing changed"
#: So many other episodes of a task are read, and so many of a group listed.
_READ, _LISTED = 200, 8


@dataclass(frozen=True, slots=True)
class Tool:
    """What a menu offers and a key does: its words, the name of its button, the key, and what a press of it calls."""

    words: str
    name: str
    shortcut: str
    act: Callable[[], object]
    icon: str = ""
    help: str | None = None
    disabled: bool = False


def listen(tools: Sequence[Tool]) -> None:
    """Have the keys of these do what they do; nothing of it is seen."""
    for one in tools:
        tool(one.words, one.name, one.act, shortcut=one.shortcut, disabled=one.disabled)


def offer(tools: Sequence[Tool]) -> None:
    """These as lines of an open menu, each with its key."""
    for one in tools:
        words = one.words if one.disabled else f"{one.words} :gray[{one.shortcut}]"
        tool(words, f"menu_{one.name}", one.act, icon=one.icon, help=one.help, disabled=one.disabled)


def turn_tools(
    outlines: Sequence[TurnOutline], cursor: int, go: Callable[[int], None], *, judged: bool
) -> list[Tool]:
    """The next turn of each kind, going round; no blunder unless the episode may be `judged`."""
    here = outlines[cursor]
    verifiers = tuple(one.index for one in outlines if one.role is Role.VERIFIER)
    same_model = tuple(one.index for one in outlines if one.model == here.model)
    same_role = tuple(one.index for one in outlines if one.role is here.role)
    kinds: tuple[tuple[str, str, str, str | None, Sequence[int]], ...] = (
        ("Next blunder", "next_blunder", "B", BLUNDER_WORDS, blunders(outlines) if judged else ()),
        ("Next Verifier", "next_verifier", "V", None, verifiers),
        ("Next low margin", "next_low_margin", "M", LOW_WORDS, low_margins(outlines)),
        ("Next of the same model", "next_same_model", "S", None, same_model),
        ("Next in the same role", "next_same_role", "O", None, same_role),
    )
    found = []
    for words, name, shortcut, what, turns in kinds:
        turn = next_of(turns, cursor)
        act = partial(go, cursor if turn is None else turn)
        help = None if what is None else f"The next turn with {what}"
        found.append(Tool(words, name, shortcut, act, help=help, disabled=turn in (None, cursor)))
    return found


def episode_tools(episode_id: str, near: Near, leave_for: Callable[[str | None], None]) -> list[Tool]:
    """The ways to the episodes `near` this one, and into the basket or out of it."""
    found = []
    for words, shortcut, icon, other in (
        ("Previous", "P", "skip_previous", near[0]),
        ("Next", "N", "skip_next", near[1]),
    ):
        name, act, help = (
            f"{words.lower()}_episode",
            partial(leave_for, other),
            f"{words} episode of the list",
        )
        found.append(Tool(f"{words} episode", name, shortcut, act, icon, help, other is None))
    put = partial(toggle, episode_id)
    return [*found, Tool(basket_words(episode_id), "to_basket", "X", put, "shopping_basket")]


def same_task(store: Store, summary: EpisodeSummary) -> None:
    """Links to this episode beside each other one of its task: first those of other policies, then repeats, then
    forks, with the turn from which each was played anew."""
    others = store.episodes.same_task(summary.id, limit=_READ)
    if not others:
        st.caption("No other episode has played this task.")
        return
    ages = generation_of(store)
    family = {one.summary.id: one.fork_turn for one in family_of(store, summary.id)}
    fork_runs = {run for run in {one.run_id for one in others} if store.runs.get(run).kind == "fork"}
    groups: dict[str, list[EpisodeSummary]] = {OTHERS: [], REPEATS: [], FORKS: []}
    for one in others:
        forked = one.id in family or one.run_id in fork_runs
        groups[FORKS if forked else REPEATS if one.policy == summary.policy else OTHERS].append(one)
    for heading, members in groups.items():
        if members:
            st.caption(heading)
        for one in members[:_LISTED]:
            name = label(decider_words(one, ages), 90)
            more = _from_where(store, one, family) if heading == FORKS else ""
            words = f"{name} · {outcome_badge(one)} · {one.turns} turns{more}"
            state.page_link("pair", words, a=summary.id, b=one.id)
        if len(members) > _LISTED:
            st.caption(f"and {len(members) - _LISTED} older ones")


def _from_where(store: Store, one: EpisodeSummary, family: Mapping[str, int | None]) -> str:
    """What tells one of a family of forks from another, as markdown after its name."""
    turn = family.get(one.id)
    if one.id in family and turn is None:
        return " · the first recording"
    run = run_names(store, [one.run_id])[one.run_id]
    return f"{'' if turn is None else f' · from turn {turn + 1}'} · :gray[{label(run, 80)}]"
