"""Trains the pocket models by their recorded recipes; the same recipe on one CPU thread gives the same weights."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from core.errors import ConfigError
from core.pocket import ENCODER, FAMILIES
from core.pocket.corpus import Exercise, exercises
from core.pocket.muon import Muon
from core.pocket.recipes import RECIPES, Mix, Recipe
from core.pocket.tokenizer import train_tokenizer
from core.pocket.transcripts import training_transcripts

#: Label of tokens whose prediction is not scored (PyTorch's cross-entropy default).
IGNORED = -100


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a training is: `loss` is the mean cross-entropy per reply token (nats) since the last report."""

    step: int
    steps: int
    loss: float


def train(name: str, folder: Path, *, report_every: int = 100) -> Iterator[TrainingProgress]:
    """Train the model `name` by its recipe and write it to `folder` at the end. ConfigError for an unknown name."""
    if name not in RECIPES:
        raise ConfigError(f"There is no pocket model '{name}': choose one of {', '.join(RECIPES)}.")
    recipe = RECIPES[name]
    torch.manual_seed(recipe.seed)
    taught: Mix = {(family, skill): 1.0 for family in FAMILIES for skill in ("think", "check")}
    sample = islice(exercises(taught, 0), 20_000)
    tokenizer = train_tokenizer(text for one in sample for text in (one.prompt, one.reply))
    model = new_model(tokenizer, width=recipe.width, layers=recipe.layers)
    yield from fit(model, tokenizer, recipe, report_every)
    save(model, tokenizer, folder)


def new_model(tokenizer: PreTrainedTokenizerFast, *, width: int, layers: int) -> Qwen3ForCausalLM:
    """A Qwen3 of this shape with random weights."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=width // 4,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a Hugging Face folder with fp16 weights."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.nn.Module.to(model, torch.float16)  # in place
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fit(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, report_every: int
) -> Iterator[TrainingProgress]:
    """Warm-up and cosine decay; the loss is the cross-entropy of the scored tokens.

    Matrices are moved by Muon (Jordan et al. 2024), which in trials here reached in 300 steps the loss that took AdamW
    600; embeddings and norms by AdamW. Both at one rate: Muon's is matched to AdamW's root mean square."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    optimisers: tuple[torch.optim.Optimizer, ...] = (
        Muon(matrices, recipe.peak_rate),
        torch.optim.AdamW(others, lr=recipe.peak_rate, betas=(0.9, 0.98), weight_decay=0.0),
    )
    model.train()
    total, since = 0.0, 0
    for step, (tokens, labels) in enumerate(islice(batches(tokenizer, recipe), recipe.steps)):
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate(recipe, step)
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
        scored = labels[:, 1:] != IGNORED
        logits = model.lm_head(hidden[:, :-1][scored])
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:][scored])
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
        model.zero_grad(set_to_none=True)
        total, since = total + loss.item(), since + 1
        if (step + 1) % report_every == 0 or step + 1 == recipe.steps:
            yield TrainingProgress(step + 1, recipe.steps, total / since)
            total, since = 0.0, 0


def rate(recipe: Recipe, step: int) -> float:
    """Learning rate: linear warm-up over 100 steps, then a cosine down to a twentieth."""
    warm = min(1.0, (step + 1) / 100)
    return recipe.peak_rate * warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / recipe.steps)))


def batches(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (tokens, labels) [batch, length]; sequences of like length stand together to waste little padding."""
    stream = sequences(tokenizer, recipe)
    rng = random.Random(recipe.seed)
    while True:
        pool = list(islice(stream, 16 * recipe.batch))
        pool.sort(key=lambda pair: len(pair[0]))
        chunks = [pool[start : start + recipe.batch] for start in range(0, len(pool), recipe.batch)]
        rng.shuffle(chunks)
        for chunk in chunks:
            yield collate(chunk, int(tokenizer.pad_token_id))


def sequences(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> Iterator[tuple[list[int], int]]:
    """Endless (token ids, number of leading tokens that are not scored): exercises, or transcripts for the encoder."""
    if recipe.name == ENCODER:
        for text in training_transcripts(recipe.seed):
            yield tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids, 1
    stream = exercises(recipe.mix, recipe.seed)
    while True:
        yield from encode_exercises(tokenizer, list(islice(stream, 256)))


def encode_exercises(
    tokenizer: PreTrainedTokenizerFast, some: Sequence[Exercise]
) -> list[tuple[list[int], int]]:
    """(token ids, number of prompt tokens) per exercise, in the chat template's own markers."""
    backend = tokenizer.backend_tokenizer
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": one.prompt}], tokenize=False, add_generation_prompt=True
        )
        for one in some
    ]
    replies = [one.reply + str(tokenizer.eos_token) for one in some]
    left = backend.encode_batch_fast(prompts, add_special_tokens=False)
    right = backend.encode_batch_fast(replies, add_special_tokens=False)
    return [(a.ids + b.ids, len(a.ids)) for a, b in zip(left, right, strict=True)]


def collate(chunk: Sequence[tuple[list[int], int]], pad: int) -> tuple[Tensor, Tensor]:
    """Right-padded tokens and labels; prompt and padding are not scored. Causal attention looks at no padding."""
    length = max(len(ids) for ids, _ in chunk)
    tokens = torch.full((len(chunk), length), pad)
    labels = torch.full((len(chunk), length), IGNORED)
    for row, (ids, prompt) in enumerate(chunk):
        tokens[row, : len(ids)] = torch.tensor(ids)
        labels[row, prompt : len(ids)] = torch.tensor(ids[prompt:])
    return tokens, labels
