"""The database of what core makes: a relational store of runs, checkpoints, episodes and turns."""
