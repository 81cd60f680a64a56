"""The pocket models in memory, and the pocket provider, which answers a pool's asks with them in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3ForCausalLM

from core.episode import Ask, Reply
from core.errors import PoolError
from core.pocket import MODELS, WEIGHTS
from core.pocket.models import MAX_TOKENS, pocket_spec
from core.pocket.threads import quiet_loading
from core.pocket.writing import Writer, Written, as_reply, keyed
from core.pool.pool import closing, entry
from core.pool.spec import ModelSpec
from core.processes import Processes, folder_of, portable
from core.tokens.prompts import PromptTokens

#: Positions a pocket model was built for; a longer prompt loses its end, never its place for the reply.
CONTEXT = 1024


class LanguageModel(Writer[str]):
    """Qwen3-architecture weights with their tokenizer, run in fp32 on the CPU."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__(model, tokenizer, [int(tokenizer.eos_token_id)], int(tokenizer.pad_token_id))
        self._tokens = PromptTokens(tokenizer, CONTEXT)
        around = tokenizer.apply_chat_template(
            [{"role": "user", "content": "\0"}], tokenize=False, add_generation_prompt=True
        )
        self._opening, self._closing = (self._tokens.literal(part) for part in str(around).split("\0"))

    @classmethod
    def load(cls, folder: Path) -> LanguageModel:
        """Read a Hugging Face folder; raises PoolError when there is none."""
        if not (folder / "config.json").exists():
            raise PoolError(
                f"There are no pocket weights at {folder}: run 'trinity pocket train {folder.name}'."
            )
        with quiet_loading():
            model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return cls(model, PreTrainedTokenizerFast.from_pretrained(folder))

    def ids(self, said: str) -> tuple[int, ...]:
        """Token ids of one user message with the generation prompt; the content can never open or close a message."""
        room = CONTEXT - len(self._opening) - len(self._closing) - MAX_TOKENS
        return (*self._opening, *self._tokens.plain(said)[:room], *self._closing)


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
        prompts = [*map(keyed, asks)]
        batches, jobs = [], []
        for (model, temperature, max_tokens), indices in groups.items():
            indices.sort(key=lambda index: len(prompts[index][0]))
            for start in range(0, len(indices), BATCH):
                batch = indices[start : start + BATCH]
                contents, keys = zip(*(prompts[index] for index in batch), strict=True)
                batches.append(batch)
                jobs.append([portable(self._folder(model)), contents, keys, temperature, max_tokens])
        here = partial(_answer, self._load)
        with closing(self._processes.answers("core.pocket.pool:answer_job", jobs, here)) as answers:
            for batch, (seconds, replies) in zip(batches, answers, strict=True):
                for index, written in zip(batch, replies, strict=True):
                    yield index, as_reply(Written(*written), seconds / len(batch))

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Pieces of text as they are sampled, then the reply that `ask` would have given."""
        model, temperature, max_tokens = self._sampling(ask)
        began = time.perf_counter()
        for piece in self._load(self._folder(model)).stream(
            *keyed(ask), temperature=temperature, max_tokens=max_tokens
        ):
            yield piece if isinstance(piece, str) else as_reply(piece, time.perf_counter() - began)

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
    replies = load(folder_of(folder)).write(contents, keys, temperature=temperature, max_tokens=max_tokens)
    return time.perf_counter() - began, [astuple(one) for one in replies]


#: In a helper process: the answer to one of the pool's jobs.
answer_job = partial(_answer, cache(LanguageModel.load))
