"""Numbers about episodes and decisions: accuracies, comparisons, agreement, separability.

`metrics` has intervals and tests; `comparison` sets two policies side by side and `agreement` several checkpoints.
`head_lens` takes a recorded decision again, `attribution` without parts of what was read; `blame` and `power` ask why
an episode failed and how many plays would tell. `learning`, `curvature` and `separability` look at what was learned.
"""
