"""Separability: can the task and the chosen model be read off the coordinator's hidden states and logits?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter

import numpy as np
import pandas as pd
import streamlit as st

from core.analysis.separability import (
    FEWEST_POINTS,
    FOLDS,
    PUBLISHED_ACCURACY,
    PUBLISHED_FISHER,
    PUBLISHED_WITHIN,
    SPACE_WORDS,
    SPACES,
    SYNTHETIC_MODELS,
    SYNTHETIC_SIZE,
    SYNTHETIC_TASKS,
    TARGET_WORDS,
    TARGETS,
    Accuracy,
    Discriminant,
    Method,
    Points,
    Space,
    Target,
    accuracy,
    classes,
    discriminate,
    perplexity,
    project,
    separability_index,
    synthetic_study,
    within_families,
)
from storage.analysis.hidden_states import (
    HiddenStates,
    PolicyWithStates,
    policies_with_states,
    read_states,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.presentation.glossary import define, explain
from ui.presentation.theme import label, one_line, percent
from ui.presentation.words import policy_name, role_word
from ui.runs.plans import about
from ui.web.kit import state
from ui.web.kit.buttons import replay_link, tool
from ui.web.kit.cache import remembered
from ui.web.kit.chart import plot
from ui.web.kit.figures import literal
from ui.web.kit.widgets import nothing_here, states_removed
from ui.web.pickers.checkpoints import generation_of
from ui.web.separability.curvature import curvature_part
from ui.web.separability.figures import (
    class_styles,
    cloud,
    readings,
    shown,
    synthetic_figure,
)

#: Value in the address -> its words.
TURNS = {"all": "Every turn", "first": "First turns"}
METHODS: dict[Method, str] = {"pca": "PCA", "lda": "LDA", "tsne": "t-SNE"}
#: Rare classes named one by one.
MOST_NAMES = 10


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Separability", help=define("Separability"))
    st.caption(
        "Each point is one decision of the coordinator. Where points of a colour lie together, task family or "
        "chosen model can be read off what the encoder sees (hidden states) or off what the head makes of it "
        "(logits)."
    )
    offered = policies_with_states(store)
    if not offered:
        nothing_here(
            "No run here has hidden states: only a checkpoint leaves them, chance and single models do not."
            + states_removed(store, EpisodeFilter())
        )
        state.page_link("home", "See how to record or load some", icon=":material/home:")
        return
    chosen = _choose(store, offered)
    first_only, method = _options()
    with st.spinner("Reading the states …"):
        states = _read(store, chosen, first_only)
    if len(states.points) < FEWEST_POINTS:
        nothing_here(
            f"Only {len(states.points)} turns here have a hidden state: fewer than {FEWEST_POINTS} make no picture."
            + states_removed(store, EpisodeFilter(run=chosen.run_id, policy=chosen.policy))
        )
        return
    st.caption(_what(states))
    _clouds(states, method)
    _turns_table(states)
    _readings(states)
    curvature_part(store, chosen, states.slots)


# Choosing


def _choose(store: Store, offered: Sequence[PolicyWithStates]) -> PolicyWithStates:
    """The line of choices: a run, and a policy in it. An info names what the address asks for in vain."""
    runs = list(dict.fromkeys(one.run_id for one in offered))
    left, right = st.columns(2)
    with left:
        known = {run.id: about(run) for run in store.runs.list(limit=100_000)}
        words = {run: f"{run} · {known[run]}" if known.get(run) else run for run in runs}
        telling = max(offered, key=lambda one: one.turns).run_id  # one live episode makes no picture
        run = _select("Run", words, name="run", key="stated_run", default=telling)
    by_policy = {one.policy: one for one in offered if one.run_id == run}
    with right:
        ages = generation_of(store)
        names = {
            policy: policy_name(policy, ages.get(policy, one.generation)) for policy, one in by_policy.items()
        }
        policy = _select("Policy", names, name="policy", key="stated_policy", default=next(iter(names)))
    return by_policy[policy]


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


def _options() -> tuple[bool, Method]:
    with st.container(horizontal=True, gap="medium"):
        turns = state.address_select("Which turns", TURNS, name="turns", key="stated_turns")
        words = {str(method): name for method, name in METHODS.items()}
        picked = state.address_select("Projection", words, name="projection", key="projection")
    return turns == "first", next(method for method in METHODS if method == picked)


def _what(states: HiddenStates) -> str:
    points = states.points
    parts = [f"{len(points):,} turns of {len(set(points.tasks)):,} tasks"]
    if len(points) + states.unusable < states.total:
        parts.append(f"drawn by a fixed seed from {states.total:,}")
    if states.unusable:
        parts.append(
            f"{states.unusable:,} more left out: their hidden state holds numbers too large for the store"
        )
    parts.append(f"hidden states of {points.hidden.shape[1]:,} numbers")
    parts.append(f"{points.logits.shape[1]} logits, one per model and role")
    return " · ".join(parts) + ". Every number is standardised."


@remembered(most=8)
def _read(store: Store, chosen: PolicyWithStates, first_only: bool) -> HiddenStates:
    return read_states(store, chosen.run_id, chosen.policy, first_only=first_only)


# Clouds


def _clouds(states: HiddenStates, method: Method) -> None:
    """Four panels as in the paper's figures 8 to 11: a column per target, a row per space."""
    st.caption(_how_to_read(method, len(states.points)))
    slots = [
        [
            column.container(border=True, key=f"projected_{space}_{i}")
            for i, column in enumerate(st.columns(2))
        ]
        for space in SPACES
    ]
    hovers = _hovers(states)
    for space, row in zip(SPACES, slots, strict=True):
        for target, slot in zip(TARGETS, row, strict=True):
            with slot:
                st.markdown(f"**{SPACE_WORDS[space].capitalize()} by {TARGET_WORDS[target]}**")
                _panel(states, method, target, space, hovers)
    st.caption(
        "A click on a point shows its turn; a click in a legend hides a class, a double click isolates it."
    )


def _how_to_read(method: Method, n: int) -> str:
    return {
        "pca": define("PCA"),
        "lda": define("LDA")
        + " It sees the labels and finds some distance even in noise: beside each Fisher "
        "ratio stands that of shuffled labels. The paper names one ratio per space, perhaps by another formula.",
        "tsne": f"{define('t-SNE')} Perplexity {perplexity(n):.0f}.",
    }[method]


def _panel(states: HiddenStates, method: Method, target: Target, space: Space, hovers: Sequence[str]) -> None:
    points = states.points
    if not np.ptp(points.matrix(space), axis=0).any():
        nothing_here(f"All {SPACE_WORDS[space]} are the same, as of a head that has learned nothing yet.")
        return
    with st.spinner("Projecting …"):
        if method == "lda":
            found = _discriminated(points, target, space)
            if found is None:
                nothing_here(_too_few(target))
                return
            st.caption(_fisher(found, space))
            projection = found.projection
        else:
            projection = _projected(points, method, space)
    labels = points.labels(target).tolist()
    place, key = f"{space}.{target}", f"cloud_{method}_{target}_{space}_{points.digest[:12]}"
    plot(
        cloud(projection, labels, class_styles(labels, states.slots if target == "model" else ()), hovers),
        key=key,
        on_select=lambda: clicked(states, place, state.points(key)),
        alt=f"{METHODS[method]} of {SPACE_WORDS[space]}, coloured by {TARGET_WORDS[target]}: the classes are "
        f"{', '.join(sorted(set(labels))[:12])}",
    )
    _behind(states, place)


def clicked(states: HiddenStates, place: str, selected: Sequence[Mapping[str, object]]) -> None:
    """Note the turn behind the point that was clicked in the address, if one was: `place:episode:turn`."""
    if selected:
        turn = states.turns[int(str(selected[0]["customdata"]))]
        state.set_params(into=f"{place}:{turn.episode_id}:{turn.index + 1}")


def _behind(states: HiddenStates, place: str) -> None:
    """The turn of the point that was clicked here, with the way to it."""
    into = state.param("into") or ""
    if not into.startswith(f"{place}:"):
        return
    _, _, named = into.partition(":")
    turn = next((one for one in states.turns if named == f"{one.episode_id}:{one.index + 1}"), None)
    with st.container(border=True, key=f"behind_{place.replace('.', '_')}"):
        if turn is None:
            st.caption("The turn of this link is not among these points.")
        else:
            st.markdown(
                f"{role_word(turn.role)} **{label(turn.model, 40)}** · {label(turn.family, 30)} · "
                f"{label(turn.question, 110)}"
            )
        with st.container(horizontal=True, vertical_alignment="center"):
            if turn is not None:
                replay_link(f"Open turn {turn.index + 1}", turn.episode_id, turn.index + 1)
            tool("Close", "behind_close", partial(state.set_params, into=None), icon="close")


def _hovers(states: HiddenStates) -> list[str]:
    """What hovering says of each point, foreign text escaped."""
    return [
        f"<b>{literal(turn.model, 24)}</b> as {role_word(turn.role)}, turn {turn.index + 1}"
        + ("" if turn.model == turn.argmax_model else f" (likeliest: {literal(turn.argmax_model, 24)})")
        + f"<br>{literal(turn.family, 24)}: {literal(turn.question, 56)}"
        for turn in states.turns
    ]


def _fisher(found: Discriminant, space: Space) -> str:
    return (
        f"Fisher ratio **{found.fisher:.2f}**, {found.shuffled:.2f} with shuffled labels. "
        f"Paper, frontier models: about {PUBLISHED_FISHER[space]:.2f}."
    )


def _too_few(target: Target) -> str:
    return (
        f"Fewer than two classes of {TARGET_WORDS[target]} have {FOLDS} tasks or more: there is nothing to tell "
        "apart."
    )


_remembered = st.cache_data(max_entries=64, show_spinner=False, hash_funcs={Points: attrgetter("digest")})
_projected, _discriminated, _measured = _remembered(project), _remembered(discriminate), _remembered(accuracy)
_measured_within, _indexed = _remembered(within_families), _remembered(separability_index)
_studied = _remembered(synthetic_study)


def _turns_table(states: HiddenStates) -> None:
    with st.expander(
        "The turns behind the points", icon=":material/table_rows:", on_change="rerun", key="stated_table"
    ) as expander:
        if expander.open:
            st.dataframe(
                rows(states),
                key="stated_rows",
                hide_index=True,
                height=388,
                column_config={
                    "turn": st.column_config.LinkColumn("Turn", display_text="Replay", width=80),
                    "question": st.column_config.TextColumn("Question", width="large"),
                },
                alt="The turns behind the points, each with a link to its replay",
            )


def rows(states: HiddenStates) -> pd.DataFrame:
    """The turns as a table that can be sorted, each with a link to its replay."""
    return pd.DataFrame(
        {
            "turn": state.href("replay", ep=one.episode_id, t=one.index + 1),
            "family": one_line(one.family, 30),
            "model": one_line(one.model, 40),
            "likeliest": one_line(one.argmax_model, 40),
            "role": role_word(one.role),
            "number": one.index + 1,
            "question": one_line(one.question, 110),
        }
        for one in states.turns
    )


# How well it is read


def _readings(states: HiddenStates) -> None:
    """Accuracies, with the majority class, chance and the paper's."""
    st.subheader("How well can it be read?", help=explain("SVM", "Cross-validation"))
    points = states.points
    with st.spinner("Fitting the SVMs …"):
        tried = [_measured(points, target, space) for target in TARGETS for space in SPACES]
    measured = [one for one in tried if one is not None]
    counts = {one.target: one.n for one in measured}
    if counts:
        st.caption(" ".join(_told_apart(points, target, n) for target, n in counts.items()))
    for target in TARGETS:
        if target not in counts:
            nothing_here(_too_few(target))
    if not measured:
        return
    left, right = st.columns([3, 2], gap="large")
    with left:
        alt = "Accuracy of linear and RBF SVMs in this run and in the paper"
        plot(readings(measured), key="readings", small=True, alt=alt)
    with right:
        _explained(states)
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.markdown("**This run**")
        st.table(ours(measured), border="horizontal")
    with right:
        st.markdown("**The paper, with frontier models** (arXiv 2512.04695)")
        st.table(theirs(measured), border="horizontal")
    _within(points)
    _synthetic(points)


def _within(points: Points) -> None:
    """How well the model is read where the family tells nothing."""
    st.markdown("**The chosen model, read off hidden states within one task family**")
    with st.spinner("Fitting an SVM per family …"):
        found = {family: one for family, one in _measured_within(points, "hidden").items() if one is not None}
    if not found:
        nothing_here(
            f"In no family two models were chosen on {FOLDS} tasks each: there is nothing to tell apart."
        )
        return
    frame = ours(list(found.values()))
    frame.index = pd.Index([one_line(family, 30) for family in found])
    st.table(frame, border="horizontal")
    papers = ", ".join(f"{name} {percent(share)}" for name, share in PUBLISHED_WITHIN.items())
    st.caption(f"Where the family itself no longer tells who is chosen. The paper, linear SVM: {papers}.")


def _synthetic(points: Points) -> None:
    """The separability index of these points, and how index and accuracy go together where it is known."""
    with st.expander(
        "How far apart must classes lie? Made-up states", icon=":material/scatter_plot:", on_change="rerun",
        key="synthetic",
    ) as expander:  # fmt: skip
        if not expander.open:
            return
        st.caption(
            f"As in the paper's appendix: {SYNTHETIC_TASKS} clusters of tasks and {SYNTHETIC_MODELS} models in "
            f"{SYNTHETIC_SIZE:,} numbers. The index is the share of the variance that lies between classes; a linear "
            "SVM reads the model off each set of made-up states."
        )
        with st.spinner("Fitting the SVMs …"):
            made_up = _studied()
            ours = {
                (target, space): index
                for target in TARGETS
                for space in SPACES
                if (index := _indexed(points, target, space)) is not None
            }
        alt = "; ".join(f"index {one.index:.3f}: accuracy {one.accuracy:.2f}" for one in made_up)
        plot(
            synthetic_figure(made_up, ours.get(("model", "hidden"))),
            key="synthetic_figure",
            small=True,
            alt=alt,
        )
        st.caption(
            "Index in this run: "
            + ", ".join(
                f"{TARGET_WORDS[target]} in {SPACE_WORDS[space]} {index:.3f}"
                for (target, space), index in ours.items()
            )
            + ". Unlike the made-up ones, real classes are seldom round clouds, so the two need not agree."
        )


def _told_apart(points: Points, target: Target, n: int) -> str:
    """Which classes were read, and which were left out."""
    found = classes(points, target)
    parts = f"{TARGET_WORDS[target].capitalize()}: {len(found.frequent)} classes in {n:,} turns"
    if found.rare:
        rare = ", ".join(label(name, 30) for name in found.rare[:MOST_NAMES])
        more = "" if len(found.rare) <= MOST_NAMES else f" and {len(found.rare) - MOST_NAMES} more"
        parts += f"; {rare}{more} left out, with fewer than {FOLDS} tasks"
    return f"{parts}."


def _explained(states: HiddenStates) -> None:
    share = np.mean([turn.model == turn.argmax_model for turn in states.turns])
    st.markdown(
        f"Stratified cross-validation in {FOLDS} folds. All turns of a task stay in one fold, so no turn is "
        "recognised by another of its episode. ± is the standard deviation over the folds."
    )
    if share < 1:
        st.markdown(
            f"Of these choices {percent(float(share))} took the likeliest model and the others were drawn below "
            "it, so even a perfect reading of the logits ends near there."
        )
    st.markdown(
        "The paper's figures are of Qwen3-0.6B states that choose among models such as GPT-5 and Gemini 2.5 Pro "
        "on four benchmarks. They are here for orientation: other tasks, other models."
    )


def ours(measured: Sequence[Accuracy]) -> pd.DataFrame:
    """What this run's points came to, one row per target and space."""
    return pd.DataFrame(
        {
            "Linear SVM": [shown(one.linear) for one in measured],
            "RBF SVM": [shown(one.rbf) for one in measured],
            "Majority class": [percent(one.majority) for one in measured],
            "Chance": [percent(one.chance) for one in measured],
        },
        index=_index(measured),
    )


def theirs(measured: Sequence[Accuracy]) -> pd.DataFrame:
    """The paper's figures for the same rows."""
    found = [PUBLISHED_ACCURACY[one.target, one.space] for one in measured]
    return pd.DataFrame(
        {
            "Linear SVM": [shown(one.linear) for one in found],
            "RBF SVM": [shown(one.rbf) for one in found],
            "Chance": [percent(one.chance) for one in found],
        },
        index=_index(measured),
    )


def _index(measured: Sequence[Accuracy]) -> list[str]:
    return [f"{TARGET_WORDS[one.target].capitalize()}, {SPACE_WORDS[one.space]}" for one in measured]


if __name__ == "__main__":
    state.run(show)
