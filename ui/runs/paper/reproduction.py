"""Plays the rows of the paper's tables: what a row learns first, then the row itself, a batch run of one policy."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from core.conduct.planners import CONDUCTOR, FIXED, SameModelPlanner, fixed_planner
from core.coordinator.encoder import Encoder
from core.episode import Protocol, Task
from core.errors import ConfigError
from core.evolution.baselines import Arena, best_cycles
from core.evolution.config import LABEL_REPEATS, EvolveConfig, label_episodes
from core.evolution.cycles import CYCLES, ChosenCycle
from core.evolution.evolve import random_walk
from core.evolution.fitness import mean_reward, rewards
from core.evolution.search import space_of
from core.planner.config import LearnConfig
from core.play.drive import GradeMany
from core.play.policies import SINGLE, Policy
from core.pocket.models import TEAMS
from core.pool.cache import CachedPool
from core.pool.pool import Pool
from core.pool.spec import slots_of
from core.settings import POCKET_POOL
from core.tasks.sets import POCKET_SETS, digest_of_tasks, load_tasks, tasks_in_file
from storage.rows.summaries import RunStatus
from storage.store import Store
from ui.runs import wiring
from ui.runs.batch import BatchParts, resolve_policies
from ui.runs.evolution import prepare
from ui.runs.grading import grading
from ui.runs.paper.tables import DEFAULT_BUDGETS, EVOLVED, MOST_ROWS, TRAINED, Curve, TableRow, Way, rows_of
from ui.runs.plans import runs_of, to_config
from ui.runs.policies import cycles_of, pupil_of
from ui.runs.policy_kinds import Lessons
from ui.runs.settings.batch import BatchPlan, ReproducedRow, Suite
from ui.runs.settings.learning import EvolutionPlan, LearningPlan, TrainingPlan, usual_settings

P = TypeVar("P", EvolutionPlan, TrainingPlan)

#: How often what is learned is validated on the way; the best of it is what is measured.
VALIDATIONS, PLANNER_VALIDATIONS = 10, 12
#: Tasks on which cycles of roles, teams and cascades are chosen.
CHOOSING = 80
#: Tasks on which the simplest rules are chosen, as many for each.
RULE_TASKS = 320
#: With which parts of its questions a learner of labels is measured on validation tasks.
CURVE_PARTS = (1 / 8, 1 / 4, 1 / 2, 1)
#: Questions that a learner of labels has however small the budget is, and at most.
FEWEST_QUESTIONS, MOST_QUESTIONS = 20, 1000
#: The part of a budget that labels take in a row that is taught by labels before it evolves, and that may go into the
#: choice of a training's questions.
LABELS_SHARE = CHOOSING_SHARE = 1 / 3
#: How often all places of a frozen workflow's team are gone through.
CHOICE_ROUNDS = 3
#: Rows behind which a training stands.
_TRAINED = ("trained", "warm-up", "same-model")
#: Rows that are chosen on validation tasks before they play.
_CHOSEN = ("cascade", "by-family", "plan-and-solve", "ridge", "revise")
#: The policy that a way of playing makes of another.
_WAYS: Mapping[Way, str] = {
    "voted": "majority:{}",
    "without thinker": "without:thinker:{}",
    "without verifier": "without:verifier:{}",
    "without 1 model": "without:1:{}",
    "without 2 models": "without:2:{}",
}


@dataclass
class Reproduction:
    """A suite over one store. The pool's replies are shared between all rows of the process."""

    store: Store
    suite: Suite
    metered: Pool
    _accuracies: dict[str, float] = field(default_factory=dict, init=False)  # of what was tried, by policy
    _cycles: dict[str, ChosenCycle] = field(default_factory=dict, init=False)

    @cached_property
    def pool(self) -> CachedPool:
        """Asks each model for the same thing once."""
        return CachedPool(self.metered)

    @cached_property
    def encoder(self) -> Encoder:
        """The suite's encoder."""
        return wiring.loaded_encoder(self.suite.encoder, self.suite.computing)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The pool's slots."""
        return tuple(spec.name for spec in slots_of(self.metered.specs))

    @cached_property
    def grade(self) -> GradeMany:
        """How all its tasks are graded."""
        sets = (self.suite.tasks, self.suite.held_out)
        return grading(self.store, [task for one in sets for task in tasks_in_file(one)], *sets)

    def tasks(self, row: TableRow) -> list[Task]:
        """The tasks that a row is measured on."""
        name, split = self._task_set(row)
        return load_tasks(name, split, self.suite.n, self.suite.task_seed, at_most=True)

    def _task_set(self, row: TableRow) -> tuple[str, str]:
        return (self.suite.held_out, "test") if row.on == "held-out" else (self.suite.tasks, row.on)

    def missing(self, wanted: Sequence[tuple[int, TableRow]]) -> list[tuple[int, TableRow]]:
        """Of these (seed, row), what the store lacks: it has those that learned under the settings that they would
        have now."""
        plans = [(plan.seed, plan.reproduction) for plan in rows_of(self.store, self.suite).values()]
        known = {(seed, row.row, row.learning) for seed, row in plans if row}
        played = {(seed, key) for seed, key, _ in known}
        return [
            (seed, row)
            for seed, row in wanted
            if (seed, row.key) not in played or (seed, row.key, self._learning_now(row, seed)) not in known
        ]

    def _learning_now(self, row: TableRow, seed: int) -> str | None:
        """The run of the learning that the row has now: empty where it needs none, None where there is none yet."""
        plan = self.learning_plan(row, seed)
        return self.store.runs.find(plan.name, plan.kind) if plan else ""

    # What a row learns

    def learning_plan(self, row: TableRow, seed: int) -> LearningPlan | None:
        """The evolution or training behind a row; None when there is none."""
        kind, _, name = row.how.partition(":")
        if kind in _TRAINED:
            return _named(self._training(name, seed), f"planner-{name}", seed)
        if kind == "evolved":
            return _named(self._evolution(EVOLVED[name], seed), name, seed)
        if kind == "only":
            best = self.ranked[int(name) - 1]
            barred = tuple(model for model in self.models if model != best)
            return _named(self._evolution({"barred": barred}, seed), f"{best}-only", seed)
        return None

    def _training(self, name: str, seed: int) -> TrainingPlan:
        """A part of the budget goes into the choice of its questions."""
        suite, settings = self.suite, LearnConfig(seed=seed, **TRAINED[name])
        budget, each = suite.budget * DEFAULT_BUDGETS, len(self.models) + settings.probes
        n = max(20, int(budget * CHOOSING_SHARE) // each)
        iterations = max(1, (budget - n * each) // (settings.questions * settings.rollouts))
        every = math.ceil(iterations / PLANNER_VALIDATIONS)
        learning = replace(settings, iterations=iterations, save_every=every, validate_every=every)
        return TrainingPlan(
            tasks=suite.tasks, n=n, validation=suite.validation, pool=suite.pool, learning=learning
        )

    def _evolution(self, fields: Mapping[str, Any], seed: int) -> EvolutionPlan:
        suite, changes = self.suite, dict(fields)
        budget = suite.budget * int(changes.pop("budgets", 1))
        own: Mapping[str, Any] = changes.pop("evolution", {})
        learner, spread = (
            own.get("learner", "sep-cma-es"),
            own.get("logit_spread", EvolveConfig().logit_spread),
        )
        config = {**usual_settings(str(learner), suite.pool, float(spread), budget), **own}
        left = budget
        if changes.pop("labels", False):
            questions = max(1, int(budget * LABELS_SHARE) // (LABEL_REPEATS * len(self.models)))
            config["label_questions"] = questions
            left -= label_episodes(len(self.models), questions)
        generations = max(1, left // (config["population"] * config["tasks_per_candidate"]))
        config["generations"] = generations
        return EvolutionPlan(
            tasks=suite.tasks,
            n=None if suite.tasks.endswith(".jsonl") else 1000,
            validation=suite.validation,
            pool=suite.pool,
            encoder=suite.encoder,
            computing=suite.computing,
            max_cost_usd=None,
            evolution=EvolveConfig(
                **config,
                turn_budget=suite.turns,
                validate_every=max(1, generations // VALIDATIONS),
                seed=seed,
            ),
            controls=False,
            protocol=Protocol(changes.pop("protocol", suite.protocol)),
            barred=tuple(changes.pop("barred", ())),
            **changes,
        )

    def learned(self, row: TableRow, seed: int) -> str:
        """The run of the finished learning behind a row, empty where it needs none. ConfigError where there is none
        yet."""
        run_id = self._learning_now(row, seed)
        if run_id is None:
            raise ConfigError(f"Row '{row.label}' has not been learned yet.")
        return run_id

    # What is chosen on validation tasks

    @property
    def cycles(self) -> Mapping[str, ChosenCycle]:
        """The best cycle of roles of every single model and of random models, by policy, chosen once in a suite."""
        if not self._cycles:
            found = self._stored_cycles() or best_cycles(self.arena(0), self.choosing())
            self._cycles = {
                name if name == "random-model" else f"{SINGLE}{name}": one for name, one in found.items()
            }
        return self._cycles

    @property
    def ranked(self) -> list[str]:
        """The pool's models, the best on validation tasks first."""
        return sorted(self.models, key=lambda model: -self.cycles[f"{SINGLE}{model}"].accuracy)

    def _stored_cycles(self) -> dict[str, ChosenCycle]:
        for plan in rows_of(self.store, self.suite).values():
            if plan.reproduction and (ranking := plan.reproduction.ranking):
                return {
                    name.removeprefix(SINGLE): ChosenCycle(plan.cycles[name], accuracy)
                    for name, accuracy in ranking.items()
                }
        return {}

    def choosing(self, most: int = CHOOSING) -> list[Task]:
        """The validation tasks that cycles, teams and cascades are chosen on; of simple rules `most` is more."""
        return load_tasks(self.suite.tasks, "validation", most, 0, at_most=True)

    def arena(self, seed: int) -> Arena:
        """Where policies are measured under a seed."""
        suite = self.suite
        return Arena(self.pool, self.grade, turn_budget=suite.turns, seed=seed, protocol=suite.protocol)

    def _accuracy(self, policy: Policy) -> float:
        """On the validation tasks that everything is chosen on; the same policy is played once."""
        if policy.id not in self._accuracies:
            played = self.arena(0).play(policy, self.choosing())
            self._accuracies[policy.id] = float(mean_reward(rewards(played)))
        return self._accuracies[policy.id]

    def _best_team(self, name: str) -> tuple[str, ...]:
        """A team for a frozen workflow: begun with the best single model everywhere, then place by place the model that
        is best beside the others, until none changes. The better of that and of one that is gone through backwards."""
        places = range(len(FIXED[name]))

        def accuracy(team: tuple[str, ...]) -> float:
            return self._accuracy(fixed_planner(name, self.models, team))

        found = []
        for order in ([*places], [*places][::-1]):
            team = (self.ranked[0],) * len(places)
            for _ in range(CHOICE_ROUNDS):
                before = team
                for place in order:
                    tried = [(*team[:place], model, *team[place + 1 :]) for model in self.ranked]
                    team = max(tried, key=accuracy)
                if team == before:
                    break
            found.append(team)
        return max(found, key=accuracy)

    # A row as a policy, and as a run

    def policy(self, row: TableRow, seed: int) -> str:
        """The name of the policy that a row is, as `trinity run` takes it, once what stands behind it has learned."""
        own = self._policy(row, seed)
        return _WAYS[row.played].format(own) if row.played in _WAYS else own

    def _policy(self, row: TableRow, seed: int) -> str:
        kind, _, name = row.how.partition(":")
        match kind:
            case "evolved" | "only":
                return self._best_generation(self.learned(row, seed))
            case "trained" | "warm-up" | "same-model":
                return self._planner(kind, self.learned(row, seed), argmax=row.played == "argmax")
            case "walk" | "start":
                return self._learned_nothing(kind, seed)
            case "random-workflow":
                return f"{CONDUCTOR}random"
            case "workflow":
                return f"{CONDUCTOR}fixed:{name}:{'+'.join(self._best_team(name))}"
            case "single" | "majority":
                rank = int(name or 1)
                if rank > len(self.models):
                    raise ConfigError(
                        f"This pool has {len(self.models)} models: there is none of rank {rank}."
                    )
                return f"{kind}:{self.ranked[rank - 1]}"
        return row.how

    def _best_generation(self, evolution: str) -> str:
        """The checkpoint that is best on validation tasks, of equally good ones the first."""
        kept = self.store.learning.updates(evolution)
        known = [one for one in kept if one.validated is not None]
        best = max(known, key=lambda one: one.validated or 0.0) if known else kept[-1]
        assert best.checkpoint_id is not None  # every generation is kept with its checkpoint
        return best.checkpoint_id

    def _planner(self, kind: str, training: str, *, argmax: bool) -> str:
        """The planner of a training that is best on validation tasks, of equally good ones the last; or the one that it
        began with; or its workflows with the best model for all steps."""
        kept = [one for one in self.store.learning.updates(training) if one.checkpoint_id]
        known = [one for one in kept if one.validated is not None]
        chosen = max(known[::-1], key=lambda one: one.validated or 0.0) if known else kept[-1]
        if kind == "warm-up":
            chosen = kept[0]
        if kind != "same-model":
            return f"{CONDUCTOR}{chosen.checkpoint_id}"
        planner = wiring.load_planner(self.store, chosen.checkpoint_id or "", self.models, argmax=argmax)
        tried = [SameModelPlanner(planner, model) for model in self.models]
        return max(tried, key=self._accuracy).id

    def _learned_nothing(self, kind: str, seed: int) -> str:
        """The coordinator's generation 0 (`start`), or where a random walk of its length ends (`walk`)."""
        plan = self._evolution(EVOLVED["default"], seed)
        parts = prepare(self.store, plan)
        checkpoint = parts.template
        if kind == "walk":
            space = space_of(plan.evolution, checkpoint, self.encoder, parts.tasks)
            checkpoint = checkpoint.with_vector(random_walk(plan.evolution, space), kind="random walk")
        wiring.keep_checkpoint(self.store, checkpoint)
        return checkpoint.id

    def ready(self, row: TableRow, seed: int) -> tuple[BatchParts, str | None]:
        """A row as a run that can be played, and the run that it goes on with, where one was interrupted."""
        if (begun := self._begun(row, seed)) is not None:
            run_id, plan = begun
        else:
            run_id, plan = None, self._plan(row, seed)
        named = resolve_policies(self.store, plan)
        return BatchParts(plan, self.pool, self.tasks(row), self.grade, **named), run_id

    def _plan(self, row: TableRow, seed: int) -> BatchPlan:
        suite, tasks, policy = self.suite, self.tasks(row), self.policy(row, seed)
        name, split = self._task_set(row)
        cycles = self.cycles if cycles_of(policy, self.models) else self._cycles
        learns = (pupil := pupil_of(policy, self.models)) is not None and pupil.learns_from
        return BatchPlan(
            policies=(policy,),
            tasks=name,
            split=split,
            n=len(tasks),
            seed=seed,
            task_seed=suite.task_seed,
            turns=row.turns or suite.turns,
            argmax=row.played == "argmax",
            protocol=suite.protocol,
            pool=suite.pool,
            models=self.models,
            encoder=suite.encoder,
            computing=suite.computing,
            cycles={name: one.cycle for name, one in cycles.items()},
            choosing=len(self.choosing(_choosing(policy))) if learns else 0,
            questions=self._n_questions(policy),
            digest=digest_of_tasks(tasks),
            reproduction=ReproducedRow(
                row.key,
                row.label,
                suite,
                self.learned(row, seed),
                {name: one.accuracy for name, one in cycles.items()},
                self._curve(policy, seed) if row.on == "test" else (),
            ),
            kind="reproduction",
        )

    def _begun(self, row: TableRow, seed: int) -> tuple[str, BatchPlan] | None:
        """The run of a row that was interrupted, with its plan."""
        learning = self.learned(row, seed)
        for run, plan in runs_of(
            self.store, "reproduction", BatchPlan, status=RunStatus.INTERRUPTED, limit=MOST_ROWS
        ):
            mine = plan.reproduction
            own = mine and (plan.seed, mine.suite, mine.row, mine.learning)
            if own == (seed, self.suite, row.key, learning):
                return run.id, plan
        return None

    @property
    def _choice_of_cycles(self) -> int:
        return len(CYCLES) * len(self.models) * len(self.choosing())

    def _n_questions(self, policy: str) -> int:
        """How many questions a policy that asks every model about each may use within the budget, of which the choice
        of the models' cycles takes its part."""
        pupil = pupil_of(policy, self.models)
        each = pupil.episodes(len(self.models), 1, self.suite.turns) if pupil else 0
        n = (self.suite.budget - self._choice_of_cycles) // each if each else 0
        n -= len(self.choosing()) if pupil and len(pupil.learns_from) > 1 else 0
        return max(FEWEST_QUESTIONS, min(MOST_QUESTIONS, n))

    def _curve(self, policy: str, seed: int) -> Curve:
        """How a policy that is taught does on validation tasks with a part of its questions; empty for others."""
        suite, pupil = self.suite, pupil_of(policy, self.models)
        if pupil is None or pupil.learns_from != ("questions",) or ":" in policy:
            return ()
        questions = load_tasks(suite.tasks, "evolve", self._n_questions(policy), 0, at_most=True)
        tasks = load_tasks(suite.tasks, "validation", suite.validation, 0, at_most=True)
        cycles = {model: self.cycles[f"{SINGLE}{model}"] for model in self.models}
        arena, curve = self.arena(seed), []
        for part in CURVE_PARTS:
            some = questions[: max(1, round(part * len(questions)))]
            lessons = Lessons(self.store, arena, cycles, [], some, tasks, suite.encoder, suite.computing)
            solved = float(mean_reward(rewards(arena.play(pupil.teach(lessons), tasks))))
            learned = pupil.episodes(len(self.models), len(some), suite.turns)
            curve.append((self._choice_of_cycles + learned, solved))
        return tuple(curve)


def _choosing(policy: str) -> int:
    """On how many tasks a policy is chosen that is chosen before it plays."""
    return RULE_TASKS if policy.partition(":")[0] in ("by-family", "plan-and-solve") else CHOOSING


def _named(plan: P, stem: str, seed: int) -> P:
    """A plan with a name by what it is, not by what it is measured with: suites that differ only in test tasks share
    it."""
    digest = hashlib.sha256(json.dumps(to_config(plan), sort_keys=True).encode()).hexdigest()[:8]
    return replace(plan, name=f"{stem}-seed{seed}-{digest}")


def episodes_at_most(rows: Sequence[TableRow], suite: Suite, n_models: int) -> int:
    """A bound on the episodes that these rows play under one seed: learning, validations, the choice of cycles, and up
    to five episodes of a test task, or one of every model and one that puts them together."""
    total = len(CYCLES) * (n_models + 1) * CHOOSING
    for row in rows:
        kind, _, name = row.how.partition(":")
        budgets, validations = 0, 0
        if kind in _TRAINED:
            budgets, validations = DEFAULT_BUDGETS, PLANNER_VALIDATIONS + 2
        elif kind in ("evolved", "only") or kind in ("router", "labels", "cloned"):
            budgets, validations = int(EVOLVED.get(name, {}).get("budgets", 1)), VALIDATIONS + 2
        total += budgets * suite.budget + validations * suite.validation + suite.n * max(5, n_models + 1)
        if kind == "workflow":
            total += 2 * len(FIXED[name]) * n_models * CHOICE_ROUNDS * CHOOSING
        elif kind == "same-model":
            total += n_models * CHOOSING
        elif kind in _CHOSEN and (pupil := pupil_of(row.how, [f"m{slot}" for slot in range(n_models)])):
            taught = "questions" in pupil.learns_from
            n = _choosing(row.how) + (FEWEST_QUESTIONS if taught else 0)
            total += pupil.episodes(n_models, n, suite.turns) + (suite.budget if taught else 0)
    return total


def possible(rows: Sequence[TableRow], n_models: int, suite: Suite) -> Iterator[TableRow]:
    """The rows that a suite with so many models has: those by rank end with the last model, only pocket tasks have
    unseen templates, hand-made teams are known of pocket models on the trained families only, and only their planner
    is trained from nothing."""
    families = POCKET_SETS.get(suite.tasks, ())
    has_teams = suite.pool == POCKET_POOL and bool(families) and set(families) <= TEAMS.keys()
    for row in rows:
        kind, _, rank = row.how.partition(":")
        if kind in ("single", "only", "majority") and int(rank or 1) > n_models:
            continue
        if kind in _TRAINED and suite.pool != POCKET_POOL:
            continue  # the planner that is begun with reads pocket questions
        if (row.on == "unseen" and not families) or (kind == "hand-made" and not has_teams):
            continue
        yield row
