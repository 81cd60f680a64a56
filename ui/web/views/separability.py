"""Separability: can the task and the chosen model be read off hidden states and logits, or a question's class off the
states of an encoder before anything was played?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from streamlit.delta_generator import DeltaGenerator

from core.analysis.separability import MOST_POINTS
from core.errors import TrinityError
from core.settings import POCKET_POOL
from core.tokens.files import encoder_size
from storage.analysis.hidden_states import PolicyWithStates, policies_with_states
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.answers.asked import asked_of_questions, asked_of_states
from ui.answers.separability import too_few
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.presentation.words import left_words, policy_name
from ui.runs import wiring
from ui.runs.questions import Questions, as_states, find_questions, read
from ui.runs.reading import AT_ONCE_FLOP
from ui.web.analysis.page import show_answers
from ui.web.kit import state
from ui.web.kit.cache import cached, run_names
from ui.web.kit.widgets import button, nothing_here, states_removed
from ui.web.pickers.checkpoints import generation_of
from ui.web.pickers.encoder import choose_encoder
from ui.web.pickers.task_file import choose_tasks

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder

#: What is measured: value in the address -> its words.
_OF = {"run": "Turns of a run", "questions": "Questions, read now"}
#: Questions offered of a task set.
_USUAL = 300


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Separability", help=define("Separability"))
    of = state.address_select("Of what", _OF, name="of", key="separability_of", forgets=("part", "into"))
    if of == "questions":
        _show_questions(store)
        return
    offered = policies_with_states(store)
    if not offered:
        nothing_here(
            "No run here has hidden states: only a checkpoint leaves them, chance and single models do not."
            + states_removed(store, EpisodeFilter())
        )
        state.page_link("home", "See how to record or load some", icon=":material/home:")
        return
    chosen, name = _choose(store, offered)
    asked = asked_of_states(store, chosen, name, choices=st.query_params.to_dict(), remember=cached)
    with st.spinner("Reading the states and fitting the SVMs …"):
        few = too_few(asked)
        if few:
            where = EpisodeFilter(run=chosen.run_id, policy=chosen.policy)
            nothing_here(label(few, 300) + states_removed(store, where))
        else:
            show_answers("separability", asked)


def _show_questions(store: Store) -> None:
    """The questions of a task set, read by an encoder once that is asked for, or at once where it takes no time."""
    tasks, n = choose_tasks(
        "separability",
        _USUAL,
        f"Drawn by a fixed seed; at most {MOST_POINTS:,}.",
        sets="Questions of the evolve split.",
        address=True,
    )
    left, right = st.columns([3, 2])
    settings = wiring.settings()
    with left:
        encoder = choose_encoder(
            "separability", replace(settings, encoder=settings.encoder or POCKET_POOL), address=True
        )
    by = _word(right, "Told apart by", "by", "family", "family, or a field of the lines of a task file.")
    if tasks is None or encoder is None:
        what = "file that holds the questions" if tasks is None else "encoder that reads them"
        nothing_here(f"Name the {what}.", ":material/quiz:")
        return
    try:
        found = find_questions(tasks, by, min(n or MOST_POINTS, MOST_POINTS))
        takes_long = (
            2.0 * encoder_size(wiring.encoder_source(encoder)) * sum(map(len, found.texts)) / 3 > AT_ONCE_FLOP
        )
    except TrinityError as error:  # what is wrong can be mended in the fields above
        st.error(label(str(error), 500), icon=":material/error:")
        return
    asked_for = f"separability_read {encoder} {tasks} {by} {n}"
    if takes_long:
        words = f"Let {label(encoder, 40)} read {len(found.texts):,} questions"
        if button(words, "separability_read", icon="play_arrow"):
            st.session_state[asked_for] = True
        if asked_for not in st.session_state:
            return
    with st.spinner("Loading the encoder …"):
        reader = wiring.loaded_encoder(encoder)
    states = as_states(found, _read_aloud(reader, found))
    name, choices = reader.identity.name, st.query_params.to_dict()
    asked = asked_of_questions(store, states, name, Path(tasks).name, choices=choices, remember=cached)
    with st.spinner("Fitting the SVMs …"):
        show_answers("separability", asked)


def _read_aloud(reader: Encoder, found: Questions) -> list[NDArray[np.float32]]:
    """The states of the questions, with the time that is left. Who leaves finds what was read remembered."""
    states, n, began, shown = list[NDArray[np.float32]](), len(found.texts), time.monotonic(), st.empty()
    for one in read(reader, found):
        states.append(one)
        left_s = (time.monotonic() - began) / len(states) * (n - len(states))
        if left_s > 1:
            words = f"{len(states):,} of {n:,} questions read{left_words(left_s)}"
            shown.progress(len(states) / n, words)
    shown.empty()
    return states


def _word(place: DeltaGenerator, words: str, name: str, default: str, help: str) -> str:
    """A word that stands in the address."""
    value = place.text_input(
        words, state.param(name) or default, key=f"separability_{name}", max_chars=300, help=help
    )
    state.set_params(**{name: value if value != default else None})
    return value.strip() or default


def _choose(store: Store, offered: Sequence[PolicyWithStates]) -> tuple[PolicyWithStates, str]:
    """A policy in a run, with its name."""
    runs = list(dict.fromkeys(one.run_id for one in offered))
    left, right = st.columns(2)
    with left:
        telling = max(offered, key=lambda one: one.turns).run_id  # one live episode makes no picture
        run = _select("Run", run_names(store, runs), name="run", key="stated_run", default=telling)
    by_policy = {one.policy: one for one in offered if one.run_id == run}
    with right:
        ages = generation_of(store)
        names = {
            policy: policy_name(policy, ages.get(policy, one.generation)) for policy, one in by_policy.items()
        }
        policy = _select("Policy", names, name="policy", key="stated_policy", default=next(iter(names)))
    return by_policy[policy], names[policy]


def _select(words: str, options: Mapping[str, str], *, name: str, key: str, default: str) -> str:
    """A choice that stands in the address; one that is not offered is named in an info. Runs have own policies."""
    named, forgets = state.param(name), ("policy", "into")
    chosen = state.address_select(
        words, options, name=name, key=key, default=default, forgets=forgets, widget="list"
    )
    if named and named not in options:
        sentence = f"{words} {named} has no hidden states here: {options[default]} is shown instead."
        st.info(label(sentence, 300), icon=":material/info:")
    return chosen


if __name__ == "__main__":
    state.run(show)
