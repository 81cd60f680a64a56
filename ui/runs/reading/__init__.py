"""Recorded transcripts read again by an encoder: for what another checkpoint chooses, and for what made a choice."""
