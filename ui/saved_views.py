"""Saved views on the pages: which one the address names, and saving, renaming and deleting them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import streamlit as st

from core.errors import StoreError
from storage.expression import Among, Every, Name, joined, write
from storage.filters import EpisodeFilter, expression
from storage.parsing import parse
from storage.store import Store
from storage.summaries import SavedView
from storage.views import LONGEST_NAME
from ui import state
from ui.theme import label

#: What a view keeps of its page besides the filter.
LOOKS = ("order", "group", "cols", "width")


def named_view(store: Store, query: Mapping[str, str]) -> SavedView | None:
    """The view that an address names; StoreError when it is gone."""
    return store.views.get(query["view"]) if query.get("view") else None


def asked(query: Mapping[str, str], view: SavedView | None) -> EpisodeFilter:
    """What an address asks for: its own conditions, and those of the view it names.

    ExpressionError when either cannot be read."""
    where = EpisodeFilter.from_query(query)
    if where.q is not None:
        parse(where.q)  # a mistake in it is shown by its own columns
    if view is None:
        return where
    kept = EpisodeFilter.from_query(view.query)
    parts = [parse(said) for said in (expression(kept), where.q) if said]
    said = write(joined(Every, parts)) if parts else None
    return replace(where, q=said, forks=where.forks or kept.forks)


def views_popover(store: Store, query: Mapping[str, str], where: EpisodeFilter) -> None:
    """Save this list under a name; open, rename and delete those that are kept."""
    with st.popover("Views", icon=":material/bookmark:", type="tertiary"):
        with st.form("save_view", clear_on_submit=True, border=False):
            name = st.text_input(
                "Keep this list as",
                key="view_name",
                max_chars=LONGEST_NAME,
                placeholder="False accepts of generation 30",
            )
            if st.form_submit_button("Save view", icon=":material/bookmark_add:", type="primary"):
                state.guarded(_save, state.refused)(store, name, query, where)
        views = store.views.list(50)
        if not views:
            st.caption(
                "A view keeps filters, order, columns and grouping. Its link always shows what matches then."
            )
        for view in views:
            _line(store, view)


def _save(store: Store, name: str, query: Mapping[str, str], where: EpisodeFilter) -> None:
    """The new view stands for the whole list, that of an older view it was made from included."""
    looks = {look: query[look] for look in LOOKS if query.get(look)}
    own = {} if "view" not in query else {"q": expression(where)}
    kept = store.views.add(name, (own or EpisodeFilter.from_query(query).to_query()) | looks)
    state.replace_params({"view": kept.id})
    st.rerun()


def _line(store: Store, view: SavedView) -> None:
    def renamed() -> None:
        store.views.rename(view.id, st.session_state[f"rename_{view.id}"])

    def deleted() -> None:
        store.views.delete(view.id)
        if state.param("view") == view.id:
            state.set_params(view=None)

    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        state.page_link("episodes", label(view.name, LONGEST_NAME), icon=":material/bookmark:", view=view.id)
        st.space("stretch")
        with st.popover("", icon=":material/edit:", type="tertiary", help="Rename or delete"):
            st.text_input(
                "Name",
                view.name,
                key=f"rename_{view.id}",
                max_chars=LONGEST_NAME,
                on_change=state.guarded(renamed, state.refused),
            )
            st.button(
                "Delete this view",
                key=f"delete_view_{view.id}",
                icon=":material/delete:",
                help="Its episodes stay.",
                on_click=state.guarded(deleted, state.refused),
            )


def keep_basket(store: Store, ids: list[str]) -> SavedView:
    """A view of exactly these episodes. StoreError for none."""
    if not ids:
        raise StoreError("Tick some episodes first: a view of them is then kept under its own link.")
    said = write(Among(Name("id"), tuple(ids)))
    return store.views.add(f"{len(ids)} chosen episodes", {"q": said})
