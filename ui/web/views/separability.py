"""Separability: can the task and the chosen model be read off the coordinator's hidden states and logits?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from storage.analysis.hidden_states import PolicyWithStates, policies_with_states
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.answers.separability import asked_of_states, too_few
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.presentation.words import policy_name
from ui.web.analysis.page import show_answers
from ui.web.kit import state
from ui.web.kit.cache import cached, run_names
from ui.web.kit.widgets import nothing_here, states_removed
from ui.web.pickers.checkpoints import generation_of


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Separability", help=define("Separability"))
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
