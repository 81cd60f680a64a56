"""Cascade, best answerer, labels and the head that clones them, over pools whose models do as they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder, load_encoder
from core.episode import Ask, Episode, Protocol, Role, Task
from core.errors import ConfigError
from core.evolution import baselines
from core.evolution.baselines import (
    Arena,
    best_answerer,
    best_cycles,
    cascade,
    cloned_from_labels,
    cloned_from_policy,
    labelled_router,
)
from core.evolution.config import EvolveConfig, label_episodes
from core.evolution.cycles import PLAIN_CYCLES, ChosenCycle
from core.evolution.evolve import Generation, evolve, teach
from core.evolution.fitness import label_weights
from core.learning import outcome, play_all
from core.play.ensembles import MixtureOfAgents
from core.play.policies import CyclePolicy, PolicyPerRequest, RandomPolicy, cascade_policy
from core.pool.cache import CachedPool
from core.tasks.graders import grade_many
from tests.builders.pools import Line, ScriptedPool, specs

MODELS = ("even", "odd", "judge")
TASKS = [Task(f"t{i}", f"What is {i} plus 0?", str(i), "number", "sums") for i in range(20)]


def number(ask: Ask) -> int:
    return int(ask.messages[-1].content.split("What is ")[1].split(" ")[0])


def say(ask: Ask) -> Line:
    """`even` solves even numbers and `odd` the others; `judge` knows what is right, the other two accept all."""
    right = number(ask)
    if ask.role is Role.VERIFIER:
        good = ask.messages[-1].content.endswith(f"answer {right}") or ask.model != "judge"
        return "so ACCEPT" if good else "so REVISE"
    able = {"even": right % 2 == 0, "odd": right % 2 == 1, "judge": False}[ask.model]
    return f"answer {right if able else right + 100}"


def arena(say: object = say, turn_budget: int = 5) -> Arena:
    return Arena(ScriptedPool(specs(MODELS), say), grade_many, turn_budget=turn_budget)  # type: ignore[arg-type]


def test_a_cascade_is_one_model_after_the_other_until_its_judge_accepts() -> None:
    place = arena()
    policy = cascade(place, TASKS)
    assert policy == cascade_policy(policy.id.removeprefix("cascade:").split("+"), MODELS)
    assert policy.steps[1] == policy.steps[3] == "judge"
    assert {policy.steps[0], policy.steps[2]} == {"even", "odd"}
    played = place.play(policy, TASKS)
    assert all(one.correct for one in played)
    assert Counter(len(one.turns) for one in played) == {2: 10, 4: 10}


def test_the_best_answerer_is_the_model_that_solves_most_alone() -> None:
    assert best_answerer(arena(), TASKS[:3]) == "even"  # 0 and 2
    assert best_answerer(arena(), TASKS[1:4]) == "odd"


def test_labels_go_to_who_solved_most_often_and_ties_count_evenly() -> None:
    solved = np.array([[1.0, 2 / 3, 0.0, np.nan], [1 / 3, 2 / 3, 0.0, 1.0]])
    assert label_weights(solved).tolist() == [[1.0, 0.5, 0.0, 0.0], [0.0, 0.5, 0.0, 1.0]]


def test_a_router_learns_from_labels_which_model_to_ask() -> None:
    words = {
        "even": "How many apples are in the basket of my brother when there are",
        "odd": "Name the element number",
    }
    tasks = [
        Task(f"{kind}{i}", f"{words[kind]} {i}?", str(i), "number", kind) for kind in words for i in range(30)
    ]

    def by_kind(ask: Ask) -> Line:
        text = ask.messages[-1].content
        able = ask.model == ("odd" if "element" in text else "even")
        value = int(text.split("?")[0].rpartition(" ")[2])
        return f"answer {value if able else value + 1}"

    cycles = {model: ChosenCycle((Role.WORKER,), 0.5) for model in MODELS}
    place = arena(by_kind, turn_budget=1)
    train, test = tasks[:20] + tasks[30:50], tasks[20:30] + tasks[50:]
    # Of forty questions little is learned under the default, which was chosen for hundreds.
    policy = labelled_router(place, cycles, load_encoder("pocket"), train, freedom=1.0)
    assert np.mean([bool(one.correct) for one in place.play(policy, test)]) > 0.9


PUPILS = ("sums", "names", "idle")
LESSONS = [
    task
    for i in range(20)
    for task in (
        Task(f"s{i}", f"What is {i} plus {i + 1}?", str(2 * i + 1), "number", "sums"),
        Task(f"n{i}", f"Which letter comes first in the word {'abcdefghij'[i % 10]}zebra{i}?", "abcdefghij"[i % 10],
             "exact", "names"),
    )
]  # fmt: skip


def say_what_is_asked(ask: Ask) -> Line:
    """One model adds, one reads letters, one does nothing."""
    text = ask.messages[-1].content
    if ask.model == "sums" and "plus" in text:
        first = int(text.split("What is ")[1].split(" ")[0])
        return f"answer {2 * first + 1}"
    if ask.model == "names" and "letter" in text:
        return f"answer {text.split('the word ')[1][0]}"
    return "answer nothing"


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder("pocket")


def classroom() -> Arena:
    return Arena(ScriptedPool(specs(PUPILS), say_what_is_asked), grade_many, turn_budget=2)


def test_the_head_learns_who_solves_what_and_in_which_role(encoder: Encoder) -> None:
    place = classroom()
    cycles = best_cycles(place, LESSONS[:8], PLAIN_CYCLES)
    template = Checkpoint.begin(PUPILS, encoder.identity)
    taught = outcome(cloned_from_labels(template, encoder, place, cycles, LESSONS[:24]))
    policy = Coordinator(taught, encoder, argmax=True)
    played = place.play(policy, LESSONS[24:])
    assert all(one.correct for one in played)
    chosen = {(one.task.family, one.turns[0].decision.model) for one in played}
    assert chosen == {("sums", "sums"), ("names", "names")}
    assert {turn.decision.role for one in played for turn in one.turns} == {Role.WORKER}
    assert np.array_equal(
        taught.vector,
        outcome(cloned_from_labels(template, encoder, classroom(), cycles, LESSONS[:24])).vector,
    )


def solver_then_idle() -> PolicyPerRequest:
    """Whoever solves such a question works, and `idle` verifies."""
    roles = (Role.WORKER, Role.VERIFIER)
    by_kind = {kind: CyclePolicy(PUPILS, (kind, "idle"), roles, "teacher") for kind in PUPILS[:2]}
    kind = {task.question: task.family for task in LESSONS}
    return PolicyPerRequest("teacher", PUPILS, lambda one: by_kind[kind[one.transcript.question]])


def test_the_head_learns_what_a_teacher_does_at_every_turn(encoder: Encoder) -> None:
    place, teacher, template = classroom(), solver_then_idle(), Checkpoint.begin(PUPILS, encoder.identity)
    steps = [*(clone := cloned_from_policy(template, encoder, place, teacher, LESSONS[:24]))]
    assert [one.done for one in steps] == [*range(1, 49)], "two turns of each question"
    assert not [*clone]
    taught = outcome(cloned_from_policy(template, encoder, place, teacher, LESSONS[:24]))
    assert taught.kind == "cloned"
    policy = Coordinator(taught, encoder, argmax=True)

    def chosen(by: Any, tasks: list[Task]) -> list[tuple[str, Role]]:
        played = place.play(by, tasks)
        return [(turn.decision.model, turn.decision.role) for one in played for turn in one.turns]

    assert chosen(policy, LESSONS[:24]) == chosen(teacher, LESSONS[:24]), "as on what it has seen"
    on_others = zip(chosen(policy, LESSONS[24:]), chosen(teacher, LESSONS[24:]), strict=True)
    assert np.mean([own == theirs for own, theirs in on_others]) > 0.9  # by chance one of nine


def test_a_teacher_that_teaches_nothing_is_refused(encoder: Encoder) -> None:
    template, place = Checkpoint.begin(PUPILS, encoder.identity), classroom()
    sparse = Checkpoint.begin(PUPILS, encoder.identity, head_kind="sparse")
    with pytest.raises(ConfigError, match="linear head alone"):
        outcome(cloned_from_policy(sparse, encoder, place, RandomPolicy(PUPILS), LESSONS[:4]))
    with pytest.raises(ConfigError, match="'mixture' decides no single turns"):
        outcome(cloned_from_policy(template, encoder, place, MixtureOfAgents(PUPILS), LESSONS[:4]))
    with pytest.raises(ConfigError, match="there is nothing to learn"):
        outcome(cloned_from_policy(template, encoder, place, RandomPolicy(PUPILS), []))


def test_an_evolution_goes_on_from_labels_and_counts_their_episodes(
    encoder: Encoder,
) -> None:
    chosen = EvolveConfig(
        generations=2,
        population=4,
        tasks_per_candidate=4,
        turn_budget=2,
        label_questions=12,
        validate_every=2,
    )

    def evolved(template: Checkpoint, **begun: Any) -> list[Generation]:
        place, tasks = classroom(), LESSONS[:30]
        steps = evolve(
            chosen, template, encoder=encoder, pool=place.pool, grade=grade_many, tasks=tasks,
            validation_tasks=LESSONS[30:], **begun,
        )  # fmt: skip
        return [one for one in steps if isinstance(one, Generation)]

    found = evolved(Checkpoint.begin(PUPILS, encoder.identity))
    first = found[0]
    assert first.label_episodes == label_episodes(3, 12)
    assert first.checkpoint.kind == "labels"
    assert first.validation is not None
    assert first.validation.accuracy > 0.8  # before anything is evolved
    assert found[1].label_episodes is None
    assert np.linalg.norm(found[1].checkpoint.vector - first.checkpoint.vector) > 0
    (last,) = evolved(first.checkpoint, start=found[1].state, next_tasks=found[1].next_tasks)  # resumed
    assert last.checkpoint.id == found[2].checkpoint.id


def test_labels_are_played_by_the_rules_of_the_evolution(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules: set[Protocol | None] = set()

    def watched(episodes: Iterable[Episode], *rest: Any, **masks: Any) -> list[Episode]:
        ended = play_all(episodes, *rest, **masks)
        rules.update(one.protocol for one in ended)
        return ended

    monkeypatch.setattr(baselines, "play_all", watched)
    template = Checkpoint.begin(PUPILS, encoder.identity, protocol=Protocol.RELEASED)
    config = EvolveConfig(turn_budget=2, label_questions=6)
    place = classroom()
    told = [*teach(config, template, encoder, CachedPool(place.pool), grade_many, LESSONS[:6])]
    assert [one.done for one in told] == [*range(1, told[0].of + 1)]
    assert rules == {Protocol.RELEASED}


def test_what_cannot_be_taught_is_refused(encoder: Encoder) -> None:
    place = classroom()
    cycles = best_cycles(place, LESSONS[:8], PLAIN_CYCLES)
    sparse = Checkpoint.begin(PUPILS, encoder.identity, head_kind="sparse")
    with pytest.raises(ConfigError, match="linear head alone"):
        outcome(cloned_from_labels(sparse, encoder, place, cycles, LESSONS[:4]))
    hopeless = Arena(ScriptedPool(specs(PUPILS), lambda _: "answer no"), grade_many, turn_budget=2)
    with pytest.raises(ConfigError, match="nothing to learn"):
        outcome(
            cloned_from_labels(
                Checkpoint.begin(PUPILS, encoder.identity), encoder, hopeless, cycles, LESSONS[:4]
            )
        )
    with pytest.raises(ConfigError, match="label_questions cannot be -1"):
        EvolveConfig(label_questions=-1)
