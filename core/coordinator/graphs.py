"""Reading on an accelerator, where starting a kernel takes longer than what it computes: forwards of few fixed shapes,
each recorded once as a graph and replayed. Elsewhere the same forwards run one kernel after the other."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import Cache, DynamicLayer

from core.coordinator.attention import attends_in_room, use_room_attention
from core.coordinator.batches import BatchReader
from core.coordinator.prefixes import PREFIX_BYTES, Part, PartReader, PrefixReader, reads_in_parts
from core.coordinator.splits import SplitModel, turned_alike
from core.tokens.prompts import Prompt

#: From so many prompts on, reading them whole together takes less than reading what is new in one after the other.
TOGETHER = 8
_MOST_GRAPHS = 64
_LEAST_NEW, _LEAST_SPAN = 64, 512  # tokens of a shape
_EIGHTS = 3  # a shape is an eighth larger than what it is for, at most
_FIRST_ROOM = 4096  # tokens

log = logging.getLogger(__name__)


class Graphs:
    """A function of a number and of tensors of that number's shapes, which works on one device and gives a tensor. On
    CUDA each shape's run is recorded once, and replayed: what is given stands until the next call."""

    def __init__(self, run: Callable[..., torch.Tensor], device: torch.device) -> None:
        self._run = run
        self._records = device.type == "cuda"
        self._pool: Any = None
        self._graphs: OrderedDict[Any, tuple[Any, tuple[torch.Tensor, ...], torch.Tensor]] = OrderedDict()

    def __call__(self, size: int, *inputs: torch.Tensor) -> torch.Tensor:
        if not self._records:
            return self._run(size, *inputs)
        shape = (size, *(tuple(one.shape) for one in inputs))
        if shape not in self._graphs:
            try:
                self._graphs[shape] = self._recorded(size, inputs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                # An operation cannot be recorded, as one that waits for the device.
                log.warning(
                    "The encoder's forwards are not recorded as graphs here, and take longer: %s", error
                )
                self._records = False
                return self._run(size, *inputs)
            while len(self._graphs) > _MOST_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(shape)
        graph, places, given = self._graphs[shape]
        for place, one in zip(places, inputs, strict=True):
            place.copy_(one)
        graph.replay()
        return given

    def forget(self) -> None:
        """Drop every recording, as what they work on has moved."""
        self._graphs.clear()

    def _recorded(self, size: int, inputs: Sequence[torch.Tensor]) -> Any:
        places = tuple(one.clone() for one in inputs)
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # what a first run sets up cannot be recorded
            for _ in range(2):
                self._run(size, *places)
        torch.cuda.current_stream().wait_stream(aside)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            given = self._run(size, *places)
        return graph, places, given


@dataclass(slots=True, eq=False)
class _FixedPart(Part):
    """A part whose keys and values are one tensor [layers, 2, 1, heads, tokens, head size]."""

    together: torch.Tensor


class _Fixed(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values in the room that is there for them; new ones are written at places `at`."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, at: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._room, self._at = (keys, values), at
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room.index_copy_(2, self._at, new)
        return self._room


class FixedPrefixReader(PrefixReader):
    """Reads as `PrefixReader` does, with forwards of few shapes: new tokens are padded on the right, where causal
    attention cannot see, and keys and values stand in one room for a conversation, as much of it as a shape spans.
    A state differs in its last bits from one that was read elsewhere, and never by what was read before it."""

    def __init__(self, model: Any, budget: int = PREFIX_BYTES) -> None:
        super().__init__(model, budget)
        self._room = torch.empty(0)
        self._held: list[Part] = []  # of which the room holds keys and values, from its beginning
        self._forward = Graphs(self._run, model.device)

    def forget(self) -> None:
        super().forget()
        self._held.clear()

    def read_part(self, ids: Sequence[int], kept: int, before: Sequence[Part]) -> tuple[Part, torch.Tensor]:
        start = sum(part.tokens for part in before)
        new = _rounded(len(ids), _LEAST_NEW)
        span = _rounded(start + new, _LEAST_SPAN)
        with torch.inference_mode():
            self._make_room(span)
            self._lay_out(before)
            padded = torch.tensor([(*ids, *(0 for _ in range(new - len(ids))))], device=self._model.device)
            hidden = self._forward(span, padded, torch.tensor(start, device=self._model.device))
            together = self._room[..., start : start + kept, :].clone()
            hidden = hidden[: len(ids)].clone()
        self.tokens += len(ids)
        part = _FixedPart([(layer[0], layer[1]) for layer in together], None, together)
        self._held = [*before, part]
        return part, hidden

    def _run(self, span: int, ids: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Hidden states [tokens, hidden size] of `ids` [1, tokens], the first of which stands at place `start`."""
        new = ids.shape[1]
        at = start + torch.arange(new, device=ids.device)
        room = self._room[..., :span, :]
        told: dict[str, Any] = {"cache": Cache(layers=[_Fixed(layer[0], layer[1], at) for layer in room])}
        if attends_in_room(self._model):
            ends = torch.arange(2, dtype=torch.int32, device=ids.device)
            # What has four dimensions is taken for a mask, and none is made.
            told |= {"in_room": (ends * new, ends * (start + new)), "attention_mask": at[None, None, None]}
        else:
            seen = torch.arange(span, device=ids.device) <= at[:, None]
            told["attention_mask"] = seen[None, None]
        hidden: torch.Tensor = self._model(
            input_ids=ids, position_ids=at[None], use_cache=True, **told
        ).last_hidden_state[0]
        return hidden

    def _make_room(self, tokens: int) -> None:
        if self._room.numel() and self._room.shape[-2] >= tokens:
            return
        config = self._model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        most = max(_FIRST_ROOM, 1 << (tokens - 1).bit_length())
        self._forward.forget()
        self._held.clear()
        self._room = torch.empty(0)  # first, as both together may not fit
        shape = (self._layers, 2, 1, heads, most, size)
        self._room = torch.zeros(shape, dtype=self._model.dtype, device=self._model.device)

    def _lay_out(self, before: Sequence[Part]) -> None:
        start = 0
        for place, part in enumerate(before):
            end = start + part.tokens
            if place >= len(self._held) or self._held[place] is not part:
                del self._held[place:]
                assert isinstance(part, _FixedPart)
                self._room[..., start:end, :] = part.together
            start = end


class AcceleratedReader:
    """Reads on an accelerator: few prompts one after the other, only what is new in each, many of them whole together.
    A state differs in its last bits between the two ways."""

    def __init__(self, model: Any, batches: BatchReader) -> None:
        self._batches = batches
        self._parts = PartReader(model, prefixes=FixedPrefixReader(model))

    @property
    def forwards(self) -> float:
        """In forwards of one prompt through all layers."""
        return self._parts.forwards + self._batches.forwards

    def read(
        self,
        prompts: Sequence[Prompt],
        token_position: int,
        seed: bytes = b"",
        split: SplitModel | None = None,
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Every prompt's place in `prompts` and its state [hidden size]."""
        alone = len(prompts) < TOGETHER and split is None
        reader = self._parts if alone else self._batches
        yield from reader.read(prompts, token_position, seed, split)

    def forget(self) -> None:
        """Drop what is remembered."""
        self._parts.forget()
        self._batches.forget()


def reads_in_fixed_parts(model: Any) -> bool:
    """Whether a token of this model sees all tokens before it, and a room for keys and values is all that it needs of
    them."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ())
    windows = kinds != {"full_attention"} if kinds else bool(getattr(config, "sliding_window", None))
    if windows or turned_alike(config):
        return False
    if use_room_attention(model):
        if reads_in_parts(model, FixedPrefixReader(model)):
            return True
        log.info("The encoder attends by a mask here: torch's flash attention does not give the same states.")
        model.set_attn_implementation("sdpa")
    return reads_in_parts(model, FixedPrefixReader(model))


def _rounded(tokens: int, least: int) -> int:
    """The next of few numbers: an eighth more at most, from `least` on."""
    step = max(least, 1 << max(0, tokens.bit_length() - 1 - _EIGHTS))
    return -(-tokens // step) * step
