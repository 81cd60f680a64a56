"""Record episodes while they are played: every event is stored, then passed on.

    for event in record(store, drive(episode, policy, pool, grade)): show(event)

An event is committed before the driver that made it can act on it, so a killed process loses nothing that
was acknowledged; a reply that cost money also survives a power cut. Finished episodes and turns never change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Table,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DataError

from core.episode import (
    Delta,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Judgement,
    Plan,
    Replied,
    Status,
    Turn,
    TurnStarted,
    episode_of,
)
from core.errors import StoreError
from core.play.judging import PASS_MARK
from storage.rows import mapping
from storage.rows.engine import writing
from storage.rows.full_episodes import new_episode_row, read_episodes
from storage.rows.progress import EpisodeProgress
from storage.rows.schema import at_turn, episode, judgement, plan, same_turn, state, text, turn
from storage.shelves.lease import check_owner
from storage.store import Store

log = logging.getLogger(__name__)

#: How often a running process records that it is alive, in seconds.
BEAT_S = 5.0
#: How often more is told about a run that is being played, in seconds.
TELL_S = 2.0
#: How often the text of a reply that is still being written is stored, in seconds.
PARTIAL_S = 0.4


def record(
    store: Store,
    events: Iterable[Event],
    *,
    owner: str | None = None,
    keep: Callable[[Event], Event | None] = lambda event: event,
    beside: Callable[[Connection, Event], None] = lambda connection, event: None,
) -> Iterator[Event]:
    """Store each event, then yield it. The runs of the episodes must exist and be this owner's. `keep` gives what is
    stored of an event, None for nothing; `beside` stores more in the same transaction.

    Raises StoreError when an event cannot be stored (full disk, a finished episode played again, a run that
    another process took over): the driver is then closed before it spends anything more. What is wrong with one event
    alone, such as a text that no database holds, is thrown into the driver, which ends that episode.
    """
    recorder = Recorder(store, owner, keep, beside)
    source = iter(events)
    try:
        event = next(source, None)
        while event is not None:
            recorder.add(event)
            [(_, fault)] = recorder.commit()
            if fault is None:
                yield event
                event = next(source, None)
            elif isinstance(source, Generator):
                event = _thrown(source, fault)
            else:
                raise fault
    finally:
        if isinstance(events, Generator):
            events.close()


def record_many(
    store: Store, play: Callable[..., Iterator[Event]], *, owner: str | None = None
) -> Iterator[Event]:
    """`record` for many episodes side by side: all that happened until the driver waits, or begins more calls, is
    stored in one transaction, and then yielded. `play` is a driver that has yet to be told how to `settle`."""
    recorder, told = Recorder(store, owner), deque[Event]()
    events = play(settle=partial(recorder.settle, told.append))
    try:
        for event in events:
            recorder.add(event)
            while told:
                yield told.popleft()
        yield from told
    finally:
        if isinstance(events, Generator):
            events.close()
        recorder.commit()  # what came just before it broke off


def _thrown(source: Generator[Event], fault: Exception) -> Event | None:
    """What a driver yields next that is told of a fault; None where that was all."""
    try:
        return source.throw(fault)
    except StopIteration:
        return None


@contextmanager
def heartbeats(
    store: Store, run_id: str, owner: str | None = None, *, tell: Callable[[], object] | None = None
) -> Iterator[None]:
    """Record every few seconds that the run's process is alive, for as long as the block runs; more often `tell` is
    called, which writes down more about it."""
    over = threading.Event()

    def beat() -> None:
        told = time.monotonic()
        while not over.wait(BEAT_S if tell is None else min(TELL_S, BEAT_S)):
            try:
                if tell is not None:
                    tell()
                    if time.monotonic() - told < BEAT_S:
                        continue
                told = time.monotonic()
                store.runs.heartbeat(run_id, owner)
            except StoreError as error:  # the recording itself will tell the user, if it lasts
                log.warning("No heartbeat for run %s: %s", run_id, error)

    store.runs.heartbeat(run_id, owner)
    thread = threading.Thread(target=beat, name=f"heartbeat {run_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass
class _OpenEpisode:
    """An episode being recorded."""

    run_id: str
    models: tuple[str, ...]
    progress: EpisodeProgress = EpisodeProgress()
    is_new: bool = False  # all that is stored of it was stored here: nothing of a turn can be held already
    partial: str = ""
    partial_at: float = 0.0


@dataclass
class Recorder:
    """Stores events of the runs of one `owner`: those that were added, in one transaction. `keep` and `beside` are as
    `record` has them; `may_cost`: a reply whose price is not known may have cost money, or has cost nothing. Of what is
    stored it remembers only what spares it a query."""

    store: Store
    owner: str | None = None
    keep: Callable[[Event], Event | None] = lambda event: event
    beside: Callable[[Connection, Event], None] = lambda connection, event: None
    may_cost: bool = True
    _open: dict[str, _OpenEpisode] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)  # episodes whose beginning could not be stored
    _added: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Have it stored at the next commit."""
        self._added.append(event)

    def commit(self) -> list[tuple[Event, Exception | None]]:
        """Store what was added, all or nothing; where that fails, one event after the other. Of each event, None, or
        what is wrong with it: then it is not stored, nor is any later one of its episode. StoreError where the fault is
        not an event's own: what is left is not stored."""
        events, self._added = self._added, []
        if len(events) > 1 and self._stored(events):
            return [(event, None) for event in events]
        faults = dict[str, Exception]()
        found = list[tuple[Event, Exception | None]]()
        for event in events:
            name = episode_of(event)
            fault = faults.get(name) or self._fault(event)
            found.append((event, fault))
            if fault is not None:
                faults[name] = fault
        return found

    def settle(self, tell: Callable[[Event], None]) -> list[tuple[Event, Exception]]:
        """Store what was added and tell it; what could not be stored, and why (`core.play.drive.DriveOptions`)."""
        lost = list[tuple[Event, Exception]]()
        for event, fault in self.commit():
            if fault is None:
                tell(event)
            else:
                lost.append((event, fault))
        return lost

    def _stored(self, events: Sequence[Event]) -> bool:
        """Whether all of them could be stored together. Else nothing is, here or there."""
        before = {name: replace(self._open[name]) for name in map(episode_of, events) if name in self._open}
        try:
            self._write([kept for event in events if (kept := self.keep(event)) is not None])
        except Exception as error:  # which of them it was is found out one by one
            if isinstance(error, StoreError) and not isinstance(error.__cause__, DataError | None):
                raise
            for name in {*map(episode_of, events)} - before.keys():
                self._open.pop(name, None)
            self._open |= before
            return False
        return True

    def _fault(self, event: Event) -> Exception | None:
        """Store what is kept of an event; what is wrong with it where it cannot be stored. StoreError where that is no
        fault of its own."""
        if isinstance(event, EpisodeFinished) and event.episode.id in self._unknown:
            self._unknown.discard(event.episode.id)
            return None
        try:
            if (kept := self.keep(event)) is not None:
                self._write([kept])
        except StoreError as error:
            if not isinstance(error.__cause__, DataError):
                raise
            fault: Exception = error.__cause__
        except Exception as error:
            fault = error
        else:
            return None
        if isinstance(event, EpisodeStarted):
            self._unknown.add(event.episode.id)
        return fault

    def _write(self, events: Sequence[Event]) -> None:
        """Store events in one transaction; the growing text of a reply in one of its own, and seldom."""
        for event in events:
            if isinstance(event, Delta):
                self._delta(event)
        events = [event for event in events if not isinstance(event, Delta)]
        if not events:
            return
        durable = any(_is_paid(event, self.may_cost) for event in events)
        with writing(self.store.engine, durable=durable) as connection:
            checked = set[str]()
            ending = {event.episode.id for event in events if isinstance(event, EpisodeFinished)}
            for event in events:
                if isinstance(event, EpisodeStarted | EpisodeFinished):
                    run_id = event.episode.run_id
                else:
                    run_id = self._seen(connection, event.episode_id).run_id
                if run_id not in checked:
                    check_owner(connection, run_id, self.owner)
                    checked.add(run_id)
                self._store(connection, event)
                if (
                    isinstance(event, Plan | Turn) and event.episode_id not in ending
                ):  # whose end tells it too
                    row = mapping.progress_row(self._open[event.episode_id].progress)
                    connection.execute(_PROGRESS, {"of": event.episode_id, **row})
                self.beside(connection, event)

    def _store(self, connection: Connection, event: Event) -> None:
        match event:
            case EpisodeStarted():
                self._episode_started(connection, event.episode)
            case Plan():
                self._planned(connection, event)
            case TurnStarted():
                self._turn_started(connection, event)
            case Replied():
                self._replied(connection, event)
            case Judgement():
                _judged(connection, event, self.store.now())
            case Turn():
                self._turn(connection, event)
            case EpisodeFinished():
                self._episode_finished(connection, event.episode)

    def _episode_started(self, connection: Connection, begun: Episode) -> None:
        held = connection.execute(_EPISODE, {"of": begun.id}).first()
        if held is None:
            connection.execute(_INSERT[episode], new_episode_row(connection, begun, self.store.now()))
        elif held.status == Status.FINISHED:
            raise _is_finished(begun.id)
        else:
            connection.execute(_RESUME, {"of": begun.id})
        self._keep_open(begun, is_new=held is None)

    def _planned(self, connection: Connection, event: Plan) -> None:
        opened = self._open[event.episode_id]
        connection.execute(_INSERT[plan], mapping.plan_row(event, self.store.now()))
        opened.progress = opened.progress.add_plan(event)

    def _turn_started(self, connection: Connection, event: TurnStarted) -> None:
        prompt = mapping.prompt_text(event.messages)
        if event.kept_as is not None:  # the call in vain becomes a turn of its own
            for move in _MOVE:
                connection.execute(move, {**_place(event), "to": event.kept_as})
        is_new = self._open[event.episode_id].is_new
        held = None if is_new else connection.execute(_HELD, _place(event)).first()
        if held is not None:
            if held.stage == "finished":
                raise StoreError(f"Turn {event.index + 1} of episode {event.episode_id} is already finished.")
            wanted = ("replied", event.decision.model, event.decision.role, prompt)
            if wanted == (held.stage, held.model, held.role, held.prompt or ""):
                return  # resumed: the reply that is already stored will be used
            for forget in _FORGET:
                connection.execute(forget, _place(event))
        row = mapping.asked_row(event.episode_id, event.index, event.decision, self.store.now())
        if held is not None and held.charged:  # it was paid for in vain
            row |= {"cost_usd": held.charged, "unread_usd": held.charged}
        connection.execute(_INSERT[turn], row)
        if rows := mapping.text_rows(event.episode_id, event.index, {"prompt": prompt}):
            connection.execute(_INSERT[text], rows)
        if rows := mapping.state_rows(event.episode_id, event.index, event.decision):
            connection.execute(_INSERT[state], rows)

    def _delta(self, event: Delta) -> None:
        """Keep the growing text for readers, a few times a second; the whole reply replaces it."""
        opened = self._open.get(event.episode_id)
        if opened is None:
            return
        opened.partial += event.text
        at = self.store.now()
        if at - opened.partial_at < PARTIAL_S:
            return
        opened.partial_at = at
        row = {"episode_id": event.episode_id, "idx": event.index, "kind": "partial", "body": opened.partial}
        with writing(self.store.engine) as connection:
            connection.execute(_FORGET_PARTIAL, _place(event))
            connection.execute(_INSERT[text], row)

    def _replied(self, connection: Connection, event: Replied) -> None:
        row = mapping.replied_row(event.reply)
        row |= {f"new_{name}": row.pop(name) for name in _PAID}
        if connection.execute(_REPLY, {**_place(event), **row}).rowcount != 1:
            raise StoreError(
                f"Turn {event.index + 1} of episode {event.episode_id} is finished or never began."
            )
        opened = self._open[event.episode_id]
        if opened.partial or not opened.is_new:
            connection.execute(_FORGET_REPLY, _place(event))
        if rows := mapping.text_rows(event.episode_id, event.index, mapping.reply_texts(event.reply)):
            connection.execute(_INSERT[text], rows)

    def _turn(self, connection: Connection, event: Turn) -> None:
        opened = self._open[event.episode_id]
        changed = connection.execute(_FINISH, {**_place(event), **mapping.finished_row(event)})
        if changed.rowcount != 1:
            raise StoreError(f"Turn {event.index + 1} of episode {event.episode_id} has no stored reply.")
        opened.progress = opened.progress.add(opened.models, event)
        opened.partial, opened.partial_at = "", 0.0

    def _episode_finished(self, connection: Connection, ended: Episode) -> None:
        held = connection.execute(_EPISODE, {"of": ended.id}).first()
        # Deciders may have been chosen by a person, meanwhile.
        ended = replace(ended, deciders=(held.deciders if held else None) or {})
        row = {"of": ended.id, **mapping.outcome_row(ended), "finished": self.store.now()}
        changed = connection.execute(_END, row)
        if changed.rowcount != 1:
            raise _is_finished(ended.id)
        self._open.pop(ended.id, None)

    def _seen(self, connection: Connection, episode_id: str) -> _OpenEpisode:
        """The open episode; one that is resumed is read back first."""
        if episode_id not in self._open:
            found = next(read_episodes(connection, [episode_id]), None)
            if found is None:
                raise StoreError(f"Episode {episode_id} was never started in this store.")
            if found.status is Status.FINISHED:
                raise _is_finished(episode_id)
            connection.execute(_RESUME, {"of": episode_id})
            self._keep_open(found)
        return self._open[episode_id]

    def _keep_open(self, known: Episode, *, is_new: bool = False) -> None:
        progress = EpisodeProgress.over(known.models, known.turns, known.plans)
        self._open[known.id] = _OpenEpisode(known.run_id, known.models, progress, is_new)


def _is_paid(event: Event, may_cost: bool) -> bool:
    """Whether it holds a reply that cost money, or may have: what a table recorded was paid for long ago."""
    reply = event.reply if isinstance(event, Replied | Plan | Judgement) else None
    if reply is None or reply.recorded is not None:
        return False
    return may_cost if reply.usage.charged_usd is None else reply.usage.charged_usd != 0


def _is_finished(episode_id: str) -> StoreError:
    return StoreError(f"Episode {episode_id} is finished and never changes: play the task in a new run.")


def _judged(connection: Connection, event: Judgement, at: float) -> None:
    connection.execute(_INSERT[judgement], mapping.judgement_row(event, at))
    if event.rating is not None:
        place = {"of": event.episode_id, "place": event.index, "right": event.rating >= PASS_MARK}
        connection.execute(_SETTLE, place)


# Statements, made once: making them takes longer than running them. `of` is an episode, `place` the index of its turn.


def _place(event: TurnStarted | Delta | Replied | Turn) -> dict[str, Any]:
    return {"of": event.episode_id, "place": event.index}


def _here(table: Table) -> ColumnElement[bool]:
    return at_turn(table, bindparam("of"), bindparam("place"))


_INSERT = {table: insert(table) for table in (episode, plan, judgement, turn, text, state)}
_THIS = episode.c.id == bindparam("of")
_EPISODE = select(episode.c.status, episode.c.deciders).where(_THIS)
_RESUME = update(episode).where(_THIS).values(status=Status.RUNNING, end_reason=None, finished=None)
_PROGRESS = update(episode).where(_THIS)
_END = update(episode).where(_THIS, episode.c.status != Status.FINISHED)
#: What a turn has cost that failed, so that it is asked anew.
_CHARGED = case(
    (turn.c.error_kind == "infrastructure", func.coalesce(turn.c.cost_usd, turn.c.at_most_usd, 0.0)),
    else_=0.0,
)
_HELD = (
    select(turn.c.stage, turn.c.model, turn.c.role, text.c.body.label("prompt"), _CHARGED.label("charged"))
    .outerjoin(text, same_turn(text) & (text.c.kind == "prompt"))
    .where(_here(turn))
)
_FORGET = [delete(table).where(_here(table)) for table in (turn, text, state)]
_MOVE = [update(table).where(_here(table)).values(idx=bindparam("to")) for table in (turn, text, state)]
_FORGET_PARTIAL = delete(text).where(_here(text), text.c.kind == "partial")
_FORGET_REPLY = delete(text).where(_here(text), text.c.kind != "prompt")
_PAID = ("cost_usd", "at_most_usd", "unread_usd")
# Of a turn that is asked anew after its episode went missing: what it has cost before was spent in vain.
_REPLY = (
    update(turn)
    .where(_here(turn), turn.c.stage != "finished")
    .values({name: bindparam(f"new_{name}", type_=Float) + _CHARGED for name in _PAID})
)
#: A turn that a fork has by hand stands before its answer is rated.
_SETTLE = (
    update(turn)
    .where(_here(turn), turn.c.stage == "finished", turn.c.correct_after.is_(None))
    .values(correct_after=bindparam("right"))
)
_FINISH = update(turn).where(_here(turn), turn.c.stage == "replied")
