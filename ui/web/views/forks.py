"""Forks: what if exactly one thing had gone otherwise at one turn? A worker process plays, this page reads along."""

from __future__ import annotations

import time
from functools import partial
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from core.changes import Change
from core.episode import Episode
from core.errors import ConfigError, TrinityError
from core.play.forking import decider_of_turn, forked_turn
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.answers.forks import findings, plays
from ui.presentation.course import lane, turn_words
from ui.presentation.steps import change_words
from ui.presentation.theme import badge, label
from ui.presentation.words import ago, decider_words, strip_key
from ui.runs import wiring
from ui.runs.forks.planning import (
    BATCHES,
    PLACES,
    more_of,
    place_in_address,
    plan_every_turn,
    pool_of,
    why_no_fork,
)
from ui.runs.forks.results import Grown, read_luck, read_results, read_tallies
from ui.runs.plans import ForkPlan, plan_of
from ui.runs.queue import has_died
from ui.runs.settings.forks import MOST_CHILDREN
from ui.runs.spending import paid_models
from ui.web.analysis.draw import draw, draw_measured
from ui.web.components.transport import turn_strip
from ui.web.forks.form import (
    Pick,
    as_it_was,
    choose_batch,
    choose_change,
    choose_numbers,
    kept_words,
    planned,
    what_will_run,
)
from ui.web.forks.panels import TEXTS, headline, proof, reached, tree
from ui.web.kit import state
from ui.web.kit.cache import pool_specs
from ui.web.kit.widgets import button, episode_line, nothing_here, replay_link, run_mark, tool
from ui.web.pickers.checkpoints import generation_of
from ui.web.progress import (
    LUCK_WORDS,
    begin,
    begin_button,
    begin_luck,
    is_open,
    is_under_way,
    luck_button,
    luck_line,
    luck_plan,
    watch,
)
from ui.web.turns.recording import open_recording
from ui.web.turns.workflow import workflow_panel

_FLAG_TITLES = {
    "false_accept": "False accepts: a Verifier ended it on a wrong answer",
    "answer_broke": "Right answers that were lost",
}
#: In the address: every turn is changed to a right reply, not to its runner-up.
RIGHT_REPLIES = "replies"
#: How many more pairs one click asks for.
_MORE_PAIRS = 8
#: At most so many runs are listed, the newest.
_MOST_RUNS = 20


def show() -> None:
    """Render the run or the form that the address names, else the list."""
    store = state.store()
    if run := state.param("run"):
        _run_page(store, run)
    elif (ep := state.param("ep")) and state.param("every"):
        _every_turn_page(store, ep)
    elif ep and state.param("luck"):
        _luck_page(store, ep)
    elif ep:
        _form_page(store, ep)
    elif state.param("batch"):
        _batch_page(store)
    else:
        _list_page(store)


# The list, and how to begin


def _list_page(store: Store) -> None:
    st.title("Forks")
    st.caption(
        "Take a recorded episode, change exactly one thing at one turn, and play on from there. The unchanged turn "
        "is played equally often, as a control."
    )
    left, right = st.columns([3, 2], gap="large")
    with left:
        _runs(store)
    with right:
        _begin(store)


def _runs(store: Store) -> None:
    st.subheader("Runs of forks")
    runs = store.runs.list(kind="fork", limit=_MOST_RUNS)
    if not runs:
        nothing_here("None yet. Choose a turn on the right, or press F in a replay.")
        return
    now = time.time()
    plans = {run.id: plan_of(run, ForkPlan) for run in runs}
    tallies = read_tallies(store, plans)
    with st.container(border=True):
        for run in runs:
            mark = run_mark(run, stalled=has_died(run, now))
            words = f":blue[{label(_run_words(plans[run.id]), 110)}]"
            tool(words, f"open_{run.id}", partial(state.replace_params, {"run": run.id}))
            baseline, fork = tallies[run.id]
            tally = f"fork right {fork.right} of {fork.n} · baseline {baseline.right} of {baseline.n}"
            if plans[run.id].asks_luck:
                tally = f"replayed unchanged, right {baseline.right} of {baseline.n}"
            st.caption(f"{badge(mark)} · {tally} · {ago(run.created, now)}")


def _run_words(plan: ForkPlan) -> str:
    if plan.every_turn:
        return f"which turn mattered ({plan.other_words}) · {plan.question}"
    if plan.asks_luck:
        return f"was it luck · {plan.question}"
    where = (
        f"turn {plan.branches[0].turn + 1}" if len(plan.branches) == 1 else f"{len(plan.branches)} episodes"
    )
    return f"{where} {change_words(plan.change)} · {plan.question}"


def _begin(store: Store) -> None:
    st.subheader("Begin with a turn that went wrong")
    offered = {flag: forks.newest_episodes(store, EpisodeFilter(flag=flag), 3) for flag in BATCHES}
    st.caption(strip_key(one for found, _ in offered.values() for one in found))
    for flag, words in BATCHES.items():
        found, total = offered[flag]
        with st.container(border=True):
            st.markdown(f"**{_FLAG_TITLES[flag]}** · {total} episodes")
            if not found:
                st.caption(f"No episode is known for {words}.")
                continue
            for one in found:
                last = one.turns if flag == "false_accept" else None
                state.page_link("forks", f":blue[{label(one.question, 56)}]", ep=one.id, t=last)
                st.caption(episode_line(one, decider_words(one, generation_of(store))))
            all_of_them = partial(state.replace_params, {"batch": urlencode({"flag": flag})})
            tool(f"Fork them all: {words}", f"batch_{flag}", all_of_them, icon="call_split")
    state.page_link("episodes", "Or choose any episode", icon=":material/table_rows:")


# The form


def _form_page(store: Store, ep: str) -> None:
    recording = open_recording(store, ep)
    parent = store.episodes.get(ep)
    total = len(parent.turns)
    index = state.int_param("t", 1, max(1, total), max(1, total)) - 1
    forked_turn(parent, index)
    _back("Forks")
    st.title("What if this turn had gone otherwise?")
    st.markdown(f"#### {label(parent.task.question, 220)}")
    with st.container(horizontal=True, gap="medium"):
        replay_link("See it in Replay", ep, index + 1)
        known = (
            f"expected answer {label(parent.task.answer, 40)}" if parent.task.answer else "no known answer"
        )
        policy = label(decider_words(recording.summary, generation_of(store)), 90)
        st.markdown(f":gray[{policy} · {known}]", width="content")
    if _no_fork(store, parent, index):
        return
    luck_line(store, recording.summary)
    turn_strip(
        [lane(recording.outlines[:total], recording.models)],
        index,
        lambda turn: state.set_params(t=turn + 1, change=None, to=None),
        key="fork_strip",
        name="Which turn is changed",
        said=turn_words(recording.outlines[index], len(recording.outlines)),
    )
    left, right = st.columns([3, 2], gap="large")
    with left:
        workflow_panel(parent, index, parent.turns, names=generation_of(store))
    with left, st.container(border=True):
        kept_words(parent, index)
        as_it_was(parent, index)
    with left, st.container(border=True):
        st.markdown("**Change exactly one thing**")
        specs = pool_specs(pool_of(store, parent, wiring.settings().pool))
        change = choose_change(store, parent, index, specs)
    with right:
        _numbers_and_start(store, [(ep, index)], change)


def _no_fork(store: Store, parent: Episode, index: int) -> bool:
    """Say why nothing can be played on from a turn whose policy learns before it plays; whether that is so."""
    recorded = next((turn.reply.recorded for turn in parent.turns if turn.reply.recorded), None)
    why = why_no_fork(decider_of_turn(parent, index), parent.models, recorded=recorded is not None)
    if why:
        st.info(label(why, 400), icon=":material/block:")
    if why and recorded:
        to = {"table": recorded.table.partition("@")[0], "part": "questions", "task": parent.task.id}
        words = "What every recorded model answered"
        state.page_link("outcomes", words, icon=":material/table_chart:", **to)
    return bool(why)


def _luck_page(store: Store, episode: str) -> None:
    """What will be played and what it may cost, and the button."""
    parent = store.episodes.get(episode)
    _back("Forks")
    st.title(LUCK_WORDS)
    st.markdown(f"#### {label(parent.task.question, 220)}")
    replay_link("The recorded episode", episode, 1)
    with st.container(border=True):
        st.markdown("**What will run**")
        try:
            plan = luck_plan(store, episode)
        except TrinityError as error:
            st.markdown(f":orange[:material/block:] {label(str(error), 400)}")
            return
        plan, to_do = what_will_run(store, plan)
        if begin_button("Replay it", "luck_start", "casino", to_do):
            begin_luck(store, plan)


def _every_turn_page(store: Store, ep: str) -> None:
    parent = store.episodes.get(ep)
    _back("The recorded episode", ep=None)
    st.title("Which turn mattered?")
    st.markdown(f"#### {label(parent.task.question, 220)}")
    st.caption(
        "From every turn the episode is played on, once unchanged and once with one thing changed. Shows which turn "
        "decided the outcome, and whether the recorded outcome was luck."
    )
    if _no_fork(store, parent, 0):
        return
    with st.container(border=True):
        right_replies = _what_is_changed(parent)
        n = st.slider("Plays per turn, with and without the change", 1, MOST_CHILDREN, 5, key="every_turn_n")
        plan, why = None, ""
        try:
            pool = pool_of(store, parent, wiring.settings().pool)
            plan = plan_every_turn(
                store,
                ep,
                n=n,
                pool=pool,
                specs=pool_specs(pool),
                encoder=wiring.settings().encoder,
                right_replies=right_replies,
            )
        except TrinityError as error:
            why = str(error)
        _start_box(store, plan, why)


def _what_is_changed(parent: Episode) -> bool:
    """The choice of what is changed at every turn, as the address has it: whether it is a right reply. A workflow has
    no runner-ups."""
    words = {"1": "The runner-up of its decision", RIGHT_REPLIES: "A right reply"}
    offered = {RIGHT_REPLIES: words[RIGHT_REPLIES]} if parent.plans else words
    chosen = state.address_select(
        "What is changed at every turn",
        offered,
        name="every",
        key="every_turn_change",
        default=next(iter(offered)),
        label_visibility="visible",
        help="A right reply gives a Worker the known answer, and a Verifier the verdict that the answer deserves. "
        "Nobody knows what a right plan would be, so turns of a Thinker are left out.",
    )
    return chosen == RIGHT_REPLIES


def _batch_page(store: Store) -> None:
    _back("Forks")
    st.title("One change in many episodes")
    left, right = st.columns([3, 2], gap="large")
    with left, st.container(border=True):
        batch, picks = choose_batch(store)
        state.page_link(
            "episodes", "See them in the list", icon=":material/table_rows:", **dict(parse_qsl(batch))
        )
        if not picks:
            nothing_here("No episode matches this filter: there is nothing to fork.")
            return
    with left, st.container(border=True):
        st.markdown("**Change exactly one thing in each of them**")
        first, index = picks[0]
        change = choose_change(store, store.episodes.get(first), index, batch=True)
    with right:
        _numbers_and_start(store, picks, change, batch=batch)


def _numbers_and_start(store: Store, picks: list[Pick], change: Change, *, batch: str = "") -> None:
    with st.container(border=True):
        st.markdown("**What will run**")
        plan, why = planned(store, picks, change, choose_numbers(), batch=batch)
        _start_box(store, plan, why)


def _start_box(store: Store, plan: ForkPlan | None, why: str) -> None:
    if plan is not None:
        plan, why = what_will_run(store, plan)
    start = begin_button("Play the forks", "fork_start", "call_split", why, possible=plan is not None)
    if start and plan is not None:
        begin("forks", store, plan)


def _back(words: str, **params: str | None) -> None:
    kept = {name: value for name, value in params.items() if value}
    tool(words, "fork_back", partial(state.replace_params, kept), icon="arrow_back")


# A run


def _run_page(store: Store, run_id: str) -> None:
    run = store.runs.get(run_id)
    if run.kind != "fork":
        raise ConfigError(f"Run {run_id} is not one of forks: open its episodes from the list.")
    plan = plan_of(run, ForkPlan)
    results = read_results(store, run_id, plan)
    alone, named = len(results.grown) == 1 and not plan.every_turn, state.param("ep")
    one = results.grown[0] if alone else next((each for each in results.grown if each.holds(named)), None)
    inner = one is not None and not alone
    _back("All episodes of this run" if inner else "Forks", run=run_id if inner else None)
    st.title(_title(store, plan, one))
    top, progress, below = st.container(), st.container(), st.container()
    with top:
        which = PLACES.get(place_in_address(plan.batch), "its turn")
        batch = f"{len(plan.branches)} episodes, each forked at {which}"
        st.markdown(f"#### {label(plan.question if alone or plan.every_turn else batch, 220)}")
        headline(store, run, plan, results)
    if is_under_way(run):
        with progress:
            watch(store, run, TEXTS, lambda _store, _run: reached(plan, results))
    with below:
        found = [] if inner else findings(store, run_id, plan, results, generation_of(store))
        for place, answer in enumerate(found):
            draw(answer, "forks", first=not place)
        if not inner:
            proof(plan, results)
        if one is not None:
            tree(store, plan, one)
            st.caption(strip_key(each.summary for each in one.children))
            found.append(plays(one, pairs=not plan.asks_luck))
            draw(found[-1], "forks")
        draw_measured(found, "forks")
        _go_on(store, run, plan, one, inner=inner)


def _title(store: Store, plan: ForkPlan, one: Grown | None) -> str:
    if plan.asks_luck:
        return "Was it good luck?" if store.episodes.get(plan.branches[0].parent).correct else LUCK_WORDS
    if plan.every_turn and one is None:
        return "Which turn mattered?"
    where = f"turn {one.branch.turn + 1}" if one else f"these {len(plan.branches)} turns"
    change = plan.change_at(one.branch) if one else plan.change
    return f"What if {where} had been {label(change_words(change), 80)}?"


def _go_on(store: Store, run: RunSummary, plan: ForkPlan, one: Grown | None, *, inner: bool) -> None:
    """What can be asked next."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        over = run.status not in (RunStatus.QUEUED, RunStatus.RUNNING)
        if plan.asks_luck:
            parent = plan.branches[0].parent
            if not is_under_way(run) and not store.read_only and is_open(read_luck(store, run.id, plan)):
                luck_button(store, parent, again=True)
            replay_link("The recorded episode", parent, 1)
            return
        if over and not inner:
            _more(store, plan)
        if one is not None:
            ep, turn = one.branch.parent, one.branch.turn + 1
            again = "Another change at this turn"
            state.page_link("forks", again, icon=":material/call_split:", ep=ep, t=turn)
            replay_link("The recorded episode", ep, turn)
        elif plan.every_turn:
            if not store.episodes.get(plan.every_turn).plans:
                every, others = (
                    ("1", "runner-ups") if plan.right_replies else (RIGHT_REPLIES, "right replies")
                )
                words = f"The same with {others}"
                state.page_link("forks", words, icon=":material/target:", ep=plan.every_turn, every=every)
            replay_link("The recorded episode", plan.every_turn, 1)


def _more(store: Store, plan: ForkPlan) -> None:
    """Plays the change with the seeds that follow, in a run of its own that counts what was played; what costs money is
    asked for first."""
    room = MOST_CHILDREN - max(max(one.n, one.baseline) for one in plan.branches)
    per_turn = " at each turn" if plan.every_turn else ""
    words = f"Play {min(_MORE_PAIRS, room) or 'no'} more pairs{per_turn}"
    help = (
        "The same change with the seeds that follow; what was played already counts and is not played again."
    )
    if button(words, "fork_more", icon="add", disabled=room < 1, help=help):
        more = more_of(store, plan, _MORE_PAIRS)
        if paid_models(pool_specs(plan.pool)):
            _ask_first(store, more)
        else:
            begin("forks", store, more)


@st.dialog("More pairs")
def _ask_first(store: Store, plan: ForkPlan) -> None:
    _start_box(store, plan, "")


if __name__ == "__main__":
    state.run(show)
