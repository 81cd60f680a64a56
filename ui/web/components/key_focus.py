"""Lets the controls of one part of a page give the keyboard back after a click: a component that draws nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st


@cache
def _component() -> Callable[..., Any]:
    """Registered on first use, once per process."""
    return st.components.v2.component(
        "trinity_key_focus", html="<i hidden></i>", js=Path(__file__).with_suffix(".js").read_text("utf-8")
    )


def key_focus(part: str) -> None:
    """Within the container of key `part` a control that was clicked does not keep the focus: a focused control takes
    Space, or another key, for itself."""
    _component()(key=f"key_focus_{part}", data={"part": part})
