"""Every decision says how the state was computed that it was made from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1.0002"
down_revision = "1.0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column of `turn`; what is there was computed in float32 on the CPU."""
    op.add_column("turn", sa.Column("recipe", sa.String, nullable=False, server_default=""))
