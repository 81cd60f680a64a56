"""Small recorded episodes of every state, written through the recorder into a real store."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Iterator
from pathlib import Path

from core.episode import (
    ROLE_ORDER,
    Decision,
    Delta,
    EndReason,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Failure,
    Flag,
    Message,
    Replied,
    Reply,
    Role,
    Status,
    Task,
    Turn,
    TurnStarted,
    Usage,
    Verdict,
)
from storage.recorder import record
from storage.store import Store
from tests.builders.play import softmax
from tests.builders.stores import begin_run, filled_store
from tests.hostile import HOSTILE

MODELS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta")
RUN = "rtest"
TASK = Task(
    "math-1", "A shop sells 12 pens at 3 each and gives 4 back. How much is paid?", "32", "number", "math"
)
CYCLE = (Role.THINKER, Role.WORKER, Role.VERIFIER, Role.WORKER, Role.VERIFIER)


def decision(
    seed: int, model: str | None = None, role: Role = Role.WORKER, models: tuple[str, ...] = MODELS
) -> Decision:
    """A made-up but consistent decision of a head."""
    source = random.Random(seed)
    model_logits = tuple(source.gauss(0, 1.2) for _ in models)
    role_logits = tuple(source.gauss(0, 1) for _ in ROLE_ORDER)
    model_probs, role_probs = tuple(softmax(model_logits)), tuple(softmax(role_logits))
    return Decision(
        model or source.choice(models),
        role,
        model_logits,
        role_logits,
        model_probs,
        role_probs,
        models[model_probs.index(max(model_probs))],
        ROLE_ORDER[role_probs.index(max(role_probs))],
        hidden_state=b"\x00\x3c" * 8,
        prompt_digest="ab12cd34" * 4,
        prompt_tokens=120,
    )


def episode(
    name: str,
    answers: tuple[str | None, ...] = ("36", "36"),
    *,
    turns: int = 5,
    seed: int = 1,
    task: Task = TASK,
    policy: str = "c0123456789",
    head: bool = True,
    said: str | None = None,
) -> Episode:
    """An episode that cycles through the roles; the Workers answer `answers` in turn. `said` replaces every reply."""
    played: list[Turn] = []
    answer: str | None = None
    given = iter(answers)
    for index in range(turns):
        role = CYCLE[index % len(CYCLE)]
        chosen = decision(seed * 100 + index, role=role)
        if not head:
            chosen = Decision(chosen.model, role)
        verdict = None
        text = "multiply 12 by 3, then take 4 away"
        if role is Role.WORKER:
            answer = next(given, answer)
            text = f"answer {answer}"
        elif role is Role.VERIFIER:
            verdict = Verdict.ACCEPT if index == turns - 1 else Verdict.REVISE
            text = f"12*3=36 36-4=32 {verdict}"
        played.append(
            Turn(
                name,
                index,
                chosen,
                (Message("user", f"{role}\n{task.question}"),),
                Reply(said if said is not None else text, usage=Usage(30, 12), latency_s=0.05 * (index + 1)),
                verdict=verdict,
                verdict_raw=verdict or "",
                answer_after=answer,
                correct_after=None if answer is None else answer == task.answer,
                flags=(Flag.SELF_VERIFIED,) if role is Role.VERIFIER and index == 2 else (),
            )
        )
    return Episode(
        name,
        RUN,
        task,
        policy,
        MODELS,
        seed=7,
        turns=tuple(played),
        status=Status.FINISHED,
        end_reason=EndReason.ACCEPTED,
        answer=answer,
        correct=answer == task.answer,
    )


def events_of(played: Episode, upto: int | None = None) -> Iterator[Event]:
    """The events that made an episode; with `upto` it breaks off after that many events of its turns."""
    yield EpisodeStarted(dataclasses.replace(played, turns=(), status=Status.RUNNING, end_reason=None))
    told: list[Event] = []
    for turn in played.turns:
        told += [
            TurnStarted(played.id, turn.index, turn.decision, turn.messages),
            Delta(played.id, turn.index, turn.reply.text[:5]),
            Replied(played.id, turn.index, turn.reply),
            turn,
        ]
    yield from told[:upto]
    if upto is None:
        yield EpisodeFinished(played)


def recorded_store(path: Path) -> Store:
    """A store with one episode of each kind; their ids begin with `e-`."""
    return filled_store(path, _fill)


def _fill(store: Store, _: int) -> None:
    begin_run(store, RUN, "run", {})
    begin_run(store, "rlive", "live", {})
    hostile = "\n".join(HOSTILE)
    finished = [
        episode("e-right", ("36", "32"), seed=1),
        episode("e-wrong", ("32", "36"), seed=2, policy="c9876543210"),
        episode("e-random", seed=3, policy="random", head=False),
        episode("e-short", ("32",), turns=3, seed=1, policy="single:alpha"),
        episode("e-long", ("36", "32") * 10, turns=40, seed=4),
        episode("e-huge", seed=5, said="word " * 200_000),
        episode(
            "e-hostile",
            (hostile[:200],),
            seed=6,
            said=hostile,
            task=Task("hostile-1", hostile, hostile[:60], "exact", HOSTILE[0]),
        ),
        episode(
            "e-other", seed=8, task=dataclasses.replace(TASK, id="math-2", question="What is 2 + 2?\nThink.")
        ),
    ]
    failed = episode("e-failed", seed=9)
    broken = dataclasses.replace(
        failed.turns[1],
        reply=Reply("", error=Failure("model", "context too long")),
        flags=(Flag.MODEL_ERROR,),
    )
    finished.append(dataclasses.replace(failed, turns=(failed.turns[0], broken, *failed.turns[2:])))
    for one in finished:
        list(record(store, events_of(one)))
    missing = dataclasses.replace(
        episode("e-missing", turns=0),
        status=Status.MISSING,
        end_reason=EndReason.ERROR,
        answer=None,
        correct=None,
    )
    list(record(store, events_of(missing)))
    list(record(store, events_of(dataclasses.replace(episode("e-interrupted", seed=3)), upto=6)))
    in_the_future = dataclasses.replace(store.runs, now=lambda: time.time() + 1e6)
    in_the_future.mark_interrupted()
    live = dataclasses.replace(episode("e-running", seed=4), run_id="rlive")
    list(record(store, events_of(live, upto=10)))
    in_the_future.heartbeat("rlive")  # for as long as tests run
