"""The parts of an opened store (`store.runs`, `store.episodes`, ...), one module for each.

`runs` have lives and owners, `episodes` lists and saved views, `learning` checkpoints and updates, `labels` what
people said, `attributions` what made choices, `endpoint` keys and requests; `replies` are those already paid for.
`states`, in a file of their own, are what encoders have read.
"""
