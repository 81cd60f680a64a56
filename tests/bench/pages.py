"""Times the list pages on a store of 10,000 episodes: script runs by AppTest, p50 and p95. Asserts nothing.

trinity bench pages [--episodes 10000] [--repeats 50]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.drive import drive_many
from core.episode import Ask, Episode, Role
from core.ids import episode_id
from core.pocket import FAMILIES, MODELS
from core.pocket.tasks import draw_tasks
from core.policies import RandomPolicy
from core.pool.scripted import ScriptedPool
from core.pool.spec import ModelSpec
from core.tasks.graders import grade_many
from storage.recorder import record
from storage.store import open_store


def say(ask: Ask) -> str:
    """Replies of a realistic length, now and then right."""
    if ask.role is Role.WORKER:
        return f"answer {ask.seed % 40}"
    if ask.role is Role.THINKER:
        return "first gather what is given, then combine it step by step " * 3
    return f"carried out again this gives {ask.seed % 40} {'ACCEPT' if (ask.seed + ask.sample) % 3 else 'REVISE'}"


def fill(path: Path, count: int) -> None:
    """Record `count` episodes through the real loop and recorder."""
    store = open_store(path)
    specs = [ModelSpec(name, dialect="terse", provider="scripted") for name in MODELS]
    tasks = [task for family in FAMILIES for task in draw_tasks(family, "test", 250, 0)]
    for part in range(-(-count // len(tasks))):
        run = f"r1bench{part:06d}"
        store.runs.create(run, "run", {"tasks": "pocket/all"})
        episodes = [
            Episode(episode_id(run, index), run, task, "random", MODELS, seed=part)
            for index, task in enumerate(tasks[: count - part * len(tasks)])
        ]
        for start in range(0, len(episodes), 500):
            batch = [replace(episode) for episode in episodes[start : start + 500]]
            for _ in record(
                store, drive_many(batch, RandomPolicy(MODELS), ScriptedPool(specs, say), grade_many)
            ):
                pass
        store.runs.finish(run)
    store.close()


def main() -> None:
    """Fill a store, open each list in fresh sessions and print the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        began = time.perf_counter()
        fill(path, options.episodes)
        print(f"{options.episodes} episodes recorded in {time.perf_counter() - began:.0f} s", flush=True)
        os.environ["TRINITY_STORE"] = str(path)
        from tests.ui.pages import app

        lists = {
            "home": ("home", {}),
            "episodes, first page": ("episodes", {}),
            "episodes, search": ("episodes", {"text": "gather"}),
            "episodes, filter": ("episodes", {"family": "logic", "correct": "false"}),
            "episodes, last page": ("episodes", {"last": "1"}),
            "checkpoints": ("checkpoints", {}),
        }
        for name, (view, query) in lists.items():
            times = []
            for _ in range(options.repeats):
                page = app().run()
                for key, value in query.items():
                    page.query_params[key] = value
                began = time.perf_counter()
                page.switch_page(f"views/{view}.py").run()
                times.append(1000 * (time.perf_counter() - began))
                assert not page.exception
            p50, p95 = np.percentile(times, [50, 95])
            print(f"{name:24} p50 {p50:6.1f} ms   p95 {p95:6.1f} ms", flush=True)


if __name__ == "__main__":
    main()
