"""Who is chosen for what, and whether it was worth it."""
