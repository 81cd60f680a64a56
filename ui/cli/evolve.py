"""`trinity evolve`: a coordinator's head evolved on tasks, a checkpoint per generation."""


def evolve() -> None:
    """Evolve."""
