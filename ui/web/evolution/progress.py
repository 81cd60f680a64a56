"""The panel of an evolution's progress: fitness with its noise, validation and controls, step size and replies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import streamlit as st

from core.analysis.comparison import accuracy_over_tasks
from storage.analysis.defaults import comparable
from storage.analysis.standings import Figures, figures, policies_with_episodes, sides_of, task_sets
from storage.store import Store
from ui.presentation.comparison import enumerated, plays_words, tasks_words
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.presentation.words import policy_name, share_words
from ui.web.evolution.course import Course, Lineage, tasks_each
from ui.web.evolution.figures import fitness_figure, line_figure
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.figures import plot
from ui.web.kit.widgets import standings_figure
from ui.web.pickers.checkpoints import generation_of, side_namer
from ui.web.pickers.line import default_run, line_of, listed, within

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


def axis_choice(course: Course) -> str:
    """What curves are drawn along, as the address says."""
    words = {key: words.capitalize() for key, words in course.axes.items()}
    return state.address_select("Along", words, name="x", key=f"axis_{course.noun}")


def progress_panel(store: Store, lineage: Lineage, at: int, second: Lineage | None) -> list[str]:
    """Fitness with its noise, validation and controls; step size and the replies that were asked for."""
    axis = axis_choice(lineage)
    chart(
        st.container(),
        "Is it getting better, beyond chance?",
        fitness_figure(lineage, axis, at, second),
        key="fitness",
        help=define("Noise band"),
        alt="Best, mean and median fitness by generation with noise bands, validation with intervals, controls",
    )
    standings_chart(lineage, "Is it better than the controls?", define("Control"))
    left, right = st.columns(2)
    reach = lineage.reach_words
    chart(
        left,
        "How large are its steps?",
        line_figure(lineage, ((reach, "solid", tuple(one.sigma for one in lineage.stats)),), axis, at),
        key="reach",
        help=define("Sigma") if "sigma" in reach else None,
        alt=f"{reach} by {lineage.axes[axis]}",
    )
    requested, known = (lineage.of_updates(name) for name in ("calls", "calls_saved"))
    chart(
        right,
        "How many replies did a generation need?",
        line_figure(lineage, (("asked", "solid", requested), ("from cache", "dash", known)), axis, at),
        key="replies",
        help=define("Cached reply"),
        alt=f"Replies by {lineage.axes[axis]}",
    )
    return [_noise_words(lineage, at), _first_steps(lineage)]


def _first_steps(lineage: Lineage) -> str:
    """How far the first step of each block of the vector reached; empty where a run did not keep it."""
    sizes = "; ".join(
        f"{'singular values' if block == 'svf' else label(block, 20)}: {step.step_size:.3g}, which spreads the "
        f"logits by {step.logit_spread:.3g}"
        for block, step in lineage.steps.items()
    )
    return f"First step size of the {sizes}." if sizes else ""


def _noise_words(lineage: Lineage, at: int) -> str:
    """What the bands are, with the chosen generation's own numbers."""
    place = max(at, 1) if len(lineage.updates) > 1 else at
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


def standings_chart(course: Course, title: str, help: str) -> None:
    """The start, the best and the last update beside the controls; nothing before the first validation."""
    standings = course.standings()
    if not standings:
        return
    with st.container(border=True):
        st.markdown(f"**{title}**", help=help)
        plot(
            standings_figure(standings),
            key="standings",
            small=True,
            alt=f"Validated accuracy of the start, the best and the last {course.noun}, with 95 % intervals",
        )
        if isinstance(course, Lineage) and not course.controls:
            st.caption("Controls are played at an evolution's end, unless they are switched off.")


def validated_on(course: Course) -> str:
    """What the validated accuracies are of, as markdown."""
    sizes = [f"{one.n:,}" for one in course.validations if one]
    each = " or ".join(dict.fromkeys(sizes))
    of = f" of {label(course.tasks_words, 120)}" if course.plan else ""
    chosen = f"; the best of {len(sizes)} was chosen on these very tasks, so it flatters a little" * (
        len(sizes) > 1
    )
    return (
        f"Validated is the share of right answers on {each} validation tasks{of}, each played once, from which "
        f"nothing was learned{chosen}. In brackets the 95 % interval."
    )


# Beside recorded episodes


_figures = cached(figures)
_played = cached(policies_with_episodes)
_task_sets = cached(task_sets)
_comparable = cached(comparable)
#: Why the two may name different bests.
WHY_APART = "The tasks are not the same, and on so few of them luck alone can change the order of close ones."


def beside_recorded(store: Store, course: Course) -> None:
    """On a run's page: which of its policies the recorded episodes name as the best, on which tasks, and the way
    there."""
    here, names = _played(store), generation_of(store)
    players = {one.policy for one in here}
    mine = [policy for _, policy in sorted(course.policies.items()) if policy in players]
    if not mine:
        st.caption(
            f"No episode of any {course.short} of this run is recorded yet, so Checkpoints shows no accuracy "
            "of it yet."
        )
        return
    ids = _comparable(store, mine) or mine[-1:]
    line, _ = line_of({}, here, ids)
    sides = within(line, here, default_run(line, here)).sides if line else tuple(sides_of(here, ids[0])[:1])
    say, found = side_namer(store), _figures(store, sides)
    best = max(found, key=lambda one: one.summary.accuracy or 0.0)
    tasks = tasks_words(_task_sets(store, sides), families=False)
    often = plays_words(found, [say(one.side) for one in found])
    does = "is the best with" if len(found) > 1 else "has"
    sentence = (
        f"Checkpoints counts recorded episodes of other plays: {tasks}, {often}. There {say(best.side)} {does} "
        f"{_accuracy(best)}{_of_the_validated(course, found, best, players, names)}. {WHY_APART}"
    )
    address = {"c": listed(ids), "base": ids[0]} if len(ids) > 1 else {}
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(label(sentence, 900), width="content")
        state.page_link(
            "checkpoints",
            f"{label(say(best.side), 60)} on Checkpoints",
            icon=":material/balance:",
            b=best.side.policy if best.side.policy != ids[0] else ids[-1],
            **address,
        )


def _accuracy(one: Figures) -> str:
    share, low, high = accuracy_over_tasks(one.by_task)
    return share_words(share, (low, high))


def _of_the_validated(
    course: Course,
    found: Sequence[Figures],
    best: Figures,
    players: set[str],
    names: Mapping[str, int | str | None],
) -> str:
    """What the recorded episodes say of the best validated one, the end of a sentence."""
    number = course.indices[course.best or 0]
    chosen = course.policies.get(number)
    name = policy_name(chosen, names.get(chosen)) if chosen else f"{course.short} {number}"
    own = [one for one in found if one.side.policy == chosen]
    if best.side.policy == chosen:
        return ", as it is here"
    if own:
        return f"; {name}, the best here, has {enumerated([_accuracy(one) for one in own])} there"
    if chosen is None or chosen not in players:
        return f"; {name}, the best here, has no recorded episode"
    return ""
