"""Trains the pocket models and their tokenizer by their recorded recipes; the same recipe on one CPU thread gives the
same weights.

The tokenizer is a byte-level BPE of 1,024 tokens, one token per digit, control tokens and turns as Qwen3's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from core.errors import ConfigError
from core.pocket import ENCODER, FAMILIES
from core.pocket.corpus import Exercise, exercises, training_transcripts
from core.pocket.models import RECIPES, Mix, Recipe
from core.pocket.threads import quiet_loading
from core.tokens.formats import THINK_END, THINK_START, TURN_END, TURN_START

B = TypeVar("B")

END_OF_TEXT = "<|endoftext|>"

#: The turn markers of Qwen3, without its tool and system defaults.
CHAT_TEMPLATE = (
    f"{{% for message in messages %}}{TURN_START}{{{{ message.role }}}}\n{{{{ message.content }}}}{TURN_END}\n"
    f"{{% endfor %}}{{% if add_generation_prompt %}}{TURN_START}assistant\n"
    f"{{% if enable_thinking is defined and enable_thinking is false %}}{THINK_START}\n\n{THINK_END}\n\n{{% endif %}}"
    "{% endif %}"
)


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train on sample texts. Digits stand alone so that numbers keep their places; any byte can be encoded."""
    core = Tokenizer(models.BPE())
    pieces = Regex(r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\n+|\s+")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    special = [END_OF_TEXT, TURN_START, TURN_END]
    trainer = trainers.BpeTrainer(
        vocab_size=1024 - 3,  # <think>, </think> and the double newline come on top
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    # As in Qwen3: think marks are added tokens but not special ones, and "\n\n" is one token, so that </think>
    # stands at the penultimate position of the generation suffix.
    core.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in (THINK_START, THINK_END)])
    if core.token_to_id("ĊĊ") is None:
        core.add_tokens([AddedToken("\n\n", normalized=False, special=False)])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core, eos_token=TURN_END, pad_token=END_OF_TEXT, clean_up_tokenization_spaces=False
    )
    tokenizer.add_special_tokens({"additional_special_tokens": [TURN_START]})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


#: Coefficients of the Newton-Schulz step, chosen by its authors for speed: singular values end between 0.7 and 1.2.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) in float32, for matrices only: gradient steps made orthogonal. `lr` is as for AdamW: an
    update has a root mean square of about a fifth of it.

    torch.optim.Muon computes in bfloat16. CPUs without such instructions take ten times as long for it, more than for
    the model itself. Numbers are as there: Nesterov momentum, five Newton-Schulz steps, a rate matched to AdamW's."""

    def __init__(
        self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.01
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move every matrix by its gradient; `closure` is not used."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                alike.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in alike.items():  # one batch per shape
                updates = orthogonal(
                    torch.stack([self._nesterov(one, group["momentum"]) for one in matrices])
                )
                rate = group["lr"] * 0.2 * math.sqrt(max(shape))
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=rate)

    def _nesterov(self, matrix: Tensor, momentum: float) -> Tensor:
        gradient = matrix.grad
        if gradient is None:
            raise ValueError("every matrix needs a gradient")
        past = self.state[matrix].setdefault("momentum", torch.zeros_like(gradient))
        past.lerp_(gradient, 1 - momentum)
        return gradient.lerp(past, momentum)


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """About the nearest orthogonal matrix of each [batch, rows, columns], by Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result


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
    config = Qwen3Config(
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
    with quiet_loading():  # not while another thread loads one
        return Qwen3ForCausalLM(config)


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a Hugging Face folder with fp16 weights."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.nn.Module.to(model, torch.float16)  # in place
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fit(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, report_every: int
) -> Iterator[TrainingProgress]:
    """Warm-up and cosine decay; the loss is the cross-entropy of the scored tokens."""

    def losses(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        tokens, labels = batch
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
        scored = labels[:, 1:] != IGNORED
        logits = model.lm_head(hidden[:, :-1][scored])
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:][scored])
        return loss, loss

    some = islice(batches(tokenizer, recipe), recipe.steps)
    yield from optimise(model, some, losses, partial(rate, recipe), recipe.steps, report_every)


def optimise(
    model: PreTrainedModel,
    batches: Iterable[B],
    losses: Callable[[B], tuple[Tensor, Tensor]],
    rate: Callable[[int], float],
    steps: int,
    report_every: int,
    more: Sequence[torch.nn.Parameter] = (),
) -> Iterator[TrainingProgress]:
    """Move a model's weights, and `more`, in place, a step for each batch, whose `losses` are what is made smaller and
    what is reported; `rate` gives the learning rate of a step, from 0.

    Matrices are moved by Muon (Jordan et al. 2024), which in trials here reached in 300 steps the loss that took AdamW
    600; all else by AdamW. Both at one rate: Muon's is matched to AdamW's root mean square."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    optimisers: tuple[torch.optim.Optimizer, ...] = (
        Muon(matrices, rate(0)),
        torch.optim.AdamW([*others, *more], lr=rate(0), betas=(0.9, 0.98), weight_decay=0.0),
    )
    model.train()
    total, since = 0.0, 0
    for step, batch in enumerate(batches):
        for group in (group for optimiser in optimisers for group in optimiser.param_groups):
            group["lr"] = rate(step)
        loss, reported = losses(batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_([*model.parameters(), *more], 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        total, since = total + reported.item(), since + 1
        if (step + 1) % report_every == 0 or step + 1 == steps:
            yield TrainingProgress(step + 1, steps, total / since)
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
