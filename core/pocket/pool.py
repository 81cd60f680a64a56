"""The pocket models in memory: text prompts in, sampled text replies out, each by its own keyed random numbers; and the
pocket provider, which answers a pool's asks with them in batches.

A library's generator draws from one stream for the whole batch, so that a reply depends on its neighbours. Here every
row has its own stream: the same key gives the same reply, alone or among thousands.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerFast, Qwen3ForCausalLM

from core.draws import uniform
from core.episode import Ask, Failure, Reply, Usage
from core.errors import PoolError
from core.pocket import MODELS, WEIGHTS
from core.pocket.models import MAX_TOKENS, pocket_spec
from core.pocket.threads import is_small, no_progress_bar, suited_threads
from core.pool.pool import closing, entry
from core.pool.spec import ModelSpec
from core.processes import Processes
from core.tokens.prompts import PromptTokens

#: Positions a pocket model was built for; a longer prompt loses its end, never its place for the reply.
CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class KeyedPrompt:
    """Token ids to continue, and the key of the random numbers that continue them."""

    ids: tuple[int, ...]
    key: str


@dataclass(frozen=True, slots=True)
class Written:
    """One reply: its text, how it ended and how many tokens went in and out."""

    text: str
    finished: bool
    tokens_in: int
    tokens_out: int


class LanguageModel:
    """Qwen3-architecture weights with their tokenizer, run in fp32 on the CPU."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._small = is_small(model)
        self._end, self._pad = int(tokenizer.eos_token_id), int(tokenizer.pad_token_id)
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
        with no_progress_bar():
            model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return cls(model, PreTrainedTokenizerFast.from_pretrained(folder))

    def ids(self, content: str) -> tuple[int, ...]:
        """Token ids of one user message with the generation prompt; the content can never open or close a message."""
        room = CONTEXT - len(self._opening) - len(self._closing) - MAX_TOKENS
        return (*self._opening, *self._tokens.plain(content)[:room], *self._closing)

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def write(
        self, contents: Sequence[str], keys: Sequence[str], *, temperature: float, max_tokens: int
    ) -> list[Written]:
        """Reply to each content with the randomness of its key, all in one batch."""
        prompts = [KeyedPrompt(self.ids(content), key) for content, key in zip(contents, keys, strict=True)]
        replies: list[list[int]] = [[] for _ in prompts]
        if prompts:
            for step in self._steps(prompts, temperature, max_tokens):
                for row, token in step.items():
                    replies[row].append(token)
        return [self._written(prompt, tokens) for prompt, tokens in zip(prompts, replies, strict=True)]

    def stream(
        self, content: str, key: str, *, temperature: float, max_tokens: int
    ) -> Iterator[str | Written]:
        """Pieces of one reply as they are sampled, then the whole: the same reply that `write` gives."""
        prompt, tokens, shown = KeyedPrompt(self.ids(content), key), [], ""
        for step in self._steps([prompt], temperature, max_tokens):
            tokens.append(step[0])
            so_far = self.text(tokens)
            if so_far.startswith(shown) and len(so_far) > len(shown):
                yield so_far[len(shown) :]
                shown = so_far
        yield self._written(prompt, tokens)

    def _steps(
        self, prompts: Sequence[KeyedPrompt], temperature: float, max_tokens: int
    ) -> Iterator[dict[int, int]]:
        steps = sample(
            self.model, prompts, temperature=temperature, max_tokens=max_tokens, end=self._end, pad=self._pad
        )
        while True:
            with suited_threads(self._small):  # not while whoever reads the steps does something else
                step = next(steps, None)
            if step is None:
                return
            yield step

    def _written(self, prompt: KeyedPrompt, tokens: Sequence[int]) -> Written:
        finished = bool(tokens) and tokens[-1] == self._end
        return Written(self.text(tokens), finished, len(prompt.ids), len(tokens))


@torch.inference_mode()
def sample(
    model: PreTrainedModel,
    prompts: Sequence[KeyedPrompt],
    *,
    temperature: float,
    max_tokens: int,
    end: int,
    pad: int,
) -> Iterator[dict[int, int]]:
    """Yield, step by step, {row: next token id} of the rows that are still being written (the end token included).

    temperature 0 takes the most likely token. Rows end at `end` or after `max_tokens`."""
    rows = list(range(len(prompts)))
    length = max(len(prompt.ids) for prompt in prompts)
    tokens = torch.full((len(rows), length), pad)
    mask = torch.zeros((len(rows), length), dtype=torch.long)
    for row, prompt in enumerate(prompts):  # padded on the left: the last column is every row's newest token
        tokens[row, length - len(prompt.ids) :] = torch.tensor(prompt.ids)
        mask[row, length - len(prompt.ids) :] = 1
    draws = torch.from_numpy(np.stack([uniform(prompt.key, max_tokens) for prompt in prompts]))
    past = DynamicCache(config=model.config)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    for step in range(max_tokens):
        out = model.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            cache=past,
            use_cache=True,
        )
        logits = model.lm_head(out.last_hidden_state[:, -1])
        if temperature <= 0:
            chosen = logits.argmax(dim=-1)
        else:  # inverse transform sampling with one uniform per row
            cumulative = torch.softmax(logits.double() / temperature, dim=-1).cumsum(dim=-1)
            drawn = torch.searchsorted(cumulative, draws[rows, step][:, None] * cumulative[:, -1:])
            chosen = drawn.flatten().clamp(max=logits.shape[-1] - 1)
        yield dict(zip(rows, chosen.tolist(), strict=True))
        going = (chosen != end).nonzero().flatten()
        if len(going) == 0:
            return
        if len(going) < len(rows):
            rows = [rows[i] for i in going.tolist()]
            past.batch_select_indices(going)
            mask, positions, chosen = mask[going], positions[going], chosen[going]
        tokens = chosen[:, None]
        mask = torch.cat([mask, torch.ones((len(rows), 1), dtype=torch.long)], dim=1)
        positions = positions[:, -1:] + 1


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
        prompts = [*map(_prompt, asks)]
        batches, jobs = [], []
        for (model, temperature, max_tokens), indices in groups.items():
            indices.sort(key=lambda index: len(prompts[index][0]))
            for start in range(0, len(indices), BATCH):
                batch = indices[start : start + BATCH]
                contents, keys = zip(*(prompts[index] for index in batch), strict=True)
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
            *_prompt(ask), temperature=temperature, max_tokens=max_tokens
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


def _prompt(ask: Ask) -> tuple[str, str]:
    """What a call says, and the key of its random numbers."""
    content = "\n".join(message.content for message in ask.messages)
    return content, f"{ask.seed}/{ask.sample}/{ask.model}/{hashlib.sha256(content.encode()).hexdigest()}"


def _reply(written: Written, latency_s: float) -> Reply:
    failure = None if written.text else Failure("model", "The model wrote nothing.")
    return Reply(
        written.text,
        finish_reason="stop" if written.finished else "length",
        usage=Usage(written.tokens_in, written.tokens_out, 0.0),
        latency_s=latency_s,
        error=failure,
    )
