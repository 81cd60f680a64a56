"""Callers in actors, which try models over HTTP, and this process's hold on them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import count
from typing import Any

from core.cluster.joining import START_S, reason_of, this_program
from core.cluster.logs import WHOSE, Collected, Fault, Said, tell
from core.cluster.workers import other_program
from core.episode import Failure
from core.errors import ConfigError, PoolError
from core.pool.client import CallFailed, Client, Limits, Progress, infrastructure
from core.pool.costs import UNCOUNTED
from core.pool.spec import ModelSpec
from core.pool.wire import Completion
from core.processes import set_aside

log = logging.getLogger(__name__)

#: The number of a try, its model, its body, and the episode that it is of.
Try = tuple[int, str, Mapping[str, Any], str]
#: A caller tells what came at least so often; one that is silent for so long hangs, and is started again. In seconds.
TOLD_S, SILENT_S = 2.0, 20.0
#: Pieces of streamed texts are told together when the first has waited for so long, in seconds: a message costs this
#: process far more than a piece, and nobody reads faster.
PIECES_S = 0.05
#: So long after one try a lost caller is looked for again, in seconds.
AGAIN_S = 1.0
#: A cluster that is there and starts nobody again who can ask is given up after so long, in seconds.
STARTED_S = 120.0


class Caller:
    """In an actor: tries models over HTTP, many side by side. Keys are those of its own machine's environment."""

    def __init__(self, specs: Sequence[ModelSpec], limits: Limits) -> None:
        from core.pool.hosted import clients_of

        self._clients: Mapping[str, Client] = {}
        self._fault = ""
        try:
            self._clients = clients_of(specs, os.environ, limits)
        except PoolError as error:
            self._fault = f"{error} This is on the machine {socket.gethostname()} of the cluster."
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._came: list[tuple[int, Any]] = []
        self._some = asyncio.Event()
        self._logged = Collected.installed()
        set_aside()

    async def about(self) -> tuple[int, tuple[str, str], str]:
        """Its process, what it runs, and why it can ask nobody (empty: it can)."""
        return os.getpid(), this_program(), self._fault

    async def begin(self, tries: Sequence[Try], given_up: Sequence[int]) -> None:
        """Begin tries and give up others."""
        for number in given_up:
            if (task := self._under_way.pop(number, None)) is not None:
                task.cancel()
        for number, model, body, episode in tries:
            context = copy_context()
            context.run(WHOSE.set, f"episode {episode}" if episode else "")
            task = asyncio.create_task(self._try(number, model, body), context=context)
            self._under_way[number] = task

    async def come(self) -> tuple[list[tuple[int, Any]], list[Said]]:
        """What came, by the numbers of the tries, waited for as long as TOLD_S: a piece of a text that is streamed; as
        the outcome a completion, the fields of a `CallFailed`, or a `Fault` of this program. And what was logged
        meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_S):
                await self._some.wait()
        self._some.clear()
        came, self._came = self._came, []
        return came, self._logged.taken()

    async def _try(self, number: int, model: str, body: Mapping[str, Any]) -> None:
        outcome: Any
        try:
            if self._fault:
                raise infrastructure(self._fault)
            on_piece = partial(self._stream, number) if body.get("stream") else lambda piece: None
            outcome = await self._clients[model].call(body, on_piece, Progress())
        except CallFailed as error:
            outcome = {one.name: getattr(error, one.name) for one in fields(error)}
        except Exception as fault:
            outcome = Fault.of(fault)
        finally:
            self._under_way.pop(number, None)
        self._came.append((number, outcome))
        self._some.set()

    def _stream(self, number: int, piece: str) -> None:
        if not self._came:
            asyncio.get_running_loop().call_later(PIECES_S, self._some.set)
        if self._came and self._came[-1][0] == number:
            piece = self._came.pop()[1] + piece
        self._came.append((number, piece))


@dataclass
class FarClient:
    """Tries one model from the cluster."""

    callers: Callers
    model: str

    async def call(
        self, body: Mapping[str, Any], on_piece: Callable[[str], None], progress: Progress
    ) -> Completion:
        """As `ChatClient.call`. A fault of this program there is raised here."""
        hold = await self.callers.free()
        progress.is_sent = True  # from here on nobody knows whether it is
        outcome = await self.callers.outcome(hold, self.model, body, progress.episode, on_piece)
        if isinstance(outcome, Completion):
            return outcome
        if isinstance(outcome, Fault):
            raise outcome.error()
        failure = outcome.pop("failure")
        raise CallFailed(failure, **outcome)

    async def aclose(self) -> None:
        self.callers.close()


class Callers:
    """All callers of one pool. They are lost and started again; what they had under way then is failed as an answer
    that broke off: its server may bill it, and it may be asked again."""

    def __init__(
        self, ray: Any, actors: Sequence[Any], note_lost: Callable[[], None], check: Callable[[], None]
    ) -> None:
        self._ray, self._numbers, self._check = ray, count(), check
        #: This process's hold on each.
        self.holds = [Hold(ray, actor, note_lost=note_lost) for actor in actors]
        try:
            told = self._ray.get([actor.about.remote() for actor in actors], timeout=START_S)
        except Exception as error:
            self.close()
            raise ConfigError(f"The cluster does not start its helpers: {reason_of(error)}") from error
        for hold, about in zip(self.holds, told, strict=True):
            hold.take(*about)
        self._refuse([hold for hold in self.holds if hold.fault])

    def _refuse(self, holds: Sequence[Hold]) -> None:
        """PoolError for callers that cannot ask."""
        if holds:
            self.close()
            raise PoolError(holds[0].fault)

    @property
    def up(self) -> int:
        """How many of them are there."""
        return sum(hold.is_there for hold in self.holds)

    @property
    def under_way(self) -> int:
        """Tries whose outcomes are waited for."""
        return sum(len(hold.waiting) for hold in self.holds)

    async def free(self) -> Hold:
        """The caller that has the least to do; while all are lost, one is waited for. PoolError where the cluster is
        gone, or none comes."""
        loop = asyncio.get_running_loop()
        until = loop.time() + STARTED_S
        self._check()
        while not (up := [hold for hold in self.holds if hold.is_there]):
            if loop.time() > until:
                raise PoolError(
                    f"The Ray cluster has started none of its helpers again for {STARTED_S:g} s: see that its machines "
                    "are well, then resume, or resume with --engine local."
                )
            if all(hold.fault for hold in self.holds):
                self._refuse(self.holds)
            await asyncio.sleep(0.1)
            self._check()
        return min(up, key=lambda one: len(one.waiting) / one.size)

    async def outcome(
        self,
        hold: Hold,
        model: str,
        body: Mapping[str, Any],
        episode: str = "",
        on_piece: Callable[[str], None] = lambda piece: None,
    ) -> Any:
        """What came of one try, as `Caller.come` says; `episode`: whose it is; `on_piece` is given a streamed text as
        it comes."""
        number = next(self._numbers)
        came = hold.begin(number, model, dict(body), episode, on_piece)
        try:
            return await came
        finally:
            if came.cancelled():
                hold.give_up(number)

    def close(self) -> None:
        """End them all."""
        for hold in self.holds:
            hold.close()


@dataclass(eq=False)
class Hold:
    """This process's hold on one `Caller`, within the loop that calls. `size`: what it can do beside others' share."""

    ray: Any
    actor: Any
    pid: int = 0
    size: int = 1
    fault: str = ""  # why it cannot ask
    waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    hearing: dict[int, Callable[[str], None]] = field(default_factory=dict)
    is_up: bool = True
    note_lost: Callable[[], None] = lambda: None
    _tries: list[Try] = field(default_factory=list)
    _given_up: list[int] = field(default_factory=list)
    _due: bool = False
    _listens: bool = False
    _closed: bool = False
    _life: int = 0  # which of its processes it is: what an earlier one says comes too late

    @property
    def is_there(self) -> bool:
        """Whether it takes tries."""
        return self.is_up and not self._closed

    def take(self, pid: int, program: tuple[str, str], fault: str) -> None:
        """Take note of what it says about itself."""
        self.pid, self.fault = pid, fault or other_program(program)

    def begin(
        self,
        number: int,
        model: str,
        body: Mapping[str, Any],
        episode: str,
        on_piece: Callable[[str], None],
    ) -> asyncio.Future[Any]:
        """Begin a try, together with others of this moment; its outcome will come, and before it perhaps pieces."""
        self._tries.append((number, model, body, episode))
        self._soon()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting[number], self.hearing[number] = future, on_piece
        future.add_done_callback(lambda _: self.hearing.pop(number, None))
        return future

    def give_up(self, number: int) -> None:
        """Nobody waits for this try any more."""
        if self.waiting.pop(number, None) is not None:
            self._given_up.append(number)
            self._soon()

    def close(self) -> None:
        """End it."""
        self._closed = True
        if (
            self.ray.is_initialized()
        ):  # a pool may be closed after the cluster was left, where Ray would crash
            with suppress(Exception):
                self.ray.kill(self.actor)

    def _soon(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._due = False
        # One that was failed before it was sent is asked again by whoever waited: it must not be sent as well.
        tries, self._tries = [one for one in self._tries if one[0] in self.waiting], []
        given_up, self._given_up = self._given_up, []
        if self._closed:
            return
        self.actor.begin.remote(tries, given_up)
        if self.waiting and not self._listens:
            self._listens = True
            self._listen(asyncio.get_running_loop())

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        asked, life = self.actor.come.remote().future(), self._life
        silent = loop.call_later(SILENT_S, self._hangs, loop)

        def told(_: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(take)

        def take() -> None:
            silent.cancel()
            if life != self._life:
                return
            try:
                came, said = asked.result()
            except Exception as error:
                self._lost(loop, reason_of(error))
                return
            self.is_up = True
            tell(said)
            for number, outcome in came:
                self._tell(number, outcome)
            self._listens = bool(self.waiting)
            if self._listens:
                self._listen(loop)

        asked.add_done_callback(told)

    def _tell(self, number: int, came: Any) -> None:
        """Tell whoever waits for a try what came of it: a piece of its text, or its outcome."""
        future = self.waiting.get(number)
        if future is None or future.done():
            self.waiting.pop(number, None)
        elif not isinstance(came, str):
            del self.waiting[number]
            future.set_result(came)
        else:
            try:
                self.hearing[number](came)
            except Exception as fault:  # it is the fault of this try alone
                self.give_up(number)
                future.set_exception(fault)

    def _hangs(self, loop: asyncio.AbstractEventLoop) -> None:
        """It has been silent for too long: Ray starts it again, and others ask meanwhile."""
        if self._closed:
            return
        with suppress(Exception):
            self.ray.kill(self.actor, no_restart=False)
        self._lost(loop, f"it has said nothing for {SILENT_S:g} s, and is started again.")

    def _lost(self, loop: asyncio.AbstractEventLoop, why: str) -> None:
        """It is gone, with all that it had under way."""
        self._life += 1
        if not self._closed:
            log.warning("Process %d of the cluster was lost: %s", self.pid, why)
            self.note_lost()
        lost = CallFailed(
            Failure(
                "infrastructure", "The process of the cluster that asked was lost before its answer came."
            ),
            retry=True,
            lost=True,
            counts=UNCOUNTED,
        )
        waiting, self.waiting, self.is_up, self._listens = self.waiting, {}, False, False
        for future in waiting.values():
            if not future.done():
                future.set_result({one.name: getattr(lost, one.name) for one in fields(lost)})
        self._look_for(loop)

    def _look_for(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until it is there again."""
        if self._closed or not self.ray.is_initialized():
            return
        asked = self.actor.about.remote().future()

        def told(_: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(take)

        def take() -> None:
            try:
                self.take(*asked.result())
            except Exception:  # Ray still looks for a place for it
                loop.call_later(AGAIN_S, self._look_for, loop)
                return
            self.is_up = not self.fault
            if self.fault:
                log.warning("%s It is given no work.", self.fault)

        asked.add_done_callback(told)
