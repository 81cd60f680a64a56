"""Steps of a workflow that do not read each other, side by side and one after another, with a pool of slow calls.

    trinity bench workflow [--wait 0.2] [--episodes 10] [--json]

A local server answers every call after the same time. `side by side` is `conductor:fixed:solvers` (three that solve and
one that merges) as it is run; `in sequence` is its peer, the same workflow over the same pool with one call at a time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from core.conduct.planners import planner_policy
from core.episode import EpisodeFinished, Status, Task
from core.play.drive import drive
from core.play.policy import new_episode
from core.pool.pool import Pool
from core.pool_file import load_pool
from core.tasks.graders import grade_many
from tests.core.pool.faulty_server import USAGE, faulty_server, ok

MODELS = ("a", "b", "c")
TASK = Task("t", "How many?", "42", "number")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="trinity bench workflow", description=__doc__)
    parser.add_argument("--wait", type=float, default=0.2, help="seconds that each call takes")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    with (
        faulty_server((chosen.wait, *ok("<answer>42</answer>", usage=USAGE))) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        times = {
            name: [_seconds(_pool(Path(folder) / f"{name}.toml", server.url, calls)) for _ in range(chosen.episodes)]
            for name, calls in (("side by side", 4), ("in sequence", 1))
        }  # fmt: skip
    found = {name.replace(" ", "_") + "_s": round(statistics.median(of), 3) for name, of in times.items()}
    ratio = round(found["side_by_side_s"] / found["in_sequence_s"], 3)
    if chosen.json:
        print(json.dumps({**found, "ratio": ratio}))
        return
    print(f"side by side {found['side_by_side_s']} s, in sequence {found['in_sequence_s']} s, ratio {ratio}")


def _pool(file: Path, url: str, calls: int) -> Pool:
    """The models of a server that takes so many calls at a time."""
    provider = f'[[provider]]\nname = "server"\nbase_url = "{url}"\nconcurrency = {calls}\n'
    models = [f'[[model]]\nname = "{name}"\nprovider = "server"\n' for name in MODELS]
    file.write_text("\n".join([provider, *models]))
    return load_pool(file, {})


def _seconds(pool: Pool) -> float:
    """How long an episode takes."""
    policy = planner_policy("conductor:fixed:solvers", MODELS)
    episode = new_episode("bench", 0, TASK, policy, turns=5, seed=0, argmax=False)
    began = time.perf_counter()
    *_, last = drive(episode, policy, pool, grade_many)
    took = time.perf_counter() - began
    assert isinstance(last, EpisodeFinished)
    assert (last.episode.status, len(last.episode.turns), last.episode.correct) == (Status.FINISHED, 4, True)
    return took


if __name__ == "__main__":
    main()
