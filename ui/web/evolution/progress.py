"""The panel of an evolution's progress: fitness with its noise, validation and controls, step size and replies."""

from __future__ import annotations

import math
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st

from storage.analysis.standings import figures, policies_with_episodes, task_sets
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import FIRST_COLOUR, label
from ui.web.evolution.figures import fitness_figure, line_figure
from ui.web.evolution.lineage import AXES, Lineage, tasks_each
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.chart import plot
from ui.web.kit.widgets import standings_figure

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
        "How large are its steps?",
        line_figure(lineage, ((reach, "solid", tuple(one.sigma for one in lineage.generations)),), axis, at),
        key="reach",
        help=define("Sigma") if "sigma" in reach else None,
        alt=f"{reach} by {AXES[axis]}",
        caption=_first_steps(lineage),
    )
    requested, known = (_counts(lineage, name) for name in ("calls", "calls_saved"))
    chart(
        right,
        "How many replies did a generation need?",
        line_figure(lineage, (("asked", "solid", requested), ("from cache", "dash", known)), axis, at),
        key="replies",
        help=define("Cached reply"),
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
        sentence += " This fitness has further terms besides the share of tasks solved; the bands do not."
    return sentence


# Beside what learned nothing


def _standings(store: Store, lineage: Lineage) -> None:
    """The best and the last generation beside the controls."""
    standings = lineage.standings(FIRST_COLOUR)
    if not standings:
        return
    with st.container(border=True):
        st.markdown("**Is it better than the controls?**", help=define("Control"))
        plot(
            standings_figure(standings),
            key="standings",
            small=True,
            alt="Validated accuracy of the best and last generation beside the controls, with 95 % intervals",
        )
        st.caption(validated_on(lineage))
        if not lineage.controls:
            st.caption("Controls are played at an evolution's end, unless they are switched off.")


def validated_on(lineage: Lineage) -> str:
    """What the validated accuracies are of, as markdown."""
    sizes = [f"{one.n:,}" for one in lineage.validations if one and one.n]
    each = " or ".join(dict.fromkeys(sizes))
    of = f" of {label(Path(lineage.plan.tasks).name, 60)}" if lineage.plan else ""
    chosen = f"; the best of {len(sizes)} was chosen on these very tasks, so it flatters a little" * (
        len(sizes) > 1
    )
    return (
        f"Validated is the share of right answers on {each} validation tasks{of}, each played once, which the "
        f"evolution did not learn from{chosen}. In brackets the 95 % interval."
    )
