"""What runs on a cluster are played over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench._cluster import Models, models


@pytest.fixture(scope="module")
def served() -> Iterator[Models]:
    """Models over HTTP that take 50 ms for each call, and keep books."""
    with models(0.05) as found:
        yield found
