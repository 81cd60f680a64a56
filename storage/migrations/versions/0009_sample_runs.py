"""Which runs came with the program as samples, so that they are never counted among a user's own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

#: The sample runs of this version and of those before it.
_KNOWN = (
    *(
        "r1lg9cslte5qeq",
        "r1lg9e2ai8p7us",
        "r1lg8fms6e2ocs",
        "r1lg8gct844e2n",
        "r1lg5f3kbmo3qb",
        "r1lg5fthoin9av",
    ),
    *(
        "r1lg4nqed7o4eb",
        "r1lg4o9g3g3mrh",
        "r1lg4bpufu3s6c",
        "r1lg4d0cdr9gqa",
        "r1lg40aa3l1fjc",
        "r1lg424niqqr6b",
    ),
    *("r1lg1i94tkfc10", "r1lg1itgondq5k"),
)


def upgrade() -> None:
    """Make the column, and mark the sample runs that are there."""
    op.add_column("run", sa.Column("sample", sa.Boolean(), server_default="0", nullable=False))
    run = sa.table("run", sa.column("id", sa.String()), sa.column("sample", sa.Boolean()))
    op.execute(run.update().where(run.c.id.in_(_KNOWN)).values(sample=sa.true()))
