"""By which rules episodes shall be played."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.episode import Protocol
from ui.presentation.glossary import define
from ui.presentation.words import PROTOCOL_WORDS


def choose_rules(key: str, **look: Any) -> Protocol:
    """The protocol that is chosen, at first the paper's. `look`: further arguments of the control."""
    chosen: Protocol = st.segmented_control(
        "Rules",
        list(PROTOCOL_WORDS),
        default=Protocol.PAPER,
        required=True,
        key=key,
        format_func=PROTOCOL_WORDS.__getitem__,
        help=define("Protocol"),
        **look,
    )
    return chosen
