"""The keys of every page in one sheet, read from the pages themselves."""

from __future__ import annotations

from importlib import import_module

from ui import state
from ui.transport import Keys


def key_sheets() -> dict[str, Keys]:
    """Page title -> its keys; pages without any are left out."""
    sheets: dict[str, Keys] = {}
    for name in state.VIEWS:
        page = import_module(f"ui.views.{name}")
        if keys := getattr(page, "KEYS", None):
            sheets[(page.__doc__ or name).partition(":")[0]] = keys
    return sheets
