"""What a reader keeps of the list of episodes: the compare basket of this tab, and saved views under their names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NoReturn, get_args

import streamlit as st

from core.errors import StoreError
from storage.filters.episode_filter import EpisodeFilter, as_expression, filter_of_address
from storage.filters.expression import Among, ExpressionError, Name, write_expression
from storage.rows.summaries import Order, SavedView
from storage.shelves.episodes import LONGEST_NAME
from storage.store import Store
from ui.presentation.theme import label
from ui.presentation.words import decider_words
from ui.web.kit import state
from ui.web.kit.cache import remembered
from ui.web.kit.widgets import episode_line, popover, tool
from ui.web.pickers.checkpoints import generation_of

#: The ticked rows of the episode list are the same basket.
_KEY = "ticked"
#: A basket up to this size stands in the address; larger ones are saved as views.
_LINKED = 12


def held() -> list[str]:
    """The ids in the basket, in the order in which they were put there. A pasted link brings its own along."""
    if _KEY not in st.session_state:
        linked = (state.param("basket") or "").split(",")
        st.session_state[_KEY] = list(dict.fromkeys(one for one in linked if one))[:_LINKED]
    return list(st.session_state[_KEY])


def hold(ids: list[str]) -> None:
    """Have exactly these in the basket."""
    st.session_state[_KEY] = ids
    put_in_address()


def put_in_address() -> None:
    """Have the address say what is in the basket, on the pages that show it."""
    now = held()
    state.set_params(basket=",".join(now) if len(now) <= _LINKED else None)


def toggle(episode_id: str) -> None:
    """Put an episode in, or take it out again."""
    now = held()
    hold([one for one in now if one != episode_id] if episode_id in now else [*now, episode_id])


def basket(store: Store) -> None:
    """What is in, and the way to compare two; into the row that the caller opened. Nothing while it is empty."""
    put_in_address()
    now = held()
    if not now:
        return
    if len(now) == 2:
        state.page_link("pair", "Compare the 2 in the basket", icon=":material/compare:", a=now[0], b=now[1])
    popover(f"In the basket: {len(now)}", "basket", partial(_contents, store, now))


def _contents(store: Store, now: list[str]) -> None:
    if len(now) != 2:
        advice = "Take some out." if len(now) > 2 else "Add one."
        st.caption(f"Two episodes can be compared side by side. {advice}")
    for one in now:
        with st.container(horizontal=True, vertical_alignment="center"):
            try:
                summary = store.episodes.summary(one)
                state.page_link("replay", label(summary.question, 60), ep=one, t=1)
                st.caption(
                    episode_line(summary, decider_words(summary, generation_of(store))), width="content"
                )
            except StoreError:
                st.caption(f"{label(one)} is no longer in the store.")
            tool("Take out", f"take_out_{one}", partial(toggle, one))


#: What a view keeps of its page besides the filter.
LOOKS = ("order", "group", "cols", "width")


def named_view(store: Store, query: Mapping[str, str]) -> SavedView | None:
    """The view that an address names; StoreError when it is gone."""
    return store.views.get(query["view"]) if query.get("view") else None


def views_popover(store: Store, query: Mapping[str, str], where: EpisodeFilter) -> None:
    """Save this list under a name; open, rename and delete saved ones; copy the link of the one that is open."""
    if "view_saved" in st.session_state:
        name = label(st.session_state.pop("view_saved"), LONGEST_NAME)
        st.toast(f"Saved as the view “{name}”. Its link is under Views.", icon=":material/bookmark_added:")
    with st.popover("Views", icon=":material/bookmark:", type="tertiary"):
        with st.form("save_view", clear_on_submit=True, border=False):
            name = st.text_input(
                "Keep this list as",
                key="view_name",
                max_chars=LONGEST_NAME,
                placeholder="False accepts of generation 30",
            )
            if st.form_submit_button("Save view", icon=":material/bookmark_add:", type="primary"):
                state.click(_save, store, name, query, where)()
        views = store.views.list(50)
        if not views:
            st.caption(
                "A view keeps filters, order, columns and grouping. Its link always shows what matches then."
            )
        for view in views:
            _line(store, view)
        if query.get("view"):
            st.caption("Link to this view, as it is shown now")
            st.code(state.here(), language=None, wrap_lines=True)


def _save(store: Store, name: str, query: Mapping[str, str], where: EpisodeFilter) -> None:
    """The new view stands for the list with the filter of the view it was made from."""
    looks = {look: query[look] for look in LOOKS if query.get(look)}
    own = {} if "view" not in query else {"q": as_expression(where)}
    view = store.views.add(name, (own or EpisodeFilter.from_query(query).to_query()) | looks)
    open_new(view)


def open_new(view: SavedView) -> NoReturn:
    """Show a view that was saved just now, and say that it was."""
    st.session_state["view_saved"] = view.name
    state.replace_params({"view": view.id})
    st.rerun()


def _line(store: Store, view: SavedView) -> None:
    def renamed() -> None:
        if (name := state.entered(f"rename_{view.id}")) is not None:
            store.views.rename(view.id, name)

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
                on_change=state.click(renamed),
            )
            key, help = f"delete_view_{view.id}", "Its episodes stay."
            tool("Delete this view", key, deleted, icon="delete", type="secondary", help=help)


def keep_basket(store: Store, ids: list[str]) -> SavedView:
    """A view of exactly these episodes. StoreError for none."""
    if not ids:
        raise StoreError("Tick some episodes first: a view of them is then kept under its own link.")
    filter_text = write_expression(Among(Name("id"), tuple(ids)))
    return store.views.add(f"{len(ids)} chosen episodes", {"q": filter_text})


def order_of(query: Mapping[str, str]) -> Order:
    """The order that a list's address asks for, newest first unless it is a known one."""
    return next((known for known in get_args(Order) if known == query.get("order")), "newest")


@remembered(most=256, seconds=60)
def neighbours(
    store: Store, episode_id: str, run_id: str, policy: str, query: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """(previous, next) ids of an episode in a list, None at an end. `query` is the list's address, empty for all."""
    own = EpisodeFilter(run=run_id, policy=policy)
    try:
        where = filter_of_address(query, named_view(store, query))
    except (ExpressionError, StoreError):  # the list said so; the reader is here for the episode
        where = own
    return (
        store.episodes.neighbours(episode_id, where, order=order_of(query))
        or store.episodes.neighbours(episode_id, own, order="oldest")
        or (None, None)
    )
