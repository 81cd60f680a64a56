"""The checkpoints of a store as decisions need them: read once, each with its head, and who reads as whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from core.checkpoint import Checkpoint
from storage.store import Store
from storage.summaries import CheckpointSummary
from ui.rescored import same_reading, same_slots
from ui.theme import plain
from ui.widgets import generations, who

#: Checkpoints that are offered beside one, its own run's first.
MOST_OFFERED = 300


def checkpoint_of(store: Store, policy: str) -> Checkpoint | None:
    """The checkpoint that a policy is; None when the store holds none of this name. CheckpointError for a damaged
    one."""
    return _checkpoint(store, store.url, policy)


@st.cache_resource(max_entries=64, ttl=600, show_spinner=False)
def _checkpoint(_store: Store, url: str, policy: str) -> Checkpoint | None:
    found = _store.checkpoints.find(policy)
    return None if found is None else Checkpoint.from_bytes(found[0].config, found[1])


@st.cache_resource(max_entries=4, ttl=60, show_spinner=False)
def _all(_store: Store, url: str) -> list[CheckpointSummary]:
    return _store.checkpoints.list()


def born(store: Store) -> dict[str, int | None]:
    """Checkpoint id -> generation, as of a minute ago at most."""
    return {one.id: one.generation for one in _all(store, store.url)}


def others(store: Store, checkpoint: Checkpoint) -> list[CheckpointSummary]:
    """The other checkpoints with the same reading and the same slots: those that played first, of these those of the
    same run, of these the newest."""
    own: dict[str, Any] = checkpoint.to_config()
    kept = _all(store, store.url)
    run = next((one.run_id for one in kept if one.id == checkpoint.id), None)
    fitting = [
        one
        for one in kept
        if one.id != checkpoint.id and same_reading(own, one.config) and same_slots(own, one.config)
    ]
    fitting.sort(key=lambda one: (one.run_id == run, one.run_id or "", one.generation or 0), reverse=True)
    return played_first(store, fitting)[:MOST_OFFERED]


def played_first(store: Store, ordered: Sequence[CheckpointSummary]) -> list[CheckpointSummary]:
    """Those that decided an episode before those that never did; else the order that they come in."""
    played = store.checkpoints.played()
    return sorted(ordered, key=lambda one: one.id not in played)


def playable(store: Store, models: Sequence[str]) -> list[str]:
    """Policies that fit the pool: checkpoints that played first, the newest first, then those that need none."""
    fitting = [one for one in store.checkpoints.list() if list(one.config.get("models", [])) == list(models)]
    fitting.sort(key=lambda one: (one.created, one.generation or 0), reverse=True)
    ordered = [one.id for one in played_first(store, fitting)]
    return [*ordered, "random", "round-robin", *(f"single:{model}" for model in models)]


def most_telling(store: Store, names: Sequence[str], own: str) -> str | None:
    """Which of these policies shows most beside `own`: of the checkpoints that played, those of its run where there
    are any, the oldest when `own` is the newest, else the newest. None: there are no names."""
    played = store.checkpoints.played()
    kept = {one.id: one for one in store.checkpoints.list()}
    ours = kept.get(own)
    seen = [kept[name] for name in names if name in played]
    kin = [one for one in seen if ours and one.run_id == ours.run_id] or seen
    if not kin:
        return names[0] if names else None
    oldest, newest = min(kin, key=_age), max(kin, key=_age)
    return (newest if ours is None or _age(ours) < _age(newest) else oldest).id


def _age(one: CheckpointSummary) -> tuple[float, int]:
    return one.created, one.generation or 0


def spoken(store: Store) -> Callable[[str], str]:
    """How a list names a policy, plain text: `generation 30 (csv47tl0o65)`, and which checkpoints never played."""
    names = generations(store.checkpoints.list())
    played = store.checkpoints.played()

    def words(name: str) -> str:
        idle = " · has played nothing yet" if name in names and name not in played else ""
        return plain(f"{who(name, names.get(name))}{idle}", 90)

    return words


def readers(store: Store, checkpoint: Checkpoint) -> Sequence[str]:
    """The checkpoints whose recorded states can be put beside this one's: itself, and all that read as it does with
    no SVF in between."""
    own = checkpoint.to_config()
    plain = [
        one
        for one in _all(store, store.url)
        if not one.config.get("svf_layout") and not checkpoint.svf_layout
    ]
    alike = [one.id for one in plain if same_reading(own, one.config)]
    return sorted({checkpoint.id, *alike})
