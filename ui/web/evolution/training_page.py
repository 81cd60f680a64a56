"""A training on the Evolution page: where it stands, what came of it, and its iterations one by one."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import streamlit as st

from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, percent
from ui.presentation.words import ago, dollars, if_paid
from ui.web.evolution.recorded import beside_recorded, validation_of
from ui.web.evolution.stage import compare_with, stage
from ui.web.evolution.status import before_the_first, duration, removable
from ui.web.evolution.training import Training, read_training, training_of
from ui.web.evolution.training_panels import PANELS, commands
from ui.web.kit import state
from ui.web.kit.chart import plot
from ui.web.kit.widgets import popover, standings_figure
from ui.web.pickers.checkpoints import own_and_shipped, play_link
from ui.web.progress.panel import Reached, RunTexts, is_under_way, standing, watch

TEXTS = RunTexts(
    process="learns",
    stored="Every finished iteration is kept, and every reply that was paid for.",
    stop="Stop",
    stop_help="Stops before the next call or iteration. All that was paid for is kept, and it can be resumed.",
    stopping="Stopping at the next safe moment: before the next call or iteration …",
)


#: Of a given width, so that tiles keep their places while the page loads; two stand side by side on a phone.
_TILE_PX = 168


def training_page(store: Store, run: RunSummary, second: RunSummary | None) -> None:
    """Everything below the list of runs; `second` is a training on the same axes."""
    training = read_training(store, run)
    # Slots that are always there: what stands below keeps its place, and no ghost of it stays behind.
    top, progress, below = st.container(), st.container(), st.container()
    with top:
        _headline(store, run, training)
    if is_under_way(run):
        with progress:
            watch(store, run, TEXTS, reached)
    with below:
        if not training.iterations:
            before_the_first(run, "iteration")
            return
        _figures(store, run, training)
        other = read_training(store, second) if second is not None and second.generations else None
        stage(
            f"training {training.run}",
            "Iteration",
            training.indices,
            ways_on=partial(_ways_on, store, training),
            show=partial(_show, store, training, other),
        )


def training_words(run: RunSummary) -> list[str]:
    """A training in a list: its name, what it is, how far it is."""
    done = f"iteration {run.generations - 1}" if run.generations else "not begun"
    return [Training(run.id, training_of(run), ()).name, "Conductor", done]


def _headline(store: Store, run: RunSummary, training: Training) -> None:
    """What it is, how far it came, why it stopped, and how to go on with it or remove it."""
    done = training.indices[-1] if training.indices else 0
    of = f" of {training.planned}" if training.planned else ""
    grey = [f"Conductor, {label(training.begins_as, 60)}"]
    if plan := training.plan:
        learning = plan.learning
        grey.append(f"tasks {label(plan.tasks, 40)}")
        grey.append(f"{learning.questions} questions with {learning.rollouts} rollouts each")
        grey.append(f"seed {learning.seed}")
    grey.append(f"begun {ago(run.created, time.time())}")
    facts = [f"iteration **{done}**{of}", *(f":gray[{one}]" for one in grey)]
    saved = "Resume" if run.generations else "Start again"
    standing(store, run, TEXTS, facts, go_on=saved)
    removable(store, run, "Nothing was learned; this frees its name.")


def reached(store: Store, run: RunSummary) -> Reached:
    """How many iterations are over, and how long the others take by the pace of the last five."""
    training = read_training(store, run)
    done, planned = (training.indices[-1] if training.indices else -1), training.planned or 1
    if done < 0:
        return Reached(0, planned, "The planner learns the form of workflows, and questions are chosen")
    words = f"Iteration {min(done + 1, planned)} of {planned} is being played"
    if done < 2:
        return Reached(done, planned, words)
    last = training.iterations[-min(5, done + 1) :]
    pace_s = (last[-1].wall_s - last[0].wall_s) / max(1, last[-1].index - last[0].index)
    return Reached(done, planned, words, pace_s * (planned - done))


# What came of it


def _figures(store: Store, run: RunSummary, training: Training) -> None:
    left, right = st.columns([2, 3], gap="medium")
    with left, st.container(horizontal=True, gap="small"):
        for words, value, help in _spent(store, run, training):
            st.metric(words, value, help=help, width=_TILE_PX)
    if standings := training.standings():
        with right, st.container(border=True):
            st.markdown("**Is it better than what it began as?**", help=define("Iteration"))
            plot(
                standings_figure(standings),
                key="training_standings",
                small=True,
                alt="Validated accuracy of the start, the best and the last iteration, with 95 % intervals",
            )
            st.caption(_standings_words(training))
            if (validation := validation_of(store, run)) is not None:
                beside_recorded(store, validation)


def _spent(store: Store, run: RunSummary, training: Training) -> list[tuple[str, str, str | None]]:
    """What came of it and what it took: words, value, help."""
    last, best = training.iterations[-1], training.best
    figures: list[tuple[str, str, str | None]] = []
    if best is not None and (one := training.validations[best]):
        low, high = one.interval
        words = f"Best, iteration {training.indices[best]}"
        help = f"{one.right} of {one.n} held-apart tasks, 95 % interval {percent(low)} to {percent(high)}"
        figures.append((words, percent(one.share), help))
    figures.append(
        ("Episodes", f"{last.episodes:,}", "Rollouts and validation; not those that chose the questions")
    )
    figures.append(("Pool tokens", f"{training.tokens[-1]:,}", "Read and written in these episodes"))
    written = sum(one.written_tokens for one in training.stats)
    figures.append(("Planner tokens", f"{written:,}", "Written by the planner in its rollouts"))
    figures.append(("Time", duration(last.wall_s), "Validation included"))
    calls, saved = (sum(getattr(one, name) for one in training.stats) for name in ("calls", "calls_saved"))
    if calls + saved:
        figures.append(("Replies from cache", percent(saved / (calls + saved)), define("Cached reply")))
    unfinished = store.planners.paid_replies(run.id).spent_usd(training.indices[-1] + 1)
    ceiling = training.plan.max_cost_usd if training.plan else None
    of = "" if ceiling is None else f" of {dollars(ceiling)}"
    spent = if_paid(last.spent_usd + unfinished) or ([] if ceiling is None else [dollars(0)])
    return [*figures, *(("Cost so far", f"{one}{of}", "Of its ceiling, where it has one") for one in spent)]


def _standings_words(training: Training) -> str:
    measured = [one for one in training.validations if one]
    of = f" of {label(Path(training.plan.tasks).name, 60)}" if training.plan else ""
    kinds = f" ({label(', '.join(training.families), 120)})" if len(training.families) > 1 else ""
    sentence = (
        f"Accuracy is the share of right answers on {measured[0].n:,} validation tasks{of}{kinds}, each played once; "
        "it did not learn from them. With its 95 % interval. Tasks of other kinds can turn out otherwise."
    )
    if len(measured) > 1:
        sentence += f" The best of {len(measured)} validations was chosen on these very tasks, so it flatters a little."
    return sentence


# The chosen iteration


def _show(store: Store, training: Training, second: Training | None, at: int) -> None:
    """What the chosen iteration is, and the panel of the address."""
    st.markdown(_iteration_line(training, at))
    panel = state.address_select(
        "Panel", {name: title for name, (title, _) in PANELS.items()}, name="panel", key="training_panel"
    )
    PANELS[panel][1](store, training, at, second)


def _iteration_line(training: Training, at: int) -> str:
    one, stats, validated = training.iterations[at], training.stats[at], training.validations[at]
    parts = [f"**Iteration {one.index}**"]
    if (played := stats.rollouts) is not None:
        parts.append(
            f"{percent(played.right)} of {played.n:,} rollouts right, {percent(played.readable)} readable"
            f"{' (forced by the grammar)' if training.forced else ''}"
        )
        parts.append(f"mean reward {stats.reward_mean:.2f}, signal {percent(stats.signal)}")
        if played.steps_mean == played.steps_mean:
            parts.append(f"{played.steps_mean:.1f} steps")
        if played.missing:
            parts.append(f"{played.missing:,} missing")
    if validated is not None:
        low, high = validated.interval
        parts.append(
            f"validated **{percent(validated.share)}** of {validated.n} ({percent(low)} to {percent(high)})"
        )
    if one.planner_id:
        parts.append(f":gray[checkpoint {label(one.planner_id)}]")
    return " · ".join(parts)


def _ways_on(store: Store, training: Training, at: int) -> None:
    """The episodes and workflows of the chosen iteration's planner, comparing it, and what to type for it."""
    one = training.iterations[at]
    policy = training.policies.get(one.index)
    if policy is None or one.planner_id is None:
        return
    if one.planner_id in store.planners.ids_with_episodes():
        state.page_link("episodes", "Its episodes", icon=":material/table_rows:", policy=policy)
        state.page_link("routing", "Its workflows", icon=":material/route:", policy=policy, part="workflows")
    models = store.planners.get(one.planner_id).card.get("models", ())
    play_link("Play it and another on the same tasks", own_and_shipped(store, models, policy))
    compare = partial(compare_with, store, "iteration", training.policies, one.index)
    popover("Compare", "compare_iterations", compare, icon="balance")
    popover(
        "Play or export it",
        "training_commands",
        partial(commands, one.planner_id, one.index),
        icon="terminal",
    )
