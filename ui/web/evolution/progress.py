"""The panel of an evolution's progress: fitness with its noise, validation and controls, step size and replies."""

from __future__ import annotations

import math
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

from storage.analysis.standings import PolicySide, figures, policies_with_episodes, sides_of, task_sets
from storage.store import Store
from ui.presentation.comparison import tasks_words
from ui.presentation.glossary import define
from ui.presentation.theme import FIRST_COLOUR, label, percent
from ui.presentation.words import setting_words
from ui.web.evolution.figures import fitness_figure, line_figure
from ui.web.evolution.lineage import AXES, Lineage, tasks_each
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.chart import plot
from ui.web.kit.widgets import standings_figure
from ui.web.pickers.checkpoints import default_checkpoints
from ui.web.pickers.line import listed

_side_figures = cached(figures)
_task_sets = cached(task_sets)
_played = cached(policies_with_episodes)


def chart(
    column: st.delta_generator.DeltaGenerator,
    title: str,
    figure: go.Figure,
    *,
    key: str,
    alt: str,
    help: str | None = None,
    caption: str = "",
) -> None:
    """A figure in a box, under the question it answers."""
    with column, st.container(border=True):
        st.markdown(f"**{title}**", help=help)
        plot(figure, key=key, small=True, alt=alt)
        if caption:
            st.caption(caption)


def axis_choice() -> str:
    """What curves are drawn along, as the address says."""
    return state.address_select(
        "Along", {key: words.capitalize() for key, words in AXES.items()}, name="x", key="axis"
    )


def progress_panel(store: Store, lineage: Lineage, at: int, second: Lineage | None) -> None:
    """Fitness with its noise, validation and controls; step size and the replies that were asked for."""
    axis = axis_choice()
    chart(
        st.container(),
        "Is it getting better, beyond chance?",
        fitness_figure(lineage, axis, at, second),
        key="fitness",
        help=define("Noise band"),
        alt="Best, mean and median fitness by generation with noise bands, validation with intervals, controls",
        caption=_noise_words(lineage, at),
    )
    _standings(store, lineage)
    left, right = st.columns(2)
    reach = lineage.reach_words
    chart(
        left,
        "How far does it still reach?",
        line_figure(lineage, ((reach, "solid", tuple(one.sigma for one in lineage.generations)),), axis, at),
        key="reach",
        help=define("Sigma"),
        alt=f"{reach} by {AXES[axis]}",
        caption=_first_steps(lineage),
    )
    requested, known = (_counts(lineage, name) for name in ("calls", "calls_saved"))
    chart(
        right,
        "How many replies did a generation need?",
        line_figure(lineage, (("asked for", "solid", requested), ("known already", "dash", known)), axis, at),
        key="replies",
        help=define("Known reply"),
        alt=f"Replies by {AXES[axis]}",
    )


def _first_steps(lineage: Lineage) -> str:
    """How far the first step of each block of the vector reached; empty where a run did not keep it."""
    sizes = "; ".join(
        f"{'singular values' if block == 'svf' else label(block, 20)}: {step.step_size:.3g}, which spreads the "
        f"logits by {step.logit_spread:.3g}"
        for block, step in lineage.steps.items()
    )
    return f"First step size of the {sizes}." if sizes else ""


def _counts(lineage: Lineage, name: str) -> tuple[float | None, ...]:
    """A count of every generation; None before anybody competed, or where it was not kept."""
    return tuple(
        getattr(stats, name) if one.index > 0 else None
        for one, stats in zip(lineage.generations, lineage.stats, strict=True)
    )


def _noise_words(lineage: Lineage, at: int) -> str:
    """What the bands are, with the chosen generation's own numbers."""
    place = max(at, 1) if len(lineage.generations) > 1 else at
    tasks, played = tasks_each(lineage, place), lineage.plays[place]
    each = f" ({tasks} tasks)" if tasks else ""
    sentence = f"The light band around the mean is one binomial standard error of a single candidate's fitness{each}."
    if played is not None and math.isfinite(played.error):
        sentence += (
            f" The dark one is that of the population's mean ({played.n:,} episodes), the episodes of one task taken "
            "together: candidates that play the same tasks are lucky or unlucky with them together."
        )
    sentence += " Diamonds: the mean on held-apart tasks with its 95 % Wilson interval."
    if (plan := lineage.plan) and (plan.evolution.diversity or plan.evolution.turn_cost):
        sentence += " This fitness holds further terms beside the share of tasks solved; the bands do not."
    return sentence


# Beside what learned nothing


def _standings(store: Store, lineage: Lineage) -> None:
    """The best and the last generation beside the controls."""
    standings = lineage.standings(FIRST_COLOUR)
    if not standings:
        return
    with st.container(border=True):
        st.markdown("**Is it better than what learned nothing?**", help=define("Control"))
        plot(
            standings_figure(standings),
            key="standings",
            small=True,
            alt="Validated accuracy of the best and last generation beside the controls, with 95 % intervals",
        )
        st.caption(_standings_words(lineage))
        _recorded(store, lineage)


def _recorded(store: Store, lineage: Lineage) -> None:
    """The accuracy that Checkpoints shows, of recorded episodes, for comparison with the validated one."""
    best = lineage.best
    validated = None if best is None else lineage.validations[best]
    checkpoint = None if best is None else lineage.generations[best].checkpoint_id
    if best is None or validated is None or checkpoint is None:
        return
    # Where it was played under several settings, the one with most episodes, as on Checkpoints.
    sides = sides_of(_played(store), checkpoint)
    side = sides[0] if sides else PolicySide(checkpoint)
    did = _side_figures(store, (side,))[0].summary
    generation = lineage.indices[best]
    if not did.n:
        st.caption(f"No episode of generation {generation} is recorded yet for Checkpoints to count.")
        return
    sets = _task_sets(store, (side,))
    other = "other tasks" if all(one.split != "validation" for one in sets) else "tasks of its own choice"
    settings = [one.setting for one in sides if one.setting]
    under = f" ({setting_words(settings[0], settings)})" if settings else ""
    sentence = (
        f"Generation {generation} has {percent(validated.accuracy)} here, and {percent(did.accuracy)} on "
        f"Checkpoints{under}, which counts recorded episodes of {other}: {tasks_words(sets)}."
    )
    st.caption(label(sentence, 900))
    ids = default_checkpoints(store)
    address = {"c": listed(ids), "base": ids[0]} if checkpoint in ids[1:] else {}
    state.page_link(
        "checkpoints",
        "Recorded episodes on Checkpoints",
        icon=":material/balance:",
        b=checkpoint,
        **address,
    )


def _standings_words(lineage: Lineage) -> str:
    sizes = [f"{one.n:,}" for one in lineage.validations if one and one.n]
    each = ", ".join(dict.fromkeys(sizes))
    of = f" of {label(Path(lineage.plan.tasks).name, 60)}" if lineage.plan else ""
    sentence = (
        f"Accuracy on the evolution's own {each} validation tasks{of}, which it did not learn from, with its 95 % "
        "Wilson interval. "
    )
    if len(sizes) > 1:
        sentence += (
            f"The best of {len(sizes)} validations was chosen on these very tasks, so it flatters a little. "
        )
    if not lineage.controls:
        sentence += "Controls are played at an evolution's end, unless they are switched off."
    return sentence
