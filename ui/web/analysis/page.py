"""The page of an analysis: which episodes it asks about, its parts, its answers, the turns behind a click."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import streamlit as st

from storage.analysis.routing import NEWEST
from ui.answers.asked import Asked, memory, turns_table
from ui.answers.pages import ANALYSES, Analysis, analysis, answers
from ui.export.page import analysis_page
from ui.presentation.theme import label
from ui.web.analysis.draw import draw, draw_measured, draw_table, marks
from ui.web.analysis.figures import key_of
from ui.web.components import in_sight
from ui.web.kit import state
from ui.web.kit.widgets import download, nothing_here, tool
from ui.web.pickers.scope import scope_bar


def show(name: str) -> None:
    """Render the page of this analysis."""
    found, listed = analysis(name), ANALYSES[name]
    st.title(listed.title)
    asked = scope_bar(state.store(), everything=found.everything, apart=state.param("part") in found.apart)
    if not found.everything and not any(asked.counts().values()):
        nothing_here("No finished episode here.", ":material/filter_alt_off:")
        with st.container(horizontal=True):
            state.page_link(name, "Without these conditions", icon=f":material/{listed.icon}:")
            state.page_link("home", "See how to record or load some", icon=":material/home:")
        return
    show_answers(name, asked)


def show_answers(
    page: str, asked: Asked, further: Callable[[], None] = lambda: None, *, name: str = "part"
) -> None:
    """Render the answers of the analysis of this page: its parts, one of them at a time as `name` in the address says,
    with the turns behind a click; `further` draws what a page alone says in the fold."""
    found = analysis(page)
    parts = {one.key: one for one in found.parts if one.there(asked)}
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        words, part = {key: one.words for key, one in parts.items()}, next(iter(parts))
        if len(parts) > 1:
            part = state.address_select("Part", words, name=name, key=f"{page}_part", forgets=("into",))
        saved = partial(_saved, page, asked)
        download(
            "Save as a web page",
            saved,
            f"trinity-{page}.html",
            "text/html",
            key=f"{page}_save",
            type="tertiary",
        )
    found_answers, into = parts[part].answers(asked), state.param("into")
    there = [into in [key_of(mark) for mark in marks(one)] for one in found_answers]
    for i, one in enumerate(found_answers):
        draw(one, page, first=not i)
        if into and (there[i] or (not i and not any(there))):
            _into(found, asked, into)
    draw_measured(found_answers, f"{page}_{part}", further)


def _into(found: Analysis, asked: Asked, into: str) -> None:
    """What was clicked: its name, the way to its episodes, and its newest turns; it can be closed."""
    behind = found.behind(asked, into.removesuffix("#B"), into.endswith("#B"))
    if behind is None:
        st.info("The link names nothing that this page knows; click a mark instead.", icon=":material/info:")
        return
    with st.container(border=True, key="behind"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{label(behind.words, 200)}**", width="stretch")
            to = behind.way.to
            state.page_link(to.page, label(behind.way.words), icon=":material/table_rows:", **to.params)
            tool("", "into_close", partial(state.set_params, into=None), icon="close", help="Close")
        if behind.turns:
            draw_table(turns_table(asked, behind.turns), "behind_rows")
        elif behind.turns is not None:
            nothing_here("No turn of these episodes is like that.")
        if len(behind.turns or ()) == NEWEST:
            st.caption(f"The {NEWEST} newest.")
        in_sight("behind", behind.words)


def _saved(name: str, asked: Asked) -> bytes:
    """The answers of all parts as a page that needs no network."""
    asked = replace(asked, remember=memory())
    found = answers(name, asked)
    return analysis_page(ANALYSES[name].title, asked.counts(), found, asked.things).encode()
