"""Buttons that change the address of the page, buttons whose action may be refused, and links to a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import streamlit as st

from ui.web.kit import state


def address_button(
    words: str,
    key: str,
    params: Mapping[str, str | int | None],
    *,
    icon: str | None = None,
    type: Literal["primary", "secondary", "tertiary"] = "tertiary",
    **look: Any,
) -> None:
    """A button that changes these parameters of the address; None takes one out. `look` goes to `st.button`."""
    symbol = icon and f":material/{icon}:"
    st.button(words, key=key, icon=symbol, type=type, on_click=state.set_params, kwargs=dict(params), **look)


def action_button(
    words: str, key: str, do: Callable[..., object], *arguments: object, icon: str, **look: Any
) -> None:
    """A button that calls `do` with the arguments; why it was refused is said in passing, and the page stays."""
    refusable = state.guarded(do, state.refused)
    st.button(words, key=key, icon=f":material/{icon}:", on_click=refusable, args=arguments, **look)


def replay_link(words: str, episode: str, turn: int | None = None) -> None:
    """A link to an episode's replay, at a turn (from 1) where one is given; `words` are markdown."""
    state.page_link("replay", words, icon=":material/smart_display:", ep=episode, t=turn)
