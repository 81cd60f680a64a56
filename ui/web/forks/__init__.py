"""Forks of a turn: the form that plans them (`form`), and what a run's page shows beside its answers (`panels`)."""
