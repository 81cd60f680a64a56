"""One episode: which model is asked next and in which role, how its reply is read, and when the episode ends."""
