"""An evolution made ready, and played with every generation kept: for a terminal or a worker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from core.checkpoint import Checkpoint
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import dead_blocks, svf_layout
from core.episode import Task
from core.errors import ConfigError, TaskError
from core.evolution.controls import Control, controls
from core.evolution.evolve import Generation, evolve
from core.evolution.fitness import Measured
from core.evolution.learners import restored
from core.evolution.sep_cma import usual_population
from core.pool.cache import CachedPool
from core.pool.costs import Estimate
from core.pool.pool import Pool
from core.tasks.graders import grade_many
from storage.checkpoints import checkpoint_row
from storage.replies import PaidReplies
from storage.store import Store
from storage.summaries import CandidateSummary, GenerationSummary
from ui import wiring
from ui.halting import HaltingPool, Stopped
from ui.lease import owner
from ui.outline import RELEASED_SVF, Outline, most_of, task_sets
from ui.plan import digest
from ui.spending import MeteredPool


@dataclass(frozen=True, slots=True)
class Parts:
    """All that an evolution needs besides the store. `notes` are worth telling before it begins."""

    outline: Outline
    pool: Pool
    encoder: Encoder
    template: Checkpoint
    tasks: list[Task]
    validation: list[Task]
    notes: tuple[str, ...] = ()


def prepared(outline: Outline) -> Parts:
    """The parts; everything that can be wrong is found here, before anything is written."""
    tasks, validation, notes = task_sets(outline)
    if outline.digest and digest(tasks) != outline.digest:
        raise TaskError(
            f"The tasks in {outline.tasks} have changed since this run began: it cannot be resumed."
        )
    pool = wiring.resolve_pool(outline.pool)
    models = tuple(spec.name for spec in pool.specs)
    if outline.models and models != outline.models:
        raise ConfigError(
            f"The models in {outline.pool} have changed since this run began: it cannot be resumed."
        )
    encoder = load_encoder(outline.encoder)
    layout = _layout(outline.svf, encoder)
    template = Checkpoint.begin(
        models,
        encoder.identity,
        head_kind=outline.head,
        svf_layout=layout,
        svf_dead=dead_blocks(encoder.model, layout),
        barred=outline.barred,
        token_position=outline.token_position,
        dtype=encoder.dtype,
    )
    outline = replace(outline, models=models, digest=digest(tasks))
    return Parts(outline, pool, encoder, template, tasks, validation, tuple(notes))


def with_usual_population(parts: Parts) -> Parts:
    """The same with as many candidates as sep-CMA-ES usually has for so many numbers."""
    size = usual_population(len(parts.template.vector), parts.outline.config.mirrored)
    evolution = {**parts.outline.evolution, "population": size}
    return replace(parts, outline=replace(parts.outline, evolution=evolution))


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


def most(parts: Parts) -> Estimate:
    """The most that the evolution can ask for and cost."""
    return most_of(parts.outline, parts.pool.specs, parts.tasks, parts.validation)


def played(store: Store, run_id: str, parts: Parts) -> Iterator[Generation]:
    """Evolve to the end from wherever the run stands; each generation is kept before it is yielded. Stopped when a
    person asks the run to, between two generations or two waves of calls."""
    earlier = store.evolution.generations(run_id)
    kept = store.evolution.state(run_id)
    ledger = store.evolution.paid_replies(run_id)
    ledger.generation = earlier[-1].index + 1 if earlier else 0
    spent = store.runs.spent_usd(run_id) + ledger.spent_usd(ledger.generation)
    pool = MeteredPool(parts.pool, parts.outline.max_cost_usd, spent)
    so_far = (earlier[-1].evaluations, earlier[-1].wall_s) if earlier else (0, 0.0)

    def check() -> None:
        if store.runs.control(run_id).cancel:
            raise Stopped("It was asked to stop.")

    shared = CachedPool(HaltingPool(pool, check), ledger=ledger)
    keeper = Keeper(store, run_id, parts, pool, ledger, *so_far)
    config, template = parts.outline.config, replace(parts.template, parent_run=run_id)
    table: dict[str, Any] = {
        "encoder": parts.encoder,
        "pool": shared,
        "grade": grade_many,
        "tasks": parts.tasks,
        "validation_tasks": parts.validation,
    }
    for generation in evolve(
        config,
        template,
        start=restored(kept[1]) if kept else None,
        next_tasks=earlier[-1].stats.get("next_tasks") if earlier else None,
        **table,
    ):
        beside = []
        if generation.index == config.generations and parts.outline.controls and parts.validation:
            beside = controls(config, template, **table)
        keeper.keep(generation, beside)
        yield generation
        if generation.index < config.generations:
            check()


@dataclass
class Keeper:
    """Stores each generation with its checkpoint and the optimiser's state in one transaction."""

    store: Store
    run_id: str
    parts: Parts
    pool: MeteredPool
    ledger: PaidReplies
    evaluations: int
    wall_s: float
    _since: float = field(default_factory=time.monotonic, init=False)

    def keep(self, generation: Generation, beside: Sequence[Control] = ()) -> None:
        """Commit a generation and what it is put beside; a resumed evolution goes on after it."""
        self.store.runs.heartbeat(self.run_id, owner())  # refused when another process took the run over
        config = self.parts.outline.config
        fitness = [value for value in generation.fitness if np.isfinite(value)]
        if generation.index == 0 and generation.validation is not None:
            fitness = [generation.validation.accuracy]  # nobody competed yet
        now = time.monotonic()
        self.wall_s, self._since = self.wall_s + now - self._since, now
        self.evaluations += len(generation.fitness) * generation.tasks_per_candidate
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
            stats={
                **stats(generation),
                **({"controls": {one.name: told(one.measured) for one in beside}} if beside else {}),
                "spent_usd": self.pool.spent_usd,
            },
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
        self.store.evolution.add(entry, candidates, generation.state.to_bytes(), row)
        self.ledger.generation = generation.index + 1
        if generation.index == config.generations:
            self.ledger.forget()
        elif generation.index and generation.index % config.rotate_every == 0:
            self.ledger.forget(before=self.ledger.generation)  # replies are drawn anew from here


def stats(generation: Generation) -> dict[str, Any]:
    """What else is worth a curve: how the population played, what it took, and the mean on validation tasks."""
    found: dict[str, Any] = {
        "calls": generation.calls,
        "calls_saved": generation.calls_saved,
        "decisions": generation.decisions,
        "forwards": generation.forwards,
        "next_tasks": generation.next_tasks,
    }
    if generation.distances:
        found["distances"] = [round(distance, 4) for distance in generation.distances]
    if generation.steps:
        found["steps"] = {block: asdict(step) for block, step in generation.steps.items()}
    for name, measured in (("episodes", generation.episodes), ("validation", generation.validation)):
        if measured is not None:
            found[name] = told(measured)
    return found


def told(measured: Measured) -> dict[str, Any]:
    """What episodes came to, ready for JSON."""
    return {
        "accuracy": measured.accuracy,
        "n": measured.n,
        "missing": measured.missing,
        "turns_mean": measured.turns_mean,
        "accept_rate": measured.accept_rate,
        "shares": {f"{model} {role}": share for (model, role), share in measured.shares.items()},
    }
