"""From what a person chose, by options, a file or a form, to what is played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from core.errors import ConfigError
from core.evolution.config import PAPER_SETTING, shape_of
from core.fields import built, checked
from core.planner.config import PUBLISHED
from core.settings import POCKET_POOL, Settings
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.learning import EvolutionPlan, LearningPlan, TrainingPlan
from ui.runs.settings.places import absolute_encoder, absolute_pool, absolute_tasks

P = TypeVar("P", BatchPlan, EvolutionPlan, TrainingPlan)

#: Pocket tasks that a run draws, where it is not told how many.
POCKET_TASKS = {BatchPlan: 100, EvolutionPlan: 1_000, TrainingPlan: 3_000}
#: What `--preset NAME` means: settings before those of a file and of options.
PRESETS: Mapping[type[LearningPlan], Mapping[str, Mapping[str, Any]]] = {
    EvolutionPlan: {"default": {}, "paper": {**PAPER_SETTING, "generations": 60, "constant_spread": "plain"}},
    TrainingPlan: {"default": {}, "published": asdict(PUBLISHED)},
}


def preset_values(kind: type[LearningPlan], name: str) -> dict[str, Any]:
    """The settings of a preset, by key; ConfigError for one that there is not."""
    if name not in PRESETS[kind]:
        raise ConfigError(f"There is no preset '{name}': choose {' or '.join(PRESETS[kind])}.")
    return dict(PRESETS[kind][name])


def plan_from(kind: type[P], values: Mapping[str, Any], settings: Settings) -> P:
    """What these settings describe; those left out are the usual ones, or follow from others. ConfigError, one
    sentence, when nothing could come of it."""
    chosen = checked(kind, values)
    tasks = absolute_tasks(chosen["tasks"])
    chosen |= {
        "tasks": tasks,
        "n": POCKET_TASKS[kind] if chosen["n"] is None and not tasks.endswith(".jsonl") else chosen["n"],
        "pool": absolute_pool(settings.pool),
        "max_cost_usd": settings.max_cost_usd,
    }
    if kind is EvolutionPlan:
        shape = asdict(shape_of(chosen["learner"]))
        chosen |= {key: usual for key, usual in shape.items() if not isinstance(chosen[key], int)}
        chosen["encoder"] = absolute_encoder(settings.encoder or POCKET_POOL)
    elif kind is TrainingPlan:
        of_a_folder = Path(chosen["planner"]).is_dir()
        chosen["planner"] = str(Path(chosen["planner"]).resolve()) if of_a_folder else chosen["planner"]
    else:
        chosen["encoder"] = settings.encoder
    return built(kind, chosen)
