"""Labels beside a replay: those of an episode or a turn, quick buttons, a form, notes and the history.

`label_panel` draws all of it; the Review page places the same pieces itself. Nothing is overwritten: a new label
replaces the author's own one of the same name and place, and both stay in the history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from core.errors import ConfigError
from storage.shelves.labels import (
    LONGEST_AUTHOR,
    LONGEST_NOTE,
    LONGEST_WORD,
    NOTE,
    Label,
    Place,
    current_of,
    find_span,
)
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, one_line, plain
from ui.presentation.words import ago, label_words, place_words
from ui.runs import wiring
from ui.web.kit import state
from ui.web.kit.widgets import tool

_AUTHOR, _ADDED = "reviewer", "labels_added"
_MOST_BADGES = 6
_FIELDS = ("label_name", "label_value", "label_note", "label_quote")


def author() -> str:
    """The reviewer of this tab: the name that was typed, else the login name."""
    return str(st.session_state.get(_AUTHOR) or wiring.login())


def author_field(key: str = "label_author") -> None:
    """The field that changes the reviewer's name, for all pages of this tab."""
    st.session_state[key] = author()

    def renamed() -> None:
        st.session_state[_AUTHOR] = " ".join((state.entered(key) or "").split())[:LONGEST_AUTHOR]

    st.text_input(
        "You label as",
        key=key,
        max_chars=LONGEST_AUTHOR,
        icon=":material/person:",
        on_change=renamed,
        help="Kept with every label, so that reviewers can be told apart and compared.",
    )


def add_label(store: Store, place: Place, name: str, value: str, note: str = "") -> None:
    """Add a label, and remember the one that it replaces, for `undo`."""
    own = (place, name, author())
    given = store.labels.of(place.episode_id)
    before = next((one for one in given if (one.place, one.name, one.author) == own), None)
    added = store.labels.add(place, name, value, author=author(), note=note)
    st.session_state[_ADDED] = [*st.session_state.get(_ADDED, []), (added, before)]


def can_undo() -> bool:
    """Whether a label was added in this tab that can be taken back."""
    return bool(st.session_state.get(_ADDED))


def undo(store: Store) -> str | None:
    """Take the latest label of this tab back, so that the one before it counts again; returns the id of its episode."""
    if not can_undo():
        return None
    *earlier, (added, before) = st.session_state[_ADDED]
    st.session_state[_ADDED] = earlier
    if before is None:
        store.labels.withdraw(added.place, added.name, author=added.author, note="undone")
    else:
        store.labels.add(before.place, before.name, before.value, author=before.author, note=before.note)
    return str(added.place.episode_id)


def labels_given(store: Store, episode_id: str, *, any_labels: bool, own_only: bool) -> Sequence[Label]:
    """Every label that an episode was ever given. Nothing is read unless `any_labels`; with `own_only` other people's
    labels are left out."""
    history = store.labels.history(episode_id) if any_labels else ()
    return tuple(one for one in history if one.author == author()) if own_only else history


def label_button(history: Sequence[Label]) -> None:
    """The button, key L, that opens the panel of labels, or shuts it; that stands in the address as `labels`."""
    current = current_of(history)
    words = f"Labels ({len(current)})" if current else "Label"
    turn_over = partial(state.set_params, labels=None if _is_open() else "open")
    help = "Say what you think of this episode, this turn or some of its words"
    tool(words, "label_toggle", turn_over, icon="label", shortcut="L", help=help)


def label_panel(store: Store, episode_id: str, index: int, history: Sequence[Label]) -> None:
    """The labels that count of an episode and of the turn at hand, `index`, and everything else while it is open."""
    if here := [one for one in current_of(history) if one.place.index in (None, index)]:
        st.markdown(badges(here))
    if _is_open():
        with st.container(border=True, key="label_panel"):
            _panel(store, episode_id, index, history)


def _is_open() -> bool:
    return state.param("labels") == "open"


def _panel(store: Store, episode_id: str, index: int, history: Sequence[Label]) -> None:
    offered = {"turn": f"Turn {index + 1}", "episode": "The whole episode"}
    about = state.address_select("What is labelled", offered, name="about", key="label_about")
    place = Place(episode_id, index if about == "turn" else None)
    quick_buttons(store, place, current_of(history))
    left, right = st.columns([3, 2], gap="medium")
    with left:
        current_labels(store, current_of(history))
        label_history(history)
    with right:
        author_field()
        label_form(store, place)


def badges(labels: Sequence[Label]) -> str:
    """Labels as markdown badges with their authors, foreign text escaped."""
    shown = [
        f":blue-badge[:material/label: {label(label_words(one), 60)} · {label(one.author, 20)} · "
        f"{place_words(one.place)}]"
        for one in labels[:_MOST_BADGES]
    ]
    rest = len(labels) - _MOST_BADGES
    return " ".join([*shown, f":gray[and {rest} more]"] if rest > 0 else shown)


def quick_buttons(
    store: Store,
    place: Place,
    current: Sequence[Label],
    *,
    keys: bool = False,
    then: Callable[[], None] | None = None,
    about: str = "",
) -> None:
    """The labels at hand as buttons, one's own marked, with the keys 1 to 9 when the page has them to spare. A press
    on a marked one withdraws it; after any other `then` is called. `about` says in words what is labelled."""
    mine = {(one.name, one.value) for one in current if (one.place, one.author) == (place, author())}
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_labels"):
        if about:
            st.markdown(f"Label {about}:", width="content")
        for i, pair in enumerate(wiring.settings().labels, start=1):
            icon, look = ("check", "primary") if pair in mine else ("", "secondary")
            act = partial(_toggle, store, place, pair, pair in mine, then)
            shortcut = str(i) if keys else None
            words = label(label_words(pair), 60)
            tool(words, f"quick_label_{i}", act, icon=icon, type=look, shortcut=shortcut)


def _toggle(
    store: Store, place: Place, pair: tuple[str, str], is_set: bool, then: Callable[[], None] | None
) -> None:
    if is_set:
        store.labels.withdraw(place, pair[0], author=author())
        return
    add_label(store, place, *pair)
    if then:
        then()


def current_labels(store: Store, current: Sequence[Label]) -> None:
    """The labels that count now, one line each; the reviewer's own with a button that withdraws it."""
    if not current:
        st.caption("Nobody has labelled this yet.")
    for i, one in enumerate(current):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(
                f"**{label(label_words(one), 130)}** :gray[{place_words(one.place)} · {label(one.author, 40)} · "
                f"{ago(one.at, time.time())}]"
            )
            if one.author == author():
                act = partial(store.labels.withdraw, one.place, one.name, author=one.author)
                tool("", f"withdraw_{i}", act, icon="backspace", help="Withdraw; it stays in the history")
        if one.quote:
            st.code(plain(one.quote), language=None, wrap_lines=True)
        if one.note:
            st.text(plain(one.note))


def label_history(history: Sequence[Label]) -> None:
    """Every label that was ever added or withdrawn, newest first."""
    if not history:
        return
    with st.expander(f"History, {len(history)} entries", key="label_history"):
        for one in reversed(history):
            did = label_words(one) if one.value else f"{one.name} withdrawn"
            note = f" — {one_line(one.note, 200)}" if one.note else ""
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.at))
            st.text(f"{at}  {one_line(one.author, 40)}  {place_words(one.place)}  {one_line(did, 130)}{note}")


def label_form(store: Store, place: Place) -> None:
    """The form for a label of any name and value, with a note and the words of the reply that it is about."""
    used = [one.name for one in store.labels.in_use()]
    names = list(dict.fromkeys([NOTE, *(name for name, _ in wiring.settings().labels), *used]))
    with st.form("label_form", border=False):
        left, right = st.columns(2, gap="small")
        left.selectbox(
            "Name",
            names,
            key="label_name",
            accept_new_options=True,
            format_func=lambda name: one_line(name, LONGEST_WORD),
            help=define("Label"),
        )
        right.text_input("Value", key="label_value", max_chars=LONGEST_WORD, placeholder="none for a note")
        if place.index is not None:
            st.text_input(
                f"Only about these words of turn {place.index + 1}",
                key="label_quote",
                placeholder="paste words of the reply, or leave it empty",
            )
        st.text_area("Note", key="label_note", max_chars=LONGEST_NOTE, height=68)
        st.form_submit_button(
            "Add the label",
            icon=":material/new_label:",
            key="label_add",
            on_click=state.click(_add, store, place),
        )


def _add(store: Store, place: Place) -> None:
    name, value, note, quote = (str(st.session_state.get(field) or "") for field in _FIELDS)
    if name == NOTE:
        if not note.strip():
            raise ConfigError("Write the note first, or choose another name and give a value.")
        value = NOTE
    if quote.strip() and place.index is not None:
        reply = store.episodes.text(place.episode_id, place.index).reply
        place = Place(place.episode_id, place.index, find_span(reply, quote))
    add_label(store, place, name, value, note)
    for field in _FIELDS[1:]:
        st.session_state[field] = ""
