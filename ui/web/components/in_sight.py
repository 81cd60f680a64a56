"""Brings what a click has opened into sight, where it would stand above or below what the window shows."""

from __future__ import annotations

from ui.web.components import component


def in_sight(container: str, what: str) -> None:
    """Scroll to the container of this key when it comes to show `what`. Drawn inside it, last."""
    component("in_sight", "")(key=f"in_sight_{container}", data={"container": container, "what": what})
