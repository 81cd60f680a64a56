"""`trinity import` and `trinity export`: runs as versioned JSON Lines files."""


def import_() -> None:
    """Import."""


def export() -> None:
    """Export."""
