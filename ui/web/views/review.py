"""Review: a list of episodes read and labelled one after the other, blind if wanted, and reviewers compared.

The queue is a filter or a saved view in the address, as the Episodes page has it, with `order`; `ep` is the episode at
hand, `t` the turn that a label is about (none: the episode), `blind` and `on` (go on after a label) the reviewer's
choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from core.analysis.metrics import Kappa
from core.episode import Status
from storage.filters.episode_filter import EpisodeFilter, filter_of_address, is_silent
from storage.rows.summaries import Order
from storage.shelves.labels import PairAgreement, Place, QueueProgress, current_of
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.rules import ended_words
from ui.presentation.theme import STATUS_MARKS, badge, correct_mark, label, percent
from ui.presentation.words import (
    decider_words,
    missing_reply_words,
    ordinal,
    place_words,
    strip_key,
    strip_text,
)
from ui.web.components.transport import Keys, help_button
from ui.web.kit import state
from ui.web.kit.text import choose_look, markdown_table, text_block
from ui.web.kit.widgets import button, nothing_here, outcome_badge, popover, tool
from ui.web.pickers.checkpoints import generation_of
from ui.web.pickers.facets import FIELD_WORDS
from ui.web.pickers.lists import named_view, order_of
from ui.web.progress import luck_line
from ui.web.turns import labels
from ui.web.turns.recording import Recording, open_recording
from ui.web.turns.turn_card import turn_heading

#: Turns shown at once; a button shows as many more.
WINDOW = 12

KEYS: Keys = (
    ("1 … 9", "the quick labels; the same key again withdraws"),
    ("J / K", "next / previous episode that you have not labelled"),
    ("N / P", "next / previous episode of the queue"),
    ("U", "undo your latest label"),
    ("Z", "blind: hide outcome and others' labels until you have labelled"),
    ("A", "move on to the next episode after each label"),
    ("H", "this help"),
)

#: Queues that are worth reading, by their words.
QUEUES: dict[str, dict[str, str]] = {
    "All episodes": {},
    "Right answers": {"correct": "right"},
    "Wrong answers": {"correct": "wrong"},
    "False accepts": {"flag": "false_accept"},
    "Right answers lost": {"flag": "answer_broke"},
    "Unreadable verdicts": {"flag": "verdict_unreadable"},
}
#: What a queue does about forks, and about what a person took a hand in, by the filter's own word.
_FORK_WORDS: dict[str | None, str] = {
    None: "live plays too, forks left out",
    "with": "live plays and forks too",
    "only": "only the forks",
    "without": "live plays and forks left out",
}
#: Filters that give away to a blind reviewer how an episode ended.
_TELLING = ("correct", "end_reason", "flag")


@dataclass(frozen=True, slots=True)
class Queue:
    """The list under review and who reviews it."""

    store: Store
    where: EpisodeFilter
    order: Order
    author: str

    def next(self, after: str | None, **which: bool) -> str | None:
        """The episode to go to; None at the end. `which`: `backwards` and `unlabelled`, as the store takes them."""
        return self.store.reviews.next(self.author, self.where, order=self.order, after=after, **which)

    def progress(self, episode_id: str | None) -> QueueProgress:
        return self.store.reviews.progress(self.author, self.where, order=self.order, episode_id=episode_id)


def show() -> None:
    store = state.store()
    query = st.query_params.to_dict()
    view = named_view(store, query)
    order = order_of({**(view.query if view else {}), **query})
    queue = Queue(store, filter_of_address(query, view), order, labels.author())
    st.title("Review")
    named = state.param("ep")
    episode_id = named or queue.next(None)
    progress = queue.progress(episode_id)
    is_empty = progress.total.n == 0 and named is None
    if not is_empty:
        _queue_words(queue, progress)
    _choices(queue)
    if is_empty:
        _empty(store)
        return
    if episode_id is None:
        _finished(queue)
    else:
        state.set_params(ep=episode_id)  # the address always says what is read
        _episode(queue, open_recording(store, episode_id), progress)
    st.subheader("Do reviewers agree?", help=define("Cohen's kappa"))
    if state.param("blind") == "1" and progress.labelled < progress.total.n:
        st.caption("Shown when you have labelled the whole queue, or when Blind is off.")
    else:
        agreement_panel(store, queue.where, [use.name for use in store.labels.in_use()])


def _open(episode_id: str | None) -> None:
    state.set_params(ep=episode_id, t=None, turns=None)


def _choices(queue: Queue) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_review"):
        popover("Queue", "queues", partial(_queues, queue.store), icon="playlist_play", type="secondary")
        for words, key, shortcut, icon, name, help in (
            ("Blind", "blind", "Z", "visibility_off", "blind", define("Blind review")),
            ("Advance after a label", "go_on", "A", "fast_forward", "on", None),
        ):
            is_on = state.param(name) == "1"
            change = partial(state.set_params, **{name: None if is_on else "1"})
            look = "primary" if is_on else "secondary"
            tool(words, key, change, icon=icon, type=look, shortcut=shortcut, help=help)
        help_button(KEYS)


def _queues(store: Store) -> None:
    st.caption("What do you want to read?", help=define("Queue"))
    manner = {name: state.param(name) for name in ("blind", "on")}
    for words, query in QUEUES.items():
        state.page_link("review", words, query, **manner)
    for saved in store.views.list(limit=8):
        state.page_link("review", label(saved.name, 60), icon=":material/bookmark:", **manner, view=saved.id)
    if query := state.list_query():
        state.page_link("review", "The list you last saw on Episodes", query, **manner)
    st.caption("For any other queue, filter the Episodes page first.")
    state.page_link("episodes", "Episodes", icon=":material/table_rows:")


def queue_words(where: EpisodeFilter) -> str:
    """Which episodes a queue holds, plain text: `episodes with answer wrong, family math; live plays too, forks left
    out`."""
    given = where.without("forks").to_query()
    conditions = [f"{FIELD_WORDS.get(name, name)} {value}" for name, value in given.items()]
    which = f"episodes with {', '.join(conditions)}" if conditions else "all episodes"
    forks = where.forks or (None if is_silent(where, "forks") else "with")
    return f"{which}; {_FORK_WORDS[forks]}"


def _queue_words(queue: Queue, progress: QueueProgress) -> None:
    st.progress(
        progress.share,
        text=f"You ({label(queue.author, 40)}) have labelled **{progress.labelled:,} of {progress.total}** · "
        f":gray[The queue: {label(queue_words(queue.where), 200)}]",
    )
    conditions = [name for name in _TELLING if getattr(queue.where, name, None) is not None]
    if conditions and state.param("blind") == "1":
        st.caption(
            ":orange[:material/warning:] This queue is filtered by how episodes ended, so it is not blind."
        )


def _empty(store: Store) -> None:
    if store.health().episodes:
        nothing_here("This queue holds no episode: choose another.")
        state.page_link("episodes", "Choose episodes", icon=":material/table_rows:")
    else:
        nothing_here("Nothing is recorded yet, so there is nothing to review.")
        state.page_link("home", "Load the sample runs", icon=":material/home:")


def _finished(queue: Queue) -> None:
    st.success("You have labelled every episode of this queue.", icon=":material/done_all:")
    with st.container(horizontal=True, gap="small"):
        first = partial(_open, queue.next(None, unlabelled=False))
        button("Read them again from the start", "again", first, icon="replay")
        _undo_button(queue)


def _episode(queue: Queue, recording: Recording, progress: QueueProgress) -> None:
    history = queue.store.labels.history(recording.summary.id)
    mine = any(one.author == queue.author for one in current_of(history))
    hidden = state.param("blind") == "1" and not mine
    _way(queue, recording, progress, mine)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _reading(recording, hidden)
    with right, st.container(border=True, key="review_labels"):
        _labels(queue, recording, hidden)


def _way(queue: Queue, recording: Recording, progress: QueueProgress, mine: bool) -> None:
    here = recording.summary.id
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_way"):
        for words, key, shortcut, icon, backwards, unlabelled in (
            ("Previous unlabelled", "review_back", "K", "chevron_left", True, True),
            ("Next unlabelled", "review_next", "J", "chevron_right", False, True),
            ("Previous", "queue_back", "P", "", True, False),
            ("Next", "queue_next", "N", "", False, False),
        ):
            to = queue.next(here, backwards=backwards, unlabelled=unlabelled)
            if to is None and key == "review_next" and (first := queue.next(None)) != here:
                to = first  # those passed over come last
            look = "primary" if key == "review_next" and mine and to else "tertiary"
            tool(words, key, partial(_open, to), icon=icon, type=look, shortcut=shortcut, disabled=to is None)
        _undo_button(queue)
    at = "Not in this queue" if progress.at is None else f"{ordinal(progress.at)} in the queue"
    st.caption(f"{at} · {label(here)}{' · labelled by you' if mine else ''}")
    if mine and queue.next(None) is None:
        st.caption(":green[:material/done_all:] You have labelled every episode of this queue.")


def _undo_button(queue: Queue) -> None:
    def undo() -> None:
        _open(labels.undo(queue.store) or state.param("ep"))

    disabled = not labels.can_undo()
    tool("Undo", "review_undo", undo, icon="undo", shortcut="U", disabled=disabled)


def _reading(recording: Recording, hidden: bool) -> None:
    summary, episode = recording.summary, recording.episode
    st.markdown("**Question**")
    text_block(episode.task.question, key=f"review_{summary.id}_question")
    if not hidden:
        st.markdown(_ending(recording))
        luck_line(recording.store, summary)
        policy = label(decider_words(summary, generation_of(recording.store)), 90)
        st.caption(
            f"{label(strip_text(summary.strip)) or '–'} · {policy} · {label(summary.family)}",
            help=strip_key([summary]),
        )
        turn = state.param("t")
        state.page_link("replay", "Open in Replay", icon=":material/smart_display:", ep=summary.id, t=turn)
    elif summary.answer:
        st.markdown(f"Answer given: **{label(summary.answer, 80)}**")
    total = len(recording.outlines)
    if not total:
        st.caption("No turn of this episode was played.")
    shown = min(total, state.int_param("turns", WINDOW, 10_000, WINDOW))
    reply_look = choose_look("review_look") if total else ""
    for index in range(shown):
        _turn(recording, index, hidden, reply_look)
    if shown < total:
        words = f"Show {min(WINDOW, total - shown)} more of {total:,} turns"
        button(words, "more_turns", partial(state.set_params, turns=shown + WINDOW))


def _ending(recording: Recording) -> str:
    summary = recording.summary
    if summary.status is not Status.FINISHED:
        return badge(STATUS_MARKS[summary.status])
    given = f"answer **{label(summary.answer, 80)}**" if summary.answer else "no answer"
    parts = [
        outcome_badge(summary),
        given,
        f"expected **{label(recording.episode.task.answer or 'unknown', 80)}**",
    ]
    if summary.end_reason:
        parts.append(ended_words(summary))
    return " · ".join(parts)


def _turn(recording: Recording, index: int, hidden: bool, reply_look: str) -> None:
    outline = recording.outlines[index]
    chosen = state.param("t") == str(index + 1)
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(turn_heading(outline, len(recording.outlines), running=recording.running))
            if not hidden and outline.stage == "finished" and outline.answer_after is not None:
                mark = correct_mark(outline.correct_after)
                st.markdown(f":{mark.tone}-badge[{mark.icon} {label(outline.answer_after, 40)} {mark.word}]")
            st.space("stretch")
            words, look = ("Labelling this turn", "primary") if chosen else ("Label this turn", "tertiary")
            change = partial(state.set_params, t=None if chosen else index + 1)
            # Of a given width, so that the row breaks on a phone before the words are there, and not when they come.
            tool(words, f"about_turn_{index}", change, icon="label", type=look, width=180)
        text = recording.text(index)
        key = f"review_{recording.summary.id}_{index}_{reply_look}"
        text_block(text.said, key=key, empty=missing_reply_words(text), look=reply_look)


def _labels(queue: Queue, recording: Recording, hidden: bool) -> None:
    store, here = queue.store, recording.summary.id
    total = len(recording.outlines)
    at = state.int_param("t", 0, total, 0)
    place = Place(here, at - 1 if at else None)
    about = f"turn {at}" if at else "the whole episode"
    st.markdown(f"You label **{about}**")
    st.caption(
        "The buttons at the foot of the page attach a label of one word. With labels you find and count episodes and "
        "compare reviewers; the recording is not changed.",
        help=define("Label"),
    )
    if at:
        tool("The whole episode instead", "about_episode", partial(state.set_params, t=None))
    history = store.labels.history(here)
    with st.bottom:  # in reach however long the episode is
        labels.quick_buttons(
            store, place, current_of(history), keys=True, then=lambda: _go_on(queue, here), about=about
        )
    labels.author_field()
    with st.expander("Other words, or a note", icon=":material/edit_note:", key="label_form"):
        labels.label_form(store, place)
    if hidden:
        st.caption(
            ":material/visibility_off: Outcome, expected answer and others' labels show once you have labelled."
        )
        return
    labels.current_labels(store, current_of(history))
    labels.label_history(history)


def _go_on(queue: Queue, here: str) -> None:
    if state.param("on") == "1":
        _open(queue.next(here) or queue.next(None))


#: How many pairs and differing items are shown.
MOST_PAIRS, MOST_ITEMS = 6, 12


def agreement_panel(store: Store, where: EpisodeFilter, names: Sequence[str]) -> None:
    """One name's agreement over the episodes of a list; the name stands in the address as `name`."""
    if not names:
        st.caption("Nothing is labelled yet, so there is nothing to compare.")
        return
    offered = {one: one for one in names[:8]}
    name = state.address_select("Which label", offered, name="name", key="agreement_name")
    found = store.reviews.agreement(name, where)
    if not found.pairs:
        st.caption(
            f"No two reviewers have labelled the same thing with “{label(name)}” yet. A second reviewer types "
            "their own name under “You label as”, best with Blind on."
        )
        return
    if found.ticked:
        st.caption(
            "This label has only one value: a reviewer who labelled an episode without it counts as “not given”."
        )
    if len(found.pairs) > 1 and found.alpha is not None:
        st.markdown(
            f"All reviewers together: Krippendorff's alpha **{found.alpha:.2f}** over {found.items:,} items",
            help=define("Krippendorff's alpha"),
        )
    for i, pair in enumerate(found.pairs[:MOST_PAIRS]):
        with st.container(border=True):
            _pair(pair, i)
    if len(found.pairs) > MOST_PAIRS:
        st.caption(f"And {len(found.pairs) - MOST_PAIRS} more pairs, with fewer items in common.")


def kappa_words(kappa: Kappa) -> str:
    """`0.46, 95 % interval -0.17 to 1.00, over 7 items`, or why it is undefined."""
    if kappa.kappa is None or kappa.low is None or kappa.high is None:
        return "undefined: both gave one and the same value throughout"
    return f"**{kappa.kappa:.2f}**, 95 % interval {kappa.low:.2f} to {kappa.high:.2f}"


def _pair(pair: PairAgreement, i: int) -> None:
    a, b = label(pair.a, 40), label(pair.b, 40)
    items = f"{pair.kappa.n:,} item{'' if pair.kappa.n == 1 else 's'}"
    st.markdown(f"**{a}** and **{b}**: the same value for {percent(pair.kappa.observed)} of {items}")
    st.markdown(f"Cohen's kappa {kappa_words(pair.kappa)}", help=define("Cohen's kappa"))
    used = [j for j in range(len(pair.values)) if any(pair.counts[j]) or any(row[j] for row in pair.counts)]
    values = [label(value, 40) for value in pair.values]
    rows = [(f"**{values[j]}**", *(str(pair.counts[j][k]) for k in used)) for j in used]
    markdown_table((f"{a} ↓ {b} →", *(values[k] for k in used)), rows, "l" + "r" * len(used))
    if not pair.differing:
        return
    with st.expander(f"Where they differ ({len(pair.differing):,})", key=f"differ_{i}"):
        for one in pair.differing[:MOST_ITEMS]:
            place = one.place
            words = f"{label(place.episode_id)} {place_words(place)}: {label(one.a, 40)} / {label(one.b, 40)}"
            turn = None if place.index is None else place.index + 1
            state.page_link("replay", words, ep=place.episode_id, t=turn, labels="open")
        if len(pair.differing) > MOST_ITEMS:
            st.caption(f"And {len(pair.differing) - MOST_ITEMS:,} more.")


if __name__ == "__main__":
    state.run(show)
