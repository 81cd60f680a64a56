"""Episodes: every recorded episode, filtered, searched and paged in SQL; peek at one, tick two to compare.

The whole view is in the address bar: filters under the names of EpisodeFilter (`q` is the filter line), `view`,
`order`, `group`, `cols`, the cursor (`after`, `before` or `last`) and `peek`. No turn text is read but that of the
peeked episode.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from core.errors import StoreError
from storage.filters.episode_filter import EpisodeFilter, as_expression, filter_of_address
from storage.filters.expression import Among, ExpressionError, Name, write_expression
from storage.filters.vocabulary import FIELDS
from storage.rows.summaries import EpisodeSummary, Facets, Order, Page, SavedView
from storage.store import Store
from ui.export.formats import FORMATS
from ui.presentation.comparison import tells_seen
from ui.presentation.theme import label, plain
from ui.runs.forks.planning import BATCHES
from ui.runs.settings.forks import MOST_EPISODES
from ui.web.components.filter_line import filter_line
from ui.web.components.transport import Keys
from ui.web.episodes import (
    GROUPS,
    column_chooser,
    empty_basket,
    group_asked,
    legend,
    show_groups,
    show_preview,
    show_table,
)
from ui.web.kit import state
from ui.web.kit.widgets import button, download, nothing_here, popover, tool
from ui.web.pickers.facets import change, clear, facets_of, left_out_words, show_chips, show_facets
from ui.web.pickers.lists import (
    LOOKS,
    held,
    keep_basket,
    named_view,
    open_new,
    order_of,
    put_in_address,
    views_popover,
)

PAGE_SIZE = 50
KEYS: Keys = (("J / K", "next / previous episode, while one is peeked at"),)
ORDERS: dict[Order, str] = {
    "newest": "newest first",
    "oldest": "oldest first",
    "turns": "most turns",
    "tokens": "most tokens",
    "cost": "most expensive",
    "latency": "slowest",
    "margin": "smallest margin",
    "entropy": "most undecided",
}
#: Questions that the filter line answers; a click asks them.
EXAMPLES = {
    "More than three turns": "turns > 3",
    "Wrong, and about numbers": 'correct == False and family in ("math", "sequences")',
    "A wrong ending that a Verifier accepted, in workflows too": (
        'correct == False and any(turn.role == "verifier" and turn.verdict == "ACCEPT")'
    ),
    "A Thinker came first, and a wrong answer was accepted": (
        'any(turn.number == 1 and turn.role == "thinker") and "false_accept" in flags'
    ),
    "A right answer was lost on the way": "correct == False and any(turn.correct == True)",
    "Chance, not the head, chose a turn": "any(turn.sampled == True and turn.margin < 0.5)",
    "The verifier judged three times or more": 'count(turn.role == "verifier") >= 3',
    "No thinker at all, and still right": 'correct == True and all(turn.role != "thinker")',
    "Nobody has labelled it yet": "labels == 0",
}


#: Where a list can be taken -> what is done with it there.
_WAYS_ON: dict[str, tuple[str, str]] = {
    "review": ("Review: read and label one after the other", ":material/rate_review:"),
    "routing": ("Routing: who was called in which role", ":material/route:"),
    "verifier": ("Verifier & cost: whom to trust, and what it cost", ":material/fact_check:"),
    "policy": ("Policy diff: what other checkpoints would have chosen", ":material/difference:"),
    "data": ("Data: save them as files", ":material/database:"),
}


def show() -> None:
    store = state.store()
    query = st.query_params.to_dict()
    view = _view(store, query)
    query = st.query_params.to_dict()
    own = EpisodeFilter.from_query(query)
    state.remember_list({name: value for name, value in query.items() if name not in ("peek", "basket")})
    try:
        where, mistake = filter_of_address(query, view), None
    except ExpressionError as error:
        where, mistake = own.without("q"), error
    facets = facets_of(store, where)
    with st.sidebar:
        show_facets(store, own, facets, where)
    st.title("Episodes")
    st.caption("Filter or search; tick one row to peek at it, two to compare them.")
    _lines(store, where if mistake is None else own, facets, mistake)
    show_chips(store, own, view)
    if mistake is not None:
        return
    _tools(store, query, where)
    by = group_asked()
    aside = left_out_words(where, facets)
    if by is not None:
        if not show_groups(store, by, where, query, aside):
            _empty(where)
        return
    page = store.episodes.page(where, order=order_of(query), limit=PAGE_SIZE, **_cursor())
    if not page.items:
        _empty(where)
        return
    _pager(store, page, _total(page, where, facets), where, aside)
    legend(page.items)
    notes = _notes(store, where.run) if where.run else []
    for note in filter(tells_seen, notes):
        st.warning(label(note, 500), icon=":material/school:")
    if notes := [one for one in notes if not tells_seen(one)]:
        with st.expander("How this run's policies were chosen"):
            for note in notes:
                st.markdown(label(note, 500))
    peeked = state.param("peek")
    if peeked is None:
        show_table(store, page.items)
        return
    left, right = st.columns([3, 2], gap="medium")
    with left:
        show_table(store, page.items)
    with right, st.container(border=True):
        show_preview(store, peeked, [one.id for one in page.items])


def _notes(store: Store, run: str) -> list[str]:
    """What a run says of how its policies were chosen; nothing of a run that is gone."""
    with suppress(StoreError):
        return store.runs.get(run).notes.splitlines()
    return []


def _view(store: Store, query: Mapping[str, str]) -> SavedView | None:
    """The view of the address, which takes over its order, groups and columns when it is opened. One that is
    gone is said to be, and the list goes on without it."""
    try:
        view = named_view(store, query)
    except StoreError as error:
        words = f"{label(str(error), 200)} The episodes below are shown without it."
        st.warning(words, icon=":material/bookmark_remove:")
        return None
    if view is not None and st.session_state.get("view_opened") != view.id:
        state.set_params(**{look: view.query.get(look) for look in LOOKS if look not in query})
    st.session_state["view_opened"] = None if view is None else view.id
    return view


def _cursor() -> dict[str, Any]:
    if state.param("last"):
        return {"last": True}
    return {name: value for name in ("after", "before") if (value := state.param(name))}


def _lines(store: Store, where: EpisodeFilter, facets: Facets, mistake: ExpressionError | None) -> None:
    """The filter line and the search. The line shows a view's own words too, so that what is written in place of them
    takes the place of the view; with a mistake in it, it shows what the address adds to the view."""

    def asked(text: str) -> None:
        change(q=text, view=None if mistake is None else state.param("view"))

    line, search = st.columns([5, 3], vertical_alignment="center", gap="small")
    with line:
        filter_line(
            where.q or "",
            {name: [one.value for one in getattr(facets, name)] for name in ("family", "policy", "run")}
            | {f"label.{name}": words for name, words in store.labels.vocabulary().items()},
            asked,
            key="filter_line",
            placeholder="Filter, e.g.  turns > 3  for more than three turns",
            wrong=mistake is not None,
        )
    st.session_state["search_text"] = where.text or ""
    search.text_input(
        "Search",
        key="search_text",
        label_visibility="collapsed",
        icon=":material/search:",
        max_chars=200,
        placeholder="Search questions and replies …",
        on_change=lambda: change(text=state.entered("search_text")),
    )
    if mistake is not None:
        with st.container(border=True):
            st.markdown(
                f":red[:material/error:] **{label(mistake.sentence[:1].upper() + mistake.sentence[1:], 400)}**"
            )
            st.code(plain(mistake.pointer), language=None)
            st.caption(f"Column {mistake.column}. Nothing is listed until the filter can be read.")
            _help()


def _help() -> None:
    """What can be written, with questions to begin from; drawn only when it is opened."""
    popover("What can I ask?", "filter_help", _language, icon="help")


def _language() -> None:
    st.markdown("**Ask in one line.** Suggestions come as you type; Enter applies.")
    with st.container(gap=None):
        for words, filter_text in EXAMPLES.items():
            tool(words, f"example_{words}", partial(change, q=filter_text))
            st.caption(f"`{filter_text}`")
    st.markdown(
        '`==` `!=` `<` `<=` `>` `>=` compare · `in (…)` is one of several · `"prime" in question` looks into a '
        'text · `"low_margin" in flags` · `and` `or` `not` and brackets join · `any(…)` `all(…)` `count(…)` ask '
        "about turns (`turn.role`) or labels (`label.name`) · `None` is unknown: `!=` finds it, `<` and `>` do "
        'not · `search("…")` is the search box.'
    )
    rows = []
    for name, field in FIELDS.items():
        listed = f": {', '.join(field.choices)}" if field.kind in ("choice", "set") else ""
        rows.append({"field": name, "kind": field.kind, "meaning": f"{field.words}{listed}"})
    alt = "The fields of the filter language"
    st.dataframe(rows, key="filter_fields", hide_index=True, height=320, alt=alt)


def _tools(store: Store, query: Mapping[str, str], where: EpisodeFilter) -> None:
    by = group_asked()
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_list"):
        _help()
        if by is None:
            state.select(
                "Order",
                {str(order): words for order, words in ORDERS.items()},
                order_of(query),
                lambda order: change(order=order),
                key="list_order",
                label_visibility="collapsed",
                width=155,
            )
        state.select(
            "Group",
            {str(group): words for group, words in GROUPS.items()},
            by,
            lambda group: change(group=group),
            key="list_group",
            label_visibility="collapsed",
            width=155,
            index=None,
            placeholder="no groups",
        )
        if by is None:
            column_chooser()
        views_popover(store, query, where)
        _as_expression(where)
        if by is not None:
            _ways_on(where)


def _ways_on(where: EpisodeFilter) -> None:
    with st.popover("With these", icon=":material/arrow_outward:", type="tertiary", key="ways_on"):
        st.caption("Take all episodes of this list, not only this page, to")
        for page, (words, icon) in _WAYS_ON.items():
            state.page_link(page, words, icon=icon, **where.to_query())
        batch = where.to_query() | ({} if where.flag in BATCHES else {"at": "last"})
        state.page_link(
            "forks",
            "Forks: what if that turn had gone otherwise?",
            icon=":material/call_split:",
            batch=urlencode(batch),
        )


def _as_expression(where: EpisodeFilter) -> None:
    with st.popover("As expression", icon=":material/code:", type="tertiary"):
        filter_text = as_expression(where)
        if not filter_text:
            st.caption("Choose or write a condition: it then stands here as one expression to copy.")
            return
        st.caption("What was clicked and written, as one expression")
        st.code(plain(filter_text), language=None, wrap_lines=True)
        st.caption("The same list in a terminal")
        st.code(plain(f"trinity episodes --where {shlex.quote(filter_text)}"), language=None, wrap_lines=True)


def _empty(where: EpisodeFilter) -> None:
    if where.to_query() or _cursor():
        nothing_here("No episode matches these filters.", ":material/filter_alt_off:")
        button("Clear the filters", "clear_filters", clear, type="primary")
    else:
        nothing_here("No episode is recorded yet.")
        state.page_link("home", "See how to record or load some", icon=":material/home:")


def _total(page: Page[EpisodeSummary], where: EpisodeFilter, facets: Facets) -> str:
    """How many episodes the list has: where the page counted only so far, what the facets add up to."""
    if page.total.capped:
        return f"**{sum(one.n for one in facets.status if where.status in (None, one.value)):,}** episodes"
    return f"**{page.total}** episode{'' if page.total.n == 1 else 's'}"


def _pager(store: Store, page: Page[EpisodeSummary], total: str, where: EpisodeFilter, aside: str) -> None:
    """How many there are, what is left out of them (`aside`), the ways through them and on from them: to the left, for
    a table that is pointed at shows its own tools above its right end."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_pager"):
        st.markdown(total + f" · :gray[{aside}]" * bool(aside), width="content")
        first, last = page.previous is None, page.next is None
        for words, icon, to, off in (
            ("First", "first_page", change, first),
            ("Previous", "chevron_left", partial(change, before=page.previous), first),
            ("Next", "chevron_right", partial(change, after=page.next), last),
            ("Last", "last_page", partial(change, last="1"), last),
        ):
            key, help = f"page_{words.lower()}", f"{words} page"
            tool("", key, to, icon=icon, type="secondary", help=help, disabled=off)
        _ways_on(where)
        _basket(store)


def _basket(store: Store) -> None:
    put_in_address()
    ticked = held()
    if not ticked:
        return
    st.markdown(f"**{len(ticked)}** ticked", width="content")
    if len(ticked) == 2 and tool("Compare the two", "compare_two", icon="compare", type="primary"):
        state.go("pair", a=ticked[0], b=ticked[1])
    if len(ticked) > 1 and tool("Keep as view", "basket_view", icon="bookmark_add"):
        open_new(keep_basket(store, ticked))
    help = "Change one thing at one turn of each ticked episode, and see whether it matters"
    if tool("Fork these", "basket_fork", icon="call_split", help=help):
        chosen = tuple(ticked[:MOST_EPISODES])
        batch = {"q": write_expression(Among(Name("id"), chosen)), "at": "last"}
        state.go("forks", batch=urlencode(batch), most=len(chosen))
    sheet = FORMATS["csv"]
    data, file_name = sheet.deferred(store, ticked), f"trinity-episodes{sheet.suffix}"
    look = {"type": "tertiary", "help": "The ticked episodes as CSV, a line each"}
    download("Export", data, file_name, sheet.mime, key="basket_export", **look)
    tool("", "basket_clear", empty_basket, icon="close", help="Untick all")


if __name__ == "__main__":
    state.run(show)
