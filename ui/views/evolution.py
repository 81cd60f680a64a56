"""Evolution: how a coordinator came about, generation by generation. A worker process evolves, this page reads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import streamlit as st

from storage.sides import Side, figures, task_sets
from storage.store import Store
from storage.summaries import RunStatus, RunSummary
from ui import evolving, live, state, wiring
from ui.chart import plot
from ui.comparing import listed, tasks_words
from ui.evolve_form import choose_evolution
from ui.evolve_status import before_the_first, headline, watch
from ui.glossary import define
from ui.lineage import Lineage, read_lineage
from ui.lineage_panels import PANELS
from ui.live import is_stalled
from ui.remembered import remembered
from ui.spending import dollars
from ui.theme import FIRST_COLOUR, label, percent
from ui.transport import keys_of, moved, steps, tick, transport
from ui.usual import usual_checkpoints
from ui.widgets import standings_figure

#: The panel in the address that is the form.
BEGIN = "begin"
KEYS = keys_of("generation")
_side_figures = remembered(figures)
_task_sets = remembered(task_sets)


def show() -> None:
    """Render the form, or the evolution that the address names, else the newest."""
    store = state.store()
    runs = store.runs.list(kind="evolve", limit=200)
    if state.param("panel") == BEGIN:
        _form_page(store, runs)
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


def _begin_button(*, primary: bool = False) -> None:
    st.button(
        "Begin an evolution",
        key="begin_form",
        icon=":material/add:",
        type="primary" if primary else "secondary",
        on_click=_open_form,
    )


def _open_form() -> None:
    state.replace_params({"panel": BEGIN})


# Beginning one


def _form_page(store: Store, runs: Sequence[RunSummary]) -> None:
    st.title("Begin an evolution")
    st.caption(
        "A process of its own evolves and keeps every generation as a checkpoint. Close the browser and it goes "
        "on; stop it and it can be resumed, here or by `trinity evolve --resume`."
    )
    if runs:
        st.button(
            "Back to the evolutions",
            key="leave_form",
            icon=":material/arrow_back:",
            type="tertiary",
            on_click=state.set_params,
            kwargs={"panel": None},
        )
    config, to_do = choose_evolution(wiring.settings())
    begin = st.button(
        "Begin", key="begin", type="primary", icon=":material/play_arrow:", disabled=bool(to_do), width=160
    )
    if to_do:
        st.caption(label(to_do, 400))
    if begin and config is not None:
        _begin(store, config)


def _begin(store: Store, config: dict[str, object]) -> NoReturn:
    """Queue the run and start its worker; a second click finds the first one's run."""
    run, fresh = evolving.queue(store, config, state.ticket())
    if fresh:
        live.start_worker(store, run)
    state.go("evolution", run=run)


# One evolution


def _run_page(store: Store, runs: Sequence[RunSummary]) -> None:
    st.title("Evolution")
    run, beside = _choose(store, runs)
    lineage = read_lineage(store, run)
    stalled = is_stalled(run, time.time())
    # Slots that are always there: what stands below keeps its place, and no ghost of it stays behind.
    told, watched, below = st.container(), st.container(), st.container()
    with told:
        headline(store, run, lineage, stalled)
    if run.status in (RunStatus.QUEUED, RunStatus.RUNNING) and not stalled:
        with watched:
            watch(store, run)
    with below:
        if not lineage.generations:
            before_the_first(run, stalled)
            return
        _figures(store, run, lineage)
        other = read_lineage(store, beside) if beside is not None and beside.generations else None
        _stage(store, lineage, other)


def _choose(store: Store, runs: Sequence[RunSummary]) -> tuple[RunSummary, RunSummary | None]:
    """The evolution of the address, else the newest, and the one beside it, with what chooses them."""
    by_id = {run.id: run for run in runs}
    asked, asked_beside = state.param("run"), state.param("with")
    run = by_id.get(asked or "", runs[0])
    if asked and asked not in by_id:
        st.info(
            f"The store holds no evolution {label(asked, 40)}: the newest one stands in.",
            icon=":material/info:",
        )
    st.session_state["evolution_run"] = run.id
    others = ["", *(one for one in by_id if one != run.id)]
    st.session_state["evolution_with"] = asked_beside if asked_beside in others else ""
    left, middle, right = st.columns([5, 4, 2], vertical_alignment="bottom")
    left.selectbox(
        "Evolution",
        list(by_id),
        key="evolution_run",
        format_func=lambda value: _words(by_id[value]),
        on_change=lambda: state.set_params(
            run=st.session_state["evolution_run"], gen=None, ep=None, **{"with": None}
        ),
    )
    middle.selectbox(
        "Beside it",
        others,
        key="evolution_with",
        format_func=lambda value: _words(by_id[value]) if value else "nothing",
        disabled=len(others) < 2,
        help="A second evolution on the same axes, such as another learner's.",
        on_change=lambda: state.set_params(**{"with": st.session_state["evolution_with"]}),
    )
    with right:
        _begin_button()
    return run, by_id.get(st.session_state["evolution_with"])


def _words(run: RunSummary) -> str:
    """One evolution in a list, plain text; there may be hundreds, so no generation is read."""
    about = Lineage(run.id, run.config, ())
    done = f"generation {run.generations - 1}" if run.generations else "not begun"
    return " · ".join([about.name, about.learner_words, done, run.status])


# What came of it


def _figures(store: Store, run: RunSummary, lineage: Lineage) -> None:
    last = lineage.generations[-1]
    left, right = st.columns([2, 3], gap="medium")
    with left, st.container(horizontal=True, gap="medium"):
        best = lineage.best
        if best is not None and (one := lineage.validations[best]):
            low, high = one.interval
            st.metric(
                f"Best validated, generation {lineage.indices[best]}",
                percent(one.accuracy),
                help=f"{one.right} of {one.n} held-apart tasks, 95 % interval {percent(low)} to {percent(high)}",
                width="content",
            )
        st.metric("Episodes spent", f"{last.evaluations:,}", width="content")
        st.metric("Time", _duration(last.wall_s), help="Validation included", width="content")
        if last.evaluations and last.wall_s > 0:
            st.metric("Episodes a second", f"{last.evaluations / last.wall_s:,.0f}", width="content")
        for words, spent, saved, help in (
            ("Replies known already", "calls", "calls_saved", define("Known reply")),
            ("Transcripts not read again", "forwards", "decisions", "Shared by candidates that stood alike"),
        ):
            share = saved_share(lineage, spent, saved)
            if share is not None:
                st.metric(words, percent(share), help=help, width="content")
        _cost(store, run, lineage)
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


def saved_share(lineage: Lineage, spent: str, saved: str) -> float | None:
    """The share of the work that was not done again. `saved` is counted beside `spent` for replies, and holds it for
    transcripts read. None in runs that did not count it."""
    done, counted = lineage.total(spent), lineage.total(saved)
    if done is None or counted is None:
        return None
    whole = counted if saved == "decisions" else done + counted
    return max(0.0, 1 - done / whole) if whole else None


def _cost(store: Store, run: RunSummary, lineage: Lineage) -> None:
    ledger = store.evolution.paid_replies(run.id)
    spent = lineage.spent_usd + ledger.spent_usd(lineage.indices[-1] + 1)
    ceiling = run.config.get("max_cost_usd")
    of = "" if ceiling is None else f" of {dollars(float(ceiling))}"
    st.metric(
        "Cost so far", f"{dollars(spent)}{of}", help="Of its ceiling, where it has one", width="content"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _recorded(store: Store, lineage: Lineage) -> None:
    """Beside the validated accuracy the one that Checkpoints tells, which is of recorded episodes."""
    best = lineage.best
    validated = None if best is None else lineage.validations[best]
    checkpoint = None if best is None else lineage.generations[best].checkpoint_id
    if best is None or validated is None or checkpoint is None:
        return
    side = Side(checkpoint)
    did = _side_figures(store, (side,))[0].summary
    ours = f"Generation {lineage.indices[best]} has {percent(validated.accuracy)} here, and"
    if not did.n:
        st.caption(
            f"No episode of generation {lineage.indices[best]} is recorded yet for Checkpoints to count."
        )
        return
    sets = _task_sets(store, (side,))
    other = "other tasks" if all(one.split != "validation" for one in sets) else "tasks of its own choice"
    st.caption(
        label(
            f"{ours} {percent(did.accuracy)} on Checkpoints, which counts recorded episodes of {other}: "
            f"{tasks_words(sets)}.",
            900,
        )
    )
    ids = usual_checkpoints(store)
    state.page_link(
        "checkpoints",
        "Recorded episodes on Checkpoints",
        icon=":material/balance:",
        **(
            {"c": listed(ids), "base": ids[0], "b": checkpoint}
            if checkpoint in ids[1:]
            else {"b": checkpoint}
        ),
    )


def _standings_words(lineage: Lineage) -> str:
    measured = sum(1 for one in lineage.validations if one and one.n)
    each = ", ".join(dict.fromkeys(f"{one.n:,}" for one in lineage.validations if one and one.n))
    tasks = label(Path(str(lineage.config.get("tasks", ""))).name, 60)
    of = f" of {tasks}" if tasks else ""
    said = (
        f"Accuracy on the evolution's own {each} validation tasks{of}, which it did not learn from, with its 95 % "
        "Wilson interval. "
    )
    if measured > 1:
        said += (
            f"The best of {measured} validations was chosen on these very tasks, so it flatters a little. "
        )
    if not lineage.controls:
        said += "Controls are played at an evolution's end, unless they are switched off."
    return said


# The chosen generation


def _stage(store: Store, lineage: Lineage, beside: Lineage | None) -> None:
    """The slider, what the chosen generation is, and the panel of the address; the bar that plays them through."""
    total = len(lineage.generations)
    asked = state.int_param("gen", 0, 10**9, lineage.indices[-1])
    at = lineage.position(asked)

    def go(place: int) -> None:
        state.set_params(gen=lineage.indices[place])

    if total > 1:
        st.session_state["generation"] = lineage.indices[at]
        st.select_slider(
            "Generation",
            lineage.indices,
            key="generation",
            on_change=lambda: moved(go)(lineage.position(st.session_state["generation"])),
        )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        steps(at, total, go, KEYS)
        _ways_on(store, lineage, at)
    st.markdown(_generation_line(lineage, at))
    panel = state.choice(
        "Panel", {name: words for name, (words, _) in PANELS.items()}, name="panel", key="panel"
    )
    PANELS[panel][1](store, lineage, at, beside)
    what = f"evolution {lineage.run}"
    transport(what, at, total, go, "Generation", f"Generation {lineage.indices[at]} of {lineage.indices[-1]}")
    tick(what, at, total, 0, go)


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
    with st.popover(
        "Compare", icon=":material/balance:", type="tertiary", on_change="rerun", key="compare_generations"
    ) as popover:
        if popover.open:
            _compare(store, lineage, at)


def _compare(store: Store, lineage: Lineage, at: int) -> None:
    one = lineage.generations[at]
    others = [other for other in lineage.generations if other.checkpoint_id and other.index != one.index]
    if not others:
        st.caption("There is no other generation yet.")
        return
    by_index = {other.index: other for other in others}
    index = st.selectbox(
        f"Generation {one.index} with",
        list(by_index),
        index=len(others) - 1 if at == 0 else 0,
        key=f"compare_with_{one.index}",
        format_func=lambda value: f"generation {value}",
    )
    one, other = sorted((one, by_index[index]), key=lambda which: which.index, reverse=True)
    played = {facet.value for facet in store.episodes.facets().policy}
    missing = [which for which in (other, one) if which.checkpoint_id not in played]
    if missing:
        names = " and ".join(f"generation {which.index}" for which in missing)
        st.caption(f"No episode of {names} is recorded: record the same tasks under both first.")
        st.code(
            f"trinity run --policy {other.checkpoint_id} --policy {one.checkpoint_id} --n 100",
            language=None,
            wrap_lines=True,
        )
        return
    state.page_link(
        "checkpoints",
        f"Compare generations {other.index} and {one.index}",
        icon=":material/balance:",
        base=other.checkpoint_id,
        b=one.checkpoint_id,
    )


if __name__ == "__main__":
    state.run(show)
