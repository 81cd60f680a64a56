"""Steps of a workflow that do not read each other, side by side and one after another, with a pool of slow calls.

A local server answers every call after the same time. `side by side` is `conductor:fixed:solvers` (three that solve and
one that merges) as it is run; `in sequence` is its peer, the same workflow over the same pool with one call at a time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated

from core.conduct.planners import planner_policy
from core.episode import EpisodeFinished, Status, Task
from core.play.drive import drive
from core.play.policies import new_episode
from core.pool.pool import Pool
from core.pool_file import load_pool
from core.tasks.graders import grade_many
from tests.bench._frame import Figures, run
from tests.core.pool.faulty_server import USAGE, faulty_server, ok

MODELS = ("a", "b", "c")
TASK = Task("t", "How many?", "42", "number")


def measure(wait: Annotated[float, "seconds that each call takes"] = 0.2, episodes: int = 10) -> Figures:
    """Median seconds of an episode, either way."""
    found = {}
    with (
        faulty_server((wait, *ok("<answer>42</answer>", usage=USAGE))) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name, calls in (("side_by_side", 4), ("in_sequence", 1)):
            pool = _pool(Path(folder) / f"{name}.toml", server.url, calls)
            found[f"{name}_s"] = round(statistics.median(_seconds(pool) for _ in range(episodes)), 3)
    return {**found, "ratio": round(found["side_by_side_s"] / found["in_sequence_s"], 3)}


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
    run(measure)
