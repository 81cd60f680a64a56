"""The file of `trinity evolve --config`: every key with its default, its bounds and what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.episode import Protocol
from core.errors import ConfigError
from core.evolution.config import EvolveConfig, shape_of
from core.evolution.departures import PAPER_SETTING
from core.evolution.recording import RecordName
from core.settings import POCKET_POOL, Settings
from ui.cli.config_file import ConfigFile, Count, Size
from ui.runs.plans import EvolutionPlan, absolute_encoder, absolute_pool, absolute_tasks

AUTO, PLAIN = "auto", "plain"
Weight = Annotated[float, Field(ge=0)]


class EvolveFile(ConfigFile):
    """What stands in the file, and what the command line's options say. Keys are the names of `EvolveConfig` and
    `EvolutionPlan`; None: left to the learner, the encoder or the settings, as the description says."""

    command: ClassVar[str] = "evolve"

    tasks: str = "pocket"
    """pocket, pocket/FAMILY or a FILE.jsonl of your own"""
    n: Count | None = None
    """tasks to draw from; else 1000, or all of a file's"""
    validation: int = Field(default=200, ge=0)
    """held-apart tasks that the mean is measured on"""
    validate_every: Count = 10
    """measure it every so many generations"""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """the same seed evolves the same again, bit for bit"""
    learner: str = "sep-cma-es"
    """sep-cma-es, or what it is put beside: pycma (the authors' library), reinforce, random-search"""
    generations: Count | None = None
    """how many generations; else as many as make 92,160 episodes: 120, 180, 720 or 180"""
    population: Count | Literal["auto"] | None = None
    """candidates per generation, or "auto": 4 + 3 ln n for n numbers; else 96, 32, 1 or 16"""
    tasks_per_candidate: Count | None = None
    """tasks each candidate plays per generation (--replicates); else 8, 16, 128 or 32"""
    adaptive: bool = False
    """begin with so many, then as many as tell candidates apart"""
    common: bool = True
    """one draw of tasks for all candidates; false: one for each with replacement, as in the paper"""
    rotate_every: Count | None = None
    """replies are drawn anew every so many generations; else 10, pycma and reinforce 1"""
    turn_budget: int = Field(default=5, ge=1, le=100)
    """model calls per task at most (--turns)"""
    head: str = "linear"
    """linear, low-rank, sparse, block-diagonal-2, block-diagonal-10 or turn-aware"""
    svf: str = ""
    """evolve singular values too: "released", or of layers ("1" or "26,27")"""
    barred: tuple[str, ...] = Field(default=(), strict=False)
    """roles and models that are never chosen"""
    protocol: Protocol = Field(default=Protocol.PAPER, strict=False)
    """rules that episodes are played by: paper, or released (the authors' code)"""
    token_position: int = Field(default=-2, le=-1)
    """token whose hidden state is read: -2 the last but one"""
    neutral_start: bool = False
    """begin where every choice is equally likely, also with the low-rank head, which else does not"""
    rates: str = "pycma"
    """learning rates of sep-CMA-ES by their library: pycma or cmaes"""
    mirrored: bool = True
    """candidates come in mirrored pairs (--no-mirrored: each on its own)"""
    logit_spread: float = Field(default=6.0, ge=0.01)
    """how far the first candidates' logits spread; sets the step size"""
    constant_spread: Weight | Literal["plain"] = 0.0
    """logit_spread of preferences that no transcript changes; 0: none, "plain": no difference"""
    step_size: Size | None = None
    """the head's first step size; else by logit_spread"""
    svf_spread: float = Field(default=1.0, ge=1e-6)
    """how far the logits spread by singular values alone"""
    svf_step_size: Size | None = None
    """their first step size; else by svf_spread"""
    diversity: Weight = 0.0
    """weight of the entropy of chosen models in the fitness (released run: 0.15)"""
    turn_cost: Weight = 0.0
    """weight of turns taken, against the fitness (released run: 0.1)"""
    learning_rate: Size = 1e-2
    """REINFORCE's, for Adam"""
    box: Size = 10.0
    """half of random search's box, in step sizes"""
    label_questions: int = Field(default=0, ge=0)
    """teach the head by labels of so many questions first (--labels), and evolve from there"""
    controls: bool = True
    """at the end, play what learned nothing: random walk, best model"""
    pool: str | None = None
    """a pool.toml; else TRINITY_POOL, else the pocket models"""
    encoder: str | None = None
    """a Hugging Face folder or hub id; else TRINITY_ENCODER, else pocket"""
    max_cost_usd: float | None = Field(default=None, ge=0, allow_inf_nan=True)
    """stop before spending more; else TRINITY_MAX_COST"""
    reuse: bool = False
    """take replies from earlier runs of this store, and keep its own for later ones"""
    record: RecordName = "none"
    """store episodes to replay: none, share (each validation and 4 candidates in each generation) or all"""
    name: str = ""
    """what to call the evolution"""

    def plan(self, settings: Settings) -> EvolutionPlan:
        """The evolution that this describes. ConfigError, one sentence, when nothing could come of it."""
        shape = shape_of(self.learner)
        tasks = absolute_tasks(self.tasks)
        config = self._fields_of(EvolveConfig) | {
            "generations": self.generations or shape.generations,
            "population": shape.population if self.population in (None, AUTO) else self.population,
            "tasks_per_candidate": self.tasks_per_candidate or shape.tasks_per_candidate,
            "rotate_every": self.rotate_every or shape.rotate_every,
            "constant_spread": None if self.constant_spread == PLAIN else self.constant_spread,
        }
        plan = self._fields_of(EvolutionPlan) | {
            "tasks": tasks,
            "n": 1000 if self.n is None and not tasks.endswith(".jsonl") else self.n,
            "pool": absolute_pool(settings.pool),
            "encoder": absolute_encoder(settings.encoder or POCKET_POOL),
            "max_cost_usd": settings.max_cost_usd,
        }
        return EvolutionPlan(evolution=EvolveConfig(**config), **plan)

    def _fields_of(self, kind: type[EvolveConfig | EvolutionPlan]) -> dict[str, Any]:
        """What the file says of the fields of `kind`, by their names."""
        return {field.name: getattr(self, field.name) for field in fields(kind) if hasattr(self, field.name)}


#: What `--preset NAME` means: keys that it sets, before a file and the options.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "paper": {**PAPER_SETTING, "generations": 60, "constant_spread": PLAIN},
}


def preset_values(name: str) -> dict[str, Any]:
    """The keys that a preset sets; ConfigError for an unknown one."""
    if name not in PRESETS:
        raise ConfigError(f"There is no preset '{name}': choose {' or '.join(PRESETS)}.")
    return dict(PRESETS[name])
