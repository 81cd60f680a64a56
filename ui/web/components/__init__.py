"""Custom Streamlit components (version 2: no frame, a shadow root of their own); here those that draw nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

_FOLDER = Path(__file__).parent


@cache
def component(name: str, html: str) -> Callable[..., Any]:
    """The component drawn by NAME.js, and NAME.css where there is one, beside this file. Registered on first use, once
    per process."""
    scripts = [(_FOLDER / f"{file}.js").read_text("utf-8") for file in ("drawing", name)]
    styles = _FOLDER / f"{name}.css"
    return st.components.v2.component(
        f"trinity_{name}",
        html=html,
        css=styles.read_text("utf-8") if styles.exists() else None,
        js="\n".join(scripts),
    )


def in_sight(container: str, what: str) -> None:
    """Scroll to the container of this key when it comes to show `what`, where that stands above or below what the
    window shows. Drawn inside it, last."""
    component("in_sight", "")(key=f"in_sight_{container}", data={"container": container, "what": what})


def key_focus(part: str) -> None:
    """Within the container of key `part` a control that was clicked does not keep the focus: a focused control takes
    Space, or another key, for itself."""
    component("key_focus", "")(key=f"key_focus_{part}", data={"part": part})


def shell() -> None:
    """What the frame of every page does in the browser beyond what Streamlit does by itself, once in every run of the
    app. One act of the reader's is one step of the browser's history: Streamlit pushes an entry for every change of the
    query, and going to another page changes the query first, on the page that is left. Esc leaves a field, or closes a
    help text that is open, and not the page too. On a narrow screen, where the menu covers the page, choosing a page
    closes it."""
    component("shell", "")(key="shell")


def take_focus(part: str) -> None:
    """The field within the container, or the widget, of key `part` takes the keyboard when it comes to be shown."""
    component("take_focus", "")(key=f"take_focus_{part}", data={"part": part})


def what_is_typed(words: str) -> None:
    """Say, before what was typed into a list that takes more than its options, what becomes of it: `Search for: …`."""
    component("what_is_typed", "")(key="what_is_typed", data={"words": words})
