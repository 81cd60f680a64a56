"""Every kind of policy that a run can play: how its name is typed, what it does, and how it is made from its name.

A name is a word and, after a colon, what the word needs. A policy is added here alone, as a `PolicyKind` of POLICIES;
its class may stand anywhere. What is made is imported when it is made: the help of `trinity run` reads only the words,
and torch is needed only where a coordinator plays or something is taught.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from core.episode import ROLE_ORDER, Role, Task
from core.errors import ConfigError
from core.settings import LOCAL_ENGINE, Computing
from ui.runs.taught import clones, probes, routers, rules

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder
    from core.evolution.baselines import Arena
    from core.evolution.cycles import ChosenCycle
    from core.play.policies import Policy, Pupil
    from storage.store import Store
    from ui.runs.policies import Policies

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
    engine: str = LOCAL_ENGINE

    @cached_property
    def reader(self) -> Encoder:
        """The encoder, loaded."""
        from ui.runs import wiring

        return wiring.loaded_encoder(self.encoder, self.computing, engine=self.engine)


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
        from core.outcomes.lessons import known_of_table, table_behind
        from core.outcomes.rules import chosen_cascade

        if (table := table_behind(lessons.arena.pool)) is not None:
            known = known_of_table(table, lessons.validation)
            return cascade_policy(chosen_cascade(known, lessons.arena.turn_budget), policies.models)
        return cascade(lessons.arena, lessons.validation)

    return Pupil("cascade", policies.models, teach, ("validation",), cascade_episodes, looks_up=True)


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
    return Pupil(name.removesuffix(":"), policies.models, teach, ("validation",), every, needs=("samples",))


def _deciding(policies: Policies, name: str, *, may_learn: bool = False) -> Policy:
    """A policy that another one changes: it decides single turns."""
    inner = policies.resolve(name, may_learn=may_learn)
    if not inner.decides_turns:
        raise ConfigError(
            f"Policy '{name}' decides no single turns: name a model or a coordinator in its place."
        )
    return inner


def _without(policies: Policies, rest: str) -> Policy:
    from core.play.ensembles import WithoutModels, WithoutRole
    from core.play.policies import Pupil

    what, _, name = rest.partition(":")
    without: Callable[[Policy], Policy]
    if what in [*ROLE_ORDER]:
        inner = _deciding(policies, name, may_learn=True)
        without = partial(WithoutRole, role=Role(what))
    elif what.isdecimal() and 0 < int(what) < len(policies.models):
        inner = policies.resolve(name, may_learn=True)
        without = partial(WithoutModels, n=int(what))
    else:
        raise ConfigError(
            f"A policy cannot do without '{what}': give a role ({', '.join(ROLE_ORDER)}), or how many models, from 1 "
            f"to {len(policies.models) - 1}."
        )
    if isinstance(inner, Pupil):
        learned = inner.teach
        return replace(inner, id=f"without:{rest}", teach=lambda lessons: without(learned(lessons)))
    return without(inner)


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
        ("questions",),
        partial(_each_model, 1 if once else LABEL_REPEATS),
        _singles(policies),
        reads=True,
        looks_up=True,
        needs=("texts",),
    )


def _singles(policies: Policies) -> tuple[str, ...]:
    """Who plays by the best cycle of each model."""
    return tuple(f"single:{model}" for model in policies.models)


def _router(lessons: Lessons, ridge: float | None) -> Policy:
    from core.evolution.baselines import RIDGE, learned_router

    own = RIDGE if ridge is None else ridge
    router = learned_router(lessons.arena, lessons.cycles, lessons.reader, lessons.questions, ridge=own)
    return router if ridge is None else replace(router, id=f"router:{ridge:g}")


def _labelled(policies: Policies, rest: str) -> Policy:
    """Of "" or a number: how free its coefficients are; of features: what it knows of a question."""
    if rest and not rest[0].isdecimal():
        return routers.router("labels", policies, rest)
    return _taught("labels", _labels, policies, rest)


def _labels(lessons: Lessons, freedom: float | None) -> Policy:
    from core.evolution.baselines import FREEDOM, labelled_router

    own = FREEDOM if freedom is None else freedom
    router = labelled_router(lessons.arena, lessons.cycles, lessons.reader, lessons.questions, freedom=own)
    return router if freedom is None else replace(router, id=f"labels:{freedom:g}")


def _cloned(policies: Policies, rest: str) -> Policy:
    """Of "" or a number: how far a head of labels is held back; of a policy: who teaches the head."""
    if rest and not rest[0].isdecimal():
        return clones.of_policy(policies, rest)
    return _taught("cloned", partial(clones.of_labels, policies), policies, rest)


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


def _revise(policies: Policies, model: str) -> Policy:
    from core.play.policies import CyclePolicy, Pupil

    if model:
        return CyclePolicy(policies.models, (model,), (Role.WORKER, Role.VERIFIER), f"revise:{model}")

    def teach(lessons: Lessons) -> Policy:
        from core.evolution.rules import best_place, tried

        each = [_revise(policies, model) for model in policies.models]
        return each[best_place(tried(lessons.arena, each, lessons.validation))]

    return Pupil("revise", policies.models, teach, ("validation",), partial(_each_model, 1))


def _plan_and_solve(policies: Policies, _: str) -> Policy:
    from core.play.policies import Pupil

    def teach(lessons: Lessons) -> Policy:
        from core.evolution.rules import best_pair

        return best_pair(lessons.arena, lessons.validation)

    return Pupil("plan-and-solve", policies.models, teach, ("validation",), _each_pair, needs=("plans",))


def _by_family(policies: Policies, what: str) -> Policy:
    from core.play.policies import Pupil

    if what not in ("", "pairs"):
        raise ConfigError(f"A table by family holds no '{what}': give by-family, or by-family:pairs.")
    name = f"by-family:{what}" if what else "by-family"

    def teach(lessons: Lessons) -> Policy:
        from core.evolution.rules import needed_pairs, table_by_family

        arena, school = lessons.arena, rules.School(lessons)
        if what or school.table is None:
            candidates = needed_pairs(arena) if what else arena.singles(lessons.cycles)
            return table_by_family(arena, candidates, lessons.validation, lessons.tasks, name)
        singles, known = arena.singles(lessons.cycles), school.both.right.T
        return table_by_family(arena, singles, school.both_tasks, lessons.tasks, name, known)

    if what:
        return Pupil(name, policies.models, teach, ("validation",), _each_pair, needs=("plans",))
    alone = partial(_each_model, 1)
    return Pupil(name, policies.models, teach, ("validation",), alone, _singles(policies), looks_up=True)


def _ridge(policies: Policies, rest: str) -> Policy:
    from core.play.policies import Pupil

    features, family = routers.router_features("ridge", rest)
    if family:
        return routers.router("ridge", policies, rest)
    name, reads = f"ridge:{rest}" if rest else "ridge", features == "states"

    def teach(lessons: Lessons) -> Policy:
        from core.evolution.rules import ridge_rule
        from core.outcomes.lessons import table_behind

        if table_behind(lessons.arena.pool) is not None:  # where no pair can plan and solve
            return routers.taught_router("ridge", name, features, family, lessons)
        return ridge_rule(
            lessons.arena,
            lessons.cycles,
            lessons.questions,
            lessons.validation,
            lessons.tasks,
            features=features,
            encoder=lessons.reader if reads else None,
            name=name,
        )

    return Pupil(
        name,
        policies.models,
        teach,
        ("questions", "validation"),
        lambda models, tasks, turns: models * (models + 1) * tasks,
        _singles(policies),
        reads=reads,
        looks_up=True,
        needs=("texts",),
    )


def _each_pair(models: int, tasks: int, turns: int) -> int:
    """The episodes in which every pair of a planner and a solver plays every task once."""
    return models**2 * tasks


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
            "whole workflows; PLANNER is an id, random, fixed:NAME (single, plan-and-solve, chain, solvers, debate, "
            "automix, critic), prompted:MODEL or same-model:MODEL:PLANNER",
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
            "agree[:N][:ORDER]",
            "models in order of strength until two agree, at most N, else the first answer; ORDER: family (its own, "
            "which it is told), price, or a router",
            rules.agree,
        ),
        PolicyKind(
            "sure[:N][:ORDER]",
            "as agree, but only the first where a regression on the words of the question, and of the reply where it "
            "is recorded, is sure that it is right",
            partial(rules.agree, unless_sure=True),
        ),
        PolicyKind(
            "probe[:N][:ORDER]",
            "recorded models in order of strength until two agree or an answer is likely, by linear probes on the "
            "encoder's state, else the likeliest; ORDER: family or price",
            probes.probe,
        ),
        PolicyKind("vote[:K]", "the most frequent answer of the K strongest models", rules.vote),
        PolicyKind(
            "weighted-vote[:K][:family]",
            "as vote, each vote weighed by the log odds of its model, overall or in the family",
            partial(rules.vote, weighted=True),
        ),
        PolicyKind(
            "bayes[:CHANCE]",
            "models in order of strength until an answer has this chance by naive Bayes",
            rules.bayes,
        ),
        PolicyKind(
            "frugal",
            "recorded models in order of strength until a scorer that reads replies believes one (as FrugalGPT)",
            rules.frugal,
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
            "labels[:C|:FEATURES]",
            "each question to the model that solved the likes of it most often; C is how free the coefficients are, "
            "chosen on validation tasks where features are named",
            _labelled,
        ),
        PolicyKind(
            "cloned[:RIDGE|:POLICY]",
            "a coordinator whose head is taught by who solved each question, or by what a policy does on evolve tasks; "
            "it becomes a checkpoint",
            _cloned,
        ),
        PolicyKind(
            "plan-and-solve",
            "one model plans and one solves: the pair that does best on validation tasks, for all tasks",
            _plan_and_solve,
        ),
        PolicyKind(
            "by-family[:pairs]",
            "for each family of tasks, which it is told, the single model, or the pair that plans and solves, that "
            "does best on validation tasks",
            _by_family,
        ),
        PolicyKind(
            "ridge[:FEATURES]",
            "each question to the single model, or the pair that plans and solves, of which a ridge regression "
            "promises most; it knows of a question the encoder's states, or words (tfidf), and with :family its task's "
            "family too",
            _ridge,
        ),
        *(
            PolicyKind(f"{word}[:FEATURES]", words, partial(routers.router, word))
            for word, words in routers.ROUTERS.items()
        ),
        PolicyKind(
            "revise[:MODEL]",
            "one model answers, checks its answer, and answers again until it accepts; the best one on validation "
            "tasks where none is named",
            _revise,
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
