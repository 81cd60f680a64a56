"""Runs under way, on every page that starts some: what one may cost, how far it is, why it stopped, how to begin,
pause, stop or resume it, the queue of all runs, and replays of a wrong episode that tell whether it was bad luck."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import streamlit as st

from core.analysis.power import MOST_PLAYS
from core.episode import EndReason, Episode, Status
from core.errors import BudgetError, ConfigError, TrinityError
from core.settings import LOCAL_ENGINE, ray_address
from storage.rows.summaries import EpisodeSummary, RunStatus, RunSummary
from storage.store import Store
from ui.presentation.runs import about, engine_state_words, lost_words, run_name
from ui.presentation.theme import (
    END_WORDS,
    STALLED,
    STATUS_MARKS,
    WARN_COLOUR,
    Mark,
    badge,
    correct_mark,
    label,
    one_line,
)
from ui.presentation.words import ago, dollars, left_words
from ui.runs import queue, wiring
from ui.runs.forks.planning import plan_luck
from ui.runs.forks.results import Luck, luck_runs, read_luck
from ui.runs.lease import alive, is_dead, mark_dead, process_words
from ui.runs.plans import (
    ForkPlan,
    LivePlan,
    PooledPlan,
    RunPlan,
    address_of,
    engine_of,
    engine_state_of,
    kind_of,
    known_plan,
    preparation_of,
)
from ui.runs.play import PAUSED_AT_CLOSE, PAUSED_FOR_ANOTHER
from ui.runs.queue import Ticket, has_died, is_stalled, log_file, starts_workers
from ui.runs.spending import Price, check_ceiling, paid_models
from ui.web.kit import state
from ui.web.kit.cache import cached, pool_specs, remembered
from ui.web.kit.widgets import button, nothing_here, run_mark, tool
from ui.web.pickers.encoder import choose_engine, typed_engine

#: How often a run under way is read again, in seconds.
REFRESH_S = 2.0


@dataclass(frozen=True, slots=True)
class RunTexts:
    """How a page speaks of its runs: what the `process` does, what is `stored` whatever becomes of it, the `stop`
    button and the words while it stops; `pause` is empty where a run cannot be paused."""

    process: str
    stored: str = "Every finished turn is kept."
    stop: str = "Cancel"
    stop_help: str = "End the run now; finished turns are kept"
    stopping: str = "Cancelling as soon as possible …"
    pause: str = ""
    pause_help: str | None = None


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a run is: `done` of `planned` units of its work, this in `words` (markdown), and about how many seconds
    the rest takes, None where that is unknown."""

    done: int
    planned: int
    words: str
    remaining_s: float | None = None


def is_under_way(run: RunSummary) -> bool:
    """Whether a run is queued or running, and not stalled."""
    return run.status in (RunStatus.QUEUED, RunStatus.RUNNING) and not is_stalled(run, time.time())


def standing(
    store: Store,
    run: RunSummary,
    texts: RunTexts,
    facts: Sequence[str],
    *,
    go_on: str,
    between_turns: bool = True,
    last_sign: str = "",
) -> None:
    """The run's state with `facts` about it (markdown), why it stopped, and the button `go_on` where it can go on.
    `between_turns`: a pause is in effect; `last_sign`: what its process did before it went silent."""
    died = has_died(run, time.time())
    mark = _mark(store, run, died=died, between_turns=between_turns)
    if unread_usd := store.runs.unread_usd(run.id):
        of_it = f"{label(dollars(unread_usd))} of it for calls whose answers never came, broke off or could not be read"
        facts = [*facts, f":gray[{of_it}]"]
    st.markdown(" · ".join([f"**{badge(mark)}**", *facts]))
    run_notes(run)
    if run.error in (PAUSED_FOR_ANOTHER, PAUSED_AT_CLOSE):
        st.info(run.error, icon=":material/pause_circle:")
    elif run.error:
        st.error(label(run.error, 400), icon=":material/error:")
    if died:
        silence = (
            f"The process that {texts.process} has gone silent. {last_sign}".strip() + f" {texts.stored}"
        )
        if run.status is RunStatus.QUEUED:
            silence = "No worker has taken this run: start one with `trinity worker`, or try again here."
        st.warning(silence, icon=":material/heart_broken:")
    log = log_file(run.id)
    if (died or run.error) and log.exists() and log.stat().st_size:
        st.caption(f"The last output of its process is in {label(str(log), 400)}")
    if died or run.status is RunStatus.INTERRUPTED:
        resumable(store, run, go_on)


def run_notes(run: RunSummary) -> None:
    """What has to be known of how a run is played."""
    for note in run.notes.splitlines():
        st.caption(f":material/info: {label(note, 500)}")


def _mark(store: Store, run: RunSummary, *, died: bool, between_turns: bool = True) -> Mark:
    """Where a run stands; that it waits for a person where a pause is in effect."""
    waits = run.status is RunStatus.RUNNING and not died and between_turns
    return PAUSED if waits and store.runs.control(run.id).paused else run_mark(run, stalled=died)


def watch(
    store: Store, run: RunSummary, texts: RunTexts, reached: Callable[[Store, RunSummary], Reached]
) -> None:
    """The bar and the buttons of a run under way, read again every `REFRESH_S`; when the run has more to show than
    that, the page runs again."""
    shown = _pulse(store, run)

    def look() -> None:
        mark_dead(store)
        now = store.runs.get(run.id)
        if _pulse(store, now) != shown:
            st.rerun()
        with st.container(horizontal=True, vertical_alignment="center"):
            bar(store, now, texts, reached(store, now))
            if texts.pause:
                pause_button(store, now, texts)
            stop_button(store, now, texts)
        engine_line(now)

    st.fragment(state.guarded(look), run_every=REFRESH_S, key="run_watch")()


def _pulse(store: Store, run: RunSummary) -> tuple[object, ...]:
    """What changes when a run has more to show than its bar."""
    paused = store.runs.control(run.id).paused
    return run.status, run.generations, run.finished_episodes, is_stalled(run, time.time()), paused


def bar(store: Store, run: RunSummary, texts: RunTexts, reached: Reached) -> None:
    """How far a run is, or what it waits for."""
    if store.runs.control(run.id).cancel:
        words = texts.stopping
    elif run.status is RunStatus.QUEUED:
        words = waiting_words(store, run)
    elif (waits := preparation_of(run)) is not None:
        reached, words = Reached(waits.done, waits.of, waits.words), f"First: {waits.words} …"
    else:
        words = f"{reached.words}{left_words(reached.remaining_s)} …"
    st.progress(min(1.0, max(0, reached.done) / max(1, reached.planned)), text=words)


def engine_line(run: RunSummary) -> None:
    """What the engine of a running run does, where it has helpers elsewhere, and the way to its own dashboard."""
    engine, state = engine_of(known_plan(run)), engine_state_of(run)
    if engine == LOCAL_ENGINE or run.status is not RunStatus.RUNNING:
        return
    words = label(engine_state_words(engine, state), 200)
    if state is not None and state.lost:
        words += f". {lost_words(state.lost)}"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(f":material/hub: {words}", width="content")
        if state is not None and state.dashboard:
            address = f"http://{state.dashboard.removeprefix('http://')}"
            st.link_button("Ray's dashboard", address, icon=":material/open_in_new:", type="tertiary")


def pause_button(store: Store, run: RunSummary, texts: RunTexts) -> None:
    paused = store.runs.control(run.id).paused
    if paused:
        go_on, help = partial(store.runs.unpause, run.id), "Play to the end without waiting"
        button("Play on", "pause", go_on, icon="play_arrow", help=help)
    else:
        button(texts.pause, "pause", partial(store.runs.pause, run.id), icon="pause", help=texts.pause_help)


def stop_button(store: Store, run: RunSummary, texts: RunTexts) -> None:
    """Stops a run, or takes it out of the queue; pressed once it is disabled."""
    queued = run.status is RunStatus.QUEUED
    help = "Take it out of the queue; nothing was played" if queued else texts.stop_help
    stop, pressed = partial(store.runs.cancel, run.id), store.runs.control(run.id).cancel
    button(texts.stop, "stop", stop, icon="stop_circle", disabled=pressed, help=help)


def begin_button(words: str, key: str, icon: str, to_do: str, *, possible: bool = True, **look: Any) -> bool:
    """Whether it was clicked. It is disabled while something is `to_do` first, which is said below it, and while
    nothing is `possible`."""
    disabled = bool(to_do) or not possible
    clicked = button(words, key, icon=icon, type="primary", disabled=disabled, **look)
    if to_do:
        st.caption(label(to_do, 400))
    return clicked


def begin(page: str, store: Store, plan: RunPlan) -> NoReturn:
    """Put the plan into the queue and open the page of its run; a second click finds the first one's run."""
    state.go(page, run=queue.begin(store, plan, state.ticket()))


def spending(asked: Price, preset: float | None, *, key: str = "max_cost") -> tuple[float | None, str]:
    """For models that cost money: the most it can cost and the ceiling, `preset` unless changed; and what
    has to be done before anything may be spent, empty when nothing."""
    most = asked.most
    if not asked.is_paid:
        return None, ""
    cost = "an unknown cost" if most.cost_usd is None else f"at most {dollars(most.cost_usd)}"
    st.warning(
        f"These models cost money: up to {most.calls:,} calls, {label(cost)}.", icon=":material/payments:"
    )
    try:
        check_ceiling(asked.specs, 0.0)
    except BudgetError as error:
        return None, str(error)
    ceiling = st.number_input(
        "Spend at most, USD",
        min_value=0.0,
        value=preset,
        step=0.1,
        key=key,
        help="No call is made that could exceed it; the run then waits until you raise it.",
    )
    return ceiling, "" if ceiling is not None else "Enter what may be spent at most."


def workers_words(waiting: int) -> str:
    """How many workers there are, and what to do when there is none and some runs wait."""
    most, live_ones = wiring.settings().workers, len(alive())
    if not most and not live_ones and waiting:
        return "No worker is there, and the app starts none: start one with `trinity worker`."
    if not live_ones and not most:
        return "No worker is there."
    if not live_ones:
        return f"No worker is busy. Up to {most} runs are played at a time."
    return f"{live_ones} worker{'s' if live_ones > 1 else ''} at work; the app starts up to {most}."


def waiting_words(store: Store, run: RunSummary) -> str:
    line = [one.id for one in store.runs.waiting()]
    before = line.index(run.id) if run.id in line else 0
    workers = alive()
    if not workers:
        starts = "a worker is being started" if starts_workers() else "start one with `trinity worker`"
        return f"Waiting for a worker: {starts} …"
    ahead = f"{before} run{'s' if before > 1 else ''} before it" if before else "it is the next"
    busy = f"{len(workers)} worker{' is' if len(workers) == 1 else 's are'} at work"
    return f"Waiting for a worker: {busy}, {ahead} …"


def unfinished_words(store: Store, episode: Episode) -> None:
    """Why an episode is not finished, and how it goes on."""
    run = store.runs.get(episode.run_id)
    kind = kind_of(run)
    icon = STATUS_MARKS[episode.status].icon
    if episode.status is Status.RUNNING and is_stalled(run, time.time()):
        icon = STALLED.icon
        sentence = (
            "This episode has stalled: the process that plays it gives no sign of life. Every turn it had finished "
            "is here."
        )
    elif episode.status is Status.RUNNING:
        sentence = (
            "This episode is still being played; new turns appear by themselves and the page stays here."
        )
    elif episode.status is Status.MISSING:
        sentence = (
            "This episode ended by a failure of the infrastructure, not of a model: it counts neither as "
            f"right nor as wrong. {label(episode.error or '', 400)}"
        )
        if episode.end_reason is EndReason.NOT_RECORDED:
            sentence = f"{label(episode.error or '', 400)} It counts neither as right nor as wrong."
    else:
        why = "the process that played it died"
        if episode.end_reason:
            why = END_WORDS[episode.end_reason]
        elif run.error:
            why = one_line(run.error, 300).rstrip(".")
        sentence = f"This episode was interrupted: {why}. Every turn it had finished is here."
        command = "" if kind.resumes else kind.command
        if command and run.status is RunStatus.INTERRUPTED:
            sentence += f" To go on after the last one: `{command}` {label(run.id)}"
    st.info(sentence, icon=icon)
    if kind.resumes:
        words = f"Its run on the {kind.page.capitalize()} page"
        state.page_link(kind.page, words, icon=kind.icon, **address_of(run))


def resumable(store: Store, run: RunSummary, words: str) -> None:
    """The button, named `words`, with the run's spend ceiling where its pool has to be paid, and its engine where that
    is a cluster, which may have moved. No reply that is stored is asked or paid for again."""
    plan, form, fault = known_plan(run), f"resume_{run.id}", ""
    before: dict[str, Any] = {}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if isinstance(plan, PooledPlan) and _is_paid(plan):
            before["max_cost_usd"] = plan.max_cost_usd
            st.number_input(
                "Spend at most in all, USD",
                min_value=0.0,
                value=plan.max_cost_usd,
                step=0.1,
                key=f"{form}_max_cost_usd",
                help=f"{label(dollars(store.runs.spent_usd(run.id)))} of it is spent already.",
                width=220,
            )
        if (engine := engine_of(plan)) != LOCAL_ENGINE:
            before["engine"] = engine
            try:
                ray_address(choose_engine(form, engine, width=320))
            except ConfigError as error:
                fault = str(error)
        act = partial(_resume, store, run, before)
        help = "Another worker takes it; no reply that is stored is asked or paid for again"
        tool(words, "resume", act, icon="restart_alt", type="primary", help=help, disabled=bool(fault))
    if fault:
        st.caption(label(fault, 400))


def _is_paid(plan: PooledPlan) -> bool:
    try:
        return bool(paid_models(pool_specs(plan.pool)))
    except TrinityError:
        return False  # the worker will say what is wrong with the pool


def _resume(store: Store, run: RunSummary, before: Mapping[str, Any]) -> None:
    mark_dead(store)
    now = {key: st.session_state.get(f"resume_{run.id}_{key}", value) for key, value in before.items()}
    if "engine" in now:
        now["engine"] = typed_engine(str(now["engine"]))
    if now != before:
        store.runs.change(run.id, now, dead=run.owner if is_dead(run.owner) else None)
    queue.resume(store, run.id)


#: At most so many runs that are over are listed, and so many that are under way.
MOST_DONE, MOST_OPEN = 8, 30
PAUSED = Mark("‖", ":material/pause_circle:", "waiting for you", "orange", WARN_COLOUR)


def queue_panel(store: Store) -> None:
    """The queue, read again while one looks at it."""
    st.fragment(state.guarded(lambda: _queue(store)), run_every=REFRESH_S, key="live_queue")()


def _queue(store: Store) -> None:
    now = time.time()
    waiting = store.runs.waiting()
    playing = store.runs.list(status=RunStatus.RUNNING, limit=MOST_OPEN)
    under_way = (RunStatus.QUEUED, RunStatus.RUNNING)
    over = [run for run in store.runs.list(kind="live", limit=MOST_OPEN) if run.status not in under_way]
    st.subheader("Runs", help="Each is played by a worker process; those that wait are taken in order.")
    st.caption(workers_words(len(waiting)))
    if not (waiting or playing or over):
        nothing_here("None yet. The first one will be listed here.")
        return
    for run in playing:
        _row(store, run, now)
    for place, run in enumerate(waiting[:MOST_OPEN], 1):
        _row(store, run, now, place)
    if len(waiting) > MOST_OPEN:
        st.caption(f"… and {len(waiting) - MOST_OPEN} more that wait")
    if over and (waiting or playing):
        st.markdown("**Over**")
    for run in over[:MOST_DONE]:
        _row(store, run, now)


def _row(store: Store, run: RunSummary, now: float, place: int | None = None) -> None:
    title = f":blue[{label(about(run, 240) or run_name(run), 64)}]"
    with st.container(border=True, gap=None):
        # A link: a button within this fragment would run the fragment alone, and the page would stay as it was.
        state.page_link(kind_of(run).page, title, **address_of(run))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(" · ".join(_facts(store, run, now, place)), width="stretch")
            if place is not None:
                cancel, help = partial(store.runs.cancel, run.id), "Cancel this run before it begins"
                tool("Take out", f"cancel_{run.id}", cancel, icon="close", help=help)


def _facts(store: Store, run: RunSummary, now: float, place: int | None) -> list[str]:
    died = has_died(run, now)
    parts = [badge(_mark(store, run, died=died))]
    if run.kind != "live":
        parts.append(kind_of(run).words)
    if place is not None:
        parts.append(f"number {place} in line")
    elif run.status is RunStatus.RUNNING and not died:
        parts.append(f"by {label(process_words(run.owner), 40)}")
    plan = known_plan(run)
    if isinstance(plan, LivePlan):
        judged = bool(plan.task.answer)
        if plan.repeats > 1:
            right = f", {run.correct} right" if judged else ""
            parts.append(f"{run.finished_episodes} of {plan.repeats} played{right}")
        elif run.finished_episodes and judged:
            parts.append(badge(correct_mark(bool(run.correct))))
    return [*parts, ago(run.created, now)]


LUCK_WORDS = "Was it bad luck?"
_LUCK_HELP = (
    f"Replays the episode with nothing changed, until it can be told whether the miss was bad luck: {MOST_PLAYS} times "
    "at most"
)
_luck_runs = cached(luck_runs)


def luck_line(store: Store, summary: EpisodeSummary) -> None:
    """Of an episode that ended wrong: the button, or what its replays came to. Nothing of any other."""
    if summary.status is not Status.FINISHED or summary.correct is not False:
        return
    known = _luck_runs(store).get(summary.id)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if known is not None and is_under_way(known[0]):
            st.markdown(f"**{LUCK_WORDS}** It is being replayed.", width="content")
            state.page_link("forks", "See it", icon=":material/hourglass_top:", run=known[0].id)
            return
        found = read_luck(store, known[0].id, known[1]) if known else None
        if known is not None and found is not None and (found.plays or store.read_only):
            st.markdown(f"**{LUCK_WORDS}** {label(found.sentence, 300)}", width="content")
            state.page_link("forks", "See the replays", icon=":material/casino:", run=known[0].id)
        if not store.read_only and (found is None or is_open(found)):
            luck_button(store, summary.id, again=found is not None)


def is_open(found: Luck) -> bool:
    """Whether more plays could still tell it."""
    return found.told is None and len(found.outcomes) < MOST_PLAYS


def luck_button(store: Store, episode: str, *, again: bool) -> None:
    """The button, or why there is none; `again`: some replays are there already."""
    why = _why_not(store, episode)
    if why:
        st.caption(f"**{LUCK_WORDS}** {label(why, 400)}")
        return
    words = "Replay it further" if again else LUCK_WORDS
    if button(words, f"luck_{episode}", icon="casino", help=_LUCK_HELP):
        _ask(store, episode)


@remembered(most=256, seconds=30)
def _why_not(store: Store, episode: str) -> str:
    try:
        plan_luck(store, episode)
    except TrinityError as error:
        return str(error)
    return ""


def _ask(store: Store, episode: str) -> NoReturn:
    """To the run that replays it, which is begun where nobody has to be asked first."""
    plan = luck_plan(store, episode)
    if paid_models(pool_specs(plan.pool)):
        state.go("forks", ep=episode, luck=1)
    begin_luck(store, plan)


def luck_plan(store: Store, episode: str) -> ForkPlan:
    """What replays an episode; ConfigError where it cannot be replayed."""
    return plan_luck(store, episode, encoder=wiring.settings().encoder)


def begin_luck(store: Store, plan: ForkPlan) -> NoReturn:
    """To the run that is under way for this episode, in another tab perhaps, else to a new one."""
    known = luck_runs(store).get(plan.branches[0].parent)
    under_way = known[0].id if known is not None and is_under_way(known[0]) else None
    state.go("forks", run=under_way or queue.begin(store, plan, Ticket()))
