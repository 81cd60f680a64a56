"""What the endpoint does with a request: its tier, its limits and its conversation become an order for the engine."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from core.episode import Episode, Event, Task
from core.errors import BudgetError, ConfigError, StoreError, TrinityError
from core.ids import request_task_id
from core.play.policy import ConductingPolicy, Policy, WorkflowPolicy, new_episode
from core.pool.pool import Pool
from core.workflow import MOST_STEPS
from storage.shelves.endpoint import ApiKey, Limits
from storage.store import Store
from ui.endpoint.conversation import Said, question_of
from ui.endpoint.engine import Engine, Order
from ui.endpoint.errors import ApiError, refused, unavailable, unsupported
from ui.endpoint.formats import AnswerFormat
from ui.endpoint.schema_checks import CHECKS
from ui.endpoint.tiers import Endpoint, Offer, Tier, turns_for
from ui.endpoint.upkeep import Upkeep
from ui.endpoint.wire import ToolOffer, Vendor
from ui.runs import wiring
from ui.runs.plans import ServePlan
from ui.runs.policies import Policies
from ui.runs.spending import check_ceiling, paid_models

#: Turns of a request that demands a call: a Worker that writes a text in its place is asked again.
LEAST_TURNS = 2
#: Of a conversation's text: more would only be cut to the encoder's window.
LONGEST_QUESTION = 2_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as both doors understand it."""

    model: str
    messages: Sequence[Said]
    vendor: Vendor
    door: str
    effort: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    answer_format: AnswerFormat | None = None
    keep: bool | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    tools: ToolOffer = ToolOffer()
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    left_aside: tuple[str, ...] = ()


@dataclass
class Service:
    """One endpoint over a store and a pool. Nothing is loaded before the first request needs it, but by `warm_up`.

    `needs_ceiling`: paid models are not asked without one, where nobody started the endpoint on purpose."""

    store: Store
    pool_name: str
    endpoint: Endpoint
    encoder: str | None = None
    max_cost_usd: float | None = None
    needs_ceiling: bool = False
    _policies: dict[tuple[str, bool], Policy] = field(default_factory=dict, init=False)
    _loading: threading.RLock = field(default_factory=threading.RLock, init=False)

    @cached_property
    def _upkeep(self) -> Upkeep:
        return Upkeep(self.store, self.endpoint)

    @cached_property
    def pool(self) -> Pool:
        """The models that are asked."""
        return wiring.resolve_pool(self.pool_name)

    @cached_property
    def offer(self) -> Offer:
        """The tiers over them."""
        return Offer(self.endpoint, self.pool.specs, self.store)

    @cached_property
    def engine(self) -> Engine:
        """Who plays."""
        tiers = {one.name: (self.offer.policy_of(one), one.turns) for one in self.endpoint.tier}
        models = tuple(spec.name for spec in self.pool.specs)
        ceiling = self.endpoint.max_cost_usd if self.max_cost_usd is None else self.max_cost_usd
        check_ceiling(self.pool.specs, ceiling)
        if self.needs_ceiling and ceiling is None and paid_models(self.pool.specs):
            raise ConfigError(
                "The models of this pool may cost money, so the endpoint needs a ceiling: set TRINITY_MAX_COST, or "
                "max_cost_usd in endpoint.toml."
            )
        plan = ServePlan(self.pool_name, models, tiers, self.encoder)
        self._upkeep.begin()
        return Engine(self.store, plan, self.pool, max_cost_usd=ceiling)

    def warm_up(self) -> None:
        """Load what the first request would wait for. ConfigError and others, one sentence, for what cannot be
        served."""
        self.offer.check()
        for tier in self.endpoint.tier:
            self._policy(self.offer.policy_of(tier), tier.argmax)
        _ = self.engine

    def close(self) -> None:
        """End what is under way."""
        self._upkeep.close()
        CHECKS.close()
        if "engine" in self.__dict__:
            self.engine.close()

    def policy(self, tier: Tier, argmax: bool | None) -> Policy:
        """Who decides in a tier; ApiError when it cannot be loaded."""
        try:
            with self._loading:
                _ = self.engine
                return self._policy(self.offer.policy_of(tier), tier.argmax if argmax is None else argmax)
        except StoreError as error:
            raise unavailable(str(error)) from None
        except ConfigError as error:
            raise ApiError(503, str(error), "server_error", "not_ready") from None
        except TrinityError as error:
            raise refused(str(error), "model") from None

    def order(self, asked: Asked, key: ApiKey | None, tell: Callable[[Event | None], None]) -> Order:
        """The request as it is to be played, not yet handed over. ApiError for what cannot be meant so."""
        vendor, limits = asked.vendor, key.limits if key else Limits()
        tier = self.offer.tier(asked.model)
        policy = self.policy(tier, vendor.argmax)
        least = LEAST_TURNS if asked.tools.must_call else 1
        turns = vendor.max_turns or max(least, _turns(policy, turns_for(asked.effort, tier)))
        turns = turns if limits.max_turns is None else min(turns, limits.max_turns)
        left_out = self.offer.left_out(tier, policy, [*vendor.leave_out, *limits.leave_out])
        models = [one for one in policy.models if one not in left_out]
        if asked.tools.tools:
            if isinstance(policy, WorkflowPolicy):
                raise unsupported(
                    "tools",
                    f"'{asked.model[:80]}' answers by workflows, whose steps call no tools: send none.",
                )
            self._check_tools(models)
        cost = _least(vendor.max_cost_usd, tier.max_cost_usd)
        self._check_ceilings(cost, limits.max_cost_usd)
        seconds = _least(vendor.deadline_s, limits.deadline_s, tier.deadline_s)
        schema = asked.answer_format.schema if asked.answer_format else None
        question = question_of(asked.messages, schema, asked.tools.demand)
        if len(question) > LONGEST_QUESTION:
            raise ApiError(
                413, f"The conversation holds more than {LONGEST_QUESTION:,} characters: send less."
            )
        if self.engine.in_progress >= self.endpoint.most_requests:
            raise ApiError(
                429,
                f"{self.endpoint.most_requests} requests are in progress already: try again in a moment.",
                "rate_limit_error",
                "too_many_requests",
                headers={"retry-after": "1"},
            )
        name = self.engine.new_id()
        keep = _kept(self.endpoint.store_text, vendor.store_text, asked.keep)
        episode = self._episode(name, question, policy, turns, asked, left_out)
        return Order(
            episode=episode,
            policy=policy,
            door=asked.door,
            model=asked.model,
            tell=tell,
            deadline=time.monotonic() + (seconds or 300.0),
            key=key.id if key else None,
            max_cost_usd=cost,
            key_max_cost_usd=limits.max_cost_usd,
            temperature=asked.temperature,
            max_tokens=asked.max_tokens,
            top_p=asked.top_p,
            tools=asked.tools.tools,
            must_call=asked.tools.must_call,
            left_aside=(*asked.left_aside, *self._unsent(asked, models)),
            keep_texts=keep,
        )

    def _episode(
        self,
        name: str,
        question: str,
        policy: Policy,
        turns: int,
        asked: Asked,
        left_out: tuple[str, ...],
    ) -> Episode:
        seed = secrets.randbits(32) if asked.seed is None else asked.seed % 2**63
        task = Task(request_task_id(question), question, "", "open", "request", "live")
        run, index = self.engine.run, int(name.rpartition("-")[2])
        episode = new_episode(run, index, task, policy, turns=turns, seed=seed, argmax=False)
        argmax = bool(getattr(policy, "argmax", False))
        return replace(episode, left_out=left_out, argmax=argmax, meta=dict(asked.metadata))

    def _check_tools(self, models: Sequence[str]) -> None:
        by_name = {spec.name: spec for spec in self.pool.specs}
        without = [name for name in models if by_name[name].dialect == "terse"]
        if without:
            raise unsupported(
                "tools",
                f"'{without[0]}' of this pool cannot call tools: leave it out by trinity.leave_out, or send no tools.",
            )

    def _unsent(self, asked: Asked, models: Sequence[str]) -> list[str]:
        """What was asked of the models' sampling, and none of them can be told."""
        told = [spec for spec in self.pool.specs if spec.name in models and spec.send_temperature]
        with_top_p = [spec for spec in told if spec.provider == "openai"]
        wishes = (("temperature", asked.temperature, told), ("top_p", asked.top_p, with_top_p))
        return [name for name, wish, able in wishes if wish is not None and not able]

    def _check_ceilings(self, *ceilings: float | None) -> None:
        try:
            check_ceiling(self.pool.specs, _least(*ceilings))
        except BudgetError as error:
            raise refused(str(error), "trinity.max_cost_usd") from None

    def _policy(self, name: str, argmax: bool) -> Policy:
        if (name, argmax) not in self._policies:
            models = tuple(spec.name for spec in self.pool.specs)
            if argmax and (sampling := self._policies.get((name, False))) is not None:
                self._policies[name, argmax] = _most_likely(sampling)
            else:
                known = Policies(self.store, models, argmax=argmax, encoder=self.encoder)
                found = known.resolve(name)
                if isinstance(found, ConductingPolicy) and not isinstance(found, WorkflowPolicy):
                    raise ConfigError(
                        f"Policy '{name}' makes one answer of several episodes, which is not served: choose another."
                    )
                self._policies[name, argmax] = found
        return self._policies[name, argmax]


def _most_likely(policy: Policy) -> Policy:
    """The same coordinator or planner, always taking the likeliest choice; other policies as they are."""
    if likeliest := getattr(policy, "most_likely", None):
        planner: Policy = likeliest()
        return planner
    checkpoint = getattr(policy, "checkpoint", None)
    if checkpoint is None:
        return policy
    from core.coordinator.coordinator import Coordinator

    return Coordinator(checkpoint, policy.encoder, argmax=True)  # type: ignore[attr-defined]


def _turns(policy: Policy, budget: int) -> int:
    """The turn budget of a request. Workflows are whole or nothing: theirs is at least what the longest one needs."""
    if not isinstance(policy, WorkflowPolicy):
        return budget
    return max(budget, MOST_STEPS * policy.rounds)


def _least(*values: float | None) -> float | None:
    """The smallest that is given."""
    return min((value for value in values if value is not None), default=None)


def _kept(configured: bool, *wishes: bool | None) -> bool:
    """Whether texts are stored: a wish that they are not is always granted, and none can override the configuration."""
    return configured and all(wish is not False for wish in wishes)
