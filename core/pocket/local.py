"""Language models of a folder as members of a pool in this process: each by its own chat template, one call after the
other. torch is imported when the first of them is asked."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

from core.episode import Ask, Failure, Reply, Usage
from core.errors import CheckpointError, PoolError, TrinityError
from core.pool.pool import BackgroundPool, broken_off, entry
from core.pool.spec import ModelSpec
from core.pool.tool_calls import in_words
from core.pool.wire import messages_for

if TYPE_CHECKING:
    from core.pocket.writing import LocalModel

#: Episodes that are worth playing side by side: there is always a next call while decisions are made.
AHEAD = 8


class _Desk:
    """The one thread in which models write: calls of all pools of this process wait here for their turn."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._lock = Lock()
        self.is_closing = False

    def put(self, job: Callable[[], None]) -> None:
        """Do this when what was put before is done."""
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._work, name="local-pool", daemon=True)
                self._thread.start()
                atexit.register(self.close)
        self._waiting.put(job)

    def close(self) -> None:
        """Leave off in the middle of a reply, and end the thread."""
        self.is_closing = True
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        for job in iter(self._waiting.get, None):
            job()


_desk = _Desk()


class LocalPool(BackgroundPool):
    """Answers Asks with language models of folders on this machine, each loaded when first asked. Members that name the
    same folder, device and numbers share its weights. Raises PoolError for a folder that cannot be used, and at once
    for a device that is not here."""

    ahead = AHEAD

    def __init__(self, specs: Sequence[ModelSpec]) -> None:
        self.specs = tuple(specs)
        self._by_name = {spec.name: spec for spec in specs}
        self._models: dict[tuple[str, str, str | None], LocalModel] = {}
        for spec in specs:
            if spec.device not in ("auto", "cpu"):  # these are always there, and need no torch to know it
                _check_device(spec)

    def begin(self, ask: Ask, on_piece: Callable[[str], None] | None = None) -> Future[Reply]:
        """Put a call into the line of all calls of this process; one that is cancelled ends at its next token."""
        entry(self._by_name, ask.model)
        future: Future[Reply] = Future()
        _desk.put(partial(self._answer, ask, on_piece, future))
        return future

    def _answer(self, ask: Ask, on_piece: Callable[[str], None] | None, future: Future[Reply]) -> None:
        """Write a reply, unless nobody waits for it any more."""
        if future.cancelled():
            return
        try:
            reply: Reply | None | TrinityError = self._reply(ask, on_piece, future)
        except TrinityError as error:
            reply = error
        except Exception as fault:
            reply = self._fault(ask, fault)
        if reply is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(reply, TrinityError):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    def _fault(self, ask: Ask, fault: Exception) -> Reply | TrinityError:
        """What a call ends with that this program failed at; without memory it would fail at all others too."""
        from core.pocket.devices import is_out_of_memory

        if not is_out_of_memory(fault):
            return broken_off(ask, fault)
        return PoolError(
            f"There is not enough memory for model '{ask.model}' to read a prompt and write its reply: end other "
            "programs, give it the dtype bfloat16 or a smaller context_window in pool.toml, or name a smaller model."
        )

    def _reply(self, ask: Ask, on_piece: Callable[[str], None] | None, future: Future[Reply]) -> Reply | None:
        """The reply; None where the call was given up."""
        from core.pocket.writing import KeyedPrompt, as_reply, kept_model, keyed

        spec = self._by_name[ask.model]
        wanted = spec.local, spec.device, spec.dtype
        if wanted not in self._models:
            self._models[wanted] = kept_model(Path(spec.local), spec.device, spec.dtype)
        model, began = self._models[wanted], time.perf_counter()
        told = replace(spec, system_role=spec.system_role and model.tokens.has_system_role)
        try:
            ids = model.ids(messages_for(told, in_words(ask.messages)))
        except CheckpointError as error:
            return _failure(f"Model '{spec.name}' cannot be asked this: {error}")
        room = (spec.context_window or 2**30) - len(ids)
        if room < 1:
            return _failure(
                f"Model '{spec.name}' cannot hold a prompt of {len(ids):,} tokens: its window has "
                f"{spec.context_window:,}, the reply included.",
                len(ids),
            )
        pieces = model.pieces(
            KeyedPrompt(ids, keyed(ask)[1]),
            temperature=spec.temperature if ask.temperature is None else ask.temperature,
            max_tokens=min(ask.max_tokens or spec.max_tokens, spec.max_tokens, room),
            top_p=float(spec.extra.get("top_p", 1.0)) if ask.top_p is None else ask.top_p,
        )
        for piece in pieces:
            if future.cancelled() or _desk.is_closing:
                return None
            if not isinstance(piece, str):
                return as_reply(piece, time.perf_counter() - began)
            if piece and on_piece is not None:
                on_piece(piece)
        return None


def _check_device(spec: ModelSpec) -> None:
    from core.pocket.devices import chosen_device

    try:
        chosen_device(spec.device, small=False)
    except CheckpointError as error:
        raise PoolError(f"The model '{spec.name}' of the pool cannot write: {error}") from None


def _failure(message: str, tokens_in: int = 0) -> Reply:
    return Reply("", finish_reason="error", usage=Usage(tokens_in, 0, 0.0), error=Failure("model", message))
