"""`trinity tune`: from a pool to the policy that is worth serving, in one command."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.episode import Role
from core.errors import ConfigError
from core.fields import MOST_SEED, MOST_TASKS
from ui.cli.console import interval, percent, print_json, print_table, say, tell, write_new
from ui.cli.options import (
    DeviceOption,
    DtypeOption,
    EncoderOption,
    JsonOption,
    MaxCostOption,
    PoolOption,
    StoreOption,
    opened_store,
)

if TYPE_CHECKING:
    from core.analysis.metrics import PairedDifference
    from core.settings import Settings
    from storage.analysis.standings import PolicySide
    from storage.rows.summaries import RunSummary
    from storage.store import Store
    from ui.runs.settings.batch import BatchPlan

#: Episodes that an evolution has where nothing else is said, and below which none is worth it.
EPISODES, FEWEST_EPISODES = 30_720, 1_000
#: Calls of an episode of a coordinator, about, by which what a ceiling allows is reckoned; and what is kept of it for
#: the comparison at the end.
_CALLS, _KEPT_BACK = 3.0, 0.25
#: A policy that is not ahead is worth it if it costs at most so much of the best single model's price.
CHEAPER = 2 / 3
#: What is taught by the answers of an outcome table and becomes a checkpoint: by who solved each question, and by the
#: router that learned it.
TAUGHT = ("cloned", "cloned:ridge")
#: Runs among which one of the same plan is looked for.
_NEWEST = 200


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy as it was measured on validation tasks: `difference` is to the best single model on the same tasks, None
    for that one. Costs in USD and latencies in seconds are of a question; None where they are not known."""

    policy: str
    turns: int
    n: int
    right: int
    cost_usd: float | None
    latency_s: float
    difference: PairedDifference | None = None
    argmax: bool = False  # it takes its likeliest choice, and was measured so

    @property
    def accuracy(self) -> float:
        """Share of the tasks that it solved."""
        return self.right / self.n if self.n else 0.0

    @property
    def order(self) -> tuple[float, float]:
        """The most accurate one is the best; of equals the cheaper one."""
        return self.accuracy, -(self.cost_usd or 0.0)


def choose(single: Candidate, others: Sequence[Candidate]) -> tuple[Candidate, str]:
    """What is worth serving, and why. A single model is, unless something else is shown to solve more, or solves as
    many for a third less."""
    name = single.policy.removeprefix("single:")
    best = max(others, key=lambda one: one.order, default=None)
    ahead = [one for one in others if one.difference is not None and one.difference.low > 0]
    if ahead:
        chosen = max(ahead, key=lambda one: one.order)
        return chosen, f"It solves more than the best single model, {name}: {_points(chosen)}."
    cheaper = [
        one
        for one in others
        if one.difference is not None
        and one.difference.difference >= 0
        and one.cost_usd is not None
        and single.cost_usd
        and one.cost_usd <= CHEAPER * single.cost_usd
    ]
    if cheaper:
        chosen = max(cheaper, key=lambda one: one.order)
        assert single.cost_usd
        saved = 1 - (chosen.cost_usd or 0.0) / single.cost_usd
        return (
            chosen,
            f"It solves as many as {name} alone ({_points(chosen)}) and costs {percent(saved)} less.",
        )
    if best is None:
        return single, "Nothing but single models was tried."
    return single, (
        f"The single model is the better choice: of the others {best.policy} solves most, {_points(best)} beside "
        f"{name}. That is no difference in its favour which could not be luck."
    )


def _points(one: Candidate) -> str:
    """Its difference to the best single model in points, with the interval."""
    found = one.difference
    assert found is not None
    low, high = (f"{100 * end:+.1f}" for end in (found.low, found.high))
    return f"{100 * found.difference:+.1f} points [{low}, {high}] on the same {found.n} tasks"


def tune(
    pool: PoolOption = None,
    tasks: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Tasks like the questions that will be asked, with their answers."),
    ] = None,
    outcomes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="An outcome table with these models' answers: all is evolved and compared on it, without a call.",
        ),
    ] = None,
    validation: Annotated[
        int, typer.Option(min=20, max=MOST_TASKS, help="Validation tasks on which all are compared.")
    ] = 200,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"Episodes of the evolution; 0: none. Left out: {EPISODES}, or what the ceiling allows.",
        ),
    ] = None,
    turns: Annotated[int, typer.Option(min=2, max=100, help="Turn budget of a coordinator.")] = 5,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Chooses tasks and draws.")] = 0,
    encoder: EncoderOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    max_cost: MaxCostOption = None,
    store: StoreOption = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", help="File of tiers to write. Left out: endpoint.toml in the data folder."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find out what is worth serving: each model alone, a cascade, an evolved coordinator; and write it as a tier.

    First each model answers validation tasks alone. Then a coordinator is evolved on other tasks, as far as the ceiling
    allows. At the end it and a cascade of the models answer the same validation tasks; with an outcome table so do two
    coordinators that are taught by who solved each other question, and choose one model for each. A single model is
    chosen unless another policy is shown to solve more of them, or solves as many for a third less. The ceiling is over
    all of it. What was played is not played again, so a command that was stopped can be given again.

    [dim]$[/] trinity tune --pool pool.toml --tasks tasks.jsonl --max-cost 20

    [dim]$[/] trinity tune --pool pool.toml --outcomes mmlu-pro --encoder smollm2

    [dim]$[/] trinity serve --pool pool.toml
    """
    from ui.endpoint.tiers import FILE
    from ui.runs import wiring

    if (tasks is None) is (outcomes is None):
        raise ConfigError("Say what to compare on: either --tasks FILE, or --outcomes NAME.")
    settings = wiring.settings(
        store=store, pool=pool, encoder=encoder, device=device, dtype=dtype, max_cost_usd=max_cost
    )
    file = write or settings.data_folder / FILE
    if file.exists():
        raise ConfigError(f"{file} exists already: name another file by --write, or move it away.")
    served = {spec.name for spec in wiring.pool_specs(settings.pool)}
    source = f"outcomes:{outcomes}" if outcomes else str(tasks)
    if outcomes:
        recorded = {spec.name for spec in wiring.pool_specs(source)}
        if lacking := sorted(recorded - served):
            raise ConfigError(
                f"The pool has no model '{lacking[0]}' of the outcome table: give its models these names in pool.toml, "
                f"or make a table of its models alone; it has {', '.join(sorted(served))}."
            )
        settings = replace(settings, pool=source)
    with opened_store(settings.store) as opened:
        found, single = _Tuning(opened, settings, source, validation, turns, seed).measured(episodes)
        chosen, why = choose(single, [one for one in found if one.difference is not None])
        most = max(found, key=lambda one: one.order)
        if as_json:
            print_json({"chosen": chosen.policy, "why": why, "file": str(file), "candidates": found})
        else:
            _show(found)
            tell(f"{chosen.policy} is what to serve. {why}")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_new(file, _tiers(chosen, most, why))
    say(f"Wrote it into {file}. Next: trinity serve" + (f" --config {file}" if write else ""))


@dataclass(frozen=True)
class _Tuning:
    """Measures policies of one pool on one set of tasks."""

    store: Store
    settings: Settings
    tasks: str
    validation: int
    turns: int
    seed: int
    runs: list[str] = field(default_factory=list)  # so far, all of which the one ceiling is over

    def measured(self, episodes: int | None) -> tuple[list[Candidate], Candidate]:
        """Every candidate, and among them the best single model."""
        from storage.analysis.standings import PolicySide

        alone, singles = self._alone()
        single = max(singles, key=lambda one: one.order)
        teams = []
        if (budget := self._affordable(singles, episodes)) >= FEWEST_EPISODES:
            teams.append(self._evolve(budget))
        elif episodes != 0:
            say(
                f"The ceiling leaves about {budget:,} episodes, too few to evolve a coordinator: at least "
                f"{FEWEST_EPISODES:,} are needed. Raise --max-cost, or leave out dear models."
            )
        teams += self._cascade(singles, single)
        against = PolicySide(single.policy, alone)
        found = self._together(teams, against) if teams else []
        return [*singles, *found, *self._taught(singles, against)], single

    def _alone(self) -> tuple[str, list[Candidate]]:
        """Each model, asked once, and the run."""
        from ui.runs.settings.batch import BatchPlan

        say(f"Each model alone answers {self.validation:,} validation tasks.")
        plan = self._plan(BatchPlan, policies=("single:*",), turns=1)
        cycles = dict.fromkeys(plan.policies, (Role.WORKER,))
        run = self._play(replace(plan, cycles=cycles))
        return run, self._candidates(run, 1)

    @property
    def _left_usd(self) -> float | None:
        """What the ceiling leaves after the runs so far; None without one."""
        ceiling = self.settings.max_cost_usd
        spent = sum(self.store.runs.spent_usd(run) for run in self.runs)
        return None if ceiling is None else max(0.0, ceiling - spent)

    def _affordable(self, singles: Sequence[Candidate], episodes: int | None) -> int:
        """How many episodes an evolution may play."""
        most = EPISODES if episodes is None else episodes
        mean = sum(one.cost_usd or 0.0 for one in singles) / len(singles)
        if self._left_usd is None or not mean:
            return most
        return min(most, int((1 - _KEPT_BACK) * self._left_usd / (_CALLS * mean)))

    def _evolve(self, episodes: int) -> str:
        """The best checkpoint of an evolution of about so many episodes, on tasks that are not the validation's."""
        from ui.cli.learning import best_of, play_evolution
        from ui.runs.plans import plan_of
        from ui.runs.settings.learning import EvolutionPlan

        plan = self._plan(EvolutionPlan, evolution={"seed": self.seed, "turn_budget": self.turns})
        config = plan.evolution
        each = config.population * config.tasks_per_candidate
        plan = replace(plan, evolution=replace(config, generations=max(1, episodes // each)), controls=False)
        say(f"A coordinator is evolved in {plan.evolution.generations} generations of {each} episodes.")
        told = [
            plan.pool,
            plan.tasks,
            plan.encoder,
            plan.evolution.generations,
            self.turns,
            self.seed,
            self.validation,
        ]
        name = f"tune-{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]}"
        known = self.store.runs.find(name, "evolve")
        plan = (
            replace(plan, name=name) if known is None else plan_of(self.store.runs.get(known), EvolutionPlan)
        )
        plan = replace(plan, max_cost_usd=self._left_usd)
        run = play_evolution(self.store, plan, known, {"population": ""}, pilot=False)
        self.runs.append(run)
        best = best_of(self.store.learning.updates(run), "generation")
        assert best is not None  # the last generation is always validated
        return str(best["checkpoint"])

    @staticmethod
    def _cascade(singles: Sequence[Candidate], single: Candidate) -> list[str]:
        """A cheap model answers, the best one checks, and answers where it does not accept."""
        cheap = [
            one for one in singles if one is not single and (one.cost_usd or 0.0) < (single.cost_usd or 0.0)
        ]
        if not cheap:
            return []
        first, best = (
            one.policy.removeprefix("single:") for one in (max(cheap, key=lambda one: one.order), single)
        )
        return [f"cascade:{first}+{best}+{best}"]

    def _together(self, teams: Sequence[str], single: PolicySide) -> list[Candidate]:
        """Each of these policies on the tasks that the models had."""
        from ui.runs.settings.batch import BatchPlan

        say(f"{', '.join(teams)} and the best single model are compared on the same tasks.")
        run = self._play(self._plan(BatchPlan, policies=tuple(teams), turns=self.turns))
        return self._candidates(run, self.turns, single)

    def _taught(self, singles: Sequence[Candidate], single: PolicySide) -> list[Candidate]:
        """Coordinators that choose one model for each question, where there is an outcome table: its answers cost
        nothing. Their heads are taught by who solved each question of its evolve split: one at first hand, the other by
        a router that learned it."""
        from ui.runs import wiring
        from ui.runs.settings import is_recorded
        from ui.runs.settings.batch import BatchPlan

        if not is_recorded(self.settings.pool):
            return []
        try:
            wiring.encoder_for(self.settings.pool, self.settings.encoder)
        except ConfigError as error:
            say(f"No head is taught by who solved each question. {error}")
            return []
        say("Two heads are taught by who solved each question, and compared on the same tasks.")
        cycles = dict.fromkeys((one.policy for one in singles), (Role.WORKER,))
        plan = self._plan(BatchPlan, policies=TAUGHT, turns=1, argmax=True)
        run = self._play(replace(plan, cycles=cycles))
        return [replace(one, argmax=True) for one in self._candidates(run, 1, single)]

    def _plan(self, kind: Any, **chosen: Any) -> Any:
        from core.tasks.sets import load_tasks
        from ui.runs.batch import complete_plan
        from ui.runs.settings import absolute_tasks
        from ui.runs.settings.batch import BatchPlan
        from ui.runs.settings.learning import plan_from

        settings = replace(self.settings, max_cost_usd=self._left_usd)
        evolution = chosen.pop("evolution", {})
        common = {"tasks": self.tasks, **chosen, **evolution}
        if kind is not BatchPlan:
            return plan_from(kind, common | {"validation": self.validation}, settings)
        n = len(
            load_tasks(absolute_tasks(self.tasks), "validation", self.validation, self.seed, at_most=True)
        )
        own = {"split": "validation", "n": n, "seed": self.seed}
        return complete_plan(self.store, plan_from(kind, common | own, settings))

    def _play(self, plan: BatchPlan) -> str:
        """The run of a plan, once it is over; one that was begun before goes on, or is taken as it is."""
        from storage.rows.summaries import RunStatus
        from ui.cli.play import play_out
        from ui.runs.batch import prepare
        from ui.runs.plans import plan_of
        from ui.runs.settings.batch import BatchPlan

        known = self._begun(plan)
        if known is not None and known.status is RunStatus.FINISHED:
            run = known.id
        else:
            if known is not None:  # it names what was taught for it, once it is
                plan = replace(plan_of(known, BatchPlan), max_cost_usd=plan.max_cost_usd)
            parts = prepare(self.store, plan)
            total = len(parts.tasks) * len(parts.policies)
            resume = None if known is None else known.id
            run = play_out(self.store, parts, resume, "episodes", total, _advance).finished()
        self.runs.append(run)
        return run

    def _begun(self, plan: BatchPlan) -> RunSummary | None:
        """The newest run of the same plan, in the place of whose pupils may stand what they have become."""
        from core.errors import StoreError
        from ui.runs.plans import plan_of
        from ui.runs.settings.batch import BatchPlan

        for run in self.store.runs.list("run", limit=_NEWEST):
            with suppress(StoreError):
                found = replace(plan_of(run, BatchPlan), max_cost_usd=plan.max_cost_usd)
                if plan.pupils and not {*found.policies} & {*plan.cycles}:
                    taught = ("policies", "choice_usd", "orders")
                    found = replace(found, **{name: getattr(plan, name) for name in taught})
                if found == plan:
                    return run
        return None

    def _candidates(self, run: str, turns: int, single: PolicySide | None = None) -> list[Candidate]:
        """What a run's policies came to, beside the best single model's."""
        from storage.analysis.standings import PolicySide
        from ui.answers.comparison import compared

        rows = self.store.runs.policies(run)
        found = [
            Candidate(
                one.policy,
                turns,
                one.n,
                one.correct,
                None if one.cost_usd is None or not one.n else one.cost_usd / one.n,
                one.latency_s,
            )
            for one in rows
        ]
        if single is None:
            return found
        against = compared(self.store, single, [PolicySide(one.policy, run) for one in found])
        return [
            replace(one, difference=over.difference) for one, (over, _) in zip(found, against, strict=True)
        ]


def _advance(event: object) -> dict[str, Any]:
    from core.episode import EpisodeFinished

    return {"advance": 1} if isinstance(event, EpisodeFinished) else {}


def _show(found: Sequence[Candidate]) -> None:
    from core.analysis.metrics import wilson_interval
    from ui.presentation.words import dollars

    print_table(
        [
            "policy",
            ">accuracy",
            "95 % interval",
            ">cost of a question",
            ">seconds",
            "beside the best single model",
        ],
        [
            (
                one.policy,
                percent(one.accuracy),
                interval(wilson_interval(one.right, one.n)),
                dollars(one.cost_usd),
                f"{one.latency_s:.2f}",
                "" if one.difference is None else _points(one),
            )
            for one in sorted(found, key=lambda one: one.order, reverse=True)
        ],
    )


def _tiers(chosen: Candidate, most: Candidate, why: str) -> str:
    """The file of tiers: what is worth it, and what solved most."""
    lines = [f"# {why}"]
    for name, one in (("trinity", chosen), ("trinity-ultra", most)):
        lines += [
            "",
            "[[tier]]",
            f"name = {json.dumps(name)}",
            f"policy = {json.dumps(one.policy)}  # {percent(one.accuracy)} of {one.n} validation tasks",
            f"turns = {one.turns}",
            *(["argmax = true"] if one.argmax else []),
        ]
    return "\n".join(lines) + "\n"
