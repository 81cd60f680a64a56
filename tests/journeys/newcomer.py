"""What every journey needs: `trinity ui` on a fresh data folder, a browser, and the requests it made."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

#: A busy machine is no failure.
PATIENCE_S = 120

TRINITY = Path(sys.executable).parent / "trinity"


@dataclass
class Newcomer:
    """A person with a fresh data folder, the address of their app, and their browser's page."""

    folder: Path
    address: str
    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Go to a view and wait until it is shown whole."""
        self.page.goto(self.address + path)
        self.settle()

    def settle(self) -> None:
        """Until no script runs any more."""
        self.page.wait_for_timeout(300)
        self.page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()

    @property
    def strayed(self) -> list[str]:
        """Requests that went anywhere but to the app."""
        own = (self.address, self.address.replace("http", "ws"), "data:", "blob:")
        return [url for url in self.requests if not url.startswith(own)]

    def trinity(self, *arguments: str) -> str:
        """The output of a command on this person's store."""
        own = environment(self.folder)
        command = [str(TRINITY), *arguments]
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", check=True, env=own, cwd=self.folder
        ).stdout


def environment(folder: Path) -> dict[str, str]:
    """Nothing of this machine's own Trinity data."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TRINITY_")}
    return {**own, "XDG_DATA_HOME": str(folder), "OMP_NUM_THREADS": "1"}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """`trinity ui` in a folder of its own; yields its address and stops it as Ctrl-C would."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [TRINITY, "ui", "--port", str(port)], env=environment(folder), cwd=folder, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{address}/_stcore/health", server, folder / "server.log")
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"The app did not start: {log.read_text()}")


@contextmanager
def newcomer(folder: Path) -> Iterator[Newcomer]:
    """A newcomer in front of the app. Without a Chromium there is no browser to test in."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium: install Debian's package of that name")
    with served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        person = Newcomer(folder, address, page)
        page.on("request", lambda request: person.requests.append(request.url))
        page.on("pageerror", lambda error: person.errors.append(str(error)))
        yield person
        browser.close()
