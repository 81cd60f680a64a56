"""The preview next to the list of episodes: one of them in short, with J and K to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from storage.store import Store
from ui.presentation.course import lane
from ui.presentation.theme import END_WORDS, ROLE_STYLES, label
from ui.presentation.words import decider_words, missing_reply_words
from ui.web.components.turn_strip import turn_strip
from ui.web.kit import state
from ui.web.kit.buttons import tool
from ui.web.kit.text import choose_look, reply_block, text_block
from ui.web.kit.widgets import outcome_badge
from ui.web.pickers.checkpoints import generation_of
from ui.web.pickers.facets import flag_word
from ui.web.progress.luck import luck_line
from ui.web.turns.recording import Recording, open_recording


def show_preview(store: Store, episode_id: str, ids: Sequence[str]) -> None:
    """The episode with its turns and outcome; J and K step through `ids`. StoreError for an unknown episode."""
    recording = open_recording(store, episode_id)
    replay = state.replay_of_list(episode_id)
    _ways_on(episode_id, ids, replay)
    text_block(recording.episode.task.question, key=f"peek_{episode_id}_question")
    if recording.outlines:
        turn_strip(
            [lane(recording.outlines, recording.models, running=recording.running)],
            len(recording.outlines) - 1,
            lambda turn: st.session_state.update(peek_to=turn + 1),
            key="peek_strip",
            name="Turns; a click opens the replay",
        )
        if turn := st.session_state.pop("peek_to", None):
            state.go("replay", **replay, t=turn)
    _outcome(recording)


def _ways_on(episode_id: str, ids: Sequence[str], replay: Mapping[str, str]) -> None:
    here = ids.index(episode_id) if episode_id in ids else None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        state.page_link("replay", "**Replay**", icon=":material/smart_display:", **replay)
        st.space("stretch")
        for words, key, shortcut, step in (("Previous", "up", "K", -1), ("Next", "down", "J", 1)):
            to = None if here is None or not 0 <= here + step < len(ids) else ids[here + step]
            show = partial(state.set_params, peek=to)
            tool(words, f"peek_{key}", show, shortcut=shortcut, disabled=to is None)
        tool("", "peek_close", partial(state.set_params, peek=None), icon="close", help="Close the peek")


def _outcome(recording: Recording) -> None:
    summary = recording.summary
    st.markdown(
        f"{outcome_badge(summary)} · {END_WORDS[summary.end_reason] if summary.end_reason else summary.status}"
    )
    luck_line(recording.store, summary)
    st.caption(
        f"Answer given: {label(summary.answer or '–')} · expected: "
        f"{label(recording.episode.task.answer or 'unknown')}"
    )
    st.caption(f"{label(decider_words(summary, generation_of(recording.store)))} · {label(summary.id)}")
    if summary.flags:
        st.caption(":material/flag: " + ", ".join(flag_word(flag) for flag in summary.flags))
    if recording.outlines:
        last = recording.outlines[-1]
        st.caption(f"Last turn, {ROLE_STYLES[last.role].word} on {label(last.model, 40)}")
        said = recording.reply_text(last.index)
        key, look = f"peek_{summary.id}_last", choose_look("peek_look")
        reply_block(said.said, key=key, empty=missing_reply_words(said), look=look)
