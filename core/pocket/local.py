"""Language models of a folder as members of a pool in this process: each by its own chat template, one call after the
other."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from core.episode import Ask, Failure, Message, Reply, Usage
from core.errors import CheckpointError, PoolError, TrinityError
from core.pocket.threads import no_progress_bar
from core.pocket.writing import KeyedPrompt, Writer, as_reply, keyed
from core.pool.pool import BackgroundPool, broken_off, entry
from core.pool.spec import ModelSpec
from core.pool.wire import messages_for
from core.tokens.prompts import PromptTokens

#: Tokens of a prompt that are read at once: a call that is given up is gone after so many.
PART = 256
#: Episodes that are worth playing side by side: there is always a next call while decisions are made.
AHEAD = 8


class LocalModel(Writer[Sequence[Message]]):
    """A decoder-only language model in fp32 on the CPU, and how its chat template speaks to it."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokens = PromptTokens(tokenizer, 2**30)  # a prompt that is too long is told, not cut
        said = [model.generation_config and model.generation_config.eos_token_id, tokenizer.eos_token_id]
        ends = [one for some in said for one in (some if isinstance(some, list) else [some])]
        super().__init__(
            model, tokenizer, [one for one in (*ends, self.tokens.turn_end) if one is not None], 0, PART
        )

    @classmethod
    def load(cls, folder: Path) -> LocalModel:
        """Read a Hugging Face folder: no code and no pickle of it is run. PoolError where it cannot be used."""
        try:
            with no_progress_bar():
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    folder,
                    dtype=torch.float32,
                    attn_implementation="sdpa",
                    trust_remote_code=False,
                    use_safetensors=True,
                    local_files_only=True,
                    output_loading_info=True,
                )
            tokenizer: Any = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
        except Exception as error:  # transformers checks little and raises anything for damaged files
            reason = " ".join(str(error).split()) or type(error).__name__
            raise PoolError(f"The language model at {folder} cannot be loaded: {reason[:300]}") from error
        model, told = loaded
        if missing := sorted(told["missing_keys"]):
            raise PoolError(
                f"The language model at {folder} cannot write: its files lack {len(missing)} of its weights, such as "
                f"{missing[0]}; name a folder that was saved with its language model head."
            )
        return cls(torch.nn.Module.eval(model).requires_grad_(False), tokenizer)

    def ids(self, said: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of these messages and of what asks for a reply. CheckpointError where its template refuses them."""
        return self.tokens.chat(said).ids


def kept_model(folder: Path) -> LocalModel:
    """The model of a folder, loaded once by this process as long as its files stay the same; the two that were used
    last are kept, and any other as long as a pool has it."""
    files = (
        tuple((one.name, (held := one.stat()).st_size, held.st_mtime_ns) for one in sorted(folder.iterdir()))
        if folder.is_dir()
        else ()
    )
    return _kept(folder, files)


@lru_cache(maxsize=2)
def _kept(folder: Path, files: tuple[tuple[str, int, int], ...]) -> LocalModel:
    return LocalModel.load(folder)


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
    same folder share its weights. Raises PoolError for a folder that cannot be used."""

    ahead = AHEAD

    def __init__(self, specs: Sequence[ModelSpec]) -> None:
        self.specs = tuple(specs)
        self._by_name = {spec.name: spec for spec in specs}
        self._models: dict[str, LocalModel] = {}

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
            reply = broken_off(ask, fault)
        if reply is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(reply, TrinityError):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    def _reply(self, ask: Ask, on_piece: Callable[[str], None] | None, future: Future[Reply]) -> Reply | None:
        """The reply; None where the call was given up."""
        spec = self._by_name[ask.model]
        if spec.local not in self._models:
            self._models[spec.local] = kept_model(Path(spec.local))
        model, began = self._models[spec.local], time.perf_counter()
        told = replace(spec, system_role=spec.system_role and model.tokens.has_system_role)
        try:
            ids = model.ids(messages_for(told, ask.messages))
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


def _failure(message: str, tokens_in: int = 0) -> Reply:
    return Reply("", finish_reason="error", usage=Usage(tokens_in, 0, 0.0), error=Failure("model", message))
