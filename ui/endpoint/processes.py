"""Several processes that serve one port, and the one that starts them: it keeps the books of all, takes note of who
dies and replaces it.

Each of them has its own engine, and its own run in the store; over a line to the first process it asks whether a
request or a call still fits the limits, so that no two take the last place. When a process dies, what it had stored is
booked, and so is the most that its calls under way could cost, as when a server of one process is started again."""

from __future__ import annotations

import logging
import multiprocessing
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from core.errors import ConfigError, StoreError, TrinityError
from ui.endpoint.ledger import Ceiling, OwnBooks, Sender
from ui.runs.lease import mark_dead, owner

log = logging.getLogger(__name__)

#: One that lived for less than SHORT_S is replaced only after PAUSE_S.
SHORT_S, PAUSE_S = 5.0, 2.0
#: So long they may take to end what is under way before they are killed.
END_S = 45.0
#: How often they look whether the first process is still there.
LOOK_S = 1.0
#: What ends the server.
HEARD = (signal.SIGINT, signal.SIGTERM)
#: A forked process shares what is imported and starts at once; elsewhere than on Linux system libraries do not bear it.
METHOD = "fork" if sys.platform == "linux" else "spawn"


class Serve(Protocol):
    """Serves on a socket until SIGTERM. `slot`: its number, from 0; `first`: it is the one that says what is served. It
    can be pickled."""

    def __call__(self, listener: socket.socket, books: SharedBooks, *, slot: int, first: bool) -> None: ...


@dataclass(eq=False)
class SharedBooks:
    """The books that the first process keeps (`ui.endpoint.ledger.Books`), and the line to it."""

    line: Connection
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, sender: Sender) -> Ceiling | None:
        """See `Books`."""
        answer: Ceiling | None = self._ask("admit", sender)
        return answer

    def hold(
        self, episode: str, sender: Sender, sample: int, bound: float, most: float | None
    ) -> float | Ceiling | None:
        """See `Books`."""
        answer: float | Ceiling | None = self._ask("hold", episode, sender, sample, bound, most)
        return answer

    def book(self, episode: str, sender: Sender, sample: int | None, usd: float, tokens: int) -> None:
        """See `Books`."""
        self._tell("book", episode, sender, sample, usd, tokens)

    def over(self, episode: str, usd: float) -> None:
        """See `Books`."""
        self._tell("over", episode, usd)

    def ready(self) -> None:
        """All is loaded: this process begins to serve."""
        self._tell("ready")

    def _ask(self, what: str, *about: object) -> Any:
        with self._lock:
            try:
                self.line.send((what, about))
                answer = self.line.recv()
            except (OSError, EOFError):
                raise _alone() from None
        if isinstance(answer, TrinityError):
            raise answer
        return answer

    def _tell(self, what: str, *about: object) -> None:
        with self._lock:
            try:
                self.line.send((what, about))
            except OSError:
                raise _alone() from None


def _alone() -> StoreError:
    return StoreError("The process that keeps the endpoint's limits is gone: start trinity serve again.")


@dataclass(eq=False)
class _Serving:
    """A process that serves, or gets ready to. `episodes`: those that it plays and that room is kept for."""

    slot: int
    process: BaseProcess
    line: Connection
    began: float = field(default_factory=time.monotonic)
    ready: bool = False
    episodes: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Processes:
    """As many processes as there are `listeners`, which all `serve`, until a signal. `started` is called once, when the
    first of them serves."""

    serve: Serve
    listeners: Sequence[socket.socket]
    books: OwnBooks
    started: Callable[[], None]
    _serving: dict[int, _Serving] = field(default_factory=dict)  # by slot
    _due: dict[int, float] = field(default_factory=dict)  # slot -> when it is filled, monotonic
    _known: set[int] = field(default_factory=set)  # slots that have served
    _selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)
    _signals: list[int] = field(default_factory=list)
    _until: float = 0.0  # when those that end are killed, monotonic; 0: nobody shall end
    _fault: str = ""

    def run(self) -> bool:
        """Serve until a signal; False when a process could not start, and has said why. ConfigError when it could not
        say it."""
        try:
            with self._hearing_signals():
                self._start(0, first=True)
                while self._serving or (self._due and not self._until):
                    self._go_on()
        finally:
            for one in self._serving.values():
                one.process.kill()
                one.process.join()
            for listener in self.listeners:
                listener.close()
            self._selector.close()
        if self._fault:
            raise ConfigError(self._fault)
        return bool(self._signals)

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        """Signals wake the loop and interrupt nothing: those that serve need the books to the end."""
        woken, waking = socket.socketpair()
        for one in (woken, waking):
            one.setblocking(False)
        before = {
            number: signal.signal(number, lambda sent, _: self._signals.append(sent)) for number in HEARD
        }
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        self._selector.register(woken, selectors.EVENT_READ, lambda: woken.recv(4096))
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            woken.close()
            waking.close()

    def _go_on(self) -> None:
        """Answer who asks, replace who died, end all where that is wanted."""
        now = time.monotonic()
        ends = [self._until] if self._until else [*self._due.values()]
        wait_s = max(0.0, min(ends) - now) if ends else None
        for key, _ in self._selector.select(wait_s):
            key.data()
        if self._signals and not self._until:
            self._end()
        now = time.monotonic()
        if self._until and (len(self._signals) > 1 or now >= self._until):
            for one in self._serving.values():
                one.process.kill()
        for slot in [slot for slot, at in self._due.items() if at <= now and not self._until]:
            del self._due[slot]
            self._start(slot)

    def _end(self) -> None:
        """Have all end what is under way; nothing new is accepted."""
        self._until = time.monotonic() + END_S
        for listener in self.listeners:
            listener.close()
        for one in self._serving.values():
            one.process.terminate()

    def _start(self, slot: int, *, first: bool = False) -> None:
        self.books.store.engine.dispose()  # no process may inherit a connection
        context = multiprocessing.get_context(METHOD)
        ours, theirs = context.Pipe()
        own = self.listeners[slot]
        others = [
            *(one.line for one in self._serving.values()),
            ours,
            *(one for one in self.listeners if one is not own),
        ]
        process = context.Process(  # type: ignore[attr-defined]
            target=_serve,
            args=(self.serve, own, theirs, others if METHOD == "fork" else [], os.getpid(), slot, first),
            name=f"endpoint {slot + 1}",
        )
        # Until it hears them in its own way, signals wait for it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        one = self._serving[slot] = _Serving(slot, process, ours)
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._hear(one))
        self._selector.register(process.sentinel, selectors.EVENT_READ, lambda: self._ended(one))

    def _hear(self, one: _Serving) -> bool:
        """Do what a process asks by its line; False when it says no more."""
        if one.line.closed:  # its end was noticed at the same time
            return False
        try:
            what, about = one.line.recv()
        except (EOFError, OSError):
            with suppress(KeyError):  # the first time that it is noticed
                self._selector.unregister(one.line)
            return False
        match what:
            case "ready":
                self._is_ready(one)
            case "admit" | "hold":
                if what == "hold":
                    one.episodes.add(about[0])
                try:
                    answer = getattr(self.books, what)(*about)
                except TrinityError as fault:
                    answer = fault
                with suppress(OSError):  # it is just dying
                    one.line.send(answer)
            case "book":
                one.episodes.add(about[0])
                self.books.book(*about)
            case "over":
                self.books.over(*about)
                one.episodes.discard(about[0])
        return True

    def _is_ready(self, one: _Serving) -> None:
        one.ready = True
        self._known.add(one.slot)
        if len(self._known) == 1 and one.slot not in self._due and len(self._serving) == 1:
            self.started()
            self._due |= dict.fromkeys(range(1, len(self.listeners)), 0.0)

    def _ended(self, one: _Serving) -> None:
        """Book what a process stored and free what it held; another takes its place, unless all shall end."""
        one.process.join()
        while self._hear(one):
            pass  # what it said last
        self._selector.unregister(one.process.sentinel)
        one.line.close()
        del self._serving[one.slot]
        try:
            self.books.recover(one.episodes)
            mark_dead(self.books.store)
        except TrinityError as error:
            log.warning("What a process of the endpoint left could not be settled: %s", error)
        if self._until:
            return
        code = one.process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        if one.slot not in self._known:
            if code < 0:
                self._fault = (
                    f"A process of the endpoint ended as it started ({how}): if memory is short, serve with fewer "
                    "--processes."
                )
            self._end()
            return
        log.warning("A process of the endpoint ended (%s); another takes its place.", how)
        short = time.monotonic() - one.began < SHORT_S
        self._due[one.slot] = time.monotonic() + (PAUSE_S if short else 0.0)


def _serve(
    serve: Serve,
    listener: socket.socket,
    line: Connection,
    others: Sequence[Connection | socket.socket],
    parent: int,
    slot: int,
    first: bool,
) -> None:
    """A process that serves, from its beginning to its end. `others`: what it inherited and is not its own."""
    for other in others:
        other.close()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is heard by the first process, which passes it on
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    owner.cache_clear()
    threading.Thread(target=_leave_with, args=[parent], name="endpoint's end", daemon=True).start()
    try:
        serve(listener, SharedBooks(line), slot=slot, first=first)
    except TrinityError as error:
        print(f"trinity: {error}", file=sys.stderr)
        sys.exit(1)


def _leave_with(parent: int) -> None:
    """End in order when the first process is gone without a word."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_S)
    os._exit(1)


def bound_sockets(host: str, port: int, number: int) -> list[socket.socket]:
    """So many sockets for one address. On Linux each has connections of its own, which are spread evenly; elsewhere it
    is one, from which whoever is free takes them. ConfigError where that is not possible."""
    if sys.platform == "win32":
        raise ConfigError("On Windows one process serves alone: leave --processes out.")
    spread = sys.platform == "linux"
    found = []
    for _ in range(number if spread else 1):
        one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        found.append(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if spread:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if ":" in host:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            for other in found:
                other.close()
            raise ConfigError(f"Nothing can listen on port {port} of {host}: {error.strerror}.") from None
    return found if spread else found * number
