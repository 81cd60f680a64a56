"""Times the policy diff of 10,000 recorded turns by stored states: the numbers, and the page around them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from core.checkpoint import Checkpoint, EncoderIdentity
from core.coordinator.coordinator import choose
from core.coordinator.states import Encoded
from core.draws import turn_key
from core.episode import Decide, EndReason, Episode, Message, Reply, Role, Status, Transcript, Turn, Verdict
from core.ids import episode_id
from core.pocket import FAMILIES, MODELS
from core.pocket.tasks import draw_tasks
from storage.analysis.policy_diff import read_diff
from storage.analysis.second_opinions import EpisodeScope
from storage.store import Store, open_store
from tests.bench._frame import Figures, milliseconds, percentile, run
from tests.builders.stores import record_finished_run
from tests.ui.pages import app
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
    tasks = [task for family in FAMILIES for task in draw_tasks(family, "test", 80, 0)]
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


def diffed(store: Store, ids: list[str], *, by_draw: bool) -> None:
    """All that the page and the command show of two checkpoints."""
    diff = read_diff(store, EpisodeScope(), ids, by_draw=by_draw)
    assert diff.agreements[0].rate is not None
    assert diff.agreements[0].interval
    assert len(diff.partings[0].turns)
    assert diff.turns


def measure(turns: int = 10_000, width: int = 1024, repeats: int = 10) -> Figures:
    """Fill a store, diff two checkpoints again and again, and open the page in fresh sessions."""
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        store = open_store(path)
        ids = fill(store, turns, width)

        def diff(by_draw: bool) -> list[float]:
            return [milliseconds(lambda: diffed(store, ids, by_draw=by_draw)) for _ in range(repeats)]

        times |= {"likeliest choices": diff(False), "by the recorded draw": diff(True)}
        store.close()
        os.environ["TRINITY_STORE"] = str(path)
        pages = [_opened(ids) for _ in range(repeats)]
        times |= {"the page, first time": pages[:1], "the page, again": pages[1:]}
    return {
        name: {"p50_ms": percentile(50, some), "slowest_ms": percentile(100, some)}
        for name, some in times.items()
        if some
    }


def _opened(ids: list[str]) -> float:
    """How long the page takes in a tab of its own."""
    page = app().run()
    page.query_params["c"] = ",".join(ids)
    took = milliseconds(lambda: page.switch_page("views/policy.py").run())
    assert not page.exception
    return took


if __name__ == "__main__":
    run(measure)
