"""The encoder cut in two before the first changed matrix, so that what lies below is computed once for every change;
and its last layer for the tokens alone that are read, which needs keys and values of the others and nothing else."""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from core.coordinator.svf import Layout, behind_keys, layer_of
from core.tokens.prompts import Prompt

log = logging.getLogger(__name__)

_TRIED_TOKENS = 8
_ENTERING_BYTES = 512 * 2**20


class SplitModel:
    """A model without LM head as `below`, its layers before `cut`, and `above`, the others and the final norm. With
    `keys_below`, for changes behind the last layer's keys and values, these are computed below too.

    Both share the model's weights: what is written into them is in force here too."""

    def __init__(self, model: Any, cut: int, *, keys_below: bool = False) -> None:
        self.cut = cut
        self._width = int(model.config.hidden_size)
        keys = _KeysAndValues(model.layers[-1])
        until = slice(0, None) if keys_below else slice(0, cut)
        self.lower = _part(model, until, nn.Identity(), keys if keys_below else None)
        self._middle = None if keys_below else _part(model, slice(cut, None), nn.Identity(), keys)
        self._last = _part(model, slice(-1, None), model.norm)
        self._whole = _part(model, slice(cut, None), model.norm)
        self._keys = keys
        #: In longer prompts the last layer does not see all tokens: they are computed as the model itself does.
        self._most = _window_of_last_layer(model.config)
        #: Whether the last layer is computed for the tokens alone that are read.
        self.reads_rows = True
        depth, share = len(model.layers), _keys_share(model.layers[-1])
        #: Of a forward of one prompt through all layers, what `below` takes.
        self.share_below = (depth - 1 + share if keys_below else cut) / depth
        self._share_above = 0.0 if keys_below else (depth - 1 - cut + share) / depth
        self._share_whole = 1 - cut / depth

    @property
    def share_above(self) -> float:
        """Of a forward of one prompt through all layers, what `above` takes."""
        return self._share_above if self.reads_rows else self._share_whole

    def below(self, ids: torch.Tensor) -> torch.Tensor:
        """What `above` goes on from, [rows, length, width], of token ids [rows, length]."""
        entering: torch.Tensor = self.lower(input_ids=ids, use_cache=False).last_hidden_state
        return entering

    def above(self, entering: torch.Tensor, positions: Sequence[int]) -> torch.Tensor:
        """The states [rows, hidden size] after the final norm of one token of each row, at these positions from 0."""
        length = entering.shape[1]
        if not self.reads_rows or length > (self._most or length):
            hidden = self._whole(
                inputs_embeds=entering[..., : self._width].contiguous(), use_cache=False
            ).last_hidden_state
            picked: torch.Tensor = hidden[torch.arange(len(hidden)), torch.tensor(positions)]
            return picked
        if self._middle:
            entering = self._middle(inputs_embeds=entering, use_cache=False).last_hidden_state
        return self._read(entering, torch.tensor(positions, device=entering.device))

    def _read(self, entering: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The last layer and the norm for one token of each row, which sees the keys and values of those before it."""
        rows, places = (torch.arange(n, device=positions.device) for n in entering.shape[:2])
        states: torch.Tensor = self._last(
            inputs_embeds=entering[rows, positions, None, : self._width],
            position_ids=positions[:, None],
            attention_mask=(places <= positions[:, None])[:, None, None],
            cache=_Known(*self._keys.parts(entering[..., self._width :])),
            use_cache=False,
        ).last_hidden_state
        return states[:, 0]


class Entering:
    """What `below` gave for prompts, which is the same for all changes; beyond a budget of bytes the prompts that were
    not used for the longest time are forgotten."""

    def __init__(self, split: SplitModel | None = None, budget: int = _ENTERING_BYTES) -> None:
        #: Of which model.
        self.split = split
        self._budget, self._bytes = budget, 0
        self._prompts: OrderedDict[Hashable, torch.Tensor] = OrderedDict()

    def get(self, prompt: Hashable) -> torch.Tensor | None:
        """Of one prompt, [length, width], where it is remembered."""
        found = self._prompts.get(prompt)
        if found is not None:
            self._prompts.move_to_end(prompt)
        return found

    def keep(self, prompt: Hashable, entering: torch.Tensor) -> None:
        """Remember it, [length, width]."""
        old = self._prompts.pop(prompt, None)
        self._bytes += entering.nbytes - (old.nbytes if old is not None else 0)
        self._prompts[prompt] = entering
        while self._bytes > self._budget:
            self._bytes -= self._prompts.popitem(last=False)[1].nbytes


class Reader(Protocol):
    """How an encoder reads prompts."""

    @property
    def forwards(self) -> float: ...

    def read(
        self, prompts: Sequence[Prompt], token_position: int, seed: bytes, split: SplitModel | None
    ) -> Iterator[tuple[int, NDArray[np.float32]]]: ...

    def forget(self) -> None: ...


def split_for(model: Any, layout: Layout) -> SplitModel | None:
    """The model cut below all that the layout changes; None where nothing lies below, or where the halves together
    do not give the model's own states to the last bit (an architecture that does more between its layers)."""
    cut = min((layer_of(name) or 0 for name, _ in layout), default=0)
    last_alone = cut == int(model.config.num_hidden_layers) - 1 and all(
        behind_keys(name) for name, _ in layout
    )
    return _tried(model, cut, (True, False) if last_alone else (False,))


def split_of_last_layer(model: Any) -> SplitModel | None:
    """The model cut behind the last layer's keys and values, so that what follows is computed for one token; None where
    that does not give the model's own states, or not for prompts of any length."""
    if _window_of_last_layer(model.config):
        return None
    return _tried(model, int(model.config.num_hidden_layers) - 1, (True,))


def _window_of_last_layer(config: Any) -> int | None:
    """How many tokens a prompt has at most of which the last layer sees all, each turned by its place alone; None where
    it may have any number."""
    kinds = getattr(config, "layer_types", None)
    names = ("sliding_window", "attention_chunk_size")
    sees_all = kinds and kinds[-1] == "full_attention"
    windows = (turned_alike(config), *(None if sees_all else getattr(config, name, None) for name in names))
    return min((int(one) for one in windows if one), default=None)


def turned_alike(config: Any) -> int | None:
    """Of how many tokens a prompt has at most for what is before its end to stay as it is: with longrope, as in Phi's
    long versions, all tokens of a longer one are turned otherwise. None where there is no such number."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(one for one in rope.values() if isinstance(one, dict))]
    found = (one["original_max_position_embeddings"] for one in kinds if one.get("rope_type") == "longrope")
    return min(found, default=None)


def _tried(model: Any, cut: int, ways: Sequence[bool]) -> SplitModel | None:
    """The model cut here in the first of these ways, `keys_below` or not, that gives its own states."""
    if cut == 0 or not all(hasattr(model, name) for name in ("layers", "norm")):
        return None
    ids = torch.arange(2 * _TRIED_TOKENS, device=model.device).reshape(2, -1) % int(model.config.vocab_size)
    positions = (_TRIED_TOKENS - 2, 2)
    with torch.inference_mode():
        hidden = model(input_ids=ids, use_cache=False).last_hidden_state
        expected = hidden[torch.arange(2), torch.tensor(positions)]
        for keys_below in ways:
            parts = SplitModel(model, cut, keys_below=keys_below)
            if _reads_rows(parts, ids, positions, expected):
                return parts
        if keys_below:
            return None
        parts.reads_rows = False
        return parts if torch.equal(expected, parts.above(parts.below(ids), positions)) else None


def _reads_rows(
    parts: SplitModel, ids: torch.Tensor, positions: Sequence[int], expected: torch.Tensor
) -> bool:
    """Whether the last layer gives these states where it is computed for the tokens alone that are read."""
    try:
        states = parts.above(parts.below(ids), positions)
    except Exception as fault:  # a layer of another kind may raise anything here
        log.debug("The last layer is read whole: %s", fault)
        return False
    allowed = 1e-4 if states.dtype == torch.float32 else 0.1
    scale = float(expected.float().std()) or 1.0
    return float((states.float() - expected.float()).abs().max()) < allowed * scale


def _part(model: Any, layers: slice, norm: nn.Module, last: nn.Module | None = None) -> Any:
    """A model of some of the layers, around the same weights; `last` stands in the place of the last of them."""
    shared = (*model.children(), *model.parameters(recurse=False), *model.buffers(recurse=False))
    part = copy.deepcopy(model, {id(one): one for one in shared})
    part.layers, part.norm = model.layers[layers], norm
    if last:
        part.layers = nn.ModuleList([*part.layers[:-1], last])
    part.config.num_hidden_layers = len(part.layers)
    if getattr(model.config, "layer_types", None):
        part.config.layer_types = model.config.layer_types[layers]
    return part


class _KeysAndValues(nn.Module):
    """In the place of a layer: what enters it, with its keys and values beside, [rows, length, width]."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        shared = (*layer.parameters(), *layer.buffers())
        self._layer = copy.deepcopy(layer, {id(one): one for one in shared})
        attention = getattr(self._layer, "self_attn", None)
        if isinstance(query := getattr(attention, "q_proj", None), nn.Linear):
            self._layer.self_attn.q_proj = _Nothing(query.out_features)
        self._heads: tuple[int, ...] = ()

    def forward(self, hidden_states: torch.Tensor, **told: Any) -> torch.Tensor:
        """What enters, keys and values [rows, length, hidden size + heads x head size of both]."""
        try:
            self._layer(hidden_states, **(told | {"cache": _Taker()}))
        except _Taken as taken:
            parts = taken.keys_and_values
        else:
            raise ValueError("This layer keeps no keys and values.")
        self._heads = tuple(one.shape[1] for one in parts)
        return torch.cat([hidden_states, *(one.transpose(1, 2).flatten(2) for one in parts)], dim=-1)

    def parts(self, kept: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Keys and values [rows, heads, length, head size] of what `forward` put beside what enters."""
        keys, values = kept.chunk(2, dim=-1)
        return tuple(
            one.reshape(*one.shape[:2], heads, -1).transpose(1, 2)
            for one, heads in zip((keys, values), self._heads, strict=True)
        )


class _Nothing(nn.Module):
    """Queries that nobody asks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Zeros [..., width]."""
        return hidden_states.new_zeros(1).expand(*hidden_states.shape[:-1], self._width)


class _Taken(Exception):
    """A layer's keys and values, and the end of what is computed of it."""

    def __init__(self, *keys_and_values: torch.Tensor) -> None:
        super().__init__()
        self.keys_and_values = keys_and_values


class _Taker:
    """In the place of a cache: takes keys and values, and ends the layer."""

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> Any:
        """Raise `_Taken`."""
        raise _Taken(keys, values)


class _Known:
    """In the place of a cache: keys and values of all tokens, those that are read among them."""

    def __init__(self, *keys_and_values: torch.Tensor) -> None:
        self._keys_and_values = keys_and_values

    def update(self, *_: Any, **__: Any) -> Any:
        """What is known."""
        return self._keys_and_values


def _keys_share(layer: nn.Module) -> float:
    """Of a layer's arithmetic, what its keys and values take."""
    sizes = {f".{name}": weight.numel() for name, weight in layer.named_parameters() if weight.ndim == 2}
    keys = sum(size for name, size in sizes.items() if not behind_keys(name))
    return keys / max(1, sum(sizes.values()))
