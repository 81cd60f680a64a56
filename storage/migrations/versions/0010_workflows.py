"""Workflows: a planner's replies, which step a turn is, and the shape of an episode's workflow."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table and add the columns; episodes that are there already have no workflow."""
    for name, kind in (
        ("round", sa.Integer()),
        ("step", sa.Integer()),
        ("subtask", sa.Text()),
        ("visible", sa.Text()),
    ):
        op.add_column("turn", sa.Column(name, kind, nullable=True))
    for name in ("topology", "plan_fault"):
        op.add_column("episode", sa.Column(name, sa.String(), nullable=True))
    op.create_table(
        "plan",
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("planner", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("reply", sa.Text(), nullable=False),
        sa.Column("reasoning", sa.Text(), nullable=False),
        sa.Column("finish_reason", sa.String()),
        sa.Column("tokens_in", sa.Integer()),
        sa.Column("tokens_out", sa.Integer()),
        sa.Column("tokens_cached", sa.Integer()),
        sa.Column("cost_usd", sa.Float()),
        sa.Column("latency_s", sa.Float()),
        sa.Column("error_kind", sa.String()),
        sa.Column("error", sa.Text()),
        sa.Column("workflow", sa.Text()),
        sa.Column("fault", sa.String()),
        sa.Column("keeps", sa.Boolean(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"], ["episode.id"], name="fk_plan_episode_id_episode", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("episode_id", "round", "attempt", name="pk_plan"),
    )
