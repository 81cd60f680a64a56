"""Write a selection of episodes to Parquet, a row per episode, turn, label or second opinion, in bounded memory.

Columns are typed: times are UTC timestamps, flags and logits lists, an unknown cost is null. Turns (`turn`,
`fork_turn`) count from 1, as on pages, on the command line and in filters. Labels stand beside what
they are about, a column `label_NAME` for each name. Texts stand as they were recorded, nothing escaped. What a model
was sent and hidden states are left to `trinity-jsonl` files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, Select, and_, select

from core.play.deciders import decider_at
from storage.files.atomic import atomic_file
from storage.files.label_columns import LabelColumns, label_columns, label_rows, opinion_rows
from storage.files.selection import FETCH, Selection, selected_ids, selection_conditions
from storage.rows import mapping
from storage.rows.engine import reading
from storage.rows.mapping import Row, Rows
from storage.rows.meta_column import deciders_in
from storage.rows.schema import episode, task, text, turn
from storage.store import Store

RowKind = Literal["episodes", "turns", "labels", "opinions"]
#: Every kind of row, in the order in which an export writes them.
ROW_KINDS: tuple[RowKind, ...] = get_args(RowKind)

#: A row group is written when it has this many rows, or this many characters of text.
GROUP_ROWS, GROUP_CHARACTERS = 20_000, 32 * 2**20

_TIME, _NUMBERS, _NAMES = pa.timestamp("us", "UTC"), pa.list_(pa.float64()), pa.list_(pa.string())

EPISODE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("family", pa.string()),
        pa.field("split", pa.string()),
        pa.field("grader", pa.string()),
        pa.field("question", pa.string()),
        pa.field("expected", pa.string()),
        pa.field("policy", pa.string(), nullable=False),
        pa.field("checkpoint_id", pa.string()),
        pa.field("generation", pa.int64()),
        pa.field("models", _NAMES),
        pa.field("protocol", pa.string()),
        pa.field("turn_budget", pa.int64()),
        pa.field("seed", pa.int64()),
        pa.field("argmax", pa.bool_()),
        pa.field("parent_episode_id", pa.string()),
        pa.field("fork_turn", pa.int64()),  # from 1
        pa.field("status", pa.string()),
        pa.field("end_reason", pa.string()),
        pa.field("answer", pa.string()),
        pa.field("correct", pa.bool_()),
        pa.field("turns", pa.int64()),
        pa.field("strip", pa.string()),
        pa.field("tokens_in", pa.int64()),
        pa.field("tokens_out", pa.int64()),
        pa.field("cost_usd", pa.float64()),
        pa.field("latency_s", pa.float64()),
        pa.field("min_margin", pa.float64()),
        pa.field("mean_entropy", pa.float64()),
        pa.field("flags", _NAMES),
        pa.field("started", _TIME),
        pa.field("finished", _TIME),
    ]
)

TURN_SCHEMA = pa.schema(
    [
        pa.field("episode_id", pa.string(), nullable=False),
        pa.field("turn", pa.int64(), nullable=False),  # from 1
        pa.field("stage", pa.string()),
        pa.field("policy", pa.string(), nullable=False),  # that decided this turn
        pa.field("role", pa.string(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("origin", pa.string()),
        pa.field("sampled", pa.bool_()),
        pa.field("argmax_role", pa.string()),
        pa.field("argmax_model", pa.string()),
        pa.field("model_logits", _NUMBERS),
        pa.field("role_logits", _NUMBERS),
        pa.field("model_probs", _NUMBERS),
        pa.field("role_probs", _NUMBERS),
        pa.field("margin", pa.float64()),
        pa.field("entropy", pa.float64()),
        pa.field("prompt_tokens", pa.int64()),
        pa.field("reply", pa.string()),
        pa.field("reasoning", pa.string()),
        pa.field("finish_reason", pa.string()),
        pa.field("error", pa.string()),
        pa.field("verdict", pa.string()),
        pa.field("answer_after", pa.string()),
        pa.field("correct_after", pa.bool_()),
        pa.field("flags", _NAMES),
        pa.field("tokens_in", pa.int64()),
        pa.field("tokens_out", pa.int64()),
        pa.field("cost_usd", pa.float64()),
        pa.field("latency_s", pa.float64()),
        pa.field("started", _TIME),
    ]
)

LABEL_SCHEMA = pa.schema(
    [
        pa.field("episode_id", pa.string(), nullable=False),
        pa.field("turn", pa.int64()),  # from 1; null: the whole episode
        pa.field("span_start", pa.int64()),  # characters of the turn's reply; null: all of it
        pa.field("span_end", pa.int64()),
        pa.field("words", pa.string()),
        pa.field("name", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("note", pa.string()),
        pa.field("author", pa.string(), nullable=False),
        pa.field("said", _TIME, nullable=False),
    ]
)

OPINION_SCHEMA = pa.schema(
    [
        pa.field("episode_id", pa.string(), nullable=False),
        pa.field("turn", pa.int64(), nullable=False),  # from 1
        pa.field("checkpoint_id", pa.string(), nullable=False),
        pa.field("model_logits", _NUMBERS),
        pa.field("role_logits", _NUMBERS),
        pa.field("same_input", pa.bool_()),
        pa.field("device", pa.string()),
    ]
)


def export_parquet(store: Store, selection: Selection, path: str | Path, rowed: RowKind) -> int:
    """Write one file with a row per episode (in the order of ids), turn, label that counts or second opinion;
    returns how many rows.

    The file appears whole or not at all. StoreError for an unknown episode, none, or an unwritable place.
    """
    with reading(store.engine) as connection:
        selected_ids(connection, selection)
        schema, make = _table(connection, selection, rowed)
        with atomic_file(Path(path)) as draft, pq.ParquetWriter(draft, schema, compression="zstd") as file:
            return _write(file, schema, make(connection, selection))


def _table(
    connection: Connection, selection: Selection, rowed: RowKind
) -> tuple[Any, Callable[[Connection, Selection], Iterable[Row]]]:
    """The columns of a file, and what makes its rows."""
    if rowed == "labels":
        return LABEL_SCHEMA, label_rows
    if rowed == "opinions":
        return OPINION_SCHEMA, opinion_rows
    labels = label_columns(connection, selection, of_turns=rowed == "turns")
    schema, make = (TURN_SCHEMA, _turns) if rowed == "turns" else (EPISODE_SCHEMA, _episodes)
    for title in labels.titles:
        schema = schema.append(pa.field(title, pa.string()))
    return schema, partial(make, labels=labels)


def _write(file: Any, schema: Any, rows: Iterable[Row]) -> int:
    total = 0
    for group in _groups(rows):
        file.write_table(pa.Table.from_pylist(group, schema))
        total += len(group)
    return total


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows in groups that fit into memory, however long their texts are."""
    group: list[Row] = []
    characters = 0
    for row in rows:
        group.append(row)
        characters += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(group) >= GROUP_ROWS or characters >= GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _episodes(connection: Connection, selection: Selection, labels: LabelColumns) -> Iterator[Row]:
    task_columns = (
        task.c.split,
        task.c.grader,
        task.c.question.label("asked"),
        task.c.answer.label("expected"),
    )
    query = (
        select(episode, *task_columns)
        .join(task, task.c.key == episode.c.task_key)
        .where(*selection_conditions(selection, connection.dialect.name))
        .order_by(episode.c.id)
    )
    return _streamed(connection, query, FETCH, lambda row: _episode(row) | labels.of(row["id"]))


def _episode(row: Rows) -> Row:
    made = {name: row[name] for name in EPISODE_SCHEMA.names if name in row}
    made["question"] = row["asked"]
    made["models"] = json.loads(row["models"])
    made["fork_turn"] = None if row["fork_turn"] is None else row["fork_turn"] + 1
    made["flags"] = list(mapping.to_flag_names(row["flags"]))
    made["started"], made["finished"] = _micros(row["started"]), _micros(row["finished"])
    return made


def _turns(connection: Connection, selection: Selection, labels: LabelColumns) -> Iterator[Row]:
    reply, reasoning = text.alias(), text.alias()

    def of(body: Any, kind: str) -> Any:
        return and_(body.c.episode_id == turn.c.episode_id, body.c.idx == turn.c.idx, body.c.kind == kind)

    wanted = select(episode.c.id).where(*selection_conditions(selection, connection.dialect.name))
    query = (
        select(
            turn,
            reply.c.body.label("reply"),
            reasoning.c.body.label("reasoning"),
            episode.c.policy,
            episode.c.meta,
        )
        .join(episode, episode.c.id == turn.c.episode_id)
        .outerjoin(reply, of(reply, "reply"))
        .outerjoin(reasoning, of(reasoning, "reasoning"))
        .where(turn.c.episode_id.in_(wanted))
        .order_by(turn.c.episode_id, turn.c.idx)
    )
    return _streamed(connection, query, 50, lambda row: _turn(row) | labels.of(row["episode_id"], row["idx"]))


def _turn(row: Rows) -> Row:
    made = {name: row[name] for name in TURN_SCHEMA.names if name in row}
    for name in ("model_logits", "role_logits", "model_probs", "role_probs"):
        made[name] = list(mapping.to_floats(row[name]))
    made["turn"] = row["idx"] + 1
    made["policy"] = decider_at(row["policy"], deciders_in(row["meta"]), row["idx"])
    made["flags"] = [flag.value for flag in mapping.to_flags(row["flags"])]
    made["started"] = _micros(row["started"])
    return made


def _streamed(
    connection: Connection, query: Select[Any], fetch: int, make: Callable[[Rows], Row]
) -> Iterator[Row]:
    for row in connection.execute(query.execution_options(yield_per=fetch)).mappings():
        yield make(row)


def _micros(at: float | None) -> int | None:
    return None if at is None else round(at * 1e6)
