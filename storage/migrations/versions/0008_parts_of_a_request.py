"""Requests keep how long deciding and recording took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1.0008"
down_revision = "1.0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """New columns. Of requests that are there nobody measured it."""
    for name in ("deciding_s", "recording_s"):
        op.add_column("served", sa.Column(name, sa.Float))
