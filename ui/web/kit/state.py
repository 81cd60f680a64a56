"""What a page knows when it starts: the opened store, the address bar, and how to get to another page.

The address bar has one owner, this module. Every view is a link: a page reads its parameters with `param`,
changes them with `set_params` and never keeps in session state what a reader might want to share. Pages are
files in `ui/views/` that Streamlit runs as `__main__`; each ends with `state.run(show)` under that name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NoReturn, ParamSpec
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from core.errors import TrinityError
from core.processes import set_aside
from storage.store import Store, open_store
from ui.presentation.theme import label, plain
from ui.presentation.words import distinct
from ui.runs import wiring
from ui.runs.lease import mark_dead
from ui.runs.queue import Ticket

P = ParamSpec("P")

_PAGES = """
    home episodes replay pair checkpoints policy evolution routing verifier pool requests outcomes separability results
    live forks data glossary review settings
"""
#: Page name (its URL path) -> its file, relative to ui/web/frame.py.
VIEWS: dict[str, str] = {name: f"views/{name}.py" for name in _PAGES.split()}

_LIST_KEY, _PLACE_KEY, _TICKET, _ADDRESS = "episode_list_query", "last_place", "ticket", "address_shown"


@st.cache_resource(max_entries=8, show_spinner=False)
def _opened(url: str) -> Store:
    opened = open_store(url)
    set_aside()
    return opened


def store() -> Store:
    """The store, opened once per server process, with what a dead process left running marked as such.

    StoreError with one sentence when it cannot be opened."""
    opened = _opened(wiring.settings().store)
    mark_dead(opened)
    return opened


def run(show: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
    """Run a page; a user's mistake becomes an error box with its one sentence, never a traceback."""
    guarded(show)(*arguments, **named)
    # The browser shall show this view's parameters: a link from a page to itself runs the page with new ones, and
    # leaves the old ones in the address bar. What it shows already it is not shown twice.
    page = f"{inspect.getfile(show)} {arguments}"
    here = page, st.query_params.to_dict()
    before = st.session_state.get(_ADDRESS)
    if before is not None and before[0] == page and before != here:
        st.query_params.from_dict(here[1])
    st.session_state[_ADDRESS] = here


def guarded(do: Callable[P, object], show: Callable[[str], object] | None = None) -> Callable[P, None]:
    """`do`, with a user's mistake shown as its one sentence: by `failed` (the error box), or by `show`, such as
    `refused` in a callback."""

    def guard(*arguments: P.args, **named: P.kwargs) -> None:
        try:
            do(*arguments, **named)
        except TrinityError as error:
            (show or failed)(str(error))

    return guard


def click(do: Callable[P, object], *arguments: P.args, **named: P.kwargs) -> Callable[[], None]:
    """A callback that does this; where a user's mistake prevents it, `refused` says why."""
    return partial(guarded(do, refused), *arguments, **named)


def refused(sentence: str) -> None:
    """Say why what was clicked did not happen; the page stays."""
    st.toast(label(sentence, 400), icon=":material/error:")


def failed(sentence: str) -> None:
    """The error state every page shares: what is wrong, and two ways on."""
    with st.container(border=True):
        st.markdown(":red[:material/error:] **This view cannot be shown**")
        st.text(plain(sentence))
        with st.container(horizontal=True):
            page_link("episodes", "All episodes", icon=":material/table_rows:")
            page_link("home", "Home", icon=":material/home:")


def param(name: str) -> str | None:
    """One query parameter of the address bar; None when absent or empty."""
    return st.query_params.get(name) or None


def int_param(name: str, low: int, high: int, default: int) -> int:
    """A whole number from the address bar, held within [low, high]; `default` when it is no number."""
    try:
        value = int(st.query_params.get(name, ""))
    except ValueError:
        value = default
    return max(low, min(high, value))


def set_params(**values: str | int | None) -> None:
    """Change some query parameters and keep the others; None removes one."""
    for name, value in values.items():
        if value is None or value == "":
            if name in st.query_params:
                del st.query_params[name]
        elif st.query_params.get(name) != str(value):
            st.query_params[name] = str(value)


def entered(key: str, options: Collection[Any] | None = None) -> Any:
    """What the widget of this key holds, for its callback; of several values a list. None, or none of them, for what is
    not among `options`: a list's browser sends the *words* of what is chosen, and where no option is called so any more
    Streamlit hands these words on. None, too, where a page that is drawn anew has taken the widget away while it was
    pressed."""
    value = st.session_state.get(key)
    if options is None or value is None:
        return value
    if isinstance(value, list):
        return [one for one in value if one in options]
    return value if value in options else None


def reported(key: str, event: str) -> Any:
    """What a component of ours, or a chart, reports under this name, for its callback; None for nothing, and where the
    page has taken it away meanwhile."""
    return _part(st.session_state.get(key), event)


def points(key: str) -> list[Any]:
    """The points of the chart of this key that are chosen, for its callback; none where the page has taken it away."""
    return list(_part(reported(key, "selection"), "points") or ())


def rows(key: str) -> list[int]:
    """The rows of the table of this key that are chosen, likewise."""
    return list(_part(reported(key, "selection"), "rows") or ())


def cell_rows(key: str) -> list[int]:
    """The rows of the cells that are chosen in the table of this key, likewise."""
    return [int(row) for row, *_ in _part(reported(key, "selection"), "cells") or ()]


def _part(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


#: The widgets with which one of several values is chosen.
_SELECTS: dict[str, Callable[..., object]] = {
    "list": st.selectbox,
    "segments": st.segmented_control,
    "pills": st.pills,
}


def select(
    words: str,
    options: Mapping[str, str],
    chosen: str | None,
    write: Callable[[str | None], object],
    *,
    key: str,
    widget: Literal["list", "segments", "pills"] = "list",
    **look: Any,
) -> None:
    """A choice among `options` (value -> its words) that shows `chosen`, whatever was chosen here before; a new choice
    goes to `write`; two that share their words are told apart by their values. `look`: further arguments of the
    widget."""
    words_of = distinct(options)
    st.session_state[key] = chosen

    def changed() -> None:
        now = st.session_state.get(key)
        if key in st.session_state and (now is None or now in words_of):
            write(now)

    _SELECTS[widget](
        words, list(words_of), key=key, format_func=words_of.__getitem__, on_change=changed, **look
    )


def address_select(
    words: str,
    options: Mapping[str, str],
    *,
    name: str,
    key: str,
    default: str | None = None,
    forgets: Sequence[str] = (),
    widget: Literal["list", "segments", "pills"] = "segments",
    **look: Any,
) -> str:
    """A choice among `options` (value -> its words) that stands in the address as `name`. Where the address says
    nothing, or what is not offered, `default` is meant, else the first option, which is then left out of the address.
    `forgets`: parameters that a new choice removes. `look`: further arguments of the widget."""
    meant = default or next(iter(options))
    value = param(name) or meant
    value = value if value in options else meant

    def write(new: str | None) -> None:
        stands = None if default is None and new == meant else new
        set_params(**{**dict.fromkeys(forgets), name: stands})

    if widget == "segments":
        look = {"required": True, "label_visibility": "collapsed"} | look
    select(words, options, value, write, key=key, widget=widget, **look)
    return value


def replace_params(values: Mapping[str, str]) -> None:
    """Make the query exactly `values`, in one step."""
    if st.query_params.to_dict() != dict(values):
        st.query_params.from_dict(dict(values))


def href(page: str, **params: str | int | None) -> str:
    """A link to another view, relative to the server: `/replay?ep=e1&t=3`."""
    query = urlencode(_given(params))
    return f"/{page}?{query}" if query else f"/{page}"


def here() -> str:
    """The full address of this view, to be copied."""
    query = urlencode(st.query_params.to_dict())
    return f"{st.context.url or ''}{'?' if query else ''}{query}"


def go(page: str, **params: str | int | None) -> NoReturn:
    """Leave for another view now."""
    st.switch_page(VIEWS[page], query_params=_given(params))


def page_link(
    page: str,
    label: str,
    query: Mapping[str, str] | None = None,
    /,
    *,
    icon: str | None = None,
    help: str | None = None,
    **params: str | int | None,
) -> None:
    """A link to another view. `label` is markdown: foreign text goes through `theme.label`. `query` is an address that
    a reader came with, whatever names it holds; `params` are added to it."""
    st.page_link(
        VIEWS[page], label=label, icon=icon, help=help, query_params=_given({**(query or {}), **params})
    )


def _given(params: Mapping[str, str | int | None]) -> dict[str, str]:
    return {name: str(value) for name, value in params.items() if value not in (None, "")}


def remember_list(query: Mapping[str, str]) -> None:
    """Keep the episode list's address in this tab, so that leaving a replay leads back to the same page."""
    st.session_state[_LIST_KEY] = dict(query)


def list_query() -> dict[str, str]:
    """The address of the episode list that the reader came from: the one this page's address carries, else as it was
    last seen in this tab; empty at first."""
    if carried := param("list"):
        remember_list(dict(parse_qsl(carried)))
    return dict(st.session_state.get(_LIST_KEY, {}))


def replay_of_list(episode_id: str) -> dict[str, str]:
    """The parameters of a replay opened from the episode list; they carry the list into the tab that it opens."""
    return {"ep": episode_id, "list": urlencode(list_query())}


def arrive(page: str) -> None:
    """Note where in this tab something is being read, so that Home leads back to it, and give a new ticket whenever the
    reader comes to another page or run: what is clicked twice has one."""
    if page in ("replay", "pair", "review") and (param("ep") or param("a")):
        st.session_state[_PLACE_KEY] = page, st.query_params.to_dict()
    place = page, param("run")
    if _TICKET not in st.session_state or st.session_state[_TICKET][0] != place:
        st.session_state[_TICKET] = place, Ticket()


def ticket() -> Ticket:
    """The ticket of the form at hand."""
    found: Ticket = st.session_state[_TICKET][1]
    return found


def last_place() -> tuple[str, dict[str, str]] | None:
    """The page and address of what was read last in this tab; None at first."""
    found: tuple[str, dict[str, str]] | None = st.session_state.get(_PLACE_KEY)
    return found


def back_to_list() -> NoReturn:
    """Return to the episode list as it was left."""
    st.switch_page(VIEWS["episodes"], query_params=list_query())
