"""Plays the rows of the paper's tables: evolves what has to be evolved, measures each row, keeps it as a run."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder, load_encoder
from core.episode import ROLE_ORDER, Episode, Role, Status, Task
from core.errors import ConfigError, PoolError
from core.evolution.baselines import Arena, best_cycles, learned_router
from core.evolution.combining import FREEDOM, cascade, labelled_router, majority_vote, mixture_of_agents
from core.evolution.config import LABEL_REPEATS, EvolveConfig, label_episodes, shape_of
from core.evolution.cycles import CYCLES, ChosenCycle
from core.evolution.evolve import random_walk
from core.evolution.fitness import mean_reward, play_all, rewards
from core.evolution.generation_stats import GenerationStats
from core.evolution.search import space_of
from core.evolution.supervised import cloned_from_labels
from core.ids import run_id as new_run_id
from core.play.drive import GradeMany
from core.play.policies import PLAN_WORK_CHECK, CyclePolicy, PolicyPerRequest, RandomPolicy, single_policy
from core.play.policy import Policy, new_episode
from core.pocket.specs import TEAMS
from core.pool.cache import CachedPool
from core.pool.pool import Pool
from core.pool.spec import digest_of_specs
from core.settings import POCKET_POOL
from core.tasks.sets import POCKET_SETS, load_tasks, tasks_in_file
from storage.recorder import record_finished_run
from storage.store import Store
from ui.runs import wiring
from ui.runs.encoders import remember_encoder
from ui.runs.evolution import prepare
from ui.runs.grading import grading
from ui.runs.paper import conductor
from ui.runs.paper.outcomes import Curve, suites
from ui.runs.paper.table import TableRow, Way
from ui.runs.paper.tables import EVOLVED, LABELS_SHARE
from ui.runs.plans import EvolutionPlan, LearningPlan, ReproducePlan, Suite, TrainingPlan, to_config

P = TypeVar("P", EvolutionPlan, TrainingPlan)

#: How often the mean is validated during each evolution; the best of them is what is measured.
VALIDATIONS = 10
#: The role that a way of playing does without.
MASKED_ROLE: Mapping[Way, Role] = {"without thinker": Role.THINKER, "without verifier": Role.VERIFIER}
#: Tasks on which cycles of roles and cascades are chosen.
CHOOSING = 80
#: Learners that ask every model about each question, and how often.
LABEL_LEARNERS = {"router": 1, "labels": LABEL_REPEATS, "cloned": LABEL_REPEATS}
#: With which parts of its questions such a learner is measured on validation tasks.
CURVE_PARTS = (1 / 8, 1 / 4, 1 / 2, 1)
#: Questions that a learner of labels has however small the budget is.
FEWEST_QUESTIONS = 20


@dataclass
class Reproduction:
    """A suite over one store. The pool's replies are shared between all rows of the process."""

    store: Store
    suite: Suite
    metered: Pool
    chosen: dict[str, float] = field(
        default_factory=dict, init=False
    )  # accuracies of what was tried, by policy
    _cycles: dict[str, ChosenCycle] = field(default_factory=dict, init=False)

    @cached_property
    def pool(self) -> CachedPool:
        """Asks each model for the same thing once."""
        return CachedPool(self.metered)

    @cached_property
    def encoder(self) -> Encoder:
        """The suite's encoder."""
        loaded = load_encoder(self.suite.encoder, processes=wiring.processes())
        return remember_encoder(loaded, wiring.data_folder())

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The pool's slots."""
        return tuple(spec.name for spec in self.metered.specs)

    @cached_property
    def grade(self) -> GradeMany:
        """How all its tasks are graded."""
        sets = (self.suite.tasks, self.suite.held_out)
        return grading(self.store, [task for one in sets for task in tasks_in_file(one)], *sets)

    def tasks(self, row: TableRow) -> list[Task]:
        """The tasks that a row is measured on."""
        suite = self.suite
        if row.on == "held-out":
            return load_tasks(suite.held_out, "test", suite.n, suite.task_seed, at_most=True)
        return load_tasks(suite.tasks, row.on, suite.n, suite.task_seed, at_most=True)

    def missing(self, wanted: Sequence[tuple[int, TableRow]]) -> list[tuple[int, TableRow]]:
        """Of these (seed, row), what the store lacks: it has those that learned under the settings that they would
        have now."""
        evolutions: dict[tuple[int, str], set[str]] = {}
        for one in self._played_before():
            evolutions.setdefault((one.seed, one.row), set()).add(one.evolution)
        return [
            (seed, row)
            for seed, row in wanted
            if (seed, row.key) not in evolutions
            or self._evolution_now(row, seed) not in evolutions[seed, row.key]
        ]

    def _evolution_now(self, row: TableRow, seed: int) -> str | None:
        """The run of the evolution that the row has now: empty where it needs none, None where there is none yet."""
        plan = self.plan(row, seed)
        return self.store.runs.find(plan.name, plan.kind) if plan else ""

    def _played_before(self) -> list[ReproducePlan]:
        """The rows of this suite that the store has, newest first."""
        return [one for suite, runs in suites(self.store) if suite == self.suite for one in runs.values()]

    # Evolution

    def plan(self, row: TableRow, seed: int) -> LearningPlan | None:
        """The evolution or training behind a row; None when there is none."""
        if conductor.is_trained(row):
            return self._named(conductor.training_plan(self.suite, row, seed, len(self.models)), row, seed)
        return self._evolution(row, seed)

    def _evolution(self, row: TableRow, seed: int) -> EvolutionPlan | None:
        kind, _, name = row.how.partition(":")
        if kind == "evolved":
            stem, changes = name, dict(EVOLVED[name])
        elif kind == "only":
            best = self.ranked[int(name) - 1]
            stem, changes = f"{best}-only", {"barred": tuple(model for model in self.models if model != best)}
        else:
            return None
        suite = self.suite
        budget = suite.budget * int(changes.pop("budgets", 1))
        own: Mapping[str, Any] = changes.pop("evolution", {})
        fields = {**asdict(shape_of(str(own.get("learner", "sep-cma-es")), budget)), **own}
        left = budget
        if changes.pop("labels", False):
            questions = max(1, int(budget * LABELS_SHARE) // (LABEL_REPEATS * len(self.models)))
            fields["label_questions"] = questions
            left -= label_episodes(len(self.models), questions)
        generations = max(1, left // (fields["population"] * fields["tasks_per_candidate"]))
        fields["generations"] = generations
        config = EvolveConfig(
            **fields,
            turn_budget=suite.turns,
            validate_every=max(1, generations // VALIDATIONS),
            seed=seed,
        )
        plan = EvolutionPlan(
            tasks=suite.tasks,
            n=None if suite.tasks.endswith(".jsonl") else 1000,
            validation=suite.validation,
            pool=suite.pool,
            encoder=suite.encoder,
            max_cost_usd=None,
            evolution=config,
            controls=False,
            **{"protocol": suite.protocol, **changes},
        )
        return self._named(plan, replace(row, how=stem), seed)

    def _named(self, plan: P, row: TableRow, seed: int) -> P:
        """A plan with a name by what it is, not by what it is measured with: suites that differ only in test tasks
        share it."""
        digest = hashlib.sha256(json.dumps(to_config(plan), sort_keys=True).encode()).hexdigest()[:8]
        return replace(plan, name=f"{conductor.stem(row)}-seed{seed}-{digest}")

    def evolved(self, row: TableRow, seed: int) -> tuple[str, str]:
        """(run, best validated checkpoint) of the finished evolution behind a row."""
        run_id = self.learned(row, seed)
        generations = self.store.evolution.generations(run_id)
        validated = [(one, GenerationStats.of(one.stats).validation) for one in generations]
        known = [(found.accuracy, -place) for place, (_, found) in enumerate(validated) if found]
        best = generations[-max(known)[1]] if known else generations[-1]
        assert best.checkpoint_id is not None  # every generation is kept with its checkpoint
        return run_id, best.checkpoint_id

    def learned(self, row: TableRow, seed: int) -> str:
        """The run of the evolution or training behind a row. ConfigError where there is none yet."""
        run_id = self._evolution_now(row, seed)
        if not run_id:
            raise ConfigError(f"Row '{row.label}' has not been learned yet.")
        return run_id

    # What is chosen on validation tasks

    @property
    def cycles(self) -> Mapping[str, ChosenCycle]:
        """The best cycle of roles of every single model, chosen once in a suite."""
        if not self._cycles:
            self._cycles = self._stored_cycles() or best_cycles(self.arena(0), self.choosing())
        return self._cycles

    @property
    def ranked(self) -> list[str]:
        """The pool's models, the best on validation tasks first."""
        return sorted(self.models, key=lambda model: -self.cycles[model].accuracy)

    def _stored_cycles(self) -> dict[str, ChosenCycle]:
        found = next((one.cycles for one in self._played_before() if one.cycles), {})
        return {name: ChosenCycle(cycle, accuracy) for name, (cycle, accuracy) in found.items()}

    def choosing(self) -> list[Task]:
        """The validation tasks that cycles, teams and cascades are chosen on."""
        return load_tasks(self.suite.tasks, "validation", CHOOSING, 0, at_most=True)

    def arena(self, seed: int) -> Arena:
        """Where policies are measured under a seed."""
        suite = self.suite
        return Arena(self.pool, self.grade, turn_budget=suite.turns, seed=seed, protocol=suite.protocol)

    @property
    def _choice_of_cycles(self) -> int:
        """The episodes that choosing the single models' cycles of roles takes."""
        return len(CYCLES) * len(self.models) * len(self.choosing())

    def _training(self, repeats: int) -> list[Task]:
        """Tasks that a learner which asks every model about each may use within the budget, of which the choice of the
        models' cycles takes its part; not fewer than FEWEST_QUESTIONS."""
        n = (self.suite.budget - self._choice_of_cycles) // (repeats * len(self.models))
        n = max(FEWEST_QUESTIONS, min(1000, n))
        return load_tasks(self.suite.tasks, "evolve", n, 0, at_most=True)

    # Measuring

    def measure(self, row: TableRow, seed: int) -> str:
        """Play the row's test tasks and keep them as a finished run; its id. Nothing is kept before all is played."""
        run_id = new_run_id(int(time.time()), os.urandom(16))
        tasks = self.tasks(row)
        evolution, policy = "", None
        if conductor.is_row(row):
            evolution = self.learned(row, seed) if conductor.is_trained(row) else ""
            policy = conductor.policy_of(self, row, evolution)
        elif self.plan(row, seed) is not None:
            evolution, checkpoint_id = self.evolved(row, seed)
            policy = self._coordinator(self.store.checkpoints.load(checkpoint_id), row)
        played = self._played(row, seed, run_id, tasks, policy or self._policy(row, seed, tasks))
        lost = [one for one in played if one.status is Status.MISSING]
        if lost:
            raise PoolError(
                f"{len(lost)} of {len(played)} episodes of row '{row.label}' are missing "
                f"({lost[0].error or 'no reason given'}): see that the models answer, then try again."
            )
        cycles = {name: (one.cycle, one.accuracy) for name, one in self._cycles.items()}
        plan = ReproducePlan(
            row.key,
            row.label,
            seed,
            played[0].policy,
            evolution,
            self.suite,
            cycles,
            self._taught_curve(row, seed) if row.on == "test" and not row.played else (),
        )
        digest = digest_of_specs(self.pool.specs)
        record_finished_run(self.store, run_id, plan.kind, to_config(plan), played, digest)
        return run_id

    def _played(
        self, row: TableRow, seed: int, run_id: str, tasks: Sequence[Task], policy: Policy | None
    ) -> list[Episode]:
        turns, arena = row.turns or self.suite.turns, self.arena(seed)

        def episodes(policy: Policy) -> list[Episode]:
            new = [
                new_episode(
                    run_id,
                    place,
                    task,
                    policy,
                    turns=turns,
                    seed=seed,
                    argmax=row.played == "argmax",
                    protocol=arena.protocol,
                )
                for place, task in enumerate(tasks)
            ]
            return conductor.without_models(new, row.played)

        if policy is not None:
            if row.played == "voted":
                return majority_vote(arena, policy, episodes(policy))
            masked = MASKED_ROLE.get(row.played)
            roles = () if masked is None else tuple(role is not masked for role in ROLE_ORDER)
            return play_all(episodes(policy), policy, self.pool, self.grade, role_mask=roles)
        kind, _, rank = row.how.partition(":")
        best = self.ranked[int(rank or 1) - 1]
        if kind == "majority":
            turns = 1
            named = replace(single_policy(best, self.models, (Role.WORKER,)), id=f"majority:{best}")
            return majority_vote(arena, named, episodes(named))
        named = replace(single_policy(best, self.models, (Role.WORKER,)), id="mixture-of-agents")
        return mixture_of_agents(arena, episodes(named))

    def _coordinator(self, checkpoint: Checkpoint, row: TableRow) -> Coordinator:
        return Coordinator(checkpoint, self.encoder, argmax=row.played == "argmax")

    def _learned_nothing(self, row: TableRow, seed: int) -> Policy:
        """The coordinator's generation 0 (`start`), or where a random walk of its length ends (`walk`)."""
        plan = self._evolution(replace(row, how="evolved:default"), seed)
        assert plan is not None  # the coordinator is evolved
        parts = prepare(self.store, plan)
        checkpoint = parts.template
        if row.how == "walk":
            space = space_of(plan.evolution, checkpoint, self.encoder, parts.tasks)
            checkpoint = checkpoint.with_vector(random_walk(plan.evolution, space), kind="random walk")
        wiring.keep_checkpoint(self.store, checkpoint)
        return self._coordinator(checkpoint, row)

    def _policy(self, row: TableRow, seed: int, tasks: Sequence[Task]) -> Policy | None:
        """The policy of a row that nothing is evolved for; None for those that are no policy."""
        kind, _, rank = row.how.partition(":")
        arena = self.arena(seed)
        if kind == "single":
            if int(rank) > len(self.models):
                raise ConfigError(f"This pool has {len(self.models)} models: there is none of rank {rank}.")
            model = self.ranked[int(rank) - 1]
            return single_policy(model, self.models, self.cycles[model].cycle)
        if kind == "random":
            return RandomPolicy(self.models)
        if kind == "random-model":
            return RandomPolicy(self.models, self.cycles[kind].cycle, kind)
        if kind == "hand-made":
            return self._teams(tasks)
        if kind in ("walk", "start"):
            return self._learned_nothing(row, seed)
        if kind == "cascade":
            return cascade(arena, self.choosing())
        if kind in LABEL_LEARNERS:
            return self._taught(row, seed, self._training(LABEL_LEARNERS[kind]), tasks)
        return None

    def _taught(self, row: TableRow, seed: int, questions: Sequence[Task], tasks: Sequence[Task]) -> Policy:
        """The policy of a row that learns from what every model makes of these questions."""
        kind, _, setting = row.how.partition(":")
        arena, own = self.arena(seed), float(setting) if setting else None
        if kind == "router":
            return learned_router(arena, self.cycles, self.encoder, questions, tasks, ridge=own)
        if kind == "labels":
            freedom = FREEDOM if own is None else own
            return labelled_router(arena, self.cycles, self.encoder, questions, tasks, freedom=freedom)
        begun = Checkpoint.begin(
            self.models, self.encoder.identity, dtype=self.encoder.dtype, protocol=arena.protocol
        )
        taught = cloned_from_labels(begun, self.encoder, arena, self.cycles, questions, ridge=own)
        wiring.keep_checkpoint(self.store, taught)
        return Coordinator(taught, self.encoder)

    def _taught_curve(self, row: TableRow, seed: int) -> Curve:
        """How a row that learns from labels does on validation tasks with a part of its questions; empty for others."""
        repeats = LABEL_LEARNERS.get(row.how)
        if repeats is None:
            return ()
        questions = self._training(repeats)
        tasks = load_tasks(self.suite.tasks, "validation", self.suite.validation, 0, at_most=True)
        arena, curve = self.arena(seed), []
        for part in CURVE_PARTS:
            some = questions[: max(1, round(part * len(questions)))]
            policy = self._taught(row, seed, some, tasks)
            solved = float(mean_reward(rewards(arena.play(policy, tasks))))
            curve.append((self._choice_of_cycles + repeats * len(self.models) * len(some), solved))
        return tuple(curve)

    def _teams(self, tasks: Sequence[Task]) -> Policy:
        """Plan, work and check by each family's hand-made team of pocket models."""
        teams = {
            family: CyclePolicy(self.models, team, PLAN_WORK_CHECK, "hand-made")
            for family, team in TEAMS.items()
        }
        family_of = {task.question: task.family for task in tasks}
        return PolicyPerRequest(
            "hand-made", self.models, lambda request: teams[family_of[request.transcript.question]]
        )


def episodes_at_most(rows: Sequence[TableRow], suite: Suite, n_models: int) -> int:
    """A bound on the episodes that these rows play under one seed: learning, validations, the choice of cycles, and up
    to five episodes of a test task, or one of every model and one that puts them together."""
    total = len(CYCLES) * (n_models + 1) * CHOOSING
    for row in rows:
        kind, _, name = row.how.partition(":")
        learns = kind in ("evolved", "only", "router", "labels", "cloned")
        if conductor.is_row(row):
            total += conductor.episodes_at_most(row, suite, n_models)
        budget = suite.budget * int(EVOLVED.get(name, {}).get("budgets", 1)) if learns else 0
        total += budget + (VALIDATIONS + 2) * suite.validation * learns + suite.n * max(5, n_models + 1)
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
        if conductor.is_trained(row) and suite.pool != POCKET_POOL:
            continue  # the planner that is begun with reads pocket questions
        if (row.on == "unseen" and not families) or (kind == "hand-made" and not has_teams):
            continue
        yield row
