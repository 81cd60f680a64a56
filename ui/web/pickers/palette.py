"""The palette: one field, from every page, that leads to a page, an outcome table, a checkpoint, a run, or an episode
by id or words."""

from __future__ import annotations

import re
from collections.abc import Mapping

import streamlit as st

from core.errors import TrinityError
from core.outcomes.table import tables
from storage.analysis.defaults import newest_first
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.expression import Holds, Name, write_expression
from storage.rows.summaries import EpisodeSummary
from storage.store import Store
from ui.presentation.runs import names_of
from ui.presentation.theme import correct_mark, label, one_line
from ui.presentation.words import policy_name
from ui.runs.plans import address_of, kind_of
from ui.web.components import take_focus, what_is_typed
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.widgets import tool
from ui.web.pickers.checkpoints import generation_of

#: The key of the button, by which other keys of a page rest while the palette is open.
PALETTE = "palette"
#: At most so many checkpoints, runs and newest episodes are offered before anything is typed; and found by words.
_CHECKPOINTS, _RUNS, _NEWEST, _FOUND = 400, 100, 30, 8

#: Somewhere to go: its words, the page, and the address there.
Place = tuple[str, str, dict[str, str]]
Places = Mapping[str, Place]


def palette(pages: Mapping[str, str]) -> None:
    """The button, key G, and what it opens. `pages`: page -> its title."""
    if tool(
        "Go to",
        PALETTE,
        icon="search",
        shortcut="G",
        help="Any page, outcome table, checkpoint, run or episode",
    ):
        _open(pages)


@st.dialog("Go to", width="large", on_dismiss="rerun")
def _open(pages: Mapping[str, str]) -> None:
    places: dict[str, Place] = {f"page {name}": (title, name, {}) for name, title in pages.items()}
    places |= outcome_tables()
    try:
        store = state.store()
        places |= _places(store)
    except TrinityError as error:  # the pages remain: Settings says more
        st.caption(label(str(error), 400))
        store = None
    chosen = st.selectbox(
        "A page, outcome table, checkpoint, run or episode, by its name, id or words",
        list(places),
        index=None,
        key="palette_choice",
        format_func=lambda one: places[one][0] if one in places else one,
        accept_new_options=store is not None,
        placeholder="Type a name, an id, or words of a question, then Enter",
    )
    take_focus("palette_choice")
    what_is_typed("Go to, or search for:")
    if chosen is None:
        return
    typed = chosen.strip()[:200]
    meant = [places[chosen]] if chosen in places else called(typed, places)
    if meant:
        _, page, query = meant[0]
        state.go(page, **query)
    if store is not None:
        _episodes(store, typed)


def outcome_tables() -> Places:
    """Every outcome table that is here."""
    names = [table.card.name for table in tables()]
    return {f"table {name}": (f"Outcome table {name}", "outcomes", {"table": name}) for name in names}


def called(typed: str, places: Places) -> list[Place]:
    """The places that what was typed means, the likeliest first: called so exactly; pages a word of whose title begins
    so; others whose words hold it, as whole words; others a word of which begins so. An episode is called by its id:
    its question's words may stand in many others."""
    begins = re.compile(rf"(?<!\w){re.escape(typed)}", re.IGNORECASE)
    whole = re.compile(rf"{begins.pattern}(?!\w)", re.IGNORECASE)
    named = {key: key if key.startswith("episode ") else one[0] for key, one in places.items()}

    def rank(key: str) -> int:
        if places[key][0].casefold() == typed.casefold():
            return 0
        if not begins.search(named[key]):
            return 4
        return 1 if key.startswith("page ") else 2 if whole.search(named[key]) else 3

    ranks = {key: rank(key) for key in places} if typed.strip() else {}
    return [places[key] for key in sorted(ranks, key=ranks.__getitem__) if ranks[key] < 4]


@cached
def _places(store: Store) -> Places:
    names, played = generation_of(store), store.checkpoints.policies_with_episodes()
    found: dict[str, Place] = {}
    for one in newest_first(store, store.checkpoints.list())[:_CHECKPOINTS]:
        name = policy_name(one.id, names.get(one.id))
        idle = "" if one.id in played else ", has played nothing"
        words = f"Checkpoint {name}{'' if one.id in name else f' ({one.id})'}{idle}"
        found[f"checkpoint {one.id}"] = (
            words,
            *_of_checkpoint(one.id, one.run_id, one.generation, one.id in played),
        )
    runs = store.runs.list(limit=_RUNS)
    run_name = names_of(runs)
    for run in runs:
        found[f"run {run.id}"] = f"Run {run_name[run.id]} ({run.id})", kind_of(run).page, address_of(run)
    for episode in store.episodes.page(limit=_NEWEST).items:
        words = f"Episode {episode.id}: {_words(episode)}"
        found[f"episode {episode.id}"] = words, "replay", {"ep": episode.id}
    return found


def _of_checkpoint(
    checkpoint: str, run: str | None, generation: int | None, played: bool
) -> tuple[str, dict[str, str]]:
    """Its episodes; where it has none, the generation of the evolution that it is."""
    if played or run is None or generation is None:
        return "episodes", {"policy": checkpoint}
    return "evolution", {"run": run, "gen": str(generation)}


def _words(one: EpisodeSummary) -> str:
    return f"{one_line(one.question, 70)} · {correct_mark(one.correct).word}"


def _episodes(store: Store, words: str) -> None:
    """The episodes whose id holds these words, else those in whose question or replies they stand."""
    where = EpisodeFilter(q=write_expression(Holds(Name("id"), words)))
    found = store.episodes.page(where, limit=_FOUND)
    if not found.items:
        where = EpisodeFilter(text=words)
        found = store.episodes.page(where, limit=_FOUND)
    if not found.items:
        st.caption(f"No page, checkpoint, run or episode is called, or says, “{label(words, 100)}”.")
        return
    if [one.id for one in found.items] == [words]:
        state.go("replay", ep=words)
    for one in found.items:
        name = policy_name(one.policy, generation_of(store).get(one.policy))
        link = f":blue[{label(_words(one), 110)}] · {label(name, 40)} · :gray[{label(one.id)}]"
        state.page_link("replay", link, icon=":material/smart_display:", ep=one.id)
    if found.next:
        words = f"All {found.total} in the list"
        state.page_link("episodes", words, icon=":material/table_rows:", **where.to_query())
