"""Settings of the whole suite, the browser, and the three lanes that are told apart from the quick tests.

Property tests draw the same few examples in every run; with HYPOTHESIS_PROFILE=searching a thousand, always others. No
test starts helper processes unless they are its subject: the suite itself has a process for each core, and one more.

A test that drives Chromium asks for the fixture `chromium` (most by way of `tab`) and is marked `browser` by that. A
test that starts processes, of the program, a server or PostgreSQL, is marked `process` by hand. One that plays a run,
trains a model, serves requests, renders a page, or takes a server through its faults and limits is marked
`integration`, by hand, by its file or by a fixture. A test that starts a process, plays a run, serves requests or
renders a page without a mark fails, so that `pytest -m "not browser and not process and not integration"` stays quick.
What a fixture of a file or of the session plays is shared by many tests and needs no mark.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright
from sqlalchemy import Engine, create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

import storage.rows.engine as store_engine
from tests.bench._cluster import Nodes, cluster
from tests.zygote import forked, share, worker_python

settings.register_profile("repeatable", derandomize=True, max_examples=40)
settings.register_profile("searching", max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

os.environ.setdefault("TRINITY_PROCESSES", "1")
# The models of the tests are tiny: threads that share their sums only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would all that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Imports and collection make millions of objects that stay to the end: to look for garbage among them over and over
# took a tenth of the suite's time. `pytest_collection_finish` sets them aside and turns the collector on again.
gc.disable()

#: What a test is by the fixture that it asks for, itself or through another.
LANE_OF_FIXTURE = {
    "chromium": "browser",
    "served": "process",
    "forked_workers": "process",
    "serve": "integration",
    "world": "integration",
}
LANES = ("browser", "process", "integration")
#: How threads are named that only an integration test starts, and what it does by that.
THREADS = {"heartbeat ": "plays a run or serves requests", "ScriptRunner.": "renders a page"}
#: Files whose tests take longest, the longest first. Each is one process's alone: begun last, it would be waited for.
LONGEST = (
    "test_ten_checks.py",
    "test_page_quality.py",
    "test_cluster.py",
    "test_hostile.py",
    "test_navigation.py",
    "test_clicks.py",
    "test_far.py",
    "test_readme.py",
    "test_rules.py",
    "test_engine.py",
    "test_kill.py",
    "test_preparation.py",
    "test_reproduction.py",
    "test_evolve.py",
    "test_learning.py",
    "test_first_visit.py",
    "test_mathematics.py",
    "test_strip.py",
    "test_episodes.py",
    "test_learn.py",
    "test_own_models.py",
    "test_run.py",
    "test_serve.py",
    "test_evolution.py",
    "test_endpoint_in_app.py",
    "test_why.py",
    "test_export.py",
    "test_live_in_browser.py",
    "test_pilot.py",
    "test_house.py",
    "test_commands.py",
    "test_answers.py",
    "test_outcomes.py",
    "test_replay.py",
    "test_fork_questions.py",
    "test_released_vector.py",
    "test_queue.py",
    "test_sample_runs.py",
    "test_told.py",
    "test_postgres.py",
    "test_injection.py",
    "test_warmup.py",
    "test_reading.py",
    "test_conductor_table.py",
    "test_forks.py",
    "test_canary.py",
    "test_spending.py",
    "test_live.py",
    "test_own_files.py",
    "test_policies.py",
    "test_recorded.py",
    "test_programs.py",
    "test_encoders.py",
    "test_faults.py",
    "test_tasks.py",
    "test_gradients.py",
    "test_worker.py",
    "test_play_both.py",
    "test_metrics.py",
    "test_escapes.py",
    "test_served.py",
)
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    # All tabs at one address share a process: each need not compile the app's scripts again.
    "--process-per-site",
    # A page lives for seconds: what a compiler optimises for it comes too late.
    "--js-flags=--no-opt",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, started once; each test opens a tab or a context of its own in it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no chromium: install Debian's package of that name")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def ray() -> None:
    """Ray is installed. It is not imported here: the program tells it first whether all is on 127.0.0.1."""
    if find_spec("ray") is None:
        pytest.skip("the extra 'ray' is not installed")


@pytest.fixture(scope="module")
def nodes(ray: None, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    """A Ray cluster of two nodes, or of as many as the file says in NODES; what its SYSTEM says changes Ray itself."""
    with cluster(getattr(request.module, "NODES", 2), getattr(request.module, "SYSTEM", None)) as found:
        yield found


@pytest.fixture
def forked_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of benchmarks, and commands beside them, are forked: on a small scale to import takes longer than to
    serve."""
    from tests.bench import _faulty, clients, endpoint, served

    for module in (_faulty, clients, endpoint, served):
        monkeypatch.setattr(module, "SERVE", (str(forked("trinity")), "serve"))


def pytest_configure() -> None:
    """The process that forks commands is one for all workers, and ends with the process that starts them."""
    share()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """The workers are forked off one process that has imported all tests."""
    try:
        python = worker_python(config.args)
    except ChildProcessError as error:  # each worker imports for itself, and says what cannot be imported
        print(error)
        return
    for spec in specs:
        spec.python = str(python)


def pytest_sessionstart() -> None:
    """A statement is compiled once for all SQLite stores of a process. A program has one store, the suite thousands:
    for each anew it took a twentieth of the suite's time."""
    compiled: dict[Any, Any] = {}

    def opened(*args: Any, **options: Any) -> Engine:
        engine = create_engine(*args, **options)
        engine.update_execution_options(compiled_cache=compiled)
        return engine

    store_engine.create_engine = opened  # type: ignore[attr-defined]
    dialect: Any = SQLiteDialect_pysqlite  # whose instances are alike, and what is compiled is found by them
    dialect.__hash__ = lambda one: hash(type(one))
    dialect.__eq__ = lambda one, other: type(one) is type(other)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Tests of browsers and processes wait as much as they work: beside the process for each core another uses the
    time."""
    quick = all(f"not {lane}" in config.getoption("markexpr") for lane in ("browser", "process"))
    return None if quick else (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they ask for; tell the report which lane a test is of; the longest files come
    first, then those with the most tests."""
    tests = Counter(item.path for item in items)
    ranks = {path: LONGEST.index(path.name) if path.name in LONGEST else len(LONGEST) for path in tests}
    items.sort(key=lambda item: (ranks[item.path], -tests[item.path]))
    for item in items:
        for name in LANE_OF_FIXTURE.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(LANE_OF_FIXTURE[name])
        item.user_properties += [("lane", lane) for lane in LANES if item.get_closest_marker(lane)]


def pytest_collection_finish() -> None:
    """The collector looks at what the tests make, and not at what was there before them."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


_started: list[str] = []
_integrated: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    starts = event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")
    if starts and arguments[:1] != ("lscpu",):  # by which joblib counts the cores
        _started.append(f"{event} {arguments[:2]}")


sys.addaudithook(_note)
_start = threading.Thread.start


def _start_noted(thread: threading.Thread) -> None:
    _integrated.extend(does for name, does in THREADS.items() if thread.name.startswith(name))
    _start(thread)


threading.Thread.start = _start_noted  # type: ignore[assignment,method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """What a shared fixture plays is nothing of the test that happens to ask for it first."""
    made = yield
    if fixturedef.scope != "function":
        _integrated.clear()
    return made


#: A page that is run leaves its script in this module's place, and each process that is spawned then would import it.
_main = sys.modules["__main__"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """What was started before is nothing of this test's."""
    _started.clear()
    _integrated.clear()
    sys.modules["__main__"] = _main
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail a test that started a process or did what an integration test does, itself or by its fixtures, and does not
    say so."""
    yield
    marks = {lane for lane in LANES if item.get_closest_marker(lane)}
    if _started and not marks & {"browser", "process"}:
        pytest.fail(f"It starts a process ({_started[0]:.200}): mark it with @pytest.mark.process.")
    if _integrated and not marks:
        pytest.fail(f"It {_integrated[0]}: mark it with @pytest.mark.integration.")
