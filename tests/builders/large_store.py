"""A large store as months of use leave it: checkpoints and single models on shared tasks, played by the real loop.

Twenty entrants play each task once: the generations of an evolution (the last one under two seeds), every model
alone, and chance. Replies are as long as models', right as often as their models are able, and read by the house's
own roles; every tenth task's turns keep their hidden states. Finished episodes go in by a run at a time.
"""

from __future__ import annotations

import itertools
import random
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from core.checkpoint import Checkpoint, EncoderIdentity
from core.coordinator.coordinator import choose
from core.coordinator.states import Encoded
from core.draws import derive_seed
from core.episode import Ask, Decide, Decision, Episode, EpisodeFinished, Failure, Reply, Role, Task, Usage
from core.ids import episode_id
from core.play.drive import drive_many
from core.play.policies import Policy, RandomPolicy, single_policy
from core.play.roles import dialect_and_tag
from core.pocket import FAMILIES, MODELS
from core.pocket.tasks import draw_tasks
from core.pool.spec import ModelSpec
from core.tasks.graders import grade_many
from storage.rows.summaries import CandidateSummary
from storage.store import Store, open_store
from tests.builders.pools import ScriptedPool
from tests.builders.stores import POOL, kept_generation, record_finished_run
from ui.runs.wiring import keep_checkpoint

EVOLUTION = "r000bench"
GENERATIONS = (0, 2, 5, 10, 15, 20, 25, 30, 40, 50, 60)
WIDTH, BUDGET = 256, 8
#: Slots, entrants and tasks that go into one run.
SLOTS, ENTRANTS, TASKS_EACH = len(MODELS) + 3, 20, 250
#: One task in this many keeps the hidden states of its turns.
STATES_EVERY = 10
IDENTITY = EncoderIdentity("bench", WIDTH, "0" * 64)
#: What each model answers right, in hundredths, by its slot; its own family is easier for it.
SKILL, OWN_FAMILY = (62, 48, 42, 55, 36, 30, 24), 25
#: The short-spoken models; the others are asked in full sentences and reply so.
TERSE = MODELS[-2:]
#: A word of nearly every reply, and one that stands in a few of a thousand.
COMMON_WORD, RARE_WORD = "gather", "seventhly"
PRICES = (0.000_004, 0.000_001, 0.000_002, 0.000_003, 0.000_001, 0.0, 0.0)  # USD per token


@dataclass(frozen=True)
class Leaning(Policy):
    """A checkpoint whose states are drawn, not read: they lean towards the turn's usual role and, the further it
    has evolved, towards the model that suits the task. Its logits are its own head's, of those very states."""

    checkpoint: Checkpoint
    strength: float
    families: dict[str, int]  # question -> slot of the model that suits it
    id: str = field(init=False)
    models: tuple[str, ...] = MODELS

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.checkpoint.id)

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """Choices drawn from the head's two softmaxes."""
        head, vector = self.checkpoint.head, self.checkpoint.head_vector
        inverse = np.linalg.pinv(head.arrays(vector)["weight"].astype(np.float64))
        keys = [zlib.crc32(f"{self.id}/{request.key}".encode()) for request in requests]
        drawn = np.random.default_rng(keys).normal(size=(len(requests), WIDTH))
        drawn += np.array([self._wanted(request) for request in requests]) @ inverse.T
        states = drawn.astype(np.float16).astype(np.float32)
        encoded = Encoded(
            states,
            tuple(f"{key:08x}" * 4 for key in keys),
            tuple(120 + 90 * request.index for request in requests),
            (False,) * len(requests),
        )
        turns = [request.index for request in requests]
        return choose(requests, encoded, head.logits(states, vector, turns), self.checkpoint)

    def _wanted(self, request: Decide) -> np.ndarray:
        lean = np.zeros(SLOTS)
        lean[self.families[request.transcript.question]] = self.strength
        lean[len(MODELS) + (1, 0, 2)[request.index % 3]] = 1.0 + self.strength
        return lean


def checkpoint(generation: int) -> Checkpoint:
    """The evolution's checkpoint of a generation."""
    vector = np.random.default_rng(generation).normal(size=SLOTS * WIDTH) * 0.4 / np.sqrt(WIDTH)
    return Checkpoint(vector, MODELS, IDENTITY, generation=generation, parent_run=EVOLUTION)


class Writer:
    """Replies of the lengths that models write, from the tasks' own answers."""

    def __init__(self, tasks: Sequence[Task], seeds: Sequence[int]) -> None:
        self._tasks = {derive_seed((seed, task.id)): task for task in tasks for seed in seeds}
        source = random.Random(0)
        words = ["".join(source.choices("aeioubcdfglmnprst", k=source.randint(3, 9))) for _ in range(4000)]
        common = re.findall(
            r"\w+", "first gather what is given, then combine it so that this gives the next part"
        )
        self._sentences = [
            " ".join(
                source.choice(common) if source.random() < 0.6 else words[int(4000 * source.random() ** 3)]
                for _ in range(source.randint(6, 16))
            )
            for _ in range(3000)
        ]
        self._sentences[1500] += f" {RARE_WORD}"

    def __call__(self, ask: Ask) -> Reply | Failure:
        """What the model says; one call in 300 fails."""
        task, prompt = self._tasks[ask.seed], ask.messages[-1].content
        dice = random.Random(zlib.crc32(f"{ask.model}/{ask.seed}/{ask.sample}/{len(prompt)}".encode()))
        if dice.random() < 1 / 300:
            return Failure("model", "context length exceeded")
        slot = MODELS.index(ask.model)
        able = 100 * dice.random() < SKILL[slot] + OWN_FAMILY * (FAMILIES.index(task.family) % 7 == slot)
        dialect, tag = dialect_and_tag(ask.messages)
        said = self._said(ask.role, task, prompt, able, dice, tag if dialect == "general" else None)
        tokens_in = sum(len(message.content) for message in ask.messages) // 4
        tokens_out = len(said) // 4
        return Reply(
            said,
            finish_reason="length" if dice.random() < 0.004 else "stop",
            usage=Usage(tokens_in, tokens_out, PRICES[slot] * (tokens_in + tokens_out)),
            latency_s=0.2 + tokens_out / 60,
        )

    def _said(
        self, role: Role, task: Task, prompt: str, able: bool, dice: random.Random, tag: str | None
    ) -> str:
        sentences = 1 + min(40, int(dice.lognormvariate(1.2, 0.8)))
        start = dice.randrange(len(self._sentences))
        prose = ". ".join(self._sentences[start : start + sentences])
        if role is Role.WORKER:
            answer = task.answer if able else str(dice.randrange(40))
            return f"answer {answer}" if tag is None else f"{prose}.\n<answer>{answer}</answer>"
        if role is Role.THINKER:
            return prose if tag is None else f"<suggestion>{prose}</suggestion>"
        judged = prompt.rpartition("latest answer" if tag else "answer")[2]
        right = task.answer in judged
        verdict = (
            "ACCEPT" if (right and dice.random() < 0.55) or dice.random() < 0.14 - 0.12 * able else "REVISE"
        )
        return f"{prose} {verdict}" if tag is None else f"{prose}.\nVERDICT-{tag}: {verdict}"


def large_store(path: Path, episodes: int) -> Iterator[int]:
    """Make the store of about `episodes` episodes, six turns each, and yield how many it has after every run."""
    tasks = _tasks(-(-episodes // ENTRANTS))
    began = 1_700_000_000
    at = [float(began)]
    store = open_store(path, now=lambda: at[0])
    entrants = _entrants(store, tasks)
    pool = ScriptedPool(
        [
            ModelSpec(name, dialect="terse" if name in TERSE else "general", provider="scripted")
            for name in MODELS
        ],
        Writer(tasks, (0, 1)),
    )
    done = run = 0
    for first in range(0, len(tasks), TASKS_EACH):
        for group in range(0, len(entrants), 5):
            name = f"r{run:04d}bench"
            born = [
                (policy, Episode("", name, task, policy.id, MODELS, turn_budget=BUDGET, seed=seed))
                for policy, seed in entrants[group : group + 5]
                for task in tasks[first : first + TASKS_EACH]
            ]
            played = _played(born[: episodes - done], name, pool)
            at[0] += 3600.0
            if played:
                record_finished_run(
                    store, name, "run", {"tasks": "pocket/all", "split": "test"}, played, POOL
                )
            done, run = done + len(played), run + 1
            yield done
    store.close()


def _tasks(n: int) -> list[Task]:
    """Tasks of all families in turn; some families have few."""
    of = [draw_tasks(family, "test", 1 + n // 5, 0, at_most=True) for family in FAMILIES]
    mixed = [task for row in itertools.zip_longest(*of) for task in row if task is not None]
    return mixed[:n]


def _entrants(store: Store, tasks: Sequence[Task]) -> list[tuple[Policy, int]]:
    """(policy, seed) of everyone who plays, the evolution that made some of them recorded."""
    suits = {task.question: FAMILIES.index(task.family) % len(MODELS) for task in tasks}
    store.runs.create(EVOLUTION, "evolve", {"tasks": "pocket", "seed": 0})
    found: list[tuple[Policy, int]] = []
    for generation in GENERATIONS:
        made = checkpoint(generation)
        keep_checkpoint(store, made, EVOLUTION)
        fitness = 0.35 + 0.005 * generation
        candidates = [CandidateSummary(i, fitness + 0.01 * (i % 7 - 3), 8) for i in range(32)]
        store.learning.add(
            kept_generation(
                EVOLUTION, generation, fitness + 0.1, fitness, fitness, 0.3, 256 * generation, 2.0, made.id
            ),
            candidates=candidates,
            state=b"state",
        )
        found.append((Leaning(made, generation / 30, suits), 0))
    store.runs.finish(EVOLUTION)
    found.append((found[-1][0], 1))
    found += [(single_policy(model, MODELS), 0) for model in MODELS]
    return [*found, (RandomPolicy(MODELS), 0)]


def _played(born: Sequence[tuple[Policy, Episode]], run: str, pool: ScriptedPool) -> list[Episode]:
    """The episodes of a run, played to their ends."""
    by_policy: dict[tuple[str, int], tuple[Policy, list[Episode]]] = {}
    for index, (policy, one) in enumerate(born):
        key = policy.id, one.seed
        by_policy.setdefault(key, (policy, []))[1].append(replace(one, id=episode_id(run, index)))
    found: list[Episode] = []
    for policy, episodes in by_policy.values():
        pool.asks.clear()
        for event in drive_many(episodes, policy, pool, grade_many):
            if isinstance(event, EpisodeFinished):
                found.append(event.episode)
    return [_lightened(one) for one in sorted(found, key=lambda one: one.id)]


def _lightened(played: Episode) -> Episode:
    """The episode with its hidden states if its task is one of those that keep them."""
    if zlib.crc32(played.task.id.encode()) % STATES_EVERY == 0:
        return played
    turns = tuple(replace(turn, decision=replace(turn.decision, hidden_state=b"")) for turn in played.turns)
    return replace(played, turns=turns)
