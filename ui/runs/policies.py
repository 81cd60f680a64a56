"""Names of policies, which `policy_kinds` lists: whether there is such a policy, what is known of it by its name alone,
and the policy itself over one pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.episode import Task
from core.errors import CheckpointError, ConfigError
from core.settings import LOCAL_ENGINE, Computing
from ui.runs.policy_kinds import POLICIES

if TYPE_CHECKING:
    from core.checkpoint import Checkpoint
    from core.conduct.session import Planner
    from core.coordinator.coordinator import Coordinator
    from core.coordinator.encoder import Encoder
    from core.play.policies import Cycle, Policy, Pupil
    from storage.store import Store


@dataclass
class Policies:
    """Turns names of policies into policies over one pool; encoders are loaded when they are needed, and kept.

    `models` are the pool's slots, `cycles` the chosen cycle of roles of each policy that follows one, `encoders` those
    that are loaded, by name and type of number; several may share them. `computing` is the app's own where it is None.
    `told` is what has to be known of its coordinators before they play. `stands_for` gives the checkpoint that the name
    of a stored policy stands for, or refuses it.
    """

    store: Store
    models: tuple[str, ...]
    argmax: bool = False
    encoder: str | None = None
    cycles: Mapping[str, Cycle] = field(default_factory=dict)
    encoders: dict[tuple[str, str], Encoder] = field(default_factory=dict)
    computing: Computing | None = None
    engine: str = LOCAL_ENGINE
    told: list[str] = field(default_factory=list)
    stands_for: Callable[[str], str] = str
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

        name = self.stands_for(name)
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
            self.encoders[name, dtype] = wiring.loaded_encoder(name, self.computing, dtype, self.engine)
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
    met: list[str] = field(default_factory=list)  # what is stored, in the order in which it was named

    def planner(self, planner_id: str) -> Planner:
        from core.conduct.planners import CONDUCTOR, RandomPlanner
        from core.planner.card import PlannerCard

        self.met.append(planner_id)
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

        self.met.append(name)
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


def stored_in(name: str, models: Sequence[str]) -> list[str]:
    """The ids of the checkpoints and planners that a policy of this name plays by, also behind what wraps them."""
    known = _NamesOnly(models=tuple(models))
    known.resolve(name, may_learn=True)
    return list(dict.fromkeys(known.met))


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
