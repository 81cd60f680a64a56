"""A store as a user has it after a first evening: an evolution's checkpoints, the same tasks played by each.

Played through the real role loop by a scripted pool; hostile text, errors and unreadable
verdicts included."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.checkpoint import Checkpoint, EncoderIdentity
from core.drive import drive_many
from core.episode import ROLE_ORDER, Ask, Decide, Decision, Episode, Failure, Reply, Role, Task, Usage
from core.ids import episode_id
from core.pool.scripted import ScriptedPool
from core.pool.spec import ModelSpec
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from storage.recorder import record
from storage.store import Store, open_store
from storage.summaries import GenerationSummary, RunStatus
from tests.hostile import HOSTILE

MODELS = ("atlas", "abacus", "plato", "sage", "themis", "jack", "pip")
EVOLVED, PLAYED = "revolve1", "rplayed1"
IDENTITY = EncoderIdentity(name="pocket", digest="0" * 64, hidden_size=16)


@dataclass(frozen=True)
class LeaningPolicy:
    """A head without an encoder: logits from a hash of the key, leaning towards `lean` by `strength`."""

    id: str
    strength: float
    models: tuple[str, ...] = MODELS

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """Sampled choices with logits."""
        return [self._one(request) for request in requests]

    def _one(self, request: Decide) -> Decision:
        source = np.random.default_rng(list(hashlib.sha256(f"{self.id}/{request.key}".encode()).digest()))
        family = hashlib.sha256(request.transcript.question[:8].encode()).digest()[0]
        model_z, role_z = source.normal(size=len(self.models)) * 0.4, source.normal(size=3) * 0.4
        model_z[family % 4] += self.strength
        wanted = (Role.THINKER, Role.WORKER, Role.VERIFIER)[request.index % 3]
        role_z[ROLE_ORDER.index(wanted)] += self.strength
        model_p, role_p = _softmax(model_z), _softmax(role_z)
        return Decision(
            model=self.models[int(source.choice(len(self.models), p=model_p))],
            role=ROLE_ORDER[int(source.choice(3, p=role_p))],
            model_logits=tuple(model_z.tolist()),
            role_logits=tuple(role_z.tolist()),
            model_probs=tuple(model_p.tolist()),
            role_probs=tuple(role_p.tolist()),
            argmax_model=self.models[int(model_z.argmax())],
            argmax_role=ROLE_ORDER[int(role_z.argmax())],
            hidden_state=source.normal(size=16).astype("<f2").tobytes(),
            prompt_digest="ab" * 16,
            prompt_tokens=30 + 12 * request.index,
        )


def _softmax(z: np.ndarray) -> np.ndarray:
    weights = np.exp(z - z.max())
    return np.asarray(weights / weights.sum())


def scripted(tasks: Sequence[Task]) -> ScriptedPool:
    """Models of different skill: the slot that a task leans to is good at it, the others guess."""
    answers = {task.question: task.answer for task in tasks}

    def line(ask: Ask) -> Reply | Failure:
        prompt = ask.messages[-1].content
        question = next((one for one in answers if one in prompt), "")
        dice = hashlib.sha256(f"{ask.model}/{prompt}/{ask.sample}".encode()).digest()
        skilled = MODELS.index(ask.model) == hashlib.sha256(question[:8].encode()).digest()[0] % 4
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

    return ScriptedPool([ModelSpec(name, provider="scripted", dialect="terse") for name in MODELS], line)


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
    """The store, opened: 4 policies x `n` pocket tasks and two hostile ones, about 4 turns each."""
    store = open_store(str(place))
    store.runs.create(EVOLVED, "evolve", {"tasks": "pocket", "seed": 0})
    policies: list[tuple[str, LeaningPolicy, int | None]] = []
    for generation, strength in ((0, 0.0), (8, 1.0), (30, 2.4)):
        made = checkpoint(generation)
        store.checkpoints.add(
            made.id, made.to_config(), made.to_bytes(), run_id=EVOLVED, generation=generation, kind="head"
        )
        fitness = 0.3 + strength / 6
        store.evolution.add(
            GenerationSummary(
                EVOLVED, generation, fitness + 0.1, fitness, fitness, 0.3, 100 * generation, 1.0, made.id
            ),
            [],
            b"state",
        )
        policies.append((made.id, LeaningPolicy(made.id, strength), generation))
    store.runs.finish(EVOLVED)
    policies.append(("random", LeaningPolicy("random", 0.0), None))
    tasks = [*load_tasks("pocket/all", "test", n, 3), *hostile_tasks()]
    store.runs.create(PLAYED, "run", {"tasks": "pocket/all", "split": "test", "n": n, "seed": 3})
    for position, (name, policy, born) in enumerate(policies):
        meta = {} if born is None else {"generation": str(born)}
        births = [
            Episode(
                episode_id(PLAYED, position * len(tasks) + i), PLAYED, task, name, MODELS, seed=3, meta=meta
            )
            for i, task in enumerate(tasks)
        ]
        list(record(store, drive_many(births, policy, scripted(tasks), grade_many)))
    store.runs.finish(PLAYED)
    _an_interrupted_run(store, tasks[0])
    return store


def _an_interrupted_run(store: Store, task: Task) -> None:
    """A live run whose process died in its second turn."""
    store.runs.create("rlive001", "live", {"task": {"question": task.question}})
    born = Episode(
        episode_id("rlive001", 0), "rlive001", replace(task, id="live-1"), "random", MODELS, seed=9
    )
    events = record(store, drive_many([born], LeaningPolicy("random", 0.0), scripted([task]), grade_many))
    for _ in range(5):
        next(events)
    del events  # closes the driver, as a dying process would
    store.runs.finish("rlive001", RunStatus.INTERRUPTED, "The process was stopped.")
