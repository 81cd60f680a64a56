"""One turn and one episode on a page: the card of a turn, its decision and what else it could have been, why it was
made, workflows, labels, forks of the episode, and the bar of a replay. Each module draws one of these from a
`Recording`, which reads the store turn by turn.
"""
