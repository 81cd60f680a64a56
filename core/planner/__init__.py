"""The Conductor's planner as a language model of our own, and how it learns to write workflows.

`planner` writes them and `card` says what its checkpoint is; `forms` holds what it is shown, its lists and their
grammar. `warmup` teaches the form; then `learn` trains it by reinforcement, with the settings of `config`: `rollouts`
are played, `grpo` moves the weights by what they earn, `statistics` is what is kept of it.
"""
