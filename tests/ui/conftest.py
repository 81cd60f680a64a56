"""A real app server over the sample store, and a page that refuses to talk to anybody else."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from storage.store import Store, open_store
from tests.ui.sample_store import sample_store
from ui import state

APP = Path(state.__file__).with_name("app.py")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]


@dataclass(frozen=True)
class Served:
    """The app's address and its store."""

    address: str
    store: Store


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The app on a free port of this machine; its data folder is a temporary one."""
    folder = tmp_path_factory.mktemp("served")
    sample_store(folder / "trinity.db", n=8).close()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(APP), f"--server.port={port}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRINITY_")} | {
        "TRINITY_STORE": str(folder / "trinity.db"),
        "XDG_DATA_HOME": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    store = open_store(str(folder / "trinity.db"))
    try:
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health", server)
        yield Served(f"http://127.0.0.1:{port}", store)
    finally:
        store.close()
        server.terminate()
        server.wait(20)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail("The app did not start.")


@pytest.fixture
def tab(served: Served) -> Iterator[Page]:
    """A fresh browser tab; a script error, or a request that leaves this machine, fails the test."""
    with sync_playwright() as playwright:
        browser: Browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        context = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=served.address)
        context.set_default_timeout(120_000)  # a busy machine is no failure
        page = context.new_page()
        errors: list[str] = []
        away: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: _watch(request, away))
        yield page
        browser.close()
    assert not errors
    assert not away


def _watch(request: Request, away: list[str]) -> None:
    here = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
    if not request.url.startswith(here):
        away.append(request.url)


def settled(page: Page) -> None:
    """Until no script runs any more."""
    page.wait_for_timeout(300)
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
