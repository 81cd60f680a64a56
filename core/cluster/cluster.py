"""A Ray cluster and its helpers, where those of `core.processes` would be processes of this machine."""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from core.cluster.callers import Caller, Callers, FarClient
from core.cluster.graders import FarGraders, Grader
from core.cluster.joining import join
from core.cluster.workers import FarHelper, Worker
from core.errors import ConfigError, PoolError
from core.pool.client import Client, Limits
from core.pool.spec import ModelSpec
from core.processes import EngineState, Processes, doomed

#: Calls that one caller is given side by side before another one is started.
CALLS_EACH = 500
#: The cluster is asked for its machines so often, and is gone when it has not answered for so long, in seconds: Ray
#: ends the driver of a cluster that is gone for 60.
LOOK_S, GONE_S = 2.0, 30.0
#: So long this process waits to be let into a cluster, and to leave it, in seconds: Ray waits for many minutes.
JOIN_S, LEAVE_S = 120.0, 20.0
#: What a helper asks Ray for, in bytes: less than any has.
ASKED_BYTES = 2**20
#: Whether Ray writes what it has to tell, such as of a lost helper, to standard output, where --json writes.
_TELLS = "worker", "_worker_logs_enabled"
#: Whether Ray starts a cluster of its own where it is asked for something by a process that is in none.
_JOINS = "auto_init_hook", "enable_auto_connect"


def _joined(address: str) -> tuple[Any, str]:
    """As `join`; where Ray refuses another version of itself or of Python, what to install."""
    try:
        return join(address)
    except ConfigError as error:
        found = re.findall(r"Ray: (\S+)\s+Python: (\S+)", str(error))  # the cluster's, then this process's
        if len(found) != 2:
            raise
        there, here = (f"Ray {ray} and Python {python}" for ray, python in found)
        raise ConfigError(
            f"The Ray cluster at {address} runs {there}, this process {here}: install here what runs there."
        ) from error


def _end_at_once() -> None:
    """End this process before Ray tries to leave a cluster that is gone, or has never answered: it hangs over that, or
    crashes."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


class Machines:
    """The machines of a cluster, of this machine alone where no `address` is given. A thread joins it while this
    process goes on, asks for them again and again, as a cluster that is gone never answers, and leaves it; it is not
    asked while nobody listens where its head was.

    One thread does it all: Ray ends a cluster with the thread that started it, and in the main thread it would have
    SIGTERM end this process as it stands."""

    def __init__(self, address: str) -> None:
        self._address, self._over = address, threading.Event()
        self._ray: Future[tuple[Any, str]] = Future()
        #: The addresses of those that were there a moment ago.
        self.addresses: list[str] = []
        atexit.register(self._at_exit)
        self._thread = threading.Thread(target=self._live, name="ray-machines", daemon=True)
        self._thread.start()

    def joined(self) -> tuple[Any, str]:
        """Ray, once it is joined, and where its own dashboard is, empty where it does not run. ConfigError where that
        is not possible, or takes longer than JOIN_S."""
        try:
            return self._ray.result(JOIN_S)
        except TimeoutError:
            where = f"The Ray cluster at {self._address}" if self._address else "Ray on this machine"
            raise ConfigError(
                f"{where} has not answered for {JOIN_S:g} s: see that it is well, or choose another engine."
            ) from None

    def leave(self) -> None:
        """Ask no more, and leave it; one of this machine alone ends."""
        atexit.unregister(self._at_exit)
        self._over.set()
        self._thread.join(LEAVE_S)

    def _at_exit(self) -> None:
        self.leave()
        if self._thread.is_alive():
            _end_at_once()

    def check(self) -> None:
        """PoolError where the cluster is gone."""
        if not self._over.is_set() and time.monotonic() - self._heard > GONE_S:
            raise PoolError(
                f"The Ray cluster is gone: it has not answered for {GONE_S:g} s. Start it, then resume the run or "
                "restart the server; with --engine local this machine works alone, and the results are the same."
            )

    def _live(self) -> None:
        try:
            ray, dashboard = _joined(self._address)
            is_client = self._address.startswith("ray://")
            head = self._address if is_client else ray.get_runtime_context().gcs_address
            host, _, port = str(head).removeprefix("ray://").rpartition(":")
            self._ask(ray)
        except Exception as fault:
            self._ray.set_exception(fault)
            return
        self._ray.set_result((ray, dashboard))
        while not self._over.wait(LOOK_S):
            with suppress(Exception):  # also of a client that lost its connection
                socket.create_connection((host.strip("[]"), int(port)), LOOK_S).close()
                self._ask(ray)
        ray.shutdown()

    def _ask(self, ray: Any) -> None:
        self.addresses = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
        self._heard = time.monotonic()


class Cluster(Processes):
    """This process and helpers on a Ray cluster, that of `machines`. `most` is how many helpers there are in all, left
    out one for each core. `mixed`: machines that compute other last digits than this one work too. ConfigError where
    Ray is not installed, nobody listens at the address, or the cluster is of another version."""

    def __init__(
        self, machines: Machines, most: int | None, *, preload: Sequence[str] = (), mixed: bool = False
    ) -> None:
        self._machines, self.mixed = machines, mixed
        self.ray, self.dashboard = machines.joined()
        if threading.current_thread() is threading.main_thread():
            # Ray has put a handler below that of Python which writes a stack trace first.
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        for module, name in (_TELLS, _JOINS):
            setattr(importlib.import_module(f"ray._private.{module}"), name, False)
        #: How many helpers answer jobs.
        self.size = most or int(self.ray.cluster_resources().get("CPU", 1))
        super().__init__(self.size + 1, preload=preload)
        self._preloaded = tuple(preload)
        self._lost = 0
        self._callers: list[weakref.ref[Callers]] = []
        self._graders: FarGraders | None = None
        self._starting = threading.Lock()
        atexit.register(self._at_exit)  # before Ray's own end, which would look like a loss of all helpers

    @property
    def nodes(self) -> list[str]:
        """The addresses of the machines that were there a moment ago."""
        return self._machines.addresses

    def check(self) -> None:
        self._machines.check()

    def state(self) -> EngineState:
        """Its helpers, those that answer jobs, try models and grade answers, and the tries under way."""
        callers = [found for one in list(self._callers) if (found := one()) is not None]
        return EngineState(
            helpers=len(self.helpers)
            + sum(one.up for one in callers)
            + (self._graders.up if self._graders else 0),
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
        at_once = sum(spec.concurrency for spec in specs)
        n = min(self.size, max(len(self.nodes), -(-at_once // CALLS_EACH)))
        actors = self.actors(kind or Caller, n, tuple(specs), limits, max_concurrency=1000)
        callers = Callers(self.ray, actors, self.note_lost, self.check)
        self._callers = [one for one in self._callers if one() is not None] + [weakref.ref(callers)]
        return {spec.name: FarClient(callers, spec.name) for spec in specs}

    def graders(self) -> FarGraders:
        """One on each machine, kept until this process leaves. ConfigError or PoolError where they do not start."""
        with self._starting:
            if self._graders is None:
                actors = self.actors(Grader, min(self.size, len(self.nodes)), max_concurrency=1000)
                self._graders = FarGraders(self.ray, actors, self.note_lost, self.check)
            return self._graders

    def leave(self) -> None:
        """Leave the cluster, with all that was started there; one of this machine alone ends. One that is gone cannot
        be left: this process has to end."""
        if self._is_gone:
            doomed.set()
            return
        atexit.unregister(self._at_exit)
        self.close()
        for one in self._callers:
            if (callers := one()) is not None:
                callers.close()
        if self._graders is not None:
            self._graders.close()
        self._machines.leave()

    @property
    def _is_gone(self) -> bool:
        try:
            self.check()
        except PoolError:
            return True
        return False

    def _at_exit(self) -> None:
        if self._is_gone:
            _end_at_once()
        self.leave()

    def actors(self, kind: type, n: int, *arguments: Any, **options: Any) -> list[Any]:
        """So many actors, spread over the machines, which Ray starts again where they are lost."""
        # Of no core, as others' work may have them all; Ray spreads only what asks for something, here for memory.
        asked = {"num_cpus": 0, "memory": ASKED_BYTES, "max_restarts": -1, "scheduling_strategy": "SPREAD"}
        made = self.ray.remote(**asked, **options)(kind)
        return [made.remote(*arguments) for _ in range(n)]

    def new_helper(self) -> FarHelper:
        worker = self.actors(Worker, 1, self._preloaded)[0]
        return FarHelper(self.ray, worker, self.note_lost, self.check, mixed=self.mixed)
