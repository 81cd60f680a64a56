"""Policies side by side: table, figures, flips."""
