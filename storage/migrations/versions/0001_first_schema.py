"""The first schema: where later migrations begin.

A new store is made from `storage/rows/schema.py` as it is (`storage.rows.engine`), so that it needs no migration. A
change of the tables comes with a migration that follows this one, for the stores that are there.
"""

from __future__ import annotations

revision = "1.0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: no store is older."""
