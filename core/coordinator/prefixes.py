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

from core.coordinator.attention import Packed, attends_continued
from core.coordinator.batches import within_memory
from core.coordinator.memory import Memory
from core.coordinator.splits import ENTERING_BYTES, SplitModel, split_of_last_layer, turned_alike
from core.tokens.prompts import Prompt

#: Of remembered parts. A token of Qwen3-0.6B takes 224 KiB in float32.
PREFIX_BYTES = 2 * 2**30
_TRIED_TOKENS = 24
#: So many new tokens of several prompts are read in one forward, about: more would not be quicker.
_PACKED_TOKENS = 320
#: A part of fewer tokens is read alone: of one row a matrix product may add up otherwise than of many.
_FEWEST_PACKED = 8

#: Token ids that are read after some parts, how many of them are remembered, and these parts.
Job = tuple[tuple[int, ...], int, "list[Part]"]


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
        return self.read_all([prompt], seed)[0]

    def read_all(self, prompts: Sequence[Prompt], seed: bytes = b"") -> list[torch.Tensor]:
        """What `read` gives of each of these prompts. Their last parts are read in one forward, so none of them may be
        the beginning of another; what is missing before them is read first."""
        keys = [keys_of(prompt, seed) for prompt in prompts]
        jobs = [self._last_part(prompt, own) for prompt, own in zip(prompts, keys, strict=True)]
        mine = [key for own in keys for key in own]
        spare, tokens = partial(self._spare, mine), sum(len(ids) for ids, _, _ in jobs)
        found = within_memory(partial(self.read_parts, jobs), spare, tokens, self._model)
        for own, (part, _) in zip(keys, found, strict=True):
            self.parts.keep(own[-1], part, trim=False)
            for key in reversed(own):  # a beginning is forgotten after what goes on from it
                self.parts.get(key)
        self.parts.trim()
        return [
            torch.cat([*(part.hidden for part in before if part.hidden is not None), hidden])
            for (_, _, before), (_, hidden) in zip(jobs, found, strict=True)
        ]

    def _last_part(self, prompt: Prompt, keys: Sequence[bytes]) -> Job:
        """The last part of a prompt, with the suffix, after those before it, which are read where they are missing."""
        suffix, starts = prompt.ids[len(prompt.ids) - prompt.suffix :], (0, *prompt.ends)
        before: list[Part] = []
        for key, start, end in zip(keys[:-1], starts, prompt.ends, strict=False):
            if (part := self.parts.get(key)) is None:
                read = partial(self.read_part, (*prompt.ids[start:end], *suffix), end - start, before)
                part, _ = within_memory(read, partial(self._spare, keys), end - start, self._model)
                self.parts.keep(key, part, trim=False)
            before.append(part)
        last = prompt.ids[starts[len(keys) - 1] : prompt.ends[-1]]
        return (*last, *suffix), len(last), before

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

    def read_parts(self, jobs: Sequence[Job]) -> list[tuple[Part, torch.Tensor]]:
        """What `read_part` gives of each job: of several in one forward, one after the other."""
        if len(jobs) == 1:
            return [self.read_part(*jobs[0])]
        lengths = [len(ids) for ids, _, _ in jobs]
        befores = [
            [[part.layers[i] for part in before] for _, _, before in jobs] for i in range(self._layers)
        ]
        layers = [_Continued(()) for _ in range(self._layers)]
        starts = [sum(part.tokens for part in before) for _, _, before in jobs]
        places = [torch.arange(start, start + n) for start, n in zip(starts, lengths, strict=True)]
        with torch.inference_mode():
            at = torch.cat(places)[None]
            hidden = self._model(
                input_ids=torch.tensor([[one for ids, _, _ in jobs for one in ids]]),
                position_ids=at,
                # What has four dimensions is taken for a mask, and none is made.
                attention_mask=at[None, None],
                cache=Cache(layers=list(layers)),
                use_cache=True,
                packed=Packed(lengths, befores),
            ).last_hidden_state[0]
            self.tokens += sum(lengths)
            found, start = list[tuple[Part, torch.Tensor]](), 0
            for (_, kept, _), length in zip(jobs, lengths, strict=True):
                new = [
                    tuple(one[:, :, start : start + kept].clone() for one in layer.new) for layer in layers
                ]
                own = hidden[start : (start := start + length)]
                found.append((Part(new, own[:kept].clone() if self._keeps_hidden else None), own))
        return found


class PartReader:
    """Reads prompts part by part, in the last layer all tokens but one only as far as their keys and values. The last
    parts of several are read in one forward where that changes no bit. With changed weights that have a `split`, only
    the layers above the cut are run for each change of them."""

    def __init__(
        self, model: Any, budget: int = PREFIX_BYTES, *, prefixes: PrefixReader | None = None
    ) -> None:
        self._model, self._budget = model, budget
        #: What enters the layers above a cut, which is the same for all changes above it.
        self._entering = Memory[torch.Tensor](ENTERING_BYTES)
        self._own = None if prefixes else split_of_last_layer(model)
        self._cut = self._own
        self.prefixes = prefixes or self._of_cut()
        self._packs_here: bool | None = False if prefixes else None  # until it is tried
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
        asked = [(place, self._as_read(prompts[place], token_position)) for place in order]
        packs = split is None and self._packs(asked)
        for some in _groups(asked, seed) if packs else ([one] for one in asked):
            together = [prompt for _, prompt in some]
            if cut is None:
                hidden = self._hidden(prefixes, together, seed)
            elif split is None:
                hidden = self._hidden(prefixes, together, seed, cut.share_below)
            else:
                hidden = [self._entering_of(together[0], prefixes, cut)]
            for (place, _), one in zip(some, hidden, strict=True):
                state = one[token_position]
                if cut is not None:
                    self.forwards += cut.share_above
                    with torch.inference_mode():
                        state = cut.above(one[None], [len(one) + token_position])[0]
                yield place, state.float().cpu().numpy()

    def forget(self) -> None:
        """Drop what is remembered."""
        self.prefixes.forget()
        self._entering.forget()

    def _of_cut(self) -> PrefixReader:
        lower = self._cut.lower if self._cut else self._model
        return PrefixReader(lower, self._budget, keeps_hidden=bool(self._cut))

    def _as_read(self, prompt: Prompt, token_position: int) -> Prompt:
        """The prompt, as one part where the token that is read lies before its last, or all are turned otherwise."""
        before_last = len(prompt.ids) - (0, *prompt.ends)[-2] < -token_position
        if before_last or len(prompt.ids) > (turned_alike(self._model.config) or len(prompt.ids)):
            return Prompt(prompt.ids, prompt.overflow, (len(prompt.ids),))
        return prompt

    def _packs(self, asked: Sequence[object]) -> bool:
        """Whether several are read in one forward: it is tried once, when there are several."""
        if self._packs_here is None and len(asked) > 1:
            self._packs_here = packs_alike(self._model)
        return bool(self._packs_here)

    def _hidden(
        self, prefixes: PrefixReader, prompts: Sequence[Prompt], seed: bytes, share: float = 1.0
    ) -> list[torch.Tensor]:
        """As this reader gives them, whose layers are this share of all."""
        before = prefixes.tokens
        hidden = prefixes.read_all(prompts, seed)
        read = prefixes.tokens - before
        self.forwards += share * len(prompts) * read / sum(len(prompt.ids) for prompt in prompts)
        return hidden

    def _entering_of(self, prompt: Prompt, prefixes: PrefixReader, cut: SplitModel) -> torch.Tensor:
        """What `cut.above` goes on from, remembered as long as only what lies above is changed."""
        key = prompt.digest, prompt.ends
        entering = self._entering.get(key)
        if entering is None:
            (entering,) = self._hidden(prefixes, [prompt], b"", cut.share_below)
            self._entering.keep(key, entering)
        return entering


def _groups(asked: Sequence[tuple[int, Prompt]], seed: bytes) -> Iterator[list[tuple[int, Prompt]]]:
    """The prompts in their order, by those that are read in one forward: as many as are worth it, and none that goes on
    from another of them."""
    group, tokens, ends = list[tuple[int, Prompt]](), 0, set[bytes]()
    for place, prompt in asked:
        keys = keys_of(prompt, seed)
        new = len(prompt.ids) - (0, *prompt.ends)[-2]
        alone = new < _FEWEST_PACKED
        if group and (alone or tokens + new > _PACKED_TOKENS or not ends.isdisjoint(keys)):
            yield group
            group, tokens, ends = [], 0, set()
        group.append((place, prompt))
        tokens, ends = tokens + (_PACKED_TOKENS if alone else new), ends | {keys[-1]}
    if group:
        yield group


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
    ids = _tried_ids(model, _TRIED_TOKENS)
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


def packs_alike(model: Any) -> bool:
    """Whether parts that are read in one forward have the states of those read alone to the last bit: which way this
    machine adds up a row of a matrix product may depend on how many rows there are. Tried on parts of many lengths."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ())
    windows = kinds != {"full_attention"} if kinds else bool(getattr(config, "sliding_window", None))
    if not attends_continued(model) or windows or turned_alike(config):
        return False
    lengths = (_FEWEST_PACKED, 13, 22, 50)
    ids = _tried_ids(model, _TRIED_TOKENS + sum(lengths))
    first, rest = ids[:_TRIED_TOKENS], ids[_TRIED_TOKENS:]
    prompts = [Prompt(rest[:9], False, (9,))]
    for length in lengths:
        own, rest = rest[:length], rest[length:]
        prompts.append(Prompt((*first, *own), False, (_TRIED_TOKENS, len(first) + length)))
    reader = PrefixReader(model)
    try:
        alone = [reader.read(prompt) for prompt in prompts]
        groups = (prompts, prompts[2:0:-1])
        return all(
            torch.equal(one, alone[prompts.index(prompt)])
            for group in groups
            for prompt, one in zip(group, reader.read_all(group), strict=True)
        )
    except Exception:  # a model that takes no further words may raise anything
        return False


def _tried_ids(model: Any, count: int) -> tuple[int, ...]:
    """Ids of ordinary tokens, as far as they can be told: not those at the beginning of a vocabulary, which are often
    control tokens and so rare in training that rounding grows on them."""
    size = int(model.config.vocab_size)
    return tuple((size // 2 + one) % size for one in range(1, count + 1))


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether hidden states of the same shape differ by what rounding does alone: on the whole, and not by the largest,
    as few numbers of a real model are a hundred times as large as the others, and so is what rounding does to them."""
    scale = float(one.float().std()) or 1.0
    allowed = 1e-3 if one.dtype == torch.float32 else 0.1
    return float((one.float() - other.float()).square().mean().sqrt()) < allowed * scale
