"""A decoder cut in two before a layer, so that what lies below a change is computed once for every change."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from core.coordinator.svf import Layout, layer_of


class SplitModel:
    """A model without LM head as `below`, its layers before `cut`, and `above`, the others and the final norm.

    Both share the model's weights: what is written into them is in force here too."""

    def __init__(self, model: Any, cut: int) -> None:
        self.cut = cut
        self._below = _part(model, slice(0, cut), nn.Identity())
        self._above = _part(model, slice(cut, None), model.norm)

    def below(self, ids: torch.Tensor) -> torch.Tensor:
        """What enters layer `cut`, [rows, length, hidden size], of token ids [rows, length]."""
        entering: torch.Tensor = self._below(input_ids=ids, use_cache=False).last_hidden_state
        return entering

    def above(self, entering: torch.Tensor) -> torch.Tensor:
        """The hidden states after the final norm, of the same shape."""
        states: torch.Tensor = self._above(inputs_embeds=entering, use_cache=False).last_hidden_state
        return states


def split_for(model: Any, layout: Layout) -> SplitModel | None:
    """The model cut below all that the layout changes; None where nothing lies below, or where the halves together
    do not give the model's own states to the last bit (an architecture that does more between its layers)."""
    cut = min((layer_of(name) or 0 for name, _ in layout), default=0)
    if cut == 0 or not all(hasattr(model, name) for name in ("layers", "norm")):
        return None
    parts = SplitModel(model, cut)
    ids = torch.arange(8, device=model.device)[None] % int(model.config.vocab_size)
    with torch.inference_mode():
        expected = model(input_ids=ids, use_cache=False).last_hidden_state
        same = torch.equal(expected, parts.above(parts.below(ids)))
    return parts if same else None


def _part(model: Any, layers: slice, norm: nn.Module) -> Any:
    """A model of some of the layers, around the same weights."""
    shared = (*model.children(), *model.parameters(recurse=False), *model.buffers(recurse=False))
    part = copy.deepcopy(model, {id(one): one for one in shared})
    part.layers, part.norm = model.layers[layers], norm
    part.config.num_hidden_layers = len(part.layers)
    if getattr(model.config, "layer_types", None):
        part.config.layer_types = model.config.layer_types[layers]
    return part
