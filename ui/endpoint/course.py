"""A request while it is played: what happened so far, the answer, the use of tokens, and who did what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.episode import (
    Delta,
    EndReason,
    Episode,
    EpisodeFinished,
    Event,
    Flag,
    Plan,
    Replied,
    Reply,
    Role,
    Status,
    Step,
    Turn,
    TurnStarted,
    Usage,
)
from core.errors import PoolError
from core.finish import TOO_LONG
from core.play.chat import joined, shown_of
from ui.endpoint.engine import Order
from ui.endpoint.errors import ApiError, quota_used_up, store_unavailable
from ui.endpoint.formats import Fitting
from ui.endpoint.live_text import LiveText
from ui.endpoint.schema_checks import Undecided


@dataclass
class Course:
    """A request while it is played: its turns so far, and how it ended."""

    order: Order
    inspector: str
    turns: list[Turn] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    failed: list[Reply] = field(default_factory=list)  # calls that brought none
    ended: Episode | None = None
    out_of_time: bool = False
    fitting: Fitting | None = None
    live: LiveText | None = None  # of the turn whose text goes out as it comes
    begun: dict[int, TurnStarted] = field(default_factory=dict)  # what was asked, by turn

    @property
    def id(self) -> str:
        """The episode's id."""
        return self.order.episode.id

    @property
    def created(self) -> int:
        """When it was asked, Unix seconds."""
        return int(self.order.sender.at)

    @property
    def url(self) -> str:
        """Where the inspector shows it; empty where no inspector is known."""
        return f"{self.inspector.rstrip('/')}/replay?ep={self.id}" if self.inspector else ""

    @property
    def headers(self) -> dict[str, str]:
        """Headers that lead to the episode."""
        return {"x-trinity-episode": self.id, **({"x-trinity-url": self.url} if self.url else {})}

    def take(self, event: Event) -> dict[str, Any] | str | None:
        """Take in what happened; the progress worth telling of it, or a piece of the answer as a text."""
        match event:
            case Replied() if event.reply.error:
                self.failed.append(event.reply)
            case Plan():
                self.plans.append(event)
                self.failed += [event.reply] if event.reply.error else []
                return {"type": "plan.written", **_plan(event, self.order.episode.models)}
            case Delta(live=True):
                return self._live(event.index).feed(event.text) or None
            case Delta():
                return {"type": "turn.text", "turn": event.index, "text": event.text}
            case TurnStarted():
                self.begun[event.index] = event
                if event.kept_as is not None and self.live is not None and self.live.turn == event.index:
                    # What another model writes now is no part of the text that broke off.
                    self.live = replace(self.live, is_lost=True) if self.live.sent else None
                decision, step = event.decision, self._step(event.index)
                told = {"turn": event.index, "model": decision.model, "role": decision.role.value}
                if event.kept_as is not None:  # the call in vain, which another model makes good
                    told["failed_as"] = event.kept_as
                return {"type": "turn.started", **told, **step, **_odds(self.order.episode, decision)}
            case Turn():
                self.turns.append(event)
                return {"type": "turn.finished", **self._turn(event)}
            case EpisodeFinished():
                self.ended = event.episode
        return None

    def _live(self, index: int) -> LiveText:
        """The text of this turn, which is the answer; that of a turn which broke off goes on in it, but for a step of a
        workflow, which others begin again."""
        live = self.live
        if live is None or (live.turn != index and not live.is_lost):
            messages = self.begun[index].messages if index in self.begun else ()
            flow = self.plans[-1].workflow if self.plans else None
            begun = "" if live is None else joined(live.begun, shown_of(live.raw))
            self.live = LiveText(
                index,
                self.order.asked.stop,
                messages,
                flow.subtasks[index] if flow else "",
                begun,
                sent="" if live is None else live.sent,
            )
            return self.live
        return live

    def rest(self, text: str | None) -> str | None:
        """What is left to send of the answer's text. ApiError where what was sent turned out to be none of it."""
        if self.live is None:
            return text
        if text is None:  # tools are to be called, after what was said
            return self.live.end() or None
        reply = self.answered_by.reply.text if self.answered_by else ""
        if (rest := self.live.rest(text, reply)) is None:
            raise self._failed(
                502,
                "answer_changed",
                f"A reply broke off after a part of its text had been sent, and the answer is another text (episode "
                f"{self.id}): ask again.",
            )
        return rest

    @property
    def end_reason(self) -> str:
        """Why it ended."""
        if self.ended is None:
            return (EndReason.DEADLINE if self.out_of_time else EndReason.ERROR).value
        return (self.ended.end_reason or EndReason.ERROR).value

    @property
    def answered_by(self) -> Turn | None:
        """The turn that gave the answer."""
        return next((one for one in reversed(self.turns) if _answered(one)), None)

    @property
    def text(self) -> str | None:
        """What that turn answered, as its model wrote it."""
        return self.answered_by.answer_after if self.answered_by else None

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tools that a Worker asks to have called, where that ended it; each has an id of its own."""
        last = self.turns[-1].reply if self.turns else None
        calls = list(json.loads(last.tool_calls)) if last and last.tool_calls else []
        for number, call in enumerate(calls):
            call["id"] = call["id"] or f"call_{self.id}_{number}"
        return calls[:1] if self.order.asked.tools.one_call else calls

    def outcome(self) -> str | None:
        """The answer in the form that was asked for; None where tools are to be called first. ApiError where the
        request came to nothing."""
        asked = self.order.asked
        if self.tool_calls:
            return None
        text = self.text
        if text is None:
            raise self._nothing()
        if asked.tools.must_call:
            raise self._no_call()
        if asked.answer_format is None:
            return text[: self._end_of(text)]
        self.check()
        assert self.fitting is not None
        if self.fitting.text is None:
            raise self._failed(
                502,
                "invalid_answer_format",
                f"The models gave no JSON of the form that was asked for ({self.fitting.fault[:200]}; episode "
                f"{self.id}): try again, with more turns or a simpler schema.",
            )
        return self.fitting.text

    def check(self) -> None:
        """Check the answer against the form that was asked for, once; it may take a second or two."""
        wanted, text = self.order.asked.answer_format, self.text
        if wanted is None or text is None or self.fitting is not None:
            return
        if (known := self.order.fitting) is not None and known[
            0
        ] == text:  # by whoever might have it repaired
            self.fitting = known[1]
            return
        try:
            self.fitting = wanted.read(text)
        except Undecided as error:
            self.fitting = Fitting(None, f"the check against the schema {error}")

    @property
    def finish_reason(self) -> str:
        """As OpenAI names it: stop, tool_calls, length where the answer was cut, content_filter where it was filtered.
        OpenAI has no word for a reason that nobody knows: the turn in the trace is flagged, and tells it."""
        if self.tool_calls:
            return "tool_calls"
        if self.order.asked.answer_format is None and self._end_of(self.text or "") is not None:
            return "stop"
        turn = self.answered_by
        flags = turn.flags if turn else ()
        if Flag.REFUSED in flags:
            return "content_filter"
        return "length" if Flag.TRUNCATED in flags else "stop"

    @property
    def stopped_by(self) -> str | None:
        """The text before which the answer ends, of those that were named; None where none of them stands in it."""
        if self.tool_calls or self.order.asked.answer_format is not None:
            return None
        end, text = self._end_of(self.text or ""), self.text or ""
        at_end = (one for one in self.order.asked.stop if end is not None and text.startswith(one, end))
        return next(at_end, None)

    def _end_of(self, text: str) -> int | None:
        """Where the first of the texts begins at which an answer shall end; None where there is none."""
        found = [at for one in self.order.asked.stop if (at := text.find(one)) >= 0]
        return min(found, default=None)

    def usage(self) -> dict[str, int]:
        """Tokens of the call that gave the answer, and beside them of all others (`orchestration`); `cached` are part
        of the input."""
        own = self.turns[-1] if self.tool_calls else self.answered_by
        used = own.reply.usage if own else Usage()
        others = [one for one in self._usages() if one is not used]
        return {
            "input": used.tokens_in,
            "cached": used.tokens_cached,
            "output": used.tokens_out,
            "orchestration_input": sum(one.tokens_in for one in others),
            "orchestration_cached": sum(one.tokens_cached for one in others),
            "orchestration_output": sum(one.tokens_out for one in others),
            "total": used.tokens_in + used.tokens_out,
        }

    def _usages(self) -> list[Usage]:
        return [plan.reply.usage for plan in self.plans] + [turn.reply.usage for turn in self.turns]

    def trace(self) -> dict[str, Any]:
        """The vendor object: who played, turn by turn, with how many tokens and at what cost, why it ended, and what of
        the request was left aside."""
        planning = [plan.reply.usage.cost_usd for plan in self.plans]
        costs = planning + [turn.reply.usage.cost_usd for turn in self.turns if turn.messages]
        return {
            "episode": self.id,
            "url": self.url or None,
            "model": self.order.asked.model,
            "policy": self.order.policy.id,
            "end_reason": self.end_reason,
            "ceiling": self.order.ceiling.of if self.order.ceiling else None,
            "error": self.ended.error if self.ended else None,
            "turn_budget": self.order.episode.turn_budget,
            "left_out": list(self.order.episode.left_out),
            "left_aside": list(self.order.asked.left_aside),
            "input_tokens": sum(one.tokens_in for one in self._usages()),
            "output_tokens": sum(one.tokens_out for one in self._usages()),
            "cost_usd": None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs),
            "turns": [self._turn(turn) for turn in self.turns],
            **(
                {"plans": [_plan(one, self.order.episode.models) for one in self.plans]} if self.plans else {}
            ),
        }

    def _step(self, index: int) -> dict[str, Any]:
        """Of a workflow's step: its round, its place, what it is asked and which earlier steps it may read."""
        for plan in self.plans:
            if (flow := plan.workflow) is None:
                continue
            if index < len(flow):
                return _step(plan, index)
            of_round = (turn for turn in self.turns if turn.step and turn.step.round == plan.round)
            index -= len(flow) + sum(not turn.counts for turn in of_round)
        return {}

    def _turn(self, turn: Turn) -> dict[str, Any]:
        usage = turn.reply.usage
        return {
            "turn": turn.index,
            "model": turn.decision.model,
            "role": turn.decision.role.value,
            "verdict": turn.verdict.value if turn.verdict else None,
            **next(
                (_step(plan, at.place) for plan in self.plans if (at := turn.step) and _is_run(plan, at)), {}
            ),
            "answered": _answered(turn),
            "flags": [flag.value for flag in turn.flags],
            **({"error": turn.reply.error.message} if turn.reply.error else {}),
            "finish_reason": turn.reply.finish_reason,
            "input_tokens": usage.tokens_in,
            "output_tokens": usage.tokens_out,
            "cost_usd": usage.cost_usd,
            "latency_s": round(turn.reply.latency_s, 3),
            **_odds(self.order.episode, turn.decision),
        }

    def _failed(self, status: int, code: str, message: str, kind: str = "server_error") -> ApiError:
        """An error that leads to the episode."""
        return ApiError(status, message, kind, code, headers=self.headers)

    def _no_call(self) -> ApiError:
        return self._failed(
            502,
            "no_tool_call",
            f"The request demands a tool call, and no Worker made one (episode {self.id}): ask again, "
            "allow more turns, or leave out the models that cannot call tools.",
        )

    def _nothing(self) -> ApiError:
        """Why there is no answer."""
        where, ended, reason = f" (episode {self.id})", self.ended, self.end_reason
        if reason == EndReason.DEADLINE:
            message = f"The deadline came before any answer{where}: allow more seconds, or fewer turns."
            return self._failed(504, "deadline_exceeded", message, "timeout_error")
        if reason == EndReason.COST_CEILING:
            ceiling = self.order.ceiling
            which = ceiling.words if ceiling else "the cost ceiling: allow more, or wait"
            refusal = quota_used_up(f"The next call could exceed {which}{where}.", self.order.anew_s)
            refusal.headers = {**refusal.headers, **self.headers}
            return refusal
        if reason == EndReason.CANCELLED:
            return self._failed(503, "cancelled", f"The request was cancelled{where}.")
        if ended is None and self.order.fault is not None:
            message = f"{self.order.fault} The request broke off{where}: send it again."
            is_gone = isinstance(self.order.fault, PoolError)  # the engine's cluster
            return self._failed(503, "not_ready", message) if is_gone else store_unavailable(message)
        if ended is None:
            return self._failed(500, "broke_off", f"The endpoint stopped{where}: ask again.")
        if ended.status is Status.MISSING:
            failed = self.failed
            fault = failed[-1].error.message if failed and failed[-1].error else ended.error
            if failed and all(one.finish_reason == TOO_LONG for one in failed):
                words = f"The conversation is too long for every model that may be chosen{where}: send less of it."
                code, kind = "context_length_exceeded", "invalid_request_error"
                return self._failed(400, code, f"{words} {fault}", kind)
            message = f"No model that may be chosen could be asked{where}: {fault}"
            return self._failed(502, "pool_unavailable", message)
        if reason == EndReason.UNREADABLE_PLAN:
            message = f"The planner wrote no workflow that can be read{where}: ask again, or another model."
            return self._failed(502, "unreadable_plan", message)
        if self.plans and not self.turns:
            message = f"The workflow has more steps than the turn budget allows{where}: allow more turns."
            return self._failed(502, "no_answer", message)
        if self.order.asked.tools.must_call:
            return self._no_call()
        message = f"No model gave a readable answer within the turn budget{where}: allow more turns."
        return self._failed(502, "no_answer", message)


def _answered(turn: Turn) -> bool:
    """Whether a turn gave an answer: a Worker's, or the step of a workflow after which one stands."""
    if Flag.NO_ANSWER in turn.flags:
        return False
    if turn.step is not None:
        return bool(turn.answer_after and turn.reply.text and turn.reply.error is None)
    return turn.decision.role is Role.WORKER


def _is_run(plan: Plan, step: Step) -> bool:
    """Whether a step is one of this plan's."""
    return plan.round == step.round and plan.workflow is not None


def _step(plan: Plan, place: int) -> dict[str, Any]:
    """A step of a workflow: its round, its place, what it is asked and which earlier steps it may read."""
    flow = plan.workflow
    assert flow is not None
    subtask, reads = flow.subtasks[place], [*flow.reads[place]]
    return {"round": plan.round, "step": place, "subtask": subtask, "reads": reads}


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
