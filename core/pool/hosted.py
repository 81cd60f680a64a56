"""Models behind HTTP as a pool: calls run side by side in one background thread, which cancelling reaches."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread, current_thread

from core.episode import Ask, Reply
from core.errors import PoolError, TrinityError
from core.pool.client import ChatClient, Limits
from core.pool.endpoint import Endpoint
from core.pool.pool import Flight, FlightPool, broken_off, entry
from core.pool.spec import ModelSpec
from core.pool.throttle import Throttle


class _HttpFlight(Flight):
    """Calls to hosted models under way; each reply is there the moment it comes."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._numbers: dict[Future[Reply], int] = {}
        self._done: SimpleQueue[Future[Reply] | None] = SimpleQueue()  # None: woken
        self._added = 0
        self.capacity = 2 * sum(spec.concurrency for spec in pool.specs)

    @property
    def under_way(self) -> int:
        return len(self._numbers)

    def add(self, asks: Sequence[Ask]) -> None:
        endpoints = [self._pool.endpoint(ask) for ask in asks]  # an unknown model is said before any call
        for endpoint, ask in zip(endpoints, asks, strict=True):
            future = self._pool.start(_reply(endpoint, ask))
            self._numbers[future] = self._added
            self._added += 1
            future.add_done_callback(self._done.put)

    def ready(self, *, wait: bool = True) -> Iterator[tuple[int, Reply]]:
        while self._numbers:
            try:
                future = self._done.get(block=wait)
            except Empty:
                return
            wait = False
            if future is not None and (number := self._numbers.pop(future, None)) is not None:
                yield number, future.result()

    def wake(self) -> None:
        self._done.put(None)

    def cancel(self, number: int) -> None:
        for future in [one for one, own in self._numbers.items() if own == number]:
            del self._numbers[future]
            future.cancel()

    def close(self) -> None:
        """Cancel the calls in flight, and first those that wait: else one could begin as another makes room."""
        for future in reversed([*self._numbers]):
            future.cancel()
        self._numbers.clear()

    def __del__(self) -> None:
        self.close()


class HttpPool(FlightPool):
    """Models behind OpenAI-compatible chat completion servers. `env` is where keys are looked up by the
    variable names in the specs; they are kept in memory only. Calls run in one background thread, so they go
    on while the caller is busy. Raises PoolError for a missing key variable or a model not in the pool."""

    def __init__(
        self, specs: Sequence[ModelSpec], env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> None:
        self.specs = tuple(specs)
        limits, env = limits or Limits(), env or {}
        shared = {spec.service: Throttle(spec.service) for spec in specs if spec.service is not None}
        self._endpoints: dict[str, Endpoint] = {}
        for spec in specs:
            key = _secret(spec, spec.api_key_env, env) if spec.api_key_env else ""
            headers = {name: _secret(spec, variable, env) for name, variable in spec.headers_env.items()}
            client = ChatClient(spec, key, limits, headers)
            throttle = shared[spec.service] if spec.service else None
            self._endpoints[spec.name] = Endpoint(spec, client, limits, throttle)
        self._loop = asyncio.new_event_loop()
        clients = [endpoint.client for endpoint in self._endpoints.values()]
        thread = Thread(target=_run, args=(self._loop, clients), name="http-pool", daemon=True)
        thread.start()
        self._finish = weakref.finalize(self, _shut_down, self._loop, thread)

    def flight(self) -> _HttpFlight:
        """Calls under way, each within its model's concurrency."""
        return _HttpFlight(self)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Yield pieces as they arrive, then the whole Reply, which alone counts: after a retry the pieces
        shown may differ from it."""
        endpoint = self.endpoint(ask)
        arrived: SimpleQueue[str | Future[Reply]] = SimpleQueue()
        on_piece = arrived.put if endpoint.spec.stream else None
        future = self.start(_reply(endpoint, ask, on_piece))
        future.add_done_callback(arrived.put)
        try:
            while isinstance(piece := arrived.get(), str):
                yield piece
            yield piece.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel what is in flight and close every connection; also done when the pool is forgotten."""
        self._finish()

    def endpoint(self, ask: Ask) -> Endpoint:
        """Where a call goes. PoolError for a model not in the pool."""
        return entry(self._endpoints, ask.model)

    def start(self, call: Coroutine[object, object, Reply]) -> Future[Reply]:
        """Begin a call in the background thread."""
        return asyncio.run_coroutine_threadsafe(call, self._loop)


async def _reply(endpoint: Endpoint, ask: Ask, on_piece: Callable[[str], None] | None = None) -> Reply:
    """The reply to a call; a fault of this program is a failure of this call alone."""
    try:
        return await endpoint.reply(ask, on_piece)
    except TrinityError:
        raise
    except Exception as fault:
        return broken_off(ask, fault)


def _secret(spec: ModelSpec, variable: str, env: Mapping[str, str]) -> str:
    key = env.get(variable, "").strip()
    if not key:
        raise PoolError(
            f"Model '{spec.name}' needs a key in the environment variable {variable},"
            " which is not set; export it and try again."
        )
    if not (key.isascii() and key.isprintable()):
        raise PoolError(f"The key in {variable} holds characters that no header can carry; set it again.")
    return key


def _run(loop: asyncio.AbstractEventLoop, clients: Sequence[ChatClient]) -> None:
    """The background thread: serve calls until the loop is stopped, then leave nothing open."""

    async def cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def finish() -> None:
        await cancel_all()
        for client in clients:
            await client.aclose()
        await loop.shutdown_asyncgens()
        await cancel_all()  # what is closed by the garbage collector is closed in a task of its own
        await loop.shutdown_default_executor()

    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(finish())
    loop.close()


def _shut_down(loop: asyncio.AbstractEventLoop, thread: Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not current_thread():  # the garbage collector may run there
        thread.join()
