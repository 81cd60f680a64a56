"""Models behind HTTP as a pool: each is asked until it answers (retries, pauses, deadline, bill; failures as data), and
calls run side by side in one background thread, which cancelling reaches."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from threading import Thread, current_thread

import stamina

from core.episode import Ask, Failure, Reply, Usage
from core.errors import PoolError, TrinityError
from core.finish import NOT_ACCEPTED, TOO_LONG
from core.images import image_count, unkept_images
from core.pool.client import CallFailed, ChatClient, Client, Limits, Progress
from core.pool.costs import MOST_UNREAD, UNCOUNTED, Counts, bound_usd, counted_usd
from core.pool.pool import BackgroundPool, broken_off, entry
from core.pool.spec import ModelSpec, Service
from core.pool.throttle import Throttle
from core.pool.tool_calls import settle
from core.pool.wire import Completion, request_body

#: Tokens of a reply that are reckoned with before any has come.
REPLY_TOKENS = 300.0
#: Retries a model may have outstanding before its calls fail at once: an outage must not become a storm.
RETRY_QUOTA = 30.0
QUOTA_PER_SUCCESS = 0.1

# It reports each retry; doors decide who hears it.
logging.getLogger("stamina").addHandler(logging.NullHandler())


@dataclass
class _Bill:
    """What the tries of a call cost that gave no reply, each by the tokens that its server told of, or else as the most
    that it could cost. `unread_usd` is that of answers that could not be read or broke off."""

    spec: ModelSpec
    ask: Ask
    usage: Usage = Usage(cost_usd=0.0)  # nothing was served yet

    def pay(self, counts: Counts, *, unread: bool) -> None:
        """One more try."""
        usd, before = counted_usd(self.spec, self.ask, counts), self.usage
        is_priced = None not in (self.spec.price_in, self.spec.price_out)
        self.usage = Usage(
            before.tokens_in + (counts.sent or 0),
            before.tokens_out + (counts.written or 0),
            (before.cost_usd or 0.0) + usd if is_priced else None,
            before.tokens_cached + counts.cached,
            unread_usd=before.unread_usd + (usd if unread and is_priced else 0.0),
        )

    def with_reply(self, counts: Counts) -> Usage:
        """Of the whole call: its tries and the reply at the end."""
        self.pay(counts, unread=False)
        if counts.known:
            return self.usage
        return replace(self.usage, cost_usd=None, at_most_usd=self.usage.cost_usd)

    @property
    def allows_another(self) -> bool:
        """Whether one more try stays within what all of them may cost."""
        budget_usd, paid_usd = self.ask.budget_usd, self.usage.cost_usd or 0.0
        return not paid_usd or budget_usd is None or paid_usd + bound_usd(self.spec, self.ask) <= budget_usd


@dataclass
class _Call:
    """One call on its way through its tries."""

    bill: _Bill
    deadline: float  # on the event loop's clock
    on_piece: Callable[[str], None] | None
    tokens: float  # about so many
    begun: float  # its last try
    tries: int = 1
    faults: int = (
        0  # failed tries, but for those a server asked to repeat later and those whose asker was lost
    )
    shown_by: int | None = None
    shown: str = ""
    refusal: str = ""  # why the last try failed
    progress: Progress = field(default_factory=Progress)  # of the try under way
    # Answers, by the way in which they could not be read.
    unread: Counter[str] = field(default_factory=Counter)

    def show(self, piece: str) -> None:
        """Pass on the pieces of one try only: a later one says it all again."""
        self.shown_by = self.tries if self.shown_by is None else self.shown_by
        if self.on_piece is not None and self.shown_by == self.tries:
            self.shown += piece
            self.on_piece(piece)


class Endpoint:
    """One model: its client, its slots for calls in flight, its retry quota, and the pace of its provider."""

    def __init__(
        self, spec: ModelSpec, client: Client, limits: Limits, throttle: Throttle | None = None
    ) -> None:
        self.spec = spec
        self._throttle = throttle or Throttle(Service(spec.name))
        self._reply_tokens = REPLY_TOKENS  # of the replies so far, the mean over the last few
        self.client = client
        self._limits = limits
        self._slots = asyncio.Semaphore(spec.concurrency)
        self._quota = RETRY_QUOTA
        self._counts_in_streams = spec.stream_usage
        self._demands_calls = True

    async def reply(self, ask: Ask, on_piece: Callable[[str], None] | None = None) -> Reply:
        """Ask until there is a reply, a failure that retrying does not mend, or no time left."""
        if (unkept := _unkept(self.spec, ask)) is not None:
            return unkept
        body = request_body(self.spec, ask, stream=on_piece is not None)
        if not self._counts_in_streams:
            body.pop("stream_options", None)
        if not self._demands_calls and (ask.must_call or not ask.may_call) and ask.tools:
            body["tool_choice"] = "auto"
        outcome: Completion | Failure
        reason = "error"
        clock = asyncio.get_running_loop().time
        guessed = sum(len(message.text) for message in ask.messages) / 4 + self._reply_tokens
        guessed += self.spec.image_tokens * image_count(ask.messages)
        async with self._slots, self._throttle.slots or nullcontext():
            begun = await self._throttle.turn(guessed)  # its patience begins when it is asked
            started = clock()
            bill = _Bill(self.spec, ask)
            call = _Call(bill, started + self.spec.timeout_s, on_piece, guessed, begun)
            try:
                async with asyncio.timeout(self.spec.timeout_s):
                    outcome = await self._counted(body, call)
            except TimeoutError:
                message = (
                    f"Model '{self.spec.name}' took longer than {self.spec.timeout_s:g} s and was cut off."
                )
                outcome = Failure("infrastructure", f"{message} {call.refusal}".rstrip())
                if call.progress.is_sent:  # its server may bill what it has written
                    bill.pay(UNCOUNTED, unread=True)
            except CallFailed as error:
                outcome = error.failure
                unfit = TOO_LONG if error.too_long else NOT_ACCEPTED if error.refused else "error"
                reason = "content_filter" if error.filtered else unfit
            latency_s = clock() - started
        if isinstance(outcome, Failure):
            if call.tries > 1:
                outcome = replace(outcome, message=f"{outcome.message} It was tried {call.tries} times.")
            said = call.shown if ask.live else ""
            return Reply(said, finish_reason=reason, usage=bill.usage, latency_s=latency_s, error=outcome)
        settled = settle(outcome, ask.tools if ask.may_call else "")
        return Reply(
            text=settled.text,
            reasoning=settled.reasoning,
            finish_reason=settled.finish_reason,
            usage=bill.with_reply(settled.counts),
            latency_s=latency_s,
            tool_calls=settled.tool_calls,
        )

    async def _counted(self, body: dict[str, object], call: _Call) -> Completion:
        """The completion; from a server that cannot be told that a tool must be called, or does not know
        `stream_options`, without that, also in later calls."""
        demands = body.get("tool_choice", "auto") != "auto"
        try:
            return await self._completion(body, call)
        except CallFailed as error:
            if not error.refused or not (demands or "stream_options" in body):
                raise
        if demands:
            completion = await self._counted({**body, "tool_choice": "auto"}, call)
            self._demands_calls = False
            return completion
        without = {name: value for name, value in body.items() if name != "stream_options"}
        completion = await self._counted(without, call)
        self._counts_in_streams = False
        return completion

    async def _completion(self, body: Mapping[str, object], call: _Call) -> Completion:
        async for attempt in stamina.retry_context(
            on=lambda error: self._wait(call, error),
            attempts=None,
            timeout=None,
            wait_initial=self._limits.wait_initial_s,
            wait_max=self._limits.wait_max_s,
            wait_jitter=self._limits.wait_initial_s,
        ):
            with attempt:
                if call.tries > 1:
                    call.begun = await self._throttle.turn(call.tokens, again=True)
                completion = await self._try(body, call)
        self._throttle.went_through()
        sent, written = completion.counts.sent, completion.counts.written
        if sent is not None and written is not None:
            self._throttle.used(call.tokens, sent + written)
            self._reply_tokens += 0.2 * (written - self._reply_tokens)
        self._quota = min(RETRY_QUOTA, self._quota + call.faults + QUOTA_PER_SUCCESS)
        return completion

    async def _try(self, body: Mapping[str, object], call: _Call) -> Completion:
        """One try, which is paid for where its server may bill it."""
        call.progress = Progress(episode=call.bill.ask.episode)
        try:
            return await self.client.call(body, call.show, call.progress)
        except CallFailed as error:
            call.progress = Progress()  # nothing is under way
            if error.counts is not None:
                call.bill.pay(error.counts, unread=error.failure.kind == "infrastructure")
            if error.unread:
                call.unread[error.unread] += 1
            raise

    def _wait(self, call: _Call, error: Exception) -> bool | float:
        """Whether to try again: False, True (after stamina's backoff), or after how many seconds."""
        if not isinstance(error, CallFailed) or not error.retry:
            return False
        if call.unread[error.unread] >= MOST_UNREAD or not call.bill.allows_another:
            return False
        if call.bill.ask.live and call.shown:  # whoever reads it has begun
            return False
        now = asyncio.get_running_loop().time()
        wait_s = None if error.wait_s is None else max(error.wait_s, self._limits.wait_initial_s)
        if wait_s is not None and (wait_s > self._limits.retry_after_s or now + wait_s >= call.deadline):
            return False
        if error.busy:
            wait_s = self._throttle.too_many(wait_s, call.begun)
        elif wait_s is not None:
            self._throttle.pause(wait_s)
        if not (error.busy or error.lost):  # no faults of the server: only the deadline ends that
            if call.faults + 1 >= self.spec.attempts or self._quota < 1:
                return False
            call.faults += 1
            self._quota -= 1
        call.tries += 1
        call.refusal = error.failure.message
        return True if wait_s is None else max(wait_s, 0.001)


def _unkept(spec: ModelSpec, ask: Ask) -> Reply | None:
    """The failure of a call that cannot be made, as the bytes of an image in its messages are not there."""
    if not unkept_images(ask.messages, ask.images):
        return None
    message = (
        f"Model '{spec.name}' was not asked: its messages hold an image whose bytes are not kept; send the image again,"
        " in a new request."
    )
    nothing = Usage(0, 0, 0.0)
    return Reply("", finish_reason="error", usage=nothing, error=Failure("infrastructure", message))


class HttpPool(BackgroundPool):
    """Models behind OpenAI-compatible chat completion servers. `env` is where keys are looked up by the
    variable names in the specs; they are kept in memory only. Calls run in one background thread, so they go
    on while the caller is busy. `clients` makes who tries them, by model's name; left out, this process does. Raises
    PoolError for a missing key variable or a model not in the pool."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        clients: Callable[[Sequence[ModelSpec], Limits], Mapping[str, Client]] | None = None,
    ) -> None:
        self.specs = tuple(specs)
        self.ahead = 2 * sum(spec.concurrency for spec in specs)
        limits = limits or Limits()
        own = clients_of(specs, env or {}, limits) if clients is None else clients(specs, limits)
        shared = {spec.service: Throttle(spec.service) for spec in specs if spec.service is not None}
        self._endpoints: dict[str, Endpoint] = {}
        for spec in specs:
            throttle = shared[spec.service] if spec.service else None
            self._endpoints[spec.name] = Endpoint(spec, own[spec.name], limits, throttle)
        self._loop = _new_loop()
        used = [endpoint.client for endpoint in self._endpoints.values()]
        thread = Thread(target=_run, args=(self._loop, used), name="http-pool", daemon=True)
        thread.start()
        self._finish = weakref.finalize(self, _shut_down, self._loop, thread)

    def begin(self, ask: Ask, on_piece: Callable[[str], None] | None = None) -> Future[Reply]:
        """Begin a call in the background thread, within its model's concurrency."""
        endpoint = entry(self._endpoints, ask.model)
        return asyncio.run_coroutine_threadsafe(_reply(endpoint, ask, on_piece), self._loop)

    def close(self) -> None:
        """Cancel what is in flight and close every connection; also done when the pool is forgotten."""
        self._finish()


async def _reply(endpoint: Endpoint, ask: Ask, on_piece: Callable[[str], None] | None = None) -> Reply:
    """The reply to a call; a fault of this program is a failure of this call alone."""
    try:
        return await endpoint.reply(ask, on_piece)
    except TrinityError:
        raise
    except Exception as fault:
        return broken_off(ask, fault)


def clients_of(specs: Sequence[ModelSpec], env: Mapping[str, str], limits: Limits) -> dict[str, ChatClient]:
    """Who tries each model over HTTP from this process, by its name, with keys from `env`. PoolError for one that is
    not set there."""
    found = {}
    for spec in specs:
        key = _secret(spec, spec.api_key_env, env) if spec.api_key_env else ""
        headers = {name: _secret(spec, variable, env) for name, variable in spec.headers_env.items()}
        found[spec.name] = ChatClient(spec, key, limits, headers)
    return found


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


def _new_loop() -> asyncio.AbstractEventLoop:
    """An event loop; the fast one where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _run(loop: asyncio.AbstractEventLoop, clients: Sequence[Client]) -> None:
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
