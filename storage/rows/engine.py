"""Open a database: connections, transactions and migrations, every failure one sentence."""

from __future__ import annotations

import errno
import re
import shlex
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Executable,
    MetaData,
    RowMapping,
    String,
    Table,
    create_engine,
    event,
    insert,
    make_url,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError

from core.errors import StoreError
from storage.rows.schema import metadata
from storage.rows.search import SEARCH_INDEXES

MIGRATIONS = Path(__file__).parents[1] / "migrations"

#: The revision of the schema that this version works with: the last in `storage/migrations/versions`.
SCHEMA_REVISION = "1.0010"

#: A second writer waits this long for the first before it is told that the store is busy.
BUSY_TIMEOUT_MS = 30_000

#: How SQLite begins to tell of a file in which something is wrong or missing.
DAMAGED = ("database disk image is malformed", "malformed database schema", "no such table", "no such column")

#: How the address of a SQLite file ends that is only to be read.
READ_ONLY = "mode=ro"


def database_url(url: str) -> URL:
    """The database URL meant by a URL or a plain file path; StoreError when it is neither.

    A file's address may end in `?mode=ro`: the store is then read and never written."""
    if not url.strip():
        raise StoreError(
            "The store's address is empty: give a file path or a URL such as sqlite:///trinity.db."
        )
    if re.search("[\0\ud800-\udfff]", url):
        raise StoreError(
            "The store's address holds a character that no path and no URL can have: write it again."
        )
    scheme = re.match(r"([\w+]+)://|((?:sqlite|postgres)[\w+]*):", url)
    if scheme is None:
        path = url.removesuffix(f"?{READ_ONLY}")
        return URL.create("sqlite", database=_absolute(path), query={} if path == url else {"mode": "ro"})
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        # Neither the address nor the error is shown: what stands where may be a password.
        raise StoreError(
            f"The store's address {scheme[1] or scheme[2]}:… is not a database URL: write "
            "sqlite:///path/to/trinity.db or postgresql://user:password@host/database."
        ) from None
    if parsed.get_backend_name() != "sqlite":
        if url.count("@") > (parsed.username is not None):  # else the end of a password is taken for the host
            raise StoreError(
                f"The store's address {scheme[1]}://… has an @ too many: within a password write @ as %40."
            )
        return parsed
    if not parsed.database or parsed.database == ":memory:":
        raise StoreError("The store must be a file: write sqlite:///path/to/trinity.db.")
    if parsed.query.get("mode", "ro") != "ro":
        raise StoreError("The store's address has an unknown mode: write ?mode=ro, or no mode.")
    return parsed.set(database=_absolute(parsed.database))


def url_without_password(url: URL) -> str:
    hidden = {key: "hidden" for key in url.query if "password" in key.lower()}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def is_read_only(engine: Engine) -> bool:
    return bool(engine.get_execution_options().get("trinity_read_only"))


def address(engine: Engine) -> URL:
    return engine.url.set(query={"mode": "ro"}) if is_read_only(engine) else engine.url


def _absolute(path: str) -> str:
    try:
        return str(Path(path).expanduser().absolute())
    except RuntimeError as error:
        raise StoreError(
            f"The store's address begins with the home folder of a user who is not known here "
            f"({Path(path).parts[0]}): write the folder out."
        ) from error
    except OSError as error:
        raise StoreError(
            "The folder in which trinity was started is gone: change to another, or give the store's full path."
        ) from error


def connect(url: URL) -> Engine:
    """An engine on a database of this version's schema, created when absent, migrated when old."""
    name = url_without_password(url)
    engine = _engine(url, name)
    try:
        _migrate(engine, name)
    except DBAPIError as error:
        engine.dispose()
        raise StoreError(f"The store {name} cannot be opened: {_reason(error, engine)}.") from error
    except StoreError:
        engine.dispose()
        raise
    return engine


def connect_file(path: Path, tables: MetaData) -> Engine:
    """An engine on a SQLite file beside the store, with these tables, created when absent; StoreError where it cannot
    be opened, which `is_damaged` may be."""
    engine = _engine(URL.create("sqlite", database=_absolute(str(path))), path.name)
    try:
        with reading(engine) as connection:
            known = set(connection.dialect.get_table_names(connection))
        if not known >= tables.tables.keys():
            with writing(engine) as connection:
                tables.create_all(connection)
    except StoreError:
        engine.dispose()
        raise
    return engine


def is_damaged(error: StoreError) -> bool:
    """Whether it says that a SQLite file holds something else than it should."""
    driver = getattr(error.__cause__, "orig", None)
    return driver is not None and str(driver).startswith((*DAMAGED, "file is not a database"))


def _engine(url: URL, name: str) -> Engine:
    """An engine whose schema is not looked at. SQLite runs in WAL mode, one writer at once."""
    sqlite = url.get_backend_name() == "sqlite"
    read_only = sqlite and "mode" in url.query
    options: dict[str, Any] = {"hide_parameters": True}  # errors are logged, and no prompt is
    if sqlite:
        _check_file(url, name)
        options["creator"] = partial(_open_file, str(url.database), read_only)
    try:
        engine = create_engine(url.set(query={}) if read_only else url, **options)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        wanted = "pip install 'psycopg[binary]'" if url.get_backend_name() == "postgresql" else str(error)
        raise StoreError(
            f"The store {name} needs a database driver that is not installed: {wanted}."
        ) from error
    if sqlite:
        engine.update_execution_options(trinity_read_only=read_only)
        event.listen(engine, "begin", _begin)
    return engine


def schema_revision(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A consistent view of the store; database failures become StoreError."""
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise StoreError(f"The store could not be read: {_reason(error, engine)}.") from error


def fetch_rows(engine: Engine, query: Executable) -> Sequence[Any]:
    with reading(engine) as connection:
        return connection.execute(query).all()


def fetch_mappings(engine: Engine, query: Executable) -> Sequence[RowMapping]:
    with reading(engine) as connection:
        return connection.execute(query).mappings().all()


def fetch_mapping(engine: Engine, query: Executable) -> RowMapping | None:
    with reading(engine) as connection:
        return connection.execute(query).mappings().first()


def fetch_scalar(engine: Engine, query: Executable) -> Any:
    """The first value of one query; None without rows."""
    with reading(engine) as connection:
        return connection.execute(query).scalar()


@contextmanager
def writing(engine: Engine, *, durable: bool = False) -> Iterator[Connection]:
    """One all-or-nothing transaction. `durable` also survives a power cut (for replies that cost money).

    A full disk, a busy or read-only store becomes StoreError; IntegrityError passes, for whoever expects it.
    """
    if is_read_only(engine):
        raise StoreError(
            f"Nothing was stored: this store is read-only; to write, leave ?{READ_ONLY} out of its address."
        )
    options = {"trinity_write": True, "trinity_durable": durable}
    try:
        with engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection
    except IntegrityError:
        raise
    except DBAPIError as error:
        raise StoreError(f"Nothing was stored: {_reason(error, engine)}.") from error


def _check_file(url: URL, name: str) -> None:
    path = Path(str(url.database))
    try:
        # An OSError where the longest name that SQLite gives a file beside it is too long.
        path.with_name(f"{path.name}-journal").exists()
        if path.is_dir():
            raise StoreError(
                f"The store {name} is a folder: name a file in it, such as {path / 'trinity.db'}."
            )
        if "mode" not in url.query:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise StoreError(f"There is no store {path}: give the address of one, or leave ?{READ_ONLY} out.")
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise StoreError("The store's address is too long for a file's: choose a shorter one.") from error
        raise StoreError(f"The store's folder {path.parent} cannot be created: {error.strerror}.") from error


def _open_file(path: str, read_only: bool) -> sqlite3.Connection:
    """A connection to a SQLite file: our own BEGINs, no memory map (see promise 4), foreign keys. Where it may write,
    readers and a writer work at once, and the file keeps this mode."""
    name = f"{Path(path).as_uri()}?{READ_ONLY}" if read_only else path
    connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False, uri=read_only)
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        "mmap_size=0",
        "cache_size=-16000",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}").close()
    if not read_only:
        try:
            _enter_wal(connection)
        except sqlite3.Error:
            connection.close()
            raise
    return connection


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Where somebody else is making the same store, SQLite refuses at once, whatever `busy_timeout` says."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _begin(connection: Connection) -> None:
    """Writers take the write lock at once, so that two of them queue instead of failing half way."""
    options = connection.get_execution_options()
    if options.get("trinity_schema"):
        # A table is changed by making it anew: its old self must not take all that refers to it along.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    if not options.get("trinity_write"):
        connection.exec_driver_sql("BEGIN")
        return
    level = "FULL" if options.get("trinity_durable") else "NORMAL"
    if connection.info.get("synchronous") != level:
        # The pragma has no effect inside a transaction, hence before BEGIN.
        connection.exec_driver_sql(f"PRAGMA synchronous={level}")
        connection.info["synchronous"] = level
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _migrate(engine: Engine, name: str) -> None:
    """Bring the schema to this version's; a database of another version that leads to no migration is refused
    untouched."""
    with engine.connect() as connection:
        if _revision(connection) == SCHEMA_REVISION:
            return
    if is_read_only(engine):
        raise StoreError(
            f"The store {name} does not have this version's schema: open it once without ?{READ_ONLY} to migrate it."
        )
    options = {"trinity_write": True, "trinity_schema": True}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        held = _revision(connection)
        if held is None:
            _create(connection)
        elif held != SCHEMA_REVISION:  # else another process was faster
            _upgrade(connection, held, name)
    engine.dispose()  # of the connection without foreign keys


def _create(connection: Connection) -> None:
    """Every table as `storage.rows.schema` has it, on SQLite with the search indexes, and the revision that this is."""
    metadata.create_all(connection, checkfirst=False)
    if connection.dialect.name == "sqlite":
        for statement in SEARCH_INDEXES:
            connection.exec_driver_sql(statement)
    revisions = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
    revisions.create(connection)
    connection.execute(insert(revisions).values(version_num=SCHEMA_REVISION))


def _upgrade(connection: Connection, held: str, name: str) -> None:
    # Here, because most openings need none of it, and loading it takes longer than they do.
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, SCHEMA_REVISION)
    except CommandError as error:
        raise StoreError(
            f"The store {name} was made by another version of trinity, and its schema ({held}) is not known to this "
            "one: open it with the version that made it, or move its file away and a new store takes its place."
        ) from error


def _revision(connection: Connection) -> str | None:
    """The revision noted in the database, None in a new one; StoreError when it is another program's."""
    tables = set(connection.dialect.get_table_names(connection))
    if "alembic_version" in tables:
        return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if tables:
        raise StoreError("The store's file is a database of another program: choose another file.")
    return None


def _reason(error: DBAPIError, engine: Engine) -> str:
    """The driver's words, with what to do where we know it."""
    message = str(error.orig).strip().rstrip(".")
    hints = {
        "unable to open database file": (
            "the file cannot be opened (check the folder's permissions, and that the path is below 500 bytes)"
        ),
        "file is not a database": "the file is not a database (choose another file, or put a backup in its place)",
        "database is locked": "another program keeps the store locked (close it, then try again)",
        "attempt to write a readonly database": "the file is read-only (check its permissions)",
        "database or disk is full": "the disk is full (free some space, then go on)",
    }
    if message.startswith(DAMAGED):
        file = Path(str(engine.url.database))
        name = shlex.quote(str(file))
        saved = shlex.quote(str(file.with_name(f"{file.stem}-saved.db")))
        # Not .recover, which fails on our tables in SQLite 3.40, nor .clone, which loses what comes after a bad page.
        return (
            f"the file is damaged: {message}; put a backup in its place, or save what can still be read with "
            f"{{ sqlite3 {name} .dump | sed 's/^ROLLBACK;.*/COMMIT;/' | sqlite3 {saved}; }} and open that file"
        )
    return hints.get(message, message)
