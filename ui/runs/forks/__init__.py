"""Forks of recorded turns: planned, played, and what they came to."""
