"""Measures the app's pages on a store of 100,000 episodes and 600,000 turns, and sets each figure beside its budget.

    trinity bench pages [--episodes 100000] [--repeats 15] [--store FILE] [--only PAGES] [--no-browser] [--json]

`--store FILE` keeps the generated store, and uses it again. Script runs are timed in this process from the request to
the page's last message, with the page's caches empty; their SQL statements and the bytes of their messages are counted.
Where there is a Chromium, steps through replays are also timed in it, from the click until the new turn is drawn, and
so is a cold start. The policy diff of 10,000 turns has a benchmark of its own: `trinity bench policy`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from streamlit.testing.v1 import AppTest

from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store, open_store
from tests.bench import _in_browser
from tests.bench._watched import Run, open_page, press
from tests.browsing import serving
from tests.builders.large_store import COMMON_WORD, GENERATIONS, RARE_WORD, checkpoint, large_store
from tests.builders.recorded import episode
from tests.builders.stores import record_finished_run
from tests.ui.pages import APP
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

Figures = dict[str, float]


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


def fill(path: Path, episodes: int, say: Callable[[str], None]) -> None:
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


def measure(store: Store, only: Sequence[str], repeats: int, say: Callable[[str], None]) -> Figures:
    """The script runs of the pages named; "replay" stands for all of a replay's figures."""
    found: Figures = {}
    for name, (view, query) in views().items():
        if name in only:
            _opened(view, query)  # what a first page imports is no page's time
            found |= told(name, [_opened(view, query)[0] for _ in range(repeats)])
            again = [open_page(view, query)[0].ms for _ in range(min(3, repeats))]
            found[f"{name}_again_p50_ms"] = round(float(np.median(again)), 1)
            say(f"{name}: {found[f'{name}_p50_ms']:.0f} ms")
    return found | _measure_replay(store, repeats) if "replay" in only else found


def _measure_replay(store: Store, repeats: int) -> Figures:
    opened, steps = [], []
    _opened("replay", {"ep": LONG})
    for name, turns in readable(store, max(1, repeats // 4)):
        run, page = _opened("replay", {"ep": name})
        opened.append(run)
        steps += [press(page, "step_next") for _ in range(turns - 1)]
    long = [_opened("replay", {"ep": LONG})[0] for _ in range(repeats)]
    return told("replay_open", opened) | told("replay_step", steps) | told("replay_long_open", long)


def _opened(view: str, query: dict[str, str]) -> tuple[Run, AppTest]:
    forget()
    return open_page(view, query)


def told(name: str, runs: Sequence[Run]) -> Figures:
    """Median and 95th percentile of the times, the processor's median, and the most queries and bytes of a run."""
    p50, p95 = np.percentile([run.ms for run in runs], [50, 95])
    return {
        f"{name}_p50_ms": round(float(p50), 1),
        f"{name}_p95_ms": round(float(p95), 1),
        f"{name}_cpu_ms": round(float(np.median([run.cpu_ms for run in runs])), 1),
        f"{name}_queries": max(len(run.statements) for run in runs),
        f"{name}_bytes": max(run.size_bytes for run in runs),
    }


def readable(store: Store, n: int) -> list[tuple[str, int]]:
    """(id, turns) of the first checkpoint's newest episodes of six turns and more."""
    found = store.episodes.page(EpisodeFilter(policy=B, min_turns=6), limit=n).items
    return [(one.id, one.turns) for one in found]


def measure_in_browser(store: Store, path: Path, say: Callable[[str], None]) -> Figures:
    """What a reader waits for, by the browser's own clock; at least 60 steps."""
    streamlit = [sys.executable, "-m", "streamlit", "run", str(APP), "--server.port"]
    with ExitStack() as stack:
        browser = stack.enter_context(_in_browser.browser())
        first, later = _in_browser.starts(browser)
        say(f"cold start: {first:.0f} ms, later {later:.0f} ms")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = stack.enter_context(serving(streamlit, folder, path))
        size = _in_browser.page_bytes(browser, address, "/episodes")
        steps = _in_browser.steps(browser, address, readable(store, 12))
    drawn = np.percentile([one.drawn_ms for one in steps], [50, 95])
    answered = np.percentile([one.answered_ms for one in steps], [50, 95])
    return {
        "browser_list_bytes": size,
        "browser_steps": len(steps),
        "browser_step_p50_ms": round(float(drawn[0]), 1),
        "browser_step_p95_ms": round(float(drawn[1]), 1),
        "browser_step_answered_p50_ms": round(float(answered[0]), 1),
        "browser_step_answered_p95_ms": round(float(answered[1]), 1),
        "browser_step_bytes": max(one.size_bytes for one in steps),
        "first_start_ms": round(first, 1),
        "cold_start_ms": round(later, 1),
    }


def show(measured: Figures) -> None:
    """A line per figure, with its budget and whether it is kept."""
    for name, value in measured.items():
        budget = BUDGETS.get(name)
        beside = "" if budget is None else f"budget {budget:>9,}  {'kept' if value <= budget else 'BROKEN'}"
        print(f"{name:32} {value:>12,.0f}  {beside}".rstrip())


def main(given: Sequence[str] | None = None) -> None:
    """Fill a store, measure, print."""
    parser = argparse.ArgumentParser(prog="trinity bench pages", description=__doc__)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--store", type=Path, help="keep the generated store here, or use the one that is here"
    )
    parser.add_argument("--only", help="these pages alone, separated by commas: list,compare,replay")
    parser.add_argument("--no-browser", action="store_true", help="script runs only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args(given)

    def say(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        path = (asked.store or Path(folder) / "store.db").resolve()
        fill(path, asked.episodes, say)
        os.environ["TRINITY_STORE"] = str(path)
        store = open_store(path)
        health = store.health()
        logging.disable(logging.WARNING)  # Streamlit mentions each time that pages run without a server
        only = asked.only.split(",") if asked.only else [*views(), "replay"]
        measured = measure(store, only, asked.repeats, say)
        logging.disable(logging.NOTSET)
        if asked.no_browser or _in_browser.chromium() is None:
            say("no Chromium is used: what a reader waits for is left out")
        else:
            measured |= measure_in_browser(store, path, say)
        store.close()
    if asked.json:
        sizes = {"episodes": health.episodes, "turns": health.turns}
        machine = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
        print(json.dumps({**sizes, "machine": machine, "measured": measured, "budgets": BUDGETS}))
        return
    print(
        f"{health.episodes:,} episodes, {health.turns:,} turns; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    show(measured)


if __name__ == "__main__":
    main()
