"""Hidden states in a file of their own: kept across processes and runs, bounded, and never in the way."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from storage.shelves.states import StateFile


class Clock:
    """Seconds that a test counts."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "states.db"


@pytest.fixture
def file(path: Path) -> Iterator[StateFile]:
    opened = StateFile(path, most_bytes=4000, clock=Clock())
    yield opened
    opened.close()


def state(number: int, size: int = 25) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(number).normal(size=size).astype(np.float32)


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def states(*numbers: int) -> dict[bytes, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    return {key(number): state(number) for number in numbers}


def known(file: StateFile, *numbers: int) -> list[int]:
    """Which of these are kept, as they were."""
    found = file.recall([*map(key, numbers)])
    for number in numbers:
        if (kept := found.get(key(number))) is not None:
            np.testing.assert_array_equal(kept, state(number))
    return [number for number in numbers if key(number) in found]


def test_what_was_kept_is_recalled_by_another_and_to_the_last_bit(path: Path, file: StateFile) -> None:
    assert file.recall([key(1)]) == {}
    assert not path.exists(), "who only asks makes no file"
    file.keep(states(1, 2))
    file.keep(states(2, 3))
    other = StateFile(path)
    assert known(other, 0, 1, 2, 3, *range(10, 600)) == [1, 2, 3]
    assert other.size_bytes > 300
    other.remove()
    assert not [*path.parent.iterdir()]


def test_beyond_its_budget_it_drops_what_was_not_used_for_the_longest_time(file: StateFile) -> None:
    clock = file._clock
    assert isinstance(clock, Clock)
    for number in range(40):  # of 100 bytes each, as many as it may hold
        clock.now += 1
        file.keep(states(number))
    clock.now += 4000
    assert known(file, 0, 1) == [0, 1]
    clock.now += 1
    file.keep(states(40))
    left = known(file, *range(41))
    assert left == [0, 1, *range(41 - len(left) + 2, 41)]
    assert 30 <= len(left) <= 35


def test_several_may_use_it_at_once(path: Path, file: StateFile) -> None:
    def fill(first: int) -> None:
        other = StateFile(path)
        for number in range(first, 60, 3):
            other.keep(states(number))
        other.close()

    with ThreadPoolExecutor(3) as at_once:
        list(at_once.map(fill, range(3)))
    assert known(file, *range(60)) == [*range(60)]


@pytest.mark.parametrize("how", ["no database", "a bad page", "a flipped bit", "another table"])
def test_a_damaged_file_is_put_aside_and_begun_again_with_one_warning(
    path: Path, file: StateFile, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    file.keep(states(*range(30)))
    file.close()
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if how == "another table":
            raw.execute("ALTER TABLE kept_state RENAME COLUMN crc TO other")
    raw.close()
    body = bytearray(path.read_bytes())
    if how == "no database":
        body[:16] = b"something else.."
    elif how == "a bad page":
        body[4096:] = b"\xff" * (len(body) - 4096)
    elif how == "a flipped bit":
        body[body.index(state(7).tobytes()) + 3] ^= 16
    path.write_bytes(body)
    assert known(file, *range(30)) == []
    file.keep(states(4))
    assert known(file, 4, 5) == [4]
    [warning] = caplog.records
    assert warning.levelno == logging.WARNING
    assert "damaged file" in warning.message
    assert path.with_name("states-damaged.db").read_bytes() == body


def test_what_one_process_puts_aside_is_not_put_aside_by_another(path: Path, file: StateFile) -> None:
    file.keep(states(1))
    other = StateFile(path)
    assert known(other, 1) == [1]
    path.replace(path.with_name("states-damaged.db"))  # as the first of them did
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    file.close()
    file.keep(states(2))
    other._put_aside(Exception("it was damaged"))  # type: ignore[arg-type]
    assert known(other, 1, 2) == [2]
    other.close()


def test_where_nothing_can_be_written_there_is_one_warning(
    tmp_path: Path, file: StateFile, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").write_text("a file stands where the folder should be")
    file.keep(states(1))
    file.keep(states(2))
    assert known(file, 1, 2) == []
    [warning] = caplog.records
    assert "is not kept for later runs" in warning.message


def test_a_file_that_can_neither_be_read_nor_written_is_one_warning(
    path: Path, file: StateFile, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir(parents=True)
    assert known(file, 1) == []
    file.keep(states(1))
    [warning] = caplog.records
    assert f"is not kept for later runs ({path})" in warning.message


def test_a_full_disk_is_one_warning_and_what_was_kept_stays(
    path: Path, file: StateFile, caplog: pytest.LogCaptureFixture
) -> None:
    file.keep(states(1))
    with sqlite3.connect(path) as raw:
        pages = raw.execute("PRAGMA page_count").fetchone()[0]
    raw.close()
    assert file._engine
    with file._engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    file.keep({key(2): state(2, 100_000)})
    file.keep(states(3))
    [warning] = caplog.records
    assert "the disk is full" in warning.message
    assert known(file, 1, 2, 3) == [1]
