"""Random episodes with their turns and labels, as plain rows and as a store holds them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Float

from storage.filters.vocabulary import FIELDS, Many
from storage.rows import schema
from storage.rows.mapping import flag_bits
from storage.store import Store

WORDS = ["", "a", "A", "ab", "50%", "a_b", "axb", "me", "'; --", 'say "x"', "back\\slash", "é"]
NUMBERS = [-1, 0, 1, 2, 3, 0.25, 2.5, 10**15]
TIMES = [0.0, 86_400.0, 1_600_000_000.25]

Row = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """A store of arbitrary rows, and the same rows as a reader of the language sees them."""

    store: Store
    episodes: tuple[Row, ...]


def columns_of(scope: Many | None) -> dict[str, Column[Any]]:
    """The fields of an episode, a turn or a label that are a column and no more, by their last name."""
    return {
        field.name.rpartition(".")[2]: field.column
        for field in FIELDS.values()
        if field.of == scope and isinstance(field.column, Column)
    }


def drawn(rng: random.Random, scope: Many | None) -> Row:
    """Any value in each of these columns: it need not make sense, as the language does not ask whether it does."""
    row: Row = {}
    for name, column in columns_of(scope).items():
        field = FIELDS[f"{scope}.{name}" if scope else name]
        values: dict[str, list[Any]] = {
            "text": WORDS,
            "number": [0.0, 0.25, 2.5] if isinstance(column.type, Float) else [0, 1, 2, 4],
            "truth": [True, False],
            "choice": [*field.choices],
            "time": TIMES,
        }
        if field.kind == "set":
            row[name] = rng.sample(field.choices, rng.randrange(4))
        else:
            row[name] = rng.choice([*values[field.kind], *([None] if column.nullable else [])])
    return row


def added(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def seen_turn(rng: random.Random, number: int) -> Row:
    row = drawn(rng, "turn")
    tokens = added(row["tokens_in"], row["tokens_out"])
    return {
        **row,
        "number": number,
        "step": rng.choice([None, 1, 2]),
        "tokens": tokens,
        "unread_cost": 0.25 * (number % 2),
        "rating": None if row["answer"] is None else rng.choice([None, 1.0, 2.5]),
    }


def said_labels(rng: random.Random) -> list[Row]:
    """Everything ever said about one episode; a few places, names and authors, so that much is said again."""
    found = []
    for _ in range(rng.randrange(6)):
        turn = rng.choice([None, 1, 2])
        found.append(
            {
                "turn": turn,
                "span": rng.choice([None, (0, 2)]) if turn is not None else None,
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
    """An episode of a measured run, or of forks."""
    row, said = drawn(rng, None), said_labels(rng)
    counted, run = counting(said), rng.choice(["r1", "r2"])
    mixed = bool({"override", "swapped"} & set(row["flags"]))
    turns = [seen_turn(rng, number + 1) for number in range(rng.randrange(4))]
    ratings = [one["rating"] for one in turns if one["rating"] and one["answer"] == row["answer"]]
    return {
        **row,
        "id": f"e{index}",
        "run": run,
        "checkpoint": None,
        "task": rng.choice(["t0", "t1"]),
        "purpose": "measured" if run == "r1" else "fork",
        "fork": run == "r2",
        "mixed": mixed,
        "measured": run == "r1" and not mixed,
        "evolution": False,
        "sample": False,
        "pool": "",
        "tokens": row["tokens_in"] + row["tokens_out"],
        "fork_turn": rng.choice([None, 1, 2]),
        "turn": turns,
        "rating": max(ratings, default=None),
        "said": said,
        "label": counted,
        "labels": len(counted),
    }


def stored(one: Row, scope: Many | None) -> Row:
    """What stands in the columns that are fields."""
    return {column.name: one[name] for name, column in columns_of(scope).items()}


def before(number: int | None) -> int | None:
    """As it is stored: from 0."""
    return None if number is None else number - 1


def insert(connection: Any, one: Row) -> None:
    fixed = {"question": "cut", "models": (), "meta": {}, "flags": flag_bits(one["flags"])}
    key, fork_turn = 1 + int(one["task"][1:]), before(one["fork_turn"])
    row = {**stored(one, None), **fixed, "task_key": key, "fork_turn": fork_turn}
    connection.execute(schema.episode.insert().values(row))
    for said in one["said"]:
        start, end = said["span"] or (None, None)
        place = {"episode_id": one["id"], "idx": before(said["turn"]), "span_start": start, "span_end": end}
        connection.execute(schema.label.insert().values({**stored(said, "label"), **place}))
    for turn in one["turn"]:
        blank: Row = dict.fromkeys(("model_logits", "role_logits", "model_probs", "role_probs"), b"")
        blank |= {"model_mask": (), "role_mask": (), "prompt_digest": "", "prompt_tokens": 0}
        place = {"episode_id": one["id"], "idx": turn["number"] - 1, "step": before(turn["step"])}
        blank |= {
            "prompt_overflow": False,
            "stage": "finished",
            "started": 0.0,
            "unread_usd": turn["unread_cost"],
        }
        connection.execute(schema.turn.insert().values({**stored(turn, "turn"), **blank, **place}))
        if turn["rating"] is not None:
            said = {
                "judge": "jo",
                "at": 0.0,
                "prompt": "",
                "reply": "",
                "reasoning": "",
                "number": place["idx"],
            }
            said |= {"answer": turn["answer"], "rating": turn["rating"], "idx": place["idx"]}
            connection.execute(schema.judgement.insert().values({"episode_id": one["id"], **said}))
