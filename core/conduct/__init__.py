"""The Conductor: a language model writes a whole workflow of steps, which is then run (arXiv 2512.04388).

`planners` write workflows and `reading` reads them; `session` runs one; `prompts` has what planner and steps are sent.
"""
