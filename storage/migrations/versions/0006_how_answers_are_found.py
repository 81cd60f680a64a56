"""How a Worker's answer was found in its reply, and the pattern by which a task's answers are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the columns; of earlier turns it is not known, and earlier tasks had no pattern."""
    op.add_column("turn", sa.Column("answer_rule", sa.String()))
    op.add_column("task", sa.Column("answer_pattern", sa.Text(), nullable=False, server_default=""))
