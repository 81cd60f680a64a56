"""Policy diff: what two to eight checkpoints would choose at the same recorded turns; no model is asked.

The address holds the checkpoints (`c`, the baseline first), the one set beside the baseline in detail (`with`), the
episodes (`ep` for one, else the Episodes page's own filters and `view`), how choices are taken (`by`) and what
narrows the list of turns (`first`, `cell`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from core.errors import StoreError
from storage.analysis.policy_diff import MOST_CHECKPOINTS, PolicyDiff
from storage.analysis.second_opinions import EpisodeScope, rereading_progress
from storage.filters.episode_filter import EpisodeFilter, filter_of_address, for_totals
from storage.filters.expression import ExpressionError
from storage.rows.summaries import CheckpointSummary, RunStatus, RunSummary, SavedView
from storage.store import Store
from ui.answers.policy import asked_of_checkpoints, diff_of
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.presentation.words import Generations, ago, policy_name
from ui.runs import queue, reading
from ui.runs.plans import RereadPlan, plan_of
from ui.runs.queue import Ticket
from ui.web.analysis.page import show_answers
from ui.web.components.filter_line import filter_line
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.widgets import button, nothing_here, replay_link, tool
from ui.web.pickers.checkpoints import default_checkpoints, generation_of, prefers_nothing
from ui.web.pickers.facets import change, facets_of, show_chips, show_facets
from ui.web.pickers.lists import named_view
from ui.web.progress import Reached, RunTexts, is_under_way, standing, watch

TEXTS = RunTexts(
    process="reads",
    stored="All that was read is kept.",
    stop="Stop",
    stop_help="All that was read is kept, and it can be resumed.",
    stopping="Stopping after the transcripts that are being read …",
)


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Policy diff", help=define("Policy diff"))
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
    asked = asked_of_checkpoints(
        store,
        scope,
        {one: words[one] for one in ids},
        choices=st.query_params.to_dict(),
        remember=cached,
    )
    with st.spinner("Scoring the recorded turns …"):
        diff = diff_of(asked)
    names = {one: words[one] for one in ids}
    pressing = _is_pressing(store, diff, scope)
    if pressing:
        _show_reencoding(store, diff, scope, names)
    show_answers("policy", asked)
    if not pressing:
        _show_reencoding(store, diff, scope, names)


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


# Reading transcripts again


def _is_pressing(store: Store, diff: PolicyDiff, scope: EpisodeScope) -> bool:
    """Whether reading again comes before all else: nothing can be judged without it, or it is under way."""
    run = reading.latest_reading(store, [one.id for one in diff.checkpoints], scope)
    return not diff.turns or (run is not None and run.status in (RunStatus.QUEUED, RunStatus.RUNNING))


def _show_reencoding(store: Store, diff: PolicyDiff, scope: EpisodeScope, names: Mapping[str, str]) -> None:
    """The newest run about these checkpoints and episodes, and the button that begins one; nothing where every turn
    can be judged and nothing is under way."""
    run = reading.latest_reading(store, list(names), scope)
    under_way = run is not None and is_under_way(run)
    if not diff.readable() and not under_way:
        return
    with st.container(border=True):
        words = "More turns can be judged" if diff.turns else "The transcripts have to be read again first"
        st.markdown(f"**{words}**", help=define("Second opinion"))
        why = label(reading.reading_words(diff, names), 800)
        st.markdown(
            "A stored state cannot be used where a checkpoint changes its encoder (SVF), reads it otherwise, or where "
            "no state was kept. A background process then lets the checkpoint's encoder read the recorded transcript "
            f"again. No model of the pool is asked, nothing is paid. {why}"
        )
        if run is not None and under_way:
            watch(store, run, TEXTS, _reached)
            return
        if run is not None:
            _last(store, run)
        if run is None or run.status in (RunStatus.FINISHED, RunStatus.CANCELLED, RunStatus.FAILED):
            _begin_button(store, diff, scope)


def _begin_button(store: Store, diff: PolicyDiff, scope: EpisodeScope) -> None:
    plan = reading.plan_for(diff, scope, store.now())
    if plan is not None:
        button(
            f"Read {plan.turns:,} turns again",
            "reencode",
            lambda: queue.begin(store, plan, Ticket()),  # a second click finds the first one's run
            icon="menu_book",
            type="primary",
        )


def _last(store: Store, run: RunSummary) -> None:
    """How the run before ended, and how to go on with it."""
    plan = plan_of(run, RereadPlan)
    facts = [
        f"{rereading_progress(store, run.id).done:,} of {plan.turns:,} turns read",
        f"begun {ago(run.created, time.time())}",
    ]
    standing(store, run, TEXTS, [f":gray[{one}]" for one in facts], go_on="Resume")


def _reached(store: Store, run: RunSummary) -> Reached:
    """How many turns are read, on what device, and how long the others take at the pace so far."""
    plan, read = plan_of(run, RereadPlan), rereading_progress(store, run.id)
    if not read.done:
        return Reached(0, plan.turns, "The encoder is being loaded")
    words = f"{read.done:,} of {plan.turns:,} turns read on {label(', '.join(read.devices), 40)}"
    if run.started is None or read.done < 20 or read.done >= plan.turns:
        return Reached(read.done, plan.turns, words)
    pace_s = (time.time() - run.started) / read.done
    return Reached(read.done, plan.turns, words, pace_s * (plan.turns - read.done))


if __name__ == "__main__":
    state.run(show)
