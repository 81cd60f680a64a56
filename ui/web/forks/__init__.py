"""What the Forks page is made of. `form` is the form of a fork: what is kept, the one change, how often it is played or
in which batch of episodes, and what that may cost. `panels` shows a run of forks beside its answers: its headline, the
proof that recorded episodes are unchanged, and the variation tree, a figure of nodes and edges.
"""
