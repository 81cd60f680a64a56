"""What a run can cost at most, and keeping it below its ceiling: a price before it starts, a bound on every call."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from core.changes import BASELINE, FORK
from core.episode import Ask, Episode, Reply, Task
from core.errors import BudgetError
from core.evolution.config import ADAPTED_AT_MOST, CHOOSING, controls_at_most, label_episodes
from core.evolution.cycles import CYCLES, PLAIN_CYCLES
from core.play.forking import turns_left
from core.play.judging import TRIES, judge_messages
from core.pool.costs import MOST_UNREAD, QUESTION_TOKENS, CostBound, bound_usd, estimate_cost
from core.pool.pool import Flight, FlightPool, Pool, WrappedFlight, closing, flight_of
from core.pool.spec import ModelSpec, judge_of, slots_of
from core.workflow import MOST_STEPS
from storage.reads import forks
from storage.store import Store
from ui.presentation.words import dollars
from ui.program import LOCAL_NAMES
from ui.runs import wiring
from ui.runs.plans import ForkPlan, LivePlan, PooledPlan, RunPlan
from ui.runs.policies import pupil_of, turns_of
from ui.runs.settings import is_recorded
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan, learning_sets
from ui.runs.taught.clones import teacher_cycles


def is_free(spec: ModelSpec) -> bool:
    """Whether nobody bills for this model: it plays in this process, its price is 0, or it has none at all and its
    server is on this machine and asks for no key."""
    prices = {spec.price_in, spec.price_out}
    on_this_machine = urlsplit(spec.base_url).hostname in LOCAL_NAMES
    keyless = on_this_machine and not spec.api_key_env and not spec.headers_env
    return spec.provider != "openai" or prices == {0} or (prices == {None} and keyless)


def paid_models(specs: Iterable[ModelSpec]) -> list[ModelSpec]:
    """The models that may cost money."""
    return [spec for spec in specs if not is_free(spec)]


def check_ceiling(specs: Sequence[ModelSpec], ceiling_usd: float | None) -> None:
    """BudgetError when a ceiling is set that could not be kept, because a price is unknown."""
    if ceiling_usd is None:
        return
    if unknown := [one.name for one in paid_models(specs) if one.price_in is None or one.price_out is None]:
        raise BudgetError(
            f"The price of {', '.join(unknown)} is not known, so no spend ceiling can be kept: "
            "write price_in and price_out (USD per million tokens) into pool.toml."
        )


def estimate(
    specs: Sequence[ModelSpec],
    episodes: int,
    turn_budget: int,
    tasks: Iterable[Task] = (),
    first_turn: int = 0,
) -> CostBound:
    """The most that so many episodes of these tasks can cost over the models that may cost money, in whose prompts the
    others' replies stand too, and over the judge where tasks are rated. A token of their questions is at least one
    byte. Turns before `first_turn` are recorded."""
    slots, tasks = slots_of(specs), [*tasks]
    longest = max((spec.max_tokens for spec in slots), default=0)
    most = estimate_cost(
        paid_models(slots),
        episodes,
        turn_budget,
        question_tokens=max((len(task.question.encode()) for task in tasks), default=QUESTION_TOKENS),
        longest_reply=longest,
        first_turn=first_turn,
    )
    judged, judge = [task for task in tasks if task.grader == "judge"], judge_of(specs)
    if judge is None or not judged:
        return most
    asked = (judge_messages(task, "", again=True) for task in judged)
    sent = max(sum(len(message.content.encode()) for message in messages) for messages in asked)
    answers = episodes * max(0, turn_budget - first_turn)
    return most + estimate_cost(paid_models([judge]), TRIES * answers, 1, question_tokens=sent + longest)


@dataclass(frozen=True, slots=True)
class Price:
    """The most that a plan can ask for and cost over the models of its pool; `ceiling_usd` is what it may spend."""

    most: CostBound
    specs: tuple[ModelSpec, ...]
    ceiling_usd: float | None

    @property
    def is_paid(self) -> bool:
        """Whether any of the models may cost money."""
        return bool(paid_models(self.specs))


def price(store: Store, plan: RunPlan, specs: tuple[ModelSpec, ...] | None = None) -> Price:
    """What a plan can cost at most, before it is made ready. `specs` are those of its pool where they are known. What
    is read again costs nothing."""
    if not isinstance(plan, PooledPlan):
        return Price(estimate((), 0, 1), (), None)
    specs = wiring.pool_specs(plan.pool) if specs is None else specs
    match plan:
        case BatchPlan():
            most = _batch(plan, specs)
        case LivePlan():
            turns = turns_of(plan.policy, plan.turns, [spec.name for spec in slots_of(specs)])
            most = estimate(specs, plan.repeats, turns, [plan.task] if plan.task.question else ())
        case EvolutionPlan():
            most = _evolution(plan, specs)
        case TrainingPlan():
            tasks, validation, _ = learning_sets(plan)
            played = sum(training_episodes(plan, len(slots_of(specs)), len(tasks), len(validation)).values())
            most = estimate(specs, played, MOST_STEPS, [*tasks, *validation])
        case ForkPlan():
            most = _forks(store, plan, specs)
    return Price(most, specs, plan.max_cost_usd)


def _batch(plan: BatchPlan, specs: Sequence[ModelSpec]) -> CostBound:
    tasks, choosing, lessons = plan.load_tasks(), plan.choosing_tasks(), plan.lesson_tasks()
    learning = len(plan.undecided) * len(CYCLES) * len(choosing) + lesson_episodes(plan)
    models = [spec.name for spec in slots_of(specs)]
    episodes = Counter({plan.turns: learning})
    for name in plan.policies:
        episodes[turns_of(name, plan.turns, models)] += len(tasks)
    parts = [estimate(specs, n, turns, [*tasks, *choosing, *lessons]) for turns, n in episodes.items()]
    return sum(parts[1:], parts[0])


def lesson_episodes(plan: BatchPlan) -> int:
    """The most episodes that the policies of a run are chosen on and taught by."""
    if not plan.pupils:
        return 0
    n = {"validation": len(plan.choosing_tasks()), "questions": len(plan.lesson_tasks())}
    return sum(
        one.episodes(len(plan.models), sum(n[source] for source in one.learns_from), plan.turns)
        for one in plan.pupils
        if not (one.looks_up and is_recorded(plan.pool))
    )


def training_episodes(plan: TrainingPlan, models: int, tasks: int, validation: int) -> dict[str, int]:
    """The most episodes that the parts of a training can play, with so many models, tasks and validation tasks."""
    config = plan.learning
    return {
        "choosing questions": (models + config.probes) * tasks,
        "rollouts": config.iterations * config.questions * config.rollouts,
        "validation": (1 + math.ceil(config.iterations / config.validate_every)) * validation,
    }


def _evolution(plan: EvolutionPlan, specs: Sequence[ModelSpec]) -> CostBound:
    config, (tasks, validation, _) = plan.evolution, learning_sets(plan)
    models = [spec.name for spec in slots_of(specs)]
    per_candidate = config.tasks_per_candidate * (ADAPTED_AT_MOST if config.adaptive else 1)
    played = config.generations * config.population * per_candidate
    played += (1 + math.ceil(config.generations / config.validate_every)) * len(validation)
    if config.teacher:
        questions = min(config.label_questions, len(tasks))
        played += teacher_episodes(plan, models, questions)
    else:
        played += label_episodes(len(models), config.label_questions)
    if plan.controls:
        played += controls_at_most(len(models), len(validation))
    return estimate(specs, played, config.turn_budget, [*tasks, *validation])


def teacher_episodes(plan: EvolutionPlan, models: Sequence[str], questions: int) -> int:
    """The most episodes that an evolution's teacher plays, and is chosen or taught by before that."""
    config = plan.evolution
    pupil, played = pupil_of(config.teacher, models), questions
    if pupil is not None and not (pupil.looks_up and is_recorded(plan.pool)):
        played += pupil.episodes(len(models), questions, config.turn_budget)
    if teacher_cycles(config.teacher, models):
        played += len(models) * len(PLAIN_CYCLES) * min(CHOOSING, questions)
    return played


def _forks(store: Store, plan: ForkPlan, specs: Sequence[ModelSpec]) -> CostBound:
    """Every child that is not there yet plays all its turns."""
    parents = forks.parents(store, [branch.parent for branch in plan.branches])
    parts: list[CostBound] = []
    for branch in plan.branches:
        if branch.parent not in parents:
            continue  # deleted since: whoever plays it says so
        parent = parents[branch.parent]
        own = plan.change_at(branch)
        written = own.value if own is not None and own.kind in ("reply", "subtask") else ""
        subtasks = (turn.step.subtask for turn in parent.turns if turn.step is not None)
        task = replace(parent.task, question="".join((parent.task.question, 3 * written, *subtasks)))
        for part, change, n in ((BASELINE, None, branch.baseline), (FORK, own, branch.n)):
            n -= sum(name.startswith(f"{part}/") for name in branch.reused)
            # Where nothing is changed every step of a workflow is asked again, also those that read no other.
            left = parent.turn_budget if own is None else turns_left(parent, branch.turn, change)
            left += change is not None and change.by_hand and task.grader == "judge"  # which rates it, too
            first = parent.turn_budget - left
            parts.append(estimate(specs, n if left else 0, parent.turn_budget, [task], first))
    return sum(parts, CostBound(0, 0, 0, 0.0, ()))


def agree_to_cost(asked: Price, *, may_ask: bool, agreed: bool) -> str | None:
    """What to say before anything is spent; None when nothing can be. BudgetError when there is neither a
    ceiling nor anyone who could be asked."""
    most, ceiling_usd = asked.most, asked.ceiling_usd
    check_ceiling(asked.specs, ceiling_usd)
    if not asked.is_paid:
        return None
    unknown = f"an unknown cost (no price for {', '.join(most.unknown)})"
    cost = unknown if most.cost_usd is None else f"at most {dollars(most.cost_usd)}"
    if ceiling_usd is None and most.calls and not (may_ask or agreed):
        raise BudgetError(
            f"This may cost money (up to {most.calls:,} calls, {cost}): set a ceiling with --max-cost USD."
        )
    stop = "" if ceiling_usd is None else f" It stops before {dollars(ceiling_usd)} is exceeded."
    return f"Up to {most.calls:,} calls, {cost}.{stop}"


@dataclass
class Reckoned:
    """What was not billed as usual. `at_bound`: replies without counts of tokens, charged as the most that their calls
    could cost; `unread`: calls of which answers could not be read or broke off, and what these cost; `lost_usd`: the
    most that calls could cost that came to nothing."""

    at_bound: int = 0
    unread: int = 0
    unread_usd: float = 0.0
    lost_usd: float = 0.0


class MeteredPool(FlightPool):
    """A pool that counts what is spent and never asks what together could go over the ceiling: calls that
    fit are made first, then those that fit what is left. BudgetError when not a single one does. A reply without token
    counts is charged as the most that its call could cost, and `reckoned`.

    A call may have to be made again, as its answer cannot be read, and each of them may be billed: where one more fits
    below the ceiling as well, so much is kept free for it, else the call is not made again (`Ask.budget_usd`).

    So that episodes end whole, one is begun only if there is money for it and for the rest of those that are being
    played, each reckoned at the dearest so far, and as long as none has ended at its bound.

    A call that is given up is charged as the most that it could cost: its server may bill it. `note` is told, before
    calls begin, the most that those under way can cost, and those that were given up so far (US dollars). What failed
    calls cost is counted with the latter unless somebody keeps their replies (`keeps_failures`): ledgers do not.

    Where nothing can be billed there is no ceiling: what recorded replies say that they cost was paid long ago."""

    def __init__(
        self,
        pool: Pool,
        ceiling_usd: float | None,
        spent_usd: float = 0.0,
        reckoned: Reckoned | None = None,
        note: Callable[[float, float], None] = lambda under_way_usd, lost_usd: None,
        keeps_failures: bool = True,
    ) -> None:
        self.specs = pool.specs
        self._pool = pool
        self._by_name = {spec.name: spec for spec in pool.specs}
        self.ceiling_usd = ceiling_usd if paid_models(pool.specs) else None
        self.is_limited = self.ceiling_usd is not None
        self.spent_usd = spent_usd
        self.dearest_usd: float | None = None  # what the dearest episode has cost that ended
        self.dearest_bound_usd = 0.0  # of a call
        self.reckoned = Reckoned() if reckoned is None else reckoned
        self._note, self._keeps_failures = note, keeps_failures
        self._under_way = 0  # calls that may cost something
        self._under_way_usd = 0.0
        self._noted = 0.0, self.reckoned.lost_usd

    @property
    def replies_usd(self) -> float:
        """Of what is spent, what replies have cost."""
        return self.spent_usd - self.reckoned.lost_usd

    def ended(self, costs_usd: Iterable[float]) -> None:
        """Take note of what episodes that ended have cost."""
        known = [] if self.dearest_usd is None else [self.dearest_usd]
        self.dearest_usd = max([*known, *costs_usd], default=None)

    def flight(self) -> _MeteredFlight:
        """Calls under way, of which none begins that could go over the ceiling together with the others."""
        return _MeteredFlight(self, flight_of(self._pool))

    def bound_usd(self, ask: Ask) -> float:
        """The most that one try of a call can cost."""
        return bound_usd(self._by_name[ask.model], ask)

    def with_budget(self, ask: Ask, under_way_usd: float = 0.0) -> Ask:
        """The call with what its tries may cost, beside so much that others under way can."""
        if self.ceiling_usd is None:
            return ask
        bound = self.bound_usd(ask)
        return replace(
            ask, budget_usd=MOST_UNREAD * bound if self.fits(under_way_usd + MOST_UNREAD * bound) else bound
        )

    def fits(self, usd: float) -> bool:
        """Whether so much more stays below the ceiling."""
        return self.ceiling_usd is None or self.spent_usd + usd <= self.ceiling_usd

    def has_room(self, usd: float) -> bool:
        """Whether so much more stays below the ceiling when each call has to fit at its bound."""
        return self.fits(usd + (self.dearest_bound_usd or estimate(self.specs, 1, 1).cost_usd or 0.0))

    def refusal(self, what: str) -> BudgetError:
        """Why the next `what` is not begun."""
        return BudgetError(
            f"The next {what} could exceed the ceiling of {dollars(self.ceiling_usd)} "
            f"({dollars(self.spent_usd)} spent): give a higher one with --max-cost."
        )

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Pieces of the pool behind, then the whole reply."""
        if not self.fits(self.bound_usd(ask)):
            raise self.refusal("call")
        bound = self.began(ask)
        self.note()
        answered = False
        try:
            with closing(self._pool.stream(self.with_budget(ask))) as pieces:
                for piece in pieces:
                    if isinstance(piece, Reply):
                        answered = True
                        self.is_over(bound)
                        self.charge(ask, piece)
                    yield piece
        finally:
            if not answered:
                self.give_up(bound)

    def began(self, ask: Ask) -> float:
        """Count a call as under way; the most that it can cost."""
        spec = self._by_name[ask.model]
        bound = 0.0 if is_free(spec) else bound_usd(spec, ask)
        if bound:
            self._under_way += 1
            self._under_way_usd += bound
        return bound

    def is_over(self, bound: float) -> None:
        """Count a call as under way no longer that could cost so much."""
        if bound:
            self._under_way -= 1
            self._under_way_usd = self._under_way_usd - bound if self._under_way else 0.0

    def give_up(self, bound: float) -> None:
        """Charge a call under way as so much, as no reply of it will come."""
        self.is_over(bound)
        self.spent_usd += bound
        self.reckoned.lost_usd += bound

    def note(self) -> None:
        """Tell what calls without a reply can cost, where that has changed. Replies have to be stored by now."""
        unanswered = self._under_way_usd, self.reckoned.lost_usd
        if unanswered != self._noted:
            self._note(*unanswered)
            self._noted = unanswered

    def charge(self, ask: Ask, reply: Reply) -> float:
        """Count what a reply has cost, in USD."""
        spec, usage = self._by_name[ask.model], reply.usage
        cost_usd = usage.charged_usd
        if usage.cost_usd is None and reply.error is None and not is_free(spec):
            cost_usd = bound_usd(spec, ask) if cost_usd is None else cost_usd
            self.reckoned.at_bound += 1
        if reply.error is not None and not self._keeps_failures:
            self.reckoned.lost_usd += cost_usd or 0.0
        elif usage.unread_usd:
            self.reckoned.unread += 1
            self.reckoned.unread_usd += usage.unread_usd
        self.spent_usd += cost_usd or 0.0
        return cost_usd or 0.0


class _MeteredFlight(WrappedFlight):
    """The flight of a metered pool: calls begin in their order, each when what it could cost fits beside all that is
    under way. BudgetError once nothing is under way and the next one does not fit."""

    def __init__(self, pool: MeteredPool, behind: Flight) -> None:
        super().__init__(behind)
        self._pool = pool
        self._held: deque[tuple[int, Ask]] = deque()
        # By their numbers in the flight behind, each with what is kept free, and the most that a try can cost.
        self._begun: dict[int, tuple[int, Ask, float, float]] = {}
        self._passed_on = 0
        self._added = 0
        self._at_most = 0.0  # of all that is under way
        # So far, of the episodes that are being played.
        self._costs: defaultdict[str, float] = defaultdict(float)

    @property
    def under_way(self) -> int:
        return len(self._held) + self._behind.under_way

    def affords(self, episode: Episode, playing: Iterable[str]) -> bool:
        pool, running = self._pool, set(playing)
        if pool.is_limited:
            pool.ended([self._costs.pop(name) for name in self._costs.keys() - running])
            if not pool.has_room(self._still_to_pay(episode, running)):
                if not running and pool.dearest_usd is not None:
                    raise pool.refusal("episode")
                return not running  # what an episode costs has to be learned from one
        return self._behind.affords(episode, running)

    def _still_to_pay(self, episode: Episode, running: set[str]) -> float:
        """What it comes to if this episode is begun as well."""
        pool = self._pool
        each = pool.dearest_usd
        if each is None:
            each = estimate(pool.specs, 1, episode.turn_budget, [episode.task]).cost_usd or 0.0
        each = max([each, *self._costs.values()])
        return sum(each - self._costs.get(name, 0.0) for name in running) + each

    def add(self, asks: Sequence[Ask]) -> None:
        self._held.extend(enumerate(asks, start=self._added))
        self._added += len(asks)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        self._begin()
        if self._held and not self._behind.under_way:
            raise self._pool.refusal("call")
        for place, reply in self._behind.ready(wait=wait):
            number, ask, kept, bound = self._begun.pop(place)
            self._at_most -= kept
            self._pool.is_over(bound)
            self._costs[ask.episode] += self._pool.charge(ask, reply)
            yield number, reply

    def cancel(self, number: int) -> None:
        self._held = deque(one for one in self._held if one[0] != number)
        for place in [place for place, one in self._begun.items() if one[0] == number]:
            self._behind.cancel(place)
            self._give_up(place)

    def close(self) -> None:
        self._pool.ended(self._costs.values())
        self._behind.close()
        for place in [*self._begun]:
            self._give_up(place)

    def _give_up(self, place: int) -> None:
        *_, kept, bound = self._begun.pop(place)
        self._at_most -= kept
        self._pool.give_up(bound)

    def _begin(self) -> None:
        if self._pool.ceiling_usd is None:  # nothing has to be kept free
            begun = [(number, ask, 0.0) for number, ask in self._held]
            self._held.clear()
        else:
            begun = self._affordable()
        for place, (number, ask, kept) in enumerate(begun, start=self._passed_on):
            self._begun[place] = number, ask, kept, self._pool.began(ask)
        self._passed_on += len(begun)
        self._pool.note()
        if begun:
            self._behind.add([ask for _, ask, _ in begun])

    def _affordable(self) -> list[tuple[int, Ask, float]]:
        """The next calls that fit below the ceiling, each with what its tries may cost, and with what is kept free."""
        fitting: list[tuple[int, Ask]] = []
        while self._held and self._pool.fits(self._at_most + self._pool.bound_usd(self._held[0][1])):
            fitting.append(self._held.popleft())
            bound = self._pool.bound_usd(fitting[-1][1])
            self._at_most += bound
            self._pool.dearest_bound_usd = max(self._pool.dearest_bound_usd, bound)
        begun: list[tuple[int, Ask, float]] = []
        # What is left when all have begun is for those that have to be made again.
        for number, ask in fitting:
            bound = self._pool.bound_usd(ask)
            ask = self._pool.with_budget(ask, self._at_most - bound)
            kept = bound if ask.budget_usd is None else ask.budget_usd
            self._at_most += kept - bound
            begun.append((number, ask, kept))
        return begun
