"""Replies that runs of this store have got: kept until nothing can ask for them, found again by the key of their call
so that another run need not pay for them, and what they have cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Engine, Select, case, delete, false, func, insert, or_, select, true

from core.draws import reply_seed
from core.episode import Ask, Message, Reply, Task, Usage
from core.pool.cache import call_key
from core.pool.costs import call_usd
from core.pool.spec import ModelSpec, digest_of_specs
from storage.rows import mapping
from storage.rows.engine import fetch_rows, fetch_scalar, reading, writing
from storage.rows.full_episodes import read_texts, rows_among
from storage.rows.schema import (
    at_turn,
    episode,
    judgement,
    learning_update,
    paid_reply,
    plan,
    run,
    same_turn,
    text,
    turn,
)
from storage.rows.summaries import Purpose, RunStatus


@dataclass
class PaidReplies:
    """The ledger of one run (a `core.pool.cache.ReplyLedger`). `generation` is the one under way, set by the run."""

    engine: Engine
    run_id: str
    generation: int = 0

    def recall(self) -> list[tuple[bytes, Reply]]:
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
        mine = paid_reply.c.run_id == self.run_id
        chosen = mine if before is None else mine & (paid_reply.c.generation < before)
        with writing(self.engine) as connection:
            connection.execute(delete(paid_reply).where(chosen))

    def count(self, generation: int) -> int:
        """How many replies to a generation are kept."""
        mine = (paid_reply.c.run_id == self.run_id) & (paid_reply.c.generation == generation)
        return int(fetch_scalar(self.engine, select(func.count()).where(mine)))

    def spent_usd(self, since: int) -> float:
        """What the replies of a generation and those after it have cost; an unknown price counts nothing."""
        mine = (paid_reply.c.run_id == self.run_id) & (paid_reply.c.generation >= since)
        total = select(func.coalesce(func.sum(paid_reply.c.cost_usd), 0.0)).where(mine)
        return float(fetch_scalar(self.engine, total))


def read_reply(body: str) -> Reply:
    fields = json.loads(body)
    return Reply(**{**fields, "usage": Usage(**fields["usage"])})


#: The purposes of runs whose calls can be told from what is recorded of them: nobody changed a temperature or a turn by
#: hand.
_PURPOSES: tuple[Purpose, ...] = ("measured", "learning", "sample")


@dataclass
class SharedReplies:
    """What was asked of these models before (a `core.pool.cache.ReplyShelf`): in batch runs, and in evolutions as far
    as their replies are kept. `reused` counts what was found, and `saved_usd` is what that would have cost."""

    engine: Engine
    specs: Sequence[ModelSpec]
    reused: int = field(default=0, init=False)
    saved_usd: float = field(default=0.0, init=False)
    _turns: dict[bytes, tuple[str, int]] = field(default_factory=dict, init=False)
    _paid: dict[bytes, str] = field(default_factory=dict, init=False)  # -> run

    def __len__(self) -> int:
        return len(self._turns.keys() | self._paid.keys())

    def load(self, tasks: Iterable[Task]) -> None:
        pools = self._same_models()
        ids = sorted({task.id for task in tasks})
        by_name = {spec.name: spec for spec in self.specs}
        asked: Counter[tuple[str, str, tuple[Message, ...]]] = Counter()
        recorded = (
            select(
                *(episode.c.id, episode.c.seed, episode.c.task_id),
                *(turn.c.idx, turn.c.model, turn.c.role, turn.c.stage, turn.c.error_kind),
                text.c.body,
            )
            .join(run, run.c.id == episode.c.run_id)
            .join(turn, turn.c.episode_id == episode.c.id)
            .join(text, same_turn(text) & (text.c.kind == "prompt"))
            .where(run.c.purpose.in_(_PURPOSES), run.c.pool.in_(pools), turn.c.model.in_(by_name))
            .order_by(episode.c.id, turn.c.idx)
        )
        with reading(self.engine) as connection:
            for row in rows_among(connection, recorded, episode.c.task_id, ids):
                messages, role = mapping.to_messages(row["body"]), row["role"]
                if not messages:
                    continue
                spec, call = by_name[row["model"]], (row["id"], row["model"], messages)
                ask = Ask(
                    spec.name,
                    role,
                    messages,
                    seed=reply_seed(row["seed"], row["task_id"]),
                    sample=asked[call],
                    temperature=spec.role_temperature.get(role),
                )
                asked[call] += 1
                if row["stage"] == "finished" and row["error_kind"] is None:
                    self._turns.setdefault(call_key(spec, ask), (row["id"], row["idx"]))
            kept = (
                select(paid_reply.c.key, paid_reply.c.run_id)
                .join(run, run.c.id == paid_reply.c.run_id)
                .where(run.c.pool.in_(pools))
            )
            self._paid |= {bytes(key): name for key, name in connection.execute(kept)}

    def find(self, spec: ModelSpec, key: bytes) -> Reply | None:
        """This model's reply to the call with this key, free and at once; None where there is none."""
        found = self._recorded(key) or self._kept(key)
        if found is None:
            return None
        self.reused += 1
        used = found.usage
        self.saved_usd += call_usd(spec, used.tokens_in, used.tokens_out, used.tokens_cached) or 0.0
        return found.as_reused()

    def _recorded(self, key: bytes) -> Reply | None:
        if key not in self._turns:
            return None
        name, index = self._turns[key]
        with reading(self.engine) as connection:
            row = connection.execute(select(turn).where(at_turn(turn, name, index))).mappings().first()
            texts = read_texts(connection, [name])
        return mapping.to_reply(row, texts[name, index]) if row else None

    def _kept(self, key: bytes) -> Reply | None:
        if key not in self._paid:
            return None
        mine = (paid_reply.c.run_id == self._paid[key]) & (paid_reply.c.key == key)
        body = fetch_scalar(self.engine, select(paid_reply.c.body).where(mine))
        return read_reply(body) if body else None

    def _same_models(self) -> list[str]:
        """The digests of recorded pools whose models are all among these, and the same."""
        by_name = {spec.name: spec for spec in self.specs}
        query = select(run.c.pool, run.c.config).where(run.c.pool != "", run.c.purpose.in_(_PURPOSES))
        found = set()
        for pool, config in fetch_rows(self.engine, query):
            names = config.get("models") or [*by_name]
            if not by_name.keys() >= set(names):
                continue
            judges = [spec for spec in self.specs if spec.judge and spec.name not in names]
            if digest_of_specs([*(by_name[name] for name in names), *judges]) == pool:
                found.add(pool)
        return sorted(found)


def spent_usd(engine: Engine, run_id: str) -> float:
    """What a run has spent in USD; which replies count as what, `Runs.spent_usd` says."""
    own = or_(episode.c.fork_turn.is_(None), turn.c.idx >= episode.c.fork_turn)
    replies = (
        select(func.coalesce(func.sum(func.coalesce(turn.c.cost_usd, turn.c.at_most_usd)), 0.0))
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(run, run.c.id == episode.c.run_id)
        .where(episode.c.run_id == run_id, run.c.kind != "evolve", own)
    )
    # Forks carry the plans of their parents.
    plans = (
        select(func.coalesce(func.sum(func.coalesce(plan.c.cost_usd, plan.c.at_most_usd)), 0.0))
        .join(episode, episode.c.id == plan.c.episode_id)
        .where(episode.c.run_id == run_id, episode.c.fork_turn.is_(None))
    )
    mine = learning_update.c.run_id == run_id
    learned = select(func.max(learning_update.c.spent_usd)).where(mine)
    last = select(func.coalesce(func.max(learning_update.c.idx), -1)).where(mine).scalar_subquery()
    kept = select(func.sum(paid_reply.c.cost_usd)).where(
        paid_reply.c.run_id == run_id, paid_reply.c.generation > last
    )
    with reading(engine) as connection:
        config = connection.execute(select(run.c.config).where(run.c.id == run_id)).scalar() or {}
        chosen = config.get("choice_usd") or connection.execute(kept).scalar() or 0.0
        parts = (replies, plans, _judged(run_id), learned, _lost(run_id))
        return float(chosen + sum(connection.execute(one).scalar() or 0.0 for one in parts))


def _lost(run_id: str) -> Select[Any]:
    """What calls of a run could cost that got no reply: those under way are among them once nobody plays it."""
    under_way = case((run.c.status == RunStatus.RUNNING, 0.0), else_=run.c.under_way_usd)
    return select(run.c.lost_usd + under_way).where(run.c.id == run_id)


def _judged(run_id: str) -> Select[Any]:
    """What the judge's replies in a run have cost; those that forks carry cost nothing."""
    paid = func.coalesce(judgement.c.cost_usd, judgement.c.at_most_usd)
    return (
        select(func.coalesce(func.sum(paid), 0.0))
        .join(episode, episode.c.id == judgement.c.episode_id)
        .join(run, run.c.id == episode.c.run_id)
        .where(episode.c.run_id == run_id, run.c.kind != "evolve")
    )


def unread_usd(engine: Engine, run_id: str) -> float:
    with reading(engine) as connection:
        lost = float(connection.execute(_lost(run_id)).scalar() or 0.0)
        learned = select(func.max(learning_update.c.unread_usd)).where(learning_update.c.run_id == run_id)
        if (found := connection.execute(learned).scalar()) is not None:
            return float(found) + lost
        parts = (
            connection.execute(
                select(func.coalesce(func.sum(of.c.unread_usd), 0.0))
                .join(episode, episode.c.id == of.c.episode_id)
                .where(episode.c.run_id == run_id, of.c.unread_usd > 0, episode.c.fork_turn.is_(None) | own)
            ).scalar_one()
            for of, own in ((turn, turn.c.idx >= episode.c.fork_turn), (plan, false()), (judgement, true()))
        )
        return float(sum(parts)) + lost
