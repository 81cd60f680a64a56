"""All that the learning of a planner needs to go on, bit for bit, and its bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from core.errors import ConfigError
from core.planner.config import LearnConfig
from core.planner.grpo import named_weights
from core.planner.planner import LanguagePlanner

_KIND = "grpo"
#: What AdamW keeps of each weight.
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, eq=False)
class PlannerState:
    """Weights and the optimiser's moments by name after an `iteration`, the ids of the questions that are learned on,
    and the settings as JSON. `tensors` are `weights.NAME` and, once a step was made, `step.NAME`, `exp_avg.NAME` and
    `exp_avg_sq.NAME`."""

    iteration: int
    questions: tuple[str, ...]
    config: str
    tensors: Mapping[str, Tensor]

    def to_bytes(self) -> bytes:
        """The state as safetensors; what is no tensor is JSON in its metadata."""
        rest = {"iteration": self.iteration, "questions": list(self.questions), "config": self.config}
        return save(dict(self.tensors), metadata={_KIND: json.dumps(rest, sort_keys=True)})

    @classmethod
    def from_bytes(cls, data: bytes) -> PlannerState:
        """Inverse of `to_bytes`; ConfigError for anything else."""
        try:
            tensors = load(data)
            length = int.from_bytes(data[:8], "little")
            rest = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_KIND])
            questions = tuple(str(name) for name in rest["questions"])
            return cls(int(rest["iteration"]), questions, str(rest["config"]), tensors)
        except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise ConfigError(
                "This is not the saved state of a planner's learning: resume from the run that wrote it."
            ) from error

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the whole state."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def state_of(
    planner: LanguagePlanner,
    optimiser: torch.optim.Optimizer,
    iteration: int,
    questions: tuple[str, ...],
    config: LearnConfig,
) -> PlannerState:
    """A copy of where a learning stands."""
    tensors: dict[str, Tensor] = {}
    for name, weight in named_weights(planner):
        tensors[f"weights.{name}"] = weight.detach().cpu().clone()
        kept = optimiser.state.get(weight, {})
        tensors |= {
            f"{moment}.{name}": kept[moment].detach().cpu().clone() for moment in _MOMENTS if moment in kept
        }
    return PlannerState(iteration, questions, _settings(config), tensors)


def restore(
    state: PlannerState, planner: LanguagePlanner, optimiser: torch.optim.Optimizer, config: LearnConfig
) -> None:
    """Put the weights and moments of a state in place. ConfigError where it belongs to other settings or weights."""
    if state.config != _settings(config):
        was, now = json.loads(state.config), json.loads(_settings(config))
        name = next((one for one in now if was.get(one) != now[one]), "settings")
        raise ConfigError(
            f"This learning was begun with {name} {was.get(name)} and cannot go on with {now.get(name)}: keep it."
        )
    for name, weight in named_weights(planner):
        found = state.tensors.get(f"weights.{name}")
        if found is None or found.shape != weight.shape:
            raise ConfigError("This learning was begun with a planner of another shape: keep it.")
        with torch.no_grad():
            weight.copy_(found)
        moments = {
            one: state.tensors[f"{one}.{name}"] for one in _MOMENTS if f"{one}.{name}" in state.tensors
        }
        if moments:
            optimiser.state[weight] = {
                one: tensor.clone() if one == "step" else tensor.to(weight.device, copy=True)
                for one, tensor in moments.items()
            }


def _settings(config: LearnConfig) -> str:
    return json.dumps(config.to_json(), sort_keys=True)
