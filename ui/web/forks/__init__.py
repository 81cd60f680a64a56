"""Forks of a turn: form, progress, results."""
