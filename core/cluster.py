"""Helpers on the machines of a Ray cluster: they answer lists of jobs and try models over HTTP, and nothing else.

What decides stays in this process, the driver: the role loop, the optimiser, the order of draws, limits, costs and the
store. So a run comes to the same to the bit however many helpers it has, in whatever order they answer and whoever of
them is lost. Ray places and restarts them. It is an extra, and imported where a cluster is opened."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import platform
import socket
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any

from core.errors import ConfigError, PoolError
from core.pool.client import CallFailed, Client, Limits, Progress, infrastructure
from core.pool.costs import UNCOUNTED
from core.pool.spec import ModelSpec
from core.pool.wire import Completion
from core.processes import PATIENCE_S, EngineState, Processes, cores

log = logging.getLogger(__name__)

#: How long an address is waited for, in seconds, and how long the first answer of helpers that Ray has to start.
CONNECT_S, START_S = 5.0, 60.0
#: A caller tells what came at least so often; one that is silent for so long hangs, and is started again. In seconds.
TOLD_S, SILENT_S = 2.0, 20.0
#: So long after one try a lost caller is looked for again, in seconds.
AGAIN_S = 1.0
#: A cluster without anybody who can ask is given up after so long, in seconds: Ray itself ends this process after 60.
GONE_S = 40.0
#: Calls that one caller is given side by side before another one is started.
CALLS_EACH = 500

_WITHOUT = "Ray is not installed: pip install 'trinity-inspector[ray]', or leave --engine out."


class Cluster(Processes):
    """This process and helpers on a Ray cluster: of this machine alone where no `address` is given. `most` is how many
    helpers there are in all, left out one for each core. ConfigError where Ray is not installed, nobody listens at the
    address, or the cluster is of another version."""

    def __init__(self, address: str, most: int | None, *, preload: Sequence[str] = ()) -> None:
        self.ray, self._dashboard = _join(address)
        self.address = address
        cpus = int(self.ray.cluster_resources().get("CPU", 1))
        #: How many helpers answer jobs. One on a machine of its own shares the work with this process.
        self.size = most or (cpus if address else max(1, cpus - 1))
        super().__init__(self.size + 1, preload=preload)
        self._preloaded = tuple(preload)
        self._lost = 0
        self._callers: list[weakref.ref[_Callers]] = []

    @property
    def nodes(self) -> list[str]:
        """The addresses of the machines that are there."""
        return [node["NodeManagerAddress"] for node in self.ray.nodes() if node["Alive"]]

    @property
    def dashboard(self) -> str:
        """Where Ray's own dashboard is; empty where it does not run."""
        return self._dashboard

    def state(self) -> EngineState:
        """Its helpers, those that answer jobs and those that try models, and what they have under way."""
        callers = [found for one in list(self._callers) if (found := one()) is not None]
        return EngineState(
            helpers=len(self.helpers) + sum(one.up for one in callers),
            machines=len(self.nodes),
            under_way=sum(one.under_way for one in callers),
            lost=self._lost,
            dashboard=self.dashboard,
        )

    def note_lost(self) -> None:
        """One more helper was lost."""
        self._lost += 1

    def clients(
        self, specs: Sequence[ModelSpec], limits: Limits, kind: type[Caller] | None = None
    ) -> Mapping[str, Client]:
        """Who tries each of these models from the cluster, by its name. PoolError where a node lacks a key."""
        callers = _Callers(self, specs, limits, kind or Caller)
        self._callers = [one for one in self._callers if one() is not None] + [weakref.ref(callers)]
        return {spec.name: _FarClient(callers, spec.name) for spec in specs}

    def leave(self) -> None:
        """Leave the cluster, with all that was started there; one of this machine alone ends."""
        self.close()
        self.ray.shutdown()

    def actors(self, kind: type, n: int, *arguments: Any, **options: Any) -> list[Any]:
        """So many actors, spread over the machines, which Ray starts again where they are lost."""
        made = self.ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy="SPREAD", **options)(kind)
        return [made.remote(*arguments) for _ in range(n)]

    def new_helper(self) -> _FarHelper:
        return _FarHelper(self, self.actors(Worker, 1, self._preloaded)[0])


def _join(address: str) -> tuple[Any, str]:
    """Ray, connected to the cluster at an address, or to one of this machine alone that ends with this process; and
    where its dashboard is."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not address or _is_local(address):
        # What Ray knows of machines without a network of their own: everything listens on 127.0.0.1 alone.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise ConfigError(_WITHOUT) from None
    ray.shutdown()  # of an earlier cluster
    if address:
        _check_listens(address)
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    here = {"num_cpus": cores(), "include_dashboard": False}
    for name in ("ray", "ray.dashboard", "ray._private"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        context = ray.init(**quiet, **({"address": address} if address else {"address": "local", **here}))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        where = f"The Ray cluster at {address} cannot be joined" if address else "Ray cannot be started here"
        raise ConfigError(f"{where}: {reason or type(error).__name__}") from error
    return ray, str(getattr(context, "dashboard_url", "") or "")


def _is_local(address: str) -> bool:
    host = address.removeprefix("ray://").rpartition(":")[0]
    return host in ("127.0.0.1", "localhost", "::1", "[::1]")


def _check_listens(address: str) -> None:
    """ConfigError at once where Ray would try for a minute and more."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(
            f"--engine ray={address} names no address: write ray=HOST:6379, or ray=ray://HOST:10001."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"No Ray cluster listens at {address} ({error.strerror or error}): start one there by ray start --head, or "
            "leave the address out."
        ) from None


def this_program() -> tuple[str, str]:
    """What has to be the same on every machine: Python, and this program."""
    from importlib.metadata import version

    return platform.python_version(), version("trinity-inspector")


class Worker:
    """In an actor: answers jobs, as `core.processes.serve_jobs` does in a process."""

    def __init__(self, preload: Sequence[str]) -> None:
        for module in preload:
            importlib.import_module(module)

    def about(self) -> tuple[int, tuple[str, str], str]:
        """Its process, what it runs, and how its machine computes."""
        from core.pocket.devices import fingerprint

        return os.getpid(), this_program(), fingerprint()

    def answer(self, function: str, job: Any) -> Any:
        """What a function, named "module:function", answers to a job."""
        module, _, name = function.partition(":")
        return getattr(importlib.import_module(module), name)(job)


class _FarHelper:
    """This process's hold on a `Worker`."""

    def __init__(self, cluster: Cluster, actor: Any) -> None:
        self._cluster, self._ray, self._actor = cluster, cluster.ray, actor
        self.pid, self._ended = 0, False

    def ready(self) -> bool:
        from core.pocket.devices import fingerprint

        try:
            self.pid, program, numbers = self._ray.get(self._actor.about.remote(), timeout=START_S)
        except Exception as error:
            if not self._ended:
                log.warning("A helper of the cluster cannot be started: %s", reason_of(error))
            return False
        if program != this_program():
            log.warning(
                "A helper of the cluster runs Python %s and version %s: it is given no work.", *program
            )
            return False
        if numbers != fingerprint():
            log.warning(
                "A machine of the cluster computes other last digits than this one (another processor or torch): its "
                "helper is given no work, as a run would not come to the same."
            )
            return False
        return True

    def answer(self, function: str, job: Any) -> dict[str, Any] | None:
        try:
            return {"answer": self._ray.get(self._actor.answer.remote(function, job), timeout=PATIENCE_S)}
        except self._ray.exceptions.RayTaskError:  # the asking process meets it too
            return {"answer": None}
        except self._ray.exceptions.RayError as error:  # it is lost, and is started again
            if not self._ended:
                log.warning("A helper of the cluster was lost: %s", reason_of(error))
                self._cluster.note_lost()
            return {"answer": None} if self.ready() else None

    def end(self) -> None:
        self._ended = True
        with suppress(Exception):
            self._ray.kill(self._actor)


def reason_of(error: Exception) -> str:
    """Why something of the cluster failed, in a line."""
    return " ".join(str(getattr(error, "cause", None) or error).split())[:300] or type(error).__name__


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

    async def about(self) -> tuple[int, tuple[str, str], str]:
        """Its process, what it runs, and why it can ask nobody (empty: it can)."""
        return os.getpid(), this_program(), self._fault

    async def begin(
        self, tries: Sequence[tuple[int, str, Mapping[str, Any]]], given_up: Sequence[int]
    ) -> None:
        """Begin tries, each with its number, model and body, and give up others."""
        for number in given_up:
            if (task := self._under_way.pop(number, None)) is not None:
                task.cancel()
        for number, model, body in tries:
            self._under_way[number] = asyncio.create_task(self._try(number, model, body))

    async def come(self) -> list[tuple[int, Any]]:
        """The outcomes that came, by the numbers of their tries, waited for as long as TOLD_S: a completion, or the
        fields of a `CallFailed`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_S):
                await self._some.wait()
        self._some.clear()
        came, self._came = self._came, []
        return came

    async def _try(self, number: int, model: str, body: Mapping[str, Any]) -> None:
        outcome: Any
        try:
            if self._fault:
                raise infrastructure(self._fault)
            outcome = await self._clients[model].call(body, lambda piece: None, Progress())
        except CallFailed as error:
            outcome = {one.name: getattr(error, one.name) for one in fields(error)}
        except Exception as fault:
            log.exception("A try of model %s broke off", model)
            outcome = {"failure": infrastructure(f"This program failed ({type(fault).__name__}).").failure}
        finally:
            self._under_way.pop(number, None)
        self._came.append((number, outcome))
        self._some.set()


@dataclass
class _FarClient:
    """Tries one model from the cluster."""

    callers: _Callers
    model: str

    async def call(
        self, body: Mapping[str, Any], on_piece: Callable[[str], None], progress: Progress
    ) -> Completion:
        """As `ChatClient.call`; a text comes whole."""
        hold = await self.callers.free()
        progress.is_sent = True  # from here on nobody knows whether it is
        outcome = await self.callers.outcome(hold, self.model, body)
        if isinstance(outcome, Completion):
            return outcome
        failure = outcome.pop("failure")
        raise CallFailed(failure, **outcome)

    async def aclose(self) -> None:
        self.callers.close()


class _Callers:
    """All callers of one pool. They are lost and started again; what they had under way then is failed as an answer
    that broke off: its server may bill it, and it may be asked again."""

    def __init__(
        self, cluster: Cluster, specs: Sequence[ModelSpec], limits: Limits, kind: type[Caller]
    ) -> None:
        at_once = sum(spec.concurrency for spec in specs)
        n = min(cluster.size, max(len(cluster.nodes), -(-at_once // CALLS_EACH)))
        actors = cluster.actors(kind, n, tuple(specs), limits, max_concurrency=1000)
        self._ray, self._numbers = cluster.ray, count()
        self._all = [_Hold(self._ray, actor, note_lost=cluster.note_lost) for actor in actors]
        try:
            told = self._ray.get([actor.about.remote() for actor in actors], timeout=START_S)
        except Exception as error:
            self.close()
            raise ConfigError(f"The cluster does not start who asks models: {reason_of(error)}") from error
        for hold, (pid, program, fault) in zip(self._all, told, strict=True):
            hold.pid = pid
            if program != this_program() or fault:
                self.close()
                python, own = this_program()
                raise PoolError(
                    fault
                    or f"A machine of the cluster runs Python {program[0]} and Trinity Inspector {program[1]}: install "
                    f"Python {python} and Trinity Inspector {own} there, as here."
                )

    @property
    def up(self) -> int:
        """How many of them are there."""
        return sum(hold.is_there for hold in self._all)

    @property
    def under_way(self) -> int:
        """Tries whose outcomes are waited for."""
        return sum(len(hold.waiting) for hold in self._all)

    async def free(self) -> _Hold:
        """The caller that has the least to do; while all are lost, one is waited for. PoolError where none comes."""
        loop = asyncio.get_running_loop()
        until = loop.time() + GONE_S
        while not (up := [hold for hold in self._all if hold.is_up]):
            if loop.time() > until:
                raise PoolError(
                    "The Ray cluster is gone: none of its machines has answered for "
                    f"{GONE_S:g} s. See that it runs, then resume."
                )
            await asyncio.sleep(0.1)
        return min(up, key=lambda one: len(one.waiting))

    async def outcome(self, hold: _Hold, model: str, body: Mapping[str, Any]) -> Any:
        """What came of one try: a completion or the fields of a `CallFailed`."""
        number = next(self._numbers)
        came = hold.begin(number, model, dict(body))
        try:
            return await came
        finally:
            if came.cancelled():
                hold.give_up(number)

    def close(self) -> None:
        """End them all."""
        for hold in self._all:
            hold.close()


@dataclass(eq=False)
class _Hold:
    """This process's hold on one `Caller`, within the loop that calls."""

    ray: Any
    actor: Any
    pid: int = 0
    waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    is_up: bool = True
    note_lost: Callable[[], None] = lambda: None
    _tries: list[tuple[int, str, Mapping[str, Any]]] = field(default_factory=list)
    _given_up: list[int] = field(default_factory=list)
    _due: bool = False
    _listens: bool = False
    _closed: bool = False

    @property
    def is_there(self) -> bool:
        """Whether it takes tries."""
        return self.is_up and not self._closed

    def begin(self, number: int, model: str, body: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Begin a try, together with others of this moment; its outcome will come."""
        self._tries.append((number, model, body))
        self._soon()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting[number] = future
        return future

    def give_up(self, number: int) -> None:
        """Nobody waits for this try any more."""
        if self.waiting.pop(number, None) is not None:
            self._given_up.append(number)
            self._soon()

    def close(self) -> None:
        self._closed = True
        with suppress(Exception):
            self.ray.kill(self.actor)

    def _soon(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._due = False
        tries, self._tries = self._tries, []
        given_up, self._given_up = self._given_up, []
        self.actor.begin.remote(tries, given_up)
        if self.waiting and not self._listens:
            self._listens = True
            self._listen(asyncio.get_running_loop())

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        asked = self.actor.come.remote().future()
        silent = loop.call_later(SILENT_S, self._hangs)

        def told(_: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(take)

        def take() -> None:
            silent.cancel()
            try:
                came = asked.result()
            except Exception as error:
                self._lost(loop, error)
                return
            self.is_up = True
            for number, outcome in came:
                future = self.waiting.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(outcome)
            self._listens = bool(self.waiting)
            if self._listens:
                self._listen(loop)

        asked.add_done_callback(told)

    def _hangs(self) -> None:
        """It has been silent for too long: Ray starts it again."""
        log.warning("Process %d of the cluster hangs: it is started again.", self.pid)
        with suppress(Exception):
            self.ray.kill(self.actor, no_restart=False)

    def _lost(self, loop: asyncio.AbstractEventLoop, error: Exception) -> None:
        """It is gone, with all that it had under way."""
        if not self._closed:
            log.warning("Process %d of the cluster was lost: %s", self.pid, reason_of(error))
            self.note_lost()
        lost = infrastructure(
            "The process of the cluster that asked was lost before its answer came.",
            retry=True,
            counts=UNCOUNTED,
        )
        waiting, self.waiting, self.is_up, self._listens = self.waiting, {}, False, False
        for future in waiting.values():
            if not future.done():
                future.set_result({one.name: getattr(lost, one.name) for one in fields(lost)})
        self._look_for(loop)

    def _look_for(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until it is there again."""
        if self._closed:
            return
        asked = self.actor.about.remote().future()

        def told(_: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(take)

        def take() -> None:
            try:
                self.pid, _, _ = asked.result()
            except Exception:  # Ray still looks for a place for it
                loop.call_later(AGAIN_S, self._look_for, loop)
                return
            self.is_up = True

        asked.add_done_callback(told)
