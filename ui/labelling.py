"""Labels where one reads: what is said about an episode or a turn, a quick set, a form, notes and the history.

`label_panel` is the whole of it for any page; Review puts the same pieces where it wants them. Nothing is
overwritten: a label replaces one's own of the same name at the same place, and both stay in the history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.errors import ConfigError
from storage.labels import LONGEST_AUTHOR, LONGEST_NOTE, LONGEST_WORD, NOTE, Label, Place, counting
from storage.store import Store
from ui import state, wiring
from ui.glossary import define
from ui.quotes import find_span, login
from ui.theme import label, one_line, plain
from ui.widgets import ago

_AUTHOR, _SAID = "reviewer", "labels_said"
_FIELDS = ("label_name", "label_value", "label_note", "label_quote")


def author() -> str:
    """Who labels in this tab: what was typed, else the name one is logged in with."""
    return str(st.session_state.get(_AUTHOR) or login())


def author_field(key: str = "label_author") -> None:
    """Where the reviewer's name is changed, for all pages of this tab."""
    st.session_state[key] = author()

    def renamed() -> None:
        st.session_state[_AUTHOR] = " ".join(st.session_state[key].split())[:LONGEST_AUTHOR]

    st.text_input(
        "You label as",
        key=key,
        max_chars=LONGEST_AUTHOR,
        icon=":material/person:",
        on_change=renamed,
        help="Kept with every label, so that reviewers can be told apart and compared.",
    )


def say(store: Store, place: Place, name: str, value: str, note: str = "") -> None:
    """Label, and remember what there was before, for `undo`."""
    who = author()
    mine = [
        one
        for one in store.labels.of(place.episode_id)
        if (one.place, one.name, one.author) == (place, name, who)
    ]
    said = store.labels.say(place, name, value, author=who, note=note)
    st.session_state[_SAID] = [*st.session_state.get(_SAID, []), (said, mine[0] if mine else None)]


def can_undo() -> bool:
    """Whether something was labelled in this tab that can be taken back."""
    return bool(st.session_state.get(_SAID))


def undo(store: Store) -> str | None:
    """Take the latest label of this tab back: what stood there before counts again. The episode it was about."""
    if not can_undo():
        return None
    *earlier, (said, before) = st.session_state[_SAID]
    st.session_state[_SAID] = earlier
    if before is None:
        store.labels.withdraw(said.place, said.name, author=said.author, note="undone")
    else:
        store.labels.say(before.place, before.name, before.value, author=before.author, note=before.note)
    return str(said.place.episode_id)


def label_panel(
    store: Store,
    episode_id: str,
    index: int,
    line: DeltaGenerator,
    *,
    any_said: bool = True,
    only_own: bool = False,
) -> None:
    """The labels of an episode in the row `line`, with a button (key L) that opens everything else here; `index`: the
    turn at hand. Whether it is open stands in the address as `labels`. Nothing is read unless `any_said`; with
    `only_own` nothing of what others said shows."""
    history = store.labels.history(episode_id) if any_said else ()
    if only_own:
        history = tuple(one for one in history if one.author == author())
    current = counting(history)
    is_open = state.param("labels") == "open"
    with line:
        st.button(
            f"Labels ({len(current)})" if current else "Label",
            key="label_toggle",
            icon=":material/label:",
            shortcut="L",
            type="tertiary",
            help="Say what you think of this episode, this turn or some of its words",
            on_click=state.set_params,
            kwargs={"labels": None if is_open else "open"},
        )
        if here := [one for one in current if one.place.index in (None, index)]:
            st.markdown(badges(here))
    if is_open:
        with st.container(border=True, key="label_panel"):
            _panel(store, episode_id, index, history)


def _panel(store: Store, episode_id: str, index: int, history: Sequence[Label]) -> None:
    about = state.choice(
        "What is labelled",
        {"turn": f"Turn {index + 1}", "episode": "The whole episode"},
        name="about",
        key="label_about",
    )
    place = Place(episode_id, index if about == "turn" else None)
    quick_buttons(store, place, counting(history))
    left, right = st.columns([3, 2], gap="medium")
    with left:
        said_so_far(store, counting(history))
        told_history(history)
    with right:
        author_field()
        own_words(store, place)


def words(one: Label | tuple[str, str]) -> str:
    """A label in a few words, plain text: `quality: good`; of a mere note just that."""
    name, value = (one.name, one.value) if isinstance(one, Label) else one
    return "note" if name == NOTE else f"{name}: {value}"


def where(place: Place) -> str:
    """`episode`, `turn 3`, `words of turn 3`."""
    if place.index is None:
        return "episode"
    return f"{'words of ' if place.span else ''}turn {place.index + 1}"


def badges(labels: Sequence[Label], limit: int = 6) -> str:
    """Labels as markdown badges with their authors, foreign text escaped."""
    shown = [
        f":blue-badge[:material/label: {label(words(one), 60)} · {label(one.author, 20)} · {where(one.place)}]"
        for one in labels[:limit]
    ]
    rest = len(labels) - limit
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
    on a marked one withdraws it; after any other comes `then`. `about` says in words what is labelled."""
    who = author()
    mine = {(one.name, one.value) for one in current if one.place == place and one.author == who}
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_labels"):
        if about:
            st.markdown(f"Label {about}:", width="content")
        for i, pair in enumerate(wiring.settings().labels, start=1):
            st.button(
                label(words(pair), 60),
                key=f"quick_label_{i}",
                icon=":material/check:" if pair in mine else None,
                type="primary" if pair in mine else "secondary",
                shortcut=str(i) if keys else None,
                on_click=state.guarded(_toggle, state.refused),
                args=(store, place, pair, pair in mine, then),
            )


def _toggle(
    store: Store, place: Place, pair: tuple[str, str], is_said: bool, then: Callable[[], None] | None
) -> None:
    if is_said:
        store.labels.withdraw(place, pair[0], author=author())
        return
    say(store, place, *pair)
    if then:
        then()


def said_so_far(store: Store, current: Sequence[Label]) -> None:
    """What counts now, line by line; one's own with a way to take it back."""
    if not current:
        st.caption("Nobody has labelled this yet.")
    for i, one in enumerate(current):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(
                f"**{label(words(one), 130)}** :gray[{where(one.place)} · {label(one.author, 40)} · "
                f"{ago(one.at, time.time())}]"
            )
            if one.author == author():
                st.button(
                    "",
                    key=f"withdraw_{i}",
                    icon=":material/backspace:",
                    type="tertiary",
                    help="Withdraw; it stays in the history",
                    on_click=state.guarded(store.labels.withdraw, state.refused),
                    args=(one.place, one.name),
                    kwargs={"author": one.author},
                )
        if one.quote:
            st.code(plain(one.quote), language=None, wrap_lines=True)
        if one.note:
            st.text(plain(one.note))


def told_history(history: Sequence[Label]) -> None:
    """Everything that was ever said, newest first."""
    if not history:
        return
    with st.expander(f"History, {len(history)} entries", key="label_history"):
        for one in reversed(history):
            did = words(one) if one.value else f"{one.name} withdrawn"
            note = f" — {one_line(one.note, 200)}" if one.note else ""
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.at))
            st.text(f"{at}  {one_line(one.author, 40)}  {where(one.place)}  {one_line(did, 130)}{note}")


def own_words(store: Store, place: Place) -> None:
    """A label of one's own name and value, a note, and which words of the reply it is about."""
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
            on_click=state.guarded(_add, state.refused),
            args=(store, place),
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
    say(store, place, name, value, note)
    for field in _FIELDS[1:]:
        st.session_state[field] = ""
