"""Helpers on the machines of a Ray cluster: they answer jobs, try models over HTTP and run programs
to grade them, and nothing else.

What decides stays in this process, the driver: the role loop, the optimiser, the order of draws, limits, costs and the
store. So a run comes to the same to the bit however many helpers it has, in whatever order they answer and whoever of
them is lost. Ray places and restarts them. It is an extra, and imported where a cluster is opened.

`joining` starts or joins a cluster, `workers` answer lists of jobs, `callers` try models, `graders` run programs,
`cluster` has them all; what they log is logged in this process too, by `logs`.
"""
