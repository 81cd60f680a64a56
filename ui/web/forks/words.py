"""A change in words: what was changed at a turn, for headlines, lists and the form."""

from __future__ import annotations

from core.episode import Change, ChangeKind, Role
from core.pool.spec import ModelSpec
from core.settings import POCKET_POOL
from ui.presentation.theme import ROLE_STYLES, one_line
from ui.presentation.words import policy_name
from ui.runs.spending import paid_models

#: What can be changed -> its words on the form.
KIND_WORDS: dict[ChangeKind, str] = {
    "model": "Model",
    "role": "Role",
    "policy": "Policy",
    "temperature": "Temperature",
    "reply": "Reply",
    "verdict": "Verdict",
    "stop": "Stop here",
}

#: What each change means, in one sentence.
KIND_MEANS: dict[ChangeKind, str] = {
    "model": "Another model plays this turn, in the same role. Afterwards the policy decides as before.",
    "role": "The same model plays this turn in another role. Afterwards the policy decides as before.",
    "policy": "Another policy, such as another checkpoint, decides this turn and all that follow.",
    "temperature": "The same model writes this turn's reply at another sampling temperature.",
    "reply": "The reply of this turn is what you write. It is read and graded as if the model had said it.",
    "verdict": "Only the verdict of this turn's reply is turned round.",
    "stop": "The episode ends before this turn, with the answer it has then. No model is asked.",
}


def change_words(change: Change) -> str:
    """What is changed, plain text: `turn played by sage`, `verdict REVISE`."""
    value = one_line(change.value, 60)
    match change.kind:
        case "model":
            return f"played by {value}"
        case "role":
            return f"played as {ROLE_STYLES[Role(change.value)].word}"
        case "policy":
            return f"decided by {policy_name(change.value)} from here on"
        case "temperature":
            return f"at temperature {value}"
        case "reply":
            return f"with the reply “{one_line(change.value, 40)}”"
        case "verdict":
            return f"with the verdict {value}"
    return "left out, with all that followed"


def source_words(pool: str, specs: tuple[ModelSpec, ...], plays: bool) -> str:
    """Where replies come from, plain text."""
    if not plays:
        return "recorded ones only: no model is asked"
    if pool == POCKET_POOL:
        return "recorded up to the turn, then the pocket models in this app: free"
    free = "" if paid_models(specs) else ": free"
    return f"recorded up to the turn, then live calls to the models of {one_line(pool, 80)}{free}"
