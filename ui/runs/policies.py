"""Every policy that a run can play, by its name: the one list that `trinity run --policy` reads, checks and helps by.

A name is a word and, after a colon, what the word needs. A policy is added here, with one entry of POLICIES; its class
may stand anywhere. torch is imported only where a coordinator plays or something is taught.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from core.checkpoint import Checkpoint, load_checkpoint
from core.conduct.planners import CONDUCTOR, FIXED, Conductor, RandomPlanner, planner_policy
from core.conduct.session import Planner
from core.episode import ROLE_ORDER, Decide, Decision, Role, Task
from core.errors import CheckpointError, ConfigError
from core.evolution.config import LABEL_REPEATS
from core.evolution.cycles import ChosenCycle, cascade_episodes
from core.planner.card import PlannerCard
from core.play.ensembles import VOTERS, MajorityVote, MixtureOfAgents, WithoutModels, WithoutRole
from core.play.policies import (
    CANDIDATE,
    PLAN_WORK_CHECK,
    SINGLE,
    Cycle,
    CyclePolicy,
    PolicyPerRequest,
    RandomPolicy,
    cascade_policy,
    cycle_policy,
    follows_cycle,
    single_policy,
)
from core.play.policy import ConductingPolicy, Policy
from core.pocket import MODELS
from core.pocket.specs import TEAMS
from storage.store import Store
from ui.presentation.words import policy_name
from ui.runs import wiring
from ui.runs.encoders import encoder_place

if TYPE_CHECKING:
    from core.coordinator.coordinator import Coordinator
    from core.coordinator.encoder import Encoder
    from core.evolution.baselines import Arena


@dataclass
class Lessons:
    """What a policy is chosen or taught by before it plays the `tasks` of a run: validation tasks, and questions that
    every model answers at its best cycle of roles. `encoder` is the name of what reads questions."""

    store: Store
    arena: Arena
    cycles: Mapping[str, ChosenCycle]
    validation: Sequence[Task]
    questions: Sequence[Task]
    tasks: Sequence[Task] = ()
    encoder: str = "pocket"

    @cached_property
    def reader(self) -> Encoder:
        """The encoder, loaded."""
        return wiring.loaded_encoder(self.encoder)


#: Chooses or teaches a policy. Its id then stands for it in the run.
Teach = Callable[[Lessons], Policy]


@dataclass(frozen=True, slots=True)
class Pupil:
    """A policy that has still to be chosen or taught; its id is the name that it was asked for by."""

    id: str
    models: tuple[str, ...]
    teach: Teach

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """ConfigError: it has learned nothing yet."""
        raise ConfigError(
            f"Policy '{self.id}' learns from other tasks before it plays, which only trinity run does: choose another "
            "policy here."
        )


@dataclass
class Policies:
    """Turns names of policies into policies over one pool; encoders are loaded when they are needed, and kept.

    `models` are the pool's slots, `cycles` the chosen cycle of roles of each policy that follows one, `encoders` those
    that are loaded, by name and type of number; several may share them.
    """

    store: Store
    models: tuple[str, ...]
    argmax: bool = False
    encoder: str | None = None
    cycles: Mapping[str, Cycle] = field(default_factory=dict)
    encoders: dict[tuple[str, str], Encoder] = field(default_factory=dict)

    def resolve(self, name: str, *, may_learn: bool = False) -> Policy:
        """The policy of a name; with `may_learn` also a Pupil, of one that is chosen or taught first. Raises
        ConfigError or CheckpointError with one sentence."""
        word, _, rest = name.partition(":")
        if word in POLICIES:
            made = POLICIES[word].make(self, rest)
            if isinstance(made, Pupil) and not may_learn:
                made.decide([])
            return made
        if os.path.isdir(name):  # of a name that no path can have: no error, no folder
            return self.coordinator(load_checkpoint(name))
        self.check_stored(name)
        if self.store.planners.has(name):
            return Conductor(self.planner(name))
        return self.stored_coordinator(name)

    def check_stored(self, name: str) -> None:
        """CheckpointError for a name that the store lacks."""
        if name.startswith(CANDIDATE):
            raise CheckpointError(
                f"The weights of {policy_name(name)} are not kept, so it cannot play again: choose another policy, "
                "such as the checkpoint of its generation."
            )
        if not (self.store.checkpoints.has(name) or self.store.planners.has(name)):
            raise CheckpointError(
                f"There is no policy or checkpoint '{name}': see 'trinity checkpoints', or use "
                f"{', '.join(one.form for one in POLICIES.values())}."
            )

    def planner(self, planner_id: str) -> Planner:
        """A stored planner for this pool."""
        return wiring.load_planner(self.store, planner_id, self.models, argmax=self.argmax)

    def stored_coordinator(self, name: str) -> Policy:
        """A checkpoint of the store on its encoder."""
        return self.coordinator(self.store.checkpoints.load(name))

    def coordinator(self, checkpoint: Checkpoint) -> Coordinator:
        """A checkpoint on its encoder. CheckpointError when it does not fit the pool or the encoder."""
        from core.coordinator.coordinator import Coordinator, check_fits

        name = self.encoder or encoder_place(checkpoint, self.store, wiring.data_folder())
        dtype = checkpoint.dtype
        if (name, dtype) not in self.encoders:
            self.encoders[name, dtype] = wiring.loaded_encoder(name, dtype)
        encoder = self.encoders[name, dtype]
        check_fits(checkpoint, encoder, self.models)
        return Coordinator(checkpoint, encoder, argmax=self.argmax)


class _NamesOnly(Policies):
    """Checks names before anything heavy is loaded: what is stored is stood for by others that choose at random."""

    def planner(self, planner_id: str) -> Planner:
        if not self.store.planners.has(planner_id):
            self.check_stored(planner_id)
            raise ConfigError(
                f"{planner_id} is a coordinator, which writes no workflows: name it without '{CONDUCTOR}'."
            )
        PlannerCard.of(self.store.planners.get(planner_id).card).check_pool(self.models)
        return RandomPlanner(self.models, id=CONDUCTOR + planner_id)

    def stored_coordinator(self, name: str) -> Policy:
        return RandomPolicy(self.models, id=name)


def check_policies(names: Sequence[str], store: Store, models: Sequence[str]) -> None:
    """CheckpointError or ConfigError for a name that no policy of these models can have, before anything heavy is
    loaded."""
    known = _NamesOnly(store, tuple(models))
    for name in names:
        if name != f"{SINGLE}*" and not os.path.isdir(name):
            known.resolve(name, may_learn=True)


#: What a policy learns from before it plays: validation tasks that it is chosen on, or questions that it is taught by.
LearnsFrom = Literal["", "validation", "questions"]


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """Policies whose names begin with one word: `form` is how they are typed, `words` what they do, `make` gives the
    policy of what stands behind the word. `cycles`: the policies of a single cycle of roles that it plays by, given
    what stands behind the word and the pool's models; `calls`: how many calls its episode takes where that of an
    ordinary policy takes so many; `learns_from`: on what it is chosen, or by what it is taught,
    before it plays, and `lessons`: how many episodes that takes, with so many models, tasks and turns."""

    form: str
    words: str
    make: Callable[[Policies, str], Policy]
    cycles: Callable[[str, Sequence[str]], Sequence[str]] = lambda rest, models: ()
    calls: Callable[[str, float, Sequence[str]], float] = lambda rest, each, models: each
    learns_from: Callable[[str], LearnsFrom] = lambda rest: ""
    lessons: Callable[[str, int, int, int], int] = lambda rest, models, tasks, turns: 0


def cycles_of(name: str, models: Sequence[str]) -> Sequence[str]:
    """The policies whose cycle of roles a policy of this name plays by: itself, or each of its models."""
    word, _, rest = name.partition(":")
    return POLICIES[word].cycles(rest, models) if word in POLICIES else ()


def learns_from(name: str) -> LearnsFrom:
    """On what a policy of this name is chosen, or by what it is taught, before it plays; empty for others."""
    word, _, rest = name.partition(":")
    return POLICIES[word].learns_from(rest) if word in POLICIES else ""


def lessons_of(name: str, models: int, tasks: int, turns: int) -> int:
    """How many episodes a policy of this name learns from, with so many models, tasks to learn from, and turns."""
    word, _, rest = name.partition(":")
    return POLICIES[word].lessons(rest, models, tasks, turns) if learns_from(name) else 0


def calls_of(name: str, each: float, models: Sequence[str]) -> float:
    """How many calls an episode of a policy of this name takes where that of an ordinary one takes so many."""
    word, _, rest = name.partition(":")
    return POLICIES[word].calls(rest, each, models) if word in POLICIES else each


def _cycle(word: str) -> Callable[[Policies, str], Policy]:
    def make(policies: Policies, rest: str) -> Policy:
        name = f"{word}:{rest}" if rest else word
        if not follows_cycle(name):
            raise ConfigError(f"Policy '{name}' is not understood: give {POLICIES[word].form}.")
        return cycle_policy(name, policies.models, policies.cycles.get(name, PLAN_WORK_CHECK))

    return make


def _plain(word: str, made: Callable[[tuple[str, ...]], Policy]) -> Callable[[Policies, str], Policy]:
    """A policy whose name is the word alone."""

    def make(policies: Policies, rest: str) -> Policy:
        if rest:
            raise ConfigError(f"Policy '{word}:{rest}' is not understood: give {word} alone.")
        return made(policies.models)

    return make


def _cascade(policies: Policies, rest: str) -> Policy:
    if rest:
        return cascade_policy(rest.split("+"), policies.models)
    return Pupil("cascade", policies.models, _chosen_cascade)


def _chosen_cascade(lessons: Lessons) -> Policy:
    from core.evolution.combining import cascade

    return cascade(lessons.arena, lessons.validation)


def _voters(rest: str) -> tuple[int, str]:
    """How many vote, and who: "", "5", "jack", "5:jack"."""
    first, _, others = rest.partition(":")
    if not first.isdecimal():
        return VOTERS, rest
    if not 2 <= int(first) <= 100:
        raise ConfigError(f"A majority of {first} votes cannot be taken: give a number from 2 to 100.")
    return int(first), others


def _majority(policies: Policies, rest: str) -> Policy:
    votes, who = _voters(rest)
    stem = "majority:" if votes == VOTERS else f"majority:{votes}:"
    if not who:
        return Pupil(
            f"majority:{rest}" if rest else "majority",
            policies.models,
            lambda lessons: _majority(policies, f"{votes}:{_best_answerer(lessons)}"),
        )
    if who in policies.models:  # one answer a vote
        alone = single_policy(who, policies.models, (Role.WORKER,))
        return MajorityVote(alone, f"{stem}{who}", votes, turns=1)
    return MajorityVote(_inner(policies, who, "majority"), f"{stem}{who}", votes)


def _calls_of_votes(rest: str, each: float, models: Sequence[str]) -> float:
    votes, who = _voters(rest)
    return votes * (1 if not who or who in models else calls_of(who, each, models))


def _best_answerer(lessons: Lessons) -> str:
    from core.evolution.combining import best_answerer

    return best_answerer(lessons.arena, lessons.validation)


def _inner(policies: Policies, name: str, word: str) -> Policy:
    """The policy that another one changes: one that decides single turns, and has learned what it has to."""
    inner = policies.resolve(name)
    if isinstance(inner, ConductingPolicy):
        raise ConfigError(
            f"Policy '{word}' cannot be made of '{name}': name a model or a coordinator after it."
        )
    return inner


def _without(policies: Policies, rest: str) -> Policy:
    role, _, name = rest.partition(":")
    if role not in [*ROLE_ORDER] or not name:
        raise ConfigError(f"Policy 'without:{rest}' is not understood: give {POLICIES['without'].form}.")
    return WithoutRole(_inner(policies, name, "without"), Role(role))


def _fewer(policies: Policies, rest: str) -> Policy:
    n, _, name = rest.partition(":")
    if not n.isdecimal() or not 0 < int(n) < len(policies.models):
        raise ConfigError(
            f"Policy 'fewer:{rest}' is not understood: give {POLICIES['fewer'].form} with a number below "
            f"{len(policies.models)}."
        )
    return WithoutModels(policies.resolve(name), int(n))


def _taught(word: str, teach: Callable[[Lessons, float | None], Policy]) -> Callable[[Policies, str], Policy]:
    """A policy that learns from what every model makes of each question; behind its word may stand a setting of how it
    learns."""

    def make(policies: Policies, rest: str) -> Policy:
        try:
            own = float(rest) if rest else None
        except ValueError:
            raise ConfigError(
                f"Policy '{word}:{rest}' is not understood: give {POLICIES[word].form}."
            ) from None
        return Pupil(f"{word}:{rest}" if rest else word, policies.models, lambda lessons: teach(lessons, own))

    return make


def _singles(rest: str, models: Sequence[str]) -> Sequence[str]:
    return [f"{SINGLE}{one}" for one in models]


def _router(lessons: Lessons, ridge: float | None) -> Policy:
    from core.evolution.baselines import RIDGE, learned_router

    own = RIDGE if ridge is None else ridge
    router = learned_router(lessons.arena, lessons.cycles, lessons.reader, lessons.questions, ridge=own)
    return router if ridge is None else replace(router, id=f"router:{ridge:g}")


def _labels(lessons: Lessons, freedom: float | None) -> Policy:
    from core.evolution.combining import FREEDOM, labelled_router

    own = FREEDOM if freedom is None else freedom
    router = labelled_router(lessons.arena, lessons.cycles, lessons.reader, lessons.questions, freedom=own)
    return router if freedom is None else replace(router, id=f"labels:{freedom:g}")


def _cloned(lessons: Lessons, ridge: float | None) -> Policy:
    from core.coordinator.coordinator import Coordinator
    from core.evolution.supervised import cloned_from_labels

    arena, encoder = lessons.arena, lessons.reader
    begun = Checkpoint.begin(arena.models, encoder.identity, dtype=encoder.dtype, protocol=arena.protocol)
    taught = cloned_from_labels(begun, encoder, arena, lessons.cycles, lessons.questions, ridge=ridge)
    wiring.keep_checkpoint(lessons.store, taught)
    return Coordinator(taught, encoder)


def _hand_made(policies: Policies, rest: str) -> Policy:
    if policies.models != MODELS:
        raise ConfigError("Hand-made teams are known of the pocket pool alone: choose another policy.")
    return Pupil("hand-made", policies.models, _teams)


def _teams(lessons: Lessons) -> Policy:
    """Plan, work and check by each family's hand-made team of pocket models."""
    models = lessons.arena.models
    if others := {task.family for task in lessons.tasks} - TEAMS.keys():
        raise ConfigError(
            f"Nobody has made a team for tasks of '{min(others)}': play others, such as pocket."
        )
    teams = {
        family: CyclePolicy(models, team, PLAN_WORK_CHECK, "hand-made") for family, team in TEAMS.items()
    }
    family_of = {task.question: task.family for task in lessons.tasks}
    return PolicyPerRequest("hand-made", models, lambda one: teams[family_of[one.transcript.question]])


#: Every kind of policy but stored checkpoints, by the word that its name begins with.
POLICIES: Mapping[str, PolicyKind] = {
    "single": PolicyKind(
        "single:MODEL",
        "one model plays every turn (single:*: each model)",
        _cycle("single"),
        cycles=lambda rest, models: (f"{SINGLE}{rest}",),
    ),
    "random": PolicyKind("random", "a random model in a random role", _plain("random", RandomPolicy)),
    "random-model": PolicyKind(
        "random-model",
        "a random model at each turn",
        _cycle("random-model"),
        cycles=lambda rest, models: ("random-model",),
    ),
    "round-robin": PolicyKind(
        "round-robin",
        "the models in turn",
        _cycle("round-robin"),
        cycles=lambda rest, models: ("round-robin",),
    ),
    "conductor": PolicyKind(
        "conductor:PLANNER",
        f"whole workflows, of a planner's id, random, fixed:NAME ({', '.join(FIXED)}), prompted:MODEL or "
        "same-model:MODEL:PLANNER",
        lambda policies, rest: planner_policy(f"{CONDUCTOR}{rest}", policies.models, policies.planner),
    ),
    "cascade": PolicyKind(
        "cascade[:MODEL+...+JUDGE]",
        "one model after the other until a judge accepts; chosen on validation tasks where it is not named",
        _cascade,
        learns_from=lambda rest: "" if rest else "validation",
        lessons=lambda rest, models, tasks, turns: cascade_episodes(models, tasks, turns),
    ),
    "majority": PolicyKind(
        "majority[:N][:MODEL or CHECKPOINT]",
        "the most frequent of N answers, 5 by default; of the best model on validation tasks where none is named",
        _majority,
        cycles=lambda rest, models: cycles_of(_voters(rest)[1], models),
        calls=_calls_of_votes,
        learns_from=lambda rest: "" if _voters(rest)[1] else "validation",
        lessons=lambda rest, models, tasks, turns: models * tasks,
    ),
    "mixture": PolicyKind(
        "mixture",
        "every model answers, then one that is handed all answers (Mixture-of-Agents)",
        _plain("mixture", MixtureOfAgents),
        calls=lambda rest, each, models: len(models) + 1,
    ),
    "router": PolicyKind(
        "router[:RIDGE]",
        "each question to the model that is likeliest to solve it, as RouteLLM",
        _taught("router", _router),
        cycles=_singles,
        learns_from=lambda rest: "questions",
        lessons=lambda rest, models, tasks, turns: models * tasks,
    ),
    "labels": PolicyKind(
        "labels[:C]",
        "each question to the model that solved the likes of it most often",
        _taught("labels", _labels),
        cycles=_singles,
        learns_from=lambda rest: "questions",
        lessons=lambda rest, models, tasks, turns: LABEL_REPEATS * models * tasks,
    ),
    "cloned": PolicyKind(
        "cloned[:RIDGE]",
        "a coordinator whose head is taught by such labels; it becomes a checkpoint",
        _taught("cloned", _cloned),
        cycles=_singles,
        learns_from=lambda rest: "questions",
        lessons=lambda rest, models, tasks, turns: LABEL_REPEATS * models * tasks,
    ),
    "hand-made": PolicyKind("hand-made", "a team for each family of pocket tasks", _hand_made),
    "without": PolicyKind(
        "without:ROLE:POLICY",
        "a policy that never chooses this role",
        _without,
        cycles=lambda rest, models: cycles_of(rest.partition(":")[2], models),
        calls=lambda rest, each, models: calls_of(rest.partition(":")[2], each, models),
    ),
    "fewer": PolicyKind(
        "fewer:N:POLICY",
        "a policy without N of its models, drawn for each task",
        _fewer,
        cycles=lambda rest, models: cycles_of(rest.partition(":")[2], models),
        calls=lambda rest, each, models: calls_of(rest.partition(":")[2], each, models),
    ),
}
