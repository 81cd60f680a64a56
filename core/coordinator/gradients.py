"""What each word of a transcript contributes to a choice, by integrated gradients: for encoders that are too large to
read the transcript again without every word.

The way goes in a straight line from the embeddings of a transcript in which every token of a text is the padding token
to those of the transcript itself; names and marks stay as they are (Sundararajan, Taly and Yan 2017, arXiv 1703.01365).
What a word contributes is the gradient of the lead along that way, summed over its tokens. All words together add up
to what the lead changes on it, but for an error of the sum, which is measured.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from core.analysis.attribution import STRETCHES, Pair, WordAttribution, WordLeftOut, check_gradients, words_of
from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.episode import ROLE_ORDER, Decide
from core.heads import LowRankHead
from core.tokens.prompts import PlacedToken

#: Gradients on each stretch of the way.
GRADIENTS = 5
#: Transcripts of more tokens take their gradients one by one, for the memory's sake.
_TOKENS_AT_ONCE = 256


def word_gradients(
    coordinator: Coordinator, request: Decide, chosen: Pair, rival: Pair, begun: WordAttribution | None = None
) -> Iterator[WordAttribution]:
    """What words contribute to the lead of `chosen` over `rival`, after each stretch of the way that is still to go
    after `begun`. ConfigError where captum is missing or the coordinator reads a chat."""
    checkpoint, encoder = coordinator.checkpoint, coordinator.encoder
    check_gradients(checkpoint.input_format)
    from captum.attr import IntegratedGradients  # an extra, and slow to import

    places = words_of(request.transcript)
    placed = encoder.tokens.placed(request.transcript, checkpoint.input_format)
    words = _word_of_each(placed, places)
    gives, rest = np.zeros(len(places)), 0.0
    if begun is not None:
        gives, rest = gives + [one.gives for one in begun.words], begun.rest
    for stretch in range(begun.done if begun else 0, STRETCHES):
        with encoder.exclusive(coordinator.offsets) as model:
            start, end = _ways_ends(model, placed, encoder.padding)
            lead = _lead(model, checkpoint, placed, request.index, chosen, rival)
            here, there = (torch.lerp(start, end, (stretch + k) / STRETCHES) for k in (0, 1))
            found = IntegratedGradients(lead).attribute(
                there,
                here,
                n_steps=GRADIENTS,
                internal_batch_size=1 if len(placed) > _TOKENS_AT_ONCE else GRADIENTS,
            )
            by_token = found[0].double().sum(dim=-1).cpu().numpy()
            with torch.inference_mode():
                change = float(lead(end) - lead(start)) if stretch == STRETCHES - 1 else None
        for word, value in zip(words, by_token.tolist(), strict=True):
            if word is None:
                rest += value
            else:
                gives[word] += value
        told = tuple(WordLeftOut(*place, value) for place, value in zip(places, gives.tolist(), strict=True))
        error = 0.0 if change is None else abs(float(gives.sum()) + rest - change)
        yield WordAttribution(told, stretch + 1, STRETCHES, "gradients", rest, error)


def _word_of_each(placed: Sequence[PlacedToken], places: Sequence[tuple[int, int, int]]) -> list[int | None]:
    """For each token the word that it belongs to: the last one of its part that begins before the token ends; the
    blanks before a first word belong to it. None for names, marks and texts without a word."""
    starts = [(part, start) for part, start, _ in places]
    found: list[int | None] = []
    for token in placed:
        if token.part is None:
            found.append(None)
            continue
        after = bisect_left(starts, (token.part, token.end))
        near = [
            word for word in (after - 1, after) if 0 <= word < len(places) and places[word][0] == token.part
        ]
        found.append(near[0] if near else None)
    return found


def _ways_ends(model: Any, placed: Sequence[PlacedToken], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings [1, tokens, hidden size] where the way begins and where it ends."""
    read = [token.id for token in placed]
    blank = [token.id if token.part is None else padding for token in placed]
    embedding = model.get_input_embeddings()
    with torch.no_grad():
        start, end = (embedding(torch.tensor([ids]).to(model.device)).detach() for ids in (blank, read))
    return start, end


def _lead(
    model: Any, checkpoint: Checkpoint, placed: Sequence[PlacedToken], turn: int, chosen: Pair, rival: Pair
) -> Callable[[torch.Tensor], torch.Tensor]:
    """From embeddings [n, tokens, hidden size] to the lead in logits, [n]."""
    logits = _differentiable_logits(checkpoint, turn, model.device)
    counts = torch.zeros(checkpoint.head.rows, dtype=torch.float64, device=model.device)
    for pair, sign in ((chosen, 1.0), (rival, -1.0)):
        counts[checkpoint.models.index(pair[0])] += sign
        counts[len(checkpoint.models) + ROLE_ORDER.index(pair[1])] += sign
    position = len(placed) + checkpoint.token_position

    def lead(embeddings: torch.Tensor) -> torch.Tensor:
        hidden = model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        found: torch.Tensor = logits(hidden[:, position].double()) @ counts
        return found

    return lead


def _differentiable_logits(
    checkpoint: Checkpoint, turn: int, device: Any
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The head in torch, float64: from states [n, d] to logits [n, rows]."""
    head, vector = checkpoint.head, checkpoint.head_vector.astype(np.float64)
    if isinstance(head, LowRankHead):
        down, up = (torch.tensor(array, device=device) for array in head.arrays(vector).values())
        return lambda states: 3.0 * torch.nn.functional.elu(states @ down.T, alpha=0.1) @ up.T
    # Every other head is linear in the state: what it gives to nothing, and to each number alone, is all of it.
    tries = np.concatenate([np.zeros((1, head.width)), np.eye(head.width)])
    nothing, *rows = torch.tensor(head.logits(tries, vector, [turn] * len(tries)), device=device)
    weight = torch.stack(rows) - nothing
    return lambda states: states @ weight + nothing
