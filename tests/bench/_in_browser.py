"""What a reader waits for and what goes over the wire, measured inside the page by the page's own clock.

`trinity ui` is served on loopback as a process of its own. A step is over when the script has run, the next turn's
content stands in the page, and the browser has drawn it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browsing import serving, settled

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
TRINITY = Path(sys.executable).with_name("trinity")

#: Counts what the app's socket receives, and when.
_TAP = """
window.received = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", ({data}) =>
      window.received.push([performance.now(), data.byteLength ?? data.size ?? data.length]));
  }
};
"""
#: Presses Next and resolves with [ms until drawn, ms until the server's last message, bytes].
_STEP = """
said => new Promise((resolve, reject) => {
  const app = document.querySelector('[data-testid="stApp"]');
  const main = document.querySelector('[data-testid="stMain"]');
  const first = window.received.length;
  const watcher = new MutationObserver(look);
  const late = setTimeout(() => { watcher.disconnect(); reject(new Error("not settled: " + said)); }, 60000);
  function look() {
    if (app.dataset.testScriptState !== "notRunning" || !main.textContent.includes(said)) return;
    watcher.disconnect();
    clearTimeout(late);
    requestAnimationFrame(() => setTimeout(() => {
      const drawn = performance.now() - began, got = window.received.slice(first);
      resolve([drawn, got.length ? got.at(-1)[0] - began : 0, got.reduce((sum, one) => sum + one[1], 0)]);
    }));
  }
  watcher.observe(app.parentElement, {attributes: true, childList: true, characterData: true, subtree: true});
  const began = performance.now();
  document.querySelector(".st-key-step_next button").click();
})
"""

_HOME_STANDS = """
() => document.querySelector('[data-testid="stMain"]')?.textContent.includes("Newest episodes")
  && document.querySelector('[data-testid="stApp"]').dataset.testScriptState === "notRunning"
"""


@dataclass(frozen=True)
class Step:
    """One press of Next: until drawn, until the server's last message, and its bytes."""

    drawn_ms: float
    answered_ms: float
    size_bytes: int


def chromium() -> str | None:
    """The browser, if there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield opened
        opened.close()


def tab(opened: Browser) -> Page:
    """A fresh tab whose socket is counted."""
    page = opened.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(120_000)
    page.add_init_script(_TAP)
    return page


def received(page: Page) -> int:
    """Bytes that came over the tab's socket so far."""
    return int(page.evaluate("window.received.reduce((sum, one) => sum + one[1], 0)"))


def page_bytes(opened: Browser, address: str, path: str) -> int:
    """Bytes over the socket for a page opened in a fresh tab, the app's frame included."""
    page = tab(opened)
    page.goto(address + path)
    page.locator('[data-testid="stMain"] h1').wait_for()
    settled(page)
    found = received(page)
    page.context.close()
    return found


def steps(opened: Browser, address: str, episodes: Sequence[tuple[str, int]]) -> list[Step]:
    """Every step through each (episode, turns), from its first turn to its last."""
    found = []
    for episode, turns in episodes:
        page = tab(opened)
        page.goto(f"{address}/replay?ep={episode}")
        page.get_by_text(f"Turn 1 of {turns}").first.wait_for()
        settled(page)
        page.locator(".js-plotly-plot .main-svg").first.wait_for()  # what draws charts is there
        page.wait_for_timeout(500)
        for turn in range(2, turns + 1):
            page.locator(".st-key-step_next button:enabled").wait_for(state="attached")
            step: list[Any] = page.evaluate(_STEP, f"Turn {turn} of {turns}")
            found.append(Step(step[0], step[1], int(step[2])))
            page.wait_for_timeout(150)  # a reader does not press at once
        page.context.close()
    return found


def starts(opened: Browser) -> tuple[float, float]:
    """Milliseconds from the command to the first page with sample data: the first start, which imports it, and a
    later one."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for _ in range(2):
            page = tab(opened)
            began = time.perf_counter()
            with serving([TRINITY, "ui", "--port"], Path(folder)) as address:
                page.goto(address)
                page.wait_for_function(_HOME_STANDS)  # asked at every frame; a locator asks ever more seldom
                found.append(1000 * (time.perf_counter() - began))
                page.context.close()
        return found[0], found[1]
