"""Runs that learn, by every learner: what they come to is what it always was, and stopped anywhere and resumed they
keep the same, to the last bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from core.checkpoint import Checkpoint
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import dead_blocks, svf_layout
from core.evolution.config import EvolveConfig
from core.planner.config import LearnConfig
from core.tasks.graders import grade_many
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store, open_store
from tests.builders.encoder import tiny_qwen3
from tests.builders.pools import ScriptedPool
from tests.core.evolution.test_evolve import SPECS, TASKS, say
from tests.core.planner import tiny
from ui.runs import wiring
from ui.runs.evolution import EvolutionParts
from ui.runs.learning import LearningParts
from ui.runs.lease import owner
from ui.runs.play import play
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan
from ui.runs.training import TrainingParts

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
OF_THE_MOMENT = ("calls", "calls_saved", "decisions", "forwards", "seconds")


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
    return EvolutionParts(plan, pool, TASKS[:20], TASKS[20:], grade_many, encoder, template)


def training() -> TrainingParts:
    plan = TrainingPlan("tiny", None, 2, "tiny", LEARNING, name="mine", models=tiny.MODELS)
    sets = tiny.TASKS[2:], tiny.TASKS[:2]
    return TrainingParts(plan, tiny.tiny_pool(), *sets, grade_many, tiny.tiny_planner())


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


@pytest.mark.parametrize("case", [*EVOLUTIONS, "train"])
def test_stopped_anywhere_and_resumed_it_keeps_the_same(case: str, encoder: Encoder, tmp_path: Path) -> None:
    make = parts_of(case, encoder)
    undisturbed = learned(tmp_path / "undisturbed.db", make)
    assert told(undisturbed) == GOLDEN[case]
    assert learned(tmp_path / "resumed.db", make, stops=(1, 2, 1)) == undisturbed
