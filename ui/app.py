"""The web app's frame: page settings, the navigation and the one place where a broken store is told."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ui import state

ASSETS = Path(__file__).parent / "assets"

st.set_page_config(
    page_title="Trinity Inspector",
    page_icon=str(ASSETS / "icon.svg"),
    layout="wide",
    initial_sidebar_state="auto",
    menu_items={"About": "Trinity Inspector: see why a coordinator of language models did what it did."},
)
st.logo(str(ASSETS / "logo.svg"), size="medium")

PAGES = [
    st.Page(
        "views/home.py",
        title="Home",
        icon=":material/home:",
        url_path="home",
        default=True,
        help="Where to begin, the newest runs and episodes, and how the store is doing.",
    ),
    st.Page(
        "views/episodes.py",
        title="Episodes",
        icon=":material/table_rows:",
        url_path="episodes",
        help="Every recorded episode: filter, search, peek, and tick two to compare.",
    ),
    st.Page(
        "views/checkpoints.py",
        title="Checkpoints",
        icon=":material/balance:",
        url_path="checkpoints",
        help="Two coordinators on the same tasks: accuracy, flips, and whether the difference is real.",
    ),
    st.Page(
        "views/policy.py",
        title="Policy diff",
        icon=":material/difference:",
        url_path="policy",
        help="What other checkpoints would choose at the recorded turns, without asking a model.",
    ),
    st.Page(
        "views/evolution.py",
        title="Evolution",
        icon=":material/trending_up:",
        url_path="evolution",
        help="How a coordinator came about, generation by generation; begin, watch, stop and resume one.",
    ),
    st.Page(
        "views/routing.py",
        title="Routing",
        icon=":material/route:",
        url_path="routing",
        help="Who is called in which role, who follows whom, what it depends on, and whether it pays.",
    ),
    st.Page(
        "views/verifier.py",
        title="Verifier & cost",
        icon=":material/fact_check:",
        url_path="verifier",
        help="Which verifier accepts wrong answers, what fewer turns would do, what a solved problem costs.",
    ),
    st.Page(
        "views/results.py",
        title="Results",
        icon=":material/leaderboard:",
        url_path="results",
        help="The paper's tables played here: learners, ablations, heads, other ways to combine models.",
    ),
    st.Page(
        "views/separability.py",
        title="Separability",
        icon=":material/scatter_plot:",
        url_path="separability",
        help="Hidden states and logits as points: do task families and chosen models lie apart?",
    ),
    st.Page(
        "views/live.py",
        title="Live",
        icon=":material/play_circle:",
        url_path="live",
        help="Play a new problem now and watch every decision as it is made.",
    ),
    st.Page(
        "views/forks.py",
        title="Forks",
        icon=":material/call_split:",
        url_path="forks",
        help="Change one thing at one turn, play on, and see whether it mattered beyond chance.",
    ),
    st.Page(
        "views/data.py",
        title="Data",
        icon=":material/database:",
        url_path="data",
        help="Episodes out as JSON Lines, CSV, Parquet or web pages; files of others in.",
    ),
    st.Page(
        "views/glossary.py",
        title="Glossary",
        icon=":material/menu_book:",
        url_path="glossary",
        help="The words used here: logit, margin, flip, SVF and the others.",
    ),
    st.Page(
        "views/review.py",
        title="Review",
        icon=":material/rate_review:",
        url_path="review",
        help="Read a queue of episodes and label them, blind if you like; see how far reviewers agree.",
    ),
    st.Page(
        "views/settings.py",
        title="Settings & health",
        icon=":material/settings:",
        url_path="settings",
        help="The keys of every page, the store and its tables, who works on what, caches and versions.",
    ),
    st.Page(
        "views/replay.py",
        title="Replay",
        icon=":material/smart_display:",
        url_path="replay",
        visibility="hidden",
        help="One episode, turn by turn: what was chosen, what was said, what became of the answer.",
    ),
    st.Page(
        "views/pair.py",
        title="Two episodes",
        icon=":material/compare:",
        url_path="pair",
        visibility="hidden",
        help="Two episodes of the same task, aligned turn by turn, the first divergence marked.",
    ),
]

page = st.navigation(PAGES, position="top")
state.remember_place(page.url_path)
page.run()
