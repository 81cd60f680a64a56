"""Alembic's home: how the schema came to be, one step per file.

A new store is made from `storage.rows.schema`; a change of the tables comes with a step in `versions`.
"""
