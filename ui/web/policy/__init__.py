"""Checkpoints over the same recorded turns."""
