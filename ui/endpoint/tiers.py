"""The models that the endpoint offers: tiers, each a policy with its turn budget, and pins of single checkpoints. Where
a tier names no policy, the best validated coordinator decides of those that choose among the pool's models."""

from __future__ import annotations

import math
import re
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from core.episode import Protocol
from core.errors import ConfigError
from core.fields import Setting, Turns, build_settings, settings_of, validate_settings
from core.play.policies import SINGLE, Policy, innermost
from core.pool.costs import call_usd
from core.pool.spec import ModelSpec
from core.settings import LOCAL_ENGINE, Engine, ray_address
from core.texts import read_text
from storage.analysis.defaults import (
    ValidatedCheckpoint,
    best_of_each_run,
    best_or_newest,
    validated_checkpoints,
)
from storage.rows.summaries import CheckpointSummary
from storage.shelves.endpoint import Quota
from storage.store import Store
from ui.endpoint.errors import ApiError, bad_request
from ui.presentation.words import share_words

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: The policy of a tier that plays what is known to be best.
BEST = "best"
#: How a pin begins: `trinity@CHECKPOINT`.
PIN = "trinity@"
#: Effort -> turns, where a request names one.
EFFORTS = {"none": 1, "minimal": 1, "low": 2, "medium": 4, "high": 6, "xhigh": 8, "max": 12}
#: What to do where nothing is known of a pool.
TUNE = "trinity tune finds out what its models are worth, alone and together."
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

Ceiling = Annotated[
    float | None, Setting(group="models", ge=0, option="--max-cost", metavar="USD", open=True)
]
Most = Annotated[float | None, Setting(ge=0, open=True)]
MostCount = Annotated[int | None, Setting(ge=0, open=True)]
Days = Annotated[int | None, Setting(ge=1, le=36_500, open=True)]


@dataclass(frozen=True, slots=True)
class Tier:
    """A model of the endpoint."""

    name: Annotated[str, Setting()]
    """What clients ask for."""
    policy: Annotated[str, Setting()] = BEST
    """Who decides: a checkpoint's id or folder, or a name such as single:MODEL, round-robin, random or
    conductor:PLANNER, whose workflows take the turns that they need. best: the best validated checkpoint that fits the
    pool, or the best single model, asked once, where that solved as many of the same tasks; without a validated
    checkpoint the newest one, and without any the strongest model."""
    models: Annotated[tuple[str, ...], Setting()] = ()
    """Those of the pool that it may choose. Empty: all."""
    lean: Annotated[bool, Setting()] = False
    """Only half of those: the cheaper ones, by what a usual call costs; of those that cost the same, and where a price
    is not known, the weaker ones, by the strength that pool.toml gives each. An order that some of them lack is not
    used, and where none is left, or all are equal in it, all of them are chosen among."""
    turns: Turns = 5
    """Turn budget, unless a request names an effort, or trinity.max_turns."""
    argmax: Annotated[bool, Setting()] = False
    """Take the likeliest choice each time instead of drawing."""
    max_cost_usd: Annotated[float | None, Setting(ge=0, open=True)] = None
    """What one request may cost. Left out: no ceiling."""
    deadline_s: Annotated[float, Setting(gt=0, le=3600)] = 300.0
    """How long one request may take, in seconds."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a file of tiers may hold."""

    store_text: Annotated[bool, Setting()] = True
    """false: what is said and a client's metadata are kept nowhere, only who decided what and what it cost."""
    keep_texts_days: Days = None
    """After so many days the question, the answer, what models were sent and said, and a client's metadata are
    removed. Left out: never."""
    keep_episodes_days: Days = None
    """After so many days the whole request is removed; what is labelled or forked stays. Left out: never."""
    inspector: Annotated[str, Setting()] = ""
    """Where the app is that shows episodes, for the links in answers. Empty: http://127.0.0.1:8501."""
    max_cost_usd: Ceiling = None
    """What all requests may cost together. Else the file's max_cost_usd."""
    engine: Engine = LOCAL_ENGINE
    """Where models are called and encoders read for trinity serve: 'local', or 'ray=HOST:6379' for helpers on a Ray
    cluster, whose machines then need the keys. What is streamed is streamed from there, too. When the cluster is gone
    for a minute, the process that serves ends: have it started again. Else TRINITY_ENGINE, else the file's engine, else
    local. The app's own endpoint is always local."""
    most_requests: Annotated[int, Setting(ge=1, le=10_000)] = 256
    """Requests in progress at a time; more are told to come back (429)."""
    day_usd: Most = None
    """What all requests of a day (UTC) may cost together, in US dollars."""
    day_requests: MostCount = None
    """How many requests a day may have."""
    day_tokens: MostCount = None
    """After so many tokens, sent and written, no request of the day is taken any more."""
    month_usd: Most = None
    """What all requests of a month (UTC) may cost together, in US dollars."""
    month_requests: MostCount = None
    """How many requests a month may have."""
    month_tokens: MostCount = None
    """After so many tokens, sent and written, no request of the month is taken any more."""
    tier: tuple[Tier, ...] = (Tier("trinity", lean=True, turns=3), Tier("trinity-ultra", turns=8))

    def __post_init__(self) -> None:
        ray_address(self.engine)

    @property
    def quotas(self) -> dict[str, Quota]:
        """What all requests may take together, by day and month."""
        return {
            "day": Quota(self.day_usd, self.day_requests, self.day_tokens),
            "month": Quota(self.month_usd, self.month_requests, self.month_tokens),
        }


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
    tables = document.pop("tier", [])
    if not (isinstance(tables, list) and all(isinstance(one, dict) for one in tables)):
        raise ConfigError(f"{given}: write each tier as a table [[tier]].")
    tiers = tuple(_read(Tier, table, f"{given}, tier {n}") for n, table in enumerate(tables, start=1))
    for one in tiers:
        if not _NAME.fullmatch(one.name):
            raise ConfigError(
                f"{given}: a tier cannot be called '{one.name[:80]}': use letters, digits, '.', '-' and '_'."
            )
    if len({one.name for one in tiers}) < len(tiers):
        raise ConfigError(f"{given}: two tiers have the same name; give each its own.")
    found = _read(Endpoint, document, str(given))
    return replace(found, tier=tiers) if tables else found


def _read(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """The settings of a table."""
    known = settings_of(kind)
    if unknown := [key for key in table if key not in known]:
        raise ConfigError(f"{where} has a key '{unknown[0]}', which there is not: use {', '.join(known)}.")
    if "name" in known and "name" not in table:
        raise ConfigError(f"{where} has no name: give it one.")
    return build_settings(kind, validate_settings(kind, table, f"{where}: "))


@dataclass
class Offer:
    """The tiers over one pool and store."""

    endpoint: Endpoint
    specs: tuple[ModelSpec, ...]
    store: Store
    _known: tuple[float, list[ValidatedCheckpoint]] = (-math.inf, [])
    _chosen: dict[str, tuple[float, _Best]] = field(default_factory=dict)  # by tier, and since when

    @cached_property
    def by_name(self) -> dict[str, ModelSpec]:
        """The pool's models."""
        return {spec.name: spec for spec in self.specs}

    def check(self) -> None:
        """ConfigError for a tier that can never be served."""
        for tier in self.endpoint.tier:
            for model in tier.models:
                if model not in self.by_name:
                    raise ConfigError(
                        f"Tier {tier.name} names the model '{model}', which the pool does not have: it has "
                        f"{', '.join(sorted(self.by_name))}."
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
            return replace(self.endpoint.tier[0], name=name, policy=checkpoint, lean=False)
        offered = ", ".join(one.name for one in self.endpoint.tier)
        raise ApiError(
            404,
            f"There is no model '{name[:80]}' here: ask for {offered}, or {PIN}CHECKPOINT with the id of a "
            "checkpoint of this store.",
            code="model_not_found",
            param="model",
        )

    def policy_of(self, tier: Tier) -> str:
        """The name of the policy that decides in a tier."""
        return self._best(tier).policy if tier.policy in (BEST, "") else tier.policy

    def remembers(self, tier: Tier) -> bool:
        """Whether the store need not be asked who decides in a tier."""
        return tier.policy not in (BEST, "") or (
            tier.name in self._chosen and time.monotonic() - self._chosen[tier.name][0] < KNOWN_S
        )

    def turns_of(self, tier: Tier) -> int:
        """The turn budget of a tier where a request names none: the best single model is asked once."""
        return self._best(tier).turns if tier.policy in (BEST, "") else tier.turns

    def _best(self, tier: Tier) -> _Best:
        """What is known to be best in a tier, as of a few seconds ago."""
        at, found = self._chosen.get(tier.name, (-math.inf, None))
        if found is None or time.monotonic() - at > KNOWN_S:
            found = self._choose(tier)
            self._chosen[tier.name] = time.monotonic(), found
        return found

    def _choose(self, tier: Tier) -> _Best:
        results = self._validated()
        checkpoint = best_or_newest(self._fitting(), results)
        if checkpoint is None:
            among = self._in_tier(tier, [*self.by_name])
            model = max(among, key=self._strength)
            why = (
                "No coordinator was evolved for this pool, and nothing says that one of its models is better"
            )
            if len(among) > 1 and self._strength(model) > min(map(self._strength, among)):
                how = "by its strength in pool.toml" if self.by_name[model].strength else "by its price"
                why = f"No coordinator was evolved for this pool, so the strongest model answers, {how}"
            return _Best(f"{SINGLE}{model}", 1, f"{why}: {TUNE}")
        known = next((one for one in results if one.id == checkpoint), None)
        if known is not None and known.single is not None:
            model = known.single[0].split(" ", 1)[0]
            ahead = known.result.accuracy > known.single[1].accuracy
            if not ahead and model in self._in_tier(tier, [*self.by_name]):
                why = f"{model} alone answers, as no coordinator that was evolved here is ahead of it: checkpoint"
                return _Best(f"{SINGLE}{model}", 1, f"{why} {checkpoint}, {result_words(known)}.")
        return _Best(checkpoint, tier.turns)

    def _strength(self, model: str) -> tuple[int, float]:
        """By which models are put in order where nothing was measured."""
        spec = self.by_name[model]
        return spec.strength or 0, call_usd(spec, *USUAL_CALL) or 0.0

    def reports(self) -> list[tuple[str, str]]:
        """What is known of who decides, and what to do where a single model is known to be better."""
        first: dict[str, str] = {}  # who decides, and in which tier first
        for tier in self.endpoint.tier:
            first.setdefault(self.policy_of(tier), tier.name)
        results = {one.id: one for one in self._validated()}
        chosen = [self._best(tier) for tier in self.endpoint.tier if tier.policy in (BEST, "")]
        found = [(why, "") for why in dict.fromkeys(one.why for one in chosen if one.why)]
        for policy, tier_name in first.items():
            if not self.store.checkpoints.has(policy):
                continue
            known, advice = results.get(policy), ""
            if known is None:
                named = any(tier.policy == policy for tier in self.endpoint.tier)
                why = "" if named else ": as none that fits the pool was, the newest plays"
                found.append((f"Checkpoint {policy} was never validated{why}.", ""))
                continue
            if known.is_behind and known.single is not None:
                model = known.single[0].split(" ", 1)[0]
                advice = (
                    f"Beware: it is behind the best single model. Evolve it for longer, or write policy = "
                    f'"single:{model}" for tier {tier_name} into {FILE} (trinity serve --write-config).'
                )
            found.append((f"Checkpoint {policy}: {result_words(known)}.", advice))
        return found

    def pins(self) -> list[str]:
        """The coordinators and planners that can be asked for by name: of each run the best validated one, where there
        is one, else the last."""
        of_runs = best_of_each_run(self._fitting(), self._validated())
        of_runs |= {one.run_id or one.id: one.id for one in self._fitting(planners=True)}
        return [PIN + name for name in of_runs.values()]

    def _fitting(self, *, planners: bool = False) -> list[CheckpointSummary]:
        listed = self.store.checkpoints.list(planners=planners)
        return [one for one in listed if self.by_name.keys() >= {*one.models}]

    def _validated(self) -> list[ValidatedCheckpoint]:
        """The results of the checkpoints that fit, read anew every few seconds: an evolution may be under way."""
        if time.monotonic() - self._known[0] > KNOWN_S:
            self._known = time.monotonic(), validated_checkpoints(self.store, self._fitting())
        return self._known[1]

    def choices(self, tier: Tier) -> tuple[str, ...]:
        """The models that a tier chooses among."""
        found = self.store.checkpoints.named(self.policy_of(tier))
        return self._in_tier(tier, [*self.by_name] if found is None else found.models)

    def _in_tier(self, tier: Tier, models: Sequence[str]) -> tuple[str, ...]:
        """Of a policy's models, those that may be chosen in this tier."""
        among = tuple(model for model in models if not tier.models or model in tier.models)
        return self._leaner_half(among) if tier.lean else among

    def among_words(self, tier: Tier) -> str:
        """The models that a tier chooses among, with what a lean one leaves of them."""
        among, words = self.choices(tier), self.lean_words(tier)
        return ", ".join(among) + (f" ({words})" if words else "")

    def lean_words(self, tier: Tier) -> str:
        """What a lean tier leaves to choose among; empty for one that is not lean, or has nothing to choose."""
        every = self.choices(replace(tier, lean=False))
        if not tier.lean or len(every) < 2:
            return ""
        if len(self.choices(tier)) < len(every):
            return "the leaner half"
        unknown = [
            spec.name for spec in self.specs if spec.name in every and call_usd(spec, *USUAL_CALL) is None
        ]
        why = f"the price of {', '.join(unknown)} is not known" if unknown else "all cost the same"
        return f"all of them: {why}, and no strength in pool.toml tells them apart"

    def _leaner_half(self, models: tuple[str, ...]) -> tuple[str, ...]:
        """The leaner half of these models, see `Tier`: those that are as lean as its last one included."""
        own = [self.by_name[model] for model in models]
        orders = ([call_usd(spec, *USUAL_CALL) for spec in own], [spec.strength for spec in own])
        known = [[one for one in order if one is not None] for order in orders]
        ranks = [*zip(*(order for order in known if len(order) == len(own)), strict=True)]
        if not ranks:
            return models
        most = sorted(ranks)[(len(ranks) - 1) // 2]
        return tuple(model for model, rank in zip(models, ranks, strict=True) if rank <= most)

    def left_out(
        self, tier: Tier, policy: Policy, opted_out: Sequence[str], *, with_images: bool = False
    ) -> tuple[str, ...]:
        """Of the policy's models, those that may not be chosen: outside the tier, opted out of by their name or their
        provider's, or, `with_images`, unable to read these. ApiError for a name that means nothing here, and where
        nothing is left."""
        inside = self._in_tier(tier, policy.models)
        unknown = [name for name in opted_out if not any(name in names_of(one) for one in self.specs)]
        if unknown:
            offered = ", ".join(dict.fromkeys(name for one in self.specs for name in names_of(one)))
            raise bad_request(
                f"'{unknown[0][:80]}' is no model or provider of this pool: leave out some of {offered}.",
                "trinity.leave_out",
            )
        out = tuple(
            model
            for model in policy.models
            if model not in inside or any(name in names_of(self.by_name[model]) for name in opted_out)
        )
        # A cycle takes its steps, and no other model.
        able = {*getattr(policy, "steps", policy.models)}
        if able <= {*out}:
            raise bad_request(
                "Nothing is left of the pool: leave out fewer models or providers, or ask for another tier.",
                "trinity.leave_out",
                "empty_pool",
            )
        if with_images:
            _check_images(tier, policy)
            out = tuple(one for one in policy.models if one in out or not self.by_name[one].images)
        if able <= {*out}:
            raise bad_request(
                f"The request holds images, and no model that '{tier.name}' may choose for it reads any: set images = "
                "true for one that does in the pool file, ask for another tier, or send no images.",
                code="no_model_reads_images",
            )
        return out


def _check_images(tier: Tier, policy: Policy) -> None:
    """ApiError for a policy whose prompts hold the text of a conversation alone."""
    checkpoint = getattr(innermost(policy), "checkpoint", None)
    if checkpoint is not None and checkpoint.protocol is Protocol.RELEASED:
        raise bad_request(
            f"'{tier.name}' is played by the released protocol, whose prompts hold text alone: send no images, or ask "
            "for another tier.",
            code="no_model_reads_images",
        )


@dataclass(frozen=True, slots=True)
class _Best:
    """What a tier plays that plays the best: a policy, its turn budget, and why it is no checkpoint."""

    policy: str
    turns: int
    why: str = ""


def result_words(known: ValidatedCheckpoint) -> str:
    """What is known of a validated checkpoint, in plain sentences."""
    turns = "" if known.turns is None else f", with all its models and up to {known.turns} turns"
    solved = share_words(known.result.accuracy, known.result.interval)
    said = f"generation {known.generation} of {known.run} solved {solved} of {known.result.n} validation tasks{turns}"
    if known.single is None:
        return f"{said}; what the best single model solves of them was not played"
    name, found = known.single
    return f"{said}; the best single model, {name}, {share_words(found.accuracy, found.interval)}"


def names_of(spec: ModelSpec) -> tuple[str, ...]:
    """By what a model can be left out: its name, its provider's in the pool file, and the host that answers."""
    host, provider = urlsplit(spec.base_url).hostname, spec.service.name if spec.service else ""
    return tuple(name for name in (spec.name, provider, host or spec.provider) if name)


def turns_for(effort: str | None, usual: int) -> int:
    """The turn budget of an effort, the `usual` one where none is named; ApiError for an unknown one."""
    if effort is None:
        return usual
    if effort not in EFFORTS:
        raise bad_request(
            f"reasoning effort '{effort[:40]}' is not known: use one of {', '.join(EFFORTS)}.",
            "reasoning_effort",
        )
    return EFFORTS[effort]
