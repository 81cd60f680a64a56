"""Runs that learn, by every learner: what they come to is what it always was, and stopped anywhere and resumed they
keep the same, to the last bit; a training's iterations are kept, and travel."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from core.checkpoint import Checkpoint
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import dead_blocks, svf_layout
from core.errors import CheckpointError, ConfigError, StoreError
from core.evolution.config import EvolveConfig
from core.planner import card as archive
from core.planner.config import LearnConfig
from core.planner.learn import Iteration
from core.planner.planner import LanguagePlanner
from core.planner.statistics import IterationStats
from core.tasks.graders import grade_many
from storage.files.interchange import import_file
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store, open_store
from tests.builders.encoder import tiny_qwen3
from tests.builders.interchange import export_runs
from tests.builders.pools import ScriptedPool
from tests.core.evolution.test_evolve import SPECS, TASKS, say
from tests.core.planner import tiny
from ui.runs import training as trainings
from ui.runs import wiring
from ui.runs.evolution import EvolutionParts
from ui.runs.learning import LearningParts
from ui.runs.lease import owner
from ui.runs.plans import plan_of
from ui.runs.play import play
from ui.runs.policies import Policies
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan
from ui.runs.training import TrainingParts, prepare

#: What each case came to before its loop was that of all: episodes so far, and the accuracy of what was played.
GOLDEN: dict[str, list[list[float]]] = json.loads(
    (Path(__file__).parent / "data" / "learning.json").read_text("utf-8")
)
SMALL: dict[str, Any] = {
    "generations": 5,
    "population": 6,
    "tasks_per_candidate": 4,
    "validate_every": 2,
    "turn_budget": 3,
    "seed": 3,
    "rotate_every": 2,
}
EVOLUTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sep": ({}, {"record": "share"}),
    "sep-adaptive-labels": (
        {"adaptive": True, "label_questions": 4, "diversity": 0.1, "turn_cost": 0.1},
        {"record": "all"},
    ),
    "sep-teacher": ({"label_questions": 4, "teacher": "round-robin"}, {}),
    "sep-own": ({"common": False, "constant_spread": None}, {"controls": False}),
    "sep-svf": ({}, {"svf": "1"}),
    "pycma": ({"learner": "pycma", "mirrored": False}, {}),
    "reinforce": ({"learner": "reinforce", "population": 1, "tasks_per_candidate": 16}, {}),
    "random": ({"learner": "random-search"}, {"head": "low-rank"}),
}
LEARNING = LearnConfig(
    updates=1,
    iterations=5,
    questions=2,
    rollouts=4,
    learning_rate=1e-2,
    problems=6,
    probes=2,
    save_every=2,
    validate_every=3,
)
#: What a resumed run knows replies for already, or what depends on time.
OF_THE_MOMENT = ("calls", "calls_saved", "decisions", "forwards", "reading_s", "seconds")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return load_encoder(str(tiny_qwen3(tmp_path_factory.mktemp("encoder"))))


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(wiring, "data_folder", lambda: tmp_path / "data")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def evolution(case: str, encoder: Encoder) -> EvolutionParts:
    config, more = EVOLUTIONS[case]
    models = tuple(spec.name for spec in SPECS)
    layout = svf_layout(encoder.model, [1], embeddings=False) if "svf" in more else ()
    template = Checkpoint.begin(
        models,
        encoder.identity,
        head_kind=more.get("head", "linear"),
        svf_layout=layout,
        svf_dead=dead_blocks(encoder.model, layout),
        dtype=encoder.dtype,
    )
    plan = EvolutionPlan(
        "sums", None, 4, "tiny", "tiny", None, EvolveConfig(**SMALL | config), models=models, **more
    )
    pool = ScriptedPool(SPECS, say)
    return EvolutionParts(plan, pool, TASKS[:20], grade_many, TASKS[20:], encoder, template)


def training() -> TrainingParts:
    return training_parts(replace(PLAN, learning=LEARNING), tiny.tiny_planner())


def parts_of(case: str, encoder: Encoder) -> Callable[[], LearningParts]:
    return training if case == "train" else partial(evolution, case, encoder)


def learned(place: Path, make: Callable[[], LearningParts], stops: tuple[int, ...] = ()) -> dict[str, Any]:
    """What a run keeps that is closed after so many updates, and resumed each time; always under the same id."""
    store = open_store(place)
    run, _ = enqueue(store, make().plan, Ticket(1_700_000_000, "nonce"), owner=owner())
    for stop in (*stops, None):
        events = play(store, run, make())
        for number, _ in enumerate(events, start=1):
            if number == stop:
                break
        events.close()
    assert store.runs.get(run).status == "finished"
    found = contents(store, run)
    store.close()
    return found


def contents(store: Store, run: str) -> dict[str, Any]:
    updates = store.learning.updates(run)
    state = store.learning.state(run)
    return {
        "updates": [
            asdict(one)
            | {"wall_s": 0, "stats": {k: v for k, v in one.stats.items() if k not in OF_THE_MOMENT}}
            for one in updates
        ],
        "candidates": [store.learning.candidates(run, one.index) for one in updates],
        "checkpoints": [  # their digests are of what they say, however a planner's files are packed
            asdict(one) | {"created": 0, "size_bytes": 0}
            for one in store.checkpoints.list(run, planners=None)
        ],
        "state": state and (state[0], hashlib.sha256(state[1]).hexdigest()),
        "paid": len(store.learning.paid_replies(run).recall()),
        "episodes": [
            (one.id, one.policy, one.generation, one.correct, one.strip)
            for one in store.episodes.page(EpisodeFilter(run=run), order="oldest", limit=500).items
        ],
    }


def told(found: dict[str, Any]) -> list[list[float]]:
    """Of each update the episodes so far, and the accuracies of what was played for it and of its validation."""
    rows = []
    for one in found["updates"]:
        stats = one["stats"]
        played = [stats.get(part) or {} for part in ("episodes", "rollouts", "validation")]
        shares = [float(part.get("accuracy", part.get("right", 0.0))) for part in played if part]
        rows.append([one["episodes"], *(round(share, 6) for share in shares)])
    return rows


@pytest.mark.integration
@pytest.mark.parametrize("case", [*EVOLUTIONS, "train"])
def test_stopped_anywhere_and_resumed_it_keeps_the_same(case: str, encoder: Encoder, tmp_path: Path) -> None:
    make = parts_of(case, encoder)
    undisturbed = learned(tmp_path / "undisturbed.db", make)
    assert told(undisturbed) == GOLDEN[case]
    assert learned(tmp_path / "resumed.db", make, stops=(1, 2, 1)) == undisturbed


SHORT = replace(LEARNING, iterations=4, validate_every=2)
PLAN = TrainingPlan("tiny", None, 2, "tiny", SHORT, name="mine", models=tiny.MODELS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store.db")
    yield opened
    opened.close()


def training_parts(plan: TrainingPlan, planner: LanguagePlanner | None = None) -> TrainingParts:
    """Where no planner is given, it is one whose lists are short."""
    planner = planner or tiny.tiny_planner().frozen(most_steps=1)
    return TrainingParts(plan, tiny.tiny_pool(), tiny.TASKS[2:], grade_many, tiny.TASKS[:2], planner)


def begun(store: Store) -> str:
    return enqueue(store, PLAN, Ticket(), owner=owner())[0]


@pytest.mark.integration
def test_every_iteration_is_kept_with_its_planners_and_travels_in_a_file(
    store: Store, tmp_path: Path
) -> None:
    run = begun(store)
    events = [one for one in play(store, run, training_parts(PLAN)) if isinstance(one, Iteration)]
    found = store.runs.get(run)
    assert (found.status, found.generations, found.kind) == ("finished", 5, "train")
    kept = store.learning.updates(run)
    assert [IterationStats.stats_of(one.stats).rollouts for one in kept] == [one.rollouts for one in events]
    assert [one.index for one in kept if one.checkpoint_id] == [0, 2, 4]
    assert kept[-1].episodes == 4 * 8 + 3 * 2
    planners = store.checkpoints.list(run, planners=True)
    assert [one.generation for one in planners] == [0, 2, 4]
    assert store.learning.state(run) is None, "nothing goes on from a finished training"
    assert store.runs.find("mine", "train") == run
    with pytest.raises(ConfigError, match="named 'mine'"):
        begun(store)

    loaded = wiring.load_planner(store, planners[-1].id, tiny.MODELS)
    assert loaded.card == events[-1].planner.card  # type: ignore[union-attr]
    policies = Policies(store, tiny.MODELS)
    policy = policies.resolve(f"conductor:{planners[-1].id}")
    assert (policy.id, policies.resolve(planners[-1].id).id) == (f"conductor:{planners[-1].id}",) * 2
    assert policies.resolve(f"conductor:same-model:ann:{planners[0].id}").models == tiny.MODELS
    with pytest.raises(CheckpointError, match="this pool has ann"):
        wiring.load_planner(store, planners[-1].id, ("ann", "bob"))
    with pytest.raises(StoreError, match="no checkpoint nobody"):
        wiring.load_planner(store, "nobody")
    export_runs(store, [run], tmp_path / "run.jsonl.gz")
    other = open_store(tmp_path / "other.db")
    added = import_file(other, tmp_path / "run.jsonl.gz").added
    assert added == {"run": 1, "checkpoint": 3, "update": 5}
    assert import_file(other, tmp_path / "run.jsonl.gz").added == {}
    assert contents(other, run) == contents(store, run)
    assert plan_of(other.runs.get(run)) == PLAN
    moved = other.checkpoints.list(run, planners=True)[-1].id
    assert wiring.load_planner(other, moved, tiny.MODELS).card.id == moved
    export_runs(other, [run], tmp_path / "again.jsonl.gz")
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "run.jsonl.gz").read_bytes()
    other.runs.delete(run)
    assert not other.checkpoints.list(planners=True)
    other.close()


@pytest.mark.integration
def test_a_large_state_is_kept_in_a_file(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trainings, "MOST_STATE_BYTES", 10)
    monkeypatch.setattr(archive, "MOST_BYTES", 10)
    run = begun(store)
    events = play(store, run, training_parts(PLAN))
    for one in events:
        if getattr(one, "index", None) == 3:
            break
    events.close()
    files = [path.name for path in (tmp_path / "data" / "training").iterdir()]
    assert files == [f"{run}-2.safetensors"]
    assert store.checkpoints.list(run, planners=True)[0].folder is not None
    assert [one.index for one in play(store, run, training_parts(PLAN)) if isinstance(one, Iteration)] == [
        3,
        4,
    ]
    assert not [*(tmp_path / "data" / "training").iterdir()]
    moved = store.checkpoints.list(run, planners=True)[-1]
    assert wiring.load_planner(store, moved.id, tiny.MODELS).card.id == moved.id
    assert moved.folder is not None
    Path(moved.folder).rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="trinity checkpoints import FOLDER"):
        wiring.load_planner(store, moved.id, tiny.MODELS)


def test_an_archive_that_is_no_planners_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    packed = archive.pack(tmp_path)
    archive.check_archive(packed)
    for bad in (b"", b"PK", packed[:-30], packed.replace(b"a.txt", b"../xx")):
        with pytest.raises(CheckpointError, match="archive"), archive.unpacked(bad):
            pass


def test_a_plan_that_cannot_be_played_is_refused(store: Store, tmp_path: Path) -> None:
    plan = TrainingPlan(tasks="pocket", n=20, validation=0, pool="pocket", planner=str(tmp_path / "none"))
    with pytest.raises(CheckpointError, match="no planner"):
        prepare(store, plan)
    (tmp_path / "pool.toml").write_text(
        '[[model]]\nname = "a"\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    other = TrainingPlan(tasks="pocket", n=20, validation=0, pool=str(tmp_path / "pool.toml"))
    with pytest.raises(ConfigError, match="--planner FOLDER"):
        prepare(store, other)
