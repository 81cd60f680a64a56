"""Planners that are language models, and the iterations of their training."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables, and let runs be of the new kind."""
    with op.batch_alter_table("run") as run:
        run.drop_constraint("ck_run_kind", type_="check")
        run.create_check_constraint(
            "ck_run_kind",
            "kind IN ('run', 'evolve', 'train', 'live', 'import', 'fork', 'reencode', 'serve')",
        )
    op.create_table(
        "planner",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String()),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("card", sa.Text(), nullable=False),
        sa.Column("files", sa.LargeBinary()),
        sa.Column("folder", sa.String()),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_planner_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_planner"),
    )
    op.create_index("ix_planner_run_id_iteration", "planner", ["run_id", "iteration"])
    op.create_table(
        "iteration",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("episodes", sa.Integer(), nullable=False),
        sa.Column("wall_s", sa.Float(), nullable=False),
        sa.Column("spent_usd", sa.Float(), nullable=False),
        sa.Column("planner_id", sa.String()),
        sa.Column("stats", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_iteration_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "idx", name="pk_iteration"),
    )
