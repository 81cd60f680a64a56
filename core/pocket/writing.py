"""Language models that write in this process: a prompt in, a sampled reply out, each by its own keyed random numbers.

A library's generator draws from one stream for the whole batch, so that a reply depends on its neighbours. Here every
row has its own stream: the same key gives the same reply, alone or among thousands.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from core.draws import uniform
from core.episode import Ask, Failure, Message, Reply, Usage
from core.errors import PoolError
from core.pocket.devices import TORCH_DTYPES, chosen_computing, load_fault
from core.pocket.threads import is_small, quiet_loading, suited_threads
from core.tokens.files import Listed, listed_files
from core.tokens.prompts import PromptTokens

Said = TypeVar("Said")

#: Tokens of a prompt that are read at once: a call that is given up is gone after so many.
PART = 256


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


class Writer(ABC, Generic[Said]):
    """A causal language model with its tokenizer. `ends` are the tokens with which it ends a reply; `part`
    is how many tokens of a prompt it reads at once (None: all of them)."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        ends: Sequence[int],
        pad: int,
        part: int | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._ends, self._pad, self._part = frozenset(ends), pad, part
        self._small = is_small(model)

    @abstractmethod
    def ids(self, said: Said) -> tuple[int, ...]:
        """Token ids of what is said to it; no text can ever open or close a message."""

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def write(
        self, said: Sequence[Said], keys: Sequence[str], *, temperature: float, max_tokens: int
    ) -> list[Written]:
        """Reply to each with the randomness of its key, all in one batch."""
        prompts = [KeyedPrompt(self.ids(one), key) for one, key in zip(said, keys, strict=True)]
        replies: list[list[int]] = [[] for _ in prompts]
        if prompts:
            for step in self._steps(prompts, temperature, max_tokens, 1.0):
                for row, token in step.items():
                    replies[row].append(token)
        return [self._written(prompt, tokens) for prompt, tokens in zip(prompts, replies, strict=True)]

    def stream(self, said: Said, key: str, *, temperature: float, max_tokens: int) -> Iterator[str | Written]:
        """Pieces of one reply as they are sampled, then the whole: the same reply that `write` gives."""
        prompt = KeyedPrompt(self.ids(said), key)
        for piece in self.pieces(prompt, temperature=temperature, max_tokens=max_tokens):
            if piece != "":
                yield piece

    def pieces(
        self, prompt: KeyedPrompt, *, temperature: float, max_tokens: int, top_p: float = 1.0
    ) -> Iterator[str | Written]:
        """What each forward adds to the text, which may be nothing, then the whole reply."""
        tokens: list[int] = []
        shown = ""
        for step in self._steps([prompt], temperature, max_tokens, top_p):
            tokens += step.values()
            so_far = self.text(tokens)
            # Half of a character has no text yet.
            grows = so_far.startswith(shown) and not so_far.endswith("\ufffd")
            yield so_far[len(shown) :] if grows else ""
            shown = so_far if grows else shown
        whole = self._written(prompt, tokens)
        if whole.text != shown and whole.text.startswith(shown):
            yield whole.text[len(shown) :]
        yield whole

    def _steps(
        self, prompts: Sequence[KeyedPrompt], temperature: float, max_tokens: int, top_p: float
    ) -> Iterator[dict[int, int]]:
        steps = sample(
            self.model,
            prompts,
            temperature=temperature,
            max_tokens=max_tokens,
            ends=self._ends,
            pad=self._pad,
            top_p=top_p,
            part=self._part,
        )
        while True:
            with suited_threads(self._small):  # not while whoever reads the steps does something else
                step = next(steps, None)
            if step is None:
                return
            yield step

    def _written(self, prompt: KeyedPrompt, tokens: Sequence[int]) -> Written:
        finished = bool(tokens) and tokens[-1] in self._ends
        said = tokens[:-1] if finished else tokens
        return Written(self.text(said), finished, len(prompt.ids), len(tokens))


class LocalModel(Writer[Sequence[Message]]):
    """A decoder-only language model, and how its chat template speaks to it."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokens = PromptTokens(tokenizer, 2**30)  # a prompt that is too long is told, not cut
        said = [model.generation_config and model.generation_config.eos_token_id, tokenizer.eos_token_id]
        ends = [one for some in said for one in (some if isinstance(some, list) else [some])]
        super().__init__(
            model, tokenizer, [one for one in (*ends, self.tokens.turn_end) if one is not None], 0, PART
        )

    @classmethod
    def load(cls, folder: Path, device: str = "auto", dtype: str | None = None) -> LocalModel:
        """Read a Hugging Face folder: no code and no pickle of it is run. `device` and `dtype` are chosen as an
        encoder's are. PoolError where it cannot be used."""
        try:
            kind, numbers = chosen_computing(folder, device, dtype)
            with quiet_loading():
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    folder,
                    dtype=TORCH_DTYPES[numbers],
                    attn_implementation="sdpa",
                    trust_remote_code=False,
                    use_safetensors=True,
                    local_files_only=True,
                    output_loading_info=True,
                )
            loaded[0].to(kind)
            tokenizer: Any = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
        except Exception as error:  # transformers checks little and raises anything for damaged files
            raise PoolError(load_fault(f"the language model at {folder}", error)) from error
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


def kept_model(folder: Path, device: str = "auto", dtype: str | None = None) -> LocalModel:
    """The model of a folder on a device and in its numbers, loaded once by this process as long as its files stay the
    same; the two that were used last are kept, and any other as long as a pool has it."""
    return _kept(folder, listed_files(folder), device, dtype)


@lru_cache(maxsize=2)
def _kept(folder: Path, files: Listed, device: str, dtype: str | None) -> LocalModel:
    return LocalModel.load(folder, device, dtype)


@torch.inference_mode()
def sample(
    model: Callable[..., Any],
    prompts: Sequence[KeyedPrompt],
    *,
    temperature: float,
    max_tokens: int,
    ends: frozenset[int],
    pad: int,
    top_p: float = 1.0,
    part: int | None = None,
) -> Iterator[dict[int, int]]:
    """Yield, step by step, {row: next token id} of the rows that are still being written (the end token included), and
    {} while a prompt is being read in parts of `part` tokens, which only one that is alone can be.

    `model` gives `logits` as a causal language model of transformers does, and has its `config`, and its `device` where
    that is not the CPU; tokens are drawn on the CPU from the same numbers wherever it computes. temperature 0 takes
    the most likely token; of others only the likeliest are drawn that together have a share of `top_p`. Rows end at one
    of `ends` or after `max_tokens`."""
    device = getattr(model, "device", "cpu")
    rows = list(range(len(prompts)))
    length = max(len(prompt.ids) for prompt in prompts)
    tokens = torch.full((len(rows), length), pad)
    mask = torch.zeros((len(rows), length), dtype=torch.long)
    for row, prompt in enumerate(prompts):  # padded on the left: the last column is every row's newest token
        tokens[row, length - len(prompt.ids) :] = torch.tensor(prompt.ids)
        mask[row, length - len(prompt.ids) :] = 1
    draws = torch.from_numpy(np.stack([uniform(prompt.key, max_tokens) for prompt in prompts]))
    past = DynamicCache(config=model.config)  # type: ignore[attr-defined]
    is_padded = not bool(mask.all())
    while part is not None and tokens.shape[1] > part:
        model(input_ids=tokens[:, :part].to(device), cache=past, use_cache=True, logits_to_keep=1)
        tokens = tokens[:, part:]
        yield {}
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    for step in range(max_tokens):
        places = (
            {"attention_mask": mask.to(device), "position_ids": positions.to(device)} if is_padded else {}
        )
        out = model(input_ids=tokens.to(device), cache=past, use_cache=True, logits_to_keep=1, **places)
        chosen = _chosen(out.logits[:, -1].cpu(), draws[rows, step], temperature, top_p)
        written = chosen.tolist()
        yield dict(zip(rows, written, strict=True))
        kept = [place for place, token in enumerate(written) if token not in ends]
        if not kept:
            return
        if len(kept) < len(rows):
            going = torch.tensor(kept)
            rows = [rows[place] for place in kept]
            past.batch_select_indices(going.to(device))
            mask, positions, chosen = mask[going], positions[going], chosen[going]
        tokens = chosen[:, None]
        mask = torch.cat([mask, torch.ones((len(rows), 1), dtype=torch.long)], dim=1)
        positions = positions[:, -1:] + 1


def _chosen(logits: torch.Tensor, draws: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """The next token of each row [rows] by its logits [rows, vocabulary] and one uniform number each [rows]."""
    if temperature <= 0:
        return logits.argmax(dim=-1)
    shares = torch.softmax(logits.double() / temperature, dim=-1)
    if top_p < 1:
        falling, order = shares.sort(dim=-1, descending=True)
        falling[falling.cumsum(dim=-1) - falling >= top_p] = 0  # the likeliest always stays
        shares = torch.zeros_like(shares).scatter_(-1, order, falling)
    cumulative = shares.cumsum(dim=-1)  # inverse transform sampling
    drawn = torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:])
    return drawn.flatten().clamp(max=logits.shape[-1] - 1)


def keyed(ask: Ask) -> tuple[str, str]:
    """What a call says, and the key of its random numbers."""
    content = "\n".join(message.content for message in ask.messages)
    return content, f"{ask.seed}/{ask.sample}/{ask.model}/{hashlib.sha256(content.encode()).hexdigest()}"


def as_reply(written: Written, latency_s: float) -> Reply:
    """What was written as a reply; it costs nothing."""
    failure = None if written.text else Failure("model", "The model wrote nothing.")
    return Reply(
        written.text,
        finish_reason="stop" if written.finished else "length",
        usage=Usage(written.tokens_in, written.tokens_out, 0.0),
        latency_s=latency_s,
        error=failure,
    )
