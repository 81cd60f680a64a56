"""The evolution loop on a real (tiny) encoder and a scripted pool: learning, stopping, resuming, failures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.checkpoint import Checkpoint
from core.coordinator.encoder import Encoder, load_encoder
from core.episode import Ask, Failure, Role, Task
from core.errors import ConfigError, PoolError
from core.evolution.baselines import Arena, best_cycles, best_single
from core.evolution.cycles import CYCLES
from core.evolution.evolve import EvolveConfig, Generation, draw, evolve, mean_state_norm, random_walk
from core.evolution.sep_cma import SepCMAState, start
from core.pool.scripted import Line, ScriptedPool
from core.pool.spec import ModelSpec
from core.tasks.graders import grade_many
from tests.core.tiny_encoder import tiny_qwen3

TASKS = [
    Task(f"t{i}", f"What is {i} plus {i}?", str(2 * i), "number", "sums" if i % 2 else "more")
    for i in range(24)
]
SPECS = [ModelSpec(name, dialect="terse", provider="scripted") for name in ("good", "bad", "broken")]
CONFIG = EvolveConfig(
    generations=12, population=12, tasks_per_candidate=8, validate_every=6, turn_budget=3, seed=3
)


def say(ask: Ask) -> Line:
    """`good` solves, `bad` does not, `broken` has a network that is down for one task."""
    if ask.role is not Role.WORKER:
        return "add them" if ask.role is Role.THINKER else "it looks right ACCEPT"
    number = int(ask.messages[-1].content.split("What is ")[1].split(" ")[0])
    if ask.model == "broken" and number == 3:
        return Failure("infrastructure", "The network is down.")
    return f"answer {2 * number if ask.model == 'good' else 2 * number + 1}"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return load_encoder(str(tiny_qwen3(tmp_path_factory.mktemp("encoder"))))


def run(
    encoder: Encoder, config: EvolveConfig = CONFIG, resumed_from: SepCMAState | None = None
) -> list[Generation]:
    pool = ScriptedPool(SPECS, say)
    template = Checkpoint.zeros([spec.name for spec in SPECS], encoder.identity)
    parts = {
        "encoder": encoder,
        "pool": pool,
        "grade": grade_many,
        "tasks": TASKS[:16],
        "validation_tasks": TASKS[16:],
    }
    return list(evolve(config, template, start=resumed_from, **parts))  # type: ignore[arg-type]


def test_it_learns_whom_to_ask_and_the_mean_holds_on_other_tasks(encoder: Encoder) -> None:
    generations = run(encoder)
    assert [generation.index for generation in generations] == list(range(13))
    assert not generations[0].fitness
    first, last = generations[1], generations[-1]
    assert first.episodes
    assert last.episodes
    assert last.validation
    assert last.episodes.accuracy > first.episodes.accuracy + 0.2
    assert last.validation.accuracy > 0.75
    assert last.calls_saved > last.calls
    assert len({generation.checkpoint.id for generation in generations}) == 13
    assert last.checkpoint.generation == 12


def test_stopped_and_resumed_it_ends_bit_for_bit_the_same(encoder: Encoder) -> None:
    straight = run(encoder)
    saved = SepCMAState.from_bytes(straight[5].state.to_bytes())
    resumed = run(encoder, resumed_from=saved)
    assert [one.index for one in resumed] == list(range(6, 13))
    assert resumed[-1].state.digest == straight[-1].state.digest
    assert resumed[-1].checkpoint == straight[-1].checkpoint
    assert resumed[0].fitness == straight[6].fitness


def test_infrastructure_failures_are_missing_and_not_zero(encoder: Encoder) -> None:
    only_broken = replace(CONFIG, generations=1, tasks_per_candidate=16)
    generation = run(encoder, only_broken)[1]
    assert sum(generation.missing) > 0
    assert generation.episodes
    assert generation.episodes.missing == sum(generation.missing)


def test_tasks_are_common_or_drawn_per_candidate_and_mixed_by_family() -> None:
    common = [draw(TASKS, CONFIG, 1, candidate) for candidate in (0, 1)]
    assert common[0] == common[1] != draw(TASKS, CONFIG, 2, 0)
    own = replace(CONFIG, common=False)
    assert draw(TASKS, own, 1, 0) != draw(TASKS, own, 1, 1)
    assert {task.family for task in common[0]} == {"sums", "more"}
    assert len({task.id for task in common[0]}) == 8


def test_step_size_gives_the_wanted_spread_of_logits(encoder: Encoder) -> None:
    template = Checkpoint.zeros([spec.name for spec in SPECS], encoder.identity)
    norm = mean_state_norm(encoder, TASKS, template)
    generation = run(encoder, replace(CONFIG, generations=1, logit_spread=5.0))[0]
    assert generation.state.step_size * norm == pytest.approx(5.0)


def test_random_walk_moves_as_far_without_any_reward() -> None:
    state = start(np.zeros(50), 0.3, population=12, seed=1)
    walked = random_walk(CONFIG, state)
    assert np.linalg.norm(walked) > 0
    assert np.array_equal(walked, random_walk(CONFIG, state))


def test_the_best_single_model_plays_its_best_cycle() -> None:
    arena = Arena(ScriptedPool(SPECS[:2], say), grade_many, turn_budget=3)
    assert len(CYCLES) == len({(cycle * 6)[:6] for cycle in CYCLES}) == 23
    cycles = best_cycles(arena, TASKS[:6])
    assert cycles["good"].accuracy == 1.0
    assert cycles["good"].cycle == (Role.WORKER, Role.VERIFIER)  # as right as any other, in the fewest turns
    assert cycles["bad"].accuracy == 0.0
    assert best_single(arena, cycles).id == "single:good"


def test_settings_that_do_nothing_are_refused(encoder: Encoder) -> None:
    with pytest.raises(ConfigError, match="generations of 0"):
        replace(CONFIG, generations=0)
    with pytest.raises(ConfigError, match="no tasks"):
        list(
            evolve(
                CONFIG,
                Checkpoint.zeros(["a"], encoder.identity),
                encoder=encoder,
                pool=ScriptedPool(SPECS, say),
                grade=grade_many,
                tasks=[],
            )
        )


@pytest.mark.parametrize(
    ("changed", "what"),
    [({"seed": 4}, "seed 3"), ({"population": 10}, "population 12"), ({"rates": "pycma"}, "rates cmaes")],
)
def test_a_resume_against_a_changed_configuration_is_refused(
    encoder: Encoder, changed: dict[str, Any], what: str
) -> None:
    state = run(encoder, replace(CONFIG, generations=1))[0].state
    with pytest.raises(ConfigError, match=what):
        run(encoder, replace(CONFIG, **changed), resumed_from=state)


def test_a_generation_in_which_no_model_answers_ends_the_evolution(encoder: Encoder) -> None:
    down = ScriptedPool(SPECS, lambda ask: Failure("infrastructure", "The network is down."))
    template = Checkpoint.zeros([spec.name for spec in SPECS], encoder.identity)
    generations = evolve(CONFIG, template, encoder=encoder, pool=down, grade=grade_many, tasks=TASKS)
    assert next(generations).index == 0
    with pytest.raises(PoolError, match="generation 1 .*network is down"):
        next(generations)


def test_it_learns_with_the_rates_of_pycma_too(encoder: Encoder) -> None:
    generations = run(encoder, replace(CONFIG, rates="pycma"))
    first, last = generations[1].episodes, generations[-1].validation
    assert first
    assert last
    assert last.accuracy > first.accuracy + 0.2
