"""What the address of a store may be and may tell, stores that are only read, and what a damaged one says."""

from __future__ import annotations

import re
import shutil
import subprocess
import traceback
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from core.errors import StoreError
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import database_url, url_without_password, writing
from storage.rows.schema import run
from storage.store import open_store
from tests.builders.sample_store import sample_store


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@h:port/db",
        "postgresql://me:pa@s3cret@h/db",
        "postgresql://me:pa@s/s3cret@h/db",
        "postgresql://me:pa@s?s3cret@h/db",
        "postgresql:///me:s3cret@h/db",
        "postgresql://me:s3cret",
        "postgresql://[me:s3cret@h/db",
        "postgresql:/me:s3cret@h/db",
        "postgresql:me:s3cret@h/db",
        "postgres://me:s3cret@h/db",
        "postgresql+nonsense://me:s3cret@h/db",
        "nonsense://me:s3cret@h/db",
        "postgresql://me:s3cret@127.0.0.1:1/db",
        "postgresql://me@127.0.0.1:1/db?password=s3cret",
        "postgresql://me@127.0.0.1:1/db?sslpassword=s3cret",
        "postgresql://me:s3cret@127.0.0.1:1/db?unknown=1",
        "postgresql://me:s3cret@127.0.0.1:1/db?connect_timeout=never",
    ],
)
def test_no_password_of_an_address_is_ever_told(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as caught:
        open_store(url)
    told = "".join(traceback.format_exception(caught.value))
    assert "s3cret" not in "\n".join(line for line in told.splitlines() if not line.startswith("    "))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_password_may_hold_what_an_address_is_made_of() -> None:
    for password in ("pa/ss", "pa:ss", "pa?ss", "pa#ss", "pa%40ss"):
        address = database_url(f"postgresql://me:{password}@host/db")
        assert (address.password, address.host) == (password.replace("%40", "@"), "host")
        assert password not in url_without_password(address)
    assert "s3cret" not in url_without_password(
        database_url("postgresql://host/db?sslpassword=s3cret&sslmode=require")
    )


@pytest.mark.parametrize("form", ["{path}?mode=ro", "sqlite:///{path}?mode=ro"])
def test_a_store_that_is_only_read_cannot_be_written(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a #1%.db"
    written = open_store(path, now=lambda: 1000.0)
    written.runs.create("r1", "run", {})
    written.close()
    before = path.read_bytes()
    read = open_store(form.format(path=path), now=lambda: 10.0**6)  # the run's heart beats no more
    assert read.read_only
    assert not written.read_only
    assert read.runs.mark_interrupted() == []
    assert [run.id for run in read.runs.list()] == ["r1"]
    assert read.health().runs == 1
    assert read.version() == read.version()
    again = open_store(read.address)  # as this user's other processes open it
    for store in (read, again):
        with pytest.raises(StoreError, match=r"^Nothing was stored: this store is read-only; to write"):
            store.runs.finish("r1")
        with pytest.raises(DBAPIError, match="readonly"), store.engine.connect() as connection:
            connection.exec_driver_sql("DELETE FROM run")
    assert path.read_bytes() == before
    writer = open_store(path)
    writer.runs.create("r2", "run", {})
    writer.close()
    assert [run.id for run in read.runs.list()] == ["r2", "r1"]  # what others write is seen
    read.close()
    again.close()


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs the sqlite3 program")
@pytest.mark.process
def test_a_damaged_store_says_how_to_save_what_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "my store.db"
    store = sample_store(path, 6)
    noted = {
        "kind": "run",
        "purpose": "live",
        "status": "running",
        "created": 0.0,
        "config": {"note": "runs " * 60},
    }
    with writing(store.engine) as connection:
        connection.execute(run.insert(), [{"id": f"r{number}", **noted} for number in range(200)])
    before = store.health()
    store.close()
    content = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(content), 4096) if b"runs " * 60 in content[at : at + 4096]]
    for at in pages[len(pages) // 2 :][:3]:
        content[at : at + 100] = b"\xff" * 100
    path.write_bytes(content)
    damaged = open_store(path)
    with pytest.raises(
        StoreError, match="the file is damaged: .*; put a backup in its place, or save"
    ) as caught:
        damaged.runs.list(limit=1000)
    damaged.close()
    told = re.search(r"with ({ sqlite3 .+; }) and open that file\.$", str(caught.value))
    assert told
    subprocess.run(told[1], shell=True, check=True, capture_output=True)
    saved = open_store(tmp_path / "my store-saved.db")
    after = saved.health()
    assert (after.episodes, after.turns, after.checkpoints) == (
        before.episodes,
        before.turns,
        before.checkpoints,
    )
    assert before.runs - 60 < after.runs < before.runs
    assert saved.episodes.page(EpisodeFilter(text="the")).items
    saved.runs.create("new", "run", {})
    saved.close()
