"""The database of what core makes: a relational store of runs, checkpoints, episodes and turns.

`store` opens it, `recorder` writes episodes while they are played. `rows` holds the tables, `filters` says which
episodes are meant, `shelves` are the parts of an opened store. Above it stand the questions of `analysis`, `reads` of
one episode and its forks, the `files` that runs travel in and the `upkeep` of what may be forgotten.
"""
