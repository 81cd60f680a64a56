"""What in the transcript made a choice, kept per turn and checkpoint, and the runs that find it out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, and let runs be of the new kind."""
    with op.batch_alter_table("run") as run:
        run.drop_constraint("ck_run_kind", type_="check")
        run.create_check_constraint(
            "ck_run_kind",
            "kind IN ('run', 'evolve', 'train', 'live', 'import', 'fork', 'reencode', 'attribute', 'serve')",
        )
    op.create_table(
        "attribution",
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("checkpoint_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.CheckConstraint("kind IN ('parts', 'words')", name="ck_attribution_kind"),
        sa.ForeignKeyConstraint(
            ["episode_id"], ["episode.id"], name="fk_attribution_episode_id_episode", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"],
            ["checkpoint.id"],
            name="fk_attribution_checkpoint_id_checkpoint",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("episode_id", "idx", "checkpoint_id", "kind", name="pk_attribution"),
    )
