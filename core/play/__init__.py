"""One episode: which model is asked next and in which role, how its reply is read, and when the episode ends.

`session` is the loop that asks, and `drive` answers it for many episodes at once. `policies` and `ensembles` choose who
is asked; `roles` writes the prompts; `reading`, `answers`, `marks` and `python_code` read replies. `forking`
plays a recorded episode on with one thing changed, `private` takes texts out, `role_check` tries a pool's models.
"""
