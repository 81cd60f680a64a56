"""What a coordinator proposes for a turn that waits for a person."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "proposal",
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"], ["episode.id"], name="fk_proposal_episode_id_episode", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("episode_id", name="pk_proposal"),
    )
