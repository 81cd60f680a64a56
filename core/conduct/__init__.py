"""The Conductor: a language model writes a whole workflow of steps, which is then run (arXiv 2512.04388).

`planners` write workflows: fixed, random, prompted, of one model, or recorded ones. `reading` reads the three lists of
a planner's reply (models, subtasks, access) and writes them. `session` runs the rounds of a workflow: its plans, its
steps side by side, their grades; `rounds` has where it stands. `prompts` has what planner and steps are sent, and what
a step passes on to those that read it.
"""
