"""Turns in the order in which they are added up: no sorting of all turns for what they amount to."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index, and drop the one that it serves for as well."""
    op.drop_index("ix_turn_role_episode_id", "turn")
    op.create_index(
        "ix_turn_groups",
        "turn",
        [
            "role",
            "model",
            "verdict",
            "correct_after",
            "flags",
            "stage",
            "episode_id",
            "idx",
            "tokens_in",
            "tokens_out",
            "cost_usd",
            "latency_s",
        ],
    )
