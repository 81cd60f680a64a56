"""Rows to core values and back; the one place that knows how a noun is spread over columns.

A field stands in the column of its name (`storage.rows.columns` says how). Numbers of a decision are little-endian
float64 (exact), hidden states the float16 bytes they came as, episode flags bits in EPISODE_FLAGS order.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from typing import Any, TypeVar, get_args

from sqlalchemy import RowMapping

from core.analysis.metrics import decision_entropy, decision_margin
from core.changes import Change, Fork
from core.episode import (
    Decision,
    Episode,
    Failure,
    Flag,
    Judgement,
    Message,
    Plan,
    Recorded,
    Removable,
    Reply,
    Status,
    Step,
    Task,
    Turn,
    Usage,
    Verdict,
)
from core.texts import well_formed
from core.workflow import AccessMode, Workflow
from storage.rows.progress import EpisodeProgress, episode_flags
from storage.rows.summaries import EPISODE_FLAGS, QUESTION_CUT

T = TypeVar("T")
Row = dict[str, Any]
Rows = Mapping[str, Any] | RowMapping

_FORK = ("number", "prefix", "pool", "held")
#: The columns of a fork.
FORK_COLUMNS = (
    *("parent_episode_id", "fork_turn", "fork_change", "fork_value"),
    *(f"fork_{name}" for name in _FORK),
)
#: What can be removed from an episode, and the column that says on which day it was.
REMOVED: dict[Removable, str] = {what: f"{what}_removed" for what in get_args(Removable)}
#: Fields of an episode that stand in columns of their names from its start.
_EPISODE = (
    *("id", "run_id", "policy", "models", "protocol", "turn_budget", "seed", "argmax", "generation"),
    *("left_out", "deciders", "meta"),
)
_PROGRESS = (
    *("turns", "strip", "tokens_in", "tokens_out", "cost_usd", "latency_s"),
    *("min_margin", "topology", "plan_fault"),
)
_NUMBERS = ("model_logits", "role_logits", "model_probs", "role_probs")
_PLAN = ("episode_id", "round", "attempt", "planner", "keeps", "fault")


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def from_row(kind: type[T], row: Rows, **given: Any) -> T:
    """A value of the columns with its fields' names, but for the fields that are given."""
    names: tuple[str, ...] = _names(kind)  # type: ignore[arg-type]  # a class has a hash
    return kind(**{name: row[name] for name in names if name not in given}, **given)


def to_row(value: object) -> Row:
    """The columns with the names of a value's fields; what they hold is not copied."""
    return _columns(value, _names(type(value)))  # type: ignore[arg-type]  # a class has a hash


def _columns(value: object, names: Iterable[str]) -> Row:
    return {name: getattr(value, name) for name in names}


# Tasks and episodes


def task_row(task: Task) -> Row:
    content = {name: well_formed(value) for name, value in task.content.items()}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    more = {
        "answer_pattern": well_formed(task.answer_pattern),
        "conversation": prompt_text(task.conversation),
    }
    return {"digest": digest, **content, **more}


def to_task(row: Rows) -> Task:
    return from_row(Task, row, conversation=to_messages(row["conversation"]))


def episode_row(episode: Episode, task_key: int, started: float) -> Row:
    """What is fixed from an episode's start."""
    return {
        **_columns(episode, _EPISODE),
        "task_key": task_key,
        "task_id": episode.task.id,
        "family": episode.task.family,
        "question": cut(episode.task.question),
        **_fork_columns(episode.fork),
        "left_out": episode.left_out or None,
        "deciders": episode.deciders or None,
        **{column: episode.removed.get(what) for what, column in REMOVED.items()},
        "status": Status.RUNNING,
        "started": started,
    }


def _fork_columns(fork: Fork | None) -> Row:
    if fork is None:
        return dict.fromkeys(FORK_COLUMNS)
    return {
        "parent_episode_id": fork.parent,
        "fork_turn": fork.turn,
        "fork_change": fork.change.kind if fork.change else None,
        "fork_value": well_formed(fork.change.value) if fork.change else None,
        **{f"fork_{name}": getattr(fork, name) for name in _FORK},
    }


def to_fork(row: Rows) -> Fork | None:
    """The fork that a row of an episode is; None for a play from the beginning."""
    if row["parent_episode_id"] is None:
        return None
    change = Change(row["fork_change"], row["fork_value"]) if row["fork_change"] else None
    fields = {name: row[f"fork_{name}"] for name in _FORK}
    return Fork(row["parent_episode_id"], row["fork_turn"], change, **fields)


def outcome_row(episode: Episode) -> Row:
    """What is known at an episode's end, with the columns that lists show."""
    progress = EpisodeProgress.over(episode.models, episode.turns, episode.plans)
    return {
        **_columns(episode, ("status", "end_reason", "correct")),
        "answer": episode.answer and well_formed(episode.answer),
        "error": episode.error and well_formed(episode.error),
        **progress_row(progress),
        "flags": flag_bits(episode_flags(episode, progress)),
    }


def progress_row(progress: EpisodeProgress) -> Row:
    """The list columns that grow with every turn."""
    return {
        **_columns(progress, _PROGRESS),
        "mean_entropy": progress.entropy_sum / progress.decisions if progress.decisions else None,
        "flags": flag_bits(progress.flags),
    }


def to_episode(
    row: Rows,
    task: Task,
    turns: tuple[Turn, ...],
    plans: tuple[Plan, ...] = (),
    judgements: tuple[Judgement, ...] = (),
) -> Episode:
    return from_row(
        Episode,
        row,
        task=task,
        turns=turns,
        plans=plans,
        judgements=judgements,
        fork=to_fork(row),
        left_out=row["left_out"] or (),
        deciders=row["deciders"] or {},
        removed={what: day for what, column in REMOVED.items() if (day := row[column]) is not None},
    )


# Turns, in the order in which their columns become known


def asked_row(episode_id: str, index: int, decision: Decision, started: float) -> Row:
    """A turn that has begun: the decision."""
    named = [name for name in _names(Decision) if name not in (*_NUMBERS, "hidden_state")]
    return {
        "episode_id": episode_id,
        "idx": index,
        "stage": "asked",
        **_columns(decision, named),
        **{name: floats(getattr(decision, name)) for name in _NUMBERS},
        "margin": decision_margin(decision),
        "entropy": decision_entropy(decision),
        "started": started,
    }


def replied_row(reply: Reply) -> Row:
    return {
        "stage": "replied",
        "finish_reason": well_formed(reply.finish_reason),
        **to_row(reply.usage),
        "latency_s": reply.latency_s,
        "error_kind": reply.error.kind if reply.error else None,
        "error": well_formed(reply.error.message) if reply.error else None,
        "recorded": reply.recorded and recorded_object(reply.recorded),
    }


def finished_row(turn: Turn) -> Row:
    step = turn.step
    return {
        "stage": "finished",
        **_columns(turn, ("suggested_role", "verdict", "answer_rule", "correct_after", "flags")),
        "suggestion": well_formed(turn.suggestion),
        "verdict_raw": well_formed(turn.verdict_raw),
        "answer_after": turn.answer_after and well_formed(turn.answer_after),
        "round": step.round if step else None,
        "step": step.place if step else None,
        "subtask": well_formed(step.subtask) if step else None,
        "visible": step.visible if step else None,
    }


def text_rows(episode_id: str, index: int, texts: Mapping[str, str]) -> list[Row]:
    return [
        {"episode_id": episode_id, "idx": index, "kind": kind, "body": well_formed(body)}
        for kind, body in texts.items()
        if body
    ]


def state_rows(episode_id: str, index: int, decision: Decision) -> list[Row]:
    state = decision.hidden_state
    return [{"episode_id": episode_id, "idx": index, "hidden": state}] if state else []


def reply_texts(reply: Reply) -> dict[str, str]:
    return {"reply": reply.text, "reasoning": reply.reasoning}


def prompt_text(messages: Sequence[Message]) -> str:
    """A prompt as JSON; empty without messages."""
    listed = [[well_formed(part) for part in message.parts] for message in messages]
    return json.dumps(listed, ensure_ascii=False) if listed else ""


def to_messages(body: str) -> tuple[Message, ...]:
    return tuple(Message(*parts) for parts in json.loads(body)) if body else ()


def to_turn(row: Rows, texts: Mapping[str, str], hidden_state: bytes) -> Turn:
    step = None
    if row["step"] is not None:
        step = Step(row["round"], row["step"], row["subtask"], row["visible"])
    return from_row(
        Turn,
        row,
        index=row["idx"],
        decision=to_decision(row, hidden_state),
        messages=to_messages(texts.get("prompt", "")),
        reply=to_reply(row, texts),
        step=step,
    )


def to_decision(row: Rows, hidden_state: bytes) -> Decision:
    numbers: Row = {name: to_floats(row[name]) for name in _NUMBERS}
    return from_row(Decision, row, hidden_state=hidden_state, **numbers)


def to_reply(row: Rows, texts: Mapping[str, str]) -> Reply:
    cached, unread = row["tokens_cached"] or 0, row["unread_usd"] or 0.0
    return Reply(
        text=texts.get("reply", ""),
        reasoning=texts.get("reasoning", ""),
        finish_reason=row["finish_reason"],
        usage=from_row(Usage, row, tokens_cached=cached, unread_usd=unread),
        latency_s=row["latency_s"],
        error=Failure(row["error_kind"], row["error"]) if row["error_kind"] else None,
        reused=Flag.REUSED in row["flags"],
        recorded=to_recorded(row["recorded"]),
    )


def recorded_object(row: Recorded) -> dict[str, Any]:
    return {**asdict(row), "answer": row.answer and well_formed(row.answer)}


def to_recorded(stored: Mapping[str, Any] | None) -> Recorded | None:
    if stored is None:
        return None
    verdict = stored["verdict"] and Verdict(stored["verdict"])
    return Recorded(**{**stored, "verdict": verdict})


def plan_row(plan: Plan, at: float) -> Row:
    return {
        **_columns(plan, _PLAN),
        **_said_row(plan.messages, plan.reply, at),
        "workflow": asdict(plan.workflow) if plan.workflow else None,
    }


def _said_row(messages: Sequence[Message], reply: Reply, at: float) -> Row:
    """A reply that belongs to no turn, its texts with it."""
    return {
        "at": at,
        "prompt": prompt_text(messages),
        **{kind: well_formed(body) for kind, body in reply_texts(reply).items()},
        **{name: value for name, value in replied_row(reply).items() if name not in ("stage", "recorded")},
    }


def _to_said(row: Rows) -> Reply:
    texts = {"reply": row["reply"], "reasoning": row["reasoning"]}
    return to_reply({**row, "flags": (), "recorded": None}, texts)


def to_plan(row: Rows) -> Plan:
    workflow = None
    if lists := row["workflow"]:
        reads = tuple(tuple(seen) for seen in lists["reads"])
        mode = AccessMode(lists["mode"])
        workflow = Workflow(tuple(lists["models"]), tuple(lists["subtasks"]), reads, mode)
    own = {name: row[name] for name in _PLAN}
    return Plan(**own, messages=to_messages(row["prompt"]), reply=_to_said(row), workflow=workflow)


def judgement_row(one: Judgement, at: float) -> Row:
    return {
        **_columns(one, ("episode_id", "number", "judge", "rating")),
        "idx": one.index,
        "answer": well_formed(one.answer),
        **_said_row(one.messages, one.reply, at),
    }


def to_judgement(row: Rows) -> Judgement:
    messages = to_messages(row["prompt"])
    return from_row(Judgement, row, index=row["idx"], messages=messages, reply=_to_said(row))


# What lists show


def flag_bits(flags: Iterable[str]) -> int:
    """A set of episode flags as bits."""
    return sum(1 << EPISODE_FLAGS.index(flag) for flag in set(flags))


def to_flag_names(bits: int) -> tuple[str, ...]:
    return tuple(flag for i, flag in enumerate(EPISODE_FLAGS) if bits >> i & 1)


def cut(text: str) -> str:
    """A text on one line, at most QUESTION_CUT characters."""
    line = " ".join(well_formed(text[: 4 * QUESTION_CUT]).split())
    return line if len(line) <= QUESTION_CUT else line[: QUESTION_CUT - 1] + "…"


def floats(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def to_floats(packed: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(packed) // 8}d", packed)
