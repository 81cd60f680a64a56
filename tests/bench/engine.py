"""Runs on a Ray cluster beside the same on this machine alone: seconds, calls, and what the one driver can take.

`calls`: a batch run over models that take `wait` seconds, of which `permitted` calls may be under way together; both
engines in turn, `held` is the rate of calls as a share of the permitted one, from the first turn to the last. `pocket`:
an evolution of the pocket world, whose models and encoder compute on this machine. `driver`: callers that sleep as long
as real calls do and ask nobody, so many in flight that the driver is what limits: how many turns and episodes a second
it decides, asks for and takes up, with and without a store that it writes, and what travels between it and the
callers. With `--kills`, in place of these, what runs come to whose processes are killed in turn: episodes lost or
doubled, digests, calls beside those of the undisturbed runs, and costs beside the models' books. All processes share
this machine."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import psutil

from core.cluster.callers import Caller
from core.cluster.cluster import Cluster, Machines
from core.episode import EpisodeFinished, Event, Grade, Task, Turn
from core.play.drive import drive_many
from core.play.policies import RandomPolicy
from core.pocket import MODELS as POCKET
from core.pool.costs import Counts
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from core.pool.wire import Completion
from core.processes import loaded_set_aside
from storage.recorder import record_many
from storage.store import open_store
from tests.bench._cluster import Models, cluster, digest_of, models, said, trinity
from tests.bench._frame import Figures, run
from tests.bench._kills import measure_kills
from tests.bench._same import Series, commands
from tests.builders.play import births
from tests.builders.stores import begin_run

#: The default preset's shape of an evolution, cut to so many generations.
GENERATIONS = 4
ROUNDS = 2
SLEEP_S = 2.0


def measure(
    nodes: Annotated[int, "nodes of the cluster, in processes of this machine"] = 3,
    helpers: Annotated[int, "helpers in all"] = 4,
    wait: Annotated[float, "seconds that a model takes"] = 0.2,
    permitted: Annotated[int, "calls that may be in flight"] = 64,
    episodes: Annotated[int, "episodes of the batch run"] = 2500,
    in_flight: Annotated[int, "calls in flight that sleep"] = 2000,
    generations: Annotated[int, "generations of the pocket evolution; 0: leave it out"] = GENERATIONS,
    digests: Annotated[int, "1: compare digests of every kind of run; 0: leave them out"] = 1,
    kills: Annotated[int, "processes killed in turn, in place of the other figures; 0: none"] = 0,
    each: Annotated[int, "calls of a run for each kill"] = 600,
) -> Figures:
    """All figures, or those of kills."""
    found: Figures = {}
    if kills:
        with tempfile.TemporaryDirectory() as place, cluster(nodes) as there, models(wait) as asked:
            return measure_kills(Path(place), there, asked, kills=kills, each=each, helpers=helpers)
    with tempfile.TemporaryDirectory() as place, cluster(nodes) as there:
        folder, address = Path(place), f"ray={there.address}"
        with models(wait) as asked:
            found["calls"] = _calls(folder, asked, address, helpers, permitted, wait, episodes)
        if generations:
            found["pocket"] = _evolution(folder, generations)
        found["driver"] = _driver(folder, there.address, helpers, in_flight)
        if digests:
            found |= _digests(folder, address)
    calls = found["calls"]
    found["ratios"] = {
        "episodes_per_s_ray_vs_local": calls["local"]["seconds"] / calls["ray"]["seconds"],
        "calls_ratio": calls["ray"]["calls"] / calls["local"]["calls"],
    }
    return found


def _calls(
    folder: Path, asked: Models, address: str, helpers: int, permitted: int, wait: float, episodes: int
) -> Figures:
    pool = asked.pool(folder / "pool.toml", concurrency=permitted, models=1)
    found: Figures = {}
    for name, engine in (("local", "local"), ("ray", address)):
        before, store = asked.books(), folder / f"calls-{name}.db"
        asked_for = (
            "--policy",
            "single:m0",
            "--tasks",
            "pocket",
            "--n",
            episodes,
            "--validate",
            0,
            "--max-cost",
            50,
        )
        env = {"TRINITY_PROCESSES": str(helpers if name == "ray" else 1)}
        said(trinity(store, "run", *asked_for, "--pool", pool, "--engine", engine, env=env))
        after = asked.books()
        calls, seconds = after["calls"] - before["calls"], _seconds(store)
        found[name] = {
            "seconds": seconds,
            "calls": calls,
            "episodes_per_s": episodes / seconds,
            "held": calls / seconds / (permitted / wait),
            "digest": digest_of(store),
        }
        found["most_at_once"] = after["most_at_once"]
    return found


def _evolution(folder: Path, generations: int) -> Figures:
    """The same evolution of the pocket world by both engines in turn, each on all cores of this machine: means of
    ROUNDS."""
    found: Figures = {}
    for number, engine in enumerate(("local", "ray") * ROUNDS):
        store = folder / f"pocket-{number}.db"
        asked = ("--name", "e", "--generations", generations, "--no-controls", "--validation", 40)
        began = time.perf_counter()
        said(trinity(store, "evolve", "--tasks", "pocket", *asked, "--engine", engine))
        seconds = time.perf_counter() - began
        with closing(open_store(str(store))) as opened:
            learned = opened.learning.updates(opened.runs.list(limit=1)[0].id)[-1].wall_s
        one = found.setdefault(engine, {"seconds": 0.0, "learning_s": 0.0, "digests": set()})
        one["seconds"] += seconds / ROUNDS
        one["learning_s"] += learned / ROUNDS
        one["digests"].add(digest_of(store))
    found["digests_equal"] = len(found["local"].pop("digests") | found["ray"].pop("digests")) == 1
    found["ratio"] = found["ray"]["seconds"] / found["local"]["seconds"]
    return found


def _digests(folder: Path, address: str) -> Figures:
    """Whether each kind of run comes to the same with 2 and with 4 helpers as on this machine alone, and how many jobs
    they answered for it."""
    from tests.core.planner.tiny import tiny_planner  # which is slow to import, also for the models' process

    worlds = {"pocket": POCKET, "HTTP": ("m0", "m1", "m2")}
    planners = {
        world: tiny_planner().frozen(models=names).save(folder / f"planner-{world}")
        for world, names in worlds.items()
    }
    came: dict[int, dict[str, Any]] = {}
    with models(0.0) as asked:
        pool = asked.pool(folder / "three.toml", models=3)
        for helpers in (0, 2, 4):
            place = folder / f"same-{helpers}"
            place.mkdir()
            engine = address if helpers else "local"
            series = Series(str(place), engine, [helpers or 1], commands(place, planners, pool))
            [came[helpers]] = series.play()
    return {
        "digests": {
            kind: all(one[kind]["digest"] == here["digest"] for one in came.values())
            for kind, here in came[0].items()
        },
        "helped": {kind: {f"by_{n}_helpers": came[n][kind]["helped"] for n in (2, 4)} for kind in came[0]},
    }


def _seconds(store: Path) -> float:
    """From a run's first turn to its end."""
    with closing(open_store(str(store))) as opened:
        found = opened.runs.list(limit=1)[0]
        first = min(one.started for one in opened.episodes.of_run(found.id))
        return float((found.finished or 0.0) - first)


def _limits(folder: Path, there: Cluster, in_flight: int) -> Figures:
    specs = [ModelSpec(f"m{i}", base_url="http://127.0.0.1:9/v1", concurrency=in_flight) for i in range(2)]
    found: Figures = {}
    for name in ("unstored", "stored"):
        pool = HttpPool(specs, clients=lambda some, limits: there.clients(some, limits, Sleeper))
        pool.ahead = in_flight
        policy = RandomPolicy(tuple(one.name for one in specs))
        chosen = [Task(f"t{i}", f"What is {i} + 1?", str(i), "exact", "math") for i in range(2 * in_flight)]
        with closing(open_store(str(folder / f"{name}.db"))) as store:
            begin_run(store, "r1", "run", {})
            played = births("r1", chosen, "random", budget=2)
            played = [_for(one, specs) for one in played]
            drive = partial(drive_many, played, policy, pool, _graded)
            events: Iterator[Event] = record_many(store, drive) if name == "stored" else drive()
            turns = ended = 0
            began, cpu, sent = time.perf_counter(), time.process_time(), _loopback()
            with loaded_set_aside():  # as of any run
                for event in events:
                    turns += isinstance(event, Turn)
                    ended += isinstance(event, EpisodeFinished)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            travelled = [after - before for before, after in zip(sent, _loopback(), strict=True)]
        memory = [one.memory_info().rss for one in psutil.process_iter() if _is_sleeper(one)]
        found[name] = {
            "turns_per_s": turns / seconds,
            "ideal_turns_per_s": in_flight / SLEEP_S,
            "driver_cpu_s_per_turn": cpu / turns,
            "bytes_per_turn": travelled[0] / turns,
            "packets_per_turn": travelled[1] / turns,
            "episodes_per_s": ended / seconds,
            "driver_mb": psutil.Process().memory_info().rss / 2**20,
            "helper_mb": max(memory, default=0) / 2**20,
        }
        pool.close()
    return found


def _loopback() -> tuple[int, int]:
    """Bytes and packets so far between the processes of this machine: nothing else travels where nobody is asked."""
    found = psutil.net_io_counters(pernic=True)["lo"]
    return found.bytes_sent, found.packets_sent


class Sleeper(Caller):
    """In an actor: asks nobody, and answers after SLEEP_S."""

    async def _try(self, number: int, model: str, body: Mapping[str, Any]) -> None:
        await asyncio.sleep(SLEEP_S)
        self._under_way.pop(number, None)
        self._came.append((number, Completion(text="42", finish_reason="stop", counts=Counts(100, 10))))
        self._some.set()


def _driver(folder: Path, address: str, helpers: int, in_flight: int) -> Figures:
    """How fast one driver is, in this process."""
    there = Cluster(Machines(address), helpers)
    try:
        found = _limits(folder, there, in_flight)
    finally:
        there.leave()
    # Where one core is the driver's alone.
    turn_s = found["stored"]["driver_cpu_s_per_turn"]
    return found | {"episodes_per_s_limit": 1 / (2 * turn_s)}


def _for(episode: Any, specs: Sequence[ModelSpec]) -> Any:
    return replace(episode, models=tuple(one.name for one in specs))


def _graded(requests: Sequence[Grade]) -> list[bool]:
    return [False for _ in requests]


def _is_sleeper(process: psutil.Process) -> bool:
    try:
        return bool((process.cmdline() or [""])[0].startswith("ray::Sleeper"))
    except (psutil.Error, IndexError):
        return False


if __name__ == "__main__":
    run(measure)
