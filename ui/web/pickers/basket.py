"""The compare basket: episodes that a reader puts aside in this tab, and the way from two of them to their pair."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.errors import StoreError
from storage.store import Store
from ui.presentation.theme import label
from ui.presentation.words import decider_words
from ui.web.kit import state
from ui.web.kit.widgets import episode_line, popover, tool
from ui.web.pickers.checkpoints import generation_of

#: The ticked rows of the episode list are the same basket.
_KEY = "ticked"
#: A basket up to this size stands in the address; larger ones are saved as views.
_LINKED = 12


def held() -> list[str]:
    """The ids in the basket, in the order in which they were put there. A pasted link brings its own along."""
    if _KEY not in st.session_state:
        linked = (state.param("basket") or "").split(",")
        st.session_state[_KEY] = list(dict.fromkeys(one for one in linked if one))[:_LINKED]
    return list(st.session_state[_KEY])


def hold(ids: list[str]) -> None:
    """Have exactly these in the basket."""
    st.session_state[_KEY] = ids
    put_in_address()


def put_in_address() -> None:
    """Have the address say what is in the basket, on the pages that show it."""
    now = held()
    state.set_params(basket=",".join(now) if len(now) <= _LINKED else None)


def toggle(episode_id: str) -> None:
    """Put an episode in, or take it out again."""
    now = held()
    hold([one for one in now if one != episode_id] if episode_id in now else [*now, episode_id])


def basket(store: Store) -> None:
    """What is in, and the way to compare two; into the row that the caller opened. Nothing while it is empty."""
    put_in_address()
    now = held()
    if not now:
        return
    if len(now) == 2:
        state.page_link("pair", "Compare the 2 in the basket", icon=":material/compare:", a=now[0], b=now[1])
    popover(f"In the basket: {len(now)}", "basket", partial(_contents, store, now))


def _contents(store: Store, now: list[str]) -> None:
    if len(now) != 2:
        advice = "Take some out." if len(now) > 2 else "Add one."
        st.caption(f"Two episodes can be compared side by side. {advice}")
    for one in now:
        with st.container(horizontal=True, vertical_alignment="center"):
            try:
                summary = store.episodes.summary(one)
                state.page_link("replay", label(summary.question, 60), ep=one, t=1)
                st.caption(
                    episode_line(summary, decider_words(summary, generation_of(store))), width="content"
                )
            except StoreError:
                st.caption(f"{label(one)} is no longer in the store.")
            tool("Take out", f"take_out_{one}", partial(toggle, one))
