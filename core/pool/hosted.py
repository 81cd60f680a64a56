"""Models behind HTTP as a pool: calls side by side, retries, deadlines, costs; failures come back as data."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import TypeVar

import httpx
import stamina

from core.episode import Ask, Failure, Reply, Usage
from core.errors import PoolError
from core.pool.client import CallFailed, ChatClient, Limits
from core.pool.spec import ModelSpec
from core.pool.wire import Completion, request_body

T = TypeVar("T")

#: Retries a model may have outstanding before its calls fail at once: an outage must not become a storm.
RETRY_QUOTA = 30.0
QUOTA_PER_SUCCESS = 0.1

logging.getLogger("stamina").addHandler(
    logging.NullHandler()
)  # it reports each retry; doors decide who hears it


class _Endpoint:
    """One model: its client, its slots for calls in flight, its retry quota, a pause its server asked for."""

    def __init__(self, spec: ModelSpec, client: ChatClient, limits: Limits) -> None:
        self._spec = spec
        self.client = client
        self._limits = limits
        self._slots = asyncio.Semaphore(spec.concurrency)
        self._quota = RETRY_QUOTA
        self._paused_until = 0.0

    async def reply(self, ask: Ask, on_piece: Callable[[str], None] | None = None) -> Reply:
        """Ask until there is a reply, a failure that retrying does not mend, or no time left."""
        body = request_body(self._spec, ask, stream=on_piece is not None)
        async with self._slots:
            started = time.monotonic()
            try:
                async with asyncio.timeout(self._spec.timeout_s):
                    completion = await self._try(body, on_piece, started + self._spec.timeout_s)
            except TimeoutError:
                message = (
                    f"Model '{self._spec.name}' took longer than {self._spec.timeout_s:g} s and was cut off."
                )
                outcome: Completion | Failure = Failure("infrastructure", message)
            except CallFailed as error:
                outcome = error.failure
            else:
                outcome = completion
            latency_s = time.monotonic() - started
        if isinstance(outcome, Failure):
            return Reply(text="", finish_reason="error", latency_s=latency_s, error=outcome)
        return Reply(
            text=outcome.text,
            reasoning=outcome.reasoning,
            finish_reason=outcome.finish_reason,
            usage=usage(self._spec, outcome.tokens_in, outcome.tokens_out),
            latency_s=latency_s,
        )

    async def _try(
        self, body: Mapping[str, object], on_piece: Callable[[str], None] | None, deadline: float
    ) -> Completion:
        retries = 0

        def wait_before_retry(error: Exception) -> bool | float:
            """stamina's hook: whether to try again, or after how many seconds."""
            nonlocal retries
            if not isinstance(error, CallFailed) or not error.retry or retries + 1 >= self._spec.attempts:
                return False
            wait_s = error.wait_s or 0.0
            if (
                wait_s > self._limits.retry_after_s
                or time.monotonic() + wait_s >= deadline
                or self._quota < 1
            ):
                return False
            retries += 1
            self._quota -= 1
            if error.wait_s is None:
                return True
            self._paused_until = max(self._paused_until, time.monotonic() + wait_s)
            return wait_s

        shown_by = None

        def show(piece: str) -> None:
            """Pieces of one try only: a later one says it all again."""
            nonlocal shown_by
            shown_by = retries if shown_by is None else shown_by
            if on_piece is not None and shown_by == retries:
                on_piece(piece)

        try:
            async for attempt in stamina.retry_context(
                on=wait_before_retry,
                attempts=self._spec.attempts,
                timeout=None,
                wait_initial=self._limits.wait_initial_s,
                wait_max=self._limits.wait_max_s,
                wait_jitter=self._limits.wait_initial_s,
            ):
                with attempt:
                    await asyncio.sleep(max(0.0, self._paused_until - time.monotonic()))
                    completion = await self.client.call(body, show)
        except CallFailed as error:
            if not retries:
                raise
            message = f"{error.failure.message} It was tried {retries + 1} times."
            raise CallFailed(replace(error.failure, message=message)) from None
        self._quota = min(RETRY_QUOTA, self._quota + retries + QUOTA_PER_SUCCESS)
        return completion


def usage(spec: ModelSpec, tokens_in: int | None, tokens_out: int | None) -> Usage:
    """Tokens and their price in USD; the price is None when tokens or prices are unknown."""
    if tokens_in is None or tokens_out is None:
        return Usage()
    if spec.price_in is None or spec.price_out is None:
        return Usage(tokens_in, tokens_out)
    return Usage(tokens_in, tokens_out, (tokens_in * spec.price_in + tokens_out * spec.price_out) / 1e6)


class _Replies(Iterator[tuple[int, Reply]]):
    """Replies of calls that are already under way, in the order they come. Closing it cancels the rest."""

    def __init__(self, futures: Mapping[Future[Reply], int], pool: HttpPool) -> None:
        self._pool = pool  # a forgotten pool shuts down: not while its replies are awaited
        self._futures = futures
        self._ready = as_completed(futures)

    def __next__(self) -> tuple[int, Reply]:
        future = next(self._ready)
        return self._futures[future], future.result()

    def close(self) -> None:
        """Cancel the calls in flight."""
        for future in self._futures:
            future.cancel()

    def __del__(self) -> None:
        self.close()


class HttpPool:
    """Models behind OpenAI-compatible chat completion servers. `env` is where keys are looked up by the
    variable names in the specs; they are kept in memory only. Calls run in one background thread, so they go
    on while the caller is busy. Raises PoolError for a missing key variable or a model not in the pool."""

    def __init__(
        self, specs: Sequence[ModelSpec], env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> None:
        self._specs = tuple(specs)
        limits = limits or Limits()
        context = httpx.create_ssl_context(trust_env=False)
        self._endpoints = {
            spec.name: _Endpoint(spec, ChatClient(spec, _key(spec, env or {}), limits, context), limits)
            for spec in specs
        }
        self._loop = asyncio.new_event_loop()
        clients = [endpoint.client for endpoint in self._endpoints.values()]
        thread = Thread(target=_run, args=(self._loop, clients), name="http-pool", daemon=True)
        thread.start()
        self._finish = weakref.finalize(self, _shut_down, self._loop, thread)

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The pool's models in slot order."""
        return self._specs

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Start every call, within each model's concurrency, and yield (index, reply) as each is ready."""
        endpoints = [self._endpoint(ask) for ask in asks]
        calls = zip(endpoints, asks, strict=True)
        futures = {self._start(endpoint.reply(ask)): i for i, (endpoint, ask) in enumerate(calls)}
        return _Replies(futures, self)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Yield pieces as they arrive, then the whole Reply, which alone counts: after a retry the pieces
        shown may differ from it."""
        endpoint = self._endpoint(ask)
        arrived: SimpleQueue[str | Future[Reply]] = SimpleQueue()
        on_piece = arrived.put if self._streams(ask.model) else None
        future = self._start(endpoint.reply(ask, on_piece))
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

    def _endpoint(self, ask: Ask) -> _Endpoint:
        if ask.model not in self._endpoints:
            names = ", ".join(self._endpoints)
            raise PoolError(f"The pool has no model named '{ask.model}'; it has {names}.")
        return self._endpoints[ask.model]

    def _streams(self, name: str) -> bool:
        return next(spec.stream for spec in self._specs if spec.name == name)

    def _start(self, call: Coroutine[object, object, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(call, self._loop)


def _key(spec: ModelSpec, env: Mapping[str, str]) -> str:
    if not spec.api_key_env:
        return ""
    key = env.get(spec.api_key_env, "").strip()
    if not key:
        raise PoolError(
            f"Model '{spec.name}' needs a key in the environment variable {spec.api_key_env},"
            " which is not set; export it and try again."
        )
    if not (key.isascii() and key.isprintable()):
        raise PoolError(
            f"The key in {spec.api_key_env} holds characters that no header can carry; set it anew."
        )
    return key


def _run(loop: asyncio.AbstractEventLoop, clients: Sequence[ChatClient]) -> None:
    """The background thread: serve calls until the loop is stopped, then leave nothing open."""

    async def finish() -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for client in clients:
            await client.aclose()
        await loop.shutdown_default_executor()

    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(finish())
    loop.close()


def _shut_down(loop: asyncio.AbstractEventLoop, thread: Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not current_thread():  # the garbage collector may run there
        thread.join()
