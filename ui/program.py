"""This program as it is installed and as a process: its version, the packages it stands on, and SIGTERM told like
Ctrl-C. Imports nothing heavy, so that every command starts at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, packages_distributions
from importlib.metadata import version as installed
from pathlib import Path
from types import FrameType

#: How this machine calls itself.
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")

#: This program's distribution, and the names under which it is imported.
DISTRIBUTION = "trinity-inspector"
IMPORT_NAMES = ("core", "storage", "ui")

PACKAGES = ("streamlit", "torch", "transformers", "sqlalchemy", "httpx", "numpy")
#: Packages of extras that change where a run works.
OPTIONAL = ("ray",)


def version() -> str:
    """This program's version."""
    try:
        return installed(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown (run from a folder that was not installed)"


def commit() -> str | None:
    """The commit that is checked out, as its files say; None for an installed package."""
    git = Path(__file__).resolve().parents[1] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head
        if (git / name).exists():
            return (git / name).read_text().strip()
        packed = (git / "packed-refs").read_text().splitlines()
    except OSError:
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)


def packages() -> dict[str, str]:
    """Python and the packages that matter most, by name; "not installed" for those that need not be. Imports none of
    them."""
    found = {"python": sys.version.split()[0], **{name: installed(name) for name in PACKAGES}}
    for name in OPTIONAL:
        try:
            found[name] = installed(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def have_values(names: Sequence[str]) -> list[bool]:
    """Whether each of these variables has a value in this process's environment; which, nobody is told."""
    return [bool(os.environ.get(name, "").strip()) for name in names]


def has_sandbox(_: object) -> bool:
    """Whether programs can be run in a sandbox on this machine, as tasks whose answers are programs need."""
    from core.tasks.bubblewrap import NoSandbox, check_sandbox

    try:
        check_sandbox()
    except NoSandbox:
        return False
    return True


def name_clashes() -> dict[str, list[str]]:
    """The other distributions of this environment that own one of the import names, by that name."""
    owners = packages_distributions()
    others = {name: sorted({*owners.get(name, ())} - {DISTRIBUTION}) for name in IMPORT_NAMES}
    return {name: found for name, found in others.items() if found}


@contextmanager
def interruptible() -> Iterator[None]:
    """While the block runs, SIGTERM is told like Ctrl-C, so that what a process plays is marked as interrupted before
    it leaves; only the main thread can see to that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
