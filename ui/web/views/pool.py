"""Pool: how each model has been answering, what it costs in which role, and what would happen without it."""

from __future__ import annotations

from ui.web.analysis.page import show
from ui.web.kit import state

if __name__ == "__main__":
    state.run(show, "pool")
