"""A store that holds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.store import Store
from tests.builders.stores import new_store


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Store]:
    opened = new_store(tmp_path / "fresh.db")
    yield opened
    opened.close()
