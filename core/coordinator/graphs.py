"""Reading on an accelerator, where starting a kernel takes longer than what it computes: forwards of few fixed shapes,
each recorded once as a graph and replayed. Elsewhere the same forwards run one kernel after the other."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, takewhile
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import Cache, DynamicLayer

from core.coordinator.attention import attends_in_room, use_room_attention
from core.coordinator.batches import BatchReader, within_memory
from core.coordinator.prefixes import (
    PREFIX_BYTES,
    Part,
    PartReader,
    PrefixReader,
    alike,
    keys_of,
    reads_in_parts,
)
from core.coordinator.splits import SplitModel, turned_alike
from core.tokens.prompts import Prompt

#: From so many prompts on, reading them whole together takes less than reading what is new in one after the other.
TOGETHER = 8
_MOST_GRAPHS = 64
_LEAST_NEW, _LEAST_SPAN = 64, 512  # tokens of a shape
_EIGHTS = 3  # a shape is an eighth larger than what it is for, at most
_FIRST_ROOM = 4096  # tokens
_ROOMS = 2  # prompts that are read together have so many times as many tokens as are new, at most
_SHARE_OF_FREE = 0.6

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
            in_room = ends * new, ends * (start + new), new, span
            told |= {"in_room": in_room, "attention_mask": at[None, None, None]}
        else:
            seen = torch.arange(span, device=ids.device) <= at[:, None]
            told["attention_mask"] = seen[None, None]
        hidden: torch.Tensor = self._model(
            input_ids=ids, position_ids=at[None], use_cache=True, **told
        ).last_hidden_state[0]
        return hidden

    def read_together(
        self, prompts: Sequence[Prompt], seed: bytes = b"", model: Any = None
    ) -> list[torch.Tensor]:
        """Hidden states [new tokens, hidden size] of what is new in each prompt, its suffix included: all in one
        forward, one after the other, without padding or a mask. `model` is the same one, with compiled layers."""
        keys = [keys_of(prompt, seed) for prompt in prompts]
        known = [self._known(of_prompt) for of_prompt in keys]
        lengths = [len(prompt.ids) for prompt in prompts]
        starts = [sum(part.tokens for part in parts) for parts in known]
        news = [length - start for length, start in zip(lengths, starts, strict=True)]
        bases = [0, *accumulate(lengths)]
        within = [np.arange(start, length) for start, length in zip(starts, lengths, strict=True)]
        places = [one + base for one, base in zip(within, bases, strict=False)]
        ids = [prompt.ids[start:] for prompt, start in zip(prompts, starts, strict=True)]
        with torch.inference_mode():
            room = torch.empty(self._shape(bases[-1]), dtype=self._model.dtype, device=self._model.device)
            for base, parts in zip(bases, known, strict=False):
                for part in parts:
                    room[..., base : (base := base + part.tokens), :] = part.together
            at = self._placed(np.concatenate(places))
            new_ends, ends = (
                self._placed(np.asarray(one, np.int32)) for one in ([0, *accumulate(news)], bases)
            )
            hidden: torch.Tensor = (model or self._model)(
                input_ids=self._placed(np.concatenate(ids))[None],
                position_ids=self._placed(np.concatenate(within))[None],
                attention_mask=at[None, None, None],  # as in `_run`
                cache=Cache(layers=[_Fixed(layer[0], layer[1], at) for layer in room]),
                use_cache=True,
                in_room=(new_ends, ends, max(news), max(lengths)),
            ).last_hidden_state[0]
            for base, prompt, of_prompt, parts in zip(bases, prompts, keys, known, strict=False):
                self._keep_new(room[..., base : base + len(prompt.ids), :], prompt, of_prompt, len(parts))
        self.tokens += sum(news)
        return list(hidden.split(news))  # type: ignore[no-untyped-call]

    def known_tokens(self, prompt: Prompt, seed: bytes = b"") -> int:
        """How many tokens of a prompt need not be read again."""
        return sum(part.tokens for part in self._known(keys_of(prompt, seed)))

    def _known(self, keys: Sequence[bytes]) -> list[_FixedPart]:
        """The parts that are remembered, from the beginning, without the last: its hidden states are wanted."""
        remembered = takewhile(lambda part: part is not None, map(self.parts.get, keys[:-1]))
        return [part for part in remembered if isinstance(part, _FixedPart)]

    def _keep_new(self, room: torch.Tensor, prompt: Prompt, keys: Sequence[bytes], known: int) -> None:
        starts = (0, *prompt.ends)
        for place in range(known, len(keys)):
            together = room[..., starts[place] : starts[place + 1], :].clone()
            part = _FixedPart([(one[0], one[1]) for one in together], None, together)
            self.parts.keep(keys[place], part, trim=False)
        for key in reversed(keys):  # a beginning is forgotten after what goes on from it
            self.parts.get(key)
        self.parts.trim()

    def _placed(self, numbers: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self._model.device)

    def _shape(self, tokens: int) -> tuple[int, ...]:
        config = self._model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return self._layers, 2, 1, heads, tokens, size

    def _make_room(self, tokens: int) -> None:
        if self._room.numel() and self._room.shape[-2] >= tokens:
            return
        most = max(_FIRST_ROOM, 1 << (tokens - 1).bit_length())
        self._forward.forget()
        self._held.clear()
        self._room = torch.empty(0)  # first, as both together may not fit
        self._room = torch.zeros(self._shape(most), dtype=self._model.dtype, device=self._model.device)

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
    """Reads on an accelerator only what is new in each prompt: of few prompts one after the other, of many together,
    where attention needs no mask. Many are read whole where it does, and so are, of many, questions alone, which may
    never be gone on from. A state differs in its last bits between these ways."""

    def __init__(self, model: Any, batches: BatchReader) -> None:
        self._model, self._batches = model, batches
        self._prefixes = FixedPrefixReader(model, _budget(model))
        self._parts = PartReader(model, prefixes=self._prefixes)
        self._packs = attends_in_room(model) and _reads_together(model)
        self._most: float = batches.batch_tokens  # new tokens of one forward

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
        if len(prompts) < TOGETHER and split is None:
            yield from self._parts.read(prompts, token_position, seed)
            return
        packs = self._packs and split is None
        packed = [place for place, prompt in enumerate(prompts) if packs and len(prompt.ends) > 1]
        whole = sorted({*range(len(prompts))} - {*packed})
        read = self._batches.read([prompts[place] for place in whole], token_position, seed, split)
        yield from ((whole[place], state) for place, state in read)
        while packed:
            some = partial(self._pack, [prompts[place] for place in packed], token_position, seed)
            states = within_memory(some, self._spare, len(prompts[packed[0]].ids), self._model)
            yield from zip(packed, states, strict=False)
            packed = packed[len(states) :]

    def forget(self) -> None:
        """Drop what is remembered."""
        self._parts.forget()
        self._batches.forget()

    def _pack(self, prompts: Sequence[Prompt], token_position: int, seed: bytes) -> NDArray[np.float32]:
        """States [n, hidden size] of the first of these prompts, as many as one forward takes."""
        chosen, new, tokens = list[Prompt](), 0, 0
        for prompt in prompts:
            known = self._prefixes.known_tokens(prompt, seed)
            if len(prompt.ids) - known < -token_position:  # the token lies before what is new
                prompt, known = Prompt(prompt.ids, prompt.overflow, (len(prompt.ids),)), 0
            new, tokens = new + len(prompt.ids) - known, tokens + len(prompt.ids)
            if chosen and (new > self._most or tokens > _ROOMS * self._most):
                break
            chosen.append(prompt)
        hidden = self._read_together(chosen, seed)
        self._parts.forwards += sum(len(one) / len(of.ids) for one, of in zip(hidden, chosen, strict=True))
        with torch.inference_mode():
            states = torch.stack([one[token_position] for one in hidden]).float().cpu().numpy()
        return cast("NDArray[np.float32]", states)

    def _read_together(self, prompts: Sequence[Prompt], seed: bytes) -> list[torch.Tensor]:
        while True:
            try:
                return self._prefixes.read_together(prompts, seed, self._batches.forward.model)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # what reads batches may not be compiled for this
                self._batches.forward.give_up(error)

    def _spare(self) -> bool:
        """Read less at a time from here on, and forget all; False where nothing is left to be spared."""
        self._most /= 2
        self._prefixes.parts.budget //= 2
        self._prefixes.forget()
        return self._most > 1


def _budget(model: Any) -> int:
    """For what is remembered, in bytes: on CUDA a share of what the device has left."""
    if model.device.type != "cuda":
        return PREFIX_BYTES
    return max(PREFIX_BYTES, int(_SHARE_OF_FREE * torch.cuda.mem_get_info()[0]))


def _reads_together(model: Any) -> bool:
    """Whether prompts have the states of reading each whole where what is new in them is read together."""
    ids = tuple(one % int(model.config.vocab_size) for one in range(1, 41))
    prompts = [Prompt(ids[first:], False, (8, 30 - first), 10) for first in (0, 5)]
    reader = FixedPrefixReader(model)
    try:
        reader.read_together([Prompt(ids[5:], False, (8, 25), 10)])  # of the second, one part is known then
        found = reader.read_together(prompts)
        with torch.inference_mode():
            for prompt, hidden in zip(prompts, found, strict=True):
                read = torch.tensor([prompt.ids], device=model.device)
                whole: torch.Tensor = model(input_ids=read, use_cache=False).last_hidden_state[0]
                if not alike(whole[-len(hidden) :], hidden):
                    return False
    except Exception as fault:  # a model that takes no further words may raise anything
        log.debug("Prompts are not read together: %s", fault)
        return False
    return True


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
