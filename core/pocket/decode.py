"""Samples replies from a small causal LM for many prompts at once, each by its own keyed random numbers.

A library's generator draws from one stream for the whole batch, so that a reply depends on its neighbours. Here every
row has its own stream: the same key gives the same reply, alone or among thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from core.draws import uniform


@dataclass(frozen=True, slots=True)
class KeyedPrompt:
    """Token ids to continue, and the key of the random numbers that continue them."""

    ids: tuple[int, ...]
    key: str


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
    cache = DynamicCache(config=model.config)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    for step in range(max_tokens):
        out = model.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        )
        logits = model.lm_head(out.last_hidden_state[:, -1])
        chosen = sample_tokens(logits, draws[rows, step], temperature)
        yield dict(zip(rows, chosen.tolist(), strict=True))
        going = (chosen != end).nonzero().flatten()
        if len(going) == 0:
            return
        if len(going) < len(rows):
            rows = [rows[i] for i in going.tolist()]
            cache.batch_select_indices(going)
            mask, positions, chosen = mask[going], positions[going], chosen[going]
        tokens = chosen[:, None]
        mask = torch.cat([mask, torch.ones((len(rows), 1), dtype=torch.long)], dim=1)
        positions = positions[:, -1:] + 1


def sample_tokens(logits: Tensor, draws: Tensor, temperature: float) -> Tensor:
    """Token ids [rows] from logits [rows, vocabulary] by inverse transform sampling with one uniform per row."""
    if temperature <= 0:
        return logits.argmax(dim=-1)
    cumulative = torch.softmax(logits.double() / temperature, dim=-1).cumsum(dim=-1)
    return (
        torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:])
        .flatten()
        .clamp(max=logits.shape[-1] - 1)
    )
