"""Files that appear completely or not at all: written under another name in the same folder, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.errors import StoreError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Where to write what shall stand at `path` when the block ends well; after a fault nothing is left.

    StoreError, one sentence, for a place that cannot be written: no folder, no right, no room.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        yield draft
        with draft.open("rb") as written:
            os.fsync(written.fileno())  # on the disk before its name is
        draft.replace(path)
    except OSError as error:
        raise StoreError(f"The file {path} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):  # moved, or never made
            draft.unlink()
