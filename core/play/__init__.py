"""One episode: which model is asked next and in which role, how its reply is read, and when the episode ends.

`session` is the role loop that yields Decide, Ask and Grade, and `drive` answers it for a table of many episodes at
once. `policies` and `ensembles` choose who is asked: cycles, random choice, cascades, majority votes, mixtures, masks.
`roles` writes the prompts of Thinker, Worker and Verifier; `reading` reads suggestions and verdicts in their replies,
`answers` a Worker's answer, `python_code` a program; `marks` takes away thinking and a template's marks. `forking` is a
recorded episode with one turn changed, its prefix and its held decisions; `private` takes texts out; `role_check` tries
each model of a pool in each role.
"""
