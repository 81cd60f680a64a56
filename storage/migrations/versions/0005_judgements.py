"""What a judge says of answers stands in a table of its own, apart from what playing costs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1.0005"
down_revision = "1.0004"
branch_labels = None
depends_on = None

_NEEDED = {"judge": sa.String, "at": sa.Float, "answer": sa.Text, "prompt": sa.Text, "reply": sa.Text}
_NEEDED |= {"reasoning": sa.Text}
_KNOWN = {"finish_reason": sa.String, "tokens_in": sa.Integer, "tokens_out": sa.Integer}
_KNOWN |= {"tokens_cached": sa.Integer, "cost_usd": sa.Float, "at_most_usd": sa.Float, "unread_usd": sa.Float}
_KNOWN |= {"latency_s": sa.Float, "error_kind": sa.String, "error": sa.Text, "rating": sa.Float}


def upgrade() -> None:
    """A new table; no model has judged anything so far."""
    op.create_table(
        "judgement",
        sa.Column("episode_id", sa.String, sa.ForeignKey("episode.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("idx", sa.Integer, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        *(sa.Column(name, kind, nullable=False) for name, kind in _NEEDED.items()),
        *(sa.Column(name, kind) for name, kind in _KNOWN.items()),
    )
