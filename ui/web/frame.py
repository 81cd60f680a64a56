"""The web app's frame: page settings, the navigation and the one place where a broken store is told."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from ui.answers.pages import ANALYSES
from ui.web.components import shell
from ui.web.kit import state
from ui.web.middleware import FILTERED
from ui.web.pickers.palette import palette

ASSETS = Path(__file__).parents[1] / "assets"

st.set_page_config(
    page_title="Trinity Inspector",
    page_icon=str(ASSETS / "icon.svg"),
    layout="wide",
    initial_sidebar_state="auto",
    menu_items={"About": "Trinity Inspector: see why a coordinator of language models did what it did."},
)
st.logo(str(ASSETS / "logo.svg"), size="medium")

#: What the first page is called within Streamlit, where two pages cannot have one name; no address shows it.
START = "start"

#: Page -> what it is for, as the menu says it.
HELP = {
    "home": "Where to begin, the newest runs and episodes, and how the store is doing.",
    "episodes": "Every recorded episode: filter, search, peek, and tick two to compare.",
    "replay": "One episode, turn by turn: what was chosen, what was said, what became of the answer.",
    "pair": "Two episodes of the same task, aligned turn by turn, the first divergence marked.",
    "live": "Play a new problem now and watch every decision as it is made.",
    "forks": "Change one thing at one turn, play on, and see whether it mattered beyond chance.",
    "results": "The paper's tables played here: learners, ablations, heads, other ways to combine models.",
    "review": "Read a queue of episodes and label them, blind if you like; see how far reviewers agree.",
    "data": "Export episodes as JSON Lines, CSV, Parquet or web pages; import the files of others.",
    "settings": "Keys of every page, the store and its tables, workers, caches and versions.",
    "glossary": "The words used here: logit, margin, flip, SVF and the others.",
    **{name: one.about for name, one in ANALYSES.items()},
}


#: Page -> its title, for those in the menu.
TITLES: dict[str, str] = {}


def _page(name: str, title: str, icon: str, *, default: bool = False, hidden: bool = False) -> StreamlitPage:
    """A page of `ui/views/`; a hidden one is reached by links, not by the menu."""
    if not hidden:
        TITLES[name] = title
    return st.Page(
        state.VIEWS[name],
        title=title,
        icon=f":material/{icon}:",
        url_path=START if default else name,
        default=default,
        visibility="hidden" if hidden else "visible",
        help=HELP[name],
    )


def _analyses(group: str) -> list[StreamlitPage]:
    return [_page(name, one.title, one.icon) for name, one in ANALYSES.items() if one.group == group]


#: What is in the menu, by what a reader is about to do.
MENU = {
    "": [
        _page("home", "Home", "home", default=True),
        _page("episodes", "Episodes", "table_rows"),
        _page("replay", "Replay", "smart_display", hidden=True),
        _page("pair", "Two episodes", "compare", hidden=True),
        # The first page's own address is `/`: whoever types `/home` shall find it too.
        _page("home", "Home", "home", hidden=True),
    ],
    "Compare": _analyses("Compare"),
    "Run": [_page("live", "Live", "play_circle"), _page("forks", "Forks", "call_split")],
    "Analyse": [
        *_analyses("Learn"),
        _page("results", "Results", "leaderboard"),
        *_analyses("Analyse"),
    ],
    "More": [
        _page("review", "Review", "rate_review"),
        _page("data", "Data", "database"),
        _page("settings", "Settings & health", "settings"),
        _page("glossary", "Glossary", "menu_book"),
    ],
}


def _unknown(path: str) -> None:
    """What is shown at an address that no page has, in place of Streamlit's own dialog and the first page."""
    state.failed(f"There is no page /{path} here: choose one in the menu, or go on from here.")


asked = unquote(urlsplit(st.context.url or "").path).strip("/")
if asked and "/" not in asked and asked not in {one.url_path for group in MENU.values() for one in group}:
    none = st.Page(partial(_unknown, asked), title="No such page", url_path=asked, visibility="hidden")
    MENU[""].append(none)

shell()
# In a new tab the bar at the side comes before all else, so that the menu and the page stand beside it from the start.
# Later on the browser's address may still be that of the page before.
first = asked in FILTERED and "opened" not in st.session_state
st.session_state["opened"] = True
if first:
    st.sidebar.markdown("**Filters**")
page = st.navigation(MENU, position="top", expanded=True)  # on a phone, beside filters too, all of them
palette(TITLES)
state.arrive(page.url_path)
if page.url_path in FILTERED and not first:
    st.sidebar.markdown("**Filters**")
page.run()
