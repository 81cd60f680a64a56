"""The pocket provider: seven small language models that answer in this process, seeded and batched."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.episode import Ask, Failure, Reply, Usage
from core.errors import PoolError
from core.pocket import MODELS, WEIGHTS
from core.pocket.language_model import LanguageModel, Written
from core.pocket.specs import pocket_spec
from core.pool.spec import ModelSpec

#: Rows per batch: past this the padding of unequal lengths costs more than the batch saves.
BATCH = 128


class PocketPool:
    """Answers Asks with the shipped pocket models, each loaded when it is first asked."""

    def __init__(
        self, names: Sequence[str] = MODELS, *, weights: Path = WEIGHTS, specs: Sequence[ModelSpec] = ()
    ) -> None:
        unknown = [name for name in names if name not in MODELS]
        if unknown:
            raise PoolError(f"There is no pocket model '{unknown[0]}': choose from {', '.join(MODELS)}.")
        self._specs = tuple(specs) or tuple(pocket_spec(name) for name in names)
        self._by_name = {spec.name: spec for spec in self._specs}
        self._weights = weights
        self._loaded: dict[str, LanguageModel] = {}

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The models in slot order."""
        return self._specs

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply): one batch after the other, model by model, prompts of like length together."""
        groups: dict[tuple[str, float, int], list[int]] = {}
        for index, ask in enumerate(asks):
            groups.setdefault(self._sampling(ask), []).append(index)
        for (model, temperature, max_tokens), indices in groups.items():
            indices.sort(key=lambda index: len(_content(asks[index])))
            for start in range(0, len(indices), BATCH):
                batch = indices[start : start + BATCH]
                began = time.perf_counter()
                written = self._model(model).write(
                    [_content(asks[index]) for index in batch],
                    [_key(asks[index]) for index in batch],
                    temperature=temperature,
                    max_tokens=max_tokens,
                )
                share = (time.perf_counter() - began) / len(batch)
                yield from ((index, _reply(one, share)) for index, one in zip(batch, written, strict=True))

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Pieces of text as they are sampled, then the reply that `ask` would have given."""
        model, temperature, max_tokens = self._sampling(ask)
        began = time.perf_counter()
        for piece in self._model(model).stream(
            _content(ask), _key(ask), temperature=temperature, max_tokens=max_tokens
        ):
            yield piece if isinstance(piece, str) else _reply(piece, time.perf_counter() - began)

    def _sampling(self, ask: Ask) -> tuple[str, float, int]:
        spec = self._by_name.get(ask.model)
        if spec is None:
            raise PoolError(f"The pool has no model '{ask.model}': it has {', '.join(self._by_name)}.")
        temperature = spec.temperature if ask.temperature is None else ask.temperature
        return spec.name, temperature, min(ask.max_tokens or spec.max_tokens, spec.max_tokens)

    def _model(self, name: str) -> LanguageModel:
        if name not in self._loaded:
            folder = self._by_name[name].model.removeprefix("pocket/")
            self._loaded[name] = LanguageModel.load(self._weights / folder)
        return self._loaded[name]


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
