"""Stores that pages open, a real app server over the sample store, and a page that talks to nobody else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize

from core.analysis.separability import Synthetic
from storage.store import Store, open_store
from tests.browsing import new_tab, serving_app, watch
from tests.builders.diffed import Diffed, diffed_store
from tests.builders.encoder import tiny_qwen3
from tests.builders.recorded import episode, recorded_store
from tests.builders.sample_store import sample_store
from tests.builders.stores import copy_store, record_finished_run
from tests.core.outcomes.tables import small_table
from tests.ui.pages import SUM
from tests.ui.sums import Sums, sums
from tests.zygote import forked
from ui.answers import separability
from ui.runs import queue, wiring
from ui.runs.plans import LivePlan
from ui.runs.wiring import remember_encoder

#: An address of the app's server that runs no script.
HEALTH = "/_stcore/health"
WINDOW: ViewportSize = {"width": 1280, "height": 900}


@pytest.fixture(scope="session")
def _samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = sample_store(tmp_path_factory.mktemp("samples") / "trinity.db", n=20)
    yield store
    store.close()


@pytest.fixture
def samples(_samples: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of a first evening, which pages open and only read."""
    monkeypatch.setenv("TRINITY_STORE", _samples.url)
    return _samples


@pytest.fixture(scope="session")
def _recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = recorded_store(tmp_path_factory.mktemp("recorded") / "trinity.db")
    yield store
    store.close()


@pytest.fixture
def recorded(_recorded: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with an episode of every state, which pages open and only read."""
    monkeypatch.setenv("TRINITY_STORE", _recorded.url)
    return _recorded


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sums]:
    """Sums as tasks, and two models that add."""
    with sums(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    return tiny_qwen3(
        folder, hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1
    )


@pytest.fixture
def evolving(world: Sums, monkeypatch: pytest.MonkeyPatch, tiny_encoder: Path) -> Sums:
    """The world with tasks to evolve on and a tiny encoder."""
    world.add_tasks_to_evolve_on()
    monkeypatch.setenv("TRINITY_ENCODER", str(tiny_encoder))
    return world


@pytest.fixture
def store(world: Sums) -> Iterator[Store]:
    """The world's store."""
    opened = open_store(world.store)
    yield opened
    opened.close()


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app starts no workers: a run that a page begins waits until the test plays it."""
    monkeypatch.setenv("TRINITY_WORKERS", "0")


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers that this process starts are forked, as a forked app's are: they have imported what they need."""
    monkeypatch.setattr(queue, "PYTHON", str(forked("python")))


@pytest.fixture
def plan(world: Sums) -> LivePlan:
    """One sum under the model that adds."""
    return LivePlan(SUM, "single:adder", ("adder", "guesser"), str(world.folder / "pool.toml"))


@pytest.fixture(scope="session")
def _diffed(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Iterator[Diffed]:
    made = diffed_store(tmp_path_factory.mktemp("diffed") / "trinity.db", tiny_encoder)
    yield made
    made.store.close()


@pytest.fixture
def diffed(_diffed: Diffed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Diffed]:
    """A copy of the store that a test may write to, named by the environment."""
    path = tmp_path / "trinity.db"
    copy_store(str(_diffed.store.engine.url.database), path)
    store = open_store(path)
    monkeypatch.setenv("TRINITY_STORE", str(path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("TRINITY_ENCODER", raising=False)
    remember_encoder(_diffed.encoder, wiring.data_folder())  # as whoever loads it does
    yield replace(_diffed, store=store)
    store.close()


@dataclass(frozen=True)
class Served:
    """The app's address and its store."""

    address: str
    store: Store


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The app on a free port of this machine; its data folder is a temporary one."""
    folder = tmp_path_factory.mktemp("served")
    store = sample_store(folder / "trinity.db", n=8)
    small_table(folder / "trinity-inspector")
    with serving_app(folder, folder / "trinity.db") as address:
        yield Served(address, store)
    store.close()


@pytest.fixture(scope="session")
def recorded_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The app over episodes of every state, one of 2,000 turns and one with a reply of 5 MB among them."""
    folder = tmp_path_factory.mktemp("recorded_app")
    store = recorded_store(folder / "trinity.db")
    long = episode("e-2000", ("36", "32") * 400, turns=2000, seed=22)
    huge = episode("e-5mb", seed=23, said="word " * 1_050_000)
    record_finished_run(store, "rlong", "run", {}, [replace(one, run_id="rlong") for one in (long, huge)])
    with serving_app(folder, folder / "trinity.db") as address:
        yield Served(address, store)
    store.close()


@pytest.fixture(scope="session")
def _window(chromium: Browser, served: Served) -> Iterator[BrowserContext]:
    """One window for all tests, so that its scripts are fetched and compiled once; a tab at an address of the app that
    shows next to nothing keeps it, and the process behind it, between two tests."""
    empty = new_tab(chromium, served.address)
    empty.goto(HEALTH)
    yield empty.context
    empty.context.close()


@pytest.fixture(scope="module")
def _forgets(_window: BrowserContext) -> Iterator[None]:
    """Nothing that a module's tests stored in the window is left to other modules; its scripts stay in its cache."""
    asked: set[str] = set()
    _window.on("request", lambda request: asked.add(request.url))
    yield
    _forget(_window.pages[0], asked)


@pytest.fixture
def tab(_window: BrowserContext, _forgets: None, _kept: list[Page]) -> Iterator[Page]:
    """A fresh browser tab in the window of all tests; a script error, a breach of the page's own policy, or a request
    that leaves this machine fails the test."""
    yield from _watched(_window, _window.new_page(), _kept)


@pytest.fixture(scope="module")
def _kept(_window: BrowserContext, _forgets: None) -> Iterator[list[Page]]:
    """The tab, once there is one, that a module's tests share."""
    kept: list[Page] = []
    yield kept
    for page in kept:
        page.close()


@pytest.fixture
def same_tab(_window: BrowserContext, _kept: list[Page], request: pytest.FixtureRequest) -> Iterator[Page]:
    """A tab as `tab`, but one for all tests of a module that ask for it: its first visit loads the app, which takes as
    long as ten steps within it, and later visits go on in it, with its session. A test that fails leaves it to none."""
    if not _kept:
        _kept.append(_window.new_page())
    failed = request.session.testsfailed
    try:
        yield from _watched(_window, _kept[0], _kept)
    finally:
        if request.session.testsfailed > failed:
            _kept.pop().close()


def _watched(window: BrowserContext, page: Page, kept: list[Page]) -> Iterator[Page]:
    page.set_viewport_size(WINDOW)
    trouble = watch(page)
    yield page
    trouble = [*trouble]  # without what comes of its end
    for opened in window.pages[1:]:
        if opened not in kept:
            opened.close()
    assert not trouble


def _forget(empty: Page, asked: Iterable[str]) -> None:
    """Clear what those who were asked have stored in this window; their scripts stay in its cache."""
    origins = {f"{url.scheme}://{url.netloc}" for url in map(urlsplit, asked) if url.scheme == "http"}
    session = empty.context.new_cdp_session(empty)
    for origin in origins:
        stored = {
            "origin": origin,
            "storageTypes": "cookies,local_storage,indexeddb,cache_storage,service_workers",
        }
        session.send("Storage.clearDataForOrigin", stored)
    session.detach()


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A study of made-up hidden states that takes no time."""
    found = [Synthetic(0.0, 0.01, 0.3), Synthetic(1.0, 0.5, 1.0)]
    monkeypatch.setattr(separability, "_studied", lambda: found)
