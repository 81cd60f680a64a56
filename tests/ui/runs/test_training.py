"""The training of a planner as a run: every iteration kept, stopped anywhere and resumed to the same planner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from core.errors import CheckpointError, ConfigError, StoreError
from core.planner import card as archive
from core.planner.config import LearnConfig
from core.planner.learn import Iteration
from core.planner.statistics import IterationStats
from core.tasks.graders import grade_many
from storage.files.interchange import import_file
from storage.store import Store, open_store
from tests.builders.interchange import export_runs
from tests.core.planner.tiny import MODELS, TASKS, tiny_planner, tiny_pool
from ui.runs import training, wiring
from ui.runs.lease import owner
from ui.runs.plans import plan_of
from ui.runs.play import play
from ui.runs.policies import Policies
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.learning import TrainingPlan
from ui.runs.training import TrainingParts, prepare

LEARNING = LearnConfig(
    updates=1,
    iterations=4,
    questions=2,
    rollouts=4,
    learning_rate=1e-2,
    problems=6,
    probes=2,
    save_every=2,
    validate_every=2,
)
PLAN = TrainingPlan(
    tasks="tiny", n=None, validation=2, pool="tiny", learning=LEARNING, name="mine", models=MODELS
)


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(wiring, "data_folder", lambda: tmp_path / "data")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store.db")
    yield opened
    opened.close()


def parts() -> TrainingParts:
    return TrainingParts(PLAN, tiny_pool(), TASKS[2:], TASKS[:2], grade_many, tiny_planner())


def begun(store: Store) -> str:
    return enqueue(store, PLAN, Ticket.new(), owner=owner())[0]


def learned(store: Store, run: str) -> list[dict[str, Any]]:
    """What is kept of its iterations, but for their times and calls: a resumed one knows more replies already."""
    found = []
    for one in store.learning.updates(run):
        stats = dict(one.stats)
        for name in ("seconds", "calls", "calls_saved"):
            stats.pop(name)
        found.append({"index": one.index, "planner": one.checkpoint_id, "episodes": one.episodes, **stats})
    return found


def test_every_iteration_is_kept_with_its_planners(store: Store) -> None:
    run = begun(store)
    events = [one for one in play(store, run, parts()) if isinstance(one, Iteration)]
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

    loaded = wiring.load_planner(store, planners[-1].id, MODELS)
    assert loaded.card == events[-1].planner.card  # type: ignore[union-attr]
    policies = Policies(store, MODELS)
    policy = policies.resolve(f"conductor:{planners[-1].id}")
    assert (policy.id, policies.resolve(planners[-1].id).id) == (f"conductor:{planners[-1].id}",) * 2
    assert policies.resolve(f"conductor:same-model:ann:{planners[0].id}").models == MODELS
    with pytest.raises(CheckpointError, match="this pool has ann"):
        wiring.load_planner(store, planners[-1].id, ("ann", "bob"))
    with pytest.raises(StoreError, match="no checkpoint nobody"):
        wiring.load_planner(store, "nobody")


def test_a_large_state_is_kept_in_a_file(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(training, "MOST_STATE_BYTES", 10)
    monkeypatch.setattr(archive, "MOST_BYTES", 10)
    run = begun(store)
    events = play(store, run, parts())
    for one in events:
        if one.index == 3:
            break
    events.close()
    files = [path.name for path in (tmp_path / "data" / "training").iterdir()]
    assert files == [f"{run}-2.safetensors"]
    assert store.checkpoints.list(run, planners=True)[0].folder is not None
    assert [one.index for one in play(store, run, parts())] == [3, 4]
    assert not [*(tmp_path / "data" / "training").iterdir()]
    moved = store.checkpoints.list(run, planners=True)[-1]
    assert wiring.load_planner(store, moved.id, MODELS).card.id == moved.id
    assert moved.folder is not None
    Path(moved.folder).rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="trinity checkpoints import FOLDER"):
        wiring.load_planner(store, moved.id, MODELS)


def test_a_training_travels_in_a_file(store: Store, tmp_path: Path) -> None:
    run = begun(store)
    for _ in play(store, run, parts()):
        pass
    export_runs(store, [run], tmp_path / "run.jsonl.gz")
    other = open_store(tmp_path / "other.db")
    added = import_file(other, tmp_path / "run.jsonl.gz").added
    assert added == {"run": 1, "checkpoint": 3, "update": 5}
    assert import_file(other, tmp_path / "run.jsonl.gz").added == {}
    assert learned(other, run) == learned(store, run)
    assert plan_of(other.runs.get(run)) == PLAN
    kept = other.checkpoints.list(run, planners=True)[-1].id
    assert wiring.load_planner(other, kept, MODELS).card.id == kept
    export_runs(other, [run], tmp_path / "again.jsonl.gz")
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "run.jsonl.gz").read_bytes()
    other.runs.delete(run)
    assert not other.checkpoints.list(planners=True)
    other.close()


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
