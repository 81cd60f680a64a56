"""What a database is made of: rows and bytes by table, and the migrations it has gone through."""

from __future__ import annotations

from dataclasses import dataclass

from alembic.script import ScriptDirectory
from sqlalchemy import Engine, func, select
from sqlalchemy import text as sql
from sqlalchemy.exc import DBAPIError

from storage.rows.engine import MIGRATIONS, reading, schema_revision
from storage.rows.schema import metadata


@dataclass(frozen=True, slots=True)
class TableSize:
    """One table: its rows, and the bytes it takes with its indexes; None where the database does not say."""

    name: str
    rows: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema and whether this database has taken it."""

    revision: str
    words: str
    applied: bool


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


def migrations(engine: Engine) -> tuple[Migration, ...]:
    """The steps of the schema that this version knows, oldest first."""
    here = schema_revision(engine)
    steps = reversed(list(ScriptDirectory(str(MIGRATIONS)).walk_revisions()))
    return tuple(
        Migration(step.revision, (step.doc or "").rstrip("."), step.revision <= here) for step in steps
    )


def _bytes(engine: Engine) -> dict[str, int]:
    """Bytes by table, indexes included; empty where this database has no way to tell."""
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
