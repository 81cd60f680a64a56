"""What every journey needs: `trinity ui` on a fresh data folder, a browser, and what goes wrong in it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.browsing import environment, new_tab, serving, visit, watch
from tests.zygote import forked


@dataclass
class Newcomer:
    """A person with a fresh data folder, the address of their app, their browser's page, and what went wrong there."""

    folder: Path
    address: str
    page: Page
    trouble: list[str]

    def open(self, path: str) -> None:
        """Go to a view and wait until it is shown whole."""
        visit(self.page, self.address + path)

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
        page = new_tab(chromium)
        yield Newcomer(folder, address, page, watch(page))
        page.context.close()
