"""Runs: their life, the lease that keeps workers apart, what a person asks of a worker, how policies did."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Select,
    and_,
    case,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from core.episode import Decision, Role, Status
from core.errors import StoreError
from core.play.policies import decider_at, deciders_with
from storage.filters.listing import FIGURES
from storage.filters.vocabulary import IS_MIXED
from storage.rows.engine import (
    fetch_mapping,
    fetch_mappings,
    fetch_rows,
    fetch_scalar,
    is_read_only,
    reading,
    writing,
)
from storage.rows.full_episodes import delete_episodes
from storage.rows.mapping import Rows, from_row
from storage.rows.schema import at_turn, episode, learning_update, override, proposal, run, turn
from storage.rows.summaries import (
    PURPOSES,
    PolicySummary,
    Proposal,
    Purpose,
    RunControl,
    RunKind,
    RunStatus,
    RunSummary,
)
from storage.shelves import replies
from storage.shelves.learning import check_decides
from storage.shelves.lease import DEAD_AFTER_S, take, update_own

_DECISION = TypeAdapter(Decision)
_QUEUED = run.c.status == RunStatus.QUEUED


@dataclass(frozen=True)
class Runs:
    """The runs of a store (`store.runs`)."""

    engine: Engine
    now: Callable[[], float]

    def create(
        self,
        run_id: str,
        kind: RunKind,
        config: Mapping[str, Any],
        *,
        name: str | None = None,
        purpose: Purpose | None = None,
        status: RunStatus = RunStatus.RUNNING,
        owner: str | None = None,
    ) -> RunSummary:
        """A new run, running at once or queued for a worker, by default for its kind's purpose. StoreError when the id
        or the name is taken."""
        at = self.now()
        alive = {"started": at, "heartbeat": at} if status is RunStatus.RUNNING else {}
        row = {
            "id": run_id,
            "kind": kind,
            "purpose": purpose or PURPOSES[kind],
            "name": name or None,
            "status": status.value,
            "owner": owner,
            "created": at,
            "config": config,
            **alive,
        }
        try:
            with writing(self.engine) as connection:
                named = select(run.c.id).where(run.c.name == name, run.c.id != run_id)
                if name and connection.execute(named).first():
                    raise StoreError(f"There already is a run named '{name}': choose another name.")
                connection.execute(insert(run), row)
        except IntegrityError as error:
            raise StoreError(f"There already is a run {run_id}: give another id.") from error
        return self.get(run_id)

    def get(self, run_id: str) -> RunSummary:
        """One run; StoreError when there is none with this id."""
        found = self._read(select(run).where(run.c.id == run_id))
        if not found:
            raise StoreError(f"The store holds no run {run_id}: list the runs to see which there are.")
        return found[0]

    def list(
        self, kind: RunKind | None = None, status: RunStatus | None = None, limit: int = 50
    ) -> Sequence[RunSummary]:
        """Runs, newest first."""
        query = select(run).order_by(run.c.created.desc(), run.c.id.desc()).limit(limit)
        if kind is not None:
            query = query.where(run.c.kind == kind)
        if status is not None:
            query = query.where(run.c.status == status.value)
        return self._read(query)

    def outlines(self, ids: Collection[str]) -> Sequence[RunSummary]:
        """Those of these runs that there are, newest first; their episodes and updates are not counted (0)."""
        query = select(run).where(run.c.id.in_(ids)).order_by(run.c.created.desc(), run.c.id.desc())
        with reading(self.engine) as connection:
            return [_summary(row, 0, 0, 0, 0) for row in connection.execute(query).mappings()]

    def find(self, name: str, *kinds: RunKind) -> str | None:
        """The id of the newest run of these kinds with this name, or this id; None when there is none."""
        named = or_(run.c.name == name, run.c.id == name)
        query = select(run.c.id).where(named, run.c.kind.in_(kinds)).order_by(run.c.created.desc()).limit(1)
        found: str | None = fetch_scalar(self.engine, query)
        return found

    def names(self) -> dict[str, str]:
        query = select(run.c.id, run.c.name).where(run.c.name.is_not(None))
        return dict(fetch_rows(self.engine, query))

    def waiting(self) -> Sequence[RunSummary]:
        return self._read(select(run).where(_QUEUED).order_by(run.c.created, run.c.id))

    def next_waiting(self, kinds: Sequence[str] = ()) -> str | None:
        """The id of the run that is to be taken next, of one of these `kinds` where any are given; None when none
        waits."""
        query = select(run.c.id).where(_QUEUED).order_by(run.c.created, run.c.id).limit(1)
        if kinds:
            query = query.where(run.c.kind.in_(kinds))
        found: str | None = fetch_scalar(self.engine, query)
        return found

    def requeue(self, run_id: str, dead: str | None = None) -> None:
        """Let a run that stands still (interrupted, silent, never taken, or of the owner known to be `dead`) wait for
        a worker again. StoreError, and nothing changes, when it is being played or over."""
        with writing(self.engine) as connection:
            if take(connection, run_id, self.now(), dead, status=RunStatus.QUEUED.value, owner=None):
                _interrupt_episodes(connection, [run_id])
                return
        found = self.get(run_id)
        raise StoreError(f"Run {run_id} is {found.status}: there is nothing to resume.")

    def claim(self, run_id: str, owner: str, dead: str | None = None) -> bool:
        """Take a run that is queued, interrupted, silent, or still of the owner that is known to be `dead`;
        False when it is another's or over. Atomic."""
        at = self.now()
        started = func.coalesce(run.c.started, at)
        with writing(self.engine) as connection:
            return take(
                connection, run_id, at, dead, status=RunStatus.RUNNING.value, owner=owner, started=started
            )

    def heartbeat(self, run_id: str, owner: str | None = None) -> None:
        with writing(self.engine) as connection:
            update_own(connection, run_id, owner, heartbeat=self.now())

    def sample_ids(self) -> frozenset[str]:
        query = select(run.c.id).where(run.c.purpose == "sample")
        return frozenset(found for (found,) in fetch_rows(self.engine, query))

    def note_pool(self, run_id: str, pool: str) -> None:
        self._set(run_id, pool=pool)

    def noted_pool(self, run_id: str) -> str | None:
        """The digest of the pool that answered in a run; empty where none did."""
        pool: str | None = fetch_scalar(self.engine, select(run.c.pool).where(run.c.id == run_id))
        return pool

    def note(self, run_id: str, sentence: str) -> None:
        """Keep, once, what has to be known of how a run is played."""
        before = select(run.c.notes).where(run.c.id == run_id)
        with writing(self.engine) as connection:
            notes = (connection.execute(before).scalar() or "").splitlines()
            if sentence not in notes:
                told = "\n".join([*notes, sentence])
                connection.execute(update(run).where(run.c.id == run_id).values(notes=told))

    def finish(
        self,
        run_id: str,
        status: RunStatus = RunStatus.FINISHED,
        error: str | None = None,
        *,
        owner: str | None = None,
    ) -> None:
        """The run is over; `error` is one sentence. Episodes still running become interrupted.

        StoreError, and nothing changes, when the run is not this owner's any more."""
        with writing(self.engine) as connection:
            update_own(connection, run_id, owner, status=status.value, error=error, finished=self.now())
            _interrupt_episodes(connection, [run_id])

    def mark_interrupted(self, is_dead: Callable[[str], bool] = lambda _: False) -> Sequence[str]:
        """Running runs without recent heartbeat, and those whose owner `is_dead`, become interrupted with their
        episodes; gives their ids. In a store that is only read they stay as they are."""
        if is_read_only(self.engine):
            return []
        running, since = run.c.status == RunStatus.RUNNING, self.now() - DEAD_AFTER_S
        beat = func.coalesce(run.c.heartbeat, run.c.created)
        # Mostly there are none: then no write lock is taken.
        rows = fetch_rows(self.engine, select(run.c.owner, beat.label("beat")).where(running))
        gone = {row.owner for row in rows if row.owner and is_dead(row.owner)}
        if not gone and all(row.beat >= since for row in rows):
            return []
        silent = and_(running, or_(beat < since, run.c.owner.in_(gone)))
        with writing(self.engine) as connection:
            dead = connection.execute(select(run.c.id).where(silent)).scalars().all()
            connection.execute(
                update(run).where(run.c.id.in_(dead), silent).values(status=RunStatus.INTERRUPTED.value)
            )
            _interrupt_episodes(connection, dead)
        return dead

    def delete(self, run_id: str, dead: str | None = None) -> None:
        """Delete a run with its episodes, checkpoints and generations. StoreError while it is running, unless
        its owner is the one known to be `dead`."""
        found = self.get(run_id)
        if found.status is RunStatus.RUNNING and (dead is None or found.owner != dead):
            raise StoreError(f"Run {run_id} is still running: cancel it first, then delete it.")
        with writing(self.engine) as connection:
            delete_episodes(connection, episode.c.run_id == run_id)
            connection.execute(delete(run).where(run.c.id == run_id))

    # What a person asks of a worker

    def control(self, run_id: str) -> RunControl:
        row = fetch_mapping(
            self.engine, select(run.c.cancel, run.c.paused, run.c.steps).where(run.c.id == run_id)
        )
        return RunControl(**row) if row else RunControl(cancel=True, paused=False, steps=0)  # deleted: stop

    def cancel(self, run_id: str) -> None:
        """Ask the worker to stop; a run that is still queued is cancelled on the spot."""
        self._set(
            run_id,
            cancel=True,
            status=case((_QUEUED, RunStatus.CANCELLED.value), else_=run.c.status),
            finished=case((_QUEUED, self.now()), else_=run.c.finished),
        )

    def change(self, run_id: str, changes: Mapping[str, Any], dead: str | None = None) -> None:
        """Change what a person may change of a run that has begun, by the keys of its config: what it may spend in all,
        which engine plays it. StoreError while it is running, unless its owner is the one known to be `dead`: its
        worker has read the old."""
        config = {**self.get(run_id).config, **changes}
        resting = run.c.status != RunStatus.RUNNING
        if dead is not None:
            resting = or_(resting, run.c.owner == dead)
        with writing(self.engine) as connection:
            changed = connection.execute(update(run).where(run.c.id == run_id, resting).values(config=config))
        if changed.rowcount != 1:
            raise StoreError(f"Run {run_id} is running: stop it first, then change it.")

    def amend(self, run_id: str, config: Mapping[str, Any], *, owner: str | None = None) -> None:
        """Write down what its process has decided about what a run plays. StoreError when the run is not this owner's
        any more."""
        with writing(self.engine) as connection:
            update_own(connection, run_id, owner, config=config)

    def amend_key(self, run_id: str, key: str, value: Any, *, owner: str | None = None) -> None:
        """Write down one value beside what a run plays, under a key of its config; None takes it away. Nothing else of
        the config is changed, whoever writes meanwhile. StoreError when the run is not this owner's any more."""
        with writing(self.engine) as connection:
            found = connection.execute(
                select(run.c.config).where(run.c.id == run_id).with_for_update()
            ).scalar()
            before = found or {}
            config = {name: one for name, one in before.items() if name != key}
            if value is not None:
                config[key] = value
            if config != before:
                update_own(connection, run_id, owner, config=config)

    def pause(self, run_id: str) -> None:
        self._set(run_id, paused=True, steps=0)

    def unpause(self, run_id: str) -> None:
        self._set(run_id, paused=False, steps=0)

    def step(self, run_id: str, number: int) -> None:
        """While paused: let turn `number` be played, counted from 1 over all of the run's episodes. It is played once,
        however often and by however many readers it is asked for."""
        self._set(run_id, steps=case((run.c.steps < number, number), else_=run.c.steps))

    def turns_played(self, run_id: str) -> int:
        query = (
            select(func.count())
            .select_from(turn)
            .join(episode, episode.c.id == turn.c.episode_id)
            .where(episode.c.run_id == run_id, turn.c.stage == "finished")
        )
        return int(fetch_scalar(self.engine, query))

    def set_override(self, episode_id: str, index: int, model: str, role: Role) -> None:
        """Choose turn `index` by hand; the last choice counts. StoreError when the turn has begun, or the episode knows
        no such model."""
        row = {"episode_id": episode_id, "idx": index, "model": model, "role": role.value}
        with writing(self.engine) as connection:
            known = connection.execute(select(episode.c.models).where(episode.c.id == episode_id)).scalar()
            if known is not None and model not in known:
                raise StoreError(
                    f"There is no model '{model}' in this episode: choose one of {', '.join(known)}."
                )
            _drop_override(connection, episode_id, index)
            connection.execute(insert(override), row)

    def drop_override(self, episode_id: str, index: int) -> None:
        with writing(self.engine) as connection:
            _drop_override(connection, episode_id, index)

    def override(self, episode_id: str, index: int) -> tuple[str, Role] | None:
        """The (model, role) a person chose for a turn, None when the policy decides."""
        row = fetch_mapping(self.engine, select(override).where(at_turn(override, episode_id, index)))
        return (row["model"], row["role"]) if row else None

    def propose(self, episode_id: str, index: int, proposed: Proposal) -> None:
        """Show what would be decided for turn `index`, or why nothing can be, while it waits for a person; nothing
        where the episode is gone."""
        body = json.dumps({"cannot": proposed.cannot})
        if proposed.decision is not None:
            body = _DECISION.dump_json(replace(proposed.decision, hidden_state=b"")).decode()
        row = {"episode_id": episode_id, "idx": index, "policy": proposed.policy, "body": body}
        there = select(episode.c.id).where(episode.c.id == episode_id)
        with writing(self.engine) as connection:
            connection.execute(delete(proposal).where(proposal.c.episode_id == episode_id))
            if connection.execute(there).scalar() is not None:
                connection.execute(insert(proposal), row)

    def drop_proposal(self, episode_id: str) -> None:
        with writing(self.engine) as connection:
            connection.execute(delete(proposal).where(proposal.c.episode_id == episode_id))

    def proposal(self, episode_id: str, index: int) -> Proposal | None:
        """What would be decided for turn `index`; None while nothing is proposed."""
        row = fetch_mapping(self.engine, select(proposal).where(at_turn(proposal, episode_id, index)))
        if row is None:
            return None
        if cannot := json.loads(row["body"]).get("cannot"):
            return Proposal(row["policy"], None, str(cannot))
        return Proposal(row["policy"], _DECISION.validate_json(row["body"]))

    def set_decider(self, episode_id: str, index: int, policy: str) -> None:
        """From turn `index` on let another policy decide, by its id; the last choice counts. StoreError when the turn
        has begun, the episode is over, or the id is of nothing that can decide its turns."""
        columns = episode.c.policy, episode.c.deciders, episode.c.status, episode.c.models
        with writing(self.engine) as connection:
            held = connection.execute(select(*columns).where(episode.c.id == episode_id)).first()
            if held is None or held.status == Status.FINISHED:
                raise StoreError(
                    f"Episode {episode_id} is not being played: nobody can decide in it any more."
                )
            begun = select(turn.c.idx).where(turn.c.episode_id == episode_id, turn.c.idx >= index).limit(1)
            if connection.execute(begun).first():
                raise StoreError(f"Turn {index + 1} has already begun: choose who decides a later one.")
            if policy != held.policy:
                check_decides(connection, policy, held.models)
            deciders = deciders_with(held.policy, held.deciders or {}, index, policy)
            change = update(episode).where(episode.c.id == episode_id)
            connection.execute(change.values(deciders=deciders))

    def decider(self, episode_id: str, index: int) -> str:
        """The policy that decides turn `index`. StoreError when there is no such episode."""
        row = fetch_mapping(
            self.engine, select(episode.c.policy, episode.c.deciders).where(episode.c.id == episode_id)
        )
        if row is None:
            raise StoreError(f"There is no episode {episode_id!r} in this store.")
        return decider_at(row["policy"], row["deciders"] or {}, index)

    # How its policies did

    def policies(self, run_id: str) -> Sequence[PolicySummary]:
        """Accuracy and cost of each policy of a run, in the order of first play, over plays that it decided alone."""
        query = (
            select(episode.c.policy, *FIGURES)
            .where(episode.c.run_id == run_id, not_(IS_MIXED))
            .group_by(episode.c.policy)
            .order_by(func.min(episode.c.id))
        )
        return [PolicySummary(run_id=run_id, **row) for row in fetch_mappings(self.engine, query)]

    def spent_usd(self, run_id: str) -> float:
        """What its replies, plans, judgements and generations have cost so far, the generation under way too, and what
        choosing and teaching its policies cost. A reply without counts of tokens, and a call that came to nothing, is
        taken for the most that it could cost; a reply of unknown price counts nothing, and neither do the turns that
        forks carry: another run has paid for them. Recorded episodes of an evolution share replies, each of which its
        generation counts once."""
        return replies.spent_usd(self.engine, run_id)

    def unread_usd(self, run_id: str) -> float:
        """How much of that went to answers that could not be read or broke off, and to calls that came to nothing."""
        return replies.unread_usd(self.engine, run_id)

    def note_unanswered(
        self, run_id: str, under_way_usd: float, lost_usd: float, *, owner: str | None = None
    ) -> None:
        """Write down, before calls begin, what those under way can cost at most, and what those could that got no
        reply, in US dollars: their models' servers may bill them though this process dies before it hears an answer.
        StoreError when the run is not this owner's any more."""
        with writing(self.engine) as connection:
            update_own(connection, run_id, owner, under_way_usd=under_way_usd, lost_usd=lost_usd)

    def charge_lost(self, run_id: str, *, owner: str | None = None) -> float:
        """Count the calls that were under way when a run's last process ended as lost; the most that all its lost calls
        could cost, US dollars."""
        under_way = fetch_scalar(self.engine, select(run.c.under_way_usd).where(run.c.id == run_id))
        if under_way:  # mostly there are none: then no write lock is taken
            with writing(self.engine, durable=True) as connection:
                lost = run.c.lost_usd + run.c.under_way_usd
                update_own(connection, run_id, owner, under_way_usd=0.0, lost_usd=lost)
        return float(fetch_scalar(self.engine, select(run.c.lost_usd).where(run.c.id == run_id)) or 0.0)

    def _set(self, run_id: str, **values: Any) -> None:
        with writing(self.engine) as connection:
            connection.execute(update(run).where(run.c.id == run_id).values(**values))

    def _read(self, query: Select[Any]) -> Sequence[RunSummary]:
        with reading(self.engine) as connection:
            rows = connection.execute(query).mappings().all()
            ids = [row["id"] for row in rows]
            finished = case((episode.c.status == Status.FINISHED, 1), else_=0)
            right = case((and_(episode.c.status == Status.FINISHED, episode.c.correct), 1), else_=0)
            episodes = _by_run(connection, episode, ids, func.sum(finished), func.sum(right))
            generations = _by_run(connection, learning_update, ids)
        return [
            _summary(row, *episodes.get(row["id"], (0, 0, 0)), *generations.get(row["id"], (0,)))
            for row in rows
        ]


def _drop_override(connection: Connection, episode_id: str, index: int) -> None:
    begun = select(turn.c.idx).where(at_turn(turn, episode_id, index))
    if connection.execute(begun).first():
        raise StoreError(f"Turn {index + 1} has already begun: take over a later one.")
    connection.execute(delete(override).where(at_turn(override, episode_id, index)))


def _by_run(
    connection: Connection, table: FromClause, ids: Sequence[str], *sums: ColumnElement[Any]
) -> dict[str, tuple[int, ...]]:
    """How many rows of a table each run has, and these sums over them."""
    query = select(table.c.run_id, func.count(), *sums).where(table.c.run_id.in_(ids))
    return {run_id: tuple(n) for run_id, *n in connection.execute(query.group_by(table.c.run_id))}


def _interrupt_episodes(connection: Connection, run_ids: Sequence[str]) -> None:
    connection.execute(
        update(episode)
        .where(episode.c.run_id.in_(run_ids), episode.c.status == Status.RUNNING)
        .values(status=Status.INTERRUPTED.value)
    )


def _summary(row: Rows, episodes: int, finished: int, correct: int, generations: int) -> RunSummary:
    counts = {"episodes": episodes, "finished_episodes": finished, "correct": correct}
    return from_row(RunSummary, row, generations=generations, **counts)
