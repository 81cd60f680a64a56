"""Evolution: how a coordinator came about, generation by generation, or a planner, iteration by iteration. A worker
process learns, this page reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, percent
from ui.presentation.words import dollars, share_words
from ui.runs import wiring
from ui.runs.grading import name_task_file
from ui.runs.queue import LEARNING
from ui.web.components.transport import keys_of
from ui.web.evolution.form import choose_evolution
from ui.web.evolution.lineage import Lineage, evolution_of, read_lineage
from ui.web.evolution.panels import PANELS
from ui.web.evolution.progress import validated_on
from ui.web.evolution.recorded import beside_recorded, validation_of
from ui.web.evolution.stage import compare_with, stage
from ui.web.evolution.status import TEXTS, before_the_first, duration, headline, reached
from ui.web.evolution.training_form import choose_training
from ui.web.evolution.training_page import training_page, training_words
from ui.web.kit import state
from ui.web.kit.buttons import button, tool
from ui.web.kit.widgets import popover
from ui.web.pickers.checkpoints import own_and_shipped, play_link, policy_label
from ui.web.progress.begin import begin, begin_button
from ui.web.progress.panel import is_under_way, watch

#: The panels in the address that are the forms of an evolution and of a training.
BEGIN, BEGIN_TRAINING = "begin", "train"
#: Of a given width, so that the row of buttons breaks on a phone before their words are there.
_BUTTON_PX = 165
KEYS = keys_of("generation")


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
    button("Begin an evolution", "begin_form", act, icon="add", type=look, width=_BUTTON_PX)


def _begin_training_button() -> None:
    act = partial(state.replace_params, {"panel": BEGIN_TRAINING})
    button(
        "Begin a training",
        "begin_training_form",
        act,
        icon="school",
        help=define("Conductor"),
        width=_BUTTON_PX,
    )


# Beginning one


def _form_page(store: Store, runs: Sequence[RunSummary]) -> None:
    st.title("Begin an evolution")
    st.caption(
        "Runs in the background and keeps every generation as a checkpoint; you can close this tab. Stopped, it can "
        "be resumed, here or by `trinity evolve --resume`."
    )
    _back(runs)
    plan, to_do = choose_evolution(store, wiring.settings())
    if begin_button("Begin", "begin", "play_arrow", to_do, width=160) and plan is not None:
        name_task_file(store, plan.tasks)
        begin("evolution", store, plan)


def _training_form_page(store: Store, runs: Sequence[RunSummary]) -> None:
    st.title("Begin a training")
    st.caption(
        "Trains a planner, which writes whole workflows. Runs in the background; you can close this tab. Stopped, it "
        "can be resumed, here or by `trinity train --resume`."
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
        _tiles(store, run, lineage)
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
    left, middle, right = st.columns([7, 5, 9], vertical_alignment="bottom")
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
            "Compare with",
            {"": "nothing", **others},
            name="with",
            key="evolution_with",
            widget="list",
            disabled=not others,
            help="Draws a second run of the same kind on the same axes, such as another learner's.",
        )
    with right, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        _newest_of_the_other_kind(runs, by_id[chosen])
        _begin_button()
        _begin_training_button()
    return by_id[chosen], by_id.get(other)


def _newest_of_the_other_kind(runs: Sequence[RunSummary], shown: RunSummary) -> None:
    """From a training to the newest evolution and back, so that neither hides the other in the list."""
    newest = next((run for run in runs if run.kind != shown.kind), None)
    if newest is not None:
        words = "Newest evolution" if newest.kind == "evolve" else "Newest training"
        forgotten = dict.fromkeys(("gen", "ep", "with", "panel"))
        go = partial(state.set_params, run=newest.id, **forgotten)
        button(
            words, "newest_other", go, icon="trending_up", help=label(_words(newest), 120), width=_BUTTON_PX
        )


def _words(run: RunSummary) -> str:
    """One run in a list, plain text; there may be hundreds, so no generation is read."""
    if run.kind == "train":
        return " · ".join([*training_words(run), run.status, *["sample"] * run.is_sample])
    about = Lineage(run.id, evolution_of(run), ())
    done = f"generation {run.generations - 1}" if run.generations else "not begun"
    return " · ".join([about.name, about.learner_words, done, run.status, *["sample"] * run.is_sample])


# What came of it


def _tiles(store: Store, run: RunSummary, lineage: Lineage) -> None:
    """What came of it and what it took, in a line."""
    last, best = lineage.generations[-1], lineage.best
    facts: list[str] = []
    if best is not None and (one := lineage.validations[best]):
        facts.append(
            f"**Best validated: generation {lineage.indices[best]}**, {share_words(one.accuracy, one.interval)}"
        )
    pace = f", {last.evaluations / last.wall_s:,.0f} a second" if last.evaluations and last.wall_s > 0 else ""
    facts.append(f"**{last.evaluations:,}** episodes in **{duration(last.wall_s)}**{pace}")
    shares = [
        f"**{percent(share)}** of {words}"
        for words, spent, saved in (
            ("replies", "calls", "calls_saved"),
            ("encodings", "forwards", "decisions"),
        )
        if (share := saved_share(lineage, spent, saved)) is not None
    ]
    if shares:
        facts.append(f"{' and '.join(shares)} from cache")
    unfinished = store.evolution.paid_replies(run.id).spent_usd(lineage.indices[-1] + 1)
    ceiling = lineage.plan.max_cost_usd if lineage.plan else None
    cost = lineage.stats[-1].spent_usd + unfinished
    if cost or ceiling is not None:
        of = "" if ceiling is None else f" of {dollars(ceiling)}"
        facts.append(f"{label(dollars(cost) + of, 60)} so far")
    st.markdown(" · ".join(facts), help=f"Time includes validation. {define('Cached reply')}")
    _play_the_best(store, lineage)
    if (validation := validation_of(store, run)) is not None:
        st.caption(validated_on(lineage))
        beside_recorded(store, validation)


def _play_the_best(store: Store, lineage: Lineage) -> None:
    """The way to playing the best validated checkpoint, else the last that is kept, against the shipped one."""
    kept = [one for one in lineage.generations if one.checkpoint_id]
    best = lineage.generations[lineage.best] if lineage.best is not None else None
    one = best if best is not None and best.checkpoint_id else kept[-1] if kept else None
    if one is None or one.checkpoint_id is None:
        return
    models = store.checkpoints.get(one.checkpoint_id).config.get("models", ())
    pair = own_and_shipped(store, models, one.checkpoint_id)
    other = label(policy_label(store)(pair[0]), 60)
    play_link(f"Play generation {one.index} and {other} on the same tasks", pair)


def saved_share(lineage: Lineage, spent: str, saved: str) -> float | None:
    """The share of the work that was not done again. `saved` is counted apart from `spent` for replies, and
    includes it for transcripts read. None in runs that did not count it."""
    done, counted = lineage.total(spent), lineage.total(saved)
    if done is None or counted is None:
        return None
    work = counted if saved == "decisions" else done + counted
    return max(0.0, 1 - done / work) if work else None


# The chosen generation


def _stage(store: Store, lineage: Lineage, second: Lineage | None) -> None:
    """The slider, what the chosen generation is, and the panel of the address; the bar that plays them through."""

    def ways_on(at: int) -> None:
        _ways_on(store, lineage, at)
        words = {name: title for name, (title, _) in PANELS.items()}
        state.address_select("Panel", words, name="panel", key="panel")

    def show(at: int) -> None:
        st.markdown(_generation_line(lineage, at))
        panel = state.param("panel")
        _, draw = PANELS[panel if panel in PANELS else next(iter(PANELS))]
        draw(store, lineage, at, second)

    stage(f"evolution {lineage.run}", "Generation", lineage.indices, ways_on=ways_on, show=show)


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
