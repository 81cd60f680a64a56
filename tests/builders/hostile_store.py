"""A store in which whatever can be foreign is hostile: questions, answers, models, policies, families, errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from core.checkpoint import Checkpoint, EncoderIdentity
from core.episode import Episode, Failure, Flag, Message, Reply, Role, Status, Task, Turn, Usage, Verdict
from storage.recorder import record
from storage.rows.summaries import CandidateSummary, RunStatus
from storage.store import Store
from tests.builders.recorded import CYCLE, decision, events_of
from tests.builders.stores import begin_run, kept_generation, new_store
from tests.hostile import HOSTILE
from ui.runs.wiring import keep_checkpoint

SLOTS = 7
#: So many episodes are needed until every text has been the name of a model.
EPISODES = -(-len(HOSTILE) // SLOTS)
RUN, EVOLUTION = "rhostile", "revhostile"
HUGE = ":green-badge[ACCEPT] " * 250_000  # 5 MB


def hostile_episode(number: int, policy: str) -> Episode:
    """One of the episodes: its names are texts of its own, its question and replies are all of them."""
    mine = [HOSTILE[(number * SLOTS + i) % len(HOSTILE)] for i in range(SLOTS)]
    everything = "\n".join(HOSTILE[number:] + HOSTILE[:number])
    task = Task(f"{mine[0]} {number}", everything, mine[1], "exact", mine[2], "test")
    models = tuple(f"{name}{i}" for i, name in enumerate(mine))
    turns = []
    for index, role in enumerate(CYCLE):
        failed = index == 3
        reply = Reply(
            "" if failed else everything,
            reasoning=everything,
            usage=Usage(30, 12),
            latency_s=0.1,
            error=Failure("model", mine[3] or "failed") if failed else None,
        )
        verdict = Verdict.REVISE if role is Role.VERIFIER else None
        turns.append(
            Turn(
                f"eh-{number:05d}",
                index,
                decision(number * 10 + index, role=role, models=models),
                (Message("system", mine[4]), Message("user", everything)),
                reply,
                suggestion=mine[5],
                verdict=verdict,
                verdict_raw=mine[6] if verdict else "",
                answer_after=mine[1] if index else None,
                correct_after=False if index else None,
                flags=(Flag.MODEL_ERROR,) if failed else (),
            )
        )
    return Episode(
        f"eh-{number:05d}",
        RUN,
        task,
        policy,
        models,
        turns=tuple(turns),
        status=Status.FINISHED,
        answer=mine[1],
        correct=False,
        error=mine[3] if number == 0 else None,
        generation=0 if number == 0 else None,
    )


def hostile_store(path: Path) -> Store:
    """The store, opened: all texts in all places, in as few episodes as that takes."""
    store = new_store(path)
    config = {"tasks": HOSTILE[0], "name": HOSTILE[22], "split": HOSTILE[1], "policies": list(HOSTILE[:9])}
    begin_run(store, RUN, "run", config)
    begin_run(store, EVOLUTION, "evolve", config)
    identity = EncoderIdentity(name=HOSTILE[3], digest="0" * 64, hidden_size=8)
    made = [
        Checkpoint(
            np.full((SLOTS + 3) * 8, generation / 10, dtype=np.float32),
            tuple(f"{name}{i}" for i, name in enumerate(HOSTILE[22 : 22 + SLOTS])),
            identity,
            generation=generation,
            parent_run=EVOLUTION,
        )
        for generation in (0, 1)
    ]
    for one in made:
        generation = one.generation or 0
        keep_checkpoint(store, one, EVOLUTION)
        entry = kept_generation(EVOLUTION, generation, 0.6, 0.5, 0.5, 0.3, 10, 1.0, one.id)
        store.learning.add(entry, candidates=[CandidateSummary(0, 0.5, 4)], state=b"state")
    store.runs.finish(EVOLUTION, RunStatus.FAILED, HOSTILE[25])
    for number in range(EPISODES):
        policy = made[number % 2].id if number < 4 else f"single:{HOSTILE[number * SLOTS]}"
        whole = hostile_episode(number, policy)
        if number < 4:  # the same tasks under both checkpoints
            whole = dataclasses.replace(whole, task=hostile_episode(number // 2, policy).task)
        list(record(store, events_of(whole)))
    huge = hostile_episode(EPISODES, "random")
    replied = dataclasses.replace(huge.turns[0], reply=Reply(HUGE, usage=Usage(1, 1)))
    list(record(store, events_of(dataclasses.replace(huge, turns=(replied, *huge.turns[1:])))))
    store.runs.finish(RUN)
    key, _ = store.endpoint.add_key("![x](https://example.com) <b>:red[key]</b> $x$")
    for number in range(6):  # as if they were requests, with names that no client could ask for
        store.endpoint.note(f"eh-{number:05d}", key.id, HOSTILE[number], HOSTILE[22 + number])
    return store
