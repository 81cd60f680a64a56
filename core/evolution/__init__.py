"""Evolves a coordinator's numbers by what its episodes earn, and plays what it has to beat.

`config` holds the settings, `evolve` is the loop of generations with its controls, `search` the space around the first
vector. Who proposes vectors is a state of `learner_state`: `sep_cma`, or one of `learners`. `fitness` says what a
generation came to; `cycles` and `baselines` choose, or teach by labels, the policies that it is compared with.
"""
