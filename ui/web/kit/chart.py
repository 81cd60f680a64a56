"""How every figure reaches a page: one kind of tool bar, a camera that saves it, and a name for the file."""

from __future__ import annotations

import re
from typing import Any, Literal

import plotly.graph_objects as go
import streamlit as st

from ui.presentation.theme import CHART_CONFIG

#: What the camera on a figure saves, kept for this tab.
FIGURES_AS = "figures_as"
#: A format of saved figures -> its words.
IMAGE_FORMATS = {"svg": "SVG, sharp at any size", "png": "PNG, twice the size on screen"}
_NO_NAME = re.compile(r"[^A-Za-z0-9]+")  # what a key may hold and the name of a file should not


def plot(
    figure: go.Figure,
    *,
    key: str,
    alt: str,
    small: bool = False,
    on_select: Any = "ignore",
) -> Any:
    """`st.plotly_chart` as this app draws it; returns what that returns. `small`: only the camera of the tool bar."""
    kind = image_format()
    saved = {"format": kind, "filename": file_name(key), "scale": 2 if kind == "png" else 1}
    config = CHART_CONFIG | {"toImageButtonOptions": saved}
    if small:
        config["modeBarButtons"] = [["toImage"]]
    return st.plotly_chart(
        figure, key=key, alt=alt, config=config, on_select=on_select, selection_mode="points"
    )


def image_format() -> Literal["svg", "png"]:
    """What the camera saves in this tab."""
    return "png" if st.session_state.get(FIGURES_AS) == "png" else "svg"


def file_name(figure: str) -> str:
    """What a saved figure is called, without its ending."""
    return f"trinity-{_NO_NAME.sub('-', figure)[:60]}"
