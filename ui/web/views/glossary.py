"""Glossary: every word the app uses, explained once, with a search over them."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ui.presentation.glossary import SECTIONS
from ui.presentation.theme import ROLE_STYLES
from ui.web.kit import state

_LOOP = str(Path(__file__).parents[2] / "assets" / "loop.svg")
_LOOP_WORDS = (
    "One turn of an episode, again and again: an encoder reads the transcript, the evolved head turns one hidden state "
    "into logits, a model and its role are drawn, and the reply joins the transcript. When a Verifier accepts, or no "
    "turn is left, the last Worker's answer is graded."
)


def show() -> None:
    st.title("Glossary")
    st.caption("Find a word below, or hover over a (?) mark on any page.")
    wanted = st.text_input(
        "Find a word",
        key="word",
        bind="query-params",
        icon=":material/search:",
        placeholder="margin, flip, SVF …",
        width=360,
    )
    if not wanted:
        with st.container(width=640, key="loop"):
            st.image(_LOOP, caption=_LOOP_WORDS, width="stretch")
    sought = wanted.strip().lower()
    found = {
        section: [
            term
            for term in terms
            if sought in (section.lower(), "") or sought in f"{term.word} {term.short} {term.more}".lower()
        ]
        for section, terms in SECTIONS.items()
    }
    if not any(found.values()):
        st.info("No word matches. Try a shorter piece of it.", icon=":material/search_off:")
        return
    for section, terms in found.items():
        if terms:
            st.subheader(section)
            columns = st.columns(2, gap="large")
            for position, term in enumerate(terms):
                more = f" {term.more}" if term.more else ""
                columns[position % 2].markdown(f"**{term.word}**  \n{term.short}{more}")
    if wanted:
        return
    st.subheader("Marks")
    looks = [f"{look.shape} **{look.letter}** {look.word}" for look in ROLE_STYLES.values()]
    st.markdown(
        " · ".join(looks) + " · **a b c …** the pool's models in slot order · **✓** accept · **↻** revise · "
        "**●** the answer is right after this turn · **✕** it is wrong"
    )


if __name__ == "__main__":
    state.run(show)
