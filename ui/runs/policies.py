"""Every policy that a run can play: how its name is typed, what it does, and how it is made from its name.

A name is a word and, after a colon, what the word needs. A policy is added here alone, as a `PolicyKind` of POLICIES;
its class may stand anywhere. What is made is imported when it is made: the help of `trinity run` reads only the words,
and torch is needed only where a coordinator plays or something is taught.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from core.episode import ROLE_ORDER, Role, Task
from core.errors import CheckpointError, ConfigError
from core.settings import Computing

if TYPE_CHECKING:
    from core.checkpoint import Checkpoint
    from core.conduct.session import Planner
    from core.coordinator.coordinator import Coordinator
    from core.coordinator.encoder import Encoder
    from core.evolution.baselines import Arena
    from core.evolution.cycles import ChosenCycle
    from core.play.policies import Cycle, Policy, Pupil
    from storage.store import Store

#: Votes at most.
MOST_VOTES = 100


@dataclass
class Lessons:
    """What a policy is chosen or taught by before it plays the `tasks` of a run: validation tasks, and questions that
    every model answers at its best cycle of roles. `encoder` is the name of what reads questions, `computing` how."""

    store: Store
    arena: Arena
    cycles: Mapping[str, ChosenCycle]
    validation: Sequence[Task]
    questions: Sequence[Task]
    tasks: Sequence[Task] = ()
    encoder: str = "pocket"
    computing: Computing | None = None

    @cached_property
    def reader(self) -> Encoder:
        """The encoder, loaded."""
        from ui.runs import wiring

        return wiring.loaded_encoder(self.encoder, self.computing)


@dataclass
class Policies:
    """Turns names of policies into policies over one pool; encoders are loaded when they are needed, and kept.

    `models` are the pool's slots, `cycles` the chosen cycle of roles of each policy that follows one, `encoders` those
    that are loaded, by name and type of number; several may share them. `computing` is the app's own where it is None.
    `told` is what has to be known of its coordinators before they play.
    """

    store: Store
    models: tuple[str, ...]
    argmax: bool = False
    encoder: str | None = None
    cycles: Mapping[str, Cycle] = field(default_factory=dict)
    encoders: dict[tuple[str, str], Encoder] = field(default_factory=dict)
    computing: Computing | None = None
    told: list[str] = field(default_factory=list)
    _run: str = ""

    def play_in(self, run: str) -> Policies:
        """The same; what has to be known of its coordinators is kept in this run from here on."""
        self._run = run
        for sentence in self.told:
            self.store.runs.note(run, sentence)
        return self

    def resolve(self, name: str, *, may_learn: bool = False) -> Policy:
        """The policy of a name; with `may_learn` also a Pupil, of one that is chosen or taught first. Raises
        ConfigError or CheckpointError with one sentence."""
        from core.play.policies import Pupil

        word, _, rest = name.partition(":")
        if word not in POLICIES:
            return self.stored(name)
        if rest and POLICIES[word].form == word:
            raise ConfigError(f"Policy '{word}' takes nothing behind a colon: leave ':{rest}' out.")
        made = POLICIES[word].make(self, rest)
        if isinstance(made, Pupil) and not may_learn:
            made.decide([])
        return made

    def check_stored(self, name: str) -> None:
        """CheckpointError for a name that the store lacks."""
        from core.play.policies import CANDIDATE
        from ui.presentation.words import policy_name

        if name.startswith(CANDIDATE):
            raise CheckpointError(
                f"The weights of {policy_name(name)} are not kept, so it cannot play again: choose another policy, "
                "such as the checkpoint of its generation."
            )
        if not self.store.checkpoints.has(name, planner=None):
            raise CheckpointError(
                f"There is no policy or checkpoint '{name}': see 'trinity checkpoints', or use "
                f"{', '.join(one.form for one in POLICIES.values())}."
            )

    def planner(self, planner_id: str) -> Planner:
        """A stored planner for this pool."""
        from ui.runs import wiring

        return wiring.load_planner(self.store, planner_id, self.models, argmax=self.argmax)

    def stored(self, name: str) -> Policy:
        """A checkpoint of the store, or of a folder."""
        from core.checkpoint import load_checkpoint

        if os.path.isdir(name):  # of a name that no path can have: no error, no folder
            return self.coordinator(load_checkpoint(name))
        self.check_stored(name)
        if self.store.checkpoints.has(name, planner=True):
            return self.planner(name)
        return self.coordinator(self.store.checkpoints.load(name))

    def coordinator(self, checkpoint: Checkpoint) -> Coordinator:
        """A checkpoint on its encoder. CheckpointError when it does not fit the pool or the encoder."""
        from core.coordinator.coordinator import Coordinator, check_fits
        from ui.runs import wiring

        name = self.encoder or wiring.encoder_place(checkpoint, self.store, wiring.data_folder())
        dtype = checkpoint.dtype
        if (name, dtype) not in self.encoders:
            self.encoders[name, dtype] = wiring.loaded_encoder(name, self.computing, dtype)
        encoder = self.encoders[name, dtype]
        check_fits(checkpoint, encoder, self.models)
        coordinator = Coordinator(checkpoint, encoder, argmax=self.argmax)
        if encoder.recipe != checkpoint.recipe:
            from ui.runs.reading import tell_agreement

            self.told.append(tell_agreement(self.store, coordinator, name))
            if self._run:
                self.store.runs.note(self._run, self.told[-1])
        return coordinator


@dataclass
class _NamesOnly(Policies):
    """Checks names before anything heavy is loaded: what is stored is stood for by others that choose at random, and
    looked for where there is a store."""

    store: Store | None = None  # type: ignore[assignment]
    models: tuple[str, ...] = ()

    def planner(self, planner_id: str) -> Planner:
        from core.conduct.planners import CONDUCTOR, RandomPlanner
        from core.planner.card import PlannerCard

        if self.store is not None:
            if not self.store.checkpoints.has(planner_id, planner=True):
                self.check_stored(planner_id)
                raise ConfigError(
                    f"{planner_id} is a coordinator, which writes no workflows: name it without '{CONDUCTOR}'."
                )
            PlannerCard.of(self.store.checkpoints.get(planner_id).config).check_pool(self.models)
        return RandomPlanner(self.models, id=CONDUCTOR + planner_id)

    def stored(self, name: str) -> Policy:
        from core.play.policies import RandomPolicy

        if self.store is not None and not os.path.isdir(name):
            self.check_stored(name)
        return RandomPolicy(self.models, id=name)


def check_policies(names: Sequence[str], store: Store, models: Sequence[str]) -> None:
    """CheckpointError or ConfigError for a name that no policy of these models can have, before anything heavy is
    loaded."""
    known = _NamesOnly(store=store, models=tuple(models))
    for name in names:
        if name != "single:*":
            known.resolve(name, may_learn=True)


def named_policy(name: str, models: Sequence[str]) -> Policy:
    """What is known of a policy by its name alone, over these models."""
    return _NamesOnly(models=tuple(models)).resolve(name, may_learn=True)


def pupil_of(name: str, models: Sequence[str]) -> Pupil | None:
    """The policy of a name that is chosen or taught before it plays; None for others."""
    from core.play.policies import Pupil

    policy = named_policy(name, models) if models else None
    return policy if isinstance(policy, Pupil) else None


def cycles_of(name: str, models: Sequence[str]) -> tuple[str, ...]:
    """The policies whose cycle of roles a policy of this name plays by, or learns by."""
    from core.play.policies import follows_cycle, innermost

    if follows_cycle(name) or not models:
        return (name,) if follows_cycle(name) else ()
    if (pupil := pupil_of(name, models)) is not None:
        return pupil.cycles
    inner = innermost(named_policy(name, models))
    return (inner.id,) if follows_cycle(inner.id) else ()


def turns_of(name: str, turns: int, models: Sequence[str]) -> int:
    """The turn budget of an episode of a policy of this name where that of an ordinary one has so many."""
    from core.play.policies import new_episode

    policy = named_policy(name, models)
    blank = new_episode("", 0, Task("", "", ""), policy, turns=turns, seed=0, argmax=False)
    return blank.turn_budget


def _cycle(policies: Policies, name: str) -> Policy:
    from core.play.policies import PLAN_WORK_CHECK, cycle_policy

    return cycle_policy(name, policies.models, policies.cycles.get(name, PLAN_WORK_CHECK))


def _random(policies: Policies, _: str) -> Policy:
    from core.play.policies import RandomPolicy

    return RandomPolicy(policies.models)


def _conductor(policies: Policies, planner: str) -> Policy:
    from core.conduct.planners import planner_policy

    return planner_policy(f"conductor:{planner}", policies.models, policies.planner)


def _mixture(policies: Policies, _: str) -> Policy:
    from core.play.ensembles import MixtureOfAgents

    return MixtureOfAgents(policies.models)


def _cascade(policies: Policies, team: str) -> Policy:
    from core.evolution.cycles import cascade_episodes
    from core.play.policies import Pupil, cascade_policy

    if team:
        return cascade_policy(team.split("+"), policies.models)

    def teach(lessons: Lessons) -> Policy:
        from core.evolution.baselines import cascade

        return cascade(lessons.arena, lessons.validation)

    return Pupil("cascade", policies.models, teach, "validation", cascade_episodes)


def _majority(policies: Policies, rest: str) -> Policy:
    """Of "", "5", "jack" or "5:jack": how many vote, and who."""
    from core.play.ensembles import VOTERS, MajorityVote
    from core.play.policies import CyclePolicy, Pupil

    first, _, others = rest.partition(":")
    votes, who = (int(first), others) if first.isdecimal() else (VOTERS, rest)
    if not 2 <= votes <= MOST_VOTES:
        raise ConfigError(f"{votes} votes make no majority: give from 2 to {MOST_VOTES}.")
    name = f"majority:{who}" if votes == VOTERS else f"majority:{votes}:{who}"
    if who in policies.models:  # one answer a vote
        alone = CyclePolicy(policies.models, (who,), (Role.WORKER,), who)
        return MajorityVote(alone, name, votes, turns=1)
    if who:
        return MajorityVote(_deciding(policies, who), name, votes)

    def teach(lessons: Lessons) -> Policy:
        from core.evolution.baselines import best_answerer

        return _majority(policies, f"{votes}:{best_answerer(lessons.arena, lessons.validation)}")

    every = partial(_each_model, 1)
    return Pupil(name.removesuffix(":"), policies.models, teach, "validation", every)


def _deciding(policies: Policies, name: str) -> Policy:
    """A policy that another one changes: it decides single turns."""
    inner = policies.resolve(name)
    if not inner.decides_turns:
        raise ConfigError(
            f"Policy '{name}' decides no single turns: name a model or a coordinator in its place."
        )
    return inner


def _without(policies: Policies, rest: str) -> Policy:
    from core.play.ensembles import WithoutModels, WithoutRole

    what, _, name = rest.partition(":")
    if what in [*ROLE_ORDER]:
        return WithoutRole(_deciding(policies, name), Role(what))
    if not what.isdecimal() or not 0 < int(what) < len(policies.models):
        raise ConfigError(
            f"A policy cannot do without '{what}': give a role ({', '.join(ROLE_ORDER)}), or how many models, from 1 "
            f"to {len(policies.models) - 1}."
        )
    return WithoutModels(policies.resolve(name), int(what))


def _each_model(repeats: int, models: int, tasks: int, turns: int) -> int:
    """The episodes in which every model plays every task so many times."""
    return repeats * models * tasks


def _taught(
    word: str,
    teach: Callable[[Lessons, float | None], Policy],
    policies: Policies,
    rest: str,
    *,
    once: bool = False,
) -> Pupil:
    """A policy that learns from what every model makes of each question, played `once` or LABEL_REPEATS times; behind
    its word may stand a setting of how it learns."""
    from core.evolution.config import LABEL_REPEATS
    from core.play.policies import Pupil

    try:
        setting = float(rest) if rest else None
    except ValueError:
        raise ConfigError(f"'{rest}' is no setting of {word}: give a number behind the colon.") from None
    return Pupil(
        f"{word}:{rest}" if rest else word,
        policies.models,
        lambda lessons: teach(lessons, setting),
        "questions",
        partial(_each_model, 1 if once else LABEL_REPEATS),
        tuple(f"single:{model}" for model in policies.models),
    )


def _router(lessons: Lessons, ridge: float | None) -> Policy:
    from core.evolution.baselines import RIDGE, learned_router

    own = RIDGE if ridge is None else ridge
    router = learned_router(lessons.arena, lessons.cycles, lessons.reader, lessons.questions, ridge=own)
    return router if ridge is None else replace(router, id=f"router:{ridge:g}")


def _labels(lessons: Lessons, freedom: float | None) -> Policy:
    from core.evolution.baselines import FREEDOM, labelled_router

    own = FREEDOM if freedom is None else freedom
    router = labelled_router(lessons.arena, lessons.cycles, lessons.reader, lessons.questions, freedom=own)
    return router if freedom is None else replace(router, id=f"labels:{freedom:g}")


def _cloned(lessons: Lessons, ridge: float | None) -> Policy:
    from core.checkpoint import Checkpoint
    from core.coordinator.coordinator import Coordinator
    from core.evolution.baselines import cloned_from_labels
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
    taught = outcome(
        cloned_from_labels(begun, encoder, arena, lessons.cycles, lessons.questions, ridge=ridge)
    )
    wiring.keep_checkpoint(lessons.store, taught)
    return Coordinator(taught, encoder)


def _hand_made(policies: Policies, _: str) -> Policy:
    from core.play.policies import Pupil

    return Pupil("hand-made", policies.models, _teams)


def _teams(lessons: Lessons) -> Policy:
    """Plan, work and check by each family's hand-made team of pocket models."""
    from core.play.policies import PLAN_WORK_CHECK, CyclePolicy, PolicyPerRequest
    from core.pocket import MODELS
    from core.pocket.models import TEAMS

    models, family_of = lessons.arena.models, {task.question: task.family for task in lessons.tasks}
    if models != MODELS or (others := {*family_of.values()} - TEAMS.keys()):
        what = "other models" if models != MODELS else f"tasks of '{min(others)}'"
        raise ConfigError(f"Nobody has made teams for {what}: play another policy.")
    teams = {
        family: CyclePolicy(models, team, PLAN_WORK_CHECK, "hand-made") for family, team in TEAMS.items()
    }
    return PolicyPerRequest("hand-made", models, lambda one: teams[family_of[one.transcript.question]])


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """Policies whose names begin with one word: `form` is how they are typed, `words` what they do; `make` gives the
    policy of what stands behind the word. `alone`: the word alone is such a name, which a batch of any models can
    play."""

    form: str
    words: str
    make: Callable[[Policies, str], Policy]
    alone: bool = True


#: Every kind of policy but stored checkpoints, by the word that its name begins with.
POLICIES: Mapping[str, PolicyKind] = {
    one.form.partition(":")[0].partition("[")[0]: one
    for one in (
        PolicyKind(
            "single:MODEL",
            "one model plays every turn; single:* is each model",
            lambda policies, model: _cycle(policies, f"single:{model}"),
            alone=False,
        ),
        PolicyKind("random", "a random model in a random role", _random),
        PolicyKind(
            "random-model",
            "a random model at each turn",
            lambda policies, _: _cycle(policies, "random-model"),
        ),
        PolicyKind("round-robin", "the models in turn", lambda policies, _: _cycle(policies, "round-robin")),
        PolicyKind(
            "conductor:PLANNER",
            "whole workflows; PLANNER is an id, random, fixed:NAME (single, chain, solvers, debate, automix, critic), "
            "prompted:MODEL or same-model:MODEL:PLANNER",
            _conductor,
            alone=False,
        ),
        PolicyKind(
            "cascade[:MODEL+...+JUDGE]",
            "one model after the other until a judge accepts; the best team on validation tasks where none is named",
            _cascade,
        ),
        PolicyKind(
            "majority[:N][:WHO]",
            "the most frequent of N answers (5) of a model, or of N episodes of a coordinator; the best model on "
            "validation tasks where nobody is named",
            _majority,
        ),
        PolicyKind(
            "mixture",
            "every model answers, then one that is handed all answers (Mixture-of-Agents)",
            _mixture,
        ),
        PolicyKind(
            "router[:RIDGE]",
            "each question to the model that is likeliest to solve it (as RouteLLM)",
            partial(_taught, "router", _router, once=True),
        ),
        PolicyKind(
            "labels[:C]",
            "each question to the model that solved the likes of it most often",
            partial(_taught, "labels", _labels),
        ),
        PolicyKind(
            "cloned[:RIDGE]",
            "a coordinator whose head is taught by such labels; it becomes a checkpoint",
            partial(_taught, "cloned", _cloned),
        ),
        PolicyKind(
            "hand-made", "a team made by hand for each family of pocket tasks", _hand_made, alone=False
        ),
        PolicyKind(
            "without:WHAT:POLICY",
            "a policy that never chooses a role (verifier), or that may not choose some models (2), drawn for each "
            "task",
            _without,
            alone=False,
        ),
    )
}
