"""Teaches a new planner the form of its replies, and nothing else: random workflows for questions.

They make sense (whoever checks reads an answer), as those of a large language model do before it learns to plan, and
are as good as the control of random workflows: no answer, no result of any model and no better workflow is shown. Half
of the examples allow a random subset of the models.

Random workflows have nothing to do with their questions. A planner that learned nothing else would have hidden states
that hardly differ between questions. Reinforcement would then teach it the one workflow that is best on average, and
before it could tell questions apart it would write nothing else. So it also learns to recall the question: its tokens
as next tokens, and at every token of the reply which tokens the question had.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch

from core.conduct.planners import random_workflow
from core.conduct.prompts import WORDS
from core.episode import WritePlan
from core.planner.card import PlannerCard
from core.planner.forms import short_prompt, write_short
from core.planner.planner import LanguagePlanner, weights_digest
from core.planner.rollouts import random_subset
from core.pocket import TRAINED_FAMILIES
from core.pocket.tasks import draw_problems
from core.pocket.threads import is_small, suited_threads
from core.pocket.training import IGNORED, TrainingProgress, collate, new_model, optimise, train_tokenizer


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How a pocket planner is begun: its shape, and its supervised training, on workflows of at most `most_steps`
    steps. `question_weight` is that of the question's own tokens in the loss, and `recall_weight` that of recalling
    them while the reply is written."""

    models: tuple[str, ...]
    width: int = 128
    layers: int = 3
    steps: int = 500
    batch: int = 32
    peak_rate: float = 5e-3
    question_weight: float = 0.3
    recall_weight: float = 1.0
    most_steps: int = 3
    families: tuple[str, ...] = TRAINED_FAMILIES
    subset_share: float = 0.5
    temperature: float = 1.0
    seed: int = 0


def examples(settings: WarmUp) -> Iterator[tuple[WritePlan, str]]:
    """Endless (request, reply) of the short form: questions of the train split, and random workflows."""
    rng = random.Random(f"planner/{settings.seed}")
    streams = [draw_problems(family, "train", settings.seed) for family in settings.families]
    n, number = len(settings.models), 0
    while True:
        key = f"{settings.seed}/planner/{number}"
        partial = rng.random() < settings.subset_share
        allowed = random_subset(f"{key}/allowed", n) if partial else tuple(range(n))
        question = next(rng.choice(streams)).question
        workflow = random_workflow(key, allowed, (*WORDS,), settings.most_steps)
        yield WritePlan((), question, allowed, key), write_short(workflow)
        number += 1


def new_planner(settings: WarmUp) -> LanguagePlanner:
    """A planner with random weights, and a tokenizer trained on questions and lists."""
    texts = (
        text
        for request, reply in islice(examples(settings), 8_000)
        for text in (short_prompt(request.question, request.allowed), reply)
    )
    tokenizer = train_tokenizer(texts)
    torch.manual_seed(settings.seed)
    model = new_model(tokenizer, width=settings.width, layers=settings.layers)
    card = PlannerCard(
        settings.models,
        weights_digest(model, tokenizer),
        most_steps=settings.most_steps,
        temperature=settings.temperature,
        constrained=True,
        kind="start",
    )
    return LanguagePlanner(card, model, tokenizer)


def warm_up(
    planner: LanguagePlanner, settings: WarmUp, *, report_every: int = 100
) -> Iterator[TrainingProgress]:
    """Train the planner's weights in place; afterwards `planner.frozen(kind="warm-up")` is its checkpoint. The same
    settings on one CPU thread give the same weights."""
    model = planner.model
    recall = torch.nn.Parameter(torch.zeros(model.config.vocab_size, model.config.hidden_size))  # not kept

    def losses(batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, labels, replies = batch
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1])
        by_token = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="none"
        )
        weights = torch.where(replies, 1.0, settings.question_weight).masked_fill(labels == IGNORED, 0.0)
        weight = weights[:, 1:].flatten()
        loss = (by_token * weight).sum() / weight.sum()
        forgotten = _recall_loss(hidden[replies] @ recall.T, tokens, labels, replies)
        return loss + settings.recall_weight * forgotten, loss

    def rate(step: int) -> float:
        """A rise over 50 steps, then a cosine down to a twentieth."""
        fall = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / settings.steps))
        return settings.peak_rate * (min(1.0, (step + 1) / 50) * fall)

    some = islice(_batches(planner, settings), settings.steps)
    with suited_threads(is_small(model)):
        yield from optimise(model, some, losses, rate, settings.steps, report_every, [recall])
    torch.nn.Module.eval(model)


def _recall_loss(
    logits: torch.Tensor, tokens: torch.Tensor, labels: torch.Tensor, replies: torch.Tensor
) -> torch.Tensor:
    """How badly the tokens of the question are told from the hidden states of its reply: the mean cross-entropy (nats)
    between the logits of every token of a reply [tokens of replies, vocabulary], in the order of `replies`, and the
    question's tokens, each equally likely."""
    asked = ((labels != IGNORED) & ~replies).float()
    had = torch.zeros(len(tokens), logits.shape[-1]).scatter_add_(1, tokens, asked).clamp(max=1.0)
    had = had / had.sum(1, keepdim=True)
    return torch.nn.functional.cross_entropy(logits, had[replies.nonzero()[:, 0]])


def _batches(
    planner: LanguagePlanner, settings: WarmUp
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Endless (tokens, labels, which tokens are a reply's) [batch, length]."""
    stream, pad = examples(settings), int(planner.tokenizer.pad_token_id)
    backend, end = planner.tokenizer.backend_tokenizer, int(planner.tokenizer.eos_token_id)
    rng = random.Random(settings.seed)
    while True:
        many = []
        for request, reply in islice(stream, 16 * settings.batch):
            prompt = planner.prompt_ids(request)
            written = backend.encode(reply, add_special_tokens=False).ids
            many.append(([*prompt, *written, end], len(prompt)))
        many.sort(key=lambda pair: len(pair[0]))  # those of like length together, for little padding
        starts = [*range(0, len(many), settings.batch)]
        rng.shuffle(starts)
        for start in starts:
            tokens, scored = collate(many[start : start + settings.batch], pad)
            yield tokens, tokens.masked_fill(tokens == pad, IGNORED), scored != IGNORED
