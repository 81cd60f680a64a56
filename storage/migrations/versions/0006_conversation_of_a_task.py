"""A task that is a person's conversation keeps its messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1.0006"
down_revision = "1.0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column of `task`; of requests that are there only the question is known, as one text."""
    op.add_column("task", sa.Column("conversation", sa.Text, nullable=False, server_default=""))
