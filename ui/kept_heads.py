"""The checkpoints of a store as decisions need them: read once, each with its head, and who reads as whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from core.checkpoint import Checkpoint
from storage.store import Store
from storage.summaries import CheckpointSummary
from ui.rescored import same_reading, same_slots

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
    """The other checkpoints with the same reading and the same slots, those of the same run first, the newest
    generation first."""
    own: dict[str, Any] = checkpoint.to_config()
    kept = _all(store, store.url)
    run = next((one.run_id for one in kept if one.id == checkpoint.id), None)
    fitting = [
        one
        for one in kept
        if one.id != checkpoint.id and same_reading(own, one.config) and same_slots(own, one.config)
    ]
    fitting.sort(key=lambda one: (one.run_id == run, one.run_id or "", one.generation or 0), reverse=True)
    return fitting[:MOST_OFFERED]


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
