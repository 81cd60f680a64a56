"""Stepping through what a run learned: the slider, the ways on from the chosen place, and the bar that plays it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from storage.store import Store
from ui.web.components.transport import autoplay, from_widget, keys_of, step_buttons, transport
from ui.web.kit import state
from ui.web.pickers.checkpoints import play_link


def nearest(indices: Sequence[int], number: int) -> int:
    """The place of a number among those that are there, or of the nearest one."""
    return min(range(len(indices)), key=lambda place: abs(indices[place] - number))


def stage(
    what: str,
    noun: str,
    indices: Sequence[int],
    *,
    ways_on: Callable[[int], None],
    show: Callable[[int], None],
) -> None:
    """The slider over the `noun`s of `what`, by their numbers, and the steps to the next ones with the `ways_on` from
    the chosen one in their row; then what to `show` of it. Both are given its place; its number is `gen` in the
    address, else the last one is meant."""
    at, total = nearest(indices, state.int_param("gen", 0, 10**9, indices[-1])), len(indices)

    def go(place: int) -> None:
        state.set_params(gen=indices[place])

    def chosen() -> None:
        if (number := state.entered("generation")) is not None:
            from_widget(go)(nearest(indices, number))

    if total > 1:
        st.session_state["generation"] = indices[at]
        st.select_slider(
            noun,
            indices,
            key="generation",
            on_change=chosen,
        )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        step_buttons(at, total, go, keys_of(noun.lower()))
        ways_on(at)
    show(at)
    transport(what, at, total, go, noun, f"{noun} {indices[at]} of {indices[-1]}")
    autoplay(what, at, total, 0, go)


def compare_with(store: Store, noun: str, policies: Mapping[int, str], index: int) -> None:
    """The way to Checkpoints, with the policy of one number and another of the reader's choice; or to playing both
    where one of them has not played. `policies` are those that are kept, by their numbers."""
    others = [one for one in policies if one != index]
    if not others:
        st.caption(f"There is no other {noun} yet.")
        return
    chosen = st.selectbox(
        f"{noun.capitalize()} {index} with",
        others,
        index=len(others) - 1 if index == min(policies) else 0,
        key=f"compare_with_{index}",
        format_func=lambda value: f"{noun} {value}",
    )
    first, last = sorted((index, chosen))
    played = {facet.value for facet in store.episodes.facets().policy}
    if missing := [one for one in (first, last) if policies[one] not in played]:
        names = " and ".join(f"{noun} {one}" for one in missing)
        st.caption(f"No episode of {names} is recorded: play the same tasks under both first.")
        play_link("Play both on the same tasks", [policies[first], policies[last]])
        return
    state.page_link(
        "checkpoints",
        f"Compare {noun}s {first} and {last}",
        icon=":material/balance:",
        base=policies[first],
        b=policies[last],
    )
