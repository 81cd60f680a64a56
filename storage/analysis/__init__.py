"""Questions over many episodes, answered in the database.

`standings` compares policies, `defaults` says which to show first, `regret` sets one against every model alone;
`routing`, `workflows`, `verdicts` and `reply_faults` add up turns, `costs` what calls to models took. `hidden_states`,
`second_opinions`, `policy_diff` and `counterfactual` ask what the heads of checkpoints make of recorded turns.
"""
