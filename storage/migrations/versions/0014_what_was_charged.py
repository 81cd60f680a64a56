"""What a reply was charged as whose cost is not known, and what answers cost that could not be read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; of replies that are there already neither is known."""
    for table in ("turn", "plan"):
        op.add_column(table, sa.Column("at_most_usd", sa.Float(), nullable=True))
        op.add_column(table, sa.Column("unread_usd", sa.Float(), nullable=True))
