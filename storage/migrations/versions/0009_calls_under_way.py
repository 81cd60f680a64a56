"""Requests tell what their calls under way can cost, so that it is known when their process dies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1.0009"
down_revision = "1.0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A new column. Of requests that are there nothing is under way."""
    op.add_column("served", sa.Column("under_way_usd", sa.Float, nullable=False, server_default="0"))
