"""Reading whole prompts in batches of fixed shapes: the quickest way for a small encoder, and on an accelerator."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray

from core.coordinator.fusing import WholeForward
from core.coordinator.memory import Memory
from core.coordinator.splits import ENTERING_BYTES, SplitModel, turned_alike
from core.errors import CheckpointError
from core.pocket.devices import is_out_of_memory
from core.pocket.threads import suited_threads
from core.processes import Processes, portable
from core.tokens.prompts import Prompt

#: Arithmetic of one batch: enough to hide a small model's overhead, little enough for one quick decision.
_BATCH_FLOP = {"cpu": 2e9}
_BATCH_FLOP_ACCELERATOR = 3e13
_LARGEST_BATCH = 64
#: With SVF offsets a candidate's few transcripts are read alone: rows beyond them would only be padding.
_LARGEST_BATCH_WITH_OFFSETS = 4
_LENGTH_RASTER = 16  # tokens
#: On an accelerator: what beginning a batch takes, in arithmetic that its start could have done.
_START_FLOP = 2e12
#: Whether few rows of a length give the same bits as a full batch, as a model's shape, both numbers of rows and the
#: length decide it.
_same_bits: dict[tuple[str, int, int, int], bool] = {}

T = TypeVar("T")
log = logging.getLogger(__name__)


class BatchReader:
    """Reads each prompt whole. A state depends on its own tokens only, to the last bit: prompts are padded on the
    right, where causal attention cannot see, to a fixed raster of lengths, and every batch of one length has the same
    rows, or so few that were seen to give the same bits here. On an accelerator prompts of similar lengths are read
    together, as many as fill it, and bits may differ by what is read beside. The batches of a small encoder on the CPU,
    as it lies in `folder` with weights of this `digest`, are shared among `processes`. Where memory runs out, batches
    are halved."""

    def __init__(
        self,
        model: Any,
        padding: int,
        *,
        small: bool,
        folder: Path | None,
        processes: Processes | None,
        digest: str = "",
    ) -> None:
        self._model, self._padding, self._small = model, padding, small
        self._device, self._dtype = str(model.device.type), str(model.dtype).removeprefix("torch.")
        self._source = [portable(folder) if folder else "", self._dtype, digest]
        shared = small and folder and self._device == "cpu"
        self._processes = processes if processes and shared else Processes(1)
        self._entering = Memory[torch.Tensor](ENTERING_BYTES)
        self._split: SplitModel | None = None  # which they enter
        self._shape = f"{self._dtype} { {**model.config.to_dict(), '_name_or_path': ''} }"
        #: In forwards of one prompt through all layers.
        self.forwards = 0.0
        embedding = model.get_input_embeddings().weight.numel()
        flop = 2.0 * max(1, sum(weight.numel() for weight in model.parameters()) - embedding)
        #: So many tokens are read together, about.
        self.batch_tokens = _BATCH_FLOP.get(self._device, _BATCH_FLOP_ACCELERATOR) / flop
        self._start_tokens = _START_FLOP / flop
        #: How batches are read.
        self.forward = WholeForward(model, self.batch_tokens)
        # What is read beside must not turn a prompt's tokens otherwise.
        self._fills = self._device != "cpu" and not turned_alike(model.config)

    def read(
        self,
        prompts: Sequence[Prompt],
        token_position: int,
        seed: bytes = b"",
        split: SplitModel | None = None,
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Every prompt's place in `prompts` and its state [hidden size], in the order in which they are read. `seed` is
        empty for the weights as they are in the folder; `split` cuts changed ones."""
        lengths = [-(-len(prompt.ids) // _LENGTH_RASTER) * _LENGTH_RASTER for prompt in prompts]
        batches: list[list[int]] = []
        jobs: list[Any] = []
        for batch, length, rows in self._filled(lengths) if self._fills else self._alike(lengths, bool(seed)):
            ids = np.full((rows, length), self._padding, np.int64)
            for row, place in enumerate(batch):
                ids[row, : len(prompts[place].ids)] = prompts[place].ids
            positions = [len(prompts[place].ids) + token_position for place in batch]
            batches.append(batch)
            jobs.append([*self._source, ids if self._fills else ids.tolist(), positions])
        if split:
            digests = [[prompts[place].digest for place in batch] for batch in batches]
            answers = self._from_split(split, jobs, digests)
        else:
            answers = self._whole(jobs, own=bool(seed))
        for batch, states in zip(batches, answers, strict=True):
            yield from zip(batch, states, strict=True)

    def forget(self) -> None:
        """Drop what is remembered."""
        self._entering.forget()

    @property
    def is_settled(self) -> bool:
        """Whether it is chosen how batches are read, as it is by the first that take long enough."""
        return self.forward.is_chosen

    def _alike(self, lengths: Sequence[int], offsets: bool) -> Iterator[tuple[list[int], int, int]]:
        """Batches of one length each: places in `lengths`, their length, and rows."""
        by_length: dict[int, list[int]] = {}
        for place, length in enumerate(lengths):
            by_length.setdefault(length, []).append(place)
        for length, places in sorted(by_length.items()):
            most = _LARGEST_BATCH_WITH_OFFSETS if offsets else _LARGEST_BATCH
            full = int(min(most, max(1, self.batch_tokens // length)))
            for start in range(0, len(places), full):
                batch = places[start : start + full]
                yield batch, length, full if offsets else self._rows(len(batch), length, full)

    def _filled(self, lengths: Sequence[int]) -> Iterator[tuple[list[int], int, int]]:
        """Batches of similar lengths, padded to the longest of each, that take the least in all: what is padding costs
        as much as what is read, and so does the start of each batch."""
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        costs, begins = [0.0], [0]  # of the first n in the order, and where their last batch begins
        for end, place in enumerate(order, start=1):
            most = int(min(_LARGEST_BATCH, max(1, self.batch_tokens // max(1, lengths[place])), end))
            cost, begin = min(
                (costs[end - rows] + self._start_tokens + rows * lengths[place], end - rows)
                for rows in range(1, most + 1)
            )
            costs.append(cost)
            begins.append(begin)
        found, end = list[tuple[list[int], int, int]](), len(order)
        while end:
            batch = order[begins[end] : end]
            found.append((batch, lengths[batch[-1]], len(batch)))
            end = begins[end]
        yield from reversed(found)

    def job(self, job: Any) -> str:
        """States of one batch (folder, dtype, digest, token ids [rows, length], positions), float32 in base64."""
        *_, ids, positions = job

        def read(rows: slice) -> NDArray[np.float32]:
            with torch.inference_mode():
                given = torch.tensor(ids[rows], device=self._model.device)
                hidden = self.forward(given)
            return _pick(hidden, positions[rows])

        with suited_threads(self._small):
            return base64.b64encode(self._halved(read, ids, len(positions)).tobytes()).decode()

    def _halved(
        self, read: Callable[[slice], NDArray[np.float32]], ids: Sequence[Any], wanted: int
    ) -> NDArray[np.float32]:
        """What `read` gives of the rows of a batch, of which the first are `wanted`: all at once or, where memory runs
        out, in parts, and later batches are smaller from the beginning."""
        size = len(ids)

        def all_rows() -> NDArray[np.float32]:
            found = [read(slice(first, first + size)) for first in range(0, wanted, size)]
            return np.concatenate(found)

        def spare() -> bool:
            nonlocal size
            size //= 2
            self.batch_tokens = min(self.batch_tokens, size * len(ids[0]))
            return size > 0

        return within_memory(all_rows, spare, len(ids[0]), self._model)

    def _rows(self, n: int, length: int, full: int) -> int:
        """How many rows a batch of `n` prompts has: `full`, or fewer where these give the same states to the last bit.
        Which way a machine adds up depends on the shape alone, and is tried once for each."""
        few = 1 << (n - 1).bit_length()
        if self._device != "cpu":
            return min(few, full)
        if few >= full or not self._small:
            return full
        tried = (self._shape, few, length, full)
        if tried not in _same_bits:
            vocabulary = int(self._model.get_input_embeddings().weight.shape[0])
            ids = np.random.default_rng(length).integers(0, vocabulary, (full, length))
            with torch.inference_mode():
                whole, part = (
                    self._model(input_ids=torch.from_numpy(some), use_cache=False).last_hidden_state
                    for some in (ids, ids[:few])
                )
            _same_bits[tried] = bool(torch.equal(whole[:few], part))
        return few if _same_bits[tried] else full

    def _whole(self, jobs: Sequence[Any], *, own: bool) -> Iterator[NDArray[np.float32]]:
        """States of every batch. Helpers have the weights of the folder; changed ones are this process's `own`."""
        processes = Processes(1) if own else self._processes
        answers = processes.answers("core.coordinator.encoder:read_batch", jobs, self.job)
        for (*_, positions), answer in zip(jobs, answers, strict=True):
            self.forwards += len(positions)
            yield np.frombuffer(base64.b64decode(answer), np.float32).reshape(len(positions), -1)

    def _from_split(
        self, split: SplitModel, jobs: Sequence[Any], digests: Sequence[Sequence[str]]
    ) -> Iterator[NDArray[np.float32]]:
        if self._split is not split:
            self._split = split
            self._entering.forget()
        for (*_, ids, positions), batch in zip(jobs, digests, strict=True):
            padded = [*positions, *positions[:1] * (len(ids) - len(positions))]
            with torch.inference_mode():
                states = split.above(self._enter(split, ids, batch), padded)[: len(positions)]
            self.forwards += len(positions) * split.share_above
            yield states.float().cpu().numpy()

    def _enter(self, split: SplitModel, ids: Sequence[Sequence[int]], digests: Sequence[str]) -> torch.Tensor:
        """What enters the changed layers [rows, length, width]; it is the same for all offsets."""
        known = [self._entering.get(digest) for digest in digests]
        if any(one is None for one in known):
            fresh = split.below(torch.tensor(ids, device=self._model.device))
            self.forwards += len(digests) * split.share_below
            known = [fresh[row].clone() for row in range(len(digests))]
            for digest, one in zip(digests, known, strict=True):
                self._entering.keep(digest, cast("torch.Tensor", one))
        rows = cast("list[torch.Tensor]", known)
        return torch.stack(rows + rows[:1] * (len(ids) - len(rows)))


def _pick(hidden: torch.Tensor, positions: Sequence[int]) -> NDArray[np.float32]:
    """The states float32 [n, hidden size] at one position of each of the first n of [rows, length, hidden size]."""
    with torch.inference_mode():
        picked = hidden[torch.arange(len(positions)), torch.tensor(positions)].float().cpu().numpy()
    return cast("NDArray[np.float32]", picked)


def within_memory(read: Callable[[], T], spare: Callable[[], bool], tokens: int, model: Any) -> T:
    """What `read` gives; where memory runs out, what `spare` gives up makes room, and it is read again. It is said once
    for each model. CheckpointError when nothing is left to be spared for one prompt of so many `tokens`."""
    while True:
        try:
            return read()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Here, as the error holds on to all that was computed before it.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        device = "the CPU" if model.device.type == "cpu" else model.device.type
        if not spare():
            raise CheckpointError(
                f"There is not enough memory on {device} for the encoder to read {tokens:,} tokens: give it less to do "
                "by --dtype bfloat16, --device cpu or a smaller encoder."
            )
        if model not in _warned:
            _warned.add(model)
            log.warning("The encoder ran out of memory on %s: it reads less at a time from here on.", device)


_warned: WeakSet[Any] = WeakSet()
