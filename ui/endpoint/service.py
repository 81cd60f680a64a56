"""What the endpoint does with a request: its tier, its limits and its conversation become an order for the engine. And
what it forgets by itself, after the days that its configuration names."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from core.episode import ROLE_ORDER, Decide, Decision, Episode, Event, Message, Task, Transcript
from core.errors import BudgetError, ConfigError, StoreError, TrinityError
from core.ids import request_task_id
from core.play.policies import Policy, new_episode
from core.pool.pool import Pool
from core.processes import EngineState
from core.settings import Computing
from core.workflow import MOST_STEPS
from storage.filters.episode_filter import EpisodeFilter
from storage.shelves.endpoint import RIGHT, SCORE, ApiKey, Limits, Quota
from storage.shelves.labels import Place
from storage.store import Store
from storage.upkeep.retention import What, began_before, prune
from ui.endpoint.conversation import Asked, conversation_of, input_messages, question_of
from ui.endpoint.engine import Engine, Order
from ui.endpoint.errors import ApiError, bad_request, quota_used_up, store_unavailable, unsupported_field
from ui.endpoint.ledger import MOST_RUNS, Books, Sender
from ui.endpoint.schema_checks import CHECKS
from ui.endpoint.tiers import Endpoint, Offer, Tier, turns_for
from ui.endpoint.wire import DecisionRequest, FeedbackRequest, Question
from ui.runs import wiring
from ui.runs.plans import ServePlan
from ui.runs.policies import Policies
from ui.runs.settings import is_recorded
from ui.runs.spending import check_ceiling, paid_models

log = logging.getLogger(__name__)

#: How often it is looked for what is too old, in seconds.
EVERY_S = 3600.0
#: Turns of a request that demands a call: a Worker that writes a text in its place is asked again.
LEAST_TURNS = 2
#: Of a conversation's text: more would only be cut to the encoder's window.
LONGEST_QUESTION = 2_000_000


#: Why the models of an outcome table are not served.
RECORDED_NOT_SERVED = (
    "Recorded models reply to the questions of their outcome table alone, and clients ask others: serve a pool of "
    "models that can be called."
)


@dataclass
class Service:
    """One endpoint over a store and a pool. Nothing is loaded before the first request needs it, but by `warm_up`.

    `needs_ceiling`: paid models are not asked without one, where nobody started the endpoint on purpose. `books`: of
    all processes that serve it, where there are several."""

    store: Store
    pool_name: str
    endpoint: Endpoint
    encoder: str | None = None
    max_cost_usd: float | None = None
    needs_ceiling: bool = False
    computing: Computing = Computing()
    books: Books | None = None
    _policies: dict[tuple[str, bool], Policy] = field(default_factory=dict, init=False)
    _told: list[str] = field(default_factory=list, init=False)
    _noted: set[tuple[str, str]] = field(default_factory=set, init=False)
    _loading: threading.RLock = field(default_factory=threading.RLock, init=False)
    _over: threading.Event = field(default_factory=threading.Event, init=False)
    _upkeep: threading.Thread | None = field(default=None, init=False)

    @cached_property
    def pool(self) -> Pool:
        """The models that are asked."""
        # Nobody knows what would be right.
        return wiring.resolve_pool(self.pool_name, judged=False, engine=self.endpoint.engine)

    def engine_state(self) -> EngineState | None:
        """What the helpers of its engine do; None where it has none, or nobody has asked for them yet. PoolError where
        its cluster is gone."""
        if "pool" not in self.__dict__:
            return None
        processes = wiring.processes(self.endpoint.engine)
        processes.check()
        return processes.state()

    @cached_property
    def offer(self) -> Offer:
        """The tiers over them."""
        return Offer(self.endpoint, self.pool.specs, self.store)

    @cached_property
    def engine(self) -> Engine:
        """Who plays. ConfigError for models that answer nothing new, and without a ceiling that is needed."""
        if is_recorded(self.pool_name):
            raise ConfigError(RECORDED_NOT_SERVED)
        tiers = {
            one.name: (self.offer.policy_of(one), self.offer.turns_of(one)) for one in self.endpoint.tier
        }
        models = tuple(spec.name for spec in self.pool.specs)
        ceiling = self.endpoint.max_cost_usd if self.max_cost_usd is None else self.max_cost_usd
        check_ceiling(self.pool.specs, ceiling)
        if self.needs_ceiling and ceiling is None and paid_models(self.pool.specs):
            raise ConfigError(
                "The models of this pool may cost money, so the endpoint needs a ceiling: set TRINITY_MAX_COST, or "
                "max_cost_usd in endpoint.toml."
            )
        plan = ServePlan(self.pool_name, models, tiers, self.encoder, self.computing)
        if self.endpoint.keep_texts_days or self.endpoint.keep_episodes_days:
            self._upkeep = threading.Thread(target=self._forget, name="endpoint upkeep", daemon=True)
            self._upkeep.start()
        quotas = self.endpoint.quotas
        return Engine(self.store, plan, self.pool, max_cost_usd=ceiling, quotas=quotas, books=self.books)

    def warm_up(self) -> None:
        """Load what the first request would wait for. ConfigError and others, one sentence, for what cannot be
        served."""
        self.offer.check()
        for tier in self.endpoint.tier:
            self._policy(self.offer.policy_of(tier), tier.argmax)
        _ = self.engine

    def close(self) -> None:
        """End what is under way."""
        self._over.set()
        if self._upkeep is not None:
            self._upkeep.join(timeout=30.0)
        CHECKS.close()
        if "engine" in self.__dict__:
            self.engine.close()

    def _forget(self) -> None:
        """Look at once, and then every hour, for what is too old."""
        while not self._over.is_set():
            try:
                if gone := forget_old(self.store, self.endpoint):
                    log.info("Removed what is kept no longer of %d episodes.", gone)
            except TrinityError as error:
                log.warning("What is kept no longer could not be removed: %s", error)
            self._over.wait(EVERY_S)

    def policy(self, tier: Tier, argmax: bool | None) -> Policy:
        """Who decides in a tier; ApiError when it cannot be loaded."""
        try:
            wanted = self.offer.policy_of(tier), tier.argmax if argmax is None else argmax
            if "engine" in self.__dict__ and wanted in self._policies:
                return self._policies[wanted]
            with self._loading:
                _ = self.engine
                return self._policy(*wanted)
        except StoreError as error:
            raise store_unavailable(str(error)) from None
        except ConfigError as error:
            raise ApiError(503, str(error), "server_error", "not_ready") from None
        except TrinityError as error:
            raise bad_request(str(error), "model") from None

    def is_ready(self, model: str, argmax: bool | None, key: ApiKey | None) -> bool:
        """Whether a small request can be ordered at once: without the store, another process, or anything to load."""
        tier = next((one for one in self.endpoint.tier if one.name == model), None)
        if tier is None or "engine" not in self.__dict__ or not self.engine.is_open or self._is_counted(key):
            return False
        return (
            self.offer.remembers(tier)
            and (self.offer.policy_of(tier), tier.argmax if argmax is None else argmax) in self._policies
            and all((self.engine.run, sentence) in self._noted for sentence in self._told)
        )

    def _is_counted(self, key: ApiKey | None) -> bool:
        """Whether requests are limited by day or month."""
        own = (*self.endpoint.quotas.values(), *((key.limits.day, key.limits.month) if key else ()))
        return any(one != Quota() for one in own)

    def order(self, asked: Asked, key: ApiKey | None, tell: Callable[[Event | None], None]) -> Order:
        """The request as it is to be played, not yet handed over. ApiError for what cannot be meant so."""
        vendor, limits = asked.vendor, key.limits if key else Limits()
        tier = self.offer.tier(asked.model)
        policy = self.policy(tier, vendor.argmax)
        left_out = self.offer.left_out(
            tier, policy, [*vendor.leave_out, *limits.leave_out], with_images=bool(asked.images)
        )
        models = [one for one in policy.models if one not in left_out]
        if asked.tools.tools:
            self._check_tools(asked, policy, models)
        cost = _least(vendor.max_cost_usd, tier.max_cost_usd)
        try:
            check_ceiling(self.pool.specs, _least(cost, limits.max_cost_usd))
        except BudgetError as error:
            raise bad_request(str(error), "trinity.max_cost_usd") from None
        seconds = _least(vendor.deadline_s, limits.deadline_s, tier.deadline_s)
        schema = asked.answer_format.schema if asked.answer_format else None
        told = asked.messages, schema, asked.tools.demand
        question = question_of(*told)
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
        turns = _turns(asked, limits, self.offer.turns_of(tier), policy)
        sender = Sender(key, self.store.now())
        if self._is_counted(key) and (ceiling := self.engine.admit(sender)) is not None:
            raise quota_used_up(f"No more requests fit {ceiling.words}.", ceiling.left_s(sender.at))
        return Order(
            episode=self._episode(question, conversation_of(*told), policy, turns, asked, left_out),
            policy=policy,
            asked=replace(asked, left_aside=(*asked.left_aside, *self._unsent(asked, models))),
            tell=tell,
            deadline=time.monotonic() + (seconds or 300.0),
            sender=sender,
            max_cost_usd=cost,
            # A wish that texts are not kept is always granted, and none can override the configuration.
            keep_texts=self.endpoint.store_text and False not in (vendor.store_text, asked.keep),
        )

    def _check_tools(self, asked: Asked, policy: Policy, models: Sequence[str]) -> None:
        """ApiError where tools are offered that nobody here would be told of."""
        if policy.rounds:
            raise unsupported_field(
                "tools", f"'{asked.model[:80]}' answers by workflows, whose steps call no tools: send none."
            )
        untold = {one.name for one in self.pool.specs if one.dialect == "terse" or one.provider == "local"}
        if without := [name for name in models if name in untold]:
            raise unsupported_field(
                "tools",
                f"'{without[0]}' of this pool cannot call tools: leave it out by trinity.leave_out, or send no tools.",
            )

    def _episode(
        self,
        question: str,
        conversation: tuple[Message, ...],
        policy: Policy,
        turns: int,
        asked: Asked,
        left_out: tuple[str, ...],
    ) -> Episode:
        seed = secrets.randbits(32) if asked.seed is None else asked.seed % 2**63
        # Of images the question tells no more than that they are there.
        name = request_task_id("\n".join([question, *(one.url or one.sha256 for one in asked.images)]))
        task = Task(name, question, "", "open", "request", "live", conversation=conversation)
        run, index = self.engine.new_place()
        for told in {(run, sentence) for sentence in self._told} - self._noted:
            self.store.runs.note(*told)
            self._noted.add(told)
        argmax = bool(getattr(policy, "argmax", False))
        born = new_episode(run, index, task, policy, turns=turns, seed=seed, argmax=False)
        return replace(born, left_out=left_out, argmax=argmax, meta=dict(asked.metadata))

    def _unsent(self, asked: Asked, models: Sequence[str]) -> list[str]:
        """What was asked of the models' sampling, and none of them can be told."""
        told = [spec for spec in self.pool.specs if spec.name in models and spec.send_temperature]
        with_top_p = [spec for spec in told if spec.provider in ("openai", "local")]
        wishes = (("temperature", asked.temperature, told), ("top_p", asked.top_p, with_top_p))
        return [name for name, wish, able in wishes if wish is not None and not able]

    def _policy(self, name: str, argmax: bool) -> Policy:
        if (known := self._policies.get((name, argmax))) is not None:
            return known
        sampling = self._policies.get((name, False))
        if argmax and (likeliest := getattr(sampling, "most_likely", None)):  # a planner is loaded once
            found: Policy = likeliest()
        else:
            models = tuple(spec.name for spec in self.pool.specs)
            how: dict[str, Any] = {"computing": self.computing, "engine": self.endpoint.engine}
            policies = Policies(self.store, models, argmax=argmax, encoder=self.encoder, **how)
            found = policies.resolve(name)
            self._told += policies.told
        if not found.decides_turns and not found.rounds:
            raise ConfigError(
                f"Policy '{name}' makes one answer of several episodes, which is not served: choose another."
            )
        self._policies[name, argmax] = found
        return found


def _turns(asked: Asked, limits: Limits, usual: int, policy: Policy) -> int:
    """The turn budget of a request. Workflows are whole or nothing: theirs is at least what the longest one needs."""
    needed = max(1, MOST_STEPS * policy.rounds)
    least = LEAST_TURNS if asked.tools.must_call else 1
    turns = asked.vendor.max_turns or max(least, needed, turns_for(asked.effort, usual))
    return turns if limits.max_turns is None else min(turns, limits.max_turns)


def take_feedback(store: Store, body: FeedbackRequest, key: ApiKey | None) -> dict[str, Any]:
    """Keep what a client says of an answer as labels of its episode; the latest of a client counts. ApiError where it
    says nothing, or the request was another's."""
    episode = body.episode.removeprefix("chatcmpl-").removeprefix("resp_").removeprefix("msg_")
    if body.right is None and body.score is None:
        raise bad_request(
            "The feedback says nothing: send right (true or false), or a score from 0 to 1.", "right"
        )
    unknown = ApiError(
        404,
        f"There is no answer '{body.episode[:80]}' of yours here: send the id of an answer, or its trinity.episode, "
        "with the key that it was asked with.",
        code="episode_not_found",
        param="episode",
    )
    try:
        owner = store.endpoint.key_of(episode)
    except StoreError:
        raise unknown from None
    if owner != (key.id if key else None):
        raise unknown
    said = [] if body.right is None else [(RIGHT, "right" if body.right else "wrong")]
    said += [] if body.score is None else [(SCORE, f"{body.score:g}")]
    try:
        store.labels.add_all(Place(episode), said, author=key.name if key else "a client", note=body.note)
    except StoreError:
        raise unknown from None
    return {"object": "feedback", "episode": episode, "right": body.right, "score": body.score}


def _least(*values: float | None) -> float | None:
    """The smallest that is given."""
    return min((value for value in values if value is not None), default=None)


def forget_old(store: Store, endpoint: Endpoint) -> int:
    """Remove what is kept no longer; of how many episodes. What is labelled or forked stays."""
    limits: dict[What, int | None] = {
        "texts": endpoint.keep_texts_days,
        "states": endpoint.keep_texts_days,  # something of the texts could be read from them
        "episodes": endpoint.keep_episodes_days,
    }
    runs = store.runs.list("serve", limit=MOST_RUNS) if any(limits.values()) else ()
    gone = 0
    for what, days in limits.items():
        for run in runs if days else ():
            where = EpisodeFilter(run=run.id, q=began_before(f"{days}d", store.now()))
            gone += prune(store, what, where).episodes
    return gone


# What would be decided, without asking a model


def first_decision(service: Service, body: DecisionRequest, key: ApiKey | None) -> dict[str, Any]:
    """The decision before the first turn, as the answers to the questions about it. ApiError for a policy that decides
    no turns, and for a question that is none."""
    said = input_messages(body.input)
    question = question_of(said)
    tier = service.offer.tier(body.model)
    policy = service.policy(tier, body.trinity.argmax)
    out = [*body.trinity.leave_out, *(key.limits.leave_out if key else ())]
    left_out = service.offer.left_out(tier, policy, out, with_images=any(one.images for one in said))
    if policy.rounds:
        raise bad_request(
            "This model answers by whole workflows and decides no single turns: ask for another one.", "model"
        )
    mask = tuple(model not in left_out for model in policy.models) if left_out else ()
    with service.engine.deciding:
        [decision] = policy.decide([Decide(Transcript(question), 0, key="decision", model_mask=mask)])
    answers = [answer_to(one, policy, decision, number) for number, one in enumerate(body.questions)]
    usage = {
        "input_tokens": decision.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": decision.prompt_tokens,
    }
    about = {"policy": policy.id, "models": list(policy.models), "cut": decision.prompt_overflow}
    return {"model": body.model, "answers": answers, "usage": usage, "trinity": about}


def answer_to(question: Question, policy: Policy, decision: Decision, number: int) -> dict[str, Any]:
    """The answer to one question: of a choice between models or between roles; a refusal of any other."""
    name = {"name": question.name}
    values = [one.value for one in question.choices or ()]
    if question.type == "choice" and not values:
        raise bad_request("A choice needs its choices: give at least two.", f"questions.{number}.choices")
    if len({*map(repr, values)}) < len(values):
        raise bad_request("A choice is given twice: give each once.", f"questions.{number}.choices")
    roles = [role.value for role in ROLE_ORDER]
    odds = (
        (policy.models, decision.model_probs or [one == decision.model for one in policy.models]),
        (roles, decision.role_probs or [one == decision.role.value for one in roles]),
    )
    for known, probabilities in odds:
        named = dict(zip(known, map(float, probabilities), strict=True))
        if question.type == "choice" and all(isinstance(v, str) and v in named for v in values):
            return name | _choice({str(value): named[str(value)] for value in values})
    return name | {"type": "refusal"}


def _choice(probabilities: dict[str, float]) -> dict[str, Any]:
    """Probabilities among the given choices alone; equal ones where the coordinator would take none of them."""
    total = sum(probabilities.values())
    shares = {name: p / total if total else 1 / len(probabilities) for name, p in probabilities.items()}
    best = max(shares, key=lambda name: shares[name])
    return {
        "type": "choice",
        "choice": best,
        "confidence": shares[best],
        "probabilities": [{"value": name, "probability": p} for name, p in shares.items()],
    }
