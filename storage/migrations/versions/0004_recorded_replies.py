"""Every turn says whether its reply is a row of an outcome table, and which."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1.0004"
down_revision = "1.0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column of `turn`, JSON; what is there was written by models."""
    op.add_column("turn", sa.Column("recorded", sa.Text))
