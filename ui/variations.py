"""The forks of an episode as a tree: each with where it leaves its parent, how it ended, and a link to that turn."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from storage.steps import FAMILY, Variation, read_family
from storage.store import Store
from ui import state
from ui.theme import STATUS_MARKS, badge, correct_mark, label
from ui.widgets import who


def family_of(store: Store, episode_id: str) -> list[Variation]:
    """Every episode that shares recorded turns with this one by a fork, parents first; empty for one that neither is
    a fork nor has any."""
    found = _family(store, store.url, episode_id)
    return found if len(found) > 1 else []


@st.cache_resource(max_entries=256, ttl=10, show_spinner=False)
def _family(_store: Store, url: str, episode_id: str) -> list[Variation]:
    """Remembered for a few steps; forks that are being played appear soon enough."""
    return read_family(_store, episode_id)


def branch_turns(family: Sequence[Variation], episode_id: str) -> frozenset[int]:
    """The turns (0-based) at which forks leave an episode."""
    return frozenset(
        one.fork_turn for one in family if one.parent == episode_id and one.fork_turn is not None
    )


def variation_tree(family: Sequence[Variation], episode_id: str) -> None:
    """The tree under the strip; nothing for an episode without forks."""
    if not family:
        return
    with st.expander(f"Variations: {len(family) - 1} forks", icon=":material/account_tree:", expanded=True):
        for one in family:
            _line(one, episode_id)
        if len(family) >= FAMILY:
            st.caption(f"The first {FAMILY} of this family.")


def _line(one: Variation, episode_id: str) -> None:
    summary = one.summary
    here = summary.id == episode_id
    turn = (one.fork_turn or 0) + 1
    place = "The first recording" if one.depth == 0 else f"fork at turn {turn}"
    end = badge(correct_mark(summary.correct)) if summary.finished else badge(STATUS_MARKS[summary.status])
    indent = "\u2003" * (2 * one.depth)  # spaces of our own width: four common ones would make it code
    words = (
        f"{indent}{'└ ' if one.depth else ''}{place} · {end} · {summary.turns} turns · "
        f"{label(who(summary.policy, summary.generation), 50)}"
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if here:
            st.markdown(f"**{words} · this one**")
            return
        state.page_link("replay", words, ep=summary.id, t=turn)
        state.page_link("pair", "beside this one", icon=":material/compare:", a=episode_id, b=summary.id)
