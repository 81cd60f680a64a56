"""`trinity evolve`: a coordinator's head evolved on tasks, with a checkpoint per generation."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.console import (
    JsonOption,
    PoolOption,
    StoreOption,
    percent,
    print_json,
    progress,
    refuse_with_resume,
    say,
    tell,
)
from ui.cli.leased import leased
from ui.spending import MeteredPool

if TYPE_CHECKING:
    from core.checkpoint import Checkpoint
    from core.coordinator.encoder import Encoder
    from core.episode import Task
    from core.evolution.evolve import EvolveConfig, Generation
    from core.evolution.sep_cma import SepCMAState
    from core.pool.pool import Pool
    from core.settings import Settings
    from storage.store import Store


def evolve(
    context: typer.Context,
    tasks: Annotated[str, typer.Option(help="pocket, pocket/FAMILY or a FILE.jsonl of your own.")] = "pocket",
    generations: Annotated[int, typer.Option(min=1, help="How many generations.")] = 60,
    population: Annotated[int, typer.Option(min=2, help="Candidates per generation.")] = 32,
    per_candidate: Annotated[
        int, typer.Option(min=1, help="Tasks each candidate plays per generation.")
    ] = 48,
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            min=1,
            help="Tasks to draw from; all there are, if fewer. Left out: 1000, or all of a file's.",
        ),
    ] = None,
    validation: Annotated[
        int, typer.Option(min=0, help="Held-apart tasks that the mean is measured on.")
    ] = 200,
    validate_every: Annotated[int, typer.Option(min=1, help="Measure it every so many generations.")] = 10,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="The same seed evolves the same again, bit for bit.")
    ] = 0,
    turns: Annotated[int, typer.Option(min=1, max=100, help="Turn budget.")] = 5,
    spread: Annotated[
        float, typer.Option(min=0.01, help="How far the first candidates' logits spread; sets the step size.")
    ] = 6.0,
    constant_spread: Annotated[
        float,
        typer.Option(
            min=0.0, help="The same of preferences that do not depend on the transcript; 0 evolves none."
        ),
    ] = 0.0,
    pool: PoolOption = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Encoder: a Hugging Face folder or hub id. Else TRINITY_ENCODER, else pocket."),
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(metavar="USD", help="Stop before spending more. Else TRINITY_MAX_COST.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with an interrupted evolution.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evolve a coordinator's head by separable CMA-ES: a checkpoint per generation, resumable bit for bit.

    Fitness is the share of tasks solved. Tasks come from the evolve split and are never seen in tests.
    An evolution that is resumed plays, and pays for, the generation that was under way once more.

    [dim]$[/] trinity evolve --generations 30

    [dim]$[/] trinity evolve --tasks my.jsonl --pool pool.toml --population 12 --max-cost 20

    [dim]$[/] trinity evolve --resume rp12ab
    """
    from core.evolution.evolve import EvolveConfig
    from core.evolution.sep_cma import SepCMAState
    from core.settings import POCKET
    from storage.store import open_store
    from ui import wiring
    from ui.lease import finish

    settings = wiring.settings(store=store, pool=pool, encoder=encoder, max_cost_usd=max_cost)
    opened = open_store(settings.store)
    if resume is None:
        config = EvolveConfig(
            generations=generations,
            population=population,
            tasks_per_candidate=per_candidate,
            logit_spread=spread,
            constant_spread=constant_spread,
            turn_budget=turns,
            validate_every=validate_every,
            seed=seed,
        )
        own = tasks.endswith(".jsonl")
        outline = Outline(
            tasks=str(Path(tasks).resolve()) if own else tasks,
            n=1000 if n is None and not own else n,
            validation=validation,
            pool=settings.pool if settings.pool == POCKET else str(Path(settings.pool).resolve()),
            encoder=settings.encoder or POCKET,
            max_cost_usd=settings.max_cost_usd,
            evolution=asdict(config),
        )
    else:
        refuse_with_resume(context, "resume", "store", "max_cost", "as_json")
        outline = Outline.from_config(opened.runs.get(resume).config, settings)
    parts = _prepared(outline)
    _show_estimate(parts, already_agreed=resume is not None)
    with leased(opened, "evolve", resume, asdict(parts.outline)) as run_id:
        kept = opened.evolution.state(run_id)
        start = SepCMAState.from_bytes(kept[1]) if kept else None
        last = _evolve(opened, run_id, parts, start)
        finish(opened, run_id)
    checkpoint = opened.evolution.generations(run_id)[-1].checkpoint_id
    opened.close()
    if as_json:
        print_json(
            {"run": run_id, "generations": last.generation, "checkpoint": checkpoint, "digest": last.digest}
        )
        return
    tell(f"Generation {last.generation} is checkpoint {checkpoint} (optimiser state {last.digest[:12]}).")
    say(f"Play it: trinity run --policy {checkpoint} --policy random --n 200")


@dataclass(frozen=True, slots=True)
class Outline:
    """An evolution as its run keeps it: enough to resume it. `digest` tells when a task file changed."""

    tasks: str
    n: int | None
    validation: int
    pool: str
    encoder: str
    max_cost_usd: float | None
    evolution: Mapping[str, Any]
    models: tuple[str, ...] = ()
    digest: str = ""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], settings: Settings) -> Outline:
        """Of a stored run; a ceiling given now replaces the stored one."""
        from core.errors import StoreError

        try:
            outline = cls(**{**config, "models": tuple(config["models"])})
        except (KeyError, TypeError) as error:
            raise StoreError(
                "This run cannot be resumed: it was not recorded by 'trinity evolve'."
            ) from error
        ceiling = outline.max_cost_usd if settings.max_cost_usd is None else settings.max_cost_usd
        return replace(outline, max_cost_usd=ceiling)

    @property
    def config(self) -> EvolveConfig:
        """The evolution's own part."""
        from core.evolution.evolve import EvolveConfig

        # A run begun before there was a choice made no difference between constant and other preferences.
        return EvolveConfig(**{"constant_spread": None, **self.evolution})


@dataclass(frozen=True, slots=True)
class Parts:
    """All that an evolution needs besides the store."""

    outline: Outline
    pool: Pool
    encoder: Encoder
    template: Checkpoint
    tasks: list[Task]
    validation: list[Task]


def _prepared(outline: Outline) -> Parts:
    """The parts; everything that can be wrong is found here, before anything is written."""
    from core.checkpoint import Checkpoint
    from core.coordinator.encoder import load_encoder
    from core.errors import ConfigError, TaskError
    from core.tasks.sets import load_tasks
    from ui import wiring
    from ui.plan import digest

    tasks = load_tasks(outline.tasks, "evolve", outline.n, 0, at_most=True)
    if outline.digest and digest(tasks) != outline.digest:
        raise TaskError(
            f"The tasks in {outline.tasks} have changed since this run began: it cannot be resumed."
        )
    try:
        validation = (
            load_tasks(outline.tasks, "validation", outline.validation, 0, at_most=True)
            if outline.validation
            else []
        )
    except TaskError as error:
        say(f"Nothing is validated: {error}")
        validation = []
    pool = wiring.resolve_pool(outline.pool)
    models = tuple(spec.name for spec in pool.specs)
    if outline.models and models != outline.models:
        raise ConfigError(
            f"The models in {outline.pool} have changed since this run began: it cannot be resumed."
        )
    encoder = load_encoder(outline.encoder)
    outline = replace(outline, models=models, digest=digest(tasks))
    return Parts(outline, pool, encoder, Checkpoint.begin(models, encoder.identity), tasks, validation)


def _show_estimate(parts: Parts, *, already_agreed: bool) -> None:
    """For models that cost money: the most this can cost, and a ceiling or a yes before it starts."""
    from ui.spending import agree, estimate

    config, validation = parts.outline.config, len(parts.validation)
    questions = [task.question for task in (*parts.tasks, *parts.validation)]
    played = config.generations * config.population * config.tasks_per_candidate
    played += (1 + math.ceil(config.generations / config.validate_every)) * validation
    most = estimate(parts.pool.specs, played, config.turn_budget, questions)
    ask = sys.stdin.isatty() and not already_agreed
    sentence = agree(parts.pool.specs, most, parts.outline.max_cost_usd, may_ask=ask, agreed=already_agreed)
    if sentence:
        say(sentence)
        if ask and parts.outline.max_cost_usd is None:
            typer.confirm("Start?", abort=True, err=True)


def _evolve(store: Store, run_id: str, parts: Parts, start: SepCMAState | None) -> SepCMAState:
    """Evolve to the end, keeping every generation before the next one begins; returns the last state."""
    from core.evolution.evolve import evolve as evolve_head
    from core.evolution.evolve import validate
    from core.tasks.graders import grade_many
    from storage.recorder import beating
    from ui.lease import owner

    config = parts.outline.config
    template = replace(parts.template, parent_run=run_id)
    earlier = store.evolution.generations(run_id)
    pool = MeteredPool(parts.pool, parts.outline.max_cost_usd, store.runs.spent_usd(run_id))
    keeper = Keeper(
        store, run_id, parts, pool, *((earlier[-1].evaluations, earlier[-1].wall_s) if earlier else (0, 0.0))
    )
    state = start
    with beating(store, run_id, owner()), progress() as bar:
        done = start.generation if start else 0
        line = bar.add_task("generations", total=config.generations, completed=done, note="")
        for generation in evolve_head(
            config,
            template,
            encoder=parts.encoder,
            pool=pool,
            grade=grade_many,
            tasks=parts.tasks,
            validation_tasks=parts.validation,
            start=start,
        ):
            if generation.index == 0 and parts.validation:  # where the climb begins
                before = validate(template, parts.validation, config, parts.encoder, pool, grade_many)
                generation = replace(generation, validation=before)
            keeper.keep(generation)
            state = generation.state
            say(describe(generation))
            bar.update(line, completed=generation.index)
    assert state is not None  # generation 0 is always yielded when nothing was kept before
    return state


def describe(generation: Generation) -> str:
    """One line about a generation."""
    import numpy as np

    parts = [f"generation {generation.index}"]
    fitness = [value for value in generation.fitness if np.isfinite(value)]
    if fitness:
        parts.append(f"mean {percent(float(np.mean(fitness)))}, best {percent(max(fitness))}")
    if generation.validation is not None:
        parts.append(f"validation {percent(generation.validation.accuracy)} of {generation.validation.n}")
    parts.append(f"step size {generation.state.step_size:.3g}")
    return ", ".join(parts)


@dataclass
class Keeper:
    """Stores each generation with its checkpoint and the optimiser's state in one transaction."""

    store: Store
    run_id: str
    parts: Parts
    pool: MeteredPool
    evaluations: int
    wall_s: float

    def __post_init__(self) -> None:
        self._since = time.monotonic()

    def keep(self, generation: Generation) -> None:
        """Commit a generation; it is the one that a resumed evolution goes on after."""
        import numpy as np

        from storage.checkpoints import checkpoint_row
        from storage.summaries import CandidateSummary, GenerationSummary
        from ui.lease import owner

        self.store.runs.heartbeat(self.run_id, owner())  # refused when another process took the run over
        config = self.parts.outline.config
        fitness = [value for value in generation.fitness if np.isfinite(value)]
        if generation.index == 0 and generation.validation is not None:
            fitness = [generation.validation.accuracy]  # nobody competed yet
        now = time.monotonic()
        self.wall_s, self._since = self.wall_s + now - self._since, now
        self.evaluations += len(generation.fitness) * config.tasks_per_candidate
        checkpoint = generation.checkpoint
        row = checkpoint_row(
            checkpoint.id,
            checkpoint.to_config(),
            checkpoint.to_bytes(),
            run_id=self.run_id,
            generation=generation.index,
            kind="head",
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
            stats={**stats(generation), "spent_usd": self.pool.spent_usd},
        )
        candidates = [
            CandidateSummary(
                index,
                value if np.isfinite(value) else None,
                config.tasks_per_candidate,
                generation.missing[index],
            )
            for index, value in enumerate(generation.fitness)
        ]
        self.store.evolution.add(entry, candidates, generation.state.to_bytes(), row)


def stats(generation: Generation) -> dict[str, Any]:
    """What else is worth a curve: how the population played, and the mean on validation tasks."""
    found: dict[str, Any] = {
        "calls": generation.calls,
        "calls_saved": generation.calls_saved,
    }
    for name, measured in (("episodes", generation.episodes), ("validation", generation.validation)):
        if measured is not None:
            found[name] = {
                "accuracy": measured.accuracy,
                "n": measured.n,
                "missing": measured.missing,
                "turns_mean": measured.turns_mean,
                "accept_rate": measured.accept_rate,
                "shares": {f"{model} {role}": share for (model, role), share in measured.shares.items()},
            }
    return found
