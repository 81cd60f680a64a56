"""Random episodes with their turns and labels, as plain rows and as a store holds them."""

from __future__ import annotations

import random
from typing import Any

from core.episode import ANSWER_RULES, EndReason, Flag, Role, Status, Verdict
from core.workflow import PlanFault, Topology
from storage.rows import schema
from storage.rows.mapping import flag_bits
from storage.rows.summaries import EPISODE_FLAGS
from storage.store import Store

WORDS = ["", "a", "A", "ab", "50%", "a_b", "axb", "me", "'; --", 'say "x"', "back\\slash", "é"]
NUMBERS = [-1, 0, 1, 2, 3, 0.25, 2.5, 10**15]
TIMES = [0.0, 86_400.0, 1_600_000_000.25]

Row = dict[str, Any]


class Written:
    """A store of arbitrary rows, and the same rows as a reader of the language sees them."""

    def __init__(self, store: Store, episodes: tuple[Row, ...]) -> None:
        self.store, self.episodes = store, episodes


def maybe(rng: random.Random, values: list[Any]) -> Any:
    return rng.choice([None, *values])


def seen_turn(rng: random.Random, number: int) -> Row:
    tokens = maybe(rng, [0, 1, 2])
    return {
        "role": rng.choice([role.value for role in Role]),
        "model": rng.choice(WORDS),
        "verdict": maybe(rng, [one.value for one in Verdict]),
        "correct": maybe(rng, [True, False]),
        "answer": maybe(rng, WORDS),
        "number": number,
        "read_by": maybe(rng, list(ANSWER_RULES)),
        "step": maybe(rng, [1, 2]),
        "margin": maybe(rng, [0.0, 0.25, 3.0]),
        "entropy": maybe(rng, [0.0, 2.5]),
        "sampled": rng.random() < 0.5,
        "argmax_model": rng.choice(WORDS),
        "argmax_role": maybe(rng, [role.value for role in Role]),
        "flags": rng.sample([flag.value for flag in Flag], rng.randrange(3)),
        "tokens_in": tokens,
        "tokens_out": tokens,
        "tokens_cached": maybe(rng, [0, 1]),
        "tokens": None if tokens is None else 2 * tokens,
        "cost": maybe(rng, [0.0, 0.25]),
        "unread_cost": 0.25 * (number % 2),
        "latency": maybe(rng, [1.0, 2.5]),
        "error": maybe(rng, WORDS),
        "origin": rng.choice(["policy", "override"]),
    }


def said_labels(rng: random.Random) -> list[Row]:
    """Everything ever said about one episode; a few places, names and authors, so that much is said again."""
    found = []
    for _ in range(rng.randrange(6)):
        turn = maybe(rng, [1, 2])
        span = maybe(rng, [(0, 2)]) if turn is not None else None
        found.append(
            {
                "turn": turn,
                "span": span,
                "name": rng.choice(["quality", "a", "50%"]),
                "value": rng.choice(["", "good", "A", "a_b"]),
                "author": rng.choice(["me", "you"]),
                "note": rng.choice(WORDS),
                "said": rng.choice(TIMES),
            }
        )
    return found


def counting(said: list[Row]) -> list[Row]:
    """What counts of it: the last that one author said under one name at one place, unless it withdraws."""
    last: dict[Any, Row] = {}
    for one in sorted(said, key=lambda one: one["said"]):
        last[one["turn"], one["span"], one["name"], one["author"]] = one
    return [one for one in last.values() if one["value"]]


def seen_episode(rng: random.Random, index: int) -> Row:
    """An episode that need not make sense: the language does not ask whether it does."""
    read, written = rng.randrange(4), rng.randrange(4)
    said = said_labels(rng)
    counted = counting(said)
    flags = rng.sample(EPISODE_FLAGS, rng.randrange(4))
    return {
        "id": f"e{index}",
        "run": (run := rng.choice(["r1", "r2"])),
        "fork": run == "r2",
        "measured": run == "r1" and not {"override", "swapped"} & set(flags),
        "evolution": False,
        "protocol": "paper",
        "pool": "",
        "sample": False,
        "topology": maybe(rng, [one.value for one in Topology]),
        "plan_fault": maybe(rng, [one.value for one in PlanFault]),
        "family": rng.choice(WORDS),
        "task": rng.choice(["t0", "t1"]),
        "policy": rng.choice(WORDS),
        "checkpoint": None,
        "generation": maybe(rng, [0, 1, 2]),
        "status": rng.choice([one.value for one in Status]),
        "correct": maybe(rng, [True, False]),
        "end_reason": maybe(rng, [one.value for one in EndReason]),
        "flags": flags,
        "turns": rng.randrange(5),
        "budget": rng.randrange(5),
        "tokens_in": read,
        "tokens_out": written,
        "tokens": read + written,
        "cost": maybe(rng, [0.0, 0.25, 2.5]),
        "latency": rng.choice([0.0, 2.5]),
        "margin": maybe(rng, [0.0, 0.25]),
        "entropy": maybe(rng, [0.0, 2.5]),
        "answer": maybe(rng, WORDS),
        "seed": rng.randrange(4),
        "argmax": rng.random() < 0.5,
        "parent": maybe(rng, WORDS),
        "fork_turn": maybe(rng, [1, 2]),
        "started": rng.choice(TIMES),
        "finished": maybe(rng, TIMES),
        "turn": [seen_turn(rng, number + 1) for number in range(rng.randrange(4))],
        "said": said,
        "label": counted,
        "labels": len(counted),
    }


COLUMNS = {
    "run": "run_id",
    "task": "task_id",
    "checkpoint": "checkpoint_id",
    "budget": "turn_budget",
    "cost": "cost_usd",
    "latency": "latency_s",
    "margin": "min_margin",
    "entropy": "mean_entropy",
    "parent": "parent_episode_id",
}
TURN_COLUMNS = {
    "correct": "correct_after",
    "answer": "answer_after",
    "cost": "cost_usd",
    "unread_cost": "unread_usd",
    "latency": "latency_s",
    "read_by": "answer_rule",
}


def insert(connection: Any, one: Row) -> None:
    derived = (
        "tokens",
        "question",
        "expected",
        "turn",
        "said",
        "label",
        "labels",
        "flags",
        "fork",
        "measured",
        "evolution",
        "protocol",
        "pool",
        "sample",
        "fork_turn",
    )
    row = {COLUMNS.get(name, name): value for name, value in one.items() if name not in derived}
    connection.execute(
        schema.episode.insert().values(
            **row,
            flags=flag_bits(one["flags"]),
            fork_turn=None if one["fork_turn"] is None else one["fork_turn"] - 1,
            task_key=1 + int(one["task"][1:]),
            question="cut",
            models=(),
            protocol="paper",
            meta={},
        )
    )
    for said in one["said"]:
        start, end = said["span"] or (None, None)
        connection.execute(
            schema.label.insert().values(
                **{name: said[name] for name in ("name", "value", "author", "note")},
                episode_id=one["id"],
                idx=None if said["turn"] is None else said["turn"] - 1,
                span_start=start,
                span_end=end,
                at=said["said"],
            )
        )
    for turn in one["turn"]:
        values = {
            TURN_COLUMNS.get(name, name): turn[name]
            for name in turn
            if name not in ("tokens", "number", "flags", "step")
        }
        blobs = dict.fromkeys(("model_logits", "role_logits", "model_probs", "role_probs"), b"")
        connection.execute(
            schema.turn.insert().values(
                **values,
                **blobs,
                episode_id=one["id"],
                idx=turn["number"] - 1,
                step=None if turn["step"] is None else turn["step"] - 1,
                flags=turn["flags"],
                stage="finished",
                model_mask=(),
                role_mask=(),
                prompt_digest="",
                prompt_tokens=0,
                prompt_overflow=False,
                started=0.0,
            )
        )
