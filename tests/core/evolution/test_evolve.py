"""The evolution loop on a real (tiny) encoder and a scripted pool: learning, stopping, resuming, failures."""

import base64
import json
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from core import learning as loop
from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder
from core.coordinator.states import Reading
from core.coordinator.svf import svf_layout
from core.draws import derive_seed
from core.episode import Ask, Decide, EndReason, Episode, Failure, Protocol, Role, Task, Transcript
from core.errors import ConfigError, PoolError
from core.evolution.baselines import Arena, learned_router
from core.evolution.config import EvolveConfig
from core.evolution.cycles import ChosenCycle
from core.evolution.evolve import (
    Generation,
    adapted_task_count,
    evolve,
    random_walk,
    tasks_of_candidate,
    unplayed,
    validation_seed,
)
from core.evolution.fitness import EpisodeStatistics, GenerationStats, Step, statistics_of
from core.evolution.learners import begin, read_state
from core.evolution.search import SearchSpace, Survey, sketches, space_of, survey, survey_of
from core.evolution.sep_cma import SepCMAState
from core.heads import HeadKind
from core.learning import Playing, episodes_of, play_all, playing
from core.play.policies import CyclePolicy
from core.tasks.graders import grade_many
from tests.builders.pools import Line, ScriptedPool, specs

TASKS = [
    Task(f"t{i}", f"What is {i} plus {i}?", str(2 * i), "number", "sums" if i % 2 else "more")
    for i in range(24)
]
SPECS = specs(("good", "bad", "broken"))
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


def begun(encoder: Encoder, **fields: Any) -> Checkpoint:
    """Generation 0."""
    return Checkpoint.begin([spec.name for spec in SPECS], encoder.identity, **fields)


def steps_of(
    encoder: Encoder, config: EvolveConfig = CONFIG, template: Checkpoint | None = None, **parts: Any
) -> Iterator[Generation]:
    """Each generation, played when it is asked for."""
    known = {"pool": ScriptedPool(SPECS, say), "tasks": TASKS[:16], "validation_tasks": TASKS[16:]}
    template = template or begun(encoder)
    for step in evolve(config, template, encoder=encoder, grade=grade_many, **{**known, **parts}):
        if isinstance(step, Generation):
            yield step


def run(
    encoder: Encoder, config: EvolveConfig = CONFIG, template: Checkpoint | None = None, **parts: Any
) -> list[Generation]:
    return list(steps_of(encoder, config, template, **parts))


@pytest.fixture(scope="module")
def straight(encoder: Encoder) -> list[Generation]:
    """An evolution from its begin to its end."""
    return run(encoder)


def accuracy(statistics: EpisodeStatistics | None) -> float:
    assert statistics is not None
    return statistics.accuracy


def space(encoder: Encoder, template: Checkpoint, **fields: Any) -> SearchSpace:
    return space_of(replace(CONFIG, **fields), template, encoder, TASKS[:16])


def test_it_learns_whom_to_ask_and_the_mean_holds_on_other_tasks(straight: list[Generation]) -> None:
    assert [generation.index for generation in straight] == list(range(13))
    assert not straight[0].fitness
    first, last = straight[1], straight[-1]
    assert accuracy(last.episodes) > accuracy(first.episodes) + 0.2
    assert accuracy(last.validation) > 0.75
    assert last.calls_saved > last.calls
    assert len({generation.checkpoint.id for generation in straight}) == 13
    assert last.checkpoint.generation == 12


@pytest.mark.integration
@pytest.mark.parametrize(("constant_spread", "generations"), [(None, 6), (1.0, 12)])
def test_it_learns_however_constant_preferences_are_searched(
    encoder: Encoder, constant_spread: float | None, generations: int
) -> None:
    config = replace(CONFIG, constant_spread=constant_spread, generations=generations)
    found = run(encoder, config, validation_tasks=())
    assert accuracy(found[-1].episodes) > accuracy(found[1].episodes) + 0.2


def test_what_was_surveyed_of_the_encoder_is_kept_and_not_measured_again(
    encoder: Encoder, straight: list[Generation]
) -> None:
    kept = GenerationStats.of(json.loads(json.dumps(straight[0].to_json())))
    assert "mean_state" not in straight[1].to_json()
    survey = Survey.kept(kept.steps, kept.mean_state, begun(encoder))
    assert survey is not None
    fresh = survey_of(CONFIG, begun(encoder), encoder, TASKS[:16])
    assert fresh.steps == survey.steps
    np.testing.assert_array_equal(fresh.mean_state, survey.mean_state)
    read = encoder.states_given
    (last,) = run(encoder, start=read_state(straight[11].state.to_bytes()), surveyed=survey)
    assert last.state.digest == straight[12].state.digest
    validated = last.validation.n * CONFIG.turn_budget if last.validation else 0
    assert encoder.states_given - read <= (last.decisions or 0) + validated


def test_a_survey_tells_how_far_it_is_and_may_be_smaller(encoder: Encoder) -> None:
    layout = svf_layout(encoder.model, [2], embeddings=False)
    steps = survey(CONFIG, begun(encoder, svf_layout=layout), encoder, TASKS[:16], 40)
    told = []
    while True:
        try:
            told.append(next(steps))
        except StopIteration as end:
            small: Survey = end.value
            break
    assert [one.done for one in told] == [*range(1, 41), 72, 104]
    assert {one.of for one in told} == {104}
    whole = survey_of(CONFIG, begun(encoder), encoder, TASKS[:16])
    cosine = small.mean_state @ whole.mean_state
    assert cosine > 0.98 * np.linalg.norm(small.mean_state) * np.linalg.norm(whole.mean_state)
    assert small.steps["head"].step_size == pytest.approx(whole.steps["head"].step_size, rel=0.2)
    first, *_ = evolve(
        CONFIG, begun(encoder), encoder=encoder, grade=grade_many, pool=ScriptedPool(SPECS, say),
        tasks=TASKS[:16], sketches=5,
    )  # fmt: skip
    assert first == Reading(1, 5)


def test_how_far_the_episodes_of_a_generation_are_is_told(encoder: Encoder) -> None:
    config = replace(CONFIG, generations=1, tasks_per_candidate=2)
    events = evolve(
        config, begun(encoder), encoder=encoder, grade=grade_many, pool=ScriptedPool(SPECS, say),
        tasks=TASKS[:16], validation_tasks=TASKS[16:18], sketches=5,
    )  # fmt: skip
    told: dict[str, list[Playing]] = {}
    for event in events:
        if isinstance(event, Playing):
            told.setdefault(event.what, []).append(event)
    exams = ("the validation of generation 0", "the validation of generation 1")
    assert list(told) == [exams[0], "generation 1", exams[1]]
    first = told["generation 1"]
    assert {one.of for one in first} == {CONFIG.population * 2}
    assert [one.done for one in first] == sorted(one.done for one in first)
    assert first[0].turns == 1 < first[-1].turns
    assert (first[0].done, first[-1].done) == (0, first[-1].of)


@pytest.mark.parametrize("packed", ["", "AAAA", "!", "naïve", "A" * 320])
def test_a_survey_that_is_none_is_made_again(encoder: Encoder, packed: str) -> None:
    template = begun(encoder)
    assert Survey.kept({"head": Step(1.0, 1.0)}, packed, template) is None
    width = encoder.identity.hidden_size
    whole = base64.b64encode(np.ones(width).tobytes()).decode()
    assert Survey.kept({}, whole, template) is None
    assert Survey.kept({"head": Step(1.0, 1.0)}, whole, template) is not None


def test_candidates_play_as_the_coordinator_of_their_checkpoint_does(encoder: Encoder) -> None:
    """With next to no step every candidate is the template, whatever the template reads and plays by."""
    one = replace(
        CONFIG, generations=1, step_size=1e-9, constant_spread=None, population=2, tasks_per_candidate=16
    )
    template = begun(encoder, input_format="chat", token_position=-1, protocol=Protocol.RELEASED)
    template = template.with_vector(np.random.default_rng(5).normal(size=len(template.vector)))
    pool = ScriptedPool(SPECS, say)
    played = steps_of(encoder, one, template, validation_tasks=())
    episodes = episodes_of(
        tasks_of_candidate(TASKS[:16], one, 0, 0),
        template.models,
        seed=derive_seed((one.seed, "replies", 0)),
        turn_budget=one.turn_budget,
        prefix="alone",
        protocol=template.protocol,
    )
    alone = play_all(episodes, Coordinator(template, encoder), pool, grade_many)
    assert any(episode.end_reason is EndReason.VERIFIER_FIRST for episode in alone)
    assert list(played)[1].episodes == statistics_of(alone + alone)
    exam = unplayed(one, template, TASKS[:16], "v", validation_seed(one))
    played_exam = play_all(exam, Coordinator(template, encoder), pool, grade_many)
    assert statistics_of(played_exam).turns_mean < one.turn_budget


def test_infrastructure_failures_are_missing_and_not_zero(encoder: Encoder) -> None:
    only_broken = replace(CONFIG, generations=1, tasks_per_candidate=16)
    generation = run(encoder, only_broken)[1]
    assert sum(generation.missing) > 0
    assert generation.episodes
    assert generation.episodes.missing == sum(generation.missing)


def test_an_outage_of_a_moment_is_played_again(encoder: Encoder) -> None:
    """Every first call fails for a while: the episodes that it cost are played once more, and no reply twice."""
    down = [25]
    answered: list[Ask] = []

    def flaky(ask: Ask) -> Line:
        if down[0] and len(answered) >= 20:
            down[0] -= 1
            return Failure("infrastructure", "The network is down.")
        answered.append(ask)
        return "answer 1"

    config, pool = replace(CONFIG, generations=1), ScriptedPool(SPECS, flaky)
    *_, generation = steps_of(encoder, config, pool=pool, validation_tasks=())
    assert down[0] == 0
    assert sum(generation.missing) == 0
    keys = Counter((ask.model, ask.messages, ask.sample, ask.seed) for ask in answered)
    assert max(keys.values()) == 1


def test_a_missing_episode_is_neither_short_nor_unaccepted() -> None:
    models = tuple(spec.name for spec in SPECS)
    policy = CyclePolicy(models, ("good", "bad"), (Role.WORKER, Role.VERIFIER), "")
    breaks = ScriptedPool(
        SPECS,
        lambda ask: (
            Failure("infrastructure", "Down.")
            if "3 plus 3?\nanswer" in ask.messages[-1].content
            else say(ask)
        ),
    )
    played = play_all(
        episodes_of(TASKS[:6], models, seed=0, turn_budget=4, prefix="m"), policy, breaks, grade_many
    )
    found = statistics_of(played)
    assert (found.accuracy, found.n, found.missing) == (1.0, 5, 1)
    assert (found.accept_rate, found.turns_mean) == (1.0, 2.0)
    assert found.shares == {("good", "worker"): 0.5, ("bad", "verifier"): 0.5}


def test_the_error_of_a_mean_knows_that_candidates_play_the_same_tasks() -> None:
    """Two tasks, one always solved and one never, by however many candidates: the mean could be 0, 0.5 or 1."""
    models = tuple(spec.name for spec in SPECS)
    policy = CyclePolicy(models, ("good",), (Role.WORKER,), "")
    solves = ScriptedPool(
        SPECS, lambda ask: say(ask) if "0 plus 0?" in ask.messages[-1].content else "answer 1"
    )
    few, many = (
        statistics_of(
            play_all(
                episodes_of(TASKS[:2] * n, models, seed=0, turn_budget=1, prefix="m"),
                policy,
                solves,
                grade_many,
            )
        )
        for n in (1, 100)
    )
    assert (few.accuracy, many.accuracy) == (0.5, 0.5)
    assert few.error == many.error == pytest.approx(0.5)


def test_a_router_takes_missing_episodes_for_neither_right_nor_wrong(
    encoder: Encoder,
) -> None:
    def seldom_up(ask: Ask) -> Line:
        number = int(ask.messages[-1].content.split("What is ")[1].split(" ")[0])
        if ask.model == "good" and number < 12:
            return Failure("infrastructure", "Down.")
        return f"answer {2 * number + (ask.model == 'bad' and number % 2)}"

    arena = Arena(ScriptedPool(SPECS[:2], seldom_up), grade_many, turn_budget=1)
    cycles = {name: ChosenCycle((Role.WORKER,), 1.0) for name in arena.models}
    router = learned_router(arena, cycles, encoder, TASKS[:16], ridge=1e6)
    asked = [Decide(Transcript(task.question), 0, task.id) for task in TASKS[16:]]
    assert {decision.model for decision in router.decide(asked)} == {"good"}


@pytest.mark.parametrize("common", [True, False])
def test_candidates_share_chances_only_where_they_share_tasks(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch, common: bool
) -> None:
    seeds: dict[str, set[int]] = {}

    def watched(episodes: Sequence[Episode], *rest: Any) -> Generator[Playing, None, list[Episode]]:
        for one in episodes:
            if one.id.startswith("c"):
                seeds.setdefault(one.id.partition("-")[0], set()).add(one.seed)
        return playing(episodes, *rest)

    monkeypatch.setattr(loop, "playing", watched)
    list(steps_of(encoder, replace(CONFIG, common=common, generations=1, tasks_per_candidate=2)))
    firsts = [min(of) for of in seeds.values()]
    assert len(firsts) == CONFIG.population
    assert len(set.union(*seeds.values())) == 1 if common else len(set(firsts)) == len(firsts)


def test_tasks_are_common_or_drawn_per_candidate_and_mixed_by_family() -> None:
    common = [tasks_of_candidate(TASKS, CONFIG, 1, candidate) for candidate in (0, 1)]
    assert common[0] == common[1] != tasks_of_candidate(TASKS, CONFIG, 2, 0)
    own = replace(CONFIG, common=False)
    assert tasks_of_candidate(TASKS, own, 1, 0) != tasks_of_candidate(TASKS, own, 1, 1)
    assert len({task.id for task in tasks_of_candidate(TASKS, own, 1, 0, 24)}) < 24  # with replacement
    assert {task.family for task in common[0]} == {"sums", "more"}
    assert len({task.id for task in common[0]}) == 8


def test_more_tasks_are_played_while_candidates_are_not_told_apart_and_fewer_when_they_are() -> None:
    config = replace(CONFIG, tasks_per_candidate=8, adaptive=True)
    rng = np.random.default_rng(0)
    alike = (rng.random((64, 8)) < 0.5).astype(float)
    assert adapted_task_count(config, alike) == 12
    apart = np.repeat([[1.0], [0.0]], 32, axis=0) * np.ones((64, 8))
    assert adapted_task_count(config, apart) == 5
    assert adapted_task_count(config, np.ones((64, 8))) == 12  # nothing was told apart at all
    assert adapted_task_count(config, (rng.random((64, 31)) < 0.5).astype(float)) == 32
    assert adapted_task_count(config, apart[:, :2]) == 2
    some = apart.copy()
    some[::7, 3] = np.nan
    some[5] = np.nan
    assert adapted_task_count(config, some) == 5


@pytest.mark.integration
def test_an_adaptive_evolution_plays_more_or_fewer_tasks(encoder: Encoder) -> None:
    config = replace(CONFIG, generations=3, adaptive=True)
    straight = run(encoder, config)
    assert len({generation.tasks_per_candidate for generation in straight[1:]}) > 1
    assert all(
        len(one.fitness) * one.tasks_per_candidate == one.episodes.n + one.episodes.missing
        for one in straight[1:]
        if one.episodes
    )


def test_step_size_gives_the_wanted_spread_of_logits(encoder: Encoder) -> None:
    template = begun(encoder)
    states = encoder.encode(sketches(TASKS[:16], template.models, CONFIG.turn_budget)).states.astype(float)
    mean = states.mean(axis=0)
    plain = 5.0 * np.linalg.norm(mean) / np.linalg.norm(states, axis=1).mean()
    for constant, spread_of_all in ((0.5, 0.5), (None, plain)):
        config = replace(CONFIG, generations=1, logit_spread=5.0, population=400, constant_spread=constant)
        state = next(steps_of(encoder, config)).state
        heads = space_of(config, template, encoder, TASKS[:16]).vectors(state.ask()).reshape(400, 6, -1)
        about = states if constant is None else states - mean
        assert (heads @ about.T).std(axis=0).mean() == pytest.approx(5.0, rel=0.1)
        assert (heads @ mean).std(axis=0).mean() == pytest.approx(spread_of_all, rel=0.15)


def test_without_a_constant_spread_no_preference_changes_that_all_transcripts_share(encoder: Encoder) -> None:
    template = begun(encoder)
    template = template.with_vector(np.random.default_rng(5).normal(size=len(template.vector)))
    requests = sketches(TASKS[:16], template.models, 3)
    assert {len(one.transcript.entries) for one in requests} == {0, 1, 2}
    mean = encoder.encode(requests).states.astype(float).mean(axis=0)
    before = template.vector.reshape(6, -1) @ mean
    around = space(encoder, template, logit_spread=5.0)
    points = SepCMAState.start(np.asarray(template.vector, float), 0.5, population=12, seed=1).ask()
    assert np.allclose(around.vectors(points).reshape(12, 6, -1) @ mean, before)
    assert np.allclose(around.vectors(around.vectors(points)), around.vectors(points))
    plain = space(encoder, template, logit_spread=5.0, constant_spread=None)
    assert np.array_equal(plain.vectors(points), points)
    assert plain.step_size < around.step_size


@pytest.mark.integration
@pytest.mark.parametrize("kind", get_args(HeadKind))
def test_every_head_begins_with_the_wanted_spread_and_is_evolved(encoder: Encoder, kind: HeadKind) -> None:
    template = begun(encoder, head_kind=kind)
    around = space(encoder, template, logit_spread=5.0)
    assert around.survey.steps["head"].logit_spread == pytest.approx(5.0, rel=1e-3)
    requests = sketches(TASKS[:16], template.models, 3)
    states = encoder.encode(requests).states.astype(float)
    origin = np.asarray(template.vector, float)
    vectors = around.vectors(SepCMAState.start(origin, around.step_size, population=200, seed=1).ask())
    turns = [request.index for request in requests]
    z = np.array([template.head.logits(states, vector, turns) for vector in vectors])
    assert np.sqrt(z.var(axis=0).mean()) == pytest.approx(5.0, rel=0.2)
    small = replace(CONFIG, generations=2, tasks_per_candidate=4)
    steps = run(encoder, small, template, validation_tasks=())
    assert steps[-1].checkpoint.head_kind == kind
    assert (steps[-1].checkpoint.vector != template.vector).any()


@pytest.mark.integration
def test_svf_offsets_are_evolved_beside_the_head_each_by_steps_of_its_own(encoder: Encoder) -> None:
    layout = svf_layout(encoder.model, [1], embeddings=False)
    template = begun(encoder, svf_layout=layout)
    spreads: dict[str, Any] = {"generations": 1, "logit_spread": 5.0, "svf_spread": 2.0}
    around = space(encoder, template, **spreads)
    assert around.survey.steps["svf"].logit_spread == pytest.approx(2.0)
    given = space(encoder, template, **spreads, constant_spread=None, svf_step_size=0.03)
    assert given.survey.steps["svf"].step_size == 0.03
    small = replace(CONFIG, **spreads, tasks_per_candidate=4)
    steps = run(encoder, small, template, validation_tasks=())
    points = steps[0].state.ask()
    svf, head = points[:, : template.svf_size], points[:, template.svf_size :]
    assert svf.std() == pytest.approx(around.survey.steps["svf"].step_size, rel=0.2)
    assert head.std() == pytest.approx(around.survey.steps["head"].step_size, rel=0.2)
    last = steps[-1].checkpoint
    assert last.svf_layout == layout
    assert last.svf_offsets.any()


def test_a_random_walk_covers_much_of_an_evolutions_way_without_any_reward(encoder: Encoder) -> None:
    template = begun(encoder)
    around = space(encoder, template, constant_spread=None)
    state = begin(CONFIG, np.asarray(template.vector, float), around.step_size, around.scales)
    for _ in range(CONFIG.generations):
        state = state.tell(-np.square(around.vectors(state.ask()) - 1).sum(axis=1))
    evolved, walked = np.linalg.norm(state.mean), np.linalg.norm(random_walk(CONFIG, around))
    assert 0.3 * evolved < walked < 1.5 * evolved
    assert np.array_equal(random_walk(CONFIG, around), random_walk(CONFIG, around))


def test_settings_that_do_nothing_are_refused(encoder: Encoder) -> None:
    with pytest.raises(ConfigError, match="generations cannot be 0: give a number"):
        replace(CONFIG, generations=0)
    with pytest.raises(ConfigError, match="no tasks"):
        run(encoder, tasks=[])


NUMBERS = (
    "logit_spread constant_spread step_size svf_spread svf_step_size learning_rate box diversity turn_cost"
)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e300, -1.0, "0.1", True])
@pytest.mark.parametrize("name", NUMBERS.split())
def test_a_number_with_which_nothing_can_be_searched_is_refused_by_its_name(name: str, value: Any) -> None:
    words = f"{name} cannot be {value!r}: give"
    with pytest.raises(ConfigError, match=re.escape(words)):
        replace(CONFIG, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step_size", 0.0),
        ("box", 0.0),
        ("logit_spread", None),
        ("population", 4.0),
        ("generations", float("nan")),
        ("turn_budget", "5"),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 0.5),
    ],
)
def test_a_setting_out_of_its_range_or_kind_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be"):
        replace(CONFIG, **{name: value})


@pytest.mark.parametrize(
    ("changed", "what"),
    [({"seed": 4}, "seed 3"), ({"population": 10}, "population 12"), ({"rates": "cmaes"}, "rates pycma")],
)
def test_a_resume_against_a_changed_configuration_is_refused(
    encoder: Encoder, changed: dict[str, Any], what: str
) -> None:
    state = next(steps_of(encoder)).state
    with pytest.raises(ConfigError, match=what):
        run(encoder, replace(CONFIG, **changed), start=state)


def test_where_no_model_answers_nothing_is_measured_and_the_evolution_ends(encoder: Encoder) -> None:
    down = ScriptedPool(SPECS, lambda ask: Failure("infrastructure", "The network is down."))
    generations = steps_of(encoder, pool=down, validation_tasks=())
    assert next(generations).index == 0
    with pytest.raises(PoolError, match="generation 1 .*network is down"):
        next(generations)
    with pytest.raises(PoolError, match="to validate generation 0 .*network is down"):
        next(steps_of(encoder, pool=down))
