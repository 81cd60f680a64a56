"""What a played request says to its client: the answer, the use of tokens, and who did what."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core.episode import (
    EndReason,
    Episode,
    EpisodeFinished,
    Event,
    Flag,
    Plan,
    Role,
    Status,
    Turn,
    TurnStarted,
    Usage,
)
from ui.endpoint.engine import Order
from ui.endpoint.errors import ApiError, out_of_money, unavailable
from ui.endpoint.formats import AnswerFormat, Fitting
from ui.endpoint.schema_checks import Undecided

#: The characters of an answer that a stream sends at a time.
PIECE = 48


@dataclass
class Course:
    """A request while it is played: its turns so far, and how it ended."""

    order: Order
    inspector: str
    answer_format: AnswerFormat | None = None
    stop: tuple[str, ...] = ()
    one_call: bool = False
    turns: list[Turn] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    ended: Episode | None = None
    out_of_time: bool = False
    fitting: Fitting | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def id(self) -> str:
        """The episode's id."""
        return self.order.episode.id

    @property
    def url(self) -> str:
        """Where the inspector shows it; empty where no inspector is known."""
        return f"{self.inspector.rstrip('/')}/replay?ep={self.id}" if self.inspector else ""

    @property
    def headers(self) -> dict[str, str]:
        """Headers that lead to the episode."""
        return {"x-trinity-episode": self.id, **({"x-trinity-url": self.url} if self.url else {})}

    def take(self, event: Event) -> dict[str, Any] | None:
        """Take in what happened; the progress worth telling of it."""
        match event:
            case Plan():
                self.plans.append(event)
                return {"type": "plan.written", **_plan(event, self.order.episode.models)}
            case TurnStarted():
                decision = event.decision
                told = {"turn": event.index, "model": decision.model, "role": decision.role.value}
                return {
                    "type": "turn.started",
                    **told,
                    **self._step(event.index),
                    **_odds(self.order.episode, decision),
                }
            case Turn():
                self.turns.append(event)
                return {"type": "turn.finished", **self._turn(event)}
            case EpisodeFinished():
                self.ended = event.episode
        return None

    @property
    def end_reason(self) -> str:
        """Why it ended."""
        if self.ended is None:
            return (EndReason.DEADLINE if self.out_of_time else EndReason.ERROR).value
        return (self.ended.end_reason or EndReason.ERROR).value

    @property
    def answered_by(self) -> Turn | None:
        """The turn that gave the answer."""
        given = [one for one in self.turns if _answered(one)]
        return given[-1] if given else None

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tools that a Worker asks to have called, where that ended it; each has an id of its own."""
        last = self.turns[-1].reply if self.turns else None
        calls = list(json.loads(last.tool_calls)) if last and last.tool_calls else []
        for number, call in enumerate(calls):
            call["id"] = call["id"] or f"call_{self.id}_{number}"
        return calls[:1] if self.one_call else calls

    def outcome(self) -> str | None:
        """The answer; None where tools are to be called first. ApiError where the request came to nothing."""
        return None if self.tool_calls else self.answer()

    def answer(self) -> str:
        """The answer in the form that was asked for. ApiError where the request came to nothing."""
        turn = self.answered_by
        text = turn.answer_after if turn else None
        if text is None:
            raise self._nothing()
        if self.order.must_call:
            raise self._no_call()
        if self.answer_format is None:
            return text[: self._end_of(text)]
        self.check()
        assert self.fitting is not None
        if self.fitting.text is None:
            raise ApiError(
                502,
                f"The models gave no JSON of the form that was asked for ({self.fitting.fault[:200]}; episode "
                f"{self.id}): try again, with more turns or a simpler schema.",
                "server_error",
                "invalid_answer_format",
                headers=self.headers,
            )
        return self.fitting.text

    def check(self) -> None:
        """Check the answer against the form that was asked for, once; it may take a second or two."""
        turn = self.answered_by
        if (
            self.answer_format is None
            or turn is None
            or turn.answer_after is None
            or self.fitting is not None
        ):
            return
        try:
            self.fitting = self.answer_format.read(turn.answer_after)
        except Undecided as error:
            self.fitting = Fitting(None, f"the check against the schema {error}")

    @property
    def finish_reason(self) -> str:
        """As OpenAI names it: stop, tool_calls, length where the answer was cut, content_filter where it was filtered.
        OpenAI has no word for a reason that nobody knows: the turn in the trace is flagged, and tells it."""
        if self.tool_calls:
            return "tool_calls"
        turn = self.answered_by
        if self.answer_format is None and turn and self._end_of(turn.answer_after or "") is not None:
            return "stop"
        flags = turn.flags if turn else ()
        if Flag.REFUSED in flags:
            return "content_filter"
        return "length" if Flag.TRUNCATED in flags else "stop"

    def _end_of(self, text: str) -> int | None:
        """Where the first of the texts begins at which an answer shall end; None where there is none."""
        found = [at for one in self.stop if (at := text.find(one)) >= 0]
        return min(found, default=None)

    def usage(self) -> dict[str, int]:
        """Tokens of the call that gave the answer, and beside them of all others (`orchestration`); `cached` are part
        of the input."""
        own = self.turns[-1] if self.tool_calls else self.answered_by
        planning = [one.reply.usage for one in self.plans]
        others = planning + [one.reply.usage for one in self.turns if one is not own]
        used = own.reply.usage if own else None
        return {
            "input": used.tokens_in if used else 0,
            "cached": used.tokens_cached if used else 0,
            "output": used.tokens_out if used else 0,
            "orchestration_input": sum(one.tokens_in for one in others),
            "orchestration_cached": sum(one.tokens_cached for one in others),
            "orchestration_output": sum(one.tokens_out for one in others),
            "total": used.tokens_in + used.tokens_out if used else 0,
        }

    def _every_usage(self) -> list[Usage]:
        return [plan.reply.usage for plan in self.plans] + [turn.reply.usage for turn in self.turns]

    def trace(self) -> dict[str, Any]:
        """The vendor object: who played, turn by turn, with how many tokens and at what cost, why it ended, and what of
        the request was left aside."""
        planning = [plan.reply.usage.cost_usd for plan in self.plans]
        costs = planning + [turn.reply.usage.cost_usd for turn in self.turns if turn.messages]
        return {
            "episode": self.id,
            "url": self.url or None,
            "model": self.order.model,
            "policy": self.order.policy.id,
            "end_reason": self.end_reason,
            "ceiling": self.order.ceiling.of if self.order.ceiling else None,
            "error": self.ended.error if self.ended else None,
            "turn_budget": self.order.episode.turn_budget,
            "left_out": list(self.order.episode.left_out),
            "left_aside": list(self.order.left_aside),
            "input_tokens": sum(one.tokens_in for one in self._every_usage()),
            "output_tokens": sum(one.tokens_out for one in self._every_usage()),
            "cost_usd": None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs),
            "turns": [self._turn(turn) for turn in self.turns],
            **(
                {"plans": [_plan(one, self.order.episode.models) for one in self.plans]} if self.plans else {}
            ),
        }

    def _step(self, index: int) -> dict[str, Any]:
        """Of a workflow's step: its round, its place, what it is asked and which earlier steps it may read."""
        run = [plan for plan in self.plans if plan.workflow is not None]
        first = 0
        for plan in run:
            assert plan.workflow is not None
            if index < first + len(plan.workflow):
                place = index - first
                flow = plan.workflow
                return {
                    "round": plan.round,
                    "step": place,
                    "subtask": flow.subtasks[place],
                    "reads": [*flow.reads[place]],
                }
            first += len(plan.workflow)
        return {}

    def _turn(self, turn: Turn) -> dict[str, Any]:
        usage = turn.reply.usage
        return {
            "turn": turn.index,
            "model": turn.decision.model,
            "role": turn.decision.role.value,
            "verdict": turn.verdict.value if turn.verdict else None,
            **self._step(turn.index),
            "answered": _answered(turn),
            "flags": [flag.value for flag in turn.flags],
            "finish_reason": turn.reply.finish_reason,
            "input_tokens": usage.tokens_in,
            "output_tokens": usage.tokens_out,
            "cost_usd": usage.cost_usd,
            "latency_s": round(turn.reply.latency_s, 3),
            **_odds(self.order.episode, turn.decision),
        }

    def _no_call(self) -> ApiError:
        return ApiError(
            502,
            f"The request demands a tool call, and no Worker made one (episode {self.id}): ask again, "
            "allow more turns, or leave out the models that cannot call tools.",
            "server_error",
            "no_tool_call",
            headers=self.headers,
        )

    def _nothing(self) -> ApiError:
        """Why there is no answer."""
        where = f" (episode {self.id})"
        ended = self.ended
        if self.end_reason == EndReason.DEADLINE:
            message = f"The deadline came before any answer{where}: allow more seconds, or fewer turns."
            return ApiError(504, message, "timeout_error", "deadline_exceeded", headers=self.headers)
        if self.end_reason == EndReason.COST_CEILING:
            which = (
                self.order.ceiling.words if self.order.ceiling else "the cost ceiling: allow more, or wait"
            )
            return out_of_money(f"The next call could exceed {which}{where}.")
        if self.end_reason == EndReason.CANCELLED:
            return ApiError(503, f"The request was cancelled{where}.", "server_error", "cancelled")
        if ended is not None and ended.status is Status.MISSING:
            message = f"A model of the pool could not be asked{where}: {ended.error}"
            return ApiError(502, message, "server_error", "pool_unavailable", headers=self.headers)
        if ended is None and self.order.fault is not None:
            return unavailable(f"{self.order.fault} The request broke off{where}: send it again.")
        if ended is None:
            return ApiError(500, f"The endpoint stopped{where}: ask again.", "server_error", "broke_off")
        if self.end_reason == EndReason.UNREADABLE_PLAN:
            message = f"The planner wrote no workflow that can be read{where}: ask again, or another model."
            return ApiError(502, message, "server_error", "unreadable_plan", headers=self.headers)
        if self.plans and not self.turns:
            message = f"The workflow has more steps than the turn budget allows{where}: allow more turns."
            return ApiError(502, message, "server_error", "no_answer", headers=self.headers)
        if self.order.must_call:
            return self._no_call()
        message = f"No model gave a readable answer within the turn budget{where}: allow more turns."
        return ApiError(502, message, "server_error", "no_answer", headers=self.headers)


def _answered(turn: Turn) -> bool:
    """Whether a turn gave an answer: a Worker's, or the step of a workflow after which one stands."""
    if Flag.NO_ANSWER in turn.flags:
        return False
    if turn.step is not None:
        return bool(turn.answer_after and turn.reply.text and turn.reply.error is None)
    return turn.decision.role is Role.WORKER


def _plan(plan: Plan, models: Sequence[str]) -> dict[str, Any]:
    """What a planner wrote, as it was read; `fault` says why it could not be."""
    flow = plan.workflow
    return {
        "round": plan.round,
        "attempt": plan.attempt,
        "input_tokens": plan.reply.usage.tokens_in,
        "output_tokens": plan.reply.usage.tokens_out,
        "cost_usd": plan.reply.usage.cost_usd,
        "planner": plan.planner,
        "fault": plan.fault.value if plan.fault else None,
        "topology": flow.topology.value if flow else None,
        "steps": [
            {"model": models[slot], "subtask": subtask, "reads": [*reads]}
            for slot, subtask, reads in zip(flow.models, flow.subtasks, flow.reads, strict=True)
        ]
        if flow
        else [],
    }


def _odds(episode: Episode, decision: Any) -> dict[str, Any]:
    """The coordinator's probabilities by name; empty for policies without."""
    models = dict(zip(episode.models, (round(p, 6) for p in decision.model_probs), strict=False))
    roles = dict(
        zip(("worker", "thinker", "verifier"), (round(p, 6) for p in decision.role_probs), strict=False)
    )
    return {"probabilities": {"model": models, "role": roles}} if models or roles else {}


# Chat completions


def chat_usage(course: Course) -> dict[str, Any]:
    """The `usage` object of a chat completion."""
    used = course.usage()
    return {
        "prompt_tokens": used["input"],
        "completion_tokens": used["output"],
        "total_tokens": used["total"],
        "prompt_tokens_details": {
            "cached_tokens": used["cached"],
            "orchestration_input_tokens": used["orchestration_input"],
            "orchestration_input_cached_tokens": used["orchestration_cached"],
        },
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "orchestration_output_tokens": used["orchestration_output"],
        },
    }


def chat_completion(course: Course) -> dict[str, Any]:
    """The whole body of a chat completion. ApiError where there is no answer."""
    message: dict[str, Any] = {"role": "assistant", "content": course.outcome(), "refusal": None}
    if course.tool_calls:
        message["tool_calls"] = course.tool_calls
    choice = {"index": 0, "message": message, "finish_reason": course.finish_reason, "logprobs": None}
    return {
        "id": f"chatcmpl-{course.id}",
        "object": "chat.completion",
        "created": course.created,
        "model": course.order.model,
        "choices": [choice],
        "usage": chat_usage(course),
        "trinity": course.trace(),
    }


def chat_chunk(
    course: Course, delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any
) -> str:
    """One piece of a streamed chat completion, as JSON. Without a delta it carries progress alone."""
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish, "logprobs": None}]
    return json.dumps(
        {
            "id": f"chatcmpl-{course.id}",
            "object": "chat.completion.chunk",
            "created": course.created,
            "model": course.order.model,
            "choices": choices,
            **more,
        }
    )


def pieces(text: str) -> list[str]:
    """A text in the pieces that a stream sends."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


# Responses


#: Why a response is not whole, by its finish reason as a chat completion.
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def response_object(course: Course, status: str, text: str | None = None) -> dict[str, Any]:
    """The object of the Responses API, in progress or over; `text` is the answer, None where there is none."""
    over = status == "completed"
    used = course.usage()
    usage = {
        "input_tokens": used["input"],
        "input_tokens_details": {
            "cached_tokens": used["cached"],
            "cache_write_tokens": 0,
            "orchestration_input_tokens": used["orchestration_input"],
            "orchestration_input_cached_tokens": used["orchestration_cached"],
        },
        "output_tokens": used["output"],
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "orchestration_output_tokens": used["orchestration_output"],
        },
        "total_tokens": used["total"],
    }
    cut = _INCOMPLETE.get(course.finish_reason) if text is not None else None
    return {
        "id": f"resp_{course.id}",
        "object": "response",
        "created_at": course.created,
        "status": "incomplete" if cut else status,
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "instructions": None,
        "metadata": dict(course.order.episode.meta),
        "model": course.order.model,
        "output": output_items(course, text) if over else [],
        "parallel_tool_calls": False,
        "temperature": course.order.temperature,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": usage if over else None,
        **({"trinity": course.trace()} if over else {}),
    }


def output_items(course: Course, text: str | None) -> list[dict[str, Any]]:
    """What a response gives: a message, or the calls that it asks for."""
    if text is not None:
        return [output_item(course, text, "completed")]
    return [
        {
            "id": f"fc_{course.id}_{number}",
            "type": "function_call",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "status": "completed",
        }
        for number, call in enumerate(course.tool_calls)
    ]


def output_item(course: Course, text: str | None, status: str) -> dict[str, Any]:
    """The message that an answer is; without text while it is being sent."""
    content = [] if text is None else [output_part(text)]
    return {
        "id": f"msg_{course.id}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def output_part(text: str) -> dict[str, Any]:
    """The text of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
