"""The Settings page's way to forget: what, how old, of which run; what would go; and one button that does it."""

from __future__ import annotations

import time
from typing import cast

import streamlit as st

from core.errors import TrinityError
from storage.filters import EpisodeFilter
from storage.retention import WORDS, Pruning, What, compact, preview, prune
from storage.store import Store
from ui import state
from ui.retaining import began_before, size_words, told
from ui.theme import label

_AGES = {
    "30": "over 30 days old",
    "90": "over 90 days",
    "365": "over a year",
    "0": "any age",
}
_DONE = "pruned"
#: The runs that are offered by name.
_MOST_RUNS = 100


def prune_panel(store: Store) -> None:
    """Choose, see what would go, and remove it; everything stands in the address."""
    st.caption(
        "What is labelled, forked, or not over yet is kept and counted. Nothing goes before you say so, and there is "
        "no way back. The same in a terminal: `trinity prune --help`."
    )
    if done := st.session_state.pop(_DONE, None):
        st.success(done, icon=":material/check:")
    kinds = {str(what): words for what, words in WORDS.items()}
    what = cast(What, state.choice("What goes", kinds, name="what", key="prune_what"))
    left, right = st.columns(2)
    with left:
        age = state.choice("How old", _AGES, name="age", key="prune_age")
    runs = {"": "every run"} | {one.id: one.id for one in store.runs.list(limit=_MOST_RUNS)}
    with right:
        run = _run(runs)
    where = EpisodeFilter(run=run or None, q=began_before(f"{age}d", time.time()) if age != "0" else None)
    referenced = st.toggle(
        "Also what labels and forks lean on",
        key="prune_referenced",
        help="Labels of removed runs go too, and forks can no longer be compared with what they were forked from.",
    )
    found = preview(store, what, where, everything=referenced)
    with st.container(border=True):
        st.markdown("  \n".join(label(line, 400) for line in told(found)))
        if found.rows:
            _confirm(store, found, where, referenced)
    if store.engine.dialect.name == "sqlite":
        st.button(
            "Make the file smaller",
            key="vacuum",
            icon=":material/compress:",
            type="tertiary",
            help="SQLite's VACUUM: gives freed room back to the disk, and needs as much again while it works",
            on_click=_compact,
            args=(store,),
        )


def _run(runs: dict[str, str]) -> str:
    asked = state.param("of") or ""
    st.session_state["prune_run"] = asked if asked in runs else ""
    return str(
        st.selectbox(
            "Of which run",
            list(runs),
            key="prune_run",
            format_func=lambda one: label(runs[one], 60),
            on_change=lambda: state.set_params(of=st.session_state["prune_run"] or None),
        )
    )


def _confirm(store: Store, found: Pruning, where: EpisodeFilter, referenced: bool) -> None:
    sure = st.checkbox("I am sure", key=f"prune_sure_{found.what}_{found.rows}")
    st.button(
        f"Remove {WORDS[found.what]}, {size_words(found.size_bytes)}",
        key="prune_now",
        icon=":material/delete:",
        disabled=not sure,
        on_click=state.guarded(_remove, state.refused),
        args=(store, found.what, where, referenced),
    )


def _remove(store: Store, what: What, where: EpisodeFilter, referenced: bool) -> None:
    gone = prune(store, what, where, everything=referenced)
    st.cache_resource.clear()  # what was read before would be shown on
    st.cache_data.clear()
    st.session_state[_DONE] = (
        f"Removed: {gone.rows:,} {'runs' if what == 'runs' else 'rows'}, about {size_words(gone.size_bytes)}. The file "
        "keeps its size, to be used again, until you make it smaller."
    )


def _compact(store: Store) -> None:
    try:
        compact(store)
    except TrinityError as error:
        state.refused(str(error))
        return
    st.session_state[_DONE] = f"The store is now {size_words(store.health().size_bytes)} large."
