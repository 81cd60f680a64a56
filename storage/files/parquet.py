"""Write a selection of episodes to Parquet, a row per episode, turn, label or second opinion, in bounded memory.

Columns are typed: times are UTC timestamps, flags and logits lists, an unknown cost is null. Turns (`turn`,
`fork_turn`) count from 1, as on pages, on the command line and in filters. Labels stand beside what they are about, a
column `label_NAME` for each name: the values of all authors that count, each once, in the order they were given.
Texts stand as they were recorded, nothing escaped. What a model was sent and hidden states are left to
`trinity-jsonl` files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import ColumnElement, Connection, and_, func, select

from core.play.policies import decider_at
from storage.files.atomic import atomic_file
from storage.files.selection import (
    FETCH,
    LabelColumns,
    Selection,
    label_columns,
    last_count,
    selected_ids,
    selection_conditions,
    selection_query,
)
from storage.filters.vocabulary import RATING, TURN_RATING, current_labels
from storage.rows import mapping
from storage.rows.engine import reading
from storage.rows.mapping import Row, Rows
from storage.rows.schema import episode, label, same_turn, second_opinion, task, text, turn
from storage.store import Store


def label_rows(connection: Connection, selection: Selection) -> Iterator[Row]:
    """Each label that counts, with the words it is about; turns from 1, times in microseconds."""
    found = current_labels(_within(connection, selection)).subquery()
    spoken = and_(same_turn(text, found), text.c.kind == "reply", found.c.span_start.is_not(None))
    words = func.substr(text.c.body, found.c.span_start + 1, found.c.span_end - found.c.span_start)
    query = (
        select(found, words.label("words"))
        .select_from(found.outerjoin(text, spoken))
        .order_by(found.c.episode_id, found.c.at, found.c.id)
    )
    for row in connection.execute(query.execution_options(yield_per=FETCH)).mappings():
        yield {**row, "turn": _from_one(row["idx"]), "said": round(row["at"] * 1e6)}


def opinion_rows(connection: Connection, selection: Selection) -> Iterator[Row]:
    """Each second opinion: a checkpoint's logits at a turn, and whether it read there what the turn's own did."""
    query = (
        select(second_opinion, (turn.c.prompt_digest == second_opinion.c.prompt_digest).label("same_input"))
        .join(turn, same_turn(second_opinion))
        .where(second_opinion.c.episode_id.in_(selection_query(selection, connection.dialect.name)))
        .order_by(second_opinion.c.episode_id, second_opinion.c.idx, second_opinion.c.checkpoint_id)
    )
    for row in connection.execute(query.execution_options(yield_per=FETCH)).mappings():
        logits = {name: list(mapping.to_floats(row[name])) for name in ("model_logits", "role_logits")}
        yield {**row, **logits, "turn": _from_one(row["idx"])}


def _within(connection: Connection, selection: Selection) -> ColumnElement[bool]:
    return label.c.episode_id.in_(selection_query(selection, connection.dialect.name))


def _from_one(index: int | None) -> int | None:
    return None if index is None else index + 1


RowKind = Literal["episodes", "turns", "labels", "opinions"]
#: Every kind of row, in the order in which an export writes them.
ROW_KINDS: tuple[RowKind, ...] = get_args(RowKind)

#: A row group is written when it has this many rows, or this many characters of text.
GROUP_ROWS, GROUP_CHARACTERS = 20_000, 32 * 2**20

_TEXT, _INTEGER, _FLOAT, _TRUTH = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TIME, _NUMBERS, _NAMES = pa.timestamp("us", "UTC"), pa.list_(pa.float64()), pa.list_(pa.string())


def _columns(kind: Any, *names: str, required: bool = False) -> list[Any]:
    return [pa.field(name, kind, nullable=not required) for name in names]


EPISODE_SCHEMA = pa.schema(
    [
        *_columns(_TEXT, "id", "run_id", "task_id", required=True),
        *_columns(_TEXT, "family", "split", "grader", "question", "expected"),
        *_columns(_TEXT, "policy", required=True),
        *_columns(_TEXT, "checkpoint_id"),
        *_columns(_INTEGER, "generation"),
        *_columns(_NAMES, "models"),
        *_columns(_TEXT, "protocol"),
        *_columns(_INTEGER, "turn_budget", "seed"),
        *_columns(_TRUTH, "argmax"),
        *_columns(_TEXT, "parent_episode_id"),
        *_columns(_INTEGER, "fork_turn"),  # from 1
        *_columns(_TEXT, "status", "end_reason", "answer"),
        *_columns(_TRUTH, "correct"),
        *_columns(_FLOAT, "rating"),
        *_columns(_INTEGER, "turns"),
        *_columns(_TEXT, "strip"),
        *_columns(_INTEGER, "tokens_in", "tokens_out"),
        *_columns(_FLOAT, "cost_usd", "latency_s", "min_margin", "mean_entropy"),
        *_columns(_NAMES, "flags"),
        *_columns(_TIME, "started", "finished"),
    ]
)

TURN_SCHEMA = pa.schema(
    [
        *_columns(_TEXT, "episode_id", required=True),
        *_columns(_INTEGER, "turn", required=True),  # from 1
        *_columns(_TEXT, "stage"),
        *_columns(_TEXT, "policy", "role", "model", required=True),  # the policy that decided this turn
        *_columns(_TEXT, "origin"),
        *_columns(_TRUTH, "sampled"),
        *_columns(_TEXT, "argmax_role", "argmax_model"),
        *_columns(_NUMBERS, "model_logits", "role_logits", "model_probs", "role_probs"),
        *_columns(_FLOAT, "margin", "entropy"),
        *_columns(_INTEGER, "prompt_tokens"),
        *_columns(
            _TEXT, "reply", "reasoning", "finish_reason", "error", "verdict", "answer_rule", "answer_after"
        ),
        *_columns(_TRUTH, "correct_after"),
        *_columns(_FLOAT, "rating"),  # by a judge
        *_columns(_NAMES, "flags"),
        *_columns(_INTEGER, "tokens_in", "tokens_out", "tokens_cached"),
        *_columns(_FLOAT, "cost_usd", "latency_s"),
        # The row of an outcome table that a recorded reply is.
        *_columns(_TEXT, "recorded_table"),
        *_columns(_INTEGER, "recorded_sample"),  # from 0
        *_columns(_TEXT, "recorded_answer"),
        *_columns(_TRUTH, "by_agreement"),
        *_columns(_TIME, "started"),
    ]
)

LABEL_SCHEMA = pa.schema(
    [
        *_columns(_TEXT, "episode_id", required=True),
        *_columns(_INTEGER, "turn"),  # from 1; null: the whole episode
        *_columns(_INTEGER, "span_start", "span_end"),  # characters of the turn's reply; null: all of it
        *_columns(_TEXT, "words"),
        *_columns(_TEXT, "name", "value", required=True),
        *_columns(_TEXT, "note", "author"),
        *_columns(_TIME, "said", required=True),
    ]
)

OPINION_SCHEMA = pa.schema(
    [
        *_columns(_TEXT, "episode_id", required=True),
        *_columns(_INTEGER, "turn", required=True),  # from 1
        *_columns(_TEXT, "checkpoint_id", required=True),
        *_columns(_NUMBERS, "model_logits", "role_logits"),
        *_columns(_TRUTH, "same_input"),
        *_columns(_TEXT, "device"),
    ]
)


def export_parquet(store: Store, selection: Selection, path: str | Path, rowed: RowKind) -> int:
    """Write one file with a row per episode (in the order of ids), turn, label that counts or second opinion;
    returns how many rows.

    The file appears whole or not at all. StoreError for an unknown episode, none, or an unwritable place.
    """
    return last_count(write_parquet(store, selection, path, rowed), 0)


def write_parquet(store: Store, selection: Selection, path: str | Path, rowed: RowKind) -> Iterator[int]:
    """`export_parquet` step by step: how many rows are written, again and again until all are."""
    with reading(store.engine) as connection:
        selected_ids(connection, selection)
        schema, make = _table(connection, selection, rowed)
        with atomic_file(Path(path)) as draft, pq.ParquetWriter(draft, schema, compression="zstd") as file:
            yield from _write(file, schema, make(connection, selection))


def read_rows(store: Store, selection: Selection, rowed: RowKind) -> Any:
    """The rows that such a file would hold as a table of pyarrow, all in memory; none where nothing matches."""
    with reading(store.engine) as connection:
        schema, make = _table(connection, selection, rowed)
        return pa.Table.from_pylist(list(make(connection, selection)), schema)


def _table(
    connection: Connection, selection: Selection, rowed: RowKind
) -> tuple[Any, Callable[[Connection, Selection], Iterable[Row]]]:
    if rowed == "labels":
        return LABEL_SCHEMA, label_rows
    if rowed == "opinions":
        return OPINION_SCHEMA, opinion_rows
    labels = label_columns(connection, selection, of_turns=rowed == "turns")
    schema, make = (TURN_SCHEMA, _turns) if rowed == "turns" else (EPISODE_SCHEMA, _episodes)
    for title in labels.titles:
        schema = schema.append(pa.field(title, pa.string()))
    return schema, partial(make, labels=labels)


def _write(file: Any, schema: Any, rows: Iterable[Row]) -> Iterator[int]:
    total = 0
    for group in _groups(rows):
        file.write_table(pa.Table.from_pylist(group, schema))
        total += len(group)
        yield total


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
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
        task.c.question.label("full_question"),
        task.c.answer.label("expected"),
    )
    query = (
        select(episode, *task_columns, RATING.label("rating"))
        .join(task, task.c.key == episode.c.task_key)
        .where(*selection_conditions(selection, connection.dialect.name))
        .order_by(episode.c.id)
    )
    for row in connection.execute(query.execution_options(yield_per=FETCH)).mappings():
        yield _episode(row) | labels.of(row["id"])


def _episode(row: Rows) -> Row:
    made = {name: row[name] for name in EPISODE_SCHEMA.names if name in row}
    made["question"] = row["full_question"]
    made["fork_turn"] = None if row["fork_turn"] is None else row["fork_turn"] + 1
    made["flags"] = list(mapping.to_flag_names(row["flags"]))
    made["started"], made["finished"] = _micros(row["started"]), _micros(row["finished"])
    return made


def _turns(connection: Connection, selection: Selection, labels: LabelColumns) -> Iterator[Row]:
    reply, reasoning = text.alias(), text.alias()
    texts = (reply.c.body.label("reply"), reasoning.c.body.label("reasoning"))
    query = (
        select(turn, *texts, episode.c.policy, episode.c.deciders, TURN_RATING.label("rating"))
        .join(episode, episode.c.id == turn.c.episode_id)
        .outerjoin(reply, same_turn(reply) & (reply.c.kind == "reply"))
        .outerjoin(reasoning, same_turn(reasoning) & (reasoning.c.kind == "reasoning"))
        .where(turn.c.episode_id.in_(selection_query(selection, connection.dialect.name)))
        .order_by(turn.c.episode_id, turn.c.idx)
    )
    for row in connection.execute(query.execution_options(yield_per=50)).mappings():
        yield _turn(row) | labels.of(row["episode_id"], row["idx"])


def _turn(row: Rows) -> Row:
    made = {name: row[name] for name in TURN_SCHEMA.names if name in row}
    for name in ("model_logits", "role_logits", "model_probs", "role_probs"):
        made[name] = list(mapping.to_floats(row[name]))
    made["turn"] = row["idx"] + 1
    made["policy"] = decider_at(row["policy"], row["deciders"] or {}, row["idx"])
    made["started"] = _micros(row["started"])
    recorded = mapping.to_recorded(row["recorded"])
    made["recorded_table"] = recorded and recorded.table
    made["recorded_sample"] = recorded and recorded.sample
    made["recorded_answer"] = recorded and recorded.answer
    made["by_agreement"] = recorded and recorded.by_agreement
    return made


def _micros(at: float | None) -> int | None:
    return None if at is None else round(at * 1e6)
