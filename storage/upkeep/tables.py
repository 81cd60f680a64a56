"""The tables of a store for people who read it with their own tools: what each table and column means, rows and bytes.

Names, types, keys and what is particular to one column stand in `storage/rows/schema.py`; a test holds that nothing
of it is left unexplained."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Column, Engine, func, select
from sqlalchemy import text as sql
from sqlalchemy.exc import DBAPIError

from storage.rows.engine import reading
from storage.rows.schema import metadata


@dataclass(frozen=True, slots=True)
class TableSize:
    """One table: its rows, and the bytes it takes with its indexes; None where the database does not say."""

    name: str
    rows: int
    size_bytes: int | None


def table_sizes(engine: Engine) -> tuple[TableSize, ...]:
    """Every table, the largest first. Goes over the whole database: seconds for one of gigabytes."""
    sizes = _bytes(engine)
    with reading(engine) as connection:
        found = [
            TableSize(
                name,
                connection.execute(select(func.count()).select_from(table)).scalar_one(),
                sizes.get(name),
            )
            for name, table in metadata.tables.items()
        ]
    return tuple(sorted(found, key=lambda one: (-(one.size_bytes or 0), -one.rows, one.name)))


def _bytes(engine: Engine) -> dict[str, int]:
    query = {
        "sqlite": "SELECT s.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_schema s ON s.name = d.name GROUP BY 1",
        "postgresql": "SELECT relname, pg_total_relation_size(relid) FROM pg_catalog.pg_statio_user_tables",
    }.get(engine.dialect.name)
    if query is None:
        return {}
    try:
        with engine.connect() as connection:
            return {str(name): int(size) for name, size in connection.execute(sql(query))}
    except DBAPIError:  # SQLite can be built without dbstat
        return {}


#: Table -> what one row is.
TABLE_MEANINGS: dict[str, str] = {
    "run": "One run: episodes recorded together, an evolution, a training, a live problem, a fork",
    "checkpoint": "What was learned, a coordinator or a planner, never changed once kept",
    "task": "One task by its content",
    "episode": "One task played by one policy: what lists show, without texts",
    "turn": "One turn of an episode: decision, cost and outcome, without texts",
    "plan": "One reply of a planner and the workflow that was read from it",
    "judgement": "One reply of the judge about the answer of a turn, and the rating that was read from it",
    "text": "One text of a turn; kept apart so that no list reads it",
    "state": "The hidden state that a turn's decision was read from",
    "override": "A decision that a person took over, waiting for its turn",
    "proposal": "What would be decided for a turn that waits for a person",
    "learning_update": "One generation of an evolution, or iteration of a planner's training",
    "candidate": "One candidate of a generation",
    "optimiser": "What an evolution or a training needs to go on after its last generation or iteration",
    "paid_reply": "A reply that an evolution, or the choice of role cycles, has paid for and may need again",
    "label": "One thing a person said about an episode, a turn or words of its reply; never changed",
    "view": "A list of episodes kept under a name",
    "second_opinion": "What another checkpoint would have chosen at a recorded turn",
    "attribution": "What in the transcript made a checkpoint's choice at a recorded turn",
    "api_key": "Who may ask the endpoint, and within which limits",
    "served": "A request to the endpoint that was played as an episode",
}

#: What a column of this name means in every table that does not say more of it (`Column.doc`).
_SHARED: dict[str, str] = {
    "id": "Its id: short, sortable by time, safe in addresses",
    "run_id": "The run it belongs to",
    "episode_id": "The episode it belongs to",
    "checkpoint_id": "The checkpoint, if it is a stored one",
    "idx": "Its number, from 0",
    "created": "When it was made, Unix seconds",
    "started": "When it began, Unix seconds",
    "finished": "When it was over, Unix seconds",
    "config": "JSON: everything it was made with",
    "status": "Where it stands",
    "model": "The chosen model",
    "role": "The chosen role: thinker, worker or verifier",
    "model_logits": "One score per model, little-endian float64",
    "role_logits": "One score per role, little-endian float64",
    "tokens_in": "Tokens sent to models",
    "tokens_out": "Tokens that models wrote",
    "cost_usd": "US dollars; empty when the price is not known",
    "latency_s": "Seconds spent waiting for models",
    "flags": "What was noticed about it",
    "generation": "The generation it is of",
    "family": "The task's family",
    "question": "What is asked",
    "body": "The text itself",
    "name": "Its name",
}


@dataclass(frozen=True, slots=True)
class ColumnMeaning:
    """A column as a reader needs it: `key` is "primary key", the column it refers to, or nothing."""

    name: str
    type: str
    key: str
    required: bool
    meaning: str


def columns(table: str) -> tuple[ColumnMeaning, ...]:
    return tuple(_column(column) for column in metadata.tables[table].columns)


def _column(column: Column[object]) -> ColumnMeaning:
    refers = next(iter(column.foreign_keys), None)
    key = "primary key" if column.primary_key else f"→ {refers.target_fullname}" if refers else ""
    meaning = column.doc or _SHARED.get(column.name, "")
    return ColumnMeaning(column.name, str(column.type), key, not column.nullable, meaning)
