"""A filled store and an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.store import Store
from tests.builders.interchange import fill
from tests.builders.stores import new_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = new_store(tmp_path / "one.db", now=lambda: 1_790_000_000.5)
    fill(opened)
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    opened = new_store(tmp_path / "other.db")
    yield opened
    opened.close()
