"""Requests whose texts are not kept: a store knows who decided what and what it cost, and nothing that was said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from core.episode import (
    Decision,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Plan,
    Removable,
    Replied,
    Reply,
    Turn,
    TurnStarted,
)

#: Stands where the question, the answer or a failure's words would.
NOT_KEPT = "(not kept)"


def without_texts(event: Event, now: float) -> Event | None:
    """The event as the store may know it; None where nothing of it may be known. `now` is in Unix seconds."""
    match event:
        case EpisodeStarted() | EpisodeFinished():
            day = datetime.fromtimestamp(now, UTC).date().isoformat()
            never_kept: dict[Removable, str] = {"texts": day, "prompts": day, "states": day}
            return replace(event, episode=replace(episode_without_texts(event.episode), removed=never_kept))
        case Plan():
            return _plan(event)
        case TurnStarted():
            return replace(event, messages=(), decision=_decision(event.decision))
        case Replied():
            return replace(event, reply=_reply(event.reply))
        case Turn():
            return _turn(event)
    return None


def episode_without_texts(episode: Episode) -> Episode:
    """The episode without anything that was said in it, its question included, and without what a client noted on it;
    what is removed it does not note."""
    return replace(
        episode,
        task=replace(episode.task, id="not-kept", question=NOT_KEPT, conversation=()),
        turns=tuple(_turn(turn) for turn in episode.turns),
        plans=tuple(_plan(plan) for plan in episode.plans),
        judgements=(),  # which quote what was said
        answer=None if episode.answer is None else NOT_KEPT,
        error=None if episode.error is None else NOT_KEPT,  # servers repeat in it what they were sent
        meta={},
    )


def _plan(plan: Plan) -> Plan:
    """Who works and reads whom, without what each step was asked."""
    flow = plan.workflow
    bare = None if flow is None else replace(flow, subtasks=(NOT_KEPT,) * len(flow))
    return replace(plan, messages=(), reply=_reply(plan.reply), workflow=bare)


def _turn(turn: Turn) -> Turn:
    return replace(
        turn,
        decision=_decision(turn.decision),
        messages=(),
        reply=_reply(turn.reply),
        suggestion="",
        step=None if turn.step is None else replace(turn.step, subtask=NOT_KEPT),
        verdict_raw="",
        answer_after=None if turn.answer_after is None else NOT_KEPT,
    )


def _decision(decision: Decision) -> Decision:
    """Without the hidden state, from which something of the text could be read."""
    return replace(decision, hidden_state=b"", prompt_digest="")


def _reply(reply: Reply) -> Reply:
    error = replace(reply.error, message=NOT_KEPT) if reply.error else None
    return replace(reply, text="", reasoning="", tool_calls="", error=error)
