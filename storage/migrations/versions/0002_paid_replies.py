"""Replies that an evolution has paid for and still needs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "paid_reply",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.Float()),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_paid_reply_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "key", name="pk_paid_reply"),
    )
