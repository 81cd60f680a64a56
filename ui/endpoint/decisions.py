"""What the coordinator would choose for a conversation, as typed answers with probabilities; no model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.episode import ROLE_ORDER, Decide, Decision, Transcript
from core.play.policy import Policy, WorkflowPolicy
from ui.endpoint.errors import refused
from ui.endpoint.wire import Question


def decision_at(policy: Policy, question: str, left_out: Sequence[str]) -> Decision:
    """The decision before the first turn. ApiError for a policy that decides no turns."""
    if isinstance(policy, WorkflowPolicy):
        raise refused(
            "This model answers by whole workflows and decides no single turns: ask for another one.", "model"
        )
    mask = tuple(model not in left_out for model in policy.models) if left_out else ()
    [decision] = policy.decide([Decide(Transcript(question), 0, key="decision", model_mask=mask)])
    return decision


def answer_to(question: Question, policy: Policy, decision: Decision, number: int) -> dict[str, Any]:
    """The answer to one question: of a choice between models or between roles; a refusal of any other."""
    name = {"name": question.name}
    values = [one.value for one in question.choices or ()]
    if question.type == "choice" and not values:
        raise refused("A choice needs its choices: give at least two.", f"questions.{number}.choices")
    if len({*map(repr, values)}) < len(values):
        raise refused("A choice is given twice: give each once.", f"questions.{number}.choices")
    models = dict(
        zip(policy.models, decision.model_probs or _sure(policy.models, decision.model), strict=True)
    )
    order = [role.value for role in ROLE_ORDER]
    roles = dict(zip(order, decision.role_probs or _sure(order, decision.role.value), strict=True))
    for probabilities in (models, roles):
        if question.type == "choice" and all(isinstance(v, str) and v in probabilities for v in values):
            return name | _choice({str(value): probabilities[str(value)] for value in values})
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


def _sure(names: Sequence[str], chosen: str) -> list[float]:
    return [1.0 if name == chosen else 0.0 for name in names]
