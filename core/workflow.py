"""A workflow: who does which step and may read which earlier ones; when it is legal, and what shape it has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeGuard

#: The most steps that a workflow may have (arXiv 2512.04388).
MOST_STEPS = 5


class AccessMode(StrEnum):
    """How an access list is written. AUTO reads whatever is usual; the others allow their own form alone."""

    BINARY = "binary"  # nothing, or all earlier steps
    CHOOSE_ID = "choose_id"  # ids of models: all their earlier steps
    CHOOSE_POSITION = "choose_position"  # numbers of earlier steps, from 0
    AUTO = "auto"  # nothing, all, or numbers of steps


class PlanFault(StrEnum):
    """Why a planner's reply is no workflow. Where there are several reasons, the first of these counts."""

    NO_LISTS = "no_lists"
    LENGTHS_DIFFER = "lengths_differ"
    TOO_MANY_STEPS = "too_many_steps"
    UNKNOWN_MODEL = "unknown_model"
    EMPTY_SUBTASK = "empty_subtask"
    ILLEGAL_ACCESS = "illegal_access"
    FORWARD_REFERENCE = "forward_reference"
    DEAD_STEP = "dead_step"


class Topology(StrEnum):
    """The shape of a workflow's graph."""

    SINGLE = "single"  # one step
    CHAIN = "chain"  # each step reads the one before it, or all before it
    PARALLEL = "parallel"  # several steps, none of which reads another
    JOIN = "join"  # several independent steps that one later step reads
    TREE = "tree"  # every step but the first reads one earlier step, and some step is read by several
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Workflow:
    """Steps in order: `models[i]` is the slot in the pool that does step i, `subtasks[i]` what it is asked, `reads[i]`
    the earlier steps that it may read, from 0 and in order. `mode` is the form that the lists were written in."""

    models: tuple[int, ...]
    subtasks: tuple[str, ...]
    reads: tuple[tuple[int, ...], ...]
    mode: AccessMode = AccessMode.CHOOSE_POSITION

    def __post_init__(self) -> None:
        lengths = {len(self.models), len(self.subtasks), len(self.reads)}
        if lengths.isdisjoint(range(1, MOST_STEPS + 1)) or len(lengths) != 1:
            raise ValueError(f"A workflow has three lists of one length of 1 to {MOST_STEPS}.")
        if any(not 0 <= earlier < step for step, seen in enumerate(self.reads) for earlier in seen):
            raise ValueError("A step of a workflow can read earlier steps only.")

    def __len__(self) -> int:
        return len(self.models)

    @property
    def depths(self) -> tuple[int, ...]:
        """How many steps have to be over before each step can begin, along its longest way: steps of one depth run
        side by side."""
        depths: list[int] = []
        for seen in self.reads:
            depths.append(1 + max((depths[earlier] for earlier in seen), default=-1))
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Steps that have to wait for each other, along the longest way."""
        return 1 + max(self.depths)

    @property
    def width(self) -> int:
        """The most steps that run side by side."""
        depths = self.depths
        return max(depths.count(depth) for depth in set(depths))

    def done_by(self, models: tuple[int, ...]) -> Workflow:
        """The same steps, which read the same ones, of models in these slots. By ids of models an access list would now
        name other steps, so it is written by their places."""
        by_id = self.mode is AccessMode.CHOOSE_ID and models != self.models
        return replace(self, models=models, mode=AccessMode.AUTO if by_id else self.mode)

    def readers(self, place: int) -> tuple[int, ...]:
        """The steps that read this one, directly or through others, in order."""
        found = {place}
        for step, seen in enumerate(self.reads):
            if not found.isdisjoint(seen):
                found.add(step)
        return tuple(sorted(found - {place}))

    @property
    def access(self) -> list[list[str] | list[int]]:
        """The access list as its mode writes it."""
        return [self._access_of(step) for step in range(len(self))]

    def _access_of(self, step: int) -> list[str] | list[int]:
        seen = self.reads[step]
        match self.mode:
            case AccessMode.BINARY:
                return ["all"] if seen else []
            case AccessMode.CHOOSE_ID:
                return sorted({self.models[earlier] for earlier in seen})
        return [*seen]

    @property
    def fault(self) -> PlanFault | None:
        """Why its mode does not allow it; None where it does."""
        found = resolve(self.models, self.subtasks, self.access, allowed=set(self.models), mode=self.mode)
        if isinstance(found, PlanFault):
            return found
        return None if found.reads == self.reads else PlanFault.ILLEGAL_ACCESS

    @property
    def topology(self) -> Topology:
        """Its shape. A step that reads another as well as what that one read is taken to read it alone."""
        n = len(self)
        if n == 1:
            return Topology.SINGLE
        if not any(self.reads):
            return Topology.PARALLEL
        chained = all(
            seen in ((step - 1,), tuple(range(step))) for step, seen in enumerate(self.reads) if step
        )
        if chained:
            return Topology.CHAIN
        if not any(self.reads[:-1]) and self.reads[-1] == tuple(range(n - 1)):
            return Topology.JOIN
        if all(len(seen) == 1 for seen in self.reads[1:]):
            return Topology.TREE
        return Topology.OTHER


def resolve(
    models: Sequence[object],
    subtasks: Sequence[object],
    access: Sequence[object],
    *,
    allowed: Collection[int],
    mode: AccessMode,
) -> Workflow | PlanFault:
    """The workflow of three lists as they were written, of models in the `allowed` slots, or why it is none."""
    if not models or not subtasks or not access:
        return PlanFault.NO_LISTS
    if not len(models) == len(subtasks) == len(access):
        return PlanFault.LENGTHS_DIFFER
    if len(models) > MOST_STEPS:
        return PlanFault.TOO_MANY_STEPS
    slots = [model for model in models if is_whole(model) and model in allowed]
    if len(slots) < len(models):
        return PlanFault.UNKNOWN_MODEL
    texts = [text.strip() for text in subtasks if isinstance(text, str) and text.strip()]
    if len(texts) < len(subtasks):
        return PlanFault.EMPTY_SUBTASK
    reads = [_reads(entry, step, slots, mode) for step, entry in enumerate(access)]
    for fault in (PlanFault.ILLEGAL_ACCESS, PlanFault.FORWARD_REFERENCE):
        if fault in reads:
            return fault
    seen = tuple(one for one in reads if not isinstance(one, PlanFault))
    if mode is AccessMode.CHOOSE_POSITION and set().union(*seen) != set(range(len(slots) - 1)):
        return PlanFault.DEAD_STEP
    return Workflow(tuple(slots), tuple(texts), seen, mode)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _reads(entry: object, step: int, slots: Sequence[int], mode: AccessMode) -> tuple[int, ...] | PlanFault:
    """The earlier steps that an entry of the access list names, or what is wrong with it."""
    if isinstance(entry, list) and not entry:
        return ()
    if mode in (AccessMode.BINARY, AccessMode.AUTO) and _is_all(entry):
        return tuple(range(step))
    if mode is AccessMode.BINARY or not isinstance(entry, list):
        return PlanFault.ILLEGAL_ACCESS
    named = [one for one in entry if is_whole(one) and one >= 0]
    if len(named) < len(entry):
        return PlanFault.ILLEGAL_ACCESS
    if mode is AccessMode.CHOOSE_ID:
        return _steps_of(named, step, slots)
    if max(named) >= step:
        return PlanFault.FORWARD_REFERENCE
    return tuple(sorted(set(named)))


def _steps_of(named: Sequence[int], step: int, slots: Sequence[int]) -> tuple[int, ...] | PlanFault:
    """All earlier steps of these models. The step's own model needs none."""
    earlier = slots[:step]
    unseen = [model for model in named if model not in earlier and model != slots[step]]
    if any(model not in slots for model in unseen):
        return PlanFault.ILLEGAL_ACCESS
    if unseen:
        return PlanFault.FORWARD_REFERENCE
    return tuple(place for place, model in enumerate(earlier) if model in named)


def _is_all(entry: object) -> bool:
    if isinstance(entry, list) and len(entry) == 1:
        entry = entry[0]
    return isinstance(entry, str) and entry.strip().lower() == "all"
