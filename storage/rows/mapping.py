"""Rows to core values and back; the one place that knows how a noun is spread over columns.

Numbers of a decision are little-endian float64 (exact), hidden states the float16 bytes they came as, masks
strings of 0 and 1, episode flags bits in EPISODE_FLAGS order.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, get_args

from sqlalchemy import RowMapping

from core.analysis.metrics import decision_entropy, decision_margin
from core.episode import (
    Change,
    Decision,
    EndReason,
    Episode,
    Failure,
    Flag,
    Fork,
    Message,
    Plan,
    Protocol,
    Removable,
    Reply,
    Role,
    Status,
    Step,
    Task,
    Turn,
    Usage,
    Verdict,
)
from core.texts import well_formed
from core.workflow import AccessMode, PlanFault, Workflow
from storage.rows.progress import EpisodeProgress, episode_flags
from storage.rows.summaries import EPISODE_FLAGS, QUESTION_CUT

Row = dict[str, Any]
Rows = Mapping[str, Any] | RowMapping

#: Fields of a value that stand in columns of the same name: as they are, as packed numbers, as strings of 0 and 1.
_EPISODE = ("id", "run_id", "policy", "generation", "turn_budget", "seed", "argmax")
_FORK = ("number", "prefix", "pool", "held")
#: The columns of a fork.
FORK_COLUMNS = (
    *("parent_episode_id", "fork_turn", "fork_change", "fork_value"),
    *(f"fork_{name}" for name in _FORK),
)
#: What can be removed from an episode, and the column that says on which day it was.
REMOVED: dict[Removable, str] = {what: f"{what}_removed" for what in get_args(Removable)}
_PROMPT = ("prompt_digest", "prompt_tokens", "prompt_overflow")
_PROGRESS = (
    "turns",
    "strip",
    "tokens_in",
    "tokens_out",
    "cost_usd",
    "latency_s",
    "min_margin",
    "topology",
    "plan_fault",
)
_DECISION = ("model", "argmax_model", "sampled", "origin", *_PROMPT)
_NUMBERS = ("model_logits", "role_logits", "model_probs", "role_probs")
_MASKS = ("model_mask", "role_mask")
_MEANING = ("suggestion", "verdict_raw", "answer_rule", "answer_after", "correct_after")


# Tasks and episodes


def task_row(task: Task) -> Row:
    """The task's row without its key."""
    content = {name: clean(value) for name, value in task.content.items()}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    return {"digest": digest, **content, "answer_pattern": clean(task.answer_pattern)}


def to_task(row: Rows) -> Task:
    """The task of a row of `task`."""
    return Task(**{field.name: row[field.name] for field in fields(Task)})


def episode_row(episode: Episode, task_key: int, started: float) -> Row:
    """What is fixed from an episode's start."""
    return {
        **{name: getattr(episode, name) for name in _EPISODE},
        "task_key": task_key,
        "task_id": episode.task.id,
        "family": episode.task.family,
        "question": cut(episode.task.question),
        "models": json.dumps(episode.models),
        "protocol": episode.protocol or "",
        **_fork_columns(episode.fork),
        "left_out": json.dumps(episode.left_out) if episode.left_out else None,
        "deciders": deciders_column(episode.deciders),
        **{column: episode.removed.get(what) for what, column in REMOVED.items()},
        "meta": json.dumps(dict(episode.meta)),
        "status": Status.RUNNING.value,
        "started": started,
    }


def _fork_columns(fork: Fork | None) -> Row:
    if fork is None:
        return dict.fromkeys(FORK_COLUMNS)
    return {
        "parent_episode_id": fork.parent,
        "fork_turn": fork.turn,
        "fork_change": fork.change.kind if fork.change else None,
        "fork_value": clean(fork.change.value) if fork.change else None,
        **{f"fork_{name}": getattr(fork, name) for name in _FORK},
    }


def to_fork(row: Rows) -> Fork | None:
    """The fork that a row of an episode is; None for a play from the beginning."""
    if row["parent_episode_id"] is None:
        return None
    change = Change(row["fork_change"], row["fork_value"]) if row["fork_change"] else None
    fields = {name: row[f"fork_{name}"] for name in _FORK}
    return Fork(row["parent_episode_id"], row["fork_turn"], change, **fields)


def deciders_column(deciders: Mapping[int, str]) -> str | None:
    """`Episode.deciders` as a column."""
    return json.dumps(deciders) if deciders else None


def to_deciders(column: str | None) -> dict[int, str]:
    """Inverse of `deciders_column`."""
    return {int(turn): policy for turn, policy in json.loads(column or "{}").items()}


def to_left_out(column: str | None) -> tuple[str, ...]:
    """`Episode.left_out` of its column."""
    return tuple(json.loads(column or "[]"))


def outcome_row(episode: Episode) -> Row:
    """What is known at an episode's end, with the columns that lists show."""
    progress = EpisodeProgress.over(episode.models, episode.turns, episode.plans)
    return {
        "status": episode.status.value,
        "end_reason": episode.end_reason.value if episode.end_reason else None,
        "answer": episode.answer and clean(episode.answer),
        "correct": episode.correct,
        "error": episode.error and clean(episode.error),
        **progress_row(progress),
        "flags": flag_bits(episode_flags(episode, progress)),
    }


def progress_row(progress: EpisodeProgress) -> Row:
    """The list columns that grow with every turn."""
    return {
        **{name: getattr(progress, name) for name in _PROGRESS},
        "mean_entropy": progress.entropy_sum / progress.decisions if progress.decisions else None,
        "flags": flag_bits(progress.flags),
    }


def to_episode(row: Rows, task: Task, turns: tuple[Turn, ...], plans: tuple[Plan, ...] = ()) -> Episode:
    """The episode of its rows."""
    return Episode(
        **{name: row[name] for name in (*_EPISODE, "answer", "correct", "error")},
        task=task,
        models=tuple(json.loads(row["models"])),
        protocol=Protocol(row["protocol"]) if row["protocol"] else None,
        turns=turns,
        plans=plans,
        status=Status(row["status"]),
        end_reason=EndReason(row["end_reason"]) if row["end_reason"] else None,
        fork=to_fork(row),
        left_out=to_left_out(row["left_out"]),
        deciders=to_deciders(row["deciders"]),
        removed={what: day for what, column in REMOVED.items() if (day := row[column]) is not None},
        meta=json.loads(row["meta"]),
    )


# Turns, in the order in which their columns become known


def asked_row(episode_id: str, index: int, decision: Decision, started: float) -> Row:
    """A turn that has begun: the decision."""
    return {
        "episode_id": episode_id,
        "idx": index,
        "stage": "asked",
        **{name: getattr(decision, name) for name in _DECISION},
        **{name: floats(getattr(decision, name)) for name in _NUMBERS},
        **{name: "".join("1" if allowed else "0" for allowed in getattr(decision, name)) for name in _MASKS},
        "role": decision.role.value,
        "argmax_role": decision.argmax_role.value if decision.argmax_role else None,
        "margin": decision_margin(decision),
        "entropy": decision_entropy(decision),
        "started": started,
    }


def replied_row(reply: Reply) -> Row:
    """A turn whose model has replied, without the texts."""
    return {
        "stage": "replied",
        "finish_reason": clean(reply.finish_reason),
        **asdict(reply.usage),
        "latency_s": reply.latency_s,
        "error_kind": reply.error.kind if reply.error else None,
        "error": clean(reply.error.message) if reply.error else None,
    }


def finished_row(turn: Turn) -> Row:
    """A turn that is over: what its reply meant."""
    return {
        "stage": "finished",
        "suggestion": clean(turn.suggestion),
        "suggested_role": turn.suggested_role.value if turn.suggested_role else None,
        "verdict": turn.verdict.value if turn.verdict else None,
        "verdict_raw": clean(turn.verdict_raw),
        "answer_rule": turn.answer_rule,
        "answer_after": turn.answer_after and clean(turn.answer_after),
        "correct_after": turn.correct_after,
        "flags": ",".join(turn.flags),
        **_step_columns(turn.step),
    }


def _step_columns(step: Step | None) -> Row:
    if step is None:
        return dict.fromkeys(("round", "step", "subtask", "visible"))
    return {
        "round": step.round,
        "step": step.place,
        "subtask": clean(step.subtask),
        "visible": json.dumps(step.visible),
    }


def text_rows(episode_id: str, index: int, texts: Mapping[str, str]) -> list[Row]:
    """One row of `text` per kind; empty texts have none."""
    return [
        {"episode_id": episode_id, "idx": index, "kind": kind, "body": clean(body)}
        for kind, body in texts.items()
        if body
    ]


def state_rows(episode_id: str, index: int, decision: Decision) -> list[Row]:
    """The row of `state`; none for a decision without a hidden state."""
    state = decision.hidden_state
    return [{"episode_id": episode_id, "idx": index, "hidden": state}] if state else []


def reply_texts(reply: Reply) -> dict[str, str]:
    """The texts of a reply by kind."""
    return {"reply": reply.text, "reasoning": reply.reasoning}


def prompt_text(messages: Sequence[Message]) -> str:
    """A prompt as JSON; empty without messages."""
    if not messages:
        return ""
    return json.dumps([[m.role, clean(m.content)] for m in messages], ensure_ascii=False)


def to_messages(body: str) -> tuple[Message, ...]:
    """Inverse of `prompt_text`."""
    return tuple(Message(role, content) for role, content in json.loads(body)) if body else ()


def to_turn(row: Rows, texts: Mapping[str, str], hidden_state: bytes) -> Turn:
    """The finished turn of its rows; `texts` by kind."""
    return Turn(
        episode_id=row["episode_id"],
        index=row["idx"],
        decision=to_decision(row, hidden_state),
        messages=to_messages(texts.get("prompt", "")),
        reply=to_reply(row, texts),
        suggested_role=Role(row["suggested_role"]) if row["suggested_role"] else None,
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        flags=to_flags(row["flags"]),
        step=_to_step(row),
        **{name: row[name] for name in _MEANING},
    )


def _to_step(row: Rows) -> Step | None:
    if row["step"] is None:
        return None
    return Step(row["round"], row["step"], row["subtask"], tuple(json.loads(row["visible"])))


def plan_row(plan: Plan, at: float) -> Row:
    """A planner's reply and what was read from it."""
    workflow = plan.workflow
    lists = {
        "models": workflow.models,
        "subtasks": workflow.subtasks,
        "reads": workflow.reads,
        "mode": workflow.mode,
    } if workflow else None  # fmt: skip
    return {
        **{name: getattr(plan, name) for name in ("episode_id", "round", "attempt", "planner", "keeps")},
        "at": at,
        "prompt": prompt_text(plan.messages),
        **{kind: clean(body) for kind, body in reply_texts(plan.reply).items()},
        **{name: value for name, value in replied_row(plan.reply).items() if name != "stage"},
        "workflow": clean(json.dumps(lists)) if lists else None,
        "fault": plan.fault.value if plan.fault else None,
    }


def to_plan(row: Rows) -> Plan:
    """Inverse of `plan_row`, but for the time."""
    lists = json.loads(row["workflow"]) if row["workflow"] else None
    return Plan(
        **{name: row[name] for name in ("episode_id", "round", "attempt", "planner", "keeps")},
        messages=to_messages(row["prompt"]),
        reply=to_reply({**row, "flags": ""}, {"reply": row["reply"], "reasoning": row["reasoning"]}),
        workflow=lists
        and Workflow(
            tuple(lists["models"]),
            tuple(lists["subtasks"]),
            tuple(tuple(seen) for seen in lists["reads"]),
            AccessMode(lists["mode"]),
        ),
        fault=PlanFault(row["fault"]) if row["fault"] else None,
    )


def to_decision(row: Rows, hidden_state: bytes) -> Decision:
    """The decision of a turn's row."""
    masks: Row = {name: tuple(mark == "1" for mark in row[name]) for name in _MASKS}
    numbers: Row = {name: to_floats(row[name]) for name in _NUMBERS}
    return Decision(
        **{name: row[name] for name in _DECISION},
        **numbers,
        **masks,
        role=Role(row["role"]),
        argmax_role=Role(row["argmax_role"]) if row["argmax_role"] else None,
        hidden_state=hidden_state,
    )


def to_reply(row: Rows, texts: Mapping[str, str]) -> Reply:
    """The reply of a turn that has one."""
    return Reply(
        text=texts.get("reply", ""),
        reasoning=texts.get("reasoning", ""),
        finish_reason=row["finish_reason"],
        usage=Usage(
            row["tokens_in"],
            row["tokens_out"],
            row["cost_usd"],
            row["tokens_cached"] or 0,
            row["at_most_usd"],
            row["unread_usd"] or 0.0,
        ),
        latency_s=row["latency_s"],
        error=Failure(row["error_kind"], row["error"]) if row["error_kind"] else None,
        reused=Flag.REUSED in to_flags(row["flags"]),
    )


# What lists show


def flag_bits(flags: Iterable[str]) -> int:
    """A set of episode flags as bits."""
    return sum(1 << EPISODE_FLAGS.index(flag) for flag in set(flags))


def to_flag_names(bits: int) -> tuple[str, ...]:
    """Inverse of `flag_bits`, in EPISODE_FLAGS order."""
    return tuple(flag for i, flag in enumerate(EPISODE_FLAGS) if bits >> i & 1)


def to_flags(joined: str) -> tuple[Flag, ...]:
    """A turn's flags from their column."""
    return tuple(Flag(name) for name in joined.split(",") if name)


def clean(text: str) -> str:
    """The text as databases take it: lone surrogates and NULs, which some providers let through, replaced."""
    return well_formed(text)


def cut(text: str) -> str:
    """A text on one line, at most QUESTION_CUT characters."""
    line = " ".join(clean(text[: 4 * QUESTION_CUT]).split())
    return line if len(line) <= QUESTION_CUT else line[: QUESTION_CUT - 1] + "…"


def floats(values: Sequence[float]) -> bytes:
    """Numbers as little-endian float64."""
    return struct.pack(f"<{len(values)}d", *values)


def to_floats(packed: bytes) -> tuple[float, ...]:
    """Inverse of `floats`."""
    return struct.unpack(f"<{len(packed) // 8}d", packed)
