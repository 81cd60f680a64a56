"""Runs that a page begins are written down once, however often it is clicked."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import StoreError
from core.ids import run_id
from storage.store import Store
from storage.summaries import RunKind, RunStatus


@dataclass(frozen=True, slots=True)
class Ticket:
    """Given out with each form: the same options from the same form are the same run."""

    at: int
    nonce: str

    @classmethod
    def new(cls) -> Ticket:
        """One that nobody had before."""
        return cls(int(time.time()), os.urandom(16).hex())

    def run(self, config: Mapping[str, Any]) -> str:
        """The id of the run that these options begin."""
        told = json.dumps([self.nonce, dict(config)], sort_keys=True)
        return run_id(self.at, hashlib.sha256(told.encode()).digest()[:16])


def enqueue(store: Store, kind: RunKind, config: Mapping[str, Any], ticket: Ticket) -> tuple[str, bool]:
    """Write a run down as queued; its id, and whether this call did it and not one with the same ticket before."""
    run = ticket.run(config)
    try:
        store.runs.create(run, kind, config, status=RunStatus.QUEUED)
    except StoreError:
        store.runs.get(run)  # told when it was not there before either
        return run, False
    return run, True
