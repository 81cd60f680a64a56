"""Has a language model write replies, each by its own keyed random numbers, freely or only what lists can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from core.errors import CheckpointError
from core.planner.grammar import Grammar, Place
from core.pocket.language_model import KeyedPrompt, sample
from core.pocket.threads import is_small, suited_threads


@dataclass(frozen=True, slots=True)
class Sampled:
    """One reply in tokens and as text; `finished` where the model ended it itself. `chosen` is True for each token
    that another one could have stood for; one that the form of the lists fixed was not chosen. `allowed` are the slots
    of the models that it may name."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    chosen: tuple[bool, ...]
    text: str
    finished: bool
    allowed: tuple[int, ...]


class Pieces:
    """What every token of a vocabulary writes, and which of them may come next in lists."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, size: int) -> None:
        self._end, self._size = int(tokenizer.eos_token_id), size
        self._by_sign: dict[str, list[tuple[int, str]]] = {}
        # Some tokenizers drop a blank that stands at the beginning, so each piece is read behind another one.
        anchor = tokenizer.encode("[", add_special_tokens=False)
        before = len(_decoded(tokenizer, anchor))
        for token in range(min(size, len(tokenizer))):
            piece = _decoded(tokenizer, [*anchor, token])[before:]
            if piece:
                self._by_sign.setdefault(piece[0], []).append((token, piece))
        self._biases: dict[tuple[int, Place], Tensor] = {}
        self._moves: dict[tuple[int, Place], dict[int, Place]] = {}

    def bias(self, grammar: Grammar, place: Place) -> Tensor:
        """What is added to the logits [vocabulary]: 0 for a token that may come next, minus infinity for any other.
        CheckpointError where the vocabulary cannot write any lists from here."""
        key = (id(grammar), place)
        if key not in self._biases:
            found = torch.full((self._size,), -torch.inf)
            moves = self.moves(grammar, place)
            allowed = [*moves] if place.part != "done" else [self._end]
            if not allowed:
                raise CheckpointError(
                    "The planner's tokenizer has no token with which its lists could go on: use another one, or let "
                    "it write freely."
                )
            found[allowed] = 0.0
            self._biases[key] = found
        return self._biases[key]

    def moves(self, grammar: Grammar, place: Place) -> dict[int, Place]:
        """Every token that may come next, and where it leads."""
        key = (id(grammar), place)
        if key not in self._moves:
            signs = grammar.next_signs(place)
            found: dict[int, Place] = {}
            for sign in self._by_sign if signs is None else sorted(signs):
                for token, piece in self._by_sign.get(sign, ()):
                    if token != self._end and (to := grammar.advance(place, piece)) is not None:
                        found[token] = to
            self._moves[key] = found
        return self._moves[key]


def _decoded(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
    options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    return str(tokenizer.decode(list(ids), **options))


class _Steered:
    """A causal model as `sample` runs it, wherever it stands, with something added to its logits."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.config = model.config
        self._decoder: Callable[..., Any] = model.get_decoder()  # type: ignore[no-untyped-call]
        self._head: Callable[[Tensor], Tensor] = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        self._device = model.device
        self.bias: Tensor | None = None

    def model(self, **inputs: Any) -> Any:
        return self._decoder(
            **{
                name: value.to(self._device) if isinstance(value, Tensor) else value
                for name, value in inputs.items()
            }
        )

    def lm_head(self, hidden: Tensor) -> Tensor:
        logits = self._head(hidden).float().cpu()
        return logits if self.bias is None else logits + self.bias


def write_tokens(
    model: PreTrainedModel,
    prompts: Sequence[KeyedPrompt],
    *,
    temperature: float,
    most_tokens: int,
    end: int,
    pad: int,
    grammars: Sequence[Grammar] = (),
    pieces: Pieces | None = None,
) -> list[list[tuple[int, bool]]]:
    """The tokens of one reply per prompt, the end token included, each with whether it was chosen. With `grammars`, one
    per prompt, and the `pieces` of the vocabulary, a reply can be nothing but lists."""
    steered = _Steered(model)
    replies: list[list[tuple[int, bool]]] = [[] for _ in prompts]
    places = [Place()] * len(prompts)
    training = model.training
    torch.nn.Module.eval(model)

    def steer(rows: Sequence[int]) -> None:
        if pieces is not None and grammars:
            steered.bias = torch.stack([pieces.bias(grammars[row], places[row]) for row in rows])

    try:
        with suited_threads(is_small(model)):
            steer(range(len(prompts)))
            for step in _steps(steered, prompts, temperature, most_tokens, end, pad):
                for row, token in step.items():
                    moves = pieces.moves(grammars[row], places[row]) if pieces and grammars else {}
                    replies[row].append((token, len(moves) > 1 or not grammars))
                    places[row] = moves.get(token, places[row])
                going = [row for row, token in step.items() if token != end]
                if going:
                    steer(going)
    finally:
        model.train(training)
    return replies


def _steps(
    steered: _Steered,
    prompts: Sequence[KeyedPrompt],
    temperature: float,
    most_tokens: int,
    end: int,
    pad: int,
) -> Iterator[dict[int, int]]:
    if not prompts:
        return iter(())
    return sample(
        cast("PreTrainedModel", steered),
        prompts,
        temperature=temperature,
        max_tokens=most_tokens,
        end=end,
        pad=pad,
    )
