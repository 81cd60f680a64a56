"""A filled store and an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.store import Store, open_store
from tests.builders.interchange import fill
from tests.builders.stores import copy_store, new_store

AT = 1_790_000_000.5


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store that is filled once for all tests."""
    path = tmp_path_factory.mktemp("filled") / "one.db"
    opened = new_store(path, now=lambda: AT)
    fill(opened)
    opened.close()
    return path


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Iterator[Store]:
    copy_store(filled, tmp_path / "one.db")
    opened = open_store(tmp_path / "one.db", now=lambda: AT)
    yield opened
    opened.close()


@pytest.fixture
def other(fresh: Store) -> Store:
    return fresh
