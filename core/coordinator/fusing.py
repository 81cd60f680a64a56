"""Forwards of fewer kernels on CUDA: each norm is one, and a model's layers are compiled once for all shapes of whole
prompts, where a full batch shows that this is quicker."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

log = logging.getLogger(__name__)

#: Compiling takes about half a minute. It is tried when whole batches have taken so many seconds, as who has read for
#: so long will read on.
PATIENCE_S = 5.0
_TIMED = 3  # of each way, of which the quickest counts


class WholeForward:
    """A model's hidden states [rows, tokens, hidden size] of token ids [rows, tokens], each row read whole.

    On CUDA the way is chosen by timing both on the first batch of at least `full` / 2 tokens after some seconds of such
    batches, and stays: the layers as they are, or compiled by torch. The last bits of a state differ between them."""

    def __init__(self, model: Any, full: float) -> None:
        #: What reads: the model, or with compiled layers.
        self.model = self._plain = model
        self._full = full
        self._open = model.device.type == "cuda" and hasattr(model, "layers")
        self._spent = 0.0

    @property
    def is_chosen(self) -> bool:
        """Whether it is settled how batches are read."""
        return not self._open

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        if self._open and ids.numel() >= self._full / 2:
            if self._spent >= PATIENCE_S:
                self._choose(ids)
            else:
                began = time.perf_counter()
                hidden = _read(self.model, ids)
                _wait(hidden)
                self._spent += time.perf_counter() - began
                return hidden
        return _read(self.model, ids)

    def give_up(self, error: Exception) -> None:
        """Read by the layers as they are from here on, as compiled ones failed; where these did, raise the error."""
        if self.model is self._plain:
            raise error
        self.model = self._plain
        _log_failure(error)

    def _choose(self, ids: torch.Tensor) -> None:
        self._open = False
        try:
            compiled = compiled_model(self._plain)
            expected, found = (_read(one, ids).float() for one in (self._plain, compiled))
            apart = float((found - expected).square().mean().sqrt() / expected.std())
            del expected, found
            plain_s, compiled_s = (_seconds(one, ids) for one in (self._plain, compiled))
        except Exception as error:  # a compiler may raise anything
            _log_failure(error)
            return
        quicker = compiled_s < plain_s and apart < 0.1
        log.info(
            "A batch of %d tokens takes the encoder %.1f ms as it is and %.1f ms compiled, whose states differ by %.2g "
            "of their spread: it reads %s.",
            ids.numel(),
            1000 * plain_s,
            1000 * compiled_s,
            apart,
            "compiled" if quicker else "as it is",
        )
        if quicker:
            self.model = compiled


def _read(model: Any, ids: torch.Tensor) -> torch.Tensor:
    hidden: torch.Tensor = model(input_ids=ids, use_cache=False).last_hidden_state
    return hidden


def _log_failure(error: Exception) -> None:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    log.warning("The encoder's layers cannot be compiled here, and batches take longer: %s", reason)


def compiled_model(model: Any) -> Any:
    """The model with compiled layers, around the same weights: what is written into them is in force here too."""
    run = torch.compile(_run_layer, dynamic=True)
    shared = (*model.children(), *model.parameters(recurse=False), *model.buffers(recurse=False))
    part = copy.deepcopy(model, {id(one): one for one in shared})
    part.layers = nn.ModuleList([_Compiled(layer, place, run) for place, layer in enumerate(model.layers)])
    return part


def _run_layer(layer: Any, hidden: torch.Tensor, told: dict[str, Any]) -> Any:
    return layer(hidden, **told)


class _Compiled(nn.Module):
    """In the place of a layer: one compiled function, which takes every layer's weights as what it is given. Compiled
    each for itself, layers would take as many times as long."""

    def __init__(self, layer: Any, place: int, run: Callable[..., Any]) -> None:
        super().__init__()
        self._layer, self._place, self._run = layer, place, run

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:  # what a model asks of its layers, as their kind of attention
            return getattr(super().__getattr__("_layer"), name)

    def forward(self, hidden_states: torch.Tensor, **told: Any) -> Any:
        """As the layer itself."""
        if told.get("cache") is not None:  # of which a layer by its number would be another function
            told["cache"] = told["cache"].layers[self._place]
        return self._run(self._layer, hidden_states, told)


def _seconds(model: Any, ids: torch.Tensor) -> float:
    times = []
    for _ in range(_TIMED):
        began = time.perf_counter()
        _wait(_read(model, ids))
        times.append(time.perf_counter() - began)
    return min(times)


def _wait(hidden: torch.Tensor) -> None:
    """Until the device has computed it."""
    hidden.flatten()[:1].cpu()


def use_fused_norms(model: Any) -> None:
    """Have each RMS norm of the model computed by one kernel of torch's; what is no plain one stays as it is. The last
    bits of a state change."""
    for parent in [*model.modules()]:
        for name, child in parent.named_children():
            if (norm := _fused(child)) is not None:
                setattr(parent, name, norm)


class FusedNorm(nn.Module):
    """An RMS norm with a weight [n]."""

    def __init__(self, weight: nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Of [..., n]."""
        return functional.rms_norm(hidden_states, self.weight.shape, self.weight, self.eps)


def _fused(norm: nn.Module) -> FusedNorm | None:
    """The same norm, where a trial shows that it is one: some families add 1 to the weight, or give it no weight."""
    weight = norm.__dict__.get("_parameters", {}).get("weight")
    eps = getattr(norm, "variance_epsilon", None) or getattr(norm, "eps", None)
    if not type(norm).__name__.endswith("RMSNorm") or weight is None or weight.ndim != 1 or eps is None:
        return None
    fused = FusedNorm(weight, float(eps))
    with torch.inference_mode():
        tried = torch.linspace(-2, 3, 4 * len(weight), device=weight.device, dtype=weight.dtype)
        expected, found = (one(tried.reshape(4, -1)).float() for one in (norm, fused))
    allowed = 1e-5 if weight.dtype == torch.float32 else 2e-2
    apart = float((found - expected).abs().max())
    return fused if apart <= allowed * max(1.0, float(expected.abs().max())) else None
