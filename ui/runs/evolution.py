"""An evolution made ready, and played with every generation kept: for a terminal or a worker."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from core.checkpoint import Checkpoint
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import dead_blocks, svf_layout
from core.episode import Task
from core.errors import ConfigError
from core.evolution.controls import controls
from core.evolution.evolve import Generation, evolve
from core.evolution.generation_stats import EpisodeStatistics, GenerationStats
from core.evolution.learners import restored
from core.evolution.recording import Recording
from core.evolution.search import Survey
from core.evolution.sep_cma import default_population
from core.play.drive import GradeMany
from core.pool.cache import CachedPool
from core.pool.pool import Pool
from core.tasks.sets import digest_of_tasks
from storage.rows.full_episodes import TimedEpisode
from storage.rows.summaries import CandidateSummary, GenerationSummary, RunStatus
from storage.shelves.checkpoints import checkpoint_row
from storage.shelves.paid_replies import PaidReplies
from storage.shelves.shared_replies import SharedReplies
from storage.store import Store
from ui.runs import wiring
from ui.runs.control import HaltingPool, Stopped
from ui.runs.encoders import remember_encoder
from ui.runs.grading import grading
from ui.runs.lease import owner
from ui.runs.plans import RELEASED_SVF, EvolutionPlan, same_models
from ui.runs.play import Ending
from ui.runs.spending import MeteredPool, Reckoned


@dataclass(frozen=True, slots=True)
class EvolutionParts:
    """All that an evolution needs besides the store. `notes` are worth telling before it begins, `shelf` is what is
    reused, `reckoned` what was not billed as usual."""

    plan: EvolutionPlan
    pool: Pool
    encoder: Encoder
    template: Checkpoint
    tasks: list[Task]
    validation: list[Task]
    grade: GradeMany
    notes: tuple[str, ...] = ()
    shelf: SharedReplies | None = None
    reckoned: Reckoned = field(default_factory=Reckoned)

    def play(self, store: Store, run: str) -> Generator[Generation, None, Ending]:
        """Evolve to the end from wherever the run stands; each generation is kept before it is yielded. Stopped when a
        person asks the run to, before the next generation or call. BudgetError at the ceiling, and before a generation
        that could reach it."""
        earlier = store.evolution.generations(run)
        stored = store.evolution.state(run)
        ledger = store.evolution.paid_replies(run)
        ledger.generation = earlier[-1].index + 1 if earlier else 0
        paid = ledger.spent_usd(ledger.generation)
        pool = MeteredPool(self.pool, self.plan.max_cost_usd, store.runs.spent_usd(run) + paid, self.reckoned)
        so_far = (earlier[-1].evaluations, earlier[-1].wall_s) if earlier else (0, 0.0)
        stats = [GenerationStats.of(one.stats) for one in earlier]

        def cancelled() -> bool:
            return store.runs.control(run).cancel

        if self.shelf is not None:
            self.shelf.load([*self.tasks, *self.validation])
        shared = CachedPool(HaltingPool(pool, cancelled), ledger=ledger, shelf=self.shelf)
        unread_usd = GenerationStats.of(earlier[-1].stats).unread_usd if earlier else 0.0
        keeper = Keeper(store, run, self, pool, ledger, *so_far, unread_usd=unread_usd)
        config, untaught = self.plan.evolution, replace(self.template, parent_run=run)
        template = untaught
        marks = [(one.spent_usd, one.next_tasks or config.tasks_per_candidate) for one in stats]
        if earlier and earlier[-1].index < config.generations:
            _check_next(pool, marks, paid)
        if earlier and config.label_questions:  # what the labels taught, which is not asked for again
            template = store.checkpoints.load(earlier[0].checkpoint_id or "")
        surveyed = Survey.kept(stats[0].steps, stats[0].mean_state, template) if stats else None
        table: dict[str, Any] = {
            "encoder": self.encoder,
            "pool": shared,
            "grade": self.grade,
            "tasks": self.tasks,
            "validation_tasks": self.validation,
        }
        for generation in evolve(
            config,
            template,
            start=restored(stored[1]) if stored else None,
            next_tasks=stats[-1].next_tasks if stats else None,
            surveyed=surveyed,
            recording=Recording(run, self.plan.record),
            **table,
        ):
            at_the_end = generation.index == config.generations and self.plan.controls and self.validation
            if generation.index == 0:
                surveyed = Survey.kept(generation.steps, generation.mean_state, template)
            walked = (
                None if config.label_questions else surveyed
            )  # the controls learn nothing, labels neither
            played = controls(config, untaught, **table, surveyed=walked) if at_the_end else {}
            keeper.keep(generation, played)
            yield generation
            marks.append((pool.spent_usd, generation.next_tasks))
            if generation.index < config.generations:
                if cancelled():
                    raise Stopped
                _check_next(pool, marks)
        return RunStatus.FINISHED, None


def _check_next(pool: MeteredPool, marks: Sequence[tuple[float, int]], paid_usd: float = 0.0) -> None:
    """BudgetError when the next generation could reach the ceiling before its end, reckoned by the dearest so far.
    `marks` are, after each generation, what was spent in all and the tasks per candidate of the next one, of which so
    much is paid already."""
    each = [(after - before) / tasks for (before, tasks), (after, _) in pairwise(marks)]
    if each and not pool.has_room(max(each) * marks[-1][1] - paid_usd):
        raise pool.refusal("generation")


def prepare(store: Store, plan: EvolutionPlan) -> EvolutionParts:
    """The parts; everything that can be wrong is found here, before anything is written."""
    tasks, validation, notes = plan.task_sets()
    grade = grading(store, [*tasks, *validation], plan.tasks)
    pool = wiring.resolve_pool(plan.pool)
    models = tuple(spec.name for spec in pool.specs)
    same_models(plan, models)
    encoder = load_encoder(plan.encoder, processes=wiring.processes())
    remember_encoder(encoder, wiring.data_folder())
    layout = _layout(plan.svf, encoder)
    template = Checkpoint.begin(
        models,
        encoder.identity,
        neutral=plan.neutral_start,
        head_kind=plan.head,
        svf_layout=layout,
        svf_dead=dead_blocks(encoder.model, layout),
        barred=plan.barred,
        token_position=plan.token_position,
        dtype=encoder.dtype,
        protocol=plan.protocol,
    )
    plan = replace(plan, models=models, digest=digest_of_tasks(tasks))
    shelf = store.episodes.shared_replies(pool.specs) if plan.reuse else None
    return EvolutionParts(plan, pool, encoder, template, tasks, validation, grade, tuple(notes), shelf)


def with_default_population(parts: EvolutionParts) -> EvolutionParts:
    """The parts with as many candidates as sep-CMA-ES usually has for so many numbers."""
    config = parts.plan.evolution
    size = default_population(len(parts.template.vector), config.mirrored)
    return replace(parts, plan=replace(parts.plan, evolution=replace(config, population=size)))


def _layout(svf: str, encoder: Encoder) -> tuple[tuple[str, int], ...]:
    """The matrices whose singular values are evolved."""
    if not svf:
        return ()
    depth = int(encoder.model.config.num_hidden_layers)
    if svf == RELEASED_SVF:
        return svf_layout(encoder.model, [max(0, depth - 2)], lm_head=True)
    try:
        named = {int(layer) for layer in svf.split(",")}
        layers = sorted({layer + depth if layer < 0 else layer for layer in named})
    except ValueError:
        raise ConfigError(
            f"SVF over '{svf}' is not understood: give layers, such as 1 or 26,27, or 'released'."
        ) from None
    return svf_layout(encoder.model, layers, embeddings=False)


@dataclass
class Keeper:
    """Stores each generation with its checkpoint and the optimiser's state in one transaction."""

    store: Store
    run_id: str
    parts: EvolutionParts
    pool: MeteredPool
    ledger: PaidReplies
    evaluations: int
    wall_s: float
    unread_usd: float = 0.0  # before it was resumed
    _since: float = field(default_factory=time.monotonic, init=False)
    _began: float = field(init=False)  # the generation under way, Unix seconds

    def __post_init__(self) -> None:
        self._began = self.store.now()

    def keep(self, generation: Generation, controls: Mapping[str, EpisodeStatistics]) -> None:
        """Commit a generation with the `controls` played after it and its recorded episodes; a resumed evolution goes
        on after it."""
        self.store.runs.heartbeat(self.run_id, owner())  # refused when another process took the run over
        config = self.parts.plan.evolution
        fitness = [value for value in generation.fitness if np.isfinite(value)]
        if generation.index == 0 and generation.validation is not None:
            fitness = [generation.validation.accuracy]  # nobody competed yet
        now = time.monotonic()
        self.wall_s, self._since = self.wall_s + now - self._since, now
        self.evaluations += len(generation.fitness) * generation.tasks_per_candidate
        self.evaluations += generation.label_episodes or 0
        checkpoint = generation.checkpoint
        row = checkpoint_row(
            checkpoint.id,
            checkpoint.to_config(),
            checkpoint.to_bytes(),
            run_id=self.run_id,
            generation=generation.index,
            kind=checkpoint.parts,
            created=self.store.now(),
        )
        entry = GenerationSummary(
            run_id=self.run_id,
            index=generation.index,
            best=max(fitness, default=0.0),
            mean=float(np.mean(fitness)) if fitness else 0.0,
            median=float(np.median(fitness)) if fitness else 0.0,
            sigma=generation.state.step_size,
            evaluations=self.evaluations,
            wall_s=self.wall_s,
            checkpoint_id=checkpoint.id,
            stats=replace(
                generation,
                controls=controls,
                spent_usd=self.pool.spent_usd,
                unread_usd=self.unread_usd + self.pool.reckoned.unread_usd,
            ).to_json(),
        )
        candidates = [
            CandidateSummary(
                index,
                value if np.isfinite(value) else None,
                generation.tasks_per_candidate,
                generation.missing[index],
            )
            for index, value in enumerate(generation.fitness)
        ]
        began, self._began = self._began, self.store.now()
        # When each of them was played is not known, only when their generation was.
        played = [
            TimedEpisode(one, began, self._began, [began] * len(one.turns)) for one in generation.recorded
        ]
        self.store.evolution.add(entry, candidates, generation.state.to_bytes(), row, played)
        self.ledger.generation = generation.index + 1
        if self.parts.plan.reuse:  # they are kept for others
            return
        if generation.index == config.generations:
            self.ledger.forget()
        elif generation.index and generation.index % config.rotate_every == 0:
            self.ledger.forget(before=self.ledger.generation)  # replies are drawn anew from here
