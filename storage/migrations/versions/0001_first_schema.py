"""The first schema: runs, checkpoints, tasks, episodes, turns, texts, hidden states, generations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.rows.search import CREATE

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table, and on SQLite the search indexes."""
    op.create_table(
        "override",
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("episode_id", "idx", name="pk_override"),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("started", sa.Float(), nullable=True),
        sa.Column("finished", sa.Float(), nullable=True),
        sa.Column("heartbeat", sa.Float(), nullable=True),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("cancel", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("paused", sa.Boolean(), server_default="0", nullable=False),
        sa.Column("steps", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint("kind IN ('run', 'evolve', 'live', 'import')", name="ck_run_kind"),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'finished', 'interrupted', 'cancelled', 'failed')",
            name="ck_run_status",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
    )
    op.create_index("ix_run_created_id", "run", ["created", "id"], unique=False)
    op.create_index("ix_run_status", "run", ["status"], unique=False)
    op.create_table(
        "task",
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("grader", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("split", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_task"),
        sa.UniqueConstraint("digest", name="uq_task_digest"),
    )
    op.create_index("ix_task_id", "task", ["id"], unique=False)
    op.create_table(
        "candidate",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("fitness", sa.Float(), nullable=True),
        sa.Column("rollouts", sa.Integer(), nullable=False),
        sa.Column("missing", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_candidate_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "generation", "idx", name="pk_candidate"),
    )
    op.create_table(
        "checkpoint",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("weights", sa.LargeBinary(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_checkpoint_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoint"),
    )
    op.create_index("ix_checkpoint_run_id_generation", "checkpoint", ["run_id", "generation"], unique=False)
    op.create_table(
        "generation",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("best", sa.Float(), nullable=False),
        sa.Column("mean", sa.Float(), nullable=False),
        sa.Column("median", sa.Float(), nullable=False),
        sa.Column("sigma", sa.Float(), nullable=False),
        sa.Column("evaluations", sa.Integer(), nullable=False),
        sa.Column("wall_s", sa.Float(), nullable=False),
        sa.Column("checkpoint_id", sa.String(), nullable=True),
        sa.Column("stats", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_generation_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "idx", name="pk_generation"),
    )
    op.create_table(
        "optimiser",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_optimiser_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name="pk_optimiser"),
    )
    op.create_table(
        "episode",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("task_key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("question", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("checkpoint_id", sa.String(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("models", sa.Text(), nullable=False),
        sa.Column("protocol", sa.String(), nullable=False),
        sa.Column("turn_budget", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("argmax", sa.Boolean(), nullable=False),
        sa.Column("parent_episode_id", sa.String(), nullable=True),
        sa.Column("fork_turn", sa.Integer(), nullable=True),
        sa.Column("meta", sa.Text(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("end_reason", sa.String(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("correct", sa.Boolean(), nullable=True),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("finished", sa.Float(), nullable=True),
        sa.Column("turns", sa.Integer(), server_default="0", nullable=False),
        sa.Column("strip", sa.String(), server_default="", nullable=False),
        sa.Column("tokens_in", sa.Integer(), server_default="0", nullable=False),
        sa.Column("tokens_out", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("latency_s", sa.Float(), server_default="0", nullable=False),
        sa.Column("min_margin", sa.Float(), nullable=True),
        sa.Column("mean_entropy", sa.Float(), nullable=True),
        sa.Column("flags", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"], ["checkpoint.id"], name="fk_episode_checkpoint_id", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_episode_run_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["task_key"], ["task.key"], name="fk_episode_task_key"),
        sa.PrimaryKeyConstraint("id", name="pk_episode"),
    )
    op.create_index("ix_episode_checkpoint_id", "episode", ["checkpoint_id"], unique=False)
    op.create_index(
        "ix_episode_counts",
        "episode",
        ["run_id", "policy", "status", "family", "correct", "end_reason", "flags", "turns"],
        unique=False,
    )
    op.create_index("ix_episode_policy_started_id", "episode", ["policy", "started", "id"], unique=False)
    op.create_index("ix_episode_run_id_started_id", "episode", ["run_id", "started", "id"], unique=False)
    op.create_index("ix_episode_started_id", "episode", ["started", "id"], unique=False)
    op.create_index("ix_episode_task_key_policy", "episode", ["task_key", "policy"], unique=False)
    op.create_table(
        "state",
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("hidden", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"], ["episode.id"], name="fk_state_episode_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("episode_id", "idx", name="pk_state"),
    )
    op.create_table(
        "text",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["episode_id"], ["episode.id"], name="fk_text_episode_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_text"),
    )
    op.create_index("ix_text_episode_id_idx_kind", "text", ["episode_id", "idx", "kind"], unique=True)
    op.create_table(
        "turn",
        sa.Column("episode_id", sa.String(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("model_logits", sa.LargeBinary(), nullable=False),
        sa.Column("role_logits", sa.LargeBinary(), nullable=False),
        sa.Column("model_probs", sa.LargeBinary(), nullable=False),
        sa.Column("role_probs", sa.LargeBinary(), nullable=False),
        sa.Column("argmax_model", sa.String(), nullable=False),
        sa.Column("argmax_role", sa.String(), nullable=True),
        sa.Column("sampled", sa.Boolean(), nullable=False),
        sa.Column("model_mask", sa.String(), nullable=False),
        sa.Column("role_mask", sa.String(), nullable=False),
        sa.Column("prompt_digest", sa.String(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("prompt_overflow", sa.Boolean(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("margin", sa.Float(), nullable=True),
        sa.Column("entropy", sa.Float(), nullable=True),
        sa.Column("started", sa.Float(), nullable=False),
        sa.Column("finish_reason", sa.String(), nullable=True),
        sa.Column("tokens_in", sa.Integer(), nullable=True),
        sa.Column("tokens_out", sa.Integer(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("latency_s", sa.Float(), nullable=True),
        sa.Column("error_kind", sa.String(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("suggestion", sa.Text(), nullable=True),
        sa.Column("suggested_role", sa.String(), nullable=True),
        sa.Column("verdict", sa.String(), nullable=True),
        sa.Column("verdict_raw", sa.Text(), nullable=True),
        sa.Column("answer_after", sa.Text(), nullable=True),
        sa.Column("correct_after", sa.Boolean(), nullable=True),
        sa.Column("flags", sa.String(), server_default="", nullable=False),
        sa.CheckConstraint("stage IN ('asked', 'replied', 'finished')", name="ck_turn_stage"),
        sa.ForeignKeyConstraint(
            ["episode_id"], ["episode.id"], name="fk_turn_episode_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("episode_id", "idx", name="pk_turn"),
    )
    op.create_index("ix_turn_model_role_episode_id", "turn", ["model", "role", "episode_id"], unique=False)
    op.create_index("ix_turn_role_episode_id", "turn", ["role", "episode_id"], unique=False)
    if op.get_bind().dialect.name == "sqlite":
        for statement in CREATE:
            op.execute(statement)
