"""A store with episodes that a real coordinator on a tiny encoder has played, beside other checkpoints of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import svf_layout
from core.episode import Episode
from core.ids import episode_id
from core.play.drive import drive_many
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from storage.recorder import record
from storage.store import Store
from tests.builders.sample_store import MODELS, leaning, scripted
from tests.builders.stores import begin_run, new_store
from ui.runs.wiring import keep_checkpoint

DIFFED = "rdiffed1"


@dataclass(frozen=True)
class Diffed:
    """The store, the encoder, and its checkpoints: `a` played, `b` has another head, `svf` the head of `a` on a changed
    encoder, `barred` is `b` without one model and one role, and `stranger` belongs to another pool."""

    store: Store
    encoder: Encoder
    a: Checkpoint
    b: Checkpoint
    svf: Checkpoint
    barred: Checkpoint
    stranger: Checkpoint


def diffed_store(path: Path, encoder_folder: Path, n: int = 6) -> Diffed:
    """`n` tasks played by `a`, drawn, and the first two of them by chance, which leaves no states."""
    encoder = load_encoder(encoder_folder)
    rng = np.random.default_rng(4)
    start = Checkpoint.begin(MODELS, encoder.identity, notes="start", parent_run=DIFFED)
    a, b = (
        start.with_vector(rng.normal(size=len(start.vector)) * 0.15, generation=at, kind="evolved")
        for at in (1, 2)
    )
    layout = svf_layout(encoder.model, [2], embeddings=False)
    offsets = rng.normal(size=sum(count for _, count in layout)) * 0.2
    svf = Checkpoint(
        np.concatenate([offsets, a.vector]),
        MODELS,
        encoder.identity,
        svf_layout=layout,
        notes="svf",
        parent_run=DIFFED,
    )
    barred = Checkpoint(
        b.vector, MODELS, encoder.identity, barred=(MODELS[0], "thinker"), notes="barred", parent_run=DIFFED
    )
    stranger = Checkpoint.begin(MODELS[:3], encoder.identity, parent_run=DIFFED)
    store = new_store(path)
    for one in (a, b, svf, barred, stranger):
        keep_checkpoint(store, one)
    tasks = load_tasks("pocket/all", "test", n, 3)
    begin_run(store, DIFFED, "run", {"tasks": "pocket/all", "encoder": str(encoder_folder)})
    chance = leaning("random", 0.0)
    births = [(a.id, task) for task in tasks] + [("random", task) for task in tasks[:2]]
    for policy in (Coordinator(a, encoder), chance):
        episodes = [
            Episode(episode_id(DIFFED, place), DIFFED, task, name, MODELS, seed=3)
            for place, (name, task) in enumerate(births)
            if name == policy.id
        ]
        list(record(store, drive_many(episodes, policy, scripted(tasks), grade_many)))
    store.runs.finish(DIFFED)
    return Diffed(store, encoder, a, b, svf, barred, stranger)
