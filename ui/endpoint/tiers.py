"""The models that the endpoint offers: tiers, each a policy with its turn budget, and pins of single checkpoints."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import ConfigError
from core.pool.spec import ModelSpec
from storage.store import Store
from ui.endpoint.errors import not_found, refused

#: How a pin begins: `trinity@CHECKPOINT`.
PIN = "trinity@"
#: Effort -> turns, where a request names one.
EFFORTS = {"none": 1, "minimal": 1, "low": 2, "medium": 4, "high": 6, "xhigh": 8, "max": 12}
#: The file of tiers in the data folder.
FILE = "endpoint.toml"

Turns = Annotated[int, Field(ge=1, le=100)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


class Tier(BaseModel):
    """A model of the endpoint. `policy` is a checkpoint's id, a folder, or a name such as single:MODEL; empty: the
    newest checkpoint that fits the pool. `models` are those of the pool that it may choose; empty: all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    policy: str = ""
    models: tuple[str, ...] = ()
    turns: Turns = 5
    argmax: bool = False
    max_cost_usd: Usd | None = None
    deadline_s: Seconds = 300.0


class Endpoint(BaseModel):
    """What a file of tiers may hold. `inspector` is where the app is that shows episodes; `max_cost_usd` is what all
    requests may cost together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store_text: bool = True
    inspector: str = ""
    max_cost_usd: Usd | None = None
    most_requests: Annotated[int, Field(ge=1, le=10_000)] = 256
    tier: Annotated[tuple[Tier, ...], Field(min_length=1)] = (
        Tier(name="trinity", turns=3),
        Tier(name="trinity-ultra", turns=8),
    )


def read_endpoint(file: Path | None, data_folder: Path) -> Endpoint:
    """The file's tiers, else those of the data folder's endpoint.toml, else two: `trinity` takes few turns and
    `trinity-ultra` more. ConfigError with one sentence for a file that is none."""
    given = file or data_folder / FILE
    try:
        document = tomllib.loads(given.read_text("utf-8"))
    except FileNotFoundError:
        if file is None:
            return Endpoint()
        raise ConfigError(f"There is no file {file} with tiers of the endpoint.") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"The tiers in {given} cannot be read: {error}.") from None
    try:
        found = Endpoint.model_validate(document)
    except ValidationError as error:
        mistake = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in mistake["loc"])
        raise ConfigError(f"{given}, {where}: {mistake['msg'][:1].lower()}{mistake['msg'][1:]}.") from None
    names = [one.name for one in found.tier]
    if len({*names}) < len(names):
        raise ConfigError(f"{given}: two tiers have the same name; give each its own.")
    return found


@dataclass(frozen=True)
class Offer:
    """The tiers over one pool and store."""

    endpoint: Endpoint
    specs: tuple[ModelSpec, ...]
    store: Store

    def check(self) -> None:
        """ConfigError for a tier that can never be served."""
        names = {spec.name for spec in self.specs}
        for tier in self.endpoint.tier:
            for model in tier.models:
                if model not in names:
                    raise ConfigError(
                        f"Tier {tier.name} names the model '{model}', which the pool does not have: it has "
                        f"{', '.join(sorted(names))}."
                    )
            self.policy_of(tier)

    def tier(self, name: str) -> Tier:
        """The tier that a request names, or a pin as one; ApiError for another name."""
        for tier in self.endpoint.tier:
            if tier.name == name:
                return tier
        checkpoint = name.removeprefix(PIN)
        if name.startswith(PIN) and self.store.checkpoints.has(checkpoint):
            return self.endpoint.tier[0].model_copy(update={"name": name, "policy": checkpoint})
        offered = ", ".join(one.name for one in self.endpoint.tier)
        raise not_found(
            f"There is no model '{name[:80]}' here: ask for {offered}, or {PIN}CHECKPOINT with the id of a "
            "checkpoint of this store."
        )

    def policy_of(self, tier: Tier) -> str:
        """The name of the policy that decides in a tier; ConfigError where it names none and none fits."""
        if tier.policy:
            return tier.policy
        known = {spec.name for spec in self.specs}
        fitting = [one for one in self.store.checkpoints.list() if known >= {*one.config.get("models", ())}]
        if not fitting:
            raise ConfigError(
                "No checkpoint in the store chooses among the models of this pool: evolve one with trinity evolve, "
                f"or name a policy, such as single:MODEL, in {FILE}."
            )
        newest = max(fitting, key=lambda one: (one.run_id or "", one.generation or 0, one.created))
        return newest.id

    def pins(self) -> list[str]:
        """The checkpoints that can be asked for by name: of each run the last one."""
        last = {one.run_id or one.id: one for one in self.store.checkpoints.list()}
        known = {spec.name for spec in self.specs}
        return [PIN + one.id for one in last.values() if known >= {*one.config.get("models", ())}]

    def left_out(self, tier: Tier, models: Sequence[str], opted_out: Sequence[str]) -> tuple[str, ...]:
        """Of the policy's `models`, those that may not be chosen: outside the tier, or opted out of by their name or
        their provider's. ApiError for a name that means nothing here, and where nothing is left."""
        by_name = {spec.name: spec for spec in self.specs}
        unknown = [name for name in opted_out if not any(name in names_of(one) for one in self.specs)]
        if unknown:
            offered = ", ".join(dict.fromkeys(name for one in self.specs for name in names_of(one)))
            raise refused(
                f"'{unknown[0][:80]}' is no model or provider of this pool: leave out some of {offered}.",
                "trinity.leave_out",
            )
        out = tuple(
            model
            for model in models
            if (tier.models and model not in tier.models)
            or any(name in names_of(by_name[model]) for name in opted_out)
        )
        if len(out) == len(models):
            raise refused(
                "Nothing is left of the pool: leave out fewer models or providers, or ask for another tier.",
                "trinity.leave_out",
                "empty_pool",
            )
        return out


def names_of(spec: ModelSpec) -> tuple[str, ...]:
    """By what a model can be left out: its name, and its provider's: the host that answers."""
    host = urlsplit(spec.base_url).hostname
    return tuple(name for name in (spec.name, host or spec.provider) if name)


def turns_for(effort: str | None, tier: Tier) -> int:
    """The turn budget of an effort, the tier's own where none is named; ApiError for an unknown one."""
    if effort is None:
        return tier.turns
    if effort not in EFFORTS:
        raise refused(
            f"reasoning effort '{effort[:40]}' is not known: use one of {', '.join(EFFORTS)}.",
            "reasoning_effort",
        )
    return EFFORTS[effort]
