"""Decompositions of large encoders' matrices, kept in a folder of this machine so that no run computes them again.
Nothing depends on them: what is lost is computed again."""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from core.errors import StoreError
from storage.files.atomic import atomic_file

log = logging.getLogger(__name__)

#: The most bytes of files that a folder keeps; beyond them those that were written first are dropped. A matrix of
#: Qwen3-0.6B takes 8 MiB.
MOST_BYTES = 2 * 2**30

Decomposition = tuple[NDArray[np.float64], NDArray[np.float64]]


class DecompositionFolder:
    """Such a folder (a `core.coordinator.svf.DecompositionLedger`), made when the first is kept; several processes may
    use one at once. A damaged file is computed and written again; where the disk is full, nothing more is kept. Either
    is one warning, and no error."""

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self.path, self._most = path, most_bytes
        self._keeps = True  # until that fails

    def recall(self, key: bytes, count: int) -> Decomposition | None:
        """The singular values [count] and their directions [count, count] that are kept under this key."""
        file = self._file(key)
        try:
            written = file.read_bytes()
        except OSError:  # never kept; whoever keeps it next says what is the matter with the folder
            return None
        try:
            kept = load(written)
            found = kept["values"], kept["directions"]
            whole = [one.shape for one in found] == [(count,), (count, count)] and _sum(found) == kept["sum"][
                0
            ]
        except (SafetensorError, KeyError, IndexError, ValueError):
            whole = False
        if not whole:
            log.warning("The decomposition of a matrix is damaged (%s): it is computed again.", file)
            return None
        return found

    def keep(self, key: bytes, found: Decomposition) -> None:
        """Keep this under its key, in the place of what is there."""
        if not self._keeps:
            return
        values, directions = (np.ascontiguousarray(one, "<f8") for one in found)
        total = np.array([_sum((values, directions))], np.uint32)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with atomic_file(self._file(key)) as draft:
                draft.write_bytes(save({"values": values, "directions": directions, "sum": total}))
            self._drop_oldest()
        except (OSError, StoreError) as error:
            self._keeps = False
            log.warning("From here on, decompositions are not kept for later runs: %s", error)

    @property
    def size_bytes(self) -> int:
        """What it takes on the disk."""
        return sum(size for _, size, _ in self._files())

    def _file(self, key: bytes) -> Path:
        return self.path / f"{key.hex()}.safetensors"

    def _files(self) -> list[tuple[float, int, Path]]:
        """When each file was written, its bytes and its place, the oldest first."""
        found = [(file.stat(), file) for file in self.path.glob("*.safetensors")]
        return sorted((held.st_mtime, held.st_size, file) for held, file in found)

    def _drop_oldest(self) -> None:
        files = self._files()
        total = sum(size for _, size, _ in files)
        for _, size, file in files[:-1]:
            if total <= self._most:
                return
            file.unlink(missing_ok=True)
            total -= size


def _sum(arrays: Decomposition) -> int:
    """Tells whether a file is what was written: one that rots on the disk is no error to anybody."""
    return zlib.crc32(arrays[1].tobytes(), zlib.crc32(arrays[0].tobytes()))
