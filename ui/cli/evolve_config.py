"""The file of `trinity evolve --config`: every key with its default, its bounds and what it does."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import ConfigError
from core.evolution.config import EvolveConfig, shape_of
from core.settings import POCKET_POOL, Settings
from ui.runs.plans import EvolutionPlan

AUTO: Literal["auto"] = "auto"
PLAIN: Literal["plain"] = "plain"
_HEAD = (
    "# An evolution, for: trinity evolve --config {name}\n"
    "# Options on the command line win over this file. A key with # before it is left to what its comment says.\n"
)


class EvolveFile(BaseModel):
    """What stands in the file, and what the command line's options say. Keys are the names of `EvolveConfig` and
    `EvolutionPlan`; None: left to the learner, the encoder or the settings, as the description says."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tasks: str = Field(default="pocket", description="pocket, pocket/FAMILY or a FILE.jsonl of your own")
    n: int | None = Field(default=None, ge=1, description="tasks to draw from; else 1000, or all of a file's")
    validation: int = Field(default=200, ge=0, description="held-apart tasks that the mean is measured on")
    validate_every: int = Field(default=10, ge=1, description="measure it every so many generations")
    seed: int = Field(
        default=0, ge=0, le=2**63 - 1, description="the same seed evolves the same again, bit for bit"
    )
    learner: str = Field(
        default="sep-cma-es", description="sep-cma-es, or what it is put beside: reinforce, random-search"
    )
    generations: int = Field(default=60, ge=1, description="how many generations")
    population: Annotated[int, Field(ge=1)] | Literal["auto"] | None = Field(
        default=None,
        description='candidates per generation, or "auto": 4 + 3 ln n for n numbers; else 192, 16 or 1',
    )
    tasks_per_candidate: int | None = Field(
        default=None,
        ge=1,
        description="tasks each candidate plays per generation (--replicates); else 8, 32 or 512",
    )
    adaptive: bool = Field(
        default=False, description="begin with so many, then as many as tell candidates apart"
    )
    common: bool = Field(
        default=True, description="one draw of tasks for all candidates; false: one for each, as in the paper"
    )
    rotate_every: int | None = Field(
        default=None,
        ge=1,
        description="replies are drawn anew every so many generations; else 10, reinforce 1",
    )
    turn_budget: int = Field(default=5, ge=1, le=100, description="model calls per task at most (--turns)")
    head: str = Field(
        default="linear",
        description="linear, low-rank, sparse, block-diagonal-2, block-diagonal-10 or turn-aware",
    )
    svf: str = Field(
        default="", description='evolve singular values too: of layers ("1" or "26,27"), or "released"'
    )
    barred: tuple[str, ...] = Field(
        default=(), strict=False, description="roles and models that are never chosen"
    )
    token_position: int = Field(
        default=-2, le=-1, description="token whose hidden state is read: -2 the last but one"
    )
    rates: str = Field(
        default="pycma", description="learning rates of sep-CMA-ES by their library: pycma or cmaes"
    )
    mirrored: bool = Field(default=True, description="candidates come in mirrored pairs")
    logit_spread: float = Field(
        default=6.0,
        ge=0.01,
        allow_inf_nan=False,
        description="how far the first candidates' logits spread; sets the step size",
    )
    constant_spread: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["plain"] = Field(
        default=0.0,
        description='logit_spread of preferences that no transcript changes; 0: none, "plain": no difference',
    )
    step_size: float | None = Field(
        default=None,
        ge=1e-9,
        allow_inf_nan=False,
        description="the head's first step size; else by logit_spread",
    )
    svf_spread: float = Field(
        default=1.0,
        ge=1e-6,
        allow_inf_nan=False,
        description="how far the logits spread by singular values alone",
    )
    svf_step_size: float | None = Field(
        default=None, ge=1e-9, allow_inf_nan=False, description="their first step size; else by svf_spread"
    )
    diversity: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="weight of the entropy of chosen models in the fitness (released run: 0.15)",
    )
    turn_cost: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="weight of turns taken, against the fitness (released run: 0.1)",
    )
    learning_rate: float = Field(
        default=1e-3, ge=1e-9, allow_inf_nan=False, description="REINFORCE's, for Adam"
    )
    box: float = Field(
        default=3.0, ge=1e-9, allow_inf_nan=False, description="half of random search's box, in step sizes"
    )
    controls: bool = Field(
        default=True, description="at the end, play what learned nothing: random walk, best model"
    )
    pool: str | None = Field(
        default=None, description="a pool.toml; else TRINITY_POOL, else the pocket models"
    )
    encoder: str | None = Field(
        default=None, description="a Hugging Face folder or hub id; else TRINITY_ENCODER, else pocket"
    )
    max_cost_usd: float | None = Field(
        default=None, ge=0, description="stop before spending more; else TRINITY_MAX_COST"
    )
    name: str = Field(default="", description="what to call the evolution")

    def plan(self, settings: Settings) -> EvolutionPlan:
        """The evolution that this describes. ConfigError, one sentence, when nothing could come of it."""
        shape = shape_of(self.learner)
        own = self.tasks.endswith(".jsonl")
        config = EvolveConfig(
            learner=self.learner,  # type: ignore[arg-type]  # checked where it is used
            population=shape.population if self.population in (None, AUTO) else int(self.population),
            tasks_per_candidate=self.tasks_per_candidate or shape.tasks_per_candidate,
            rotate_every=self.rotate_every or shape.rotate_every,
            constant_spread=None if self.constant_spread == PLAIN else float(self.constant_spread),
            rates=self.rates,  # type: ignore[arg-type]  # checked where it is used
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
        )
        return EvolutionPlan(
            tasks=str(Path(self.tasks).resolve()) if own else self.tasks,
            n=1000 if self.n is None and not own else self.n,
            validation=self.validation,
            pool=settings.pool if settings.pool == POCKET_POOL else str(Path(settings.pool).resolve()),
            encoder=settings.encoder or POCKET_POOL,
            max_cost_usd=settings.max_cost_usd,
            name=self.name,
            head=self.head,
            svf=self.svf,
            barred=self.barred,
            token_position=self.token_position,
            controls=self.controls,
            evolution=config,
        )


#: Keys that are fields of `EvolveConfig` with the very same values.
_AS_THEY_ARE = tuple(
    name
    for name in EvolveFile.model_fields
    if name in EvolveConfig.__dataclass_fields__
    and name
    not in ("learner", "population", "tasks_per_candidate", "rotate_every", "constant_spread", "rates")
)


def read_file(path: Path) -> dict[str, Any]:
    """The keys of a file, their values not yet checked. ConfigError for an unknown key, or a file that is none."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: write a file with every key by trinity evolve --write-config FILE."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    for key in found:
        if key not in EvolveFile.model_fields:
            near = difflib.get_close_matches(key, EvolveFile.model_fields, 1, 0.5)
            meant = (
                f"did you mean {near[0]}?" if near else "trinity evolve --write-config FILE writes them all."
            )
            raise ConfigError(f"{path} has a key '{key}', which there is not: {meant}")
    return found


def checked(values: Mapping[str, Any], path: Path | None) -> EvolveFile:
    """The values with defaults for all others; ConfigError, one sentence, for one that its key cannot have."""
    try:
        return EvolveFile(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        told = "; ".join(dict.fromkeys(one["msg"] for one in error.errors() if one["loc"][0] == key))
        where = f"{path}: " if path else ""
        raise ConfigError(f"{where}{key} cannot be {values[key]!r}: {told[0].lower()}{told[1:]}.") from None


def write_file(path: Path, chosen: EvolveFile) -> None:
    """A file that says what is chosen, with a comment for every key. ConfigError when there is one already."""
    lines = [_HEAD.format(name=path.name)]
    for key, field in EvolveFile.model_fields.items():
        value = getattr(chosen, key)
        said = f"# {key} =" if value is None else f"{key} = {json.dumps(value, ensure_ascii=False)}"
        lines += [f"# {field.description}", said, ""]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write("\n".join(lines))
    except FileExistsError:
        raise ConfigError(f"{path} exists already: name another file, or move it away.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None
