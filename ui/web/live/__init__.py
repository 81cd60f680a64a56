"""A task played live: the form that begins a run, the page of a run under way, and what a person steers in it.

`form`: which problem is played (drawn, from a task file, one's own question), by which policy, with which settings of a
`LivePlan`. `run`: a run as one watches it, its repeats, the turn at hand and, when it is over, where it leads.
`steering`: wait, follow and cancel, the proposal for the next turn, its override by hand, and another coordinator from
a turn on.
"""
