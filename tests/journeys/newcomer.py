"""What every journey needs: `trinity ui` on a fresh data folder, a browser, and the requests it made."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page

from tests.browsing import CALM, PATIENCE_S, POLICY, environment, serving, settled, visit
from tests.zygote import forked


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
        visit(self.page, self.address + path)

    def settle(self) -> None:
        """Until no script runs any more."""
        settled(self.page)

    def heard(self, said: ConsoleMessage) -> None:
        """Take down a breach of the page's own policy."""
        if POLICY in said.text:
            self.errors.append(f"{self.page.url}: {said.text}")

    @property
    def strayed(self) -> list[str]:
        """Requests that went anywhere but to the app."""
        own = (self.address, self.address.replace("http", "ws"), "data:", "blob:")
        return [url for url in self.requests if not url.startswith(own)]

    def trinity(self, *arguments: str) -> str:
        """The output of a command on this person's store."""
        own = environment(self.folder)
        command = [str(forked("trinity")), *arguments]
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", check=True, env=own, cwd=self.folder
        ).stdout


@contextmanager
def newcomer(folder: Path, chromium: Browser) -> Iterator[Newcomer]:
    """A newcomer in front of the app."""
    with serving([forked("trinity"), "ui", "--port"], folder) as address:
        page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.add_init_script(CALM)
        person = Newcomer(folder, address, page)
        page.on("request", lambda request: person.requests.append(request.url))
        page.on("pageerror", lambda error: person.errors.append(str(error)))
        page.on("console", person.heard)
        yield person
        page.context.close()
