"""Reading only what is new: prompts read part by part, with what layers keep of the parts before remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import Cache, DynamicLayer

from core.coordinator.batches import within_memory
from core.coordinator.memory import Memory
from core.coordinator.splits import ENTERING_BYTES, SplitModel, split_of_last_layer, turned_alike
from core.tokens.prompts import Prompt

#: Of remembered parts. A token of Qwen3-0.6B takes 224 KiB in float32.
PREFIX_BYTES = 2 * 2**30
_TRIED_TOKENS = 24


@dataclass(slots=True, eq=False)
class Part:
    """What is remembered of one part: every layer's keys and values [1, heads, tokens, head size], and perhaps the
    hidden states [tokens, hidden size]."""

    layers: list[tuple[torch.Tensor, ...]]
    hidden: torch.Tensor | None

    @property
    def nbytes(self) -> int:
        tensors = [
            *(one for layer in self.layers for one in layer),
            *([] if self.hidden is None else [self.hidden]),
        ]
        return sum(one.nbytes for one in tensors)

    @property
    def tokens(self) -> int:
        return self.layers[0][0].shape[-2]


class PrefixReader:
    """A decoder's hidden states, each token of a conversation read once.

    A part is one turn, read in one forward together with the suffix, after the parts before it; its keys and values are
    remembered under the digest of all tokens up to its end, so that conversations which begin alike share them. What is
    not remembered is read in the same parts: a state is the same to the last bit whatever was read before it.

    Beyond `budget` bytes the parts that were not used for the longest time are forgotten, a conversation's end before
    its beginning. `keeps_hidden`: the hidden states of all parts are remembered too, and given."""

    def __init__(self, model: Any, budget: int = PREFIX_BYTES, *, keeps_hidden: bool = False) -> None:
        self._model, self._keeps_hidden = model, keeps_hidden
        self._layers = int(model.config.num_hidden_layers)
        self.parts = Memory[Part](budget)
        #: Tokens that went through the model, suffixes included.
        self.tokens = 0

    def read(self, prompt: Prompt, seed: bytes = b"") -> torch.Tensor:
        """Hidden states [tokens, hidden size] of the prompt's last part and suffix; of the whole prompt where they are
        kept. `seed` tells states of other weights apart."""
        suffix = prompt.ids[len(prompt.ids) - prompt.suffix :]
        keys = keys_of(prompt, seed)
        starts = (0, *prompt.ends)
        before: list[Part] = []
        hidden = torch.empty(0)
        for key, start, end in zip(keys, starts, prompt.ends, strict=False):
            part = self.parts.get(key)
            if part is None or key == keys[-1]:
                ids = prompt.ids[start:end]
                read = partial(self.read_part, (*ids, *suffix), len(ids), before)
                part, hidden = within_memory(read, partial(self._spare, keys), len(ids), self._model)
                self.parts.keep(key, part, trim=False)
            before.append(part)
        for key in reversed(keys):  # a beginning is forgotten after what goes on from it
            self.parts.get(key)
        self.parts.trim()
        kept = [part.hidden for part in before[:-1] if part.hidden is not None]
        return torch.cat([*kept, hidden])

    def remembered(self, prompt: Prompt, seed: bytes = b"") -> int:
        """How many of the prompt's parts are remembered, from its beginning."""
        keys = keys_of(prompt, seed)
        return next((n for n, key in enumerate(keys) if key not in self.parts), len(keys))

    def forget(self) -> None:
        """Drop all that is remembered."""
        self.parts.forget()

    def _spare(self, keys: Sequence[bytes]) -> bool:
        """Forget all but these parts, and remember half as much from here on; False where nothing could be spared."""
        self.parts.budget //= 2
        return self.parts.forget(keys)

    def read_part(self, ids: Sequence[int], kept: int, before: Sequence[Part]) -> tuple[Part, torch.Tensor]:
        """One forward of `ids` after these parts: what to remember of the first `kept`, and all hidden states."""
        layers = [_Continued([part.layers[i] for part in before]) for i in range(self._layers)]
        with torch.inference_mode():
            read = torch.tensor([ids], device=self._model.device)
            cache = Cache(layers=list(layers))
            hidden = self._model(input_ids=read, cache=cache, use_cache=True).last_hidden_state[0]
            self.tokens += len(ids)
            part = Part(
                [tuple(one[:, :, :kept].clone() for one in layer.new) for layer in layers],
                hidden[:kept].clone() if self._keeps_hidden else None,
            )
        return part, hidden


class PartReader:
    """Reads prompts part by part, in the last layer all tokens but one only as far as their keys and values. With
    changed weights that have a `split`, only the layers above the cut are run for each change of them."""

    def __init__(
        self, model: Any, budget: int = PREFIX_BYTES, *, prefixes: PrefixReader | None = None
    ) -> None:
        self._model, self._budget = model, budget
        #: What enters the layers above a cut, which is the same for all changes above it.
        self._entering = Memory[torch.Tensor](ENTERING_BYTES)
        self._own = None if prefixes else split_of_last_layer(model)
        self._cut = self._own
        self.prefixes = prefixes or self._of_cut()
        #: In forwards of one prompt through all layers.
        self.forwards = 0.0

    def read(
        self,
        prompts: Sequence[Prompt],
        token_position: int,
        seed: bytes = b"",
        split: SplitModel | None = None,
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Every prompt's place in `prompts` and its state [hidden size]. `seed` tells states of changed weights apart.

        Prompts of which most is remembered come first, before the others take their room, and those that begin alike
        follow one another."""
        cut = split or self._own
        if cut is not self._cut:
            self._cut = cut
            self._entering.forget()
            self.prefixes = self._of_cut()
        prefixes = self.prefixes  # what is read between two steps may have others
        seed = b"" if split else seed
        order = sorted(
            range(len(prompts)),
            key=lambda place: (-prefixes.remembered(prompts[place], seed), prompts[place].ids),
        )
        for place in order:
            prompt = prompts[place]
            starts = (0, *prompt.ends)
            before_last = len(prompt.ids) - starts[-2] < -token_position
            if before_last or len(prompt.ids) > (turned_alike(self._model.config) or len(prompt.ids)):
                prompt = Prompt(prompt.ids, prompt.overflow, (len(prompt.ids),))
            if cut is None:
                state = self._hidden(prefixes, prompt, seed)[token_position]
            else:
                entering = self._entering_of(prompt, prefixes, cut, seed, changes=split is not None)
                self.forwards += cut.share_above
                with torch.inference_mode():
                    state = cut.above(entering[None], [len(entering) + token_position])[0]
            yield place, state.float().cpu().numpy()

    def forget(self) -> None:
        """Drop what is remembered."""
        self.prefixes.forget()
        self._entering.forget()

    def _of_cut(self) -> PrefixReader:
        lower = self._cut.lower if self._cut else self._model
        return PrefixReader(lower, self._budget, keeps_hidden=bool(self._cut))

    def _hidden(
        self, prefixes: PrefixReader, prompt: Prompt, seed: bytes, share: float = 1.0
    ) -> torch.Tensor:
        """As this reader gives them, whose layers are this share of all."""
        before = prefixes.tokens
        hidden = prefixes.read(prompt, seed)
        self.forwards += share * (prefixes.tokens - before) / len(prompt.ids)
        return hidden

    def _entering_of(
        self, prompt: Prompt, prefixes: PrefixReader, cut: SplitModel, seed: bytes, *, changes: bool
    ) -> torch.Tensor:
        """What `cut.above` goes on from, remembered where there are `changes` above."""
        key = prompt.digest, prompt.ends
        entering = self._entering.get(key) if changes else None
        if entering is None:
            entering = self._hidden(prefixes, prompt, seed, cut.share_below)
            if changes:
                self._entering.keep(key, entering)
        return entering


def keys_of(prompt: Prompt, seed: bytes) -> list[bytes]:
    """For each part of a prompt, the digest of all tokens up to its end."""
    found, start = [seed], 0
    for end in prompt.ends:
        tokens = np.asarray(prompt.ids[start:end], "<i4").tobytes()
        found.append(hashlib.blake2b(found[-1] + tokens, digest_size=16).digest())
        start = end
    return found[1:]


class _Continued(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values of some parts, and of what is read after them. A layer with a sliding window is one
    of these too: the model's mask hides what lies outside its window."""

    def __init__(self, before: Sequence[tuple[torch.Tensor, ...]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._before = before
        self.is_initialized = True
        self.new: tuple[torch.Tensor, ...] = ()

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        self.new = (key_states, value_states)
        return tuple(
            torch.cat([*(part[i] for part in self._before), new], dim=-2) for i, new in enumerate(self.new)
        )

    def get_seq_length(self) -> int:
        return sum(part[0].shape[-2] for part in self._before)


def reads_in_parts(model: Any, reader: PrefixReader | None = None) -> bool:
    """Whether what the model keeps of the tokens before is all that a token needs to know of them: not so for models
    with recurrent layers. Some tokens are read whole and, by this reader, in two parts."""
    ids = tuple(one % int(model.config.vocab_size) for one in range(1, _TRIED_TOKENS + 1))
    try:
        with torch.inference_mode():
            whole = model(
                input_ids=torch.tensor([ids], device=model.device), use_cache=False
            ).last_hidden_state[0]
            half = _TRIED_TOKENS // 2
            reader = reader or PrefixReader(model, keeps_hidden=True)
            parts = reader.read(Prompt(ids, False, (half, _TRIED_TOKENS)))
            return alike(whole[-len(parts) :], parts)
    except Exception:  # a model with a cache of another kind may raise anything here
        return False


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether hidden states of the same shape differ by what rounding does alone: on the whole, and not by the largest,
    as few numbers of a real model are a hundred times as large as the others, and so is what rounding does to them."""
    scale = float(one.float().std()) or 1.0
    allowed = 1e-3 if one.dtype == torch.float32 else 0.1
    return float((one.float() - other.float()).square().mean().sqrt()) < allowed * scale
