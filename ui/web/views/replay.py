"""Replay: one episode, turn by turn: decisions, replies and answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.episode import Episode, Flag, Protocol, Status
from core.play.policies import VOTES, rule_of
from storage.reads.episode_steps import Variation, find_in_texts
from storage.shelves.labels import Label
from storage.store import Store
from ui.presentation.course import (
    BLUNDER_WORDS,
    LOW_WORDS,
    NEW_DECIDER,
    CellMark,
    Lane,
    StripCell,
    cells,
    counted_turns,
    turn_words,
    wrong_since,
)
from ui.presentation.glossary import define
from ui.presentation.rules import drawn_words, ended_words
from ui.presentation.theme import STATUS_MARKS, badge, code, correct_mark, label
from ui.presentation.words import deciders, if_paid, rules_words, several, turns_words, used_words
from ui.runs.forks.planning import why_no_fork
from ui.runs.lease import mark_dead
from ui.runs.queue import is_stalled
from ui.web.components.transport import (
    WINDOW,
    autoplay,
    bar,
    by_hand,
    help_button,
    keys_of,
    playing,
    speed_choice,
    step_keys,
    stop,
    transport,
    turn_field,
    turn_strip,
    window,
)
from ui.web.forks.panels import newest_of
from ui.web.kit import state
from ui.web.kit.widgets import popover, tool
from ui.web.pickers.checkpoints import generation_in, generation_of
from ui.web.pickers.lists import basket, neighbours
from ui.web.pickers.palette import PALETTE
from ui.web.progress import luck_line, unfinished_words
from ui.web.turns.bar import (
    MOST_FOUND,
    Near,
    Tool,
    episode_tools,
    find_field,
    found_list,
    listen,
    offer,
    position_words,
    same_task,
    save_button,
    shown_turns,
    turn_filter,
    turn_tools,
    ways_to_share,
)
from ui.web.turns.decision import prompt_panel
from ui.web.turns.figures import uncertainty_panel, usage_panel
from ui.web.turns.labels import label_button, label_panel, labels_given
from ui.web.turns.panels import PANELS, turn_panel
from ui.web.turns.recording import Recording, open_recording, story_of
from ui.web.turns.turn_card import before_card, question_heading, turn_card
from ui.web.turns.variations import branch_turns, family_of, variation_tree
from ui.web.turns.workflow import workflow_panel

#: A running episode is read again this often, in seconds.
REFRESH_S = 2.0

KEYS = keys_of(
    "turn",
    ("B", f"next blunder: {BLUNDER_WORDS}"),
    ("V", "next Verifier turn"),
    ("M", f"next turn with {LOW_WORDS}"),
    ("S", "next turn of the same model"),
    ("O", "next turn in the same role"),
    ("L", "label the turn or the episode"),
    ("N / P", "next / previous episode of the list you came from"),
    (f"1 to {len(PANELS)}", ", ".join(words for words, _ in PANELS.values())),
    ("Z", "hide the analysis, to judge before you look"),
    ("X", "put this episode in the compare basket, or take it out"),
    ("F", "fork here: play on from this turn with one thing changed"),
    ("Esc", "back to the list, its filters kept"),
)

#: What opens over the page: while one is open, Esc shuts it and does not leave.
_OVER = ("help", "menu_help", "jump", "compare_with", "share", "basket", "more", "recomputed", PALETTE)
#: The story of an episode reads its replies: of so many turns at most.
_STORY_TURNS = 60
_FOUND = CellMark("»", "found", "info")
_FORK = CellMark("↳", "fork", "info")


def show() -> None:
    """The page: header, turn strip, turn card, decision, doubt over turns, transport."""
    episode_id = state.param("ep")
    if episode_id is None:
        _choose()
        return
    recording = _open(state.store(), episode_id)
    _header(recording)
    near = neighbours(
        recording.store,
        recording.summary.id,
        recording.summary.run_id,
        recording.summary.policy,
        state.list_query(),
    )
    if recording.outlines:
        _stage(recording, near)
        _play_on(recording)
    else:
        _bar_without_turns(recording, near)
        workflow_panel(recording.episode, None, names=generation_of(recording.store))
        nothing = "No turn of this episode was played."
        st.write("Nothing has been decided yet." if recording.running else nothing)
    _follow(recording)


def _open(store: Store, episode_id: str) -> Recording:
    """The recording, without what was found out about its turns while the analysis is hidden."""
    recording = open_recording(store, episode_id)
    return recording.unjudged() if _zen() else recording


def go(index: int) -> None:
    """Move the cursor to a turn (0-based); the address bar, its one owner, counts from 1."""
    state.set_params(t=index + 1)


def _zen() -> bool:
    """Whether the analysis is hidden, so that a reader judges before looking."""
    return state.param("zen") == "1"


def _leave_for(episode_id: str | None) -> None:
    stop()
    state.set_params(ep=episode_id, t=1)


def _choose() -> None:
    st.header("Replay")
    st.write("Open an episode from the list to step through its turns.")
    state.page_link("episodes", "Choose an episode", icon=":material/table_rows:")


def _header(recording: Recording) -> None:
    summary, episode = recording.summary, recording.episode
    question_heading(episode)
    st.markdown(_outcome(recording), help=f"Policy {code(recording.summary.policy, 80)}")
    told = not _zen() and summary.status is Status.FINISHED and summary.turns <= _STORY_TURNS
    if told and (words := story_of(recording.store, summary.id)):  # none where nobody could judge it
        st.markdown(label(words, 1_000), help=define("Story"))
    if episode.status is not Status.FINISHED:
        unfinished_words(recording.store, episode)
    elif not _zen():
        luck_line(recording.store, summary)
    if (row := next((one.recorded for one in recording.outlines if one.recorded), None)) and not _zen():
        table, words = row.table.partition("@")[0], "What every recorded model answered"
        to = {"table": table, "part": "questions", "task": episode.task.id}
        state.page_link("outcomes", words, icon=":material/table_chart:", **to)


def _back_button() -> None:
    shortcut = None if any(st.session_state.get(key) for key in _OVER) else "Esc"
    help = "Back to the list, its filters kept"
    if tool("Episodes", "back_to_list", icon="arrow_back", shortcut=shortcut, help=help):
        state.back_to_list()


def _no_fork(recording: Recording, index: int) -> bool:
    """Whether no fork can be played from a turn, as its policy learns before it plays."""
    recorded = Flag.RECORDED.value in recording.summary.flags
    return bool(why_no_fork(recording.decided_by(index), recording.models, recorded=recorded))


def _turning_button(recording: Recording) -> None:
    episode = recording.episode
    judged = episode.status is Status.FINISHED and episode.task.answer and not _zen()
    if judged and not _no_fork(recording, 0):
        help = "Plays on from every turn, unchanged and with its runner-up or a right reply"
        if tool("Which turn mattered?", "every_turn", icon="target", help=help):
            found = newest_of(recording.store, recording.summary.id)
            if found is None:
                state.go("forks", ep=recording.summary.id, every=1)
            state.go("forks", run=found[0])


def _outcome(recording: Recording) -> str:
    summary, episode = recording.summary, recording.episode
    mark = correct_mark(summary.correct)
    parts = []
    if _zen():
        parts.append(":material/visibility_off: the outcome is hidden")
    elif summary.status is Status.FINISHED:
        given = f"answer **{label(summary.answer, 60)}** " if summary.answer else ""
        parts.append(f":{mark.tone}[{mark.icon}] {given}:{mark.tone}[{mark.word}]")
        if summary.correct is not True and episode.task.answer:
            parts.append(f"expected **{label(episode.task.answer, 60)}**")
        if summary.end_reason:
            parts.append(ended_words(summary))
        if (
            rule_of(summary.policy) not in VOTES
            and (wrong_from := wrong_since(recording.outlines)) is not None
        ):
            parts.append(f"wrong since **turn {wrong_from + 1}**")
    else:
        parts.append(badge(STATUS_MARKS[summary.status]))
    by = deciders(
        summary.policy,
        generation_in(recording.store, summary),
        episode.deciders,
        lambda: generation_of(recording.store),
    )
    rules = "" if episode.protocol is Protocol.PAPER else f", {rules_words(episode.protocol)}"
    n, tokens = len(recording.outlines), summary.tokens_in + summary.tokens_out
    used = used_words(
        tokens,
        summary.latency_s,
        summary.cost_usd,
        recorded=not {"recorded", "nothing_to_judge"}.isdisjoint(summary.flags),
    )
    taken_over = [one.index for one in recording.outlines if one.origin == "override"]
    parts += [
        f":gray[{label(summary.family)}]",
        f":gray[{label(by, 200)}]",
        *([f":blue[:material/front_hand: {turns_words(taken_over)} chosen by hand]"] if taken_over else []),
        f":gray[{drawn_words(episode, recording.outlines)}{rules}]",
        f":gray[{several(n, 'turn') if rule_of(summary.policy) else counted_turns(n, episode.turn_budget)}]",
        *(f":gray[{label(one)}]" for one in used),
        *(f":gray[the judge {label(one)}]" for one in _judge_cost(episode)),
    ]
    return " · ".join(parts)


def _judge_cost(episode: Episode) -> list[str]:
    """What rating its answers cost; nothing where no model did, or free of charge."""
    costs = [one.reply.usage.cost_usd for one in episode.judgements]
    return if_paid(None if None in costs else sum(cost or 0.0 for cost in costs)) if costs else []


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the turn at hand is drawn, so that a step draws these anew and nothing around them. `beside` is None while
    the analysis is hidden."""

    course: DeltaGenerator
    cards: DeltaGenerator
    beside: DeltaGenerator | None
    before: DeltaGenerator


def _stage(recording: Recording, near: Near) -> None:
    """The turn at hand in a fragment of its own; around it what is the same at every turn."""
    course = st.container(key="course")
    course.empty()  # what is empty is not drawn, and this keeps the strip's place
    if _zen():
        _stepped(recording, near, _Places(course, st.container(), None, st.container()))
        return
    left, right = st.container(key="stage").columns([3, 2], gap="medium")
    cards, below = left.container(key="stage_reply"), left.container(key="stage_after")
    before = below.container()
    _stepped(recording, near, _Places(course, cards, right.container(border=True), before))
    with below:
        uncertainty_panel(recording, by_hand(go))
        usage_panel(recording, by_hand(go))
    variation_tree(_family(recording), recording.summary.id)


def _family(recording: Recording) -> list[Variation]:
    return family_of(recording.store, recording.summary.id) if recording.forked and not _zen() else []


def _stepped(recording: Recording, near: Near, places: _Places) -> None:
    """Draw the turn at hand, now and at every step; the steps read the episode's head again for what may be new."""
    episode_id, given = recording.summary.id, [recording]
    around = (episode_id, playing(episode_id), _zen())

    def step() -> None:
        if (state.param("ep"), playing(episode_id), _zen()) != around:
            st.rerun()  # what waits out a turn while playing, and what the analysis hides, stands outside
        _at_turn(given.pop() if given else _open(recording.store, episode_id), near, places)

    st.fragment(state.guarded(step), key="replay")()


def _play_on(recording: Recording) -> None:
    outlines = recording.outlines
    cursor = state.int_param("t", 1, len(outlines), 1) - 1
    shown = shown_turns(outlines, cursor)
    autoplay(
        recording.summary.id,
        shown.index(cursor),
        len(shown),
        outlines[cursor].tokens_out * 4,
        lambda place: go(shown[place]),
    )


def _at_turn(recording: Recording, near: Near, places: _Places) -> None:
    outlines, episode_id = recording.outlines, recording.summary.id
    cursor = state.int_param("t", 1, len(outlines), 1) - 1
    shown = shown_turns(outlines, cursor)

    def to(place: int) -> None:
        go(shown[place])

    history = labels_given(recording.store, episode_id, any_labels=recording.labelled, own_only=_zen())
    with places.course:
        _course(recording, shown, cursor, to)
        label_panel(recording.store, episode_id, cursor, history)
        if recording.episode.plans:
            names = generation_of(recording.store)
            workflow_panel(recording.episode, cursor, recording.turns, names=names, forks=not _zen())
    with places.cards:
        _card(recording, cursor)
    # A step of a workflow need not have read the one before.
    told = bool(cursor and not recording.episode.plans)
    with places.before, st.container(border=told):
        st.empty()  # a step may write only where something stood before it
        if told:
            before_card(recording.outlines, cursor, recording.reply_text)
    if places.beside is not None:
        with places.beside:
            turn_panel(recording, cursor)
    transport(
        episode_id,
        shown.index(cursor),
        len(shown),
        to,
        where=position_words(shown, cursor, len(outlines)),
        before=_back_button,
        after=partial(_ways_on, recording, shown, cursor, to, near, history),
    )


def _course(recording: Recording, shown: Sequence[int], cursor: int, to: Callable[[int], None]) -> None:
    words = (state.param("find") or "").strip()[:200]
    found = find_in_texts(recording.store, recording.summary.id, words, MOST_FOUND) if words else []
    turn_strip(
        [_marked(recording, shown, cursor, {one.index for one in found})],
        shown.index(cursor),
        by_hand(to),
        key="strip",
        name="Turns of this episode",
        said=turn_words(recording.outlines[cursor], len(recording.outlines)),
        plain=bool(st.session_state.get("plain_strip", False)),
    )
    found_list(found, words, cursor)


def _marked(recording: Recording, shown: Sequence[int], cursor: int, found: set[int]) -> Lane:
    """The strip's lane of the turns shown, with where forks leave it and where what is looked for was said. Only those
    around the cursor are made, because only they are drawn."""
    near = window(len(shown), shown.index(cursor))
    turns = shown[near.start : near.stop]
    forks = branch_turns(_family(recording), recording.summary.id)
    swapped = recording.episode.deciders
    drawn: list[StripCell | None] = [None] * len(shown)
    made = cells(recording.outlines, recording.models, running=recording.running, only=turns)
    for place, index, cell in zip(near, turns, made, strict=True):
        marks = () if _zen() else cell.marks
        marks += ((_FORK,) if index in forks else ()) + ((_FOUND,) if index in found else ())
        marks += (NEW_DECIDER,) if index in swapped else ()
        drawn[place] = replace(cell, marks=marks)
    return Lane(tuple(drawn))


def _card(recording: Recording, cursor: int) -> None:
    outlines = recording.outlines
    decision = None if _zen() else recording.decision(cursor)
    with st.container(border=True):
        turn_card(
            outlines,
            cursor,
            recording.text if state.param("show") == "saw" else recording.reply_text,
            decision,
            key="card",
            tab="show",
            running=recording.running,
            also=None if _zen() else lambda index: prompt_panel(recording, index),
        )


def _ways_on(
    recording: Recording,
    shown: Sequence[int],
    cursor: int,
    to: Callable[[int], None],
    near: Near,
    history: Sequence[Label],
) -> None:
    """The bar after its steps: which turns are shown, the ways on from this turn, the menus, and every key."""
    outlines = recording.outlines
    jumps, others = turn_tools(outlines, cursor, by_hand(go), judged=not _zen()), _tools(recording, near)
    with st.container(key="only_keys"):
        step_keys(shown.index(cursor), len(shown), to)
        listen((*jumps, *others))
        help_button(KEYS)
    if len(outlines) > WINDOW:
        turn_field(cursor, len(outlines), go)
    turn_filter(outlines, judged=not _zen())
    popover("Jump", "jump", partial(_jump_menu, jumps), icon="search")
    label_button(history)
    if not _no_fork(recording, cursor) and tool("Fork here", "fork_here", icon="fork_right", shortcut="F"):
        state.go("forks", ep=recording.summary.id, t=cursor + 1)
    _compare(recording)
    popover("Share", "share", partial(ways_to_share, recording, cursor), icon="share")
    popover("More", "more", partial(_more_menu, recording, others, steps=True), icon="more_horiz")


def _bar_without_turns(recording: Recording, near: Near) -> None:
    others = _tools(recording, near)
    with bar():
        _back_button()
        with st.container(key="only_keys"):
            listen(others)
        _compare(recording)
        popover("More", "more", partial(_more_menu, recording, others, steps=False), icon="more_horiz")


def _compare(recording: Recording) -> None:
    popover("Compare", "compare_with", partial(same_task, recording.store, recording.summary), icon="compare")
    basket(recording.store)


def _jump_menu(jumps: Sequence[Tool]) -> None:
    find_field()
    offer(jumps)


def _more_menu(recording: Recording, others: Sequence[Tool], *, steps: bool) -> None:
    offer(others)
    save_button(recording.store, recording.summary.id)
    if steps:
        _turning_button(recording)
        help_button(KEYS, "menu_help", None)
        st.caption("How fast it plays")
        speed_choice()


def _tools(recording: Recording, near: Near) -> list[Tool]:
    found = episode_tools(recording.summary.id, near, _leave_for)
    if recording.outlines:
        words, icon, zen = ("Show", "visibility", None) if _zen() else ("Hide", "visibility_off", 1)
        change = partial(state.set_params, zen=zen)
        found.append(Tool(f"{words} the analysis", "zen", "Z", change, icon))
    return found


def _follow(recording: Recording) -> None:
    """While the episode is played: look again every few seconds, run the page when there is more."""
    if not recording.running:
        return
    shown = _pulse(recording)

    def look() -> None:
        mark_dead(recording.store)
        if _pulse(open_recording(recording.store, recording.summary.id)) != shown:
            st.rerun()

    st.fragment(state.guarded(look), run_every=REFRESH_S, key="replay_follow")()


def _pulse(recording: Recording) -> tuple[object, ...]:
    """What changes when a running episode moves or stalls: its status, its turns' stages, the text being written."""
    last = recording.outlines[-1] if recording.outlines else None
    writing = len(recording.reply_text(last.index).reply) if last and last.stage == "asked" else 0
    run = recording.store.runs.get(recording.episode.run_id) if recording.running else None
    stalled = run is not None and is_stalled(run, time.time())
    return recording.episode.status, tuple(outline.stage for outline in recording.outlines), writing, stalled


if __name__ == "__main__":
    state.run(show)
