"""Finds out whether another package stands in the place of ours before anything is imported from it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent


def foreign_package(beside: Path = HERE.parent) -> str | None:
    """One sentence when `core` or `storage` would be imported from anywhere but `beside`, else None.

    Both are common names; a package in site-packages wins over an editable install."""
    for name in ("core", "storage"):
        spec = find_spec(name)
        origin = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
        if origin != beside / name:
            return (
                f"Another package named '{name}' ({origin or 'not found'}) stands in the way of our own "
                f"({beside / name}): install Trinity Inspector in a virtual environment of its own."
            )
    return None
