"""Forks of recorded turns: planned (`planning`), played (`play`), and what they came to (`results`)."""
