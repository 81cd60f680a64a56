"""Workflows and forks in words: shapes, why a plan is none, places of steps, and what a fork changes."""

from __future__ import annotations

from core.changes import Change, ChangeKind
from core.episode import Role
from core.workflow import PlanFault, Topology
from ui.presentation.theme import NEUTRAL_COLOUR, ROLE_STYLES, one_line
from ui.presentation.words import policy_name, turns_words

#: Why a planner's reply is no workflow, in words.
FAULT_WORDS: dict[PlanFault, str] = {
    PlanFault.NO_LISTS: "one of its three lists is missing",
    PlanFault.LENGTHS_DIFFER: "its lists differ in length",
    PlanFault.TOO_MANY_STEPS: "it has too many steps",
    PlanFault.UNKNOWN_MODEL: "it names a model that is not allowed",
    PlanFault.EMPTY_SUBTASK: "a step has no subtask",
    PlanFault.ILLEGAL_ACCESS: "an entry of its access list is not allowed",
    PlanFault.FORWARD_REFERENCE: "a step would read itself or a later step",
    PlanFault.DEAD_STEP: "no later step reads one of its steps",
}

#: What the shapes of workflows are.
TOPOLOGY_WORDS: dict[Topology, str] = {
    Topology.SINGLE: "one step",
    Topology.CHAIN: "each step reads the one before it, or all before it",
    Topology.PARALLEL: "several steps, none of which reads another",
    Topology.JOIN: "independent steps that one later step reads",
    Topology.TREE: "each step reads one earlier step, and one is read by several",
    Topology.OTHER: "any other graph",
}
TOPOLOGY_COLOURS: dict[Topology, str] = {
    Topology.SINGLE: "#2F76D6",
    Topology.CHAIN: "#0E8A8A",
    Topology.PARALLEL: "#B85C00",
    Topology.JOIN: "#7C5CBF",
    Topology.TREE: "#B0427F",
    Topology.OTHER: NEUTRAL_COLOUR,
}


def step_name(place: int) -> str:
    """A step by its place in a workflow, counted from 0: `step 1`."""
    return f"step {place + 1}"


def topologies_legend() -> str:
    """What each shape is, in one sentence."""
    return "; ".join(f"{shape.value}: {words}" for shape, words in TOPOLOGY_WORDS.items()) + "."


#: What can be changed -> its words on the form.
KIND_WORDS: dict[ChangeKind, str] = {
    "model": "Model",
    "role": "Role",
    "subtask": "Subtask",
    "access": "Access",
    "policy": "Policy",
    "temperature": "Temperature",
    "reply": "Reply",
    "verdict": "Verdict",
    "stop": "Stop here",
}

#: What each change of a coordinator's turn means, in one sentence.
KIND_MEANS: dict[ChangeKind, str] = {
    "model": "Another model plays this turn, in the same role. Afterwards the policy decides as before.",
    "role": "The same model plays this turn in another role. Afterwards the policy decides as before.",
    "policy": "Another policy, such as another checkpoint, decides this turn and all that follow.",
    "temperature": "The same model writes this turn's reply at another sampling temperature.",
    "reply": "The reply of this turn is what you write. It is read and graded as if the model had said it.",
    "verdict": "Only the verdict of this turn's reply is turned round.",
    "stop": "The episode ends before this turn, with the answer it has then. No model is asked.",
}

#: What each change of a workflow's step means.
STEP_MEANS: dict[ChangeKind, str] = {
    "model": "Another model does this step. Every step that reads it is asked again, the others keep what they said.",
    "subtask": "The same model is asked something else. Every step that reads it is asked again, and sees the new "
    "subtask.",
    "access": "The step may read other earlier steps. It and every step that reads it are asked again.",
    "reply": "The reply of this step is what you write. Every step that reads it is asked again.",
}


def change_words(change: Change | None) -> str:
    """What is changed, plain text: `played by sage`, `with the verdict REVISE`; `unchanged` where nothing is."""
    if change is None:
        return "unchanged"
    value = one_line(change.value, 60)
    match change.kind:
        case "model":
            return f"played by {value}"
        case "role":
            return f"played as {ROLE_STYLES[Role(change.value)].word}"
        case "subtask":
            return f"asked “{value}”"
        case "access":
            turns = [int(turn) - 1 for turn in change.value.split(",")] if change.value else []
            return f"able to read {f'only {turns_words(turns)}' if turns else 'the problem alone'}"
        case "policy":
            return f"decided by {policy_name(change.value)} from here on"
        case "temperature":
            return f"at temperature {value}"
        case "reply":
            return f"with the reply “{one_line(change.value, 40)}”"
        case "verdict":
            return f"with the verdict {value}"
    return "left out, with all that followed"
