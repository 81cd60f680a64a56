"""A run in words: what it is about, the name by which every page calls it, and what goes with one that
is removed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import PurePath

from core.processes import EngineState
from core.settings import MIXED_ENGINE, POCKET_POOL, RAY_ENGINE
from core.tasks.sets import OUTCOMES_PREFIX
from storage.rows.summaries import RunKind, RunSummary
from storage.store import Store
from storage.upkeep.retention import LOST, WORDS, Pruning
from ui.presentation.theme import one_line
from ui.presentation.words import distinct, several, size_words

#: What a run's name says before what it is about, where that alone would not tell its kind.
_KINDS: dict[RunKind, str] = {
    "evolve": "evolution",
    "train": "training",
    "live": "live play of",
    "fork": "forks of",
    "attribute": "attribution of",
    "reencode": "reading again",
    "serve": "endpoint",
}


def about(run: RunSummary, cut: int = 60) -> str:
    """What a run is about, plain text on one line: its question, the row of a table it is, its name or its tasks; empty
    where it does not say."""
    words = _subject(run)
    return one_line(f"{words} (sample)" if run.is_sample and words != "sample" else words, cut)


def run_name(run: RunSummary) -> str:
    """A run as a reader knows it, plain text: `pocket test, 24 Nov`, `evolution mine, 24 Nov`."""
    return _dated(run, "")


def names_of(runs: Sequence[RunSummary]) -> dict[str, str]:
    """Run id -> its name; those that are alike with the time of day, then with their ids."""
    names = {run.id: run_name(run) for run in runs}
    alike = Counter(names.values())
    return distinct(
        {run.id: _dated(run, " %H:%M") if alike[names[run.id]] > 1 else names[run.id] for run in runs}
    )


def run_names(store: Store, ids: Collection[str]) -> dict[str, str]:
    """The names of these runs; of what the store does not hold the id."""
    return {one: one for one in ids} | names_of(store.runs.outlines(ids))


def _dated(run: RunSummary, clock: str) -> str:
    words = " ".join(one for one in (_KINDS.get(run.kind), _tasks(run) or about(run, 40)) if one) or "run"
    at = time.localtime(run.created)
    return f"{words}, {at.tm_mday} {time.strftime(f'%b{clock}', at)}"


def _tasks(run: RunSummary) -> str:
    """The tasks of a batch run, by their file or their split; empty for other runs."""
    tasks = run.config.get("tasks")
    if run.kind != "run" or not isinstance(tasks, str):
        return ""
    name = one_line(PurePath(tasks).name, 40)
    if tasks.split("/")[0] == POCKET_POOL:
        name = f"{tasks.removesuffix('/all')} {run.config.get('split', '')}".strip()
    if str(run.config.get("pool")).startswith(OUTCOMES_PREFIX):
        name = f"{name} {run.config.get('split', '')}, recorded models"
    return f"{name} (sample)" if run.is_sample else name


def _subject(run: RunSummary) -> str:
    config = run.config
    match run.kind:
        case "live":
            task = config.get("task")
            words = task.get("question") if isinstance(task, dict) else ""
        case "fork" | "attribute":
            words = config.get("question")
        case "reproduction":
            row = config.get("reproduction")
            words = f"{row.get('label')}, seed {config.get('seed')}" if isinstance(row, dict) else ""
        case "serve":
            tiers = config.get("tiers")
            words = ", ".join(tiers) if isinstance(tiers, dict) else ""
        case "reencode":
            words = ""
        case _:
            words = run.name or config.get("tasks")
    return words if isinstance(words, str) else ""


def retention_words(pruning: Pruning) -> list[str]:
    """What goes, what is lost with it and what stays, a sentence each."""
    what, episodes = WORDS[pruning.what], several(pruning.episodes, "episode")
    lines = [f"Nothing to remove: there are no {what} that may go."]
    if pruning.rows:
        gone = f"{what[:1].upper()}{what[1:]} in {episodes}"
        if pruning.what == "episodes":
            gone = several(pruning.episodes, "whole episode")
        elif pruning.what == "runs":
            gone = f"{several(len(pruning.runs), 'run')} with {episodes}"
        lines = [f"{gone} would go, about {size_words(pruning.size_bytes)}.", LOST[pruning.what]]
    noun = "run" if pruning.what == "runs" else "episode"
    return [*lines, *(f"Kept: {several(n, noun)} {reason}." for reason, n in pruning.retained.items())]


def engine_words(engine: str) -> str:
    """An engine as it is called: local, Ray on this machine, Ray at 10.0.0.1:6379."""
    name, _, address = engine.partition("=")
    if name not in (RAY_ENGINE, MIXED_ENGINE):
        return engine
    where = f"Ray at {address}" if address else "Ray on this machine"
    return f"{where}, machines may differ" if name == MIXED_ENGINE else where


def engine_state_words(engine: str, state: EngineState | None) -> str:
    """What an engine is doing: `Ray at 10.0.0.1:6379: 4 helpers on 3 machines, 57 calls under way`."""
    if state is None:
        return f"Waiting for {engine_words(engine)}"
    parts = [_count(state.helpers, "helper") + f" on {_count(state.machines, 'machine')}"]
    if not state.helpers:
        parts = [f"{_count(state.machines, 'machine')}, helpers start once there is enough work"]
    if state.under_way:
        parts.append(f"{_count(state.under_way, 'call')} under way")
    return f"{engine_words(engine)}: {', '.join(parts)}"


def lost_words(lost: int) -> str:
    """That helpers of an engine were lost."""
    return f"{_count(lost, 'helper')} {'was' if lost == 1 else 'were'} lost and started again."


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
