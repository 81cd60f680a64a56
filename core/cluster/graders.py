"""Graders in actors, which tell whether programs pass their tests, and this process's hold on them.

A machine that cannot run a program in its sandbox says so and runs nothing."""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from core.cluster.callers import Caller, Callers
from core.cluster.joining import START_S, reason_of
from core.episode import Failure
from core.errors import ConfigError, TaskError
from core.pool.client import Limits
from core.processes import Graders

#: An answer with which so many graders were lost, one after the other, is graded no more: it may be the reason.
TRIES = 3
#: So many gradings are under way for each core: a core that is done need not wait for the next one.
AHEAD = 2
#: So many files are held in Ray's object store.
FILES = 64


class Grader(Caller):
    """In an actor: grades answers, as many at a time as its machine has cores for Ray. It is sent them as a `Caller`
    is its tries."""

    def __init__(self) -> None:
        super().__init__((), Limits())
        self._cores = _cores_for_ray()
        self._threads = ThreadPoolExecutor(self._cores)

    async def size(self) -> int:
        """How many answers it grades at a time."""
        return self._cores

    async def check_sandbox(self) -> str:
        """Why programs cannot be run here; empty where they can."""
        found = await self._in_thread(partial(_answer, "core.tasks.bubblewrap:check_sandbox", {}))
        return found.message if isinstance(found, Failure) else ""

    async def _try(self, number: int, model: str, body: Mapping[str, Any]) -> None:
        try:
            outcome = await self._in_thread(partial(_answer, model, body))
        finally:
            self._under_way.pop(number, None)
        self._came.append((number, outcome))
        self._some.set()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _answer(function: str, job: Mapping[str, Any]) -> Any:
    """What a function, named "module:function", says of texts; a Failure names the machine."""
    module, _, name = function.partition(":")
    more = {"content": _content(job["file"])} if "file" in job else {}
    try:
        found = getattr(importlib.import_module(module), name)(*job.get("texts", ()), **more)
    except TaskError as error:
        found = Failure("infrastructure", str(error))
    except Exception as fault:
        found = Failure("infrastructure", f"This program failed at a grading ({reason_of(fault)}).")
    if isinstance(found, Failure):
        where = f"This is on the machine {socket.gethostname()} of the cluster."
        return replace(found, message=f"{found.message} {where}")
    return found


def _content(file: Any) -> bytes:
    content: bytes = importlib.import_module("ray").get(file)
    return content


def _cores_for_ray() -> int:
    """How many cores of this machine the cluster may use."""
    ray: Any = importlib.import_module("ray")
    here = ray.get_runtime_context().get_node_id()
    return max([1, *(int(one["Resources"].get("CPU", 1)) for one in ray.nodes() if one["NodeID"] == here)])


class FarGraders(Graders):
    """All graders of a cluster. One that is lost is started again, and what it had under way is graded again.
    ConfigError or PoolError where they cannot be started."""

    def __init__(
        self, ray: Any, actors: Sequence[Any], note_lost: Callable[[], None], check: Callable[[], None]
    ) -> None:
        self._ray, self._actors = ray, actors
        self._files: OrderedDict[Path, Any] = OrderedDict()
        self._callers = Callers(ray, actors, note_lost, check)
        sizes = self._asked("size")
        for hold, size in zip(self._callers.holds, sizes, strict=True):
            hold.size = size
        self._room = asyncio.Semaphore(AHEAD * sum(sizes))
        self._over = asyncio.Event()
        began: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = Thread(target=asyncio.run, args=[self._serve(began)], name="graders", daemon=True)
        self._thread.start()
        self._loop = began.result()

    @property
    def up(self) -> int:
        """How many of them are there."""
        return self._callers.up

    def check_sandbox(self) -> None:
        for fault in self._asked("check_sandbox"):
            if fault:
                raise TaskError(fault)

    def begin(self, function: str, *texts: str, file: Path | None = None) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(self._verdict(function, texts, file), self._loop)

    def close(self) -> None:
        """End them all, with what is under way."""
        self._callers.close()
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _serve(self, began: Future[asyncio.AbstractEventLoop]) -> None:
        began.set_result(asyncio.get_running_loop())
        await self._over.wait()

    async def _verdict(self, function: str, texts: Sequence[str], file: Path | None) -> Any:
        async with self._room:
            job = {"texts": texts} | ({"file": await self._stored(file)} if file else {})
            for _ in range(TRIES):
                outcome = await self._callers.outcome(await self._callers.free(), function, job)
                if not isinstance(outcome, dict):  # else it was lost
                    return outcome
        return Failure(
            "infrastructure",
            f"{TRIES} processes of the cluster were lost that graded this answer: see what ends them there, then "
            "resume.",
        )

    async def _stored(self, file: Path) -> Any:
        """The content of a file in Ray's object store, from where each machine takes it once."""
        found = self._files.pop(file, None) or self._ray.put(await asyncio.to_thread(file.read_bytes))
        self._files[file] = found
        while len(self._files) > FILES:
            self._files.popitem(last=False)
        return found

    def _asked(self, what: str) -> list[Any]:
        try:
            asked = [getattr(actor, what).remote() for actor in self._actors]
            return list(self._ray.get(asked, timeout=START_S))
        except Exception as error:
            raise ConfigError(f"The cluster does not start who grades answers: {reason_of(error)}") from error
