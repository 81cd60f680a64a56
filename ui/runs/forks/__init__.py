"""Runs of forks: a recorded episode's turn played again with one thing changed, beside its unchanged baseline.

`planning` makes a plan of branches: the change, a runner-up, how far a change can reach, and which children the store
holds already. `play` plays the siblings of each branch in waves, the baseline first. `results` pairs them by seed: each
side's outcomes with intervals, their difference, whether an ending was luck, and which turn decided it.
"""
