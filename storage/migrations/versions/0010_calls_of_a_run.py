"""Runs tell what their calls under way can cost, so that it is known when their process dies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1.0010"
down_revision = "1.0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """New columns. For runs that are there, no call is known to be under way or lost."""
    for name in ("under_way_usd", "lost_usd"):
        op.add_column("run", sa.Column(name, sa.Float, nullable=False, server_default="0"))
