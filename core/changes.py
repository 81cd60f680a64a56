"""What a fork changes of a recorded episode, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

ChangeKind = Literal[
    "model", "role", "subtask", "access", "policy", "temperature", "reply", "verdict", "stop"
]
CHANGE_KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)

#: The two parts of a run of forks: children with the change, and those that it is set against.
BASELINE: Literal["baseline"] = "baseline"
FORK: Literal["fork"] = "fork"


@dataclass(frozen=True, slots=True)
class Change:
    """The one thing that a fork changes. `value`: a model, a role, a policy's name, a temperature, the edited reply, a
    verdict; empty for "stop", which ends the episode before the turn. Of a workflow's step also another subtask, or
    its access: the turns that it may read, counted from 1 as readers count them ("1,3"; empty: none)."""

    kind: ChangeKind
    value: str = ""

    @property
    def by_hand(self) -> bool:
        """Whether the turn is written by hand instead of being played."""
        return self.kind in ("reply", "verdict")


@dataclass(frozen=True, slots=True)
class Fork:
    """Where an episode comes from that carries turns 0 to `turn` - 1 of `parent` and plays on from there. One of a
    workflow carries its plan too, with the change, and the later steps that do not read the changed one.

    Forks and the unchanged baseline are numbered apart; those of one `number` share their seed. `held`: turn `turn`
    stands as it was decided, in the parent or by the change; else the policy decides it anew. Children that agree in
    all of it can stand for each other."""

    parent: str
    turn: int  # 0-based
    change: Change | None = None  # None: of the baseline
    number: int | None = None  # None: nothing but parent and turn is known
    prefix: str = ""  # SHA-256 of the carried turns
    pool: str = ""  # digest of the models that are asked
    held: bool = True

    @property
    def part(self) -> Literal["baseline", "fork"]:
        """Which of the two parts of a run of forks it belongs to."""
        return FORK if self.change else BASELINE
