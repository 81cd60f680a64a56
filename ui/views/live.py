"""Live: play a problem now. A worker process plays it; this page steers and reads along."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NoReturn

import streamlit as st

from core.episode import EndReason, Role, Status
from core.errors import ConfigError
from storage.store import Store
from storage.summaries import RunStatus, RunSummary
from ui import live, state, wiring
from ui.components.turn_strip import turn_strip
from ui.course import lane
from ui.decision_panels import decision_panel
from ui.live import LivePlan, episode_of, is_stalled, queue
from ui.live_form import choose_policy, choose_task, playable, pool_specs, spending
from ui.panels import announcement, turn_card
from ui.recording import Recording, open_recording
from ui.spending import estimate
from ui.theme import END_WORDS, ROLE_LOOKS, Mark, badge, correct_mark, label, one_line
from ui.transport import Keys
from ui.widgets import RUN_MARKS, STALLED, ago, generations, nothing_here, who, worker_trouble

#: How often a run under way is read again, in seconds.
REFRESH_S = 0.7
KEYS: Keys = (("T", "play the next turn, while the run waits for you"),)
_LOADING = "Starting: the worker loads the coordinator and the models …"
_UNDECIDED = "Nothing is decided yet."
_PAUSED = Mark("‖", ":material/pause_circle:", "waiting for you", "orange", "#B85C00")


def show() -> None:
    """Render the form, or the run that the address names."""
    store = state.store()
    if run := state.param("run"):
        _run_page(store, run)
    else:
        _form_page(store)


# Starting a run


def _form_page(store: Store) -> None:
    st.title("Play a problem live")
    st.caption(
        "A process of its own plays the episode and writes every turn into the store. Close the "
        "browser and it goes on; come back and it is here."
    )
    settings = wiring.settings()
    specs = pool_specs(settings.pool)
    models = tuple(spec.name for spec in specs)
    left, right = st.columns([3, 2], gap="large")
    with left:
        task = choose_task()
        with st.container(border=True):
            plan = choose_policy(store, models, settings.pool, settings.encoder)
        ceiling, to_do = spending(specs, estimate(specs, 1, plan.turns), settings.max_cost_usd)
        if task is None:
            to_do = "Write the question and the expected answer first."
        play = st.button(
            "Play", key="play", type="primary", icon=":material/play_arrow:", disabled=bool(to_do), width=160
        )
        if to_do:
            st.caption(label(to_do, 400))
        if play and task is not None:
            _start(store, replace(plan, task=task, max_cost_usd=ceiling))
    with right:
        _recent(store)


def _start(store: Store, plan: LivePlan) -> NoReturn:
    run, fresh = queue(store, plan, state.ticket())
    if fresh:
        live.start_worker(store, run)
    state.go("live", run=run)


def _recent(store: Store) -> None:
    st.subheader("Live runs")
    runs = store.runs.list(kind="live", limit=10)
    if not runs:
        nothing_here("None yet. The first one will be listed here.")
        return
    now = time.time()
    with st.container(border=True):
        for run in runs:
            mark = STALLED if is_stalled(run, now) else RUN_MARKS[run.status]
            st.button(
                f":blue[{label(_question(run), 60) or label(run.id)}]",
                key=f"open_{run.id}",
                type="tertiary",
                on_click=state.set_params,
                kwargs={"run": run.id, "t": None},
            )
            right = f" · {badge(correct_mark(bool(run.correct)))}" if run.finished_episodes else ""
            st.caption(f"{badge(mark)}{right} · {ago(run.created, now)}")


def _question(run: RunSummary) -> str:
    task = run.config.get("task")
    return one_line(str(task.get("question", "")), 240) if isinstance(task, dict) else ""


# Watching a run


def _run_page(store: Store, run_id: str) -> None:
    run = store.runs.get(run_id)
    if run.kind != "live":
        raise ConfigError(f"Run {run_id} was not started here: open its episodes from the list.")
    over = run.status not in (RunStatus.QUEUED, RunStatus.RUNNING)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "New problem",
            key="new_problem",
            icon=":material/arrow_back:",
            type="tertiary",
            on_click=state.set_params,
            kwargs={"run": None, "t": None},
        )
    st.markdown(f"#### {label(_question(run), 220)}")
    if over:
        _watch(store, run_id)
    else:
        st.fragment(lambda: state.guarded(_watch)(store, run_id), run_every=REFRESH_S, key="live_tail")()


def _watch(store: Store, run_id: str) -> None:
    """What the run has come to; read again while it is under way."""
    run = store.runs.get(run_id)
    was_over = st.session_state.get("live_over") == run_id
    over = run.status not in (RunStatus.QUEUED, RunStatus.RUNNING)
    if over and not was_over:
        st.session_state["live_over"] = run_id
        st.rerun()
    if not over and was_over:
        del st.session_state["live_over"]
    begun = bool(store.episodes.of_run(run_id))
    recording = open_recording(store, episode_of(run_id)) if begun else None
    stalled = is_stalled(run, time.time())
    _headline(store, run, recording, stalled)
    if not over and not stalled:
        _reins(store, run, recording)
    if recording is None or not recording.outlines:
        if not over and not stalled:
            with st.container(border=True):
                st.markdown(
                    f":gray[:material/hourglass_top: {_LOADING if recording is None else _UNDECIDED}]"
                )
        return
    _stage(recording)
    if over:
        _afterwards(store, run, recording)


def _headline(store: Store, run: RunSummary, recording: Recording | None, stalled: bool) -> None:
    paused = run.status is RunStatus.RUNNING and store.runs.control(run.id).paused
    starting = recording is None and run.status is RunStatus.RUNNING
    mark = RUN_MARKS[RunStatus.QUEUED if starting else run.status]
    if stalled:
        mark = STALLED
    elif paused and _between_turns(recording):
        mark = _PAUSED
    parts = [f"**{badge(mark)}**"]
    if recording is not None:
        summary = recording.summary
        if summary.status is Status.FINISHED:
            outcome = correct_mark(summary.correct)
            parts.append(f"answer **{label(summary.answer or '–', 60)}** is {badge(outcome)}")
        if summary.end_reason is not None and summary.end_reason is not EndReason.CANCELLED:
            parts.append(END_WORDS[summary.end_reason])
        parts.append(f":gray[{label(who(summary.policy, summary.generation), 60)}]")
        parts.append(f":gray[turn {len(recording.outlines)} of at most {recording.episode.turn_budget}]")
        parts.append(f":gray[expected answer {label(recording.episode.task.answer, 40)}]")
    st.markdown(" · ".join(parts))
    worker_trouble(
        run, live.log_file(run.id), "plays this run", "Every finished turn is kept.", stalled=stalled
    )
    if stalled or run.status is RunStatus.INTERRUPTED:
        st.button(
            "Go on after the last turn",
            key="resume",
            icon=":material/restart_alt:",
            type="primary",
            on_click=state.guarded(_resume, state.refused),
            args=(store, run.id),
        )


def _resume(store: Store, run_id: str) -> None:
    st.session_state.pop("live_over", None)
    live.resume(store, run_id)


def _between_turns(recording: Recording | None) -> bool:
    return recording is not None and all(outline.stage == "finished" for outline in recording.outlines)


def _reins(store: Store, run: RunSummary, recording: Recording | None) -> None:
    """Cancel, wait, go on, and the decision taken over by hand."""
    control = store.runs.control(run.id)
    paused = control.paused
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if paused:
            st.button(
                "Next turn",
                key="next_turn",
                type="primary",
                icon=":material/skip_next:",
                shortcut="T",
                disabled=not _between_turns(recording) or control.steps > 0,
                on_click=state.guarded(store.runs.step, state.refused),
                args=(run.id,),
            )
            st.button(
                "Play on",
                key="play_on",
                icon=":material/play_arrow:",
                on_click=state.guarded(store.runs.unpause, state.refused),
                args=(run.id,),
            )
        else:
            st.button(
                "Wait after this turn",
                key="pause",
                icon=":material/pause:",
                on_click=state.guarded(store.runs.pause, state.refused),
                args=(run.id,),
            )
        st.button(
            "Cancel",
            key="cancel",
            icon=":material/stop_circle:",
            disabled=control.cancel,
            on_click=state.guarded(store.runs.cancel, state.refused),
            args=(run.id,),
        )
        _follow_toggle()
        if control.cancel:
            st.caption("Cancelling at the next moment it can …")
    if paused and _between_turns(recording):
        _take_over(store, run, len(recording.outlines) if recording else 0)


def _follow_toggle() -> None:
    st.session_state["follow"] = state.param("t") is None
    st.toggle("Follow", key="follow", help="Keep the newest turn in view", on_change=_set_follow)


def _set_follow() -> None:
    if st.session_state["follow"]:
        state.set_params(t=None)
    else:
        state.set_params(t=st.session_state.get("live_cursor", 0) + 1)


def _take_over(store: Store, run: RunSummary, index: int) -> None:
    """One decision made by a person; recorded as an override."""
    plan = LivePlan.from_config(run.config)
    chosen = store.runs.override(episode_of(run.id), index)
    if index >= plan.turns:
        return
    with st.container(border=True):
        if chosen:
            st.markdown(
                f":material/back_hand: Turn {index + 1} is yours: **{ROLE_LOOKS[chosen[1]].word}** on "
                f"**{label(chosen[0], 40)}**. *Next turn* plays it."
            )
        else:
            st.markdown(
                f":material/back_hand: **Take over turn {index + 1}**, or let the coordinator decide."
            )
        left, middle, right = st.columns([2, 2, 1], vertical_alignment="bottom")
        models = [model for model in plan.models if model not in plan.left_out]
        left.selectbox("Model", models, key="override_model")
        middle.selectbox(
            "Role", list(ROLE_LOOKS), key="override_role", format_func=lambda role: ROLE_LOOKS[role].word
        )
        right.button(
            "Take over",
            key="take_over",
            icon=":material/back_hand:",
            on_click=state.guarded(_override, state.refused),
            args=(store, episode_of(run.id), index),
        )


def _override(store: Store, episode_id: str, index: int) -> None:
    store.runs.set_override(
        episode_id, index, st.session_state["override_model"], Role(st.session_state["override_role"])
    )


def _stage(recording: Recording) -> None:
    """The replay of what there is: the newest turn while following, else the one in the address."""
    outlines = recording.outlines
    total = len(outlines)
    cursor = total - 1 if state.param("t") is None else state.int_param("t", 1, total, total) - 1
    st.session_state["live_cursor"] = cursor
    turn_strip(
        [lane(outlines, recording.models, running=recording.running)],
        cursor,
        lambda turn: state.set_params(t=turn + 1),
        key="live_strip",
        name="Turns of this run",
        said=announcement(outlines, cursor),
    )
    if cursor < total - 1 and recording.running:
        newer = total - 1 - cursor
        st.caption(f"{newer} new turn{'s' if newer > 1 else ''}. Switch Follow on to see them.")
    left, right = st.columns([3, 2], gap="medium")
    decision = recording.decision(cursor)
    with left, st.container(border=True):
        turn_card(
            outlines, cursor, recording.text, decision, key="live_card", tab="show", running=recording.running
        )
    with right, st.container(border=True):
        decision_panel(decision, recording.models, key="live_decision")


def _afterwards(store: Store, run: RunSummary, recording: Recording) -> None:
    """Where a finished run leads: its replay, the same problem under another checkpoint, both together."""
    plan = LivePlan.from_config(run.config)
    st.subheader("What next")
    left, right = st.columns(2, gap="large")
    with left, st.container(border=True):
        st.markdown("**The same problem, another checkpoint**")
        state.guarded(_again, lambda sentence: st.caption(label(sentence, 400)))(store, plan)
    with right, st.container(border=True):
        state.page_link(
            "replay",
            "**Step through it in Replay**",
            icon=":material/smart_display:",
            ep=recording.summary.id,
        )
        same = store.episodes.same_task(recording.summary.id, limit=6)
        if same:
            st.caption("Compare it with other episodes of the same problem")
        for other in same:
            state.page_link(
                "pair",
                f"{label(who(other.policy, other.generation), 60)} · {badge(correct_mark(other.correct))}",
                icon=":material/compare:",
                a=other.id,
                b=recording.summary.id,
            )


def _again(store: Store, plan: LivePlan) -> None:
    """The same plan under another policy, with what that may cost."""
    born = generations(store.checkpoints.list())
    others = [one for one in playable(store, plan.models) if one != plan.policy]
    policy = st.selectbox(
        "Who decides", others, key="swap_policy", format_func=lambda value: who(value, born.get(value))
    )
    specs = pool_specs(plan.pool)
    ceiling, to_do = spending(specs, estimate(specs, 1, plan.turns), plan.max_cost_usd)
    again = st.button(
        "Play it again",
        key="play_again",
        type="primary",
        icon=":material/swap_horiz:",
        disabled=bool(to_do),
    )
    if to_do:
        st.caption(label(to_do, 400))
    if again:
        _start(store, replace(plan, policy=policy, max_cost_usd=ceiling))


if __name__ == "__main__":
    state.run(show)
