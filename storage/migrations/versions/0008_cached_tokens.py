"""How many tokens of a turn's prompt its provider had read before, and billed as such."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of turns that are there already it is not known."""
    op.add_column("turn", sa.Column("tokens_cached", sa.Integer(), nullable=True))
