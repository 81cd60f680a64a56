"""Policy diff: what two to eight checkpoints would choose at the same recorded turns; no model is asked.

The address holds the checkpoints (`c`, the baseline first), the one set beside the baseline in detail (`with`), the
episodes (`ep` for one, else the Episodes page's own filters and `view`), how choices are taken (`by`) and what
narrows the list of turns (`first`, `cell`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from core.errors import StoreError
from storage.analysis.policy_diff import MOST_CHECKPOINTS, PolicyDiff, read_diff
from storage.analysis.second_opinions import EpisodeScope, freshness
from storage.filters.episode_filter import EpisodeFilter, filter_of_address, for_totals
from storage.filters.expression import ExpressionError
from storage.rows.summaries import CheckpointSummary, SavedView
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.presentation.words import Generations, policy_name
from ui.web.components.filter_line import filter_line
from ui.web.kit import state
from ui.web.kit.cache import remembered
from ui.web.kit.widgets import nothing_here, replay_link, tool
from ui.web.pickers.checkpoints import default_checkpoints, generation_of, prefers_nothing
from ui.web.pickers.facets import change, facets_of, show_chips, show_facets
from ui.web.pickers.saved_views import named_view
from ui.web.policy.panels import show_detail, show_overview, show_trust
from ui.web.policy.rereading import is_pressing, show_reencoding

WARNING = (
    "Teacher-forced: every checkpoint is shown the transcript as it was recorded. After the first disagreement the "
    "other would have seen another transcript."
)
#: How a choice is taken: value in the address -> its words.
BY = {"argmax": "Likeliest choice", "draw": "With the recorded draw"}


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Policy diff", help=define("Policy diff"))
    st.caption("What would other checkpoints have chosen at the recorded turns? No model is asked.")
    checkpoints = store.checkpoints.list()
    if len(checkpoints) < 2:
        nothing_here("A policy diff needs two checkpoints; this store has fewer.")
        state.page_link("evolution", "Evolve a coordinator", icon=":material/trending_up:")
        return
    words = {one.id: _words(one, generation_of(store)) for one in checkpoints}
    ids = _choose(store, checkpoints, words)
    scope = _episodes(store)
    if len(ids) < 2:
        nothing_here("Choose a second checkpoint to compare with the first.", ":material/difference:")
        return
    if scope is None:
        return
    st.info(WARNING, icon=":material/school:")
    _how()
    by_draw = state.param("by") == "draw"
    fresh = freshness(store, scope, ids)
    with st.spinner("Scoring the recorded turns …"):
        diff = _read(store, scope, ids, by_draw, fresh)
    names = {one: words[one] for one in ids}
    for one in ids:
        if prefers_nothing(store, one):
            st.caption(
                f"{label(names[one], 60)} prefers nothing: all parameters of its head are zero, so at every turn its "
                "choice is too close to call."
            )
    pressing = is_pressing(store, diff, scope)
    if pressing:
        show_reencoding(store, diff, scope, names)
    if not diff.turns:
        _nothing(store, scope, diff, names)
        return
    show_overview(diff, names)
    show_detail(diff, names)
    show_trust(store, scope, diff, names)
    if not pressing:
        show_reencoding(store, diff, scope, names)


@remembered(most=6)
def _read(
    store: Store, scope: EpisodeScope, ids: Sequence[str], by_draw: bool, fresh: tuple[int, int, int]
) -> PolicyDiff:
    """`fresh`: how many episodes, turns and second opinions there are; when there are more, all is read again."""
    return read_diff(store, scope, ids, by_draw=by_draw)


def _words(one: CheckpointSummary, names: Generations) -> str:
    svf = ", SVF" if one.config.get("svf_layout") else ""
    return f"{policy_name(one.id, names.get(one.id))}{svf}"


# Which checkpoints


def _choose(store: Store, checkpoints: Sequence[CheckpointSummary], words: Mapping[str, str]) -> list[str]:
    """The checkpoints of the address, the baseline first; else the oldest that prefers anything and the newest of
    those that other pages set side by side too."""
    named = list(dict.fromkeys(one for one in (state.param("c") or "").split(",") if one))
    known = [one for one in named if one in words][:MOST_CHECKPOINTS]
    if gone := [one for one in named if one not in words]:
        sentence = f"The store holds no checkpoint {', '.join(gone)}: it is left out."
        st.info(label(sentence, 300), icon=":material/info:")
    chosen = known or _default(store, checkpoints)
    st.session_state["policy_checkpoints"] = chosen
    left, right = st.columns([5, 2], vertical_alignment="bottom")
    left.multiselect(
        "Checkpoints",
        list(words),
        key="policy_checkpoints",
        max_selections=MOST_CHECKPOINTS,
        format_func=words.__getitem__,
        help="The first is the baseline, A. Each of the others is compared with it.",
        placeholder="Choose two or more",
        on_change=lambda: _set_checkpoints(state.entered("policy_checkpoints", words) or []),
    )
    with right:
        state.select(
            "Baseline, A",
            {one: words[one] for one in chosen},
            chosen[0] if chosen else None,
            lambda base: _set_checkpoints([str(base), *(one for one in chosen if one != base)]),
            key="policy_base",
        )
    return chosen


def _default(store: Store, checkpoints: Sequence[CheckpointSummary]) -> list[str]:
    ids = default_checkpoints(store)
    if not ids:  # nobody has played: the ends of the newest evolution, whose generations stand in order
        ids = [one.id for one in checkpoints if one.run_id == checkpoints[0].run_id]
    first = next((one for one in ids[:-1] if not prefers_nothing(store, one)), ids[0])
    return [first, ids[-1]] if len(ids) > 1 else [one.id for one in checkpoints[:2]]


def _set_checkpoints(ids: Sequence[str]) -> None:
    state.set_params(c=",".join(ids) or None, first=None, cell=None, **{"with": None})


# Which episodes


def _episodes(store: Store) -> EpisodeScope | None:
    """The episodes that the address asks for, with the filters of the Episodes page; None when it is invalid."""
    if episode := state.param("ep"):
        return _one_episode(store, episode)
    query = st.query_params.to_dict()
    view = _view(store, query)
    own = EpisodeFilter.from_query(query)
    try:
        where, mistake = for_totals(filter_of_address(query, view)), None
    except ExpressionError as error:
        where, mistake = for_totals(own.without("q")), error
    facets = facets_of(store, where)
    with st.sidebar:
        show_facets(store, own, facets, where, totals=True)
    line, views = st.columns([5, 2], vertical_alignment="center")
    with line:
        filter_line(
            own.q or "",
            {name: [one.value for one in getattr(facets, name)] for name in ("family", "policy", "run")},
            lambda text: change(q=text),
            key="policy_filter",
            placeholder="Which episodes? All, or a filter: correct == False and turns > 2 …",
            wrong=mistake is not None,
        )
    with views:
        _choose_view(store, view)
    show_chips(store, own, view)
    if mistake is not None:
        st.error(label(str(mistake), 400), icon=":material/error:")
        return None
    return EpisodeScope(where)


def _one_episode(store: Store, episode: str) -> EpisodeScope | None:
    try:
        one = store.episodes.summary(episode)
    except StoreError as error:
        st.warning(label(str(error), 200), icon=":material/link_off:")
        found = None
    else:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"One episode: {label(one.question, 100)}")
            replay_link("Replay", episode)
        found = EpisodeScope(episode=episode)
    tool("All episodes instead", "all_episodes", partial(state.set_params, ep=None), icon="close")
    return found


def _view(store: Store, query: Mapping[str, str]) -> SavedView | None:
    try:
        return named_view(store, query)
    except StoreError as error:
        words = f"{label(str(error), 200)} All episodes are counted instead."
        st.warning(words, icon=":material/bookmark_remove:")
        return None


def _choose_view(store: Store, view: SavedView | None) -> None:
    """A saved view as the list of episodes."""
    views = {one.id: one.name for one in store.views.list(50)} | ({view.id: view.name} if view else {})
    if not views:
        return
    state.select(
        "Saved view",
        views,
        view.id if view else None,
        lambda chosen: change(view=chosen),
        key="policy_view",
        label_visibility="collapsed",
        placeholder="Saved view",
    )


def _how() -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        state.address_select("How a choice is taken", BY, name="by", key="policy_by")
        st.caption(
            "Each checkpoint's choice by the very random numbers that drew the recorded one."
            if state.param("by") == "draw"
            else "What each checkpoint finds likeliest; what was recorded may have been drawn below it.",
            help=define("Argmax and sampling"),
        )


def _nothing(store: Store, scope: EpisodeScope, diff: PolicyDiff, names: Mapping[str, str]) -> None:
    if not diff.judged.turns:
        nothing_here("No recorded turn matches: remove a condition.")
        return
    nothing_here("At none of these turns can all of the checkpoints be judged.", ":material/block:")
    show_trust(store, scope, diff, names, opened=True)


if __name__ == "__main__":
    state.run(show)
