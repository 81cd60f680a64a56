"""Find words in the texts of one episode: the field, the turns that hold them, and a link to each."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from storage.reads.episode_steps import TextMatch, find_in_texts
from storage.store import Store
from ui.presentation.theme import label
from ui.web.kit import state

#: Places that are shown; the strip marks every turn.
_SHOWN, _MOST = 12, 200


def find_field() -> str:
    """The field, whose words stand in the address as `find`; what is looked for, empty for nothing."""
    # Set only where it differs: what is being typed must outlive the reruns of playing.
    if st.session_state.get("find", "") != (asked := state.param("find") or ""):
        st.session_state["find"] = asked
    st.text_input(
        "Find in this episode",
        key="find",
        placeholder="Find in the replies",
        label_visibility="collapsed",
        icon=":material/search:",
        width=230,
        on_change=lambda: state.set_params(find=(state.entered("find") or "").strip()[:200]),
    )
    return str(st.session_state["find"]).strip()[:200]


def found_in(store: Store, episode_id: str, words: str) -> list[TextMatch]:
    """Where replies and reasoning say `words`, whatever their case."""
    return find_in_texts(store, episode_id, words, _MOST) if words else []


def found_list(found: Sequence[TextMatch], words: str, cursor: int) -> None:
    """The places as links; the current turn's stands out."""
    if not words:
        return
    if not found:
        st.caption(f"No reply of this episode says {label(words, 60)}.")
        return
    turns = len({one.index for one in found})
    more = f"; the first {_SHOWN} here" if len(found) > _SHOWN else ""
    at_least = "At least " if len(found) >= _MOST else ""
    n, m = ("s" if count > 1 else "" for count in (len(found), turns))
    says = "say" if n else "says"
    st.caption(f"{at_least}{len(found)} text{n} in {turns} turn{m} {says} {label(words, 60)}{more}.")
    address = st.query_params.to_dict()
    address.pop("show", None)
    with st.container(horizontal=True, gap="small"):
        for one in found[:_SHOWN]:
            here = "**" if one.index == cursor else ""
            place, query = f"Turn {one.index + 1}", address | {"t": str(one.index + 1)}
            if one.kind == "reasoning":
                place, query["show"] = f"{place} reasoning", "reasoning"
            state.page_link("replay", f"{here}{place}{here} · {_around(one.excerpt, words)}", query)


def _around(excerpt: str, words: str) -> str:
    """A few words before and after, so that a link holds one line."""
    at = max(0, excerpt.lower().find(words.lower()))
    begin = max(0, at - 16)
    return ("…" if begin else "") + label(excerpt[begin : at + len(words) + 24], 70)
