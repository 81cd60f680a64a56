"""Labels: the head clones, turn by turn, the model that does best on each question."""

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
from core.evolution.baselines import Arena, best_cycles, cloned_from_labels
from core.evolution.config import EvolveConfig, label_episodes
from core.evolution.cycles import PLAIN_CYCLES
from core.evolution.evolve import Generation, evolve, taught
from core.learning import play_all
from core.pool.cache import CachedPool
from core.tasks.graders import grade_many
from tests.builders.pools import Line, ScriptedPool, specs

MODELS = ("sums", "names", "idle")
TASKS = [
    task
    for i in range(20)
    for task in (
        Task(f"s{i}", f"What is {i} plus {i + 1}?", str(2 * i + 1), "number", "sums"),
        Task(f"n{i}", f"Which letter comes first in the word {'abcdefghij'[i % 10]}zebra{i}?", "abcdefghij"[i % 10],
             "exact", "names"),
    )
]  # fmt: skip


def say(ask: Ask) -> Line:
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


def arena() -> Arena:
    return Arena(ScriptedPool(specs(MODELS), say), grade_many, turn_budget=2)


def test_the_head_learns_who_solves_what_and_in_which_role(encoder: Encoder) -> None:
    place = arena()
    cycles = best_cycles(place, TASKS[:8], PLAIN_CYCLES)
    template = Checkpoint.begin(MODELS, encoder.identity)
    taught = cloned_from_labels(template, encoder, place, cycles, TASKS[:24])
    policy = Coordinator(taught, encoder, argmax=True)
    played = place.play(policy, TASKS[24:])
    assert all(one.correct for one in played)
    chosen = {(one.task.family, one.turns[0].decision.model) for one in played}
    assert chosen == {("sums", "sums"), ("names", "names")}
    assert {turn.decision.role for one in played for turn in one.turns} == {Role.WORKER}
    assert np.array_equal(
        taught.vector, cloned_from_labels(template, encoder, arena(), cycles, TASKS[:24]).vector
    )


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
        place, tasks = arena(), TASKS[:30]
        return list(
            evolve(
                chosen, template, encoder=encoder, pool=place.pool, grade=grade_many, tasks=tasks,
                validation_tasks=TASKS[30:], **begun,
            )
        )  # fmt: skip

    found = evolved(Checkpoint.begin(MODELS, encoder.identity))
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
    template = Checkpoint.begin(MODELS, encoder.identity, protocol=Protocol.RELEASED)
    config = EvolveConfig(turn_budget=2, label_questions=6)
    place = arena()
    taught(config, template, encoder, CachedPool(place.pool), grade_many, TASKS[:6])
    assert rules == {Protocol.RELEASED}


def test_what_cannot_be_taught_is_refused(encoder: Encoder) -> None:
    place = arena()
    cycles = best_cycles(place, TASKS[:8], PLAIN_CYCLES)
    sparse = Checkpoint.begin(MODELS, encoder.identity, head_kind="sparse")
    with pytest.raises(ConfigError, match="linear head alone"):
        cloned_from_labels(sparse, encoder, place, cycles, TASKS[:4])
    hopeless = Arena(ScriptedPool(specs(MODELS), lambda _: "answer no"), grade_many, turn_budget=2)
    with pytest.raises(ConfigError, match="nothing to learn"):
        cloned_from_labels(Checkpoint.begin(MODELS, encoder.identity), encoder, hopeless, cycles, TASKS[:4])
    with pytest.raises(ConfigError, match="label_questions cannot be -1"):
        EvolveConfig(label_questions=-1)
