"""Verdicts and what a solved problem cost."""
