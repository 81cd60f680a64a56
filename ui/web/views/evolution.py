"""Evolution: how a coordinator came about, generation by generation, or a planner, iteration by iteration. A worker
process learns, this page reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from storage.analysis.standings import PolicySide, figures, policies_with_episodes, sides_of, task_sets
from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.comparison import tasks_words
from ui.presentation.glossary import define
from ui.presentation.theme import FIRST_COLOUR, label, percent
from ui.presentation.words import dollars, if_paid, setting_words
from ui.runs import wiring
from ui.runs.grading import name_task_file
from ui.runs.queue import LEARNING
from ui.web.components.transport import keys_of
from ui.web.evolution.form import choose_evolution
from ui.web.evolution.lineage import Lineage, evolution_of, read_lineage
from ui.web.evolution.panels import PANELS
from ui.web.evolution.stage import compare_with, stage
from ui.web.evolution.status import TEXTS, before_the_first, duration, headline, reached
from ui.web.evolution.training_form import choose_training
from ui.web.evolution.training_page import training_page, training_words
from ui.web.kit import state
from ui.web.kit.buttons import button, tool
from ui.web.kit.cache import cached
from ui.web.kit.chart import plot
from ui.web.kit.widgets import popover, standings_figure
from ui.web.pickers.checkpoints import default_checkpoints
from ui.web.pickers.line import listed
from ui.web.progress.begin import begin, begin_button
from ui.web.progress.panel import is_under_way, watch

#: The panels in the address that are the forms of an evolution and of a training.
BEGIN, BEGIN_TRAINING = "begin", "train"
KEYS = keys_of("generation")
_side_figures = cached(figures)
_task_sets = cached(task_sets)
_played = cached(policies_with_episodes)


def show() -> None:
    """Render a form, or the evolution or training that the address names, else the newest."""
    store = state.store()
    runs = [run for kind in LEARNING for run in store.runs.list(kind=kind, limit=200)]
    runs.sort(key=lambda run: run.created, reverse=True)
    if state.param("panel") == BEGIN:
        _form_page(store, runs)
    elif state.param("panel") == BEGIN_TRAINING:
        _training_form_page(store, runs)
    elif not runs:
        _empty()
    else:
        _run_page(store, runs)


def _empty() -> None:
    st.title("Evolution")
    with st.container(border=True):
        st.subheader("No evolution yet", anchor=False)
        st.write(
            "An evolution makes a coordinator: candidates are drawn, play, and the best of them move the mean. "
            "A small one on the pocket world takes a minute, needs no key and costs nothing."
        )
        _begin_button(primary=True)
    with st.container(border=True):
        st.subheader("No training yet", anchor=False)
        st.write(
            "A training makes a planner, a language model that writes whole workflows: it writes several for each "
            "question, they are played, and those that did better are made likelier."
        )
        _begin_training_button()


def _begin_button(*, primary: bool = False) -> None:
    look, act = "primary" if primary else "secondary", partial(state.replace_params, {"panel": BEGIN})
    button("Begin an evolution", "begin_form", act, icon="add", type=look)


def _begin_training_button() -> None:
    act = partial(state.replace_params, {"panel": BEGIN_TRAINING})
    button("Begin a training", "begin_training_form", act, icon="school", help=define("Conductor"))


# Beginning one


def _form_page(store: Store, runs: Sequence[RunSummary]) -> None:
    st.title("Begin an evolution")
    st.caption(
        "A process of its own evolves and keeps every generation as a checkpoint. Close the browser and it goes "
        "on; stop it and it can be resumed, here or by `trinity evolve --resume`."
    )
    _back(runs)
    plan, to_do = choose_evolution(store, wiring.settings())
    if begin_button("Begin", "begin", "play_arrow", to_do, width=160) and plan is not None:
        name_task_file(store, plan.tasks)
        begin("evolution", store, plan)


def _training_form_page(store: Store, runs: Sequence[RunSummary]) -> None:
    st.title("Begin a training")
    st.caption(
        "A process of its own trains a planner, which writes whole workflows. Close the browser and it goes on; stop "
        "it and it can be resumed, here or by `trinity train --resume`."
    )
    _back(runs)
    plan, to_do = choose_training(store, wiring.settings())
    if begin_button("Begin", "begin", "play_arrow", to_do, width=160) and plan is not None:
        name_task_file(store, plan.tasks)
        begin("evolution", store, plan)


def _back(runs: Sequence[RunSummary]) -> None:
    if runs:
        tool("Back to the evolutions", "leave_form", partial(state.set_params, panel=None), icon="arrow_back")


# One evolution


def _run_page(store: Store, runs: Sequence[RunSummary]) -> None:
    title = st.empty()
    run, second = _choose(store, runs)
    title.title("Training" if run.kind == "train" else "Evolution")
    if run.kind == "train":
        training_page(store, run, second)
        return
    lineage = read_lineage(store, run)
    # Slots that are always there: what stands below keeps its place, and no ghost of it stays behind.
    top, progress, below = st.container(), st.container(), st.container()
    with top:
        headline(store, run, lineage)
    if is_under_way(run):
        with progress:
            watch(store, run, TEXTS, reached)
    with below:
        if not lineage.generations:
            before_the_first(run)
            return
        _figures(store, run, lineage)
        other = read_lineage(store, second) if second is not None and second.generations else None
        _stage(store, lineage, other)


def _choose(store: Store, runs: Sequence[RunSummary]) -> tuple[RunSummary, RunSummary | None]:
    """The run of the address, else the newest, and a second one of its kind beside it, with what chooses them."""
    by_id = {run.id: run for run in runs}
    named = state.param("run")
    if named and named not in by_id:
        st.info(
            f"The store holds no evolution or training {label(named, 40)}: the newest one is shown instead.",
            icon=":material/info:",
        )
    words = {run.id: _words(run) for run in runs}
    left, middle, right = st.columns([5, 4, 2], vertical_alignment="bottom")
    with left:
        chosen = state.address_select(
            "Evolution or training",
            words,
            name="run",
            key="evolution_run",
            default=runs[0].id,
            forgets=("gen", "ep", "with"),
            widget="list",
        )
    kind = by_id[chosen].kind
    others = {run: words[run] for run in words if run != chosen and by_id[run].kind == kind}
    with middle:
        other = state.address_select(
            "Beside it",
            {"": "nothing", **others},
            name="with",
            key="evolution_with",
            widget="list",
            disabled=not others,
            help="A second one of its kind on the same axes, such as another learner's.",
        )
    with right:
        _begin_button()
        _begin_training_button()
    return by_id[chosen], by_id.get(other)


def _words(run: RunSummary) -> str:
    """One run in a list, plain text; there may be hundreds, so no generation is read."""
    if run.kind == "train":
        return " · ".join([*training_words(run), run.status, *["sample"] * run.sample])
    about = Lineage(run.id, evolution_of(run), ())
    done = f"generation {run.generations - 1}" if run.generations else "not begun"
    return " · ".join([about.name, about.learner_words, done, run.status, *["sample"] * run.sample])


# What came of it


def _figures(store: Store, run: RunSummary, lineage: Lineage) -> None:
    left, right = st.columns([2, 3], gap="medium")
    with left, st.container(horizontal=True, gap="medium", key="figures"):
        for words, value, help in _spent(store, run, lineage):
            st.metric(words, value, help=help, width="content")
    standings = lineage.standings(FIRST_COLOUR)
    if standings:
        with right, st.container(border=True):
            st.markdown("**Is it better than what learned nothing?**", help=define("Control"))
            plot(
                standings_figure(standings),
                key="standings",
                small=True,
                alt="Validated accuracy of the best and last generation beside the controls, with 95 % intervals",
            )
            st.caption(_standings_words(lineage))
            _recorded(store, lineage)


def _spent(store: Store, run: RunSummary, lineage: Lineage) -> list[tuple[str, str, str | None]]:
    """What came of it and what it took: words, value, help."""
    last, best = lineage.generations[-1], lineage.best
    figures: list[tuple[str, str, str | None]] = []
    if best is not None and (one := lineage.validations[best]):
        low, high = one.interval
        words = f"Best validated, generation {lineage.indices[best]}"
        help = f"{one.right} of {one.n} held-apart tasks, 95 % interval {percent(low)} to {percent(high)}"
        figures.append((words, percent(one.accuracy), help))
    figures.append(("Episodes spent", f"{last.evaluations:,}", None))
    figures.append(("Time", duration(last.wall_s), "Validation included"))
    if last.evaluations and last.wall_s > 0:
        figures.append(("Episodes a second", f"{last.evaluations / last.wall_s:,.0f}", None))
    for words, spent, saved, help in (
        ("Replies known already", "calls", "calls_saved", define("Known reply")),
        ("Transcripts not read again", "forwards", "decisions", "Shared by candidates that stood alike"),
    ):
        share = saved_share(lineage, spent, saved)
        if share is not None:
            figures.append((words, percent(share), help))
    unfinished = store.evolution.paid_replies(run.id).spent_usd(lineage.indices[-1] + 1)
    ceiling = lineage.plan.max_cost_usd if lineage.plan else None
    of = "" if ceiling is None else f" of {dollars(ceiling)}"
    paid = if_paid(lineage.stats[-1].spent_usd + unfinished) or ([] if ceiling is None else [dollars(0)])
    return [*figures, *(("Cost so far", f"{one}{of}", "Of its ceiling, where it has one") for one in paid)]


def saved_share(lineage: Lineage, spent: str, saved: str) -> float | None:
    """The share of the work that was not done again. `saved` is counted apart from `spent` for replies, and
    includes it for transcripts read. None in runs that did not count it."""
    done, counted = lineage.total(spent), lineage.total(saved)
    if done is None or counted is None:
        return None
    work = counted if saved == "decisions" else done + counted
    return max(0.0, 1 - done / work) if work else None


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


# The chosen generation


def _stage(store: Store, lineage: Lineage, second: Lineage | None) -> None:
    """The slider, what the chosen generation is, and the panel of the address; the bar that plays them through."""

    def show(at: int) -> None:
        st.markdown(_generation_line(lineage, at))
        words = {name: title for name, (title, _) in PANELS.items()}
        panel = state.address_select("Panel", words, name="panel", key="panel")
        PANELS[panel][1](store, lineage, at, second)

    stage(
        f"evolution {lineage.run}",
        "Generation",
        lineage.indices,
        ways_on=partial(_ways_on, store, lineage),
        show=show,
    )


def _generation_line(lineage: Lineage, at: int) -> str:
    one = lineage.generations[at]
    parts = [f"**Generation {one.index}**"]
    if one.index > 0:
        parts.append(f"mean {percent(one.mean)}, best {percent(one.best)}, median {percent(one.median)}")
    validated = lineage.validations[at]
    if validated is not None:
        low, high = validated.interval
        parts.append(
            f"validated **{percent(validated.accuracy)}** of {validated.n} ({percent(low)} to {percent(high)})"
        )
    parts.append(f"{lineage.reach_words} {one.sigma:.3g}")
    if one.checkpoint_id:
        parts.append(f":gray[checkpoint {label(one.checkpoint_id)}]")
    return " · ".join(parts)


def _ways_on(store: Store, lineage: Lineage, at: int) -> None:
    """Playing the chosen checkpoint live, and comparing it with another generation's."""
    one = lineage.generations[at]
    if not one.checkpoint_id:
        return
    state.page_link(
        "live", "Play this checkpoint live", icon=":material/play_circle:", play=one.checkpoint_id
    )
    if lineage.plan and lineage.plan.record != "none":
        state.page_link(
            "episodes",
            "Its recorded episodes",
            icon=":material/table_rows:",
            run=lineage.run,
            generation=one.index,
        )
    kept = {other.index: other.checkpoint_id for other in lineage.generations if other.checkpoint_id}
    compare = partial(compare_with, store, "generation", kept, one.index)
    popover("Compare", "compare_generations", compare, icon="balance")


if __name__ == "__main__":
    state.run(show)
