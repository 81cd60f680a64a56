"""What can be begun, priced, played, stopped and resumed; the command line and the pages are doors over it.

A plan (`plans`, `settings`) is priced and metered (`spending`), expected to take calls and hours (`expectation`), made
ready and played by its kind (`batch`, `live`, `evolution` and `training` over `learning`, `forks`, `reading`; `paper`
for the paper's tables), all through `play.play(store, run)`. Pages queue a plan (`queue`) and a worker process
(`worker`) plays it under a `lease`. Names become policies in `policies`, by the list in `policy_kinds`; pools, encoders
and checkpoints in `wiring`. `grading` says how a run's answers are graded, and `course` has the updates of what learned
as columns.
"""
