"""The slots of this machine's worker processes: how many may live at a time, and which ones do.

Each holds a numbered slot for as long as it lives, a locked file that the system frees when its process dies, and
writes its name beside it: not into it, because Windows lets nobody read a locked file. Those that pages start take the
slots below the settings' `workers` and leave when nothing waits; those a person starts with `trinity worker` take any
slot and stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from core.errors import ConfigError
from ui.runs import wiring
from ui.runs.lease import is_dead, owner


def folder() -> Path:
    """Where the slots of the store in use are; workers of another store have others."""
    return wiring.data_folder() / "workers" / wiring.store_digest(wiring.settings())


@contextmanager
def slot(most: int) -> Iterator[int | None]:
    """The number of a free slot below `most`, held while the block runs; None when all are taken."""
    for number in range(most):
        lock, name = FileLock(folder() / f"{number}.lock", mode=0o600), _name(number)
        try:
            name.parent.mkdir(parents=True, exist_ok=True)
            held = lock.acquire(blocking=False)
        except Timeout:
            continue
        except OSError as error:
            raise ConfigError(
                f"No worker can be started: {lock.lock_file} cannot be written ({error.strerror})."
            ) from error
        with held:
            name.write_text(owner(), "utf-8")
            try:
                yield number
            finally:
                name.unlink(missing_ok=True)
        return
    yield None


def _name(number: int) -> Path:
    """Where the holder of a slot writes its name."""
    return folder() / f"{number}.worker"


def alive() -> list[str]:
    """The workers of this machine and store, each as the owner it is of the run it plays."""
    found = []
    for file in sorted(folder().glob("*.worker")):
        try:
            name = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if name and not is_dead(name):
            found.append(name)
    return found
