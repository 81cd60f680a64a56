"""A language model that writes workflows: its checkpoint, how it writes, and how it learns to write better ones."""
