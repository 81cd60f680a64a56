"""Verifier & cost: which verifier accepts wrong answers, what fewer turns would do, what a solved problem costs."""

from __future__ import annotations

from ui.web.analysis.page import show
from ui.web.kit import state

if __name__ == "__main__":
    state.run(show, "verifier")
