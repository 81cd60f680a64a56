"""Buttons, and links to a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from ui.web.kit import state


def button(
    words: str, key: str, act: Callable[[], object] | None = None, *, icon: str = "", **look: Any
) -> bool:
    """A button. A click calls `act`; where a user's mistake prevents that, why is said in passing. `icon` is the name
    of a Material symbol, `look` further arguments of the button. Returns whether it was clicked."""
    symbol = f":material/{icon}:" if icon else None
    return st.button(words, key=key, on_click=act and state.click(act), icon=symbol, **look)


def tool(words: str, key: str, act: Callable[[], object] | None = None, **look: Any) -> bool:
    """A button without a frame, unless `look` says otherwise."""
    return button(words, key, act, **({"type": "tertiary"} | look))


def replay_link(words: str, episode: str, turn: int | None = None) -> None:
    """A link to an episode's replay, at a turn (from 1) where one is given; `words` are markdown."""
    state.page_link("replay", words, icon=":material/smart_display:", ep=episode, t=turn)
