"""A page's script run under watch: how long it took, what it asked of the database, and what it would send."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from sqlalchemy import Engine, event
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import parse_tree_from_messages

from tests.ui.pages import app


@dataclass
class Run:
    """One script run: milliseconds by the clock and of the processor, SQL statements without those that begin
    transactions, and bytes of its messages."""

    ms: float = 0.0
    cpu_ms: float = 0.0
    statements: list[str] = field(default_factory=list)
    size_bytes: int = 0


@contextmanager
def watched() -> Iterator[Run]:
    """What happens in the block, which runs a page once. The time ends with the page's last message: reading the
    messages into a tree is the test harness's work and no server's."""
    run, began, spent = Run(), time.perf_counter(), time.process_time()

    def parsed(messages: Any) -> Any:
        run.ms, run.cpu_ms = 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - spent)
        run.size_bytes = sum(message.ByteSize() for message in messages)
        return parse_tree_from_messages(messages)

    def asked(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(("BEGIN", "PRAGMA")):
            run.statements.append(statement)

    event.listen(Engine, "before_cursor_execute", asked)
    try:
        with patch("streamlit.testing.v1.local_script_runner.parse_tree_from_messages", parsed):
            yield run
    finally:
        event.remove(Engine, "before_cursor_execute", asked)


def open_page(view: str, query: Mapping[str, str]) -> tuple[Run, AppTest]:
    """A view opened at an address in a tab of its own, and the tab."""
    page = app().run()
    for key, value in query.items():
        page.query_params[key] = value
    page.switch_page(f"views/{view}.py")
    with watched() as run:
        page.run()
    assert not page.exception, page.exception
    return run, page


def press(page: AppTest, key: str) -> Run:
    """A button of an open page pressed."""
    page.button(key=key).click()
    with watched() as run:
        page.run()
    assert not page.exception, page.exception
    return run
