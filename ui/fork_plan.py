"""What a run of forks plays, kept with it for the worker that plays or resumes it, and the most it can cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from core.episode import Decision, Episode
from core.errors import StoreError
from core.forking import BASELINE, FORK, Change, baseline_holds, child, decision_at
from core.ids import episode_id
from core.tasks.graders import grade_many

#: Keys of a child's `meta` that say by what it was played.
POOL, HELD, LEFT_OUT = "fork_pool", "fork_held", "left_out"


@dataclass(frozen=True, slots=True)
class Branch:
    """One forked turn. `n` forks and `baseline` unchanged children, of which the store already holds `reused`
    ("fork/3" -> episode); `certain`: the change leaves nothing to play; `digest` is of the parent's rows, `cycles`
    the roles of policies that follow a cycle."""

    parent: str
    turn: int  # 0-based
    prefix: str
    digest: str
    n: int
    baseline: int
    certain: bool = False
    reused: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    cycles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Branch:
        """Of a stored plan."""
        cycles = {name: tuple(cycle) for name, cycle in config["cycles"].items()}
        return cls(**{**config, "left_out": tuple(config["left_out"]), "cycles": cycles})


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """One change at one turn of each of these episodes. `batch` is the query they were found by, `question` the
    first one's, for lists; `skipped` counts episodes where the change made no sense."""

    change: Change
    branches: tuple[Branch, ...]
    pool: str
    pool_digest: str
    models: tuple[str, ...]
    encoder: str | None = None
    max_cost_usd: float | None = None
    batch: str = ""
    question: str = ""
    skipped: int = 0

    def to_config(self) -> dict[str, Any]:
        """The plan as a run's config."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ForkPlan:
        """Inverse of `to_config`; StoreError when the run was recorded by something else."""
        try:
            branches = tuple(Branch.from_config(one) for one in config["branches"])
            parts = {
                "change": Change(**config["change"]),
                "branches": branches,
                "models": tuple(config["models"]),
            }
            return cls(**{**config, **parts})
        except (KeyError, TypeError, AttributeError) as error:
            raise StoreError("This run is not one of forks: it cannot be shown or resumed here.") from error

    @property
    def to_play(self) -> int:
        """How many children are not there yet."""
        return sum(one.n + one.baseline - len(one.reused) for one in self.branches)


@dataclass(frozen=True, slots=True)
class Sibling:
    """A child as it is born, how its turn t is decided (None: by its policy) and at which temperature."""

    born: Episode
    branch: Branch
    decision: Decision | None
    temperature: float | None


def siblings(plan: ForkPlan, run: str, parents: Mapping[str, Episode], part: str) -> list[Sibling]:
    """The children of one part ("baseline" or "fork") that the store did not hold when the run was planned."""
    found: list[Sibling] = []
    place = 0
    for branch in plan.branches:
        if branch.parent not in parents:
            raise StoreError(f"Episode {branch.parent}, which this run forks, is not in the store any more.")
        first = place if part == BASELINE else place + branch.baseline
        for number in range(branch.baseline if part == BASELINE else branch.n):
            if f"{part}/{number}" not in branch.reused:
                name = episode_id(run, first + number)
                found.append(_sibling(plan, branch, parents[branch.parent], part, number, run, name))
        place += branch.baseline + branch.n
    return found


def _sibling(
    plan: ForkPlan, branch: Branch, parent: Episode, part: str, number: int, run: str, name: str
) -> Sibling:
    change = plan.change if part == FORK else None
    born = child(
        parent,
        branch.turn,
        change,
        number,
        id=name,
        run_id=run,
        grade=grade_many,
        meta=made_by(plan.change, part, plan.pool_digest, branch.left_out),
    )
    holds = change is not None or baseline_holds(plan.change)
    decision = decision_at(parent, branch.turn, change) if holds else None
    hot = float(plan.change.value) if change is not None and change.kind == "temperature" else None
    return Sibling(born, branch, decision, hot)


def made_by(change: Change, part: str, pool_digest: str, left_out: Sequence[str]) -> dict[str, str]:
    """What a child's `meta` says of how it was played; children that agree in it can stand for each other."""
    held = part == FORK or baseline_holds(change)
    return {POOL: pool_digest, HELD: str(int(held)), LEFT_OUT: json.dumps(list(left_out))}
