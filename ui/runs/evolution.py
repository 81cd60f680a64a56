"""An evolution made ready, and what its run keeps of every generation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

from core.checkpoint import Checkpoint
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.states import Reading
from core.coordinator.svf import behind_keys, dead_blocks, svf_layout
from core.episode import Task
from core.errors import ConfigError
from core.evolution.baselines import LEFT_ASIDE, Arena, best_cycles, check_teachable
from core.evolution.config import CHOOSING, SKETCHES, SVF_SKETCHES, Recording
from core.evolution.cycles import PLAIN_CYCLES, ChosenCycle
from core.evolution.evolve import Generation, controls, evolve
from core.evolution.fitness import GenerationStats
from core.evolution.learner_state import LearnerState
from core.evolution.learners import read_state
from core.evolution.search import Survey, sketches
from core.evolution.sep_cma import default_population
from core.learning import Playing
from core.play.policies import Policy
from storage.rows.summaries import CandidateSummary, UpdateSummary
from storage.store import Store
from ui.runs import wiring
from ui.runs.learning import LearningParts, Position, Record, learning_parts
from ui.runs.lease import owner
from ui.runs.plans import Preparation
from ui.runs.play import Pace, Stopped, decomposition, note_preparation, prepare_run
from ui.runs.policies import Policies, check_policies, named_policy
from ui.runs.policy_kinds import Lessons
from ui.runs.settings.learning import QUICK_SVF, RELEASED_SVF, EvolutionPlan
from ui.runs.spending import teacher_episodes
from ui.runs.taught.clones import check_teacher, teacher_cycles, teacher_of
from ui.runs.wiring import remember_encoder

#: A survey is to take about so long, in seconds, and reads as many of the usual sketches as that allows, but never
#: fewer than these: the mean state of 64 and of all 256 had a cosine of 0.998 with the pocket encoder.
SURVEY_S, FEWEST_SKETCHES = 60.0, 64


@dataclass(frozen=True, slots=True)
class EvolutionParts(LearningParts):
    """All that an evolution needs besides the store."""

    noun: ClassVar = "generation"

    plan: EvolutionPlan
    encoder: Encoder
    template: Checkpoint

    @property
    def readers(self) -> Sequence[Encoder]:
        return [self.encoder]

    @property
    def updates(self) -> int:
        return self.plan.evolution.generations

    def state(self, index: int, kept: bytes, run: str) -> LearnerState:
        return read_state(kept)

    def learn(self, at: Position) -> Iterator[Generation | Preparation | Playing]:
        """Each generation, the last one with the controls that are played after it; before the first, how far what
        comes before it is, and before each, how far its episodes are."""
        config, untaught = self.plan.evolution, replace(self.template, parent_run=at.run)
        template = untaught
        first, last = (GenerationStats.of(at.earlier[end].stats) if at.earlier else None for end in (0, -1))
        if at.earlier and config.label_questions:  # what the labels taught, which is not asked for again
            template = at.store.checkpoints.load(at.earlier[0].checkpoint_id or "")
        surveyed = Survey.kept(first.steps, first.mean_state, template) if first else None
        table: dict[str, Any] = {
            "encoder": self.encoder,
            "pool": at.pool,
            "grade": self.grade,
            "tasks": self.tasks,
            "validation_tasks": self.validation,
            "sketches": self.plan.sketches,
        }
        yield from self._prepared(at)
        paces: dict[str, Pace] = {}  # by what is read
        for generation in evolve(
            config,
            template,
            start=at.state,
            next_tasks=last.next_tasks if last else None,
            surveyed=surveyed,
            recording=Recording(at.run, self.plan.record),
            make_teacher=partial(self._teacher, at.store) if config.teacher else None,
            **table,
        ):
            if isinstance(generation, Reading):
                pace = paces.setdefault(generation.what, Pace(generation.what))
                if (told := pace.after(generation.done, generation.of)) is not None:
                    note_preparation(at.store, at.run, told)
                    if at.stops():
                        raise Stopped
                    yield told
                continue
            if isinstance(generation, Playing):
                yield generation
                continue
            if generation.index == 0:
                surveyed = Survey.kept(generation.steps, generation.mean_state, template)
            if generation.index == self.updates and self.plan.controls and self.validation:
                # Controls learn nothing, from labels neither.
                table["surveyed"] = None if config.label_questions else surveyed
                found = yield from controls(config, untaught, **table)
                generation = replace(generation, controls=found)
            yield generation

    def _teacher(self, store: Store, arena: Arena, questions: Sequence[Task]) -> tuple[Policy, int]:
        """The teacher, and the episodes that it was taught by: where it has to be, by four fifths of the questions, and
        chosen on the rest. Validation tasks teach nobody."""
        plan, name = self.plan, self.plan.evolution.teacher
        cycles = dict[str, ChosenCycle]()
        if teacher_cycles(name, plan.models):
            cycles = best_cycles(arena, questions[:CHOOSING], PLAIN_CYCLES, others=())
        aside, others = questions[::LEFT_ASIDE], [task for n, task in enumerate(questions) if n % LEFT_ASIDE]
        lessons = Lessons(
            store, arena, cycles, aside, others, questions, plan.encoder, plan.computing, plan.engine
        )
        policies = Policies(store, plan.models, computing=plan.computing, engine=plan.engine)
        taught = teacher_episodes(plan, plan.models, len(questions)) - len(questions)
        return teacher_of(policies, name, lessons, questions), taught

    def _prepared(self, at: Position) -> Iterator[Preparation]:
        """Write down on how many sketches the encoder is surveyed, and decompose what the template changes of it.
        Stopped when a person asks for it."""
        config = at.store.runs.get(at.run).config
        if config.get("sketches") != self.plan.sketches:
            at.store.runs.amend(at.run, {**config, "sketches": self.plan.sketches}, owner=owner())
        yield from prepare_run(at.store, at.run, decomposition(self.encoder, self.template.svf_layout))
        if at.stops():
            raise Stopped

    def record(self, run: str, update: Generation) -> Record:
        """A generation's candidates, and the optimiser's state after it."""
        config = self.plan.evolution
        return Record(
            episodes=len(update.fitness) * update.tasks_per_candidate + (update.label_episodes or 0),
            stats=update.to_json(),
            checkpoint=wiring.coordinator_fields(update.checkpoint, run) | {"generation": update.index},
            state=update.state.to_bytes(),
            # Replies are drawn anew from here.
            settled=update.index == self.updates
            or (update.index > 0 and update.index % config.rotate_every == 0),
            candidates=[
                CandidateSummary(
                    index, value if math.isfinite(value) else None, update.tasks_per_candidate, missing
                )
                for index, (value, missing) in enumerate(zip(update.fitness, update.missing, strict=True))
            ],
            recorded=update.recorded,
        )

    def size(self, update: UpdateSummary) -> float:
        """The tasks of each candidate of the generation after it."""
        return float(GenerationStats.of(update.stats).next_tasks or self.plan.evolution.tasks_per_candidate)


def _sketches(plan: EvolutionPlan, encoder: Encoder, tasks: Sequence[Task]) -> tuple[int | None, list[str]]:
    """How many sketches the encoder is surveyed on, as many as it reads in a minute or so, and why not as many as
    usually."""
    if plan.sketches or not encoder.keeps_states:
        return plan.sketches, []
    some = sketches(tasks, plan.models, plan.evolution.turn_budget, SVF_SKETCHES)
    tokens = [len(encoder.tokens.prompt(one, encoder.format_for(plan.protocol)).ids) for one in some]
    speed = encoder.tokens_per_s()
    fit = SURVEY_S * speed / (sum(tokens) / len(tokens))
    if fit >= SKETCHES:
        return SKETCHES, []
    chosen = max(FEWEST_SKETCHES, 1 << int(math.log2(fit)) if fit >= 1 else 0)
    return chosen, [
        f"The encoder reads about {speed:,.0f} tokens a second here, so it is surveyed on {chosen} sketched "
        f"transcripts and not on {SKETCHES}."
    ]


def prepare(store: Store, plan: EvolutionPlan) -> EvolutionParts:
    """The parts; everything that can be wrong is found here, before anything is written."""
    common = learning_parts(store, plan)
    plan = common["plan"]
    if plan.evolution.teacher:
        check_policies([plan.evolution.teacher], store, plan.models)
        check_teacher(named_policy(plan.evolution.teacher, plan.models), common["pool"])
    computing = plan.computing
    encoder = load_encoder(
        wiring.encoder_source(plan.encoder),
        dtype=computing.dtype,
        device=computing.device,
        processes=wiring.processes(plan.engine),
    )
    remember_encoder(encoder, wiring.data_folder())
    chosen, why = _sketches(plan, encoder, common["tasks"])
    common |= {"plan": (plan := replace(plan, sketches=chosen)), "notes": (*common["notes"], *why)}
    layout = _layout(plan.svf, encoder)
    template = Checkpoint.begin(
        plan.models,
        encoder.identity,
        neutral=plan.neutral_start,
        head_kind=plan.head,
        svf_layout=layout,
        svf_dead=dead_blocks(encoder.model, layout),
        barred=plan.barred,
        token_position=plan.token_position,
        **asdict(encoder.recipe),
        protocol=plan.protocol,
        input_format=encoder.format_for(plan.protocol),
    )
    if plan.evolution.label_questions:
        check_teachable(template)
    return EvolutionParts(encoder=encoder, template=template, **common)


def with_default_population(parts: EvolutionParts) -> EvolutionParts:
    """The parts with as many candidates as sep-CMA-ES usually has for so many numbers."""
    config = parts.plan.evolution
    size = default_population(len(parts.template.vector), config.mirrored)
    return replace(parts, plan=replace(parts.plan, evolution=replace(config, population=size)))


def _layout(svf: str, encoder: Encoder) -> tuple[tuple[str, int], ...]:
    if not svf:
        return ()
    depth = int(encoder.model.config.num_hidden_layers)
    if svf == RELEASED_SVF:
        return svf_layout(encoder.model, [max(0, depth - 2)], lm_head=True)
    if svf == QUICK_SVF:
        last = svf_layout(encoder.model, [depth - 1], embeddings=False)
        if found := tuple(one for one in last if behind_keys(one[0])):
            return found
        raise ConfigError(
            "This encoder's matrices have other names than SVF 'quick' knows: give layers, such as 1."
        )
    try:
        named = {int(layer) for layer in svf.split(",")}
        layers = sorted({layer + depth if layer < 0 else layer for layer in named})
    except ValueError:
        raise ConfigError(
            f"SVF over '{svf}' is not understood: give layers, such as 1 or 26,27, 'quick' or 'released'."
        ) from None
    return svf_layout(encoder.model, layers, embeddings=False)
