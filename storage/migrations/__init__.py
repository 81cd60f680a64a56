"""Alembic's home: how the schema came to be, one step per file."""
