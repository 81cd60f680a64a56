"""Routing: which model is called in which role, in which order, what that depends on, and whether it pays."""

from __future__ import annotations

from ui.web.analysis.page import show
from ui.web.kit import state

if __name__ == "__main__":
    state.run(show, "routing")
