"""What a database is made of: rows and bytes by table."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine, func, select
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
