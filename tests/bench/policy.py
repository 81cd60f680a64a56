"""Times the policy diff of 10,000 recorded turns by stored states: the numbers, and the page around them.

trinity bench policy [--turns 10000] [--width 1024] [--repeats 10]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from core.checkpoint import Checkpoint, EncoderIdentity
from core.coordinator.coordinator import choose
from core.coordinator.encoder import Encoded
from core.draws import turn_key
from core.episode import Decide, EndReason, Episode, Message, Reply, Role, Status, Transcript, Turn, Verdict
from core.ids import episode_id
from core.pocket import FAMILIES, MODELS
from core.pocket.tasks import draw_tasks
from storage.analysis.policy_diff import read_diff
from storage.analysis.second_opinions import EpisodeScope
from storage.store import Store, open_store
from tests.builders.stores import record_finished_run
from ui.runs.wiring import keep_checkpoint

TURNS_EACH = 5


def fill(store: Store, turns: int, width: int) -> list[str]:
    """Record episodes with states of `width` numbers; the ids of the recorder and of another checkpoint."""
    rng = np.random.default_rng(0)
    identity = EncoderIdentity("bench", width, "0" * 64)
    vectors = rng.normal(size=(2, (len(MODELS) + 3) * width)) / np.sqrt(width)
    a, b = (Checkpoint(vector, MODELS, identity, generation=g) for g, vector in enumerate(vectors))
    for one in (a, b):
        keep_checkpoint(store, one)
    tasks = [task for family in FAMILIES for task in draw_tasks(family, "test", 100, 0)]
    count = turns // TURNS_EACH
    for part in range(-(-count // 500)):
        run = f"r1bench{part:06d}"
        episodes = []
        for place in range(min(500, count - 500 * part)):
            task = tasks[(500 * part + place) % len(tasks)]
            born = Episode(episode_id(run, place), run, task, a.id, MODELS, seed=part)
            states = rng.normal(size=(TURNS_EACH, width)).astype(np.float32)
            asked = [
                Decide(Transcript(task.question), index, turn_key(part, task.id, index), born.id)
                for index in range(TURNS_EACH)
            ]
            encoded = Encoded(states, ("ab" * 16,) * TURNS_EACH, (90,) * TURNS_EACH, (False,) * TURNS_EACH)
            z = a.head.logits(states, a.head_vector, range(TURNS_EACH))
            played = tuple(
                Turn(
                    born.id,
                    index,
                    decision,
                    (Message("user", task.question),),
                    Reply("carried out again this gives 7 REVISE" * 3),
                    verdict=Verdict.REVISE if decision.role is Role.VERIFIER else None,
                )
                for index, decision in enumerate(choose(asked, encoded, z, a))
            )
            ended = {"status": Status.FINISHED, "end_reason": EndReason.BUDGET, "correct": False}
            episodes.append(
                Episode(born.id, run, task, a.id, MODELS, seed=part, turns=played, **ended)  # type: ignore[arg-type]
            )
        record_finished_run(store, run, "run", {"tasks": "pocket/all"}, episodes)
    return [a.id, b.id]


def diffed(store: Store, ids: list[str], *, by_draw: bool) -> int:
    """All that the page and the command show of two checkpoints; how many turns that is."""
    diff = read_diff(store, EpisodeScope(), ids, by_draw=by_draw)
    assert diff.agreements[0].rate is not None
    assert diff.agreements[0].interval
    assert len(diff.partings[0].turns)
    return len(diff.turns)


def told(name: str, times: list[float]) -> None:
    """One line: median and slowest."""
    p50, most = np.percentile(times, [50, 100])
    print(f"{name:34} p50 {p50:6.0f} ms   slowest {most:6.0f} ms", flush=True)


def main() -> None:
    """Fill a store, diff two checkpoints again and again, open the page in fresh sessions, and print the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        store = open_store(path)
        ids = fill(store, options.turns, options.width)
        for name, by_draw in (("likeliest choices", False), ("by the recorded draw", True)):
            times = []
            for _ in range(options.repeats):
                began = time.perf_counter()
                n = diffed(store, ids, by_draw=by_draw)
                times.append(1000 * (time.perf_counter() - began))
            told(f"{n:,} turns, {name}", times)
        store.close()
        os.environ["TRINITY_STORE"] = str(path)
        from tests.ui.pages import app

        times = []
        for _ in range(options.repeats):
            page = app().run()
            page.query_params["c"] = ",".join(ids)
            began = time.perf_counter()
            page.switch_page("views/policy.py").run()
            times.append(1000 * (time.perf_counter() - began))
            assert not page.exception
        told("the page, first time", times[:1])
        told("the page, again", times[1:])


if __name__ == "__main__":
    main()
