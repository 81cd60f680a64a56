"""Remembers which cycle of roles was chosen for a fixed policy, so that it is chosen once and then frozen."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.episode import Role, Task
from core.pocket import WEIGHTS
from core.policies import Cycle
from core.pool.pool import Pool

log = logging.getLogger(__name__)


def _pocket_weights(pool: Pool) -> list[str]:
    """Digests of the pocket models in a pool: a model that was trained again has its cycle chosen again."""
    files = [WEIGHTS / spec.name / "model.safetensors" for spec in pool.specs if spec.provider == "pocket"]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists()]


class Remembered:
    """Choices made before, in a file; what was chosen once for a pool and its tasks stays."""

    def __init__(self, folder: Path, pool: Pool, tasks: Sequence[Task], turns: int) -> None:
        self._file = folder / "cycles.json"
        known = repr((pool.specs, _pocket_weights(pool), tasks, turns))
        self._key = hashlib.sha256(known.encode()).hexdigest()[:16]

    def get(self) -> dict[str, Cycle]:
        """What is known for this pool, tasks and turn budget, by policy."""
        return {
            name: tuple(Role(role) for role in cycle)
            for name, cycle in self._read().get(self._key, {}).items()
        }

    def add(self, chosen: Mapping[str, Cycle]) -> None:
        """Remember more, if the folder can be written; the file is replaced in one step."""
        known = self._read()
        known.setdefault(self._key, {}).update({name: list(cycle) for name, cycle in chosen.items()})
        draft = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(known, indent=1))
            draft.replace(self._file)
        except OSError as error:
            log.warning("Role cycles will be chosen again: %s cannot be written (%s)", self._file, error)

    def _read(self) -> dict[str, dict[str, list[str]]]:
        try:
            known = json.loads(self._file.read_text())
        except (OSError, ValueError):  # never written, or damaged: choosing again mends it
            return {}
        return known if isinstance(known, dict) else {}
