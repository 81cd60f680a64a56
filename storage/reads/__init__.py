"""Reads of whole recordings, a few queries each: one episode step by step, and the forks of episodes.

`episode_steps` serves Replay: the head, the turns at hand, words found in texts. `forks` inserts and finds children.
"""
