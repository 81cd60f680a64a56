"""Forks of a turn: the form that plans them (`form`), and what the page of a run shows beside its answers (`panels`)."""
