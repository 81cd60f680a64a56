"""Ways to share a turn: its link, its numbers as JSON, the complete episode as a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import Any

import streamlit as st

from storage.store import Store
from ui.export.page import episode_page, pair_page, read_played
from ui.presentation.theme import plain
from ui.presentation.words import CUT
from ui.web.kit import state
from ui.web.kit.widgets import download, popover
from ui.web.turns.recording import Recording
from ui.web.turns.turn_card import turn_json


def share_popover(recording: Recording, index: int) -> None:
    """Link and JSON to copy, and the episode as a file, in a popover that reads nothing while it is shut."""
    popover("Share", "share", partial(_ways_to_share, recording, index), icon="share")


def _ways_to_share(recording: Recording, index: int) -> None:
    st.caption("Link to this turn, as it is shown now")
    st.code(state.here(), language=None)
    st.caption("This turn as JSON")
    body = turn_json(recording.outlines[index], recording.text(index), recording.decision(index))
    if len(body) <= CUT:
        st.code(plain(body), language=None, wrap_lines=True, height=180)
    else:
        words = f"Save {len(body):,} characters"
        file_name = f"{recording.episode.id}-turn-{index + 1}.json"
        download(words, body, file_name, "application/json", key="save_turn", icon=None)
    words, file_name = "Save the whole episode as JSON", f"{recording.episode.id}.json"
    data = partial(episode_json, recording)
    download(words, data, file_name, "application/json", key="save_episode")


def episode_json(recording: Recording) -> str:
    """The episode with all its finished turns as JSON; hidden states in hex."""

    def readable(value: Any) -> str:
        return value.hex() if isinstance(value, bytes) else str(value)

    return json.dumps(asdict(recording.store.episodes.get(recording.episode.id)), default=readable, indent=1)


def save_button(store: Store, *episode_ids: str) -> None:
    """A download of one episode's page, or of two episodes' page; it is made when it is clicked."""

    def page() -> str:
        played = [read_played(store, one) for one in episode_ids]
        return pair_page(played[0], played[1]) if len(played) == 2 else episode_page(played[0])

    help = (
        "One HTML file with everything shown here. It opens from disk, needs no network and runs no script."
    )
    file_name = f"{'-and-'.join(episode_ids)}.html"
    download("Save as a page", page, file_name, "text/html", key="save_page", type="tertiary", help=help)
