"""Which pool answered in a run, so that what other models or temperatures did is never averaged with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the column; of earlier runs it is not recorded."""
    op.add_column("run", sa.Column("pool", sa.String()))
