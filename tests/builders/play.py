"""Episodes played by the role loop: tasks, births, a policy with a head, a pool that follows a script, a grader."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.episode import (
    ROLE_ORDER,
    Ask,
    Decide,
    Decision,
    Episode,
    EpisodeFinished,
    Event,
    Grade,
    Reply,
    Role,
    Task,
    Usage,
)
from core.ids import episode_id
from core.play.drive import drive_many
from core.play.policies import Policy
from tests.builders.pools import ScriptedPool, specs

MODELS = ("ada", "bo", "cy")
FAMILIES = ("math", "logic", "code")


@dataclass(frozen=True)
class HashPolicy(Policy):
    """Logits and choice from a hash of the request's key: a head without an encoder.

    Logits are drawn with a standard deviation of `spread`; `lean` is added to those of the model that suits the
    question and of the role whose turn it usually is."""

    id: str = "hash"
    models: tuple[str, ...] = MODELS
    spread: float = 1.0
    lean: float = 0.0

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return [self._one(request) for request in requests]

    def _one(self, request: Decide) -> Decision:
        seed = hashlib.sha256(f"{self.id}/{request.key}".encode()).digest()
        draw = np.random.default_rng(list(seed))
        models, roles = (draw.normal(size=n) * self.spread for n in (len(self.models), 3))
        models[suited_slot(request.transcript.question, len(models))] += self.lean
        roles[ROLE_ORDER.index((Role.THINKER, Role.WORKER, Role.VERIFIER)[request.index % 3])] += self.lean
        model_probs, role_probs = softmax(models), softmax(roles)
        return Decision(
            model=self.models[int(draw.choice(len(self.models), p=model_probs))],
            role=ROLE_ORDER[int(draw.choice(3, p=role_probs))],
            model_logits=tuple(models.tolist()),
            role_logits=tuple(roles.tolist()),
            model_probs=tuple(model_probs),
            role_probs=tuple(role_probs),
            argmax_model=self.models[int(models.argmax())],
            argmax_role=ROLE_ORDER[int(roles.argmax())],
            hidden_state=draw.normal(size=16).astype("<f2").tobytes(),
            prompt_digest=seed.hex()[:16],
            prompt_tokens=20 + 10 * request.index,
        )


def suited_slot(question: str, models: int) -> int:
    """The slot of the model that suits a question, among the first four."""
    return hashlib.sha256(question[:8].encode()).digest()[0] % min(4, models)


def softmax(logits: Iterable[float]) -> list[float]:
    """Probabilities that sum to 1 in Python floats."""
    exps = [math.exp(float(x)) for x in logits]
    return [x / sum(exps) for x in exps]


def answer(ask: Ask) -> Reply:
    """A terse reply drawn from the prompt: plans, right and wrong answers, verdicts, some unreadable."""
    prompt = ask.messages[0].content
    dice = hashlib.sha256(f"{ask.model}/{prompt}/{ask.sample}".encode()).digest()
    match ask.role.value:
        case "thinker":
            text = f'first find the {("sum", "product", "largest")[dice[0] % 3]} of "them" — naïve'
        case "worker":
            text = f"answer {prompt.split('?')[0].split()[-1] if dice[0] % 2 else dice[1]}"
        case _:
            text = f"checked {dice[2]} " + ("ACCEPT", "REVISE", "ACCEPT REVISE")[dice[0] % 3]
    cost = 0.001 * dice[3] if ask.model == "cy" else 0.0
    return Reply(text, usage=Usage(len(prompt), len(text), cost), latency_s=dice[4] / 256)


def pool() -> ScriptedPool:
    """A pool of the three models."""
    return ScriptedPool(specs(MODELS), answer)


def grade(requests: Sequence[Grade]) -> list[bool]:
    """Exact match."""
    return [request.answer == request.task.answer for request in requests]


def tasks(n: int, start: int = 0) -> list[Task]:
    """Tasks whose answer is their number."""
    return [
        Task(
            f"t{i:04d}",
            f"what is 0 plus {i}? take care and say the number only {'please ' * (i % 30)}",
            str(i),
            "exact",
            FAMILIES[i % 3],
        )
        for i in range(start, start + n)
    ]


def births(
    run: str, chosen: Iterable[Task], policy: str = "hash", *, first: int = 0, seed: int = 0, budget: int = 5
) -> list[Episode]:
    """Episodes without turns, one per task."""
    return [
        Episode(
            episode_id(run, first + i),
            run,
            task,
            policy,
            MODELS,
            turn_budget=budget,
            seed=seed,
            meta={"repeat": str(i % 2)},
        )
        for i, task in enumerate(chosen)
    ]


def events(episodes: Iterable[Episode], policy: HashPolicy | None = None) -> Iterator[Event]:
    """The events of playing these episodes."""
    return drive_many(episodes, policy or HashPolicy(), pool(), grade)


def ends(events: Iterable[Event]) -> dict[str, Episode]:
    """How episodes ended, by id; each ends once."""
    over = [event.episode for event in events if isinstance(event, EpisodeFinished)]
    found = {one.id: one for one in over}
    assert len(found) == len(over)
    return found


def end(events: Iterable[Event]) -> Episode:
    """How the only episode ended."""
    [episode] = ends(events).values()
    return episode
