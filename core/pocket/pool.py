"""The pocket provider: seven small language models that answer in this process, seeded and batched."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import cache, partial
from pathlib import Path
from typing import Any

from core.episode import Ask, Failure, Reply, Usage
from core.errors import PoolError
from core.pocket import MODELS, WEIGHTS
from core.pocket.language_model import LanguageModel, Written
from core.pocket.models import pocket_spec
from core.pool.pool import closing, entry
from core.pool.spec import ModelSpec
from core.processes import Processes

#: Rows per batch: past this the padding of unequal lengths costs more than the batch saves.
BATCH = 128


class PocketPool:
    """Answers Asks with the shipped pocket models, each loaded when first asked; `processes` share the batches."""

    def __init__(
        self,
        names: Sequence[str] = MODELS,
        *,
        weights: Path = WEIGHTS,
        specs: Sequence[ModelSpec] = (),
        processes: Processes | None = None,
    ) -> None:
        unknown = [name for name in names if name not in MODELS]
        if unknown:
            raise PoolError(f"There is no pocket model '{unknown[0]}': choose from {', '.join(MODELS)}.")
        self.specs = tuple(specs) or tuple(pocket_spec(name) for name in names)
        self._by_name = {spec.name: spec for spec in self.specs}
        self._weights = weights
        self._processes = processes or Processes(1)
        self._load = cache(LanguageModel.load)

    def load(self) -> Iterator[str]:
        """Load every model before it is asked; yields the name of each that is there."""
        for name in self._by_name:
            self._load(self._folder(name))
            yield name

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply): one batch after the other, model by model, prompts of like length together."""
        groups: dict[tuple[str, float, int], list[int]] = {}
        for index, ask in enumerate(asks):
            groups.setdefault(self._sampling(ask), []).append(index)
        batches, jobs = [], []
        for (model, temperature, max_tokens), indices in groups.items():
            indices.sort(key=lambda index: len(_content(asks[index])))
            for start in range(0, len(indices), BATCH):
                batch = indices[start : start + BATCH]
                contents = [_content(asks[index]) for index in batch]
                keys = [_key(asks[index]) for index in batch]
                batches.append(batch)
                jobs.append([str(self._folder(model)), contents, keys, temperature, max_tokens])
        here = partial(_answer, self._load)
        with closing(self._processes.answers("core.pocket.pool:answer_job", jobs, here)) as answers:
            for batch, (seconds, replies) in zip(batches, answers, strict=True):
                for index, written in zip(batch, replies, strict=True):
                    yield index, _reply(Written(*written), seconds / len(batch))

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Pieces of text as they are sampled, then the reply that `ask` would have given."""
        model, temperature, max_tokens = self._sampling(ask)
        began = time.perf_counter()
        for piece in self._load(self._folder(model)).stream(
            _content(ask), _key(ask), temperature=temperature, max_tokens=max_tokens
        ):
            yield piece if isinstance(piece, str) else _reply(piece, time.perf_counter() - began)

    def _sampling(self, ask: Ask) -> tuple[str, float, int]:
        spec = entry(self._by_name, ask.model)
        temperature = spec.temperature if ask.temperature is None else ask.temperature
        return spec.name, temperature, min(ask.max_tokens or spec.max_tokens, spec.max_tokens)

    def _folder(self, name: str) -> Path:
        return self._weights / self._by_name[name].model.removeprefix("pocket/")


def _answer(load: Callable[[Path], LanguageModel], job: Any) -> Any:
    """(seconds, replies as the fields of `Written`) of one batch: folder, contents, keys, temperature, token limit."""
    folder, contents, keys, temperature, max_tokens = job
    began = time.perf_counter()
    replies = load(Path(folder)).write(contents, keys, temperature=temperature, max_tokens=max_tokens)
    return time.perf_counter() - began, [astuple(one) for one in replies]


#: In a helper process: the answer to one of the pool's jobs.
answer_job = partial(_answer, cache(LanguageModel.load))


def _content(ask: Ask) -> str:
    return "\n".join(message.content for message in ask.messages)


def _key(ask: Ask) -> str:
    digest = hashlib.sha256(_content(ask).encode()).hexdigest()
    return f"{ask.seed}/{ask.sample}/{ask.model}/{digest}"


def _reply(written: Written, latency_s: float) -> Reply:
    failure = None if written.text else Failure("model", "The model wrote nothing.")
    return Reply(
        written.text,
        finish_reason="stop" if written.finished else "length",
        usage=Usage(written.tokens_in, written.tokens_out, 0.0),
        latency_s=latency_s,
        error=failure,
    )
