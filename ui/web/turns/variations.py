"""The forks of an episode as a tree: each with where it leaves its parent, how it ended, and a link to that turn."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.changes import Change
from storage.reads.episode_steps import FAMILY, Variation, read_family
from storage.store import Store
from ui.presentation.steps import change_words
from ui.presentation.theme import badge, label, outcome_mark
from ui.presentation.words import right_words, strip_text
from ui.web.kit import state
from ui.web.kit.cache import remembered


# For a few steps: forks that are being played appear soon enough.
@remembered(most=256, seconds=10)
def family_of(store: Store, episode_id: str) -> list[Variation]:
    """Every episode that shares recorded turns with this one by a fork, parents first; empty for one that neither is
    a fork nor has any."""
    found = read_family(store, episode_id)
    return found if len(found) > 1 else []


def branch_turns(family: Sequence[Variation], episode_id: str) -> frozenset[int]:
    """The turns (0-based) at which forks leave an episode."""
    return frozenset(
        one.fork_turn for one in family if one.parent == episode_id and one.fork_turn is not None
    )


def variation_tree(family: Sequence[Variation], episode_id: str) -> None:
    """What became of the forks, each change at each turn in one line with its distinct courses; nothing without
    forks."""
    if not family:
        return
    with st.expander(f"Variations: {len(family) - 1} forks", icon=":material/account_tree:", expanded=True):
        st.markdown(f"The first recording · {_ending(family[0])}{_here(family[:1], episode_id)}")
        _branches(family, family[0], episode_id)
        if len(family) >= FAMILY:
            st.caption(f"The first {FAMILY} of this family.")


def _branches(family: Sequence[Variation], parent: Variation, episode_id: str) -> None:
    """What was played from each turn of `parent`, unchanged and with each change, then each different course of it;
    forks of forks below their own course."""
    groups: dict[tuple[int, Change | None], list[Variation]] = {}
    for one in family:
        if one.parent == parent.summary.id:
            groups.setdefault((one.fork_turn or 0, one.change), []).append(one)
    forked = {one.parent for one in family}
    for (turn, change), children in sorted(
        groups.items(), key=lambda group: (group[0][0], group[0][1] is not None)
    ):
        _group_line(turn, change, children, parent.depth + 1)
        for course in _courses(children):
            _course_line(course, episode_id, turn)
            for child in course:
                if child.summary.id in forked:
                    _branches(family, child, episode_id)


def _courses(children: Sequence[Variation]) -> list[list[Variation]]:
    """The children by who was called and how it ended, the most frequent course first."""
    found: dict[tuple[object, ...], list[Variation]] = {}
    for one in children:
        summary = one.summary
        found.setdefault((summary.strip, summary.status, summary.correct), []).append(one)
    return sorted(found.values(), key=lambda course: -len(course))


def _group_line(turn: int, change: Change | None, children: Sequence[Variation], depth: int) -> None:
    right = right_words([one.summary.correct for one in children])
    times = "once" if len(children) == 1 else f"{len(children)} times"
    what = label(change_words(change), 80) if change else "unchanged"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"{_indent(depth)}└ **turn {turn + 1}** {what}, played {times}, {right}")
        if change:
            newest = max(children, key=lambda one: one.summary.started).summary.run_id
            state.page_link("forks", "What the change did", icon=":material/fork_right:", run=newest)


def _course_line(course: Sequence[Variation], episode_id: str, turn: int) -> None:
    first = course[0]
    often = f"{len(course)} × " if len(course) > 1 else ""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        words = f"{_indent(first.depth + 1)}{often}{_ending(first)}{_here(course, episode_id)}"
        if len(course) == 1 and first.summary.id == episode_id:
            st.markdown(words)
            return
        state.page_link("replay", words, ep=first.summary.id, t=turn + 1)
        state.page_link(
            "pair", "compare with this one", icon=":material/compare:", a=episode_id, b=first.summary.id
        )


def _ending(one: Variation) -> str:
    summary = one.summary
    return (
        f"{badge(outcome_mark(summary.status, summary.correct))} · {label(strip_text(summary.strip)) or '–'}"
    )


def _here(course: Sequence[Variation], episode_id: str) -> str:
    return " · **this one**" if any(one.summary.id == episode_id for one in course) else ""


def _indent(depth: int) -> str:
    return "\u2003" * (2 * depth)  # spaces of our own width: four common ones would make it code
