"""Measures the app's pages on a store of 100,000 episodes and 600,000 turns, and sets each figure beside its budget.

`--store FILE` keeps the generated store, and uses it again. Script runs are timed in this process from the request to
the page's last message, with the page's caches empty; their SQL statements and the bytes of their messages are counted.
Where there is a Chromium, steps through replays are also timed in it, from the click until the new turn is drawn, and
so is a cold start. The policy diff of 10,000 turns has a benchmark of its own: `trinity bench policy`.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

from sqlalchemy import Engine, event
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import parse_tree_from_messages

from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store, open_store
from tests.bench import _in_browser
from tests.bench._frame import Figures, percentile, run, say
from tests.browsing import serving_app
from tests.builders.large_store import COMMON_WORD, GENERATIONS, RARE_WORD, checkpoint, large_store
from tests.builders.recorded import episode
from tests.builders.stores import record_finished_run
from tests.ui.pages import app
from ui.web.kit.cache import forget

#: Figure -> at most this; milliseconds, bytes or queries as its name ends.
BUDGETS = {
    "list_p95_ms": 300,
    "list_bytes": 400_000,
    "list_search_p95_ms": 300,
    "list_filter_p95_ms": 300,
    "list_last_p95_ms": 300,
    "compare_p95_ms": 1500,
    "replay_step_p95_ms": 120,
    "replay_long_open_p95_ms": 500,
    "replay_long_open_queries": 6,
    "browser_list_bytes": 400_000,
    "browser_step_p50_ms": 150,
    "browser_step_p95_ms": 300,
    "cold_start_ms": 5000,
}
LONG = "elongbench"
LONG_TURNS, LONG_BYTES = 200, 50_000
#: Every wrong answer that some verifier accepted: a filter over turns.
OVER_TURNS = 'correct == False and any(turn.role == "V" and turn.verdict == "ACCEPT")'
A, B = checkpoint(GENERATIONS[0]).id, checkpoint(GENERATIONS[-2]).id


def views() -> dict[str, tuple[str, dict[str, str]]]:
    """Name of a figure -> the page and its address."""
    return {
        "home": ("home", {}),
        "list": ("episodes", {}),
        "list_search": ("episodes", {"text": RARE_WORD}),
        "list_search_common": ("episodes", {"text": COMMON_WORD}),
        "list_filter": ("episodes", {"q": OVER_TURNS}),
        "list_fields": ("episodes", {"family": "logic", "correct": "wrong", "role": "verifier"}),
        "list_last": ("episodes", {"last": "1"}),
        "list_grouped": ("episodes", {"group": "policy"}),
        "checkpoints": ("checkpoints", {}),
        "compare": ("checkpoints", {"c": f"{A},{B}", "run": "every"}),
        "routing": ("routing", {}),
        "routing_depends": ("routing", {"part": "tasks"}),
        "routing_pays": ("routing", {"part": "pays"}),
        "routing_luck": ("routing", {"part": "luck"}),
        "routing_one": ("routing", {"policy": B}),
        "verifier": ("verifier", {}),
        "verifier_cost": ("verifier", {"part": "cost"}),
        "verifier_budget": ("verifier", {"part": "budget"}),
        "verifier_one": ("verifier", {"policy": B}),
    }


@dataclass
class Seen:
    """One script run: milliseconds by the clock and of the processor, SQL statements without those that begin
    transactions, and bytes of its messages."""

    ms: float = 0.0
    cpu_ms: float = 0.0
    statements: list[str] = field(default_factory=list)
    size_bytes: int = 0


def watched(page: AppTest) -> Seen:
    """A page's script run once. The time ends with its last message: reading the messages into a tree is the test
    harness's work and no server's."""
    seen, began, spent = Seen(), time.perf_counter(), time.process_time()

    def parsed(messages: Any) -> Any:
        seen.ms, seen.cpu_ms = 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - spent)
        seen.size_bytes = sum(message.ByteSize() for message in messages)
        return parse_tree_from_messages(messages)

    def asked(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(("BEGIN", "PRAGMA")):
            seen.statements.append(statement)

    event.listen(Engine, "before_cursor_execute", asked)
    try:
        with patch("streamlit.testing.v1.local_script_runner.parse_tree_from_messages", parsed):
            page.run()
    finally:
        event.remove(Engine, "before_cursor_execute", asked)
    assert not page.exception, page.exception
    return seen


def open_page(view: str, query: Mapping[str, str]) -> tuple[Seen, AppTest]:
    """A view opened at an address in a tab of its own, and the tab."""
    page = app().run()
    for key, value in query.items():
        page.query_params[key] = value
    page.switch_page(f"views/{view}.py")
    return watched(page), page


def fill(path: Path, episodes: int) -> None:
    """Make the store, unless it is there; one more run holds an episode of 200 turns of 50 KB."""
    if path.exists():
        say(f"{path} is used as it is")
        return
    began, making = time.perf_counter(), path.with_name(f"{path.name}.part")
    for left in path.parent.glob(f"{making.name}*"):  # of a run that was broken off
        left.unlink()
    for done in large_store(making, episodes):
        say(f"{done:,} episodes, {time.perf_counter() - began:.0f} s")
    store = open_store(making, now=lambda: 1_600_000_000.0)
    long = episode(LONG, turns=LONG_TURNS, said="word " * (LONG_BYTES // 5))
    long = replace(long, run_id="rlongbench", turn_budget=LONG_TURNS)
    record_finished_run(store, "rlongbench", "run", {"tasks": "long"}, [long])
    store.close()
    making.rename(path)


def measure(
    episodes: int = 100_000,
    repeats: int = 15,
    store: Annotated[Path | None, "keep the generated store here, or use the one that is here"] = None,
    only: Annotated[str, "these pages alone, separated by commas: list,compare,replay"] = "",
    no_browser: Annotated[bool, "script runs only"] = False,
) -> Figures:
    """Fill a store and measure its pages."""
    with tempfile.TemporaryDirectory() as folder:
        path = (store or Path(folder) / "store.db").resolve()
        fill(path, episodes)
        os.environ["TRINITY_STORE"] = str(path)
        opened = open_store(path)
        health = opened.health()
        logging.disable(logging.WARNING)  # Streamlit mentions each time that pages run without a server
        measured = measure_scripts(opened, only.split(",") if only else [*views(), "replay"], repeats)
        logging.disable(logging.NOTSET)
        if no_browser or _in_browser.chromium() is None:
            say("no Chromium is used: what a reader waits for is left out")
        else:
            measured |= measure_in_browser(opened, path)
        opened.close()
    sizes = {"episodes": health.episodes, "turns": health.turns}
    machine = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    return {**sizes, "machine": machine, "measured": measured, "budgets": BUDGETS}


def measure_scripts(store: Store, only: Sequence[str], repeats: int) -> Figures:
    """The script runs of the pages named; "replay" stands for all of a replay's figures."""
    found: Figures = {}
    for name, (view, query) in views().items():
        if name in only:
            _opened(view, query)  # what a first page imports is no page's time
            found |= told(name, [_opened(view, query)[0] for _ in range(repeats)])
            again = [open_page(view, query)[0].ms for _ in range(min(3, repeats))]
            found[f"{name}_again_p50_ms"] = percentile(50, again)
            say(f"{name}: {found[f'{name}_p50_ms']:.0f} ms")
    return found | _measure_replay(store, repeats) if "replay" in only else found


def _measure_replay(store: Store, repeats: int) -> Figures:
    opened, steps = [], []
    _opened("replay", {"ep": LONG})
    for name, turns in readable(store, max(1, repeats // 4)):
        seen, page = _opened("replay", {"ep": name})
        opened.append(seen)
        for _ in range(turns - 1):
            page.button(key="step_next").click()
            steps.append(watched(page))
    long = [_opened("replay", {"ep": LONG})[0] for _ in range(repeats)]
    return told("replay_open", opened) | told("replay_step", steps) | told("replay_long_open", long)


def _opened(view: str, query: dict[str, str]) -> tuple[Seen, AppTest]:
    forget()
    return open_page(view, query)


def told(name: str, runs: Sequence[Seen]) -> Figures:
    """Median and 95th percentile of the times, the processor's median, and the most queries and bytes of a run."""
    return {
        f"{name}_p50_ms": percentile(50, [run.ms for run in runs]),
        f"{name}_p95_ms": percentile(95, [run.ms for run in runs]),
        f"{name}_cpu_ms": percentile(50, [run.cpu_ms for run in runs]),
        f"{name}_queries": max(len(run.statements) for run in runs),
        f"{name}_bytes": max(run.size_bytes for run in runs),
    }


def readable(store: Store, n: int) -> list[tuple[str, int]]:
    """(id, turns) of the first checkpoint's newest episodes of six turns and more."""
    found = store.episodes.page(EpisodeFilter(policy=B, min_turns=6), limit=n).items
    return [(one.id, one.turns) for one in found]


def measure_in_browser(store: Store, path: Path) -> Figures:
    """What a reader waits for, by the browser's own clock; at least 60 steps."""
    with _in_browser.browser() as browser, tempfile.TemporaryDirectory() as folder:
        first, later = _in_browser.starts(browser)
        say(f"cold start: {first:.0f} ms, later {later:.0f} ms")
        with serving_app(Path(folder), path) as address:
            size = _in_browser.page_bytes(browser, address, "/episodes")
            steps = _in_browser.steps(browser, address, readable(store, 12))
    drawn, answered = [one.drawn_ms for one in steps], [one.answered_ms for one in steps]
    return {
        "browser_list_bytes": size,
        "browser_steps": len(steps),
        **{f"browser_step_p{percent}_ms": percentile(percent, drawn) for percent in (50, 95)},
        **{f"browser_step_answered_p{percent}_ms": percentile(percent, answered) for percent in (50, 95)},
        "browser_step_bytes": max(one.size_bytes for one in steps),
        "first_start_ms": round(first, 1),
        "cold_start_ms": round(later, 1),
    }


if __name__ == "__main__":
    run(measure, promised=BUDGETS)
