"""Workflows as words and colours: shapes, why a plan is none, places of steps."""

from __future__ import annotations

from core.workflow import PlanFault, Topology
from ui.presentation.theme import NEUTRAL_COLOUR

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
