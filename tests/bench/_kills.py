"""Runs on a Ray cluster whose processes are killed in turn, beside the same runs undisturbed on this machine alone: for
`trinity bench engine --kills N`.

A batch run, an evolution with a small encoder and one with a large encoder, all over models behind HTTP. Each kill is
of the next kind: who asks models, who answers jobs, an encoder, a node with all that runs there, in whose place another
one comes, and the driver, which is resumed."""

from __future__ import annotations

import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from core.episode import Status
from storage.store import open_store
from tests.bench._cluster import Models, Nodes, digest_of, said, trinity
from tests.bench._frame import Figures, say

#: Whose processes are killed, by what they are called here; of an actor's class the name that Ray gives its process.
ACTORS = {"caller": "Caller", "worker": "Worker", "encoder": "EncoderActor"}
KINDS = (*ACTORS, "node", "driver")
#: In which runs each kind is at work.
AT_WORK = {
    "batch": ("caller", "node", "driver"),
    "small encoder": ("caller", "worker", "node", "driver"),
    "large encoder": ("caller", "encoder", "node", "driver"),
}
#: Calls that a model is asked side by side, and the most that one can cost, in USD: of at most 50 tokens of a reply.
AT_ONCE, BOUND_USD = 8, 600e-6
MODELS = 3
#: About so many calls an episode takes, and so many episodes a generation.
CALLS, POPULATION, REPLICATES = 3.6, 8, 8
#: Just too large to be read as a small one.
SHAPE: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 7}
#: Helpers that are worth nothing in the few seconds that a small encoder's work takes are started all the same.
PATCHED = {"core.processes.WORTH_S": 0.0}
#: So long the process is waited for that is to be killed, in seconds.
PATIENCE_S = 60.0


@dataclass
class Came:
    """What a run came to: its digest, its episodes, what it recorded as spent, and what it was billed."""

    digest: str
    episodes: Counter[str]
    recorded_usd: float
    calls: int
    billed_usd: float


@dataclass
class Disturbed:
    """A run that is played, and who is to be killed in it after which share of its calls."""

    name: str
    asked: Sequence[object]
    resume: Sequence[object]
    folder: Path
    models: Models
    killed: Counter[str] = field(default_factory=Counter)
    #: Calls that were under way at the models when somebody was killed.
    under_way: int = 0

    def undisturbed(self) -> Came:
        """What it comes to on this machine alone."""
        before = self.models.books()
        said(trinity(self._store("local"), *self.asked, env=self._env("local", 1)))
        return self._came("local", before)

    def disturbed(self, nodes: Nodes, kinds: Sequence[str], calls: int, helpers: int) -> Came:
        """What it comes to on a cluster when these are killed, spread over about so many calls."""
        before = self.models.books()
        engine, env = ("--engine", f"ray={nodes.address}"), self._env("ray", helpers)
        process = trinity(self._store("ray"), *self.asked, *engine, env=env, patched=PATCHED)
        for place, kind in enumerate(kinds, start=1):
            due = before["calls"] + calls * place / (len(kinds) + 1)
            while self.models.books()["calls"] < due and process.poll() is None:
                time.sleep(0.02)
            if not self._kill(kind, nodes, process):
                continue
            self.killed[kind] += 1
            say(f"{self.name}: {kind} killed")
            if kind == "driver":
                process.communicate()
                resume = (*self.resume, self._run("ray"), *engine)
                process = trinity(self._store("ray"), *resume, env=env, patched=PATCHED)
        said(process)
        return self._came("ray", before)

    def _kill(self, kind: str, nodes: Nodes, process: subprocess.Popen[str]) -> bool:
        until = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < until:
            under_way = self.models.books()["at_once"]
            if kind == "driver":
                process.kill()
            elif kind == "node":
                nodes.lose_one()
                nodes.add_one()
            elif not nodes.lose(ACTORS[kind]):
                time.sleep(0.1)
                continue
            self.under_way += under_way
            return True
        return False

    def _store(self, engine: str) -> Path:
        return self.folder / f"{self.name.replace(' ', '-')}-{engine}.db"

    def _env(self, engine: str, helpers: int) -> Mapping[str, str]:
        # What a large encoder has read is kept for all runs of a data folder: here each run reads for itself.
        own = self.folder / f"data-{self.name.replace(' ', '-')}-{engine}"
        return {"TRINITY_PROCESSES": str(helpers), "XDG_DATA_HOME": str(own)}

    def _run(self, engine: str) -> str:
        with closing(open_store(str(self._store(engine)))) as store:
            return store.runs.list(limit=1)[0].id

    def _came(self, engine: str, before: Counter[str]) -> Came:
        now, run = self.models.books(), self._run(engine)
        with closing(open_store(str(self._store(engine)))) as store:
            episodes = Counter(
                one.id.partition("-")[2]
                for one in store.episodes.of_run(run)
                if one.status is Status.FINISHED
            )
            spent_usd = store.runs.spent_usd(run)
        sent, written, calls = (now[key] - before[key] for key in ("tokens_in", "tokens_out", "calls"))
        return Came(digest_of(self._store(engine)), episodes, spent_usd, calls, (sent + 2 * written) / 1e6)


def measure_kills(
    folder: Path, nodes: Nodes, models: Models, *, kills: int, each: int, helpers: int
) -> Figures:
    """So many kills in all, `each` with about so many calls of its run around it."""
    plan = _plan(kills)
    runs = _runs(folder, models, {name: each * (len(kinds) + 1) for name, kinds in plan.items()})
    killed, equal = Counter[str](), dict[str, bool]()
    sums: defaultdict[str, float] = defaultdict(float)
    for run in runs:
        here = run.undisturbed()
        say(f"{run.name}: {here.calls:,} calls undisturbed, digest {here.digest}")
        there = run.disturbed(nodes, plan[run.name], here.calls, helpers)
        say(f"{run.name}: {there.calls:,} calls disturbed, digest {there.digest}")
        killed += run.killed
        equal[run.name] = here.digest == there.digest
        sums["lost"] += (here.episodes - there.episodes).total()
        sums["doubled"] += (there.episodes - here.episodes).total()
        sums["calls_undisturbed"] += here.calls
        sums["calls"] += there.calls
        sums["under_way"] += run.under_way
        sums["recorded_usd"] += there.recorded_usd
        sums["billed_usd"] += there.billed_usd
        sums["undisturbed_off_usd"] += abs(here.recorded_usd - here.billed_usd)
    return {
        "killed": {kind: killed[kind] for kind in KINDS} | {"all": killed.total()},
        "episodes_lost": int(sums["lost"]),
        "episodes_doubled": int(sums["doubled"]),
        "digests_equal": equal,
        "calls_ratio": sums["calls"] / sums["calls_undisturbed"],
        "recorded_usd": sums["recorded_usd"],
        "billed_usd": sums["billed_usd"],
        "recorded_above_billed_usd": sums["recorded_usd"] - sums["billed_usd"],
        "bound_of_lost_calls_usd": killed.total() * MODELS * AT_ONCE * BOUND_USD,
        "under_way_at_kills": int(sums["under_way"]),
        "undisturbed_off_usd": sums["undisturbed_off_usd"],
    }


def _plan(kills: int) -> dict[str, list[str]]:
    """Who is killed in which run: the kinds in turn, each where it is at work, the runs in turn where in several."""
    found: dict[str, list[str]] = {name: [] for name in AT_WORK}
    turns = {kind: cycle([name for name, kinds in AT_WORK.items() if kind in kinds]) for kind in KINDS}
    for _, kind in zip(range(kills), cycle(KINDS), strict=False):
        found[next(turns[kind])].append(kind)
    return {name: kinds for name, kinds in found.items() if kinds}


def _runs(folder: Path, models: Models, calls: Mapping[str, int]) -> list[Disturbed]:
    """The runs, each of about so many calls."""
    pool = models.pool(folder / "kills.toml", concurrency=AT_ONCE, models=MODELS, more="max_tokens = 50\n")
    shared = ("--tasks", "pocket", "--pool", pool, "--max-cost", 500)
    found = []
    for name, n in calls.items():
        if name == "batch":
            size = ("--policy", "random", "--validate", 0, "--n", max(20, round(n / CALLS)))
            found.append(Disturbed(name, ("run", *shared, *size), ("run", "--resume"), folder, models))
            continue
        encoder: object = "pocket"
        if name == "large encoder":
            # It brings torch, which the processes of other figures do without.
            from tests.builders.encoder import tiny_qwen3

            encoder = tiny_qwen3(folder / "encoder", **SHAPE)
        generations = max(2, round(n / (CALLS * POPULATION * REPLICATES)))
        grown = ("--generations", generations, "--population", POPULATION, "--replicates", REPLICATES)
        own = ("--name", "e", "--encoder", encoder, "--validation", 8, "--n", 400, "--record", "all")
        asked = ("evolve", *shared, *grown, *own, "--no-controls")
        found.append(Disturbed(name, asked, ("evolve", "--resume", "--name"), folder, models))
    return found
