"""Keys have limits by day and month, and requests a count of their tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1.0007"
down_revision = "1.0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """New columns. Keys that are there have no such limit; of requests that are there nobody counted the tokens."""
    for period in ("day", "month"):
        for what, kind in (("usd", sa.Float), ("requests", sa.Integer), ("tokens", sa.Integer)):
            op.add_column("api_key", sa.Column(f"{period}_{what}", kind))
    op.add_column("served", sa.Column("tokens", sa.BigInteger, nullable=False, server_default="0"))
