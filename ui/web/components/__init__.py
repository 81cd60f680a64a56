"""Custom Streamlit components (version 2: no frame, a shadow root of their own)."""

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
