"""A store as a user has it after a first evening: an evolution's checkpoints, the same tasks played by each.

Played through the real role loop by a scripted pool; hostile text, errors and unreadable
verdicts included."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.checkpoint import Checkpoint, EncoderIdentity
from core.episode import Ask, Episode, Failure, Reply, Role, Task, Usage
from core.evolution.config import EvolveConfig
from core.ids import episode_id
from core.play.drive import drive_many
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from storage.recorder import record
from storage.rows.summaries import RunStatus
from storage.store import Store, open_store
from tests.builders.play import HashPolicy, suited_slot
from tests.builders.pools import ScriptedPool, specs
from tests.builders.stores import begin_run, filled_store, kept_generation
from tests.hostile import HOSTILE
from ui.runs.plans import LivePlan, to_config
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.learning import EvolutionPlan
from ui.runs.wiring import keep_checkpoint

MODELS = ("atlas", "abacus", "plato", "sage", "themis", "jack", "pip")
EVOLVED, PLAYED = "revolve1", "rplayed1"
IDENTITY = EncoderIdentity(name="pocket", digest="0" * 64, hidden_size=16)


def leaning(name: str, lean: float) -> HashPolicy:
    """A policy over the pocket pool that leans to who suits a task, and to the usual role, by so much."""
    return HashPolicy(name, MODELS, spread=0.4, lean=lean)


def scripted(tasks: Sequence[Task]) -> ScriptedPool:
    """Models of different skill: the slot that a task leans to is good at it, the others guess."""
    answers = {task.question: task.answer for task in tasks}

    def line(ask: Ask) -> Reply | Failure:
        prompt = ask.messages[-1].content
        question = next((one for one in answers if one in prompt), "")
        dice = hashlib.sha256(f"{ask.model}/{prompt}/{ask.sample}".encode()).digest()
        skilled = MODELS.index(ask.model) == suited_slot(question, len(MODELS))
        able = dice[0] < (215 if skilled else 70)
        usage = Usage(tokens_in=len(prompt) // 4, tokens_out=6 + dice[3] % 30, cost_usd=0.0)
        if dice[1] < 3:
            return Failure("model", "context length exceeded")
        if ask.role is Role.THINKER:
            text = "first find what is asked, then add the parts one by one"
        elif ask.role is Role.WORKER:
            text = f"answer {answers.get(question, '') if able else dice[2]}"
        else:
            right = f"answer {answers.get(question, '')}" in prompt
            verdict = ("ACCEPT" if right else "REVISE") if able or dice[4] < 160 else "ACCEPT REVISE"
            text = f"the parts add up to this {verdict}"
        return Reply(text, usage=usage, latency_s=0.02 + dice[5] / 900)

    return ScriptedPool(specs(MODELS), line)


def hostile_tasks() -> list[Task]:
    """Two tasks whose texts try to become something else than text."""
    body = "\n".join(HOSTILE)
    return [
        Task("user-0001", body, ":green-badge[ACCEPT]", "exact", "user"),
        Task("user-0002", "Wie viele Äpfel 🍎 sind 3 + 4? ‮7 era ti‬", "7", "exact", "user"),
    ]


def checkpoint(generation: int) -> Checkpoint:
    """A stored checkpoint of the evolution run."""
    vector = np.full((len(MODELS) + 3) * IDENTITY.hidden_size, generation / 100, dtype=np.float32)
    return Checkpoint(vector, MODELS, IDENTITY, generation=generation, parent_run=EVOLVED)


def sample_store(place: Path | str, n: int = 24) -> Store:
    """The store, opened: 4 policies x `n` pocket tasks and two hostile ones, about 4 turns each. `place` is a file, or
    the address of a database."""
    if "://" not in str(place):
        return filled_store(place, _fill, n)
    store = open_store(str(place))
    _fill(store, n)
    return store


def _fill(store: Store, n: int) -> None:
    evolved = EvolutionPlan("pocket", None, 0, "pocket", "pocket", None, EvolveConfig(), models=MODELS)
    begin_run(store, EVOLVED, "evolve", to_config(evolved), evolved.name)
    policies: list[tuple[str, HashPolicy, int | None]] = []
    for generation, strength in ((0, 0.0), (8, 1.0), (30, 2.4)):
        made = checkpoint(generation)
        keep_checkpoint(store, made, EVOLVED)
        fitness = 0.3 + strength / 6
        store.learning.add(
            kept_generation(
                EVOLVED, generation, fitness + 0.1, fitness, fitness, 0.3, 100 * generation, 1.0, made.id
            ),
            state=b"state",
        )
        policies.append((made.id, leaning(made.id, strength), generation))
    store.runs.finish(EVOLVED)
    policies.append(("random", leaning("random", 0.0), None))
    tasks = [*load_tasks("pocket/all", "test", n, 3), *hostile_tasks()]
    plan = BatchPlan(tuple(name for name, *_ in policies), "pocket/all", "test", n, 3, 5, False, "pocket")
    begin_run(store, PLAYED, "run", to_config(plan))
    for position, (name, policy, born) in enumerate(policies):
        births = [
            Episode(
                episode_id(PLAYED, position * len(tasks) + i),
                PLAYED,
                task,
                name,
                MODELS,
                seed=3,
                generation=born,
            )
            for i, task in enumerate(tasks)
        ]
        list(record(store, drive_many(births, policy, scripted(tasks), grade_many)))
    store.runs.finish(PLAYED)
    _an_interrupted_run(store, tasks[0])


def _an_interrupted_run(store: Store, task: Task) -> None:
    """A live run whose process died in its second turn."""
    begin_run(store, "rlive001", "live", to_config(LivePlan(replace(task, id="live-1"), "random", MODELS)))
    born = Episode(
        episode_id("rlive001", 0), "rlive001", replace(task, id="live-1"), "random", MODELS, seed=9
    )
    events = record(store, drive_many([born], leaning("random", 0.0), scripted([task]), grade_many))
    for _ in range(5):
        next(events)
    del events  # closes the driver, as a dying process would
    store.runs.finish("rlive001", RunStatus.INTERRUPTED, "The process was stopped.")
