"""Runs workflows that were planned before: nobody plans anew, and some of their steps keep what another episode has."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from core.conduct.session import conduct
from core.episode import Decide, Decision, Episode, Reply, Turn, WritePlan
from core.errors import ConfigError
from core.play.policy import Masks
from core.pool.spec import ModelSpec
from core.workflow import AccessMode


@dataclass(frozen=True, slots=True)
class RecordedWorkflows:
    """A policy that runs the plans which its episodes hold, under the name of whoever wrote them. `carried` are the
    turns that are taken over, by episode and number (see `conduct`)."""

    id: str
    models: tuple[str, ...]
    carried: Mapping[tuple[str, int], Turn] = field(default_factory=dict)
    rounds: int = 1  # nobody asks for the rounds of what is recorded: each episode has its own

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """ConfigError: a workflow says who does what."""
        raise ConfigError(f"Policy '{self.id}' replays recorded workflows: it decides no single turns.")

    def begin(self, episode: Episode) -> Episode:
        """The episode as it is."""
        return episode

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]
    ) -> Generator[Any, Any, Episode]:
        """The episode, run by its own plans, as many rounds as it has."""
        carried = {index: turn for (name, index), turn in self.carried.items() if name == episode.id}
        rounds = len({plan.round for plan in episode.plans})
        planner = _Recorded(self.id, self.models, rounds)
        return conduct(episode, specs, planner, model_mask=masks.get("model_mask", ()), carried=carried)

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """ConfigError: all is planned."""
        raise ConfigError(f"Policy '{self.id}' replays recorded workflows: it writes no new ones.")


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A planner that has written all that it will."""

    id: str
    models: tuple[str, ...]
    rounds: int
    mode: AccessMode = AccessMode.AUTO
    asked_model: str = ""
    show_names: bool = False

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """ConfigError: all is planned."""
        raise ConfigError(f"Policy '{self.id}' replays recorded workflows: it writes no new ones.")
