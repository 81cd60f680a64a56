"""A live run as one watches it: where it stands, its episodes, the turn at hand, and where it leads when it is over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from core.episode import EndReason, Status
from core.errors import ConfigError, StoreError
from core.ids import episode_id
from core.pool.spec import slots_of
from storage.rows.summaries import EpisodeSummary, RunControl, RunStatus, RunSummary
from storage.store import Store
from ui.presentation.course import NEW_DECIDER, Lane, lane, turn_words, wrong_since
from ui.presentation.rules import ended_words
from ui.presentation.runs import about
from ui.presentation.theme import ROLE_STYLES, STATUS_MARKS, badge, correct_mark, label
from ui.presentation.words import deciders, dollars, policy_name, right_words, strip_key, strip_text
from ui.runs.plans import LivePlan, plan_of
from ui.runs.policies import turns_of
from ui.runs.queue import is_stalled
from ui.runs.spending import paid_models, price
from ui.web.components.transport import turn_strip
from ui.web.kit import state
from ui.web.kit.cache import pool_specs
from ui.web.kit.text import text_block
from ui.web.kit.widgets import button, replay_link, tool
from ui.web.live.steering import TEXTS, before_the_first_turn, follow, next_turn_panel, run_controls
from ui.web.pickers.checkpoints import (
    generation_of,
    most_telling,
    play_link,
    plays_whole,
    policy_words,
    startable,
    writes_workflows,
)
from ui.web.pickers.encoder import with_reader
from ui.web.progress import Reached, bar, begin, begin_button, luck_line, spending, standing
from ui.web.turns.decision import decision_panel
from ui.web.turns.panels import decider_words
from ui.web.turns.recording import Recording, open_recording
from ui.web.turns.turn_card import before_card, turn_card
from ui.web.turns.workflow import chosen_by, workflow_panel

#: How often a run under way is read again, in seconds.
REFRESH_S = 0.7
#: From so long a wait on, the page says for how long it has been, in seconds.
LONG_S = 8.0
#: The address of the form and the queue, from that of a run.
_NO_RUN = {"run": None, "t": None, "ep": None}


@dataclass(frozen=True)
class Watched:
    """A run with its episodes begun so far, oldest first, the one that is looked at, how many turns were over when they
    were read, and what is asked of its worker. `whole`: no turns are decided one by one, as where `workflows` are
    planned."""

    run: RunSummary
    plan: LivePlan
    episodes: Sequence[EpisodeSummary]
    recording: Recording | None
    played: int
    control: RunControl
    whole: bool
    workflows: bool
    now: float

    @property
    def over(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.run.status not in (RunStatus.QUEUED, RunStatus.RUNNING)

    @property
    def stalled(self) -> bool:
        """Whether its process is gone or silent."""
        return is_stalled(self.run, self.now)

    @property
    def most_turns(self) -> int:
        """The most turns of an episode of this run."""
        return turns_of(self.plan.policy, self.plan.turns, self.plan.models)

    @property
    def steered(self) -> bool:
        """Whether a process plays it, which can be paused and stopped."""
        return self.run.status is RunStatus.RUNNING and not self.stalled

    @property
    def writing(self) -> bool:
        """Whether an unfinished turn of the episode at hand is under way and not cut off."""
        return self.recording is not None and self.recording.running and not self.stalled

    @property
    def between_turns(self) -> bool:
        """Whether the newest episode is looked at, and no turn of it is under way."""
        seen = self.recording
        newest = seen is not None and seen.summary.id == self.episodes[-1].id
        return newest and seen is not None and all(one.stage == "finished" for one in seen.outlines)

    @property
    def waits(self) -> bool:
        """Whether the next turn of the episode at hand waits for a person."""
        seen, asked = self.recording, self.control
        stands = self.steered and asked.paused and asked.steps <= self.played and not self.whole
        room = seen is not None and len(seen.outlines) < seen.episode.turn_budget
        return stands and self.between_turns and room


def run_page(store: Store, run_id: str) -> None:
    """The page of a run, read again while it is under way."""
    try:
        run = store.runs.get(run_id)
    except StoreError:
        words = f"The store holds no run {label(run_id, 40)} any more: it was deleted, or the link is of another store."
        st.info(words, icon=":material/link_off:")
        button("To the runs there are", "new_problem", partial(state.set_params, **_NO_RUN))
        return
    if run.kind != "live":
        raise ConfigError(f"Run {run_id} was not started here: open its episodes from the list.")
    other = "The queue, and the form for another problem"
    tool("All runs", "new_problem", partial(state.set_params, **_NO_RUN), icon="arrow_back", help=other)
    st.markdown(f"#### {label(about(run, 240), 220)}")
    if run.status in (RunStatus.QUEUED, RunStatus.RUNNING):
        st.fragment(lambda: state.guarded(_watch)(store, run_id), run_every=REFRESH_S, key="live_tail")()
    else:
        _watch(store, run_id)


def _watch(store: Store, run_id: str) -> None:
    seen = _read(store, run_id)
    was_over = st.session_state.get("live_over") == run_id
    if seen.over and not was_over:
        st.session_state["live_over"] = run_id
        st.rerun()
    if not seen.over and was_over:
        del st.session_state["live_over"]
    # Slots that are always there: what stands below keeps its place, and no ghost of it stays behind.
    top, controls, repeats, stage, onward = (st.container() for _ in range(5))
    with top:
        standing(
            store,
            seen.run,
            TEXTS,
            _facts(store, seen),
            go_on="Resume" if seen.run.started else "Try again",
            between_turns=seen.between_turns,
            last_sign=last_call(seen),
        )
    with controls:
        if seen.steered:
            bar(store, seen.run, TEXTS, _reached(seen))
            run_controls(store, seen.run, can_wait=not seen.whole)
        elif seen.over and seen.recording is not None and seen.recording.summary.correct is False:
            _what_went_wrong(seen.recording)
    with repeats:
        if seen.plan.repeats > 1 and seen.episodes:
            _repeats(seen)
    with stage:
        if seen.recording is not None and seen.recording.outlines:
            _stage(store, seen, seen.recording)
        elif seen.waits and seen.recording is not None:
            _first_turn(store, seen, seen.recording)
        elif seen.recording is not None and seen.recording.episode.plans:
            workflow_panel(seen.recording.episode, None, names=generation_of(store))
        elif not seen.over and not seen.stalled:
            begun = seen.recording is not None
            before_the_first_turn(
                store, seen.run, seen.plan.models, seen.now, begun=begun, workflows=seen.workflows
            )
    with onward:
        if seen.over and seen.recording is not None:
            _afterwards(store, seen, seen.recording)


def _read(store: Store, run_id: str) -> Watched:
    run = store.runs.get(run_id)
    played = store.runs.turns_played(run_id)  # before what is shown: never ahead of it
    episodes = sorted(store.episodes.of_run(run_id), key=lambda one: one.id)
    chosen_id = state.param("ep")
    chosen = next((one for one in episodes if one.id == chosen_id), episodes[-1] if episodes else None)
    recording = open_recording(store, chosen.id) if chosen else None
    plan = plan_of(run, LivePlan)
    return Watched(
        run,
        plan,
        episodes,
        recording,
        played,
        store.runs.control(run_id),
        plays_whole(store, plan.policy, plan.models),
        writes_workflows(store, plan.policy),
        time.time(),
    )


# Where it stands


def _reached(seen: Watched) -> Reached:
    """How many turns of the only play are played and what waits, or how many plays of several are finished."""
    turn, most = (len(seen.recording.outlines) if seen.recording else 0), seen.most_turns
    if seen.plan.repeats == 1:
        begun = f"Turn {turn}" if turn else "Before turn 1"
        words = (
            f"Turn {turn + 1} of at most {most} waits for you" if seen.waits else f"{begun} of at most {most}"
        )
        return Reached(turn, most, words)
    finished = sum(one.status is Status.FINISHED for one in seen.episodes)
    return Reached(finished, seen.plan.repeats, f"{finished} of {seen.plan.repeats} plays finished")


def _facts(store: Store, seen: Watched) -> list[str]:
    recording, plan = seen.recording, seen.plan
    if recording is None:
        return [f":gray[at most {seen.most_turns} turns, seed {plan.seed}]"]
    summary, parts = recording.summary, []
    if plan.repeats > 1:
        parts.append(f"play {[one.id for one in seen.episodes].index(summary.id) + 1} of {plan.repeats}")
    if summary.status is Status.FINISHED:
        answer = f"answer **{label(summary.answer or '–', 60)}**"
        judged = (
            f" is {badge(correct_mark(summary.correct))}" if summary.correct is not None else ", not judged"
        )
        parts.append(answer + judged)
    if summary.end_reason is not None and summary.end_reason is not EndReason.CANCELLED:
        parts.append(ended_words(summary))
    by = deciders(
        summary.policy,
        generation_of(store).get(summary.policy, summary.generation),
        recording.episode.deciders,
        lambda: generation_of(store),
    )
    parts.append(f":gray[{label(by, 200)}]")
    if not seen.steered or plan.repeats > 1:  # else the bar says it
        parts.append(f":gray[turn {len(recording.outlines)} of at most {recording.episode.turn_budget}]")
    if recording.episode.task.answer:
        parts.append(f":gray[expected answer {label(recording.episode.task.answer, 40)}]")
    if paid_models(pool_specs(plan.pool)):
        most = "" if plan.max_cost_usd is None else f" of at most {dollars(plan.max_cost_usd)}"
        parts.append(f":gray[spent {label(dollars(store.runs.spent_usd(seen.run.id)) + most)}]")
    call = under_way(recording)
    if not seen.over and not seen.stalled and call and seen.now - call[1] > LONG_S:
        parts.append(f":orange[waiting for {call[0]} for {seen.now - call[1]:.0f} s]")
    return parts


def under_way(recording: Recording) -> tuple[str, float] | None:
    """The call that is under way, as markdown, and since when; None between two turns."""
    last = recording.outlines[-1] if recording.outlines else None
    if last is None or last.stage != "asked":
        return None
    return f"**{label(last.model, 40)}** as {ROLE_STYLES[last.role].word}", last.started


def last_call(seen: Watched) -> str:
    """What a run was doing when it was heard of last, as markdown."""
    heartbeat = seen.run.heartbeat
    heard = "" if heartbeat is None else f" Its last sign of life was at {clock(heartbeat)}."
    recording = seen.recording
    if recording is None:
        return f"It had not begun its first turn.{heard}"
    if call := under_way(recording):
        return f"It was waiting for {call[0]} since {clock(call[1])}, turn {len(recording.outlines)}.{heard}"
    return f"It was about to decide turn {len(recording.outlines) + 1}.{heard}"


def clock(at: float) -> str:
    """A time of day on this machine's clock: 14:02:11."""
    return time.strftime("%H:%M:%S", time.localtime(at))


# Its episodes


def _repeats(seen: Watched) -> None:
    """Every repeat as a row: its number, seed, turns and outcome; a click shows it below."""
    finished = [one for one in seen.episodes if one.status is Status.FINISHED]
    share = f" · {right_words([one.correct for one in finished])}" if finished else ""
    with st.container(border=True, gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            st.markdown(f"**{len(finished)} of {seen.plan.repeats} played{share}**", width="content")
            state.page_link(
                "episodes", "As a list of episodes", icon=":material/table_rows:", run=seen.run.id
            )
            if len(finished) > 1:
                state.page_link(
                    "routing",
                    "As a tree of moves",
                    icon=":material/account_tree:",
                    help="Where the repeats part, and how each way ended",
                    part="luck",
                    run=seen.run.id,
                    policy=seen.plan.policy,
                    task=seen.plan.task.id,
                )
        by_id = {one.id: one for one in seen.episodes}
        st.caption(strip_key(seen.episodes))
        for index in range(seen.plan.repeats):
            _repeat(seen, index, by_id.get(episode_id(seen.run.id, index)))


def _repeat(seen: Watched, index: int, one: EpisodeSummary | None) -> None:
    shown = one is not None and seen.recording is not None and one.id == seen.recording.summary.id
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        button(
            f"Play {index + 1}",
            f"repeat_{index}",
            partial(state.set_params, ep=one.id if one else None, t=1),
            icon="visibility" if shown else "",
            type="secondary" if shown else "tertiary",
            disabled=one is None,
            width=110,
        )
        seed = f":gray[seed {seen.plan.seed + index}]"
        if one is None:
            st.markdown(f":gray[waits] · {seed}", width="content")
            return
        mark = correct_mark(one.correct) if one.status is Status.FINISHED else STATUS_MARKS[one.status]
        ended = f" · {ended_words(one)}" if one.end_reason else ""
        answer = f" · answer **{label(one.answer, 30)}**" if one.answer else ""
        st.markdown(
            f"{badge(mark)}{answer}{ended} · {label(strip_text(one.strip)) or '–'} · {seed}", width="content"
        )


# The turn at hand


def _first_turn(store: Store, seen: Watched, recording: Recording) -> None:
    """Before anything was played: the question, and what is proposed."""
    left, right = st.columns([3, 2], gap="medium")
    with left, st.container(border=True):
        st.markdown("**Nothing was said yet.** What the coordinator reads is the question:")
        text_block(recording.episode.task.question, key="live_question")
    with right, st.container(border=True):
        next_turn_panel(store, seen.run, recording, number=seen.played + 1)


def _stage(store: Store, seen: Watched, recording: Recording) -> None:
    """The replay of what there is: the newest turn while following, else the one in the address."""
    outlines = recording.outlines
    total = len(outlines)
    cursor = total - 1 if state.param("t") is None else state.int_param("t", 1, total, total) - 1
    st.session_state["live_cursor"] = recording.summary.id, cursor
    turn_strip(
        [_marked(recording, running=seen.writing)],
        cursor,
        lambda turn: state.set_params(ep=recording.summary.id, t=turn + 1),
        key="live_strip",
        name="Turns of this run",
        said=turn_words(outlines[cursor], len(outlines)),
    )
    # Slots that are always there, as in `_watch`: else the columns would be drawn anew, and the page would jump.
    news, planned = st.container(), st.container()
    if not seen.over:
        with news:
            _news(seen, total - 1 - cursor)
    if recording.episode.plans:
        names = generation_of(store)
        with planned:
            workflow_panel(recording.episode, cursor, recording.turns, names=names, forks=seen.over)
    left, right = st.columns([3, 2], gap="medium")
    decision = recording.decision(cursor)
    at_most = recording.episode.turn_budget if recording.running else None
    with left, st.container(border=True):
        turn_card(
            outlines,
            cursor,
            recording.text,
            decision,
            key="live_card",
            tab="show",
            running=seen.writing,
            at_most=at_most,
            asked_s=max(0.0, seen.now - outlines[cursor].started),
        )
    if cursor:  # quick models answer before one has read: their words stay for a turn
        with left, st.container(border=True):
            before_card(outlines, cursor, recording.reply_text, at_most)
    waiting = right.container()
    if seen.waits:
        with waiting, st.container(border=True):
            next_turn_panel(store, seen.run, recording, number=seen.played + 1)
    with right, st.container(border=True):
        st.markdown(f"**Decision of turn {cursor + 1}**" if seen.waits else "**Decision**")
        decision_panel(
            decision,
            recording.models,
            key="live_decision",
            by=decider_words(recording, cursor),
            planned=chosen_by(recording.episode, cursor, recording.turns) if recording.episode.plans else "",
            proposed=recording.overruled(cursor),
        )


def _marked(recording: Recording, *, running: bool) -> Lane:
    """The strip's lane, with where another policy took over."""
    strip = lane(recording.outlines, recording.models, running=running)
    cells = list(strip.cells)
    for index in recording.episode.deciders:
        if index < len(cells) and (cell := cells[index]):
            cells[index] = replace(cell, marks=(*cell.marks, NEW_DECIDER))
    return replace(strip, cells=tuple(cells))


def _news(seen: Watched, newer: int) -> None:
    """While Follow is off: how much came in since, and the way to it."""
    if state.param("t") is None and state.param("ep") is None:
        return
    later = [one for one in seen.episodes if seen.recording and one.id > seen.recording.summary.id]
    count = newer + sum(max(one.turns, 1) for one in later)
    if count:
        words, help = f"{count} new turn{'s' if count > 1 else ''}", "Go to the newest turn and follow"
        button(words, "news", follow, icon="arrow_downward", help=help)


# Where it leads


def _afterwards(store: Store, seen: Watched, recording: Recording) -> None:
    """Its replay, the same problem under another checkpoint, both together."""
    st.subheader("What next")
    left, right = st.columns(2, gap="large")
    with left, st.container(border=True):
        st.markdown("**The same problem, another checkpoint**")
        state.guarded(_again, lambda sentence: st.caption(label(sentence, 400)))(store, seen.plan)
    with right, st.container(border=True):
        replay_link("**Step through it in Replay**", recording.summary.id)
        same = store.episodes.same_task(recording.summary.id, limit=6)
        if same:
            st.caption("Compare it with other episodes of the same problem")
        names = generation_of(store)
        for other in same:
            name = policy_name(other.policy, names.get(other.policy, other.generation))
            state.page_link(
                "pair",
                f"{label(name, 60)} · {badge(correct_mark(other.correct))}",
                icon=":material/compare:",
                a=other.id,
                b=recording.summary.id,
            )


def _what_went_wrong(recording: Recording) -> None:
    """A wrong answer's ways on: its replay at the turn that made it so, and what else could have been done there."""
    at, last = wrong_since(recording.outlines), len(recording.outlines)
    turn = last if at is None else at + 1
    where = f"its last turn, {turn}" if at is None else f"turn {turn}, since which it is wrong"
    ep = recording.summary.id
    what_if = f"What if turn {turn} had gone otherwise?"
    with st.container(horizontal=True, gap="medium"):
        replay_link(f"**See {where}, in Replay**", ep, turn)
        state.page_link("forks", what_if, icon=":material/call_split:", ep=ep, t=turn)
        luck_line(recording.store, recording.summary)


def _again(store: Store, plan: LivePlan) -> None:
    """A form that plays this plan under another policy, with what that may cost."""
    others = [one for one in startable(store, slots_of(pool_specs(plan.pool))) if one != plan.policy]
    policy = st.selectbox(
        "Who decides",
        others,
        others.index(most_telling(store, others, plan.policy) or others[0]),
        key="swap_policy",
        format_func=policy_words(store, others).__getitem__,
    )
    specs, before = pool_specs(plan.pool), plan.policy
    plan = with_reader(store, replace(plan, policy=policy), [policy], "again")
    ceiling, to_do = spending(price(store, plan, specs), plan.max_cost_usd)
    play_link("Play both on many tasks", [policy, before])
    if begin_button("Play it again", "play_again", "swap_horiz", to_do):
        begin("live", store, replace(plan, max_cost_usd=ceiling))
