"""The slots of this machine's worker processes: how many may live at a time, and which ones do.

Each holds a numbered slot for as long as it lives, a locked file that the system frees when its process dies. Those
that pages start take the slots below the settings' `workers` and leave when nothing waits; those a person starts with
`trinity worker` take any slot and stay.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import ConfigError
from storage.engine import normalise
from ui import wiring
from ui.lease import is_dead, owner


def folder() -> Path:
    """Where the slots of the store in use are; workers of another store have others."""
    store = normalise(wiring.settings().store).render_as_string(hide_password=False)  # however it was typed
    return wiring.data_folder() / "workers" / hashlib.sha256(store.encode()).hexdigest()[:16]


@contextmanager
def slot(most: int) -> Iterator[int | None]:
    """The number of a free slot below `most`, held while the block runs; None when all are taken."""
    held = _taken(most)
    if held is None:
        yield None
        return
    number, file = held
    try:
        yield number
    finally:
        os.ftruncate(file, 0)
        os.close(file)


def _taken(most: int) -> tuple[int, int] | None:
    """A slot and its locked file."""
    for number in range(most):
        path = _file(number)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(
                f"No worker can be started: {path} cannot be written ({error.strerror})."
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            continue
        os.ftruncate(file, 0)
        os.write(file, owner().encode())
        return number, file
    return None


def _file(number: int) -> Path:
    return folder() / f"{number}.lock"


def alive() -> list[str]:
    """The workers of this machine and store, each as the owner it is of the run it plays."""
    found = []
    for file in sorted(folder().glob("*.lock")):
        try:
            name = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if name and not is_dead(name):
            found.append(name)
    return found
