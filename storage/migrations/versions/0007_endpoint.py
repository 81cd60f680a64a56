"""The endpoint: runs of it, its keys, and what each request was and cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables, and let runs be of the new kind."""
    with op.batch_alter_table("run") as run:
        run.drop_constraint("ck_run_kind", type_="check")
        run.create_check_constraint(
            "ck_run_kind", "kind IN ('run', 'evolve', 'live', 'import', 'fork', 'reencode', 'serve')"
        )
    op.create_table(
        "api_key",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("revoked", sa.Float()),
        sa.Column("max_cost_usd", sa.Float()),
        sa.Column("max_turns", sa.Integer()),
        sa.Column("deadline_s", sa.Float()),
        sa.Column("leave_out", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_api_key"),
    )
    op.create_table(
        "served",
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("key_id", sa.String()),
        sa.Column("door", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("charged_usd", sa.Float(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("episode_id", name="pk_served"),
    )
    op.create_index("ix_served_key_id", "served", ["key_id"])
    op.create_index("ix_served_at", "served", ["at"])
