"""The models that the endpoint offers: tiers, each a policy with its turn budget, and pins of single checkpoints."""

from __future__ import annotations

import math
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import ConfigError
from core.play.policy import Policy
from core.pool.costs import call_usd
from core.pool.spec import ModelSpec
from core.texts import read_text
from storage.rows.summaries import CheckpointSummary
from storage.store import Store
from ui.endpoint.choosing import Validated, best, validated
from ui.endpoint.errors import not_found, refused

#: How a pin begins: `trinity@CHECKPOINT`.
PIN = "trinity@"
#: Effort -> turns, where a request names one.
EFFORTS = {"none": 1, "minimal": 1, "low": 2, "medium": 4, "high": 6, "xhigh": 8, "max": 12}
#: Tokens of a usual call, sent and written, by which models are compared.
USUAL_CALL = (1000, 300)
#: The file of tiers in the data folder.
FILE = "endpoint.toml"
#: A question that the small world's coordinator answers right, and its answer.
EXAMPLE, EXAMPLE_ANSWER = (
    "Ann has 7 shells. Ida has 5 more than Ann. How many shells do they have together?",
    "19",
)
#: So long it is believed which checkpoint is the best, in seconds.
KNOWN_S = 5.0

Turns = Annotated[int, Field(ge=1, le=100)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Days = Annotated[int, Field(ge=1, le=36_500)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


class Tier(BaseModel):
    """A model of the endpoint. `policy` is a checkpoint's id, a folder, or a name such as single:MODEL or
    conductor:PLANNER, whose workflows take the turns that they need; empty: the best validated
    coordinator that fits the pool, the newest where none is validated.
    `models` are those of the pool that it may choose; empty: all. `lean`: only half of those: the cheaper ones, by what
    a usual call costs, and of those that cost the same the weaker ones, by their `strength` in pool.toml; by that alone
    where not every price is known. An order that some of them lack is not used, and where none is left, or all are
    equal in it, all of them are chosen among."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    policy: str = ""
    models: tuple[str, ...] = ()
    lean: bool = False
    turns: Turns = 5
    argmax: bool = False
    max_cost_usd: Usd | None = None
    deadline_s: Seconds = 300.0


class Endpoint(BaseModel):
    """What a file of tiers may hold. `inspector` is where the app is that shows episodes; `max_cost_usd` is what all
    requests may cost together. After so many days the texts of a request (question, replies, answer) are removed from
    the store, or all of it; None: never."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store_text: bool = True
    keep_texts_days: Days | None = None
    keep_episodes_days: Days | None = None
    inspector: str = ""
    max_cost_usd: Usd | None = None
    most_requests: Annotated[int, Field(ge=1, le=10_000)] = 256
    tier: Annotated[tuple[Tier, ...], Field(min_length=1)] = (
        Tier(name="trinity", lean=True, turns=3),
        Tier(name="trinity-ultra", turns=8),
    )


def read_endpoint(file: Path | None, data_folder: Path) -> Endpoint:
    """The file's tiers, else those of the data folder's endpoint.toml, else two: `trinity` takes few turns with
    the leaner half of the models, `trinity-ultra` more turns with all. ConfigError with one sentence for a file that is
    none."""
    given = file or data_folder / FILE
    try:
        document = tomllib.loads(read_text(given))
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
    _known: dict[str, tuple[float, list[Validated]]] = field(default_factory=dict, compare=False, repr=False)

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
        known = self.store.checkpoints.has(checkpoint, planner=None)
        if name.startswith(PIN) and known:
            pin = {"name": name, "policy": checkpoint, "lean": False}
            return self.endpoint.tier[0].model_copy(update=pin)
        offered = ", ".join(one.name for one in self.endpoint.tier)
        raise not_found(
            f"There is no model '{name[:80]}' here: ask for {offered}, or {PIN}CHECKPOINT with the id of a "
            "checkpoint of this store."
        )

    def policy_of(self, tier: Tier) -> str:
        """The name of the policy that decides in a tier; ConfigError where it names none and none fits."""
        if tier.policy:
            return tier.policy
        found = best(self._validated())
        if found is not None:
            return found.checkpoint
        fitting = self._fitting()
        if not fitting:
            raise ConfigError(
                "No checkpoint in the store chooses among the models of this pool: evolve one with trinity evolve, "
                f"or name a policy, such as single:MODEL, in {FILE}."
            )
        newest = max(fitting, key=lambda one: (one.run_id or "", one.generation or 0, one.created))
        return newest.id

    def validated(self, policy: str) -> Validated | None:
        """What is known of a checkpoint that decides; None where it was never validated here."""
        return next((one for one in self._validated() if one.checkpoint == policy), None)

    def pins(self) -> list[str]:
        """The coordinators and planners that can be asked for by name: of each run the best validated one, where there
        is one, else the last."""
        of_runs = {one.run_id or one.id: one.id for one in self._fitting()}
        by_run: dict[str, list[Validated]] = {}
        for one in self._validated():
            by_run.setdefault(one.run, []).append(one)
        of_runs |= {run: found.checkpoint for run, some in by_run.items() if (found := best(some))}
        known = {spec.name for spec in self.specs}
        planners = (one for one in self.store.checkpoints.list(planners=True) if known >= {*one.models})
        of_runs |= {one.run_id or one.id: one.id for one in planners}
        return [PIN + name for name in of_runs.values()]

    def _fitting(self) -> list[CheckpointSummary]:
        known = {spec.name for spec in self.specs}
        return [one for one in self.store.checkpoints.list() if known >= {*one.models}]

    def _validated(self) -> list[Validated]:
        """The results of the checkpoints that fit, read anew every few seconds: an evolution may be under way."""
        at, found = self._known.get("", (-math.inf, []))
        if time.monotonic() - at > KNOWN_S:
            found = validated(self.store, self._fitting())
            self._known[""] = time.monotonic(), found
        return found

    def choices(self, tier: Tier) -> tuple[str, ...]:
        """The models that a tier chooses among."""
        return self._in_tier(tier, self._models_of(self.policy_of(tier)))

    def _models_of(self, policy: str) -> Sequence[str]:
        """The models that a policy chooses among."""
        found = self.store.checkpoints.named(policy)
        return [spec.name for spec in self.specs] if found is None else found.models

    def _in_tier(self, tier: Tier, models: Sequence[str]) -> tuple[str, ...]:
        """Of a policy's models, those that may be chosen in this tier."""
        among = tuple(model for model in models if not tier.models or model in tier.models)
        return self._leaner_half(among) if tier.lean else among

    def lean_words(self, tier: Tier) -> str:
        """What a lean tier leaves to choose among, in brackets behind its models; empty for one that is not lean."""
        if not tier.lean:
            return ""
        policy = self.policy_of(tier)
        every = self._in_tier(tier.model_copy(update={"lean": False}), self._models_of(policy))
        among = self.choices(tier)
        if len(among) < len(every):
            return "the leaner half"
        unknown = [
            spec.name for spec in self.specs if spec.name in every and call_usd(spec, *USUAL_CALL) is None
        ]
        why = f"the price of {', '.join(unknown)} is not known" if unknown else "all cost the same"
        return f"all of them: {why}, and no strength in pool.toml tells them apart"

    def _leaner_half(self, models: tuple[str, ...]) -> tuple[str, ...]:
        """The leaner half of these models, see `Tier`: those that are as lean as its last one included."""
        by_name = {spec.name: spec for spec in self.specs}
        own = [by_name[model] for model in models]
        orders = ([call_usd(spec, *USUAL_CALL) for spec in own], [spec.strength for spec in own])
        known = [[one for one in order if one is not None] for order in orders]
        ranks = [*zip(*(order for order in known if len(order) == len(own)), strict=True)]
        if not ranks:
            return models
        most = sorted(ranks)[(len(ranks) - 1) // 2]
        return tuple(model for model, rank in zip(models, ranks, strict=True) if rank <= most)

    def left_out(self, tier: Tier, policy: Policy, opted_out: Sequence[str]) -> tuple[str, ...]:
        """Of the policy's models, those that may not be chosen: outside the tier, or opted out of by their name or
        their provider's. ApiError for a name that means nothing here, and where nothing is left."""
        by_name = {spec.name: spec for spec in self.specs}
        inside = self._in_tier(tier, policy.models)
        unknown = [name for name in opted_out if not any(name in names_of(one) for one in self.specs)]
        if unknown:
            offered = ", ".join(dict.fromkeys(name for one in self.specs for name in names_of(one)))
            raise refused(
                f"'{unknown[0][:80]}' is no model or provider of this pool: leave out some of {offered}.",
                "trinity.leave_out",
            )
        out = tuple(
            model
            for model in policy.models
            if model not in inside or any(name in names_of(by_name[model]) for name in opted_out)
        )
        if set(out) >= {
            *getattr(policy, "steps", policy.models)
        }:  # a cycle takes its steps, and no other model
            raise refused(
                "Nothing is left of the pool: leave out fewer models or providers, or ask for another tier.",
                "trinity.leave_out",
                "empty_pool",
            )
        return out


def names_of(spec: ModelSpec) -> tuple[str, ...]:
    """By what a model can be left out: its name, its provider's in the pool file, and the host that answers."""
    host, provider = urlsplit(spec.base_url).hostname, spec.service.name if spec.service else ""
    return tuple(name for name in (spec.name, provider, host or spec.provider) if name)


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
