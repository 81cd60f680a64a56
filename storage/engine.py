"""Open a database: connections, transactions and migrations, with every failure told in one sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from core.errors import StoreError

MIGRATIONS = Path(__file__).parent / "migrations"

#: The revision of the schema that this version works with.
HEAD = "0004"

#: A second writer waits this long for the first before it is told that the store is busy.
BUSY_TIMEOUT_MS = 30_000


def normalise(url: str) -> URL:
    """The database URL meant by a URL or a plain file path; StoreError when it is neither."""
    if not url.strip():
        raise StoreError(
            "The store's address is empty: give a file path or a URL such as sqlite:///trinity.db."
        )
    if "://" not in url:
        return URL.create("sqlite", database=str(Path(url).expanduser().absolute()))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise StoreError(f"{url!r} is not a database URL: write sqlite:///path/to/trinity.db.") from error
    if parsed.get_backend_name() == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(database=str(Path(parsed.database).expanduser().absolute()))
    return parsed


def connect(url: URL) -> Engine:
    """An engine on a migrated database, created when absent. SQLite runs in WAL mode, one writer at once."""
    shown = url.render_as_string(hide_password=True)
    sqlite = url.get_backend_name() == "sqlite"
    if sqlite:
        _make_room(url, shown)
    try:
        engine = create_engine(url)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        wanted = "pip install 'psycopg[binary]'" if url.get_backend_name() == "postgresql" else str(error)
        raise StoreError(
            f"The store {shown} needs a database driver that is not installed: {wanted}."
        ) from error
    if sqlite:
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
    try:
        _migrate(engine, shown)
    except DBAPIError as error:
        engine.dispose()
        raise StoreError(f"The store {shown} cannot be opened: {_reason(error)}.") from error
    except StoreError:
        engine.dispose()
        raise
    return engine


def schema_revision(engine: Engine) -> str:
    """The schema revision the database is at."""
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A consistent view of the store; database failures become StoreError."""
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise StoreError(f"The store could not be read: {_reason(error)}.") from error


@contextmanager
def writing(engine: Engine, *, durable: bool = False) -> Iterator[Connection]:
    """One all-or-nothing transaction. `durable` also survives a power cut (for replies that cost money).

    A full disk, a busy or read-only store becomes StoreError; IntegrityError passes, for whoever expects it.
    """
    options = {"trinity_write": True, "trinity_durable": durable}
    try:
        with engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection
    except IntegrityError:
        raise
    except DBAPIError as error:
        raise StoreError(f"Nothing was stored: {_reason(error)}.") from error


def _make_room(url: URL, shown: str) -> None:
    """The folder of a SQLite file, created; StoreError when it cannot be."""
    if not url.database or url.database == ":memory:":
        raise StoreError("The store must be a file: write sqlite:///path/to/trinity.db.")
    path = Path(url.database)
    if path.is_dir():
        raise StoreError(f"The store {shown} is a folder: name a file in it, such as {path / 'trinity.db'}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"The store's folder {path.parent} cannot be created: {error.strerror}.") from error


def _prepare(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
    """Set up one SQLite connection: our own BEGINs, WAL, no memory map (see promise 4), foreign keys."""
    assert isinstance(connection, sqlite3.Connection)
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        "mmap_size=0",
        "cache_size=-16000",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    """Writers take the write lock at once, so that two of them queue instead of failing half way."""
    options = connection.get_execution_options()
    if options.get("trinity_schema"):
        # A table is changed by making it anew: its old self must not take all that refers to it along.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    if not options.get("trinity_write"):
        connection.exec_driver_sql("BEGIN")
        return
    # The pragma has no effect inside a transaction, hence before BEGIN.
    level = "FULL" if options.get("trinity_durable") else "NORMAL"
    connection.exec_driver_sql(f"PRAGMA synchronous={level}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _migrate(engine: Engine, shown: str) -> None:
    """Bring the schema to this version's; a database of a newer version is refused untouched."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    script = ScriptDirectory.from_config(config)
    with engine.connect() as connection:
        if _revision(connection) == HEAD:
            return
    options = {"trinity_write": True, "trinity_schema": True}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        if _revision(connection) == HEAD:  # another process was faster
            return
        config.attributes["connection"] = connection
        environment = EnvironmentContext(config, script, fn=lambda rev, _: script._upgrade_revs(HEAD, rev))
        try:
            with environment:
                script.run_env()
        except CommandError as error:
            raise StoreError(
                f"The store {shown} was made by a newer version of trinity: "
                "update trinity, or choose another store."
            ) from error
    engine.dispose()  # of the connection without foreign keys


def _revision(connection: Connection) -> str | None:
    """The revision noted in the database, None in a new one; StoreError when it is another program's."""
    tables = set(connection.dialect.get_table_names(connection))
    if "alembic_version" in tables:
        return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if tables:
        raise StoreError("The store's file is a database of another program: choose another file.")
    return None


def _reason(error: DBAPIError) -> str:
    """The driver's words, with what to do where we know it."""
    said = str(error.orig).strip().rstrip(".")
    hints = {
        "unable to open database file": "the file cannot be opened (check the folder's permissions)",
        "file is not a database": "the file is not a database (choose another file)",
        "database is locked": "another program keeps the store locked (close it, then try again)",
        "attempt to write a readonly database": "the file is read-only (check its permissions)",
        "database or disk is full": "the disk is full (free some space, then go on)",
    }
    return hints.get(said, said)
