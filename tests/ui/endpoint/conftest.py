"""Endpoints that the tests of a file share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.core.pool.faulty_server import Answer, Request
from tests.ui.endpoint.server import PRICES, Serve, Served, served, team


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Gives an endpoint with these options, whose models answer so. It is started once for a file: who asks for it next
    finds no requests at its models, and the store as it was left."""
    running: dict[frozenset[tuple[str, Any]], Served] = {}
    with ExitStack() as open_ones:

        def ready(answer: Answer | Callable[[Request], Answer] | None = None, **options: Any) -> Served:
            options = {"entry": PRICES, **options}
            key = frozenset(options.items())
            if key not in running:
                running[key] = open_ones.enter_context(served(tmp_path_factory.mktemp("served"), **options))
            running[key].begin(team() if answer is None else answer)
            return running[key]

        yield ready


@pytest.fixture
def one(serve: Serve) -> Served:
    """The usual endpoint."""
    return serve()
