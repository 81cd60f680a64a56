"""Reads that a page needs at once: an episode's steps, an episode's forks."""
