"""The tables: thin rows for lists, fat text and tensors apart, everything finished immutable.

Texts live in `text` (one row per episode, turn and kind) so that no list ever reads them; hidden states in
`state`. The same definitions serve SQLite and PostgreSQL, all but full text search (see `storage/rows/search.py`).
Migrations are the only code that creates tables; a test holds them equal to these definitions.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: SQLite gives rowids to INTEGER keys only; PostgreSQL wants the wide type.
_rowid = BigInteger().with_variant(Integer, "sqlite")


def _to(column: str) -> ForeignKey:
    """A reference whose rows go when the referenced row goes."""
    return ForeignKey(column, ondelete="CASCADE")


run = Table(
    "run",
    metadata,
    Column("id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("status", String, nullable=False),
    Column("config", Text, nullable=False),  # JSON object
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("finished", Float),
    Column("heartbeat", Float),
    Column("owner", String),
    Column("error", Text),
    Column("cancel", Boolean, nullable=False, server_default="0"),
    Column("paused", Boolean, nullable=False, server_default="0"),
    Column("steps", Integer, nullable=False, server_default="0"),
    CheckConstraint("kind IN ('run', 'evolve', 'live', 'import', 'fork', 'reencode')", name="kind"),
    CheckConstraint(
        "status IN ('queued', 'running', 'finished', 'interrupted', 'cancelled', 'failed')", name="status"
    ),
    Index(None, "created", "id"),
    Index(None, "status"),
)

checkpoint = Table(
    "checkpoint",
    metadata,
    Column("id", String, primary_key=True),
    Column("run_id", String, _to("run.id")),
    Column("generation", Integer),
    Column("kind", String, nullable=False),
    Column("digest", String, nullable=False),  # sha256 of config and weights
    Column("created", Float, nullable=False),
    Column("config", Text, nullable=False),  # JSON object
    Column("weights", LargeBinary, nullable=False),  # safetensors
    Column("size_bytes", Integer, nullable=False),
    Index(None, "run_id", "generation"),
)

# A task is its content: two files that give one id to different questions make two rows.
task = Table(
    "task",
    metadata,
    Column("key", _rowid, primary_key=True),
    Column("digest", String, nullable=False, unique=True),
    Column("id", String, nullable=False, index=True),
    Column("question", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("grader", String, nullable=False),
    Column("family", String, nullable=False),
    Column("split", String, nullable=False),
)

episode = Table(
    "episode",
    metadata,
    Column("id", String, primary_key=True),
    Column("run_id", String, _to("run.id"), nullable=False),
    Column("task_key", _rowid, ForeignKey("task.key"), nullable=False),
    Column("task_id", String, nullable=False),
    Column("family", String, nullable=False),
    Column("question", String, nullable=False),  # cut for lists
    Column("policy", String, nullable=False),
    Column("checkpoint_id", String, ForeignKey("checkpoint.id", ondelete="SET NULL")),
    Column("generation", Integer),
    Column("models", Text, nullable=False),  # JSON list, head order
    Column("protocol", String, nullable=False),
    Column("turn_budget", Integer, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("argmax", Boolean, nullable=False),
    Column("parent_episode_id", String),
    Column("fork_turn", Integer),
    Column("meta", Text, nullable=False),  # JSON object
    Column("status", String, nullable=False),
    Column("end_reason", String),
    Column("answer", Text),
    Column("correct", Boolean),
    Column("started", Float, nullable=False),
    Column("finished", Float),
    Column("turns", Integer, nullable=False, server_default="0"),
    Column("strip", String, nullable=False, server_default=""),
    Column("tokens_in", Integer, nullable=False, server_default="0"),
    Column("tokens_out", Integer, nullable=False, server_default="0"),
    Column("cost_usd", Float),
    Column("latency_s", Float, nullable=False, server_default="0"),
    Column("min_margin", Float),
    Column("mean_entropy", Float),
    Column("flags", Integer, nullable=False, server_default="0"),  # bits in EPISODE_FLAGS order
    Index(None, "started", "id"),
    Index(None, "run_id", "started", "id"),
    Index(None, "policy", "started", "id"),
    Index(None, "task_key", "policy"),
    Index(None, "checkpoint_id"),
    Index(None, "parent_episode_id"),
    # Covers facets, run lists and accuracies, so that no count touches the wide rows.
    Index(
        "ix_episode_counts",
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
    ),
)

turn = Table(
    "turn",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("stage", String, nullable=False),  # asked, replied, finished
    Column("model", String, nullable=False),
    Column("role", String, nullable=False),
    Column("model_logits", LargeBinary, nullable=False),  # little-endian float64
    Column("role_logits", LargeBinary, nullable=False),
    Column("model_probs", LargeBinary, nullable=False),
    Column("role_probs", LargeBinary, nullable=False),
    Column("argmax_model", String, nullable=False),
    Column("argmax_role", String),
    Column("sampled", Boolean, nullable=False),
    Column("model_mask", String, nullable=False),  # "1101", empty for none
    Column("role_mask", String, nullable=False),
    Column("prompt_digest", String, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("prompt_overflow", Boolean, nullable=False),
    Column("origin", String, nullable=False),
    Column("margin", Float),
    Column("entropy", Float),
    Column("started", Float, nullable=False),
    # from here on: known once the model has replied
    Column("finish_reason", String),
    Column("tokens_in", Integer),
    Column("tokens_out", Integer),
    Column("cost_usd", Float),
    Column("latency_s", Float),
    Column("error_kind", String),
    Column("error", Text),
    # from here on: known once the turn is over
    Column("suggestion", Text),
    Column("suggested_role", String),
    Column("verdict", String),
    Column("verdict_raw", Text),
    Column("answer_after", Text),
    Column("correct_after", Boolean),
    Column("flags", String, nullable=False, server_default=""),  # comma-separated
    CheckConstraint("stage IN ('asked', 'replied', 'finished')", name="stage"),
    Index(None, "model", "role", "episode_id"),
    # In the order in which turns are added up, with what they are added up to: no sort, and no wide row is touched.
    Index(
        "ix_turn_groups",
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
    ),
    # Covers what is counted over the turns of some episodes (verdicts, roles, spend).
    Index(
        "ix_turn_counts",
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
    ),
)

text = Table(
    "text",
    metadata,
    Column("id", _rowid, primary_key=True),
    Column("episode_id", String, _to("episode.id"), nullable=False),
    Column("idx", Integer, nullable=False),
    Column("kind", String, nullable=False),  # prompt (JSON messages), partial, reply, reasoning
    Column("body", Text, nullable=False),
    Index(None, "episode_id", "idx", "kind", unique=True),
)

state = Table(
    "state",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("hidden", LargeBinary, nullable=False),  # little-endian float16
)

# A decision taken over by a person, waiting for its turn.
override = Table(
    "override",
    metadata,
    Column("episode_id", String, primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("model", String, nullable=False),
    Column("role", String, nullable=False),
)

generation = Table(
    "generation",
    metadata,
    Column("run_id", String, _to("run.id"), primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("best", Float, nullable=False),
    Column("mean", Float, nullable=False),
    Column("median", Float, nullable=False),
    Column("sigma", Float, nullable=False),
    Column("evaluations", Integer, nullable=False),
    Column("wall_s", Float, nullable=False),
    Column("checkpoint_id", String),
    Column("stats", Text, nullable=False),  # JSON object
)

candidate = Table(
    "candidate",
    metadata,
    Column("run_id", String, _to("run.id"), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("fitness", Float),
    Column("rollouts", Integer, nullable=False),
    Column("missing", Integer, nullable=False),
)

optimiser = Table(
    "optimiser",
    metadata,
    Column("run_id", String, _to("run.id"), primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("state", LargeBinary, nullable=False),
)

# What a generation under way, or those after it, would otherwise ask for again.
paid_reply = Table(
    "paid_reply",
    metadata,
    Column("run_id", String, _to("run.id"), primary_key=True),
    Column("key", LargeBinary, primary_key=True),  # of the call, by core.pool.cache
    Column("generation", Integer, nullable=False),  # the one under way when it was paid
    Column("cost_usd", Float),
    Column("body", Text, nullable=False),  # JSON of the reply
)

# What people said about an episode, a turn or a span of its reply. Append only: of the rows of one author under
# one name at one place the last counts, and the others are the history.
label = Table(
    "label",
    metadata,
    Column("id", _rowid, primary_key=True),
    Column("episode_id", String, _to("episode.id"), nullable=False),
    Column("idx", Integer),  # a turn; NULL: the whole episode
    Column("span_start", Integer),  # characters of the turn's reply; NULL: all of it
    Column("span_end", Integer),
    Column("name", String, nullable=False),
    Column("value", String, nullable=False),  # empty: withdrawn
    Column("note", Text, nullable=False),
    Column("author", String, nullable=False),
    Column("at", Float, nullable=False),
    Index(None, "episode_id", "idx"),
    Index(None, "name", "value", "episode_id"),
)

# A list of episodes kept under a name: the address of its page.
view = Table(
    "view",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("query", Text, nullable=False),  # JSON object of query parameters
    Column("created", Float, nullable=False),
)

# What another checkpoint would have chosen at a recorded turn, where its encoder had to read the transcript again.
second_opinion = Table(
    "second_opinion",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("checkpoint_id", String, _to("checkpoint.id"), primary_key=True),
    Column("run_id", String, _to("run.id"), nullable=False),
    Column("model_logits", LargeBinary, nullable=False),  # little-endian float64
    Column("role_logits", LargeBinary, nullable=False),
    Column("prompt_digest", String, nullable=False),  # of what was read: the turn's own, if read alike
    Column("device", String, nullable=False),  # what it was computed on
    Index(None, "run_id"),
)
