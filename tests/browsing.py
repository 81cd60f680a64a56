"""The app served on loopback in a folder of its own, and waiting for it and for its pages."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request

from tests.zygote import forked

APP = Path(__file__).parents[1] / "ui" / "app.py"
#: A busy machine is no failure.
PATIENCE_S = 240
#: What a browser says on its console where a page asks for what its own policy forbids.
POLICY = "Content Security Policy"
#: What a page may ask of: this machine.
HERE = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")
#: How often a page looks whether its script still runs, in milliseconds, and how many looks in a row must see none.
LOOK_MS, LOOKS = 40, 6

_STILL = f"""
asked => {{
  const app = document.querySelector('[data-testid="stApp"]');
  if (window.trinityStill?.asked !== asked) window.trinityStill = {{asked, looks: 0}};
  const still = window.trinityStill;
  still.looks = app?.dataset.testScriptState === "notRunning" ? still.looks + 1 : 0;
  return still.looks >= {LOOKS};
}}
"""

#: Goes to an address in the document that is open, one step of its own; done once the page's script has begun to run,
#: or after so many milliseconds without any: it may have run too quickly to be seen.
_VISIT = """
([to, patience]) => new Promise(done => {
  const app = document.querySelector('[data-testid="stApp"]');
  const watch = new MutationObserver(() => {
    if (app.dataset.testScriptState === "notRunning") return;
    watch.disconnect();
    done();
  });
  watch.observe(app, {attributeFilter: ["data-test-script-state"]});
  setTimeout(done, patience);
  History.prototype.pushState.call(history, null, "", to);
  dispatchEvent(new PopStateEvent("popstate"));
})
"""
BEGUN_MS = 3000

#: Lets nothing on a page move by itself: on a busy machine a browser paints little else.
CALM = """
const still = new CSSStyleSheet();
still.replaceSync("*, *::before, *::after { animation: none !important; transition: none !important }");
document.adoptedStyleSheets = [...document.adoptedStyleSheets, still];
"""

#: Counts what the page asks of its server from now on.
_COUNT = """
() => {
  if (window.trinityAsked === undefined) {
    const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (...what) { window.trinityAsked += 1; return send.apply(this, what); };
  }
  window.trinityAsked = 0;
}
"""
#: How often a key is pressed that nothing hears, before it counts as dead.
_PRESSES = 20


def environment(folder: Path) -> dict[str, str]:
    """Nothing of this machine's own Trinity data."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TRINITY_")}
    return {**own, "XDG_DATA_HOME": str(folder), "OMP_NUM_THREADS": "1"}


@contextmanager
def serving(
    command: Sequence[str | Path],
    folder: Path,
    store: Path | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    health: str = "/_stcore/health",
) -> Iterator[str]:
    """The address of the server that `command`, followed by a free port, starts, once it answers at `health`; stopped
    as by Ctrl-C. `variables`: what its environment holds besides."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    own = environment(folder) | ({} if store is None else {"TRINITY_STORE": str(store)}) | dict(variables)
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen([*command, str(port)], cwd=folder, env=own, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(address + health, server, folder / "server.log")
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(PATIENCE_S)


def serving_app(
    folder: Path, store: Path, variables: Mapping[str, str] = MappingProxyType({})
) -> AbstractContextManager[str]:
    """The address of the app over a store, as `serving` has it."""
    command: list[str | Path] = [forked("python"), "-m", "streamlit", "run", APP, "--server.port"]
    return serving(command, folder, store, variables)


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"The app did not start: {log.read_text()}")


def new_tab(browser: Browser, address: str | None = None, width: int = 1280) -> Page:
    """A tab in a window of its own, where paths are of this address, nothing moves by itself, and a busy machine is
    given its time."""
    context = browser.new_context(base_url=address, viewport={"width": width, "height": 900})
    context.set_default_timeout(PATIENCE_S * 1000)
    context.add_init_script(CALM)
    return context.new_page()


def watch(page: Page, own: Sequence[str] = HERE) -> list[str]:
    """What goes wrong in a tab from here on: errors of scripts, breaches of the page's own policy, and requests of
    addresses that do not begin as its `own` do."""
    trouble: list[str] = []

    def heard(said: ConsoleMessage) -> None:
        if POLICY in said.text:
            trouble.append(f"{page.url}: {said.text}")

    def asked(request: Request) -> None:
        if not request.url.startswith(tuple(own)):
            trouble.append(f"{page.url} asks {request.url}")

    page.on("pageerror", lambda error: trouble.append(f"{page.url}: {error}"))
    page.on("console", heard)
    page.on("request", asked)
    return trouble


def settled(page: Page) -> None:
    """Until no script runs any more: none in several looks one after another, as an act needs a moment to begin one.
    The page itself looks, so that one that is drawn slowly is given its time."""
    page.wait_for_function(_STILL, arg=time.monotonic(), polling=LOOK_MS)


def visit(page: Page, address: str) -> None:
    """Open an address, and wait until its script has run. A tab that shows the app goes there as a link within the app
    leads on: to load the app anew takes a browser ten times as long, so only a test of loading does that."""
    there = urljoin(page.url, address) if page.url.startswith("http") else address
    at_home = urlsplit(page.url)[:2] == urlsplit(there)[:2] and page.get_by_test_id("stApp").count() > 0
    if at_home:
        settled(page)
        page.evaluate(_VISIT, [there, BEGUN_MS])
    else:
        page.goto(address)
    settled(page)


def parameters(page: Page) -> dict[str, str]:
    """The parameters of the address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def is_at(page: Page, path: str | None = None, **wanted: str | None) -> bool:
    """Whether the address is of this page and holds these parameters (None: not this one)."""
    return path in (None, urlsplit(page.url).path) and all(
        parameters(page).get(name) == value for name, value in wanted.items()
    )


def arrive(page: Page, path: str | None = None, **wanted: str | None) -> None:
    """The address comes to be as `is_at` has it, and the page is still."""
    end = time.monotonic() + PATIENCE_S
    while not is_at(page, path, **wanted):
        assert time.monotonic() < end, (page.url, path, wanted)
        page.wait_for_timeout(20)
    settled(page)


def still(page: Page) -> None:
    """A page that was just opened is drawn, and listens to keys."""
    page.get_by_test_id("stMain").get_by_role("heading").first.wait_for()
    if "ep=" in page.url or "peek=" in page.url:
        page.locator(".strip button").first.wait_for()
    if "/replay" in page.url:
        # Drawn last; its buttons hear the keys.
        page.locator(".st-key-tools_transport button").first.wait_for()
    settled(page)


def at(page: Page, address: str) -> None:
    """Open an address and wait until the page is drawn and listens."""
    visit(page, address)
    still(page)


def press(page: Page, key: str) -> None:
    """Press a key once the page is still, and again only while the page asks its server for nothing: Streamlit may lose
    one while it draws. What hears a key has run when the press returns, so however long the answer takes, a key that
    was heard is not pressed twice."""
    for _ in range(_PRESSES):
        settled(page)
        page.evaluate(_COUNT)
        page.keyboard.press(key)
        if page.evaluate("window.trinityAsked"):
            return
    pytest.fail(f"Nothing hears the key {key!r} at {page.url}")
