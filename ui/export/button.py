"""The button that saves one episode, or two side by side, as a page for someone who has no store."""

from __future__ import annotations

import streamlit as st

from storage.store import Store
from ui.export.page import episode_page, pair_page
from ui.export.played import read_played


def save_button(store: Store, *episode_ids: str, key: str = "save_page") -> None:
    """A download of one episode's page, or of two episodes' page; it is made when it is clicked."""

    def page() -> str:
        played = [read_played(store, one) for one in episode_ids]
        return pair_page(played[0], played[1]) if len(played) == 2 else episode_page(played[0])

    st.download_button(
        "Save as a page",
        page,
        file_name=f"{'-and-'.join(episode_ids)}.html",
        mime="text/html",
        on_click="ignore",
        key=key,
        icon=":material/download:",
        type="tertiary",
        help="One HTML file with everything shown here. It opens from disk, needs no network and runs no script.",
    )
