"""A coordinator whose head is cloned, made from its name: from labels, or from what another policy does."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError

if TYPE_CHECKING:
    from core.checkpoint import Checkpoint
    from core.play.policies import Policy, Pupil
    from ui.runs.policies import Policies
    from ui.runs.policy_kinds import Lessons


def of_labels(policies: Policies, lessons: Lessons, ridge: float | None) -> Policy:
    """The head that is taught by who solved each question; `ridge` is how far it is held back."""
    from core.evolution.baselines import cloned_from_labels

    clone = partial(cloned_from_labels, cycles=lessons.cycles, questions=lessons.questions, ridge=ridge)
    return _kept(policies, lessons, clone)


def of_policy(policies: Policies, name: str) -> Pupil:
    """The head that is taught by the turns of the episodes that the policy of this name plays on evolve questions."""
    from core.evolution.baselines import cloned_from_policy
    from core.play.policies import Pupil
    from ui.runs.policies import cycles_of

    known = policies.resolve(name, may_learn=True)
    if not known.decides_turns:
        raise ConfigError(f"Policy '{name}' decides no single turns, so that no head can be taught by it.")
    pupil = known if isinstance(known, Pupil) else None
    singles = [f"single:{model}" for model in policies.models]

    def teach(lessons: Lessons) -> Policy:
        teacher = teacher_of(policies, name, lessons)
        return _kept(
            policies, lessons, partial(cloned_from_policy, teacher=teacher, questions=lessons.questions)
        )

    return Pupil(
        f"cloned:{name}",
        policies.models,
        teach,
        ("questions", *(("validation",) if pupil and "validation" in pupil.learns_from else ())),
        lambda models, tasks, turns: tasks + (pupil.episodes(models, tasks, turns) if pupil else 0),
        tuple(one for one in cycles_of(name, policies.models) if one in singles),
        reads=True,
        looks_up=True,
        needs=("texts", *(pupil.needs if pupil else ())),
    )


def teacher_of(policies: Policies, name: str, lessons: Lessons) -> Policy:
    """The policy of this name as it plays the questions that it teaches by, itself taught before where it has to be."""
    from core.play.policies import Pupil

    cycles = {f"single:{model}": chosen.cycle for model, chosen in lessons.cycles.items()}
    teacher = replace(policies, cycles={**policies.cycles, **cycles}).resolve(name, may_learn=True)
    if isinstance(teacher, Pupil):
        teacher = teacher.teach(replace(lessons, tasks=lessons.questions))
    return teacher


def _kept(
    policies: Policies, lessons: Lessons, cloned: Callable[..., Generator[Any, None, Checkpoint]]
) -> Policy:
    """The coordinator whose head is cloned from a blank one; its checkpoint is kept."""
    from core.checkpoint import Checkpoint
    from core.coordinator.coordinator import Coordinator
    from core.learning import outcome
    from ui.runs import wiring

    arena, encoder = lessons.arena, lessons.reader
    begun = Checkpoint.begin(
        arena.models,
        encoder.identity,
        **asdict(encoder.recipe),
        protocol=arena.protocol,
        input_format=encoder.format_for(arena.protocol),
    )
    taught = outcome(cloned(begun, encoder, arena))
    wiring.keep_checkpoint(lessons.store, taught)
    return Coordinator(taught, encoder, argmax=policies.argmax)
