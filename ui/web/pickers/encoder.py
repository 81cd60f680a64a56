"""Choosing what reads the transcripts: one of the encoders that are here, or any other by its folder or hub id."""

from __future__ import annotations

from typing import Any

import streamlit as st

from core.settings import POCKET_POOL, Settings
from core.tokens.shelf import shelved
from ui.presentation.theme import one_line

#: What stands for no encoder: each checkpoint reads with its own.
OWN = "the checkpoint's own"


def choose_encoder(form: str, settings: Settings, *, own: bool = False, **look: Any) -> str | None:
    """The encoder that the reader chooses or types; at first the one that is set, else pocket for the pocket pool. None
    until one is named, or with `own` where each checkpoint is to read with its own, which is then offered first.
    `form`: how the key of the widget begins; `look`: further arguments of it."""
    names = [*([OWN] if own else []), POCKET_POOL, *(one.name for one in shelved(settings.data_folder))]
    usual = settings.encoder or (OWN if own else POCKET_POOL if settings.pool == POCKET_POOL else None)
    if usual and usual not in names:
        names.append(usual)
    chosen = st.selectbox(
        "Encoder",
        names,
        index=names.index(usual) if usual else None,
        key=f"{form}_encoder",
        format_func=lambda name: one_line(str(name), 60),
        accept_new_options=True,
        placeholder="A name, a folder or a hub id",
        help="The small language model that reads the transcripts: one that is here, or type a folder or a hub id. "
        "`trinity encoders add smollm2` brings one.",
        **look,
    )
    return None if chosen in (None, OWN) else str(chosen).strip() or None
