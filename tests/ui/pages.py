"""Opens pages of the app in AppTest, reads what they say and presses their buttons."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.event import listen, remove
from streamlit.components.v2.component_manager import BidiComponentManager
from streamlit.config import set_option
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.testing.v1 import AppTest, app_test, local_script_runner

from core.episode import Task
from storage.rows.summaries import RunStatus
from storage.store import Store
from ui.cli import main
from ui.web.kit import state

APP = Path(state.__file__).parents[2] / "app.py"
FRAME = APP.parent / "web" / "frame.py"
#: Seconds for a page or a process to answer: a busy machine is no failure.
PATIENCE_S = 240
SUM = Task("sum-1", "What is 10 + 13?", "23", "number", "user", "live")


def app() -> AppTest:
    """The app at its first page, as `trinity ui` runs it; the store is named by the environment."""
    for name, value in _options().items():
        set_option(name, value)
    page = AppTest.from_file(str(FRAME), default_timeout=PATIENCE_S)
    page._bidi_component_manager = _components()
    return page


@cache
def _options() -> dict[str, Any]:
    """What the app's own file of settings says of browsers and of how scripts are run."""
    settings = tomllib.loads((APP.parent / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    return {
        f"{part}.{name}": value for part in ("browser", "runner") for name, value in settings[part].items()
    }


@cache
def _scripts() -> ScriptCache:
    """The compiled scripts of the pages: one for a process, as the server has it. Left to itself an AppTest compiles
    the frame and the page anew whenever it runs them."""
    return ScriptCache()


for _runs in (app_test, local_script_runner):
    _runs.ScriptCache = _scripts  # type: ignore[attr-defined]


@cache
def _components() -> BidiComponentManager:
    """The registry of components: one for a process, as the server has it. To fill it Streamlit reads the metadata of
    every installed package, which takes 0.1 s; left to itself an AppTest does so once more."""
    found = BidiComponentManager()
    found.discover_and_register_components(start_file_watching=False)
    return found


def opened(name: str, **query: str) -> AppTest:
    """A page at an address, in a tab of its own, without an exception."""
    return opened_in(app(), name, **query)


def opened_in(page: AppTest, name: str, **query: str) -> AppTest:
    """The same in a tab that is open, or new."""
    for key, value in query.items():
        page.query_params[key] = value
    page.switch_page(f"views/{name}.py").run()
    assert not page.exception
    return page


def command(arguments: list[str]) -> int:
    """The exit code of `trinity` with these arguments, in this process."""
    try:
        return main(arguments)
    except SystemExit as left:
        return int(left.code or 0)


def press(page: AppTest, key: str) -> AppTest:
    """Click a button by key and run."""
    page.button(key=key).click().run()
    assert not page.exception
    return page


def shown(page: AppTest) -> str:
    """Everything the page says, in one string."""
    kinds = (
        page.title,
        page.subheader,
        page.markdown,
        page.caption,
        page.text,
        page.code,
        page.info,
        page.warning,
        page.error,
    )
    words = [str(element.value) for kind in kinds for element in kind]
    return "\n".join(
        [*words, *(button.label for button in page.button), *(link.value for link in page.page_link)]
    )


def plainly(page: AppTest) -> str:
    """What the page says, without the marks that keep foreign text literal."""
    return shown(page).replace("\\", "").replace("\u2060", "")


def table_with(page: AppTest, column: str) -> Any:
    """The first table that has this column, as a data frame."""
    return next(one.value for one in page.dataframe if column in one.value)


def assert_literal(page: AppTest) -> None:
    """No foreign text acts on the page: not as markdown or HTML, nor as an invisible character."""
    assert not [block for block in page.code if {"\u202e", "\x1b"} & set(block.value)]
    ours = re.sub(r"\\.", "", "\n".join(element.value for element in (*page.markdown, *page.subheader)))
    for bare in ("badge[ACCEPT", "![", "<", "https:", "](", "$", "www."):
        assert bare not in ours


def waiting(store: Store) -> list[str]:
    """Ids of the runs that a page began and that no worker has taken, oldest first."""
    return [run.id for run in reversed(store.runs.list(status=RunStatus.QUEUED))]


def until(happens: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait for something another thread or process does."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@contextmanager
def asked_of_stores() -> Iterator[list[str]]:
    """What is asked of any database meanwhile, statement by statement with its parameters."""
    told: list[str] = []

    def heard(_c: object, _k: object, statement: str, parameters: object, *_: object) -> None:
        if statement.startswith(("SELECT", "WITH")):
            told.append(f"{statement} {parameters}")

    listen(Engine, "before_cursor_execute", heard)
    try:
        yield told
    finally:
        remove(Engine, "before_cursor_execute", heard)
