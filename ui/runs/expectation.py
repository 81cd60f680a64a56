"""What a plan will probably cost and how long it will take, part by part, from what is recorded of its models, and how
long its encoder will read.

The price bounds what can be spent; this says what to expect. Where nothing is recorded of a pool, nothing is guessed: a
pilot, a few episodes that are played before, tells it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.analysis.power import calls_made, options_of
from core.conduct.planners import CONDUCTOR
from core.episode import ROLE_ORDER, Decide, Transcript
from core.evolution.config import ADAPTED_AT_MOST, CHOOSING, LABEL_REPEATS, EvolveConfig
from core.evolution.cycles import CYCLES, PLAIN_CYCLES, calls_of_cycles
from core.play.policies import SINGLE
from core.pool.costs import call_usd
from core.pool.spec import ModelSpec, digest_of_specs, judge_of, slots_of
from core.workflow import MOST_STEPS
from storage.analysis.costs import PoolMeans, pool_means, shared_calls
from storage.store import Store
from ui.presentation.words import dollars
from ui.runs.plans import ForkPlan, RunPlan
from ui.runs.policies import turns_of
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.learning import QUICK_SVF, EvolutionPlan, TrainingPlan, learning_sets
from ui.runs.spending import is_free, lesson_episodes, teacher_episodes, training_episodes

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder

#: Where no evolution of a pool is recorded, its candidates are taken to choose among every model in every role in the
#: first generation, among half as many in the second, a third in the third, and never among fewer than this. Candidates
#: over seven simulated models with long replies did so.
FEWEST_CHOICES = 2.5
#: How many episodes a pilot plays in all, at least.
PILOT_EPISODES = 10


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a plan: the calls that it will make to each model, and what they will cost in US dollars (None: no
    price)."""

    name: str
    by_model: Mapping[str, float]
    cost_usd: float | None

    @property
    def calls(self) -> float:
        """To all models."""
        return sum(self.by_model.values())


@dataclass(frozen=True, slots=True)
class Expectation:
    """What to expect of a plan; `hours` are what the tightest limit imposes, which `limit` says where it is a
    provider's; `recorded` replies are behind it. `judged`: the calls of a judge come on top."""

    parts: tuple[Part, ...]
    hours: float
    recorded: int
    limit: str = ""
    judged: bool = False

    @property
    def calls(self) -> float:
        """In all."""
        return sum(part.calls for part in self.parts)

    @property
    def cost_usd(self) -> float | None:
        """In all; None where a price is not known."""
        costs = [part.cost_usd for part in self.parts]
        return None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs)

    def sentence(self) -> str:
        """All of it in words."""
        parts = ""
        if len(self.parts) > 1:
            told = (f"{part.name} {dollars(part.cost_usd)}" for part in self.parts if part.calls)
            parts = f" ({', '.join(told)})"
        limit = f" (by {self.limit})" if self.limit else ""
        return (
            f"To expect: about {self.calls:,.0f} calls, {dollars(self.cost_usd)}{parts} and {_time(self.hours)}{limit},"
            f" by {self.recorded:,} recorded replies of these models."
            + " What the judge is asked comes on top."
            * self.judged
        )


#: Where nothing is recorded of a pool, its replies are taken to have so many tokens as an encoder reads them.
ASSUMED_REPLY = 200
#: By so many questions it is measured how long questions are.
_MEASURED_QUESTIONS = 64


@dataclass(frozen=True, slots=True)
class ReadingTime:
    """What an encoder is to read for a plan, and how fast it reads here; `assumed`: the most that it is to read if
    replies have ASSUMED_REPLY tokens, as none is recorded."""

    tokens: float
    tokens_per_s: float
    assumed: bool = False

    @property
    def hours(self) -> float:
        """How long it reads."""
        return self.tokens / self.tokens_per_s / 3600

    def sentence(self) -> str:
        """All of it in words."""
        if self.assumed:
            return (
                f"Nothing is recorded of these models yet. With replies of {ASSUMED_REPLY} tokens and every episode "
                f"played to its last turn, the encoder reads at most about {self.tokens:,.0f} tokens, which takes "
                f"{_time(self.hours)} at the {self.tokens_per_s:,.0f} tokens a second that it reads here; what "
                "episodes share is read once."
            )
        return (
            f"The encoder is to read about {self.tokens:,.0f} tokens, which takes {_time(self.hours)} at the "
            f"{self.tokens_per_s:,.0f} tokens a second that it reads here."
        )


def reading_time(
    store: Store, plan: RunPlan, specs: Sequence[ModelSpec], encoder: Encoder, readers: int = 1
) -> ReadingTime | None:
    """What a large encoder is to read for an evolution, or for so many `readers` among the policies of a batch run: the
    transcripts of the calls that are to be expected or, where nothing is recorded of the models, the most that replies
    of ASSUMED_REPLY tokens could make of them. None for small encoders, which take no time worth telling."""
    if not encoder.keeps_states or not isinstance(plan, EvolutionPlan | BatchPlan):
        return None
    means = pool_means(store, digest_of_specs(specs))
    if means is None or not means.calls_per_episode:
        return _assumed_reading(plan, encoder, readers)
    calls = means.calls_per_episode
    decisions = len(plan.load_tasks()) * calls * readers if isinstance(plan, BatchPlan) else 0.0
    if isinstance(plan, EvolutionPlan):
        of = {part.name: part.calls for part in _evolution(store, plan, specs, means)}
        if plan.svf not in ("", QUICK_SVF):  # candidates share no states
            config = plan.evolution
            of["fitness"] = config.generations * config.population * config.tasks_per_candidate * calls
        decisions = of["fitness"] + of.get("validation", 0.0)
    sent = sum(one.tokens_in for one in means.models.values()) / len(means.models)
    said = sum(one.tokens_out for one in means.models.values()) / len(means.models)
    question = max(
        0.0, sent - said * (calls - 1) / 2
    )  # what is sent has half of all replies in it, on average
    each = (question + said * (calls - 1)) / calls if encoder.in_parts else sent
    return ReadingTime(decisions * each, encoder.tokens_per_s())


def _assumed_reading(plan: EvolutionPlan | BatchPlan, encoder: Encoder, readers: int) -> ReadingTime:
    if isinstance(plan, BatchPlan):
        tasks, turns = plan.load_tasks(), plan.turns
        episodes = len(tasks) * readers
    else:
        config, (tasks, validation, _) = plan.evolution, learning_sets(plan)
        turns, rounds = config.turn_budget, 1 + math.ceil(config.generations / config.validate_every)
        played = config.generations * config.population * config.tasks_per_candidate
        episodes = played + rounds * len(validation)
    asked = [Decide(Transcript(task.question), 0, "") for task in tasks[:_MEASURED_QUESTIONS]]
    lengths = [len(encoder.tokens.prompt(one, encoder.input_format).ids) for one in asked]
    question, replies = sum(lengths) / max(1, len(lengths)), ASSUMED_REPLY * (turns - 1)
    each = question + replies if encoder.in_parts else turns * (question + replies / 2)
    return ReadingTime(episodes * each, encoder.tokens_per_s(), assumed=True)


def expectation(store: Store, plan: RunPlan, specs: Sequence[ModelSpec]) -> Expectation | None:
    """What to expect of a plan over the models of its pool; None where nothing is recorded of them, and for plans that
    are too small to ask."""
    means = pool_means(store, digest_of_specs(specs))
    if means is None:
        return None
    slots = slots_of(specs)
    match plan:
        case BatchPlan():
            parts = _batch(plan, slots, means)
        case EvolutionPlan():
            parts = _evolution(store, plan, specs, means)
        case TrainingPlan():
            tasks, validation, _ = learning_sets(plan)
            names = [spec.name for spec in slots]
            parts = [
                _part(name, n * means.calls_per_episode, slots, means, names)
                for name, n in training_episodes(plan, len(slots), len(tasks), len(validation)).items()
                if n
            ]
        case ForkPlan():
            parts = _forks(plan, slots, means)
        case _:
            return None
    seconds, limit = longest(parts, slots, means)
    return Expectation(tuple(parts), seconds / 3600, means.n, limit, judge_of(specs) is not None)


def pilot_of(plan: BatchPlan | EvolutionPlan | TrainingPlan, specs: Sequence[ModelSpec]) -> BatchPlan:
    """The pilot of a plan, still to be completed: a random model in a random role at every turn, or random workflows
    where the plan plays nothing else; where it does not ask every model of its pool, each of those that it asks alone.
    It plays tasks of the evolve split, so that no test task is touched, below the ceiling of the plan."""
    policies, turns, protocol = ["random"], MOST_STEPS, None
    match plan:
        case BatchPlan():
            turns, protocol = plan.turns, plan.protocol
            if all(policy.startswith(SINGLE) for policy in plan.policies):
                policies = list(plan.policies)
            elif all(policy.startswith(CONDUCTOR) for policy in plan.policies):
                policies = [f"{CONDUCTOR}random"]
        case EvolutionPlan():
            turns, protocol = plan.evolution.turn_budget, plan.protocol
            if any(spec.name in plan.barred for spec in specs):
                asked = (spec.name for spec in slots_of(specs) if spec.name not in plan.barred)
                policies = [f"{SINGLE}{name}" for name in asked]
        case TrainingPlan():
            policies = [f"{CONDUCTOR}random"]
    return BatchPlan(
        policies=tuple(policies),
        tasks=plan.tasks,
        split="evolve",
        n=math.ceil(PILOT_EPISODES / len(policies)),
        seed=0,
        turns=turns,
        argmax=False,
        pool=plan.pool,
        max_cost_usd=plan.max_cost_usd,
        protocol=protocol,
    )


def longest(parts: Sequence[Part], specs: Sequence[ModelSpec], means: PoolMeans) -> tuple[float, str]:
    """The largest of the times, in seconds, that the limits of models and providers impose, and which limit that is,
    empty where it is a model's own."""
    calls = {name: sum(part.by_model.get(name, 0.0) for part in parts) for name in means.models}
    busy = {name: calls[name] * one.latency_s for name, one in means.models.items()}
    tokens = {name: calls[name] * (one.tokens_in + one.tokens_out) for name, one in means.models.items()}
    times = [(busy.get(spec.name, 0.0) / spec.concurrency, "") for spec in specs if spec.provider != "local"]
    # Models of this process write one after the other.
    times.append((sum(busy.get(spec.name, 0.0) for spec in specs if spec.provider == "local"), ""))
    for service in {spec.service for spec in specs if spec.service is not None}:
        own = [spec.name for spec in specs if spec.service == service and spec.name in means.models]
        limits = (
            (busy, service.concurrency, 1, "concurrency of {:,.0f}"),
            (calls, service.requests_per_minute, 60, "{:,.0f} requests a minute"),
            (tokens, service.tokens_per_minute, 60, "{:,.0f} tokens a minute"),
        )
        times += [
            (sum(amounts[name] for name in own) * seconds / limit, f"{service.name}'s {words.format(limit)}")
            for amounts, limit, seconds, words in limits
            if limit
        ]
    return max(times, default=(0.0, ""))


def _batch(plan: BatchPlan, specs: Sequence[ModelSpec], means: PoolMeans) -> list[Part]:
    n, per_episode = len(plan.load_tasks()), means.calls_per_episode
    names = [spec.name for spec in specs]
    played: Counter[str] = Counter()
    costs: list[float | None] = []
    for policy in plan.policies:
        own = [policy.removeprefix(SINGLE)] if policy.startswith(SINGLE) else names
        part = _part(
            "", n * per_episode * turns_of(policy, plan.turns, names) / plan.turns, specs, means, own
        )
        played.update(part.by_model)
        costs.append(part.cost_usd)
    known = [cost for cost in costs if cost is not None]
    parts = [Part("episodes", played, sum(known) if len(known) == len(costs) else None)]
    if trying := len(plan.undecided) * plan.choosing:
        calls = trying * calls_of_cycles(CYCLES, plan.turns, means.accepts)
        parts.append(_part("choosing cycles", calls, specs, means, names))
    if learning := lesson_episodes(plan):
        parts.append(_part("lessons", learning * per_episode, specs, means, names))
    return parts


def _evolution(store: Store, plan: EvolutionPlan, specs: Sequence[ModelSpec], means: PoolMeans) -> list[Part]:
    config, (tasks, validation, _) = plan.evolution, learning_sets(plan)
    recorded, specs = _recorded_options(store, digest_of_specs(specs), means), slots_of(specs)
    every = [spec.name for spec in specs]
    names = [name for name in every if name not in plan.barred]
    turns, calls = config.turn_budget, min(means.calls_per_episode, float(config.turn_budget))
    options = [_options(recorded, generation, len(names)) for generation in range(1, config.generations + 1)]
    # What is validated are so many policies, with the same chances each time.
    rounds = 1 + math.ceil(config.generations / config.validate_every)
    parts = {
        "fitness": _fitness(config, len(tasks), calls, options),
        "validation": len(validation) * calls_made(rounds, calls, turns, options[-1]),
    }
    of_cycles = calls_of_cycles(PLAIN_CYCLES, turns, means.accepts)
    of_one = sum(calls_of_cycles([cycle], turns, means.accepts) for cycle in PLAIN_CYCLES) / len(PLAIN_CYCLES)
    if config.label_questions:
        questions = min(config.label_questions, len(tasks))
        choosing = len(specs) * min(CHOOSING, questions) * of_cycles
        parts["labels"] = choosing + LABEL_REPEATS * len(specs) * questions * of_one
        if config.teacher:
            parts["labels"] = teacher_episodes(plan, every, questions) * calls
    if plan.controls:
        tried = min(CHOOSING, len(validation))
        walk = len(validation) * calls if config.learner == "sep-cma-es" else 0.0
        parts["controls"] = len(specs) * tried * of_cycles + (len(validation) - tried) * of_one + walk
    asked = {"labels": every, "controls": every}  # each model alone, those that are barred too
    return [_part(name, n, specs, means, asked.get(name, names)) for name, n in parts.items() if n]


def _fitness(config: EvolveConfig, n_tasks: int, calls: float, options: Sequence[float]) -> float:
    """The calls of all candidates of all generations. Those that play one task with the same chances share what they
    can, also across the generations until chances are drawn anew."""
    each = config.tasks_per_candidate * (ADAPTED_AT_MOST if config.adaptive else 1)
    if not config.common:
        return config.generations * config.population * each * calls
    found = 0.0
    for start in range(0, config.generations, config.rotate_every):
        window = options[start : start + config.rotate_every]
        often = max(1.0, len(window) * each / n_tasks)  # a task of it comes up so many times
        for one in window:
            made = calls_made(often * config.population, calls, config.turn_budget, one)
            found += each * made / often
    return found


def _recorded_options(store: Store, pool: str, means: PoolMeans) -> dict[int, float]:
    """By generation, among how many choices the candidates of recorded evolutions of this pool chose: the geometric
    mean over those whose candidates played common tasks, which repeated rarely enough to tell."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    for one in shared_calls(store, pool):
        evolution = one.config.get("evolution")
        if not isinstance(evolution, Mapping) or not evolution.get("common") or one.candidates < 2:
            continue
        turns = int(evolution.get("turn_budget", 5))
        calls = min(float(turns), (one.made + one.saved) / (one.candidates * one.tasks))
        share = one.made / (one.made + one.saved)
        found[one.index].append(math.log(options_of(share, one.candidates, calls, turns)))
    return {index: math.exp(sum(logs) / len(logs)) for index, logs in found.items()}


def _options(recorded: Mapping[int, float], generation: int, n_models: int) -> float:
    """Among how many choices candidates of a generation choose: as in the nearest recorded one."""
    if recorded:
        return recorded[min(recorded, key=lambda index: (abs(index - generation), index))]
    return max(FEWEST_CHOICES, n_models * len(ROLE_ORDER) / generation)


def _forks(plan: ForkPlan, specs: Sequence[ModelSpec], means: PoolMeans) -> list[Part]:
    """As if every child played a whole episode: those that begin late play less."""
    calls = plan.to_play * means.calls_per_episode
    return [_part("forks", calls, specs, means, [spec.name for spec in specs])]


def _part(
    name: str, calls: float, specs: Sequence[ModelSpec], means: PoolMeans, names: Sequence[str]
) -> Part:
    """So many calls, spread evenly over these models, as far as they are recorded."""
    call = _call_usd(specs, means, names)
    own = [one for one in names if one in means.models] or names
    return Part(name, {one: calls / len(own) for one in own}, None if call is None else calls * call)


def _call_usd(specs: Sequence[ModelSpec], means: PoolMeans, names: Iterable[str]) -> float | None:
    """The mean cost of a call to these models; None where a price is not known or none of them is recorded."""
    by_name = {spec.name: spec for spec in specs}
    costs = []
    for name in names:
        spec, recorded = by_name.get(name), means.models.get(name)
        if spec is None or recorded is None:
            continue
        if is_free(spec):
            costs.append(0.0)
            continue
        cost = call_usd(spec, recorded.tokens_in, recorded.tokens_out, recorded.tokens_cached)
        if cost is None:
            return None
        costs.append(cost)
    return sum(costs) / len(costs) if costs else None


def _time(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} hours"
    minutes = hours * 60
    return (
        f"{minutes:.0f} minutes"
        if minutes >= 1.5
        else "about a minute"
        if minutes >= 0.5
        else "under a minute"
    )
