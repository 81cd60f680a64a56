"""Learned routers as policies: how their names are read, and how one is taught."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from core.errors import ConfigError

if TYPE_CHECKING:
    from core.outcomes.features import FeatureName
    from core.play.policies import Policy
    from ui.runs.policies import Policies
    from ui.runs.policy_kinds import Lessons

#: Policies that are such routers and nothing else, and what they do; `core.outcomes.routers` has how.
ROUTERS: Mapping[str, str] = {
    "knn": "each question to the model that got most of the nearest known questions right",
    "logistic": "each question to the model that is likeliest to be right by a logistic regression",
    "routellm": "each question to the strongest model by battles on similar questions (RouteLLM, similarity-weighted)",
    "routellm-mf": "the same by factors of models and questions (RouteLLM, matrix factorisation)",
    "routerdc": "each question to the model whose embedding is nearest (RouterDC, dual contrastive learning)",
}
#: Behind a router's name: it is told the family of each task, which no coordinator is.
FAMILY = "family"


def router(word: str, policies: Policies, rest: str) -> Policy:
    """Of "", "tfidf", "family" or "tfidf:family": what the router knows of a task. ConfigError for anything else."""
    from core.play.policies import Pupil

    features, family = router_features(word, rest)
    name = f"{word}:{rest}" if rest else word
    return Pupil(
        name,
        policies.models,
        partial(taught_router, word, name, features, family),
        ("questions", "validation"),
        lambda models, tasks, turns: models * tasks,
        tuple(f"single:{model}" for model in policies.models),
        reads=features == "states",
        looks_up=True,
        needs=("texts",),
    )


def router_features(word: str, rest: str) -> tuple[FeatureName, bool]:
    """What stands behind a router's word: its features, and whether it is told families. ConfigError for others."""
    from core.outcomes.features import FEATURES

    parts = rest.split(":") if rest else []
    told = parts[-1:] == [FAMILY]
    named = ":".join(parts[: len(parts) - told] or FEATURES[:1])
    features = next((one for one in FEATURES if one == named), None)
    if features is None:
        raise ConfigError(
            f"'{rest}' is nothing that {word} knows of a question: give {' or '.join(FEATURES)}, and "
            f":{FAMILY} behind it where it is to be told each task's family."
        )
    return features, told


def taught_router(word: str, name: str, features: FeatureName, family: bool, lessons: Lessons) -> Policy:
    """A router of single models: recorded ones answer once, others play at their best cycle of roles."""
    from core.episode import Role
    from core.evolution.baselines import outcomes_of, question_states
    from core.outcomes.features import reader_of
    from core.outcomes.lessons import table_behind
    from core.outcomes.routers import LEARNERS, learn_router, policy_of_router
    from core.play.policies import single_policy

    arena, learner = lessons.arena, LEARNERS[word]
    taught_by, chosen_on = (
        outcomes_of(arena, lessons.cycles, tasks) for tasks in (lessons.questions, lessons.validation)
    )
    read = reader_of(
        features,
        lessons.questions,
        lambda questions: question_states(lessons.reader, questions),
        family=family,
        dense=learner.dense,
    )
    learned = learn_router(
        learner, name, read, lessons.questions, taught_by, lessons.validation, chosen_on, seed=arena.seed
    )
    if table_behind(arena.pool) is None:
        return policy_of_router(learned, arena.singles(lessons.cycles), lessons.tasks)
    alone = [single_policy(model, arena.models, (Role.WORKER,)) for model in arena.models]
    return policy_of_router(learned, alone, lessons.tasks, turns=1)
