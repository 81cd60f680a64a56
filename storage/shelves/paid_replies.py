"""Replies that a run has paid for and may need again: kept as they come, until nothing can ask for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Engine, delete, func, insert, select

from core.episode import Reply, Usage
from storage.rows.engine import fetch_scalar, reading, writing
from storage.rows.schema import paid_reply


@dataclass
class PaidReplies:
    """The ledger of one run (a `core.pool.cache.ReplyLedger`). `generation` is the one under way, set by the run."""

    engine: Engine
    run_id: str
    generation: int = 0

    def recall(self) -> list[tuple[bytes, Reply]]:
        """Every reply still kept, by the key of its call."""
        mine = paid_reply.c.run_id == self.run_id
        with reading(self.engine) as connection:
            rows = connection.execute(select(paid_reply.c.key, paid_reply.c.body).where(mine))
            return [(bytes(key), read_reply(body)) for key, body in rows]

    def keep(self, replies: Sequence[tuple[bytes, Reply]]) -> None:
        """Store replies in one transaction; one that is there already stays."""
        rows = [
            {
                "run_id": self.run_id,
                "key": key,
                "generation": self.generation,
                "cost_usd": reply.usage.charged_usd,
                "body": json.dumps(asdict(reply)),
            }
            for key, reply in replies
        ]
        mine = paid_reply.c.run_id == self.run_id
        with writing(self.engine) as connection:
            known = connection.execute(
                select(paid_reply.c.key).where(mine, paid_reply.c.key.in_([row["key"] for row in rows]))
            )
            there = {bytes(key) for (key,) in known}
            if fresh := [row for row in rows if row["key"] not in there]:
                connection.execute(insert(paid_reply), fresh)

    def forget(self, before: int | None = None) -> None:
        """Drop what was paid before a generation; None: everything."""
        mine = paid_reply.c.run_id == self.run_id
        chosen = mine if before is None else mine & (paid_reply.c.generation < before)
        with writing(self.engine) as connection:
            connection.execute(delete(paid_reply).where(chosen))

    def spent_usd(self, since: int) -> float:
        """What the replies of a generation and those after it have cost; an unknown price counts nothing."""
        mine = (paid_reply.c.run_id == self.run_id) & (paid_reply.c.generation >= since)
        total = select(func.coalesce(func.sum(paid_reply.c.cost_usd), 0.0)).where(mine)
        return float(fetch_scalar(self.engine, total))


def read_reply(body: str) -> Reply:
    """A reply as its row keeps it."""
    fields = json.loads(body)
    return Reply(**{**fields, "usage": Usage(**fields["usage"])})
