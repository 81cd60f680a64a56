"""What the coordinator would choose for a conversation, as typed answers with probabilities; no model is asked."""

from __future__ import annotations

from typing import Any

from core.episode import ROLE_ORDER, Decide, Decision, Transcript
from core.play.policy import Policy, WorkflowPolicy
from storage.shelves.endpoint import ApiKey
from ui.endpoint.conversation import input_messages, question_of
from ui.endpoint.errors import refused
from ui.endpoint.service import Service
from ui.endpoint.wire import DecisionRequest, Question


def decided(service: Service, body: DecisionRequest, key: ApiKey | None) -> dict[str, Any]:
    """The decision before the first turn, as the answers to the questions about it. ApiError for a policy that decides
    no turns, and for a question that is none."""
    question = question_of(input_messages(body.input))
    tier = service.offer.tier(body.model)
    policy = service.policy(tier, body.trinity.argmax)
    out = [*body.trinity.leave_out, *(key.limits.leave_out if key else ())]
    left_out = service.offer.left_out(tier, policy, out)
    if isinstance(policy, WorkflowPolicy):
        raise refused(
            "This model answers by whole workflows and decides no single turns: ask for another one.", "model"
        )
    mask = tuple(model not in left_out for model in policy.models) if left_out else ()
    with service.engine.deciding:
        [decision] = policy.decide([Decide(Transcript(question), 0, key="decision", model_mask=mask)])
    answers = [answer_to(one, policy, decision, number) for number, one in enumerate(body.questions)]
    usage = {
        "input_tokens": decision.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": decision.prompt_tokens,
    }
    about = {"policy": policy.id, "models": list(policy.models), "cut": decision.prompt_overflow}
    return {"model": body.model, "answers": answers, "usage": usage, "trinity": about}


def answer_to(question: Question, policy: Policy, decision: Decision, number: int) -> dict[str, Any]:
    """The answer to one question: of a choice between models or between roles; a refusal of any other."""
    name = {"name": question.name}
    values = [one.value for one in question.choices or ()]
    if question.type == "choice" and not values:
        raise refused("A choice needs its choices: give at least two.", f"questions.{number}.choices")
    if len({*map(repr, values)}) < len(values):
        raise refused("A choice is given twice: give each once.", f"questions.{number}.choices")
    roles = [role.value for role in ROLE_ORDER]
    odds = (
        (policy.models, decision.model_probs or [one == decision.model for one in policy.models]),
        (roles, decision.role_probs or [one == decision.role.value for one in roles]),
    )
    for known, probabilities in odds:
        named = dict(zip(known, map(float, probabilities), strict=True))
        if question.type == "choice" and all(isinstance(v, str) and v in named for v in values):
            return name | _choice({str(value): named[str(value)] for value in values})
    return name | {"type": "refusal"}


def _choice(probabilities: dict[str, float]) -> dict[str, Any]:
    """Probabilities among the given choices alone; equal ones where the coordinator would take none of them."""
    total = sum(probabilities.values())
    shares = {name: p / total if total else 1 / len(probabilities) for name, p in probabilities.items()}
    best = max(shares, key=lambda name: shares[name])
    return {
        "type": "choice",
        "choice": best,
        "confidence": shares[best],
        "probabilities": [{"value": name, "probability": p} for name, p in shares.items()],
    }
