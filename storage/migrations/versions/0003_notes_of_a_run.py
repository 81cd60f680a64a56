"""A run keeps what has to be known of how it is played."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1.0003"
down_revision = "1.0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column of `run`; nothing is known of those that are there."""
    op.add_column("run", sa.Column("notes", sa.Text, nullable=False, server_default=""))
