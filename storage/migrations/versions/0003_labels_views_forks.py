"""Labels, saved views, second opinions of other checkpoints, and runs that fork or re-encode."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ROWID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables, and let runs be of the new kinds."""
    with op.batch_alter_table("run") as run:
        run.drop_constraint("ck_run_kind", type_="check")
        run.create_check_constraint(
            "ck_run_kind", "kind IN ('run', 'evolve', 'live', 'import', 'fork', 'reencode')"
        )
    op.create_index("ix_episode_parent_episode_id", "episode", ["parent_episode_id"])
    op.create_index(
        "ix_turn_counts",
        "turn",
        [
            "episode_id",
            "idx",
            "stage",
            "role",
            "model",
            "verdict",
            "correct_after",
            "flags",
            "tokens_in",
            "tokens_out",
            "cost_usd",
            "latency_s",
            "sampled",
            "margin",
        ],
    )
    op.create_table(
        "label",
        sa.Column("id", _ROWID, nullable=False),
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer()),
        sa.Column("span_start", sa.Integer()),
        sa.Column("span_end", sa.Integer()),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"], ["episode.id"], name="fk_label_episode_id_episode", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_label"),
    )
    op.create_index("ix_label_episode_id_idx", "label", ["episode_id", "idx"])
    op.create_index("ix_label_name_value_episode_id", "label", ["name", "value", "episode_id"])
    op.create_table(
        "view",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_view"),
    )
    op.create_table(
        "second_opinion",
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("checkpoint_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("model_logits", sa.LargeBinary(), nullable=False),
        sa.Column("role_logits", sa.LargeBinary(), nullable=False),
        sa.Column("prompt_digest", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"], ["episode.id"], name="fk_second_opinion_episode_id_episode", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"],
            ["checkpoint.id"],
            name="fk_second_opinion_checkpoint_id_checkpoint",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name="fk_second_opinion_run_id_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("episode_id", "idx", "checkpoint_id", name="pk_second_opinion"),
    )
    op.create_index("ix_second_opinion_run_id", "second_opinion", ["run_id"])
    op.drop_index("ix_episode_counts", "episode")
    op.create_index(
        "ix_episode_counts",
        "episode",
        [
            "run_id",
            "policy",
            "status",
            "family",
            "correct",
            "end_reason",
            "flags",
            "turns",
            "generation",
            "id",
        ],
    )
