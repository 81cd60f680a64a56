"""What a person chooses of forks: the one thing that is changed at a turn, and how often it is played. Imports nothing
heavy, for its command's help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from core.fields import Setting
from core.settings import ENCODER, LOCAL_ENGINE, POCKET_POOL, Computing, Engine, MaxCost, Pool

#: At most so many children of one kind per turn, and so many episodes at once.
MOST_CHILDREN, MOST_EPISODES = 64, 200


@dataclass(frozen=True, slots=True)
class ForkSettings:
    """Options of `trinity fork`, and what the form of a fork has of them."""

    model: Annotated[str | None, Setting(option="--model")] = None
    """Another model plays this turn."""
    role: Annotated[str | None, Setting(option="--role")] = None
    """worker, thinker or verifier in this turn."""
    subtask: Annotated[str | None, Setting(option="--subtask", metavar="TEXT")] = None
    """Of a workflow: this step is asked something else."""
    access: Annotated[str | None, Setting(option="--access", metavar="TURNS")] = None
    """Of a workflow: the earlier turns this step may read, such as 1,2; or none."""
    policy: Annotated[str | None, Setting(option="--policy")] = None
    """Another policy, such as a checkpoint's id, decides from this turn on."""
    temperature: Annotated[str | None, Setting(option="--temperature")] = None
    """The model of this turn samples at this temperature."""
    reply: Annotated[str | None, Setting(option="--reply", metavar="FILE")] = None
    """The reply of this turn is this text; - reads stdin."""
    verdict: Annotated[str | None, Setting(option="--verdict")] = None
    """The Verifier says ACCEPT or REVISE."""
    stop: Annotated[bool, Setting(option="--stop")] = False
    """The episode ends before this turn."""
    every_turn: Annotated[bool, Setting(option="--every-turn")] = False
    """Which turn mattered? From every turn the unchanged choice and its runner-up, --n times each."""
    right_replies: Annotated[bool, Setting(option="--right-replies")] = False
    """With --every-turn: a right reply instead of the runner-up, where one is known: the answer of a Worker, the
    verdict of a Verifier."""
    luck: Annotated[bool, Setting(option="--luck")] = False
    """Was its ending luck? It is played again from turn 1 with nothing changed, until that can be told, or 40 times."""
    n: Annotated[int, Setting("Forks", option="--n", ge=1, le=MOST_CHILDREN)] = 8
    """How many forks."""
    baseline: Annotated[int, Setting(option="--baseline", ge=1, le=MOST_CHILDREN, term="Baseline")] = 8
    """How often the unchanged turn is played."""
    see: Annotated[int | None, Setting(option="--see", metavar="POINTS", ge=1, le=99)] = None
    """Instead of --n and --baseline: as many as detect a difference of so many points (80 % power)."""
    anew: Annotated[bool, Setting("Play again what the store already holds", option="--anew")] = False
    """Play also what the store already holds of the same forks."""
    pool: Pool = POCKET_POOL
    encoder: Annotated[str | None, ENCODER] = None
    computing: Computing = Computing()
    engine: Engine = LOCAL_ENGINE
    max_cost_usd: MaxCost = None
