"""Plays the requests of an endpoint: one thread, one loop, all of them side by side and each on its own terms.

Decisions that wait are made in one forward pass, and a slow model holds up its own request and no other. Every event is
in the store before whoever asked hears of it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Unpack

from sqlalchemy import Connection

from core.conduct.session import Planner
from core.episode import (
    ROLE_ORDER,
    Ask,
    Decide,
    Decision,
    Delta,
    EndReason,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Failure,
    Grade,
    PendingVerdict,
    Plan,
    Replied,
    Reply,
    Role,
    Status,
    TurnStarted,
    episode_of,
)
from core.errors import StoreError, TrinityError
from core.finish import NOT_ACCEPTED, TOO_LONG
from core.play.drive import drive_arriving
from core.play.policies import Policy, StepMasks, WrappedPolicy, decide_each
from core.play.private import without_texts
from core.play.session import NOT_ASKED
from core.pool.circuits import Circuits
from core.pool.pool import Pool
from core.pool.spec import ModelSpec, digest_of_specs
from storage.recorder import Recorder, heartbeats
from storage.rows.summaries import RunStatus
from storage.shelves.endpoint import Quota
from storage.store import Store
from ui.endpoint.conversation import Asked
from ui.endpoint.formats import Fitting
from ui.endpoint.ledger import Books, Ceiling, Ledger, OwnBooks, Sender
from ui.endpoint.schema_checks import CHECKING, Undecided
from ui.runs.lease import finish, owner
from ui.runs.plans import ServePlan
from ui.runs.queue import Ticket, enqueue
from ui.runs.spending import paid_models

log = logging.getLogger(__name__)

#: So much is told of what is wrong with the form of an answer, in characters.
LONGEST_FAULT = 500


@dataclass(eq=False)
class Order:
    """A request to be played. `deadline` is on the monotonic clock; `tell` hears each event after it is stored, and at
    the end None, from the thread that plays; the pieces of a stream it hears from others, and before."""

    episode: Episode
    policy: Policy
    asked: Asked
    tell: Callable[[Event | None], None]
    deadline: float
    sender: Sender
    max_cost_usd: float | None = None
    keep_texts: bool = True
    streams: bool = False  # it is also told the pieces of each reply as they come
    turn: int = 0  # that is played
    asked_for: dict[int, str] = field(default_factory=dict)  # by turn, the model that is asked
    last_step: int | None = None  # the last turn of a workflow after which no other is written
    deciding_s: float = 0.0  # so far, of all its decisions
    recording_s: float = 0.0  # so far, of all its events that are stored
    recording_since: float = 0.0  # on the clock of `time.perf_counter`: since then an event is being stored
    fitting: tuple[str, Fitting] | None = None  # an answer whose form was checked, and how it came out
    cancelled: bool = False
    ceiling: Ceiling | None = None  # which one ended it
    anew_s: float = 0.0  # in so many seconds that one begins anew; 0: it does not
    fault: TrinityError | None = None  # why it was not played to its end: the store or the cluster failed


@dataclass
class _Inbox:
    """Orders on their way to the thread that plays."""

    arrived: SimpleQueue[Order | None] = field(default_factory=SimpleQueue)
    wake: Callable[[], None] = lambda: None
    closed: bool = False

    def take(self, wait: bool) -> Episode | None:
        """The next order's episode; None when there is none now, or no more will come."""
        while not self.closed:
            try:
                order = self.arrived.get(block=wait)
            except Empty:
                return None
            if order is not None:
                return order.episode
        return None

    def watch(self, wake: Callable[[], None]) -> None:
        """Call this whenever something came."""
        self.wake = wake

    def put(self, order: Order | None) -> None:
        """Hand over an order, or None to have the thread look around."""
        self.arrived.put(order)
        self.wake()


@dataclass(frozen=True)
class _Permitted(Policy):
    """The policy of all requests together, which lets each choose only what its order permits."""

    id: str
    models: tuple[str, ...]
    orders: dict[str, Order]
    lock: threading.Lock
    circuits: Circuits

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """The decisions of the orders' policies about the models and roles that each request may choose."""
        began = time.perf_counter()
        asked = [self._masked(request) for request in requests]
        with self.lock:
            found = decide_each(asked, [self.orders[request.episode_id].policy for request in requests])
        took_s = time.perf_counter() - began  # each of them has waited for all
        for request in requests:
            self.orders[request.episode_id].deciding_s += took_s
        return found

    def policy_for(self, episode: Episode) -> Policy:
        """Whoever writes this episode's workflows, which keeps to its order by itself; else this policy."""
        own = self.orders[episode.id].policy
        return _Rested(own, self.circuits) if own.rounds else self

    def _masked(self, request: Decide) -> Decide:
        order = self.orders[request.episode_id]
        episode = order.episode
        allowed = request.model_mask or (True,) * len(episode.models)
        closed = [not self.circuits.is_open(model) for model in episode.models]
        mask = tuple(one and other for one, other in zip(allowed, closed, strict=True))
        able = {*order.policy.choices()}
        if not any(one and model in able for model, one in zip(episode.models, mask, strict=True)):
            mask = tuple(request.model_mask)  # better a try than nobody
        answered = any(entry.role is Role.WORKER and entry.text for entry in request.transcript.entries)
        left = episode.turn_budget - request.index
        may: Sequence[Role] = ROLE_ORDER
        if order.asked.tools.must_call:
            # A call would have ended it: there is nothing to judge, and a Worker is asked at least twice.
            may = (Role.WORKER,) if left <= 2 else (Role.WORKER, Role.THINKER)
        elif left == 1 and not answered:
            may = (Role.WORKER,)  # whoever asks gets an answer
        own = request.role_mask or (True,) * len(ROLE_ORDER)
        roles = tuple(role in may and one for role, one in zip(ROLE_ORDER, own, strict=True))
        return replace(
            request, model_mask=() if all(mask) else mask, role_mask=() if all(roles) else roles or own
        )


@dataclass(eq=False)
class _Rested(WrappedPolicy):
    """A planner whose steps are left to other models where a model's circuit is open."""

    circuits: Circuits

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[StepMasks]
    ) -> Generator[Any, Any, Episode]:
        """As the planner's own."""
        assert isinstance(self.inner, Planner)
        masks["resting"] = self.circuits.is_open
        return self.inner.conduct(episode, specs, **masks)


class Engine:
    """Plays orders in a thread of its own, as one run of the store. Made and closed by whoever serves. `books`: those
    that its ceiling and quotas are kept over, where another process has them."""

    def __init__(
        self,
        store: Store,
        plan: ServePlan,
        pool: Pool,
        *,
        max_cost_usd: float | None = None,
        quotas: Mapping[str, Quota] | None = None,
        books: Books | None = None,
    ) -> None:
        self.deciding = threading.Lock()  # encoders are used by one thread at a time
        self._store, self._plan, self._pool = store, plan, pool
        by_name = {spec.name: spec for spec in pool.specs}
        self._models = by_name.keys()
        self.circuits = Circuits()
        self._ledger = Ledger(by_name, books or OwnBooks.of(store, plan.pool, max_cost_usd, quotas), store)
        self._orders: dict[str, Order] = {}
        self._unstored: set[str] = set()  # whose reply is not yet stored
        self._lock = threading.Lock()
        self._inbox: _Inbox | None = None
        self._thread: threading.Thread | None = None
        self.run = ""  # that requests are recorded in; empty before the first
        self._number = 0
        self._fault: TrinityError | None = None  # why the last run ended: the store or the cluster failed

    @property
    def in_progress(self) -> int:
        """How many requests are being played, or wait to be."""
        return len(self._orders)

    @property
    def is_open(self) -> bool:
        """Whether a run is under way, to which the next request belongs."""
        return self._inbox is not None and not self._inbox.closed

    def admit(self, sender: Sender) -> Ceiling | None:
        """Count one more request; where a limit by day or month is used up, it instead."""
        return self._ledger.admit(sender)

    def new_place(self) -> tuple[str, int]:
        """The run and the place in it of the next request. The first one begins a run."""
        with self._lock:
            if not self.is_open:
                self._start()
            self._number += 1
            return self.run, self._number - 1

    def submit(self, order: Order) -> None:
        """Play it. What comes of it is told to `order.tell`."""
        self._orders[order.episode.id] = order
        inbox = self._inbox
        if inbox is not None and order.episode.run_id == self.run:
            inbox.put(order)
        if inbox is None or inbox.closed or order.episode.run_id != self.run:  # it broke meanwhile
            self._drop(order)

    def look(self, cancelled: str = "") -> None:
        """Have the thread look who is out of time, and end the request that is `cancelled` before its next call; a call
        over a network is broken off."""
        if self._inbox is not None:
            if (order := self._orders.get(cancelled)) is not None:
                order.cancelled = True
            self._inbox.put(None)

    def close(self) -> None:
        """End all requests and the run; waits until that is written down."""
        with self._lock:
            inbox, thread = self._inbox, self._thread
            if inbox is None or thread is None:
                return
            for order in [*self._orders.values()]:
                order.cancelled = True
            inbox.closed = True
            inbox.put(None)
        thread.join(timeout=30.0)

    def _start(self) -> None:
        run, _ = enqueue(self._store, self._plan, Ticket(), owner=owner())
        self._store.runs.note_pool(run, digest_of_specs(self._pool.specs))
        self.run, self._number, self._inbox, self._fault = run, 0, _Inbox(), None
        self._thread = threading.Thread(
            target=self._play, args=(run, self._inbox), name="endpoint", daemon=True
        )
        self._thread.start()

    def _drop(self, order: Order) -> None:
        """Play it no further; whoever asked is told, once."""
        if self._orders.pop(order.episode.id, None) is not None:
            order.fault = self._fault
            order.tell(None)

    def _play(self, run: str, inbox: _Inbox) -> None:
        """The thread: play until closed. A fault ends the requests at hand and the run; the next request begins
        another."""
        status, error = RunStatus.FINISHED, None
        try:
            with heartbeats(self._store, run, owner()):
                self._serve(inbox)
        except TrinityError as fault:
            self._fault = fault
            status, error = RunStatus.INTERRUPTED, str(fault)
            log.error("The endpoint stopped: %s", fault)
        except Exception as fault:
            status, error = RunStatus.INTERRUPTED, f"It broke off: {type(fault).__name__}."
            log.exception("The endpoint broke off")
        finally:
            inbox.closed = True
            for order in [*self._orders.values()]:
                if order.episode.run_id == run:
                    self._drop(order)
            with contextlib.suppress(TrinityError):  # last: it waits for a store that is locked
                finish(self._store, run, status, error)

    def _serve(self, inbox: _Inbox) -> None:
        models = tuple(spec.name for spec in self._pool.specs)
        may_cost = bool(paid_models(self._pool.specs))
        recorder = Recorder(self._store, owner(), self._kept, self._note, may_cost)
        events = drive_arriving(
            inbox.take,
            _Permitted("endpoint", models, self._orders, self.deciding, self.circuits),
            self._pool,
            self._grade,
            stop=self._reason,
            terms=self._terms,
            watch=inbox.watch,
            give_up=self._reason,
            hear=self._hear,
            served=True,
            settle=partial(self._settle, recorder),
            stops=(StoreError,),  # who asked for what cannot be played is one of many
        )
        for event in events:
            recorder.add(event)

    def _settle(self, recorder: Recorder) -> list[tuple[Event, Exception]]:
        """Store what calls can cost that are about to be made, and all that happened, which is then told."""
        self._ledger.begin()
        return recorder.settle(self._tell)

    def _tell(self, event: Event) -> None:
        """Book what was stored and tell it; a fault in that ends the one request."""
        try:
            self._heard(event)
        except TrinityError:
            raise
        except Exception:
            self._fell_silent(episode_of(event))

    def _grade(self, grades: Sequence[Grade]) -> list[bool | Failure | PendingVerdict]:
        """Whether answers have the form that was asked for: where that has to be checked, elsewhere. Nobody knows
        which are right."""
        return [self._form(grade) if grade.form_of else False for grade in grades]

    def _form(self, grade: Grade) -> bool | PendingVerdict:
        order = self._orders[grade.form_of]
        return (
            True if order.asked.answer_format is None else CHECKING.submit(_form_fault, order, grade.answer)
        )

    def _kept(self, event: Event) -> Event | None:
        """The event as the store may know it."""
        if isinstance(event, Replied | Plan):
            self._unstored.add(episode_of(event))
        order = self._orders[episode_of(event)]
        order.recording_since = time.perf_counter()
        return event if order.keep_texts else without_texts(event, self._store.now())

    def _note(self, connection: Connection, event: Event) -> None:
        """Store together with an episode's beginning who asked, with a reply what it costs, and with its end how long
        deciding and recording took: all but committing just that."""
        name = episode_of(event)
        order = self._orders[name]
        if isinstance(event, EpisodeStarted):
            sender, asked = order.sender, order.asked
            key = sender.key.id if sender.key else None
            self._store.endpoint.note(name, key, asked.door, asked.model, connection, at=sender.at)
        elif isinstance(event, EpisodeFinished):
            recording_s = order.recording_s + time.perf_counter() - order.recording_since
            self._store.endpoint.note_times(name, order.deciding_s, recording_s, connection)
        elif isinstance(event, Replied | Plan):
            self._ledger.charge(name, getattr(event, "index", None), event.reply, connection)

    def _fell_silent(self, name: str) -> None:
        """End a request of which nobody can be told; called where the fault was caught."""
        log.exception("Request %s broke off where it was told what happened, the others go on", name)
        if (order := self._orders.get(name)) is not None:
            order.cancelled = True
            with contextlib.suppress(Exception):
                order.tell(None)

    def _heard(self, event: Event) -> None:
        """Book what was stored, and tell it."""
        name = episode_of(event)
        over = isinstance(event, EpisodeFinished)
        if isinstance(event, Replied | Plan):
            self._unstored.discard(name)
            sender = self._orders[name].sender
            self._ledger.replied(name, sender, getattr(event, "index", None), event.reply)
        elif isinstance(event, EpisodeFinished):
            # Its server could not be asked, where no reply is missing that was paid for and could not be stored. Of a
            # workflow that is told; what is under way then are other steps, which are given up.
            failed = event.episode.status is Status.MISSING and name not in self._unstored
            failed = failed and not self._orders[name].policy.rounds
            self._ledger.over(name, failed=failed)
            self._unstored.discard(name)
        order = self._orders.pop(name) if over else self._orders[name]
        now = time.perf_counter()
        order.recording_s += now - order.recording_since
        order.recording_since = now  # an event that was stored with this one took no more
        if isinstance(event, TurnStarted):
            order.turn = event.index
            order.asked_for[event.index] = event.decision.model
            self.circuits.asked(event.decision.model)
        elif isinstance(event, Replied):
            self._note_reply(order.asked_for[event.index], event.reply)
        elif isinstance(event, Plan):
            if event.workflow is not None and order.policy.rounds == 1:
                order.last_step = len(event.workflow) - 1
            if event.planner in self._models:
                self._note_reply(event.planner, event.reply)
        try:
            order.tell(event)
        finally:
            if over:
                order.tell(None)

    def _hear(self, ask: Ask) -> Callable[[str], None] | None:
        """Who is told a reply's text as it comes: whoever asked for a stream. It is not stored before it is whole."""
        order = self._orders.get(ask.episode)
        if order is None or not order.streams:
            return None
        # Steps of a workflow are asked side by side.
        is_step = order.policy.rounds > 0 and order.asked_for.get(ask.sample) == ask.model
        turn = ask.sample if is_step else order.turn
        live = ask.live or (is_step and turn == order.last_step and _is_answer(ask))
        return lambda piece: order.tell(Delta(ask.episode, turn, piece, live))

    def _note_reply(self, model: str, reply: Reply) -> None:
        """Note whether a model could be asked. That a request is too long for it, or that its server does not take it
        as it is, says nothing of the others."""
        if reply.finish_reason in (TOO_LONG, NOT_ACCEPTED) or reply == NOT_ASKED:
            return
        if reply.error is not None and reply.error.kind == "infrastructure":
            self.circuits.failed(model)
        elif not reply.reused:
            self.circuits.replied(model)

    def _reason(self, episode: Episode) -> EndReason | None:
        """Why an episode shall end now; None when it shall not."""
        order = self._orders[episode.id]
        if order.cancelled:
            return EndReason.CANCELLED
        return EndReason.DEADLINE if time.monotonic() >= order.deadline else None

    def _terms(self, episode: Episode, ask: Ask) -> Ask | EndReason:
        order = self._orders[episode.id]
        asked = order.asked
        if asked.temperature is not None:
            ask = replace(ask, temperature=asked.temperature)
        if ask.role is Role.WORKER:
            own = next(spec.max_tokens for spec in self._pool.specs if spec.name == ask.model)
            tokens = ask.max_tokens if asked.max_tokens is None else min(own, asked.max_tokens)
            ask = replace(ask, max_tokens=tokens, tools=asked.tools.tools, must_call=asked.tools.must_call)
            if asked.answer_format is not None:
                ask = replace(ask, answer_format=asked.answer_format.sent)
        elif any("tool_calls" in one.beside for one in ask.messages):
            # Some servers want to know the tools again.
            ask = replace(ask, tools=asked.tools.tools, may_call=False)
        images = {one.sha256: one.data for one in asked.images if one.data}
        ask = replace(ask, top_p=asked.top_p, images=images, live=order.streams and _is_last(episode, ask))
        allowed = self._ledger.allows(episode.id, order.sender, ask, order.max_cost_usd)
        if isinstance(allowed, Ceiling):
            order.ceiling, order.anew_s = allowed, allowed.left_s(self._store.now())
            return EndReason.COST_CEILING
        return allowed


def _is_last(episode: Episode, ask: Ask) -> bool:
    """Whether a reply's text is the answer, whatever it says: a Worker's, after which no turn is left."""
    counted = sum(turn.counts for turn in episode.turns)
    return _is_answer(ask) and counted >= episode.turn_budget - 1 and not episode.plans


def _is_answer(ask: Ask) -> bool:
    """Whether a reply, where it is the last one, can go out as it comes: text that has to be checked first cannot."""
    return ask.role is Role.WORKER and not ask.answer_format and not ask.must_call


def _form_fault(order: Order, answer: str) -> bool | Failure:
    """True for an answer that has the form, or of which nobody can tell in time; else what is wrong with it. What was
    found is kept with the order."""
    assert order.asked.answer_format is not None
    try:
        fitting = order.asked.answer_format.read(answer)
    except Undecided:
        return True
    order.fitting = answer, fitting
    return True if fitting.text is not None else Failure("model", fitting.fault[:LONGEST_FAULT])
