"""Singular-value fine-tuning: an encoder's matrices with learned offsets to their singular values; a matrix is
decomposed once, and on the machine where its decomposition is kept, once for all runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from core.errors import CheckpointError
from core.pocket.threads import suited_threads

#: ((matrix name, number of singular values), ...) in the order of the flat vector.
Layout = tuple[tuple[str, int], ...]

LM_HEAD = "lm_head.weight"
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")  # as Llama, GPT-2 and MPT name them
#: Matrices of a layer on which no key and no value depends.
_BEHIND_KEYS = re.compile(r"\.(self_attn\.(q_proj|o_proj|dense)|mlp\..+)\.weight$")
_ROWS_AT_ONCE = 16_384  # of a matrix being rewritten: bounds the memory of a large embedding
#: Smaller matrices are decomposed more quickly than a file is read.
_KEPT_FROM = 256  # singular values
#: What the eigenvectors of n x n numbers take, in n^3 operations of a product of matrices.
_EIGENVECTORS = 14


@dataclass(frozen=True, slots=True, eq=False)
class Offsets:
    """Offsets for the matrices of a layout, float32 [sum of its counts]; 0 changes nothing."""

    layout: Layout
    values: NDArray[np.float32]

    @property
    def key(self) -> bytes:
        """Equal for equal offsets of equal matrices."""
        return hashlib.blake2b(repr(self.layout).encode() + self.values.tobytes(), digest_size=16).digest()


def svf_layout(
    model: Any, layers: Sequence[int], *, embeddings: bool = True, lm_head: bool = False
) -> Layout:
    """The matrices that SVF may change, in state_dict order: all outside the layers and those of `layers`.

    This is the authors' `opt_layer_indices` rule. `lm_head` adds the head that their causal model has and
    ours leaves out: with it, layer 26 of Qwen3-0.6B gives their 9 blocks of 1,024. Without `embeddings` only
    those of `layers`: what lies below them is then computed once for all candidates."""
    depth = int(model.config.num_hidden_layers)
    if not all(0 <= layer < depth for layer in layers):
        raise CheckpointError(f"The encoder has layers 0 to {depth - 1}; SVF cannot use {list(layers)}.")
    layout = [
        (name, min(weight.shape))
        for name, weight in model.state_dict().items()
        if weight.ndim == 2 and (embeddings if (layer := layer_of(name)) is None else layer in layers)
    ]
    if lm_head:
        layout.append((LM_HEAD, min(model.get_input_embeddings().weight.shape)))
    return tuple(layout)


def layer_of(name: str) -> int | None:
    """The layer that a matrix belongs to; None for one outside the layers."""
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def behind_keys(name: str) -> bool:
    """Whether no key and no value of its own layer depends on this matrix."""
    return bool(_BEHIND_KEYS.search(name))


def dead_blocks(model: Any, layout: Layout) -> tuple[str, ...]:
    """The blocks whose offsets change nothing.

    On tied embeddings the LM head and the input embedding are one matrix: the head is written last and acts,
    the embedding's block is dead. Untied, the head's is dead: the hidden state is read before it."""
    names = [name for name, _ in layout]
    if LM_HEAD not in names:
        return ()
    if not model.config.tie_word_embeddings:
        return (LM_HEAD,)
    embedding = model.get_input_embeddings().weight
    tied = {name for name, weight in model.named_parameters() if weight is embedding}
    return tuple(name for name in names if name in tied)


#: A matrix's singular values [n], the largest first, and their directions on its smaller side [n, n] as columns.
Decomposition = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Decomposing:
    """How far an encoder is with the matrices that it has to decompose: `done` of so many, and the `share` of the
    arithmetic that this is."""

    done: int
    of: int
    share: float


class DecompositionLedger(Protocol):
    """Where decompositions outlive the process that computed them. It may lose some, and never fails."""

    def recall(self, key: bytes, count: int) -> Decomposition | None:
        """What was kept under this key, of so many singular values."""

    def keep(self, key: bytes, found: Decomposition) -> None:
        """Keep this as well."""


class SingularValues:
    """A model's matrices, decomposed once and rewritten for each set of offsets.

    The authors' equation: W = U diag(S) V^T becomes U diag(S (1 + delta)) V^T sum(S) / sum(S (1 + delta)).
    As W V = U diag(S), this is W (V diag(scale) V^T): U is never needed, S and V come from the eigenvectors
    of the smaller Gram matrix in float64, in seconds. (An SVD of a 151,936 x 1,024 embedding takes minutes.)

    With the `digest` of the model's weights, large matrices are looked for in the `ledger` and kept there."""

    def __init__(
        self, model: Any, layout: Layout, *, digest: str = "", ledger: DecompositionLedger | None = None
    ) -> None:
        check_layout(model, layout)
        self.layout = layout
        self.dead = dead_blocks(model, layout)
        self._ledger = ledger if digest else None
        self._keys = {
            name: hashlib.blake2b(
                repr((digest, str(model.dtype), name, tuple(_parameter(model, name).shape))).encode(),
                digest_size=16,
            ).digest()
            for name, _ in layout
        }
        self._matrices = {
            name: _Matrix(_parameter(model, name)) for name, _ in layout if name not in self.dead
        }

    def decompose(self) -> Iterator[Decomposing]:
        """Decompose every matrix that is not yet. Large ones that were not kept come last, and tell how far they are,
        before the first and after each; the others take no time worth telling. `apply` does what is left of it."""
        slow: list[tuple[str, _Matrix]] = []
        for name, matrix in self._matrices.items():
            if matrix.is_decomposed:
                continue
            if matrix.count < _KEPT_FROM:
                matrix.take(matrix.decompose())
            elif found := self._ledger and self._ledger.recall(self._keys[name], matrix.count):
                matrix.take(found)
            else:
                slow.append((name, matrix))
        if slow:
            yield Decomposing(0, len(slow), 0.0)
        work, all_work = 0.0, sum(matrix.work for _, matrix in slow)
        for done, (name, matrix) in enumerate(slow, start=1):
            if not matrix.is_decomposed:  # `apply` may have been faster
                found = matrix.decompose()
                matrix.take(found)
                if self._ledger:
                    self._ledger.keep(self._keys[name], found)
            work += matrix.work
            yield Decomposing(done, len(slow), work / all_work)

    def apply(self, offsets: NDArray[np.float32]) -> None:
        """Write the matrices for these offsets, float32 [sum of the layout's counts]."""
        if offsets.shape != (sum(count for _, count in self.layout),):
            raise CheckpointError(
                f"The SVF layout {self.layout} does not fit offsets of shape {offsets.shape}."
            )
        for _ in self.decompose():
            pass
        try:
            start = 0
            for name, count in self.layout:
                if name in self._matrices:
                    self._matrices[name].write(offsets[start : start + count], name)
                start += count
        except BaseException:  # too little memory, or Ctrl-C: nobody may read with half of them
            self.restore()
            raise

    def restore(self) -> None:
        """Put the original matrices back, bit for bit."""
        for matrix in self._matrices.values():
            matrix.restore()


class _Matrix:
    """One weight, its original and its singular decomposition on the smaller side."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = weight
        self._original = weight.detach().clone()
        self._tall = weight.shape[0] >= weight.shape[1]
        self.count = min(weight.shape)
        nothing = torch.empty(0, dtype=torch.float64, device=weight.device)
        self._values, self._directions = nothing, nothing

    @property
    def is_decomposed(self) -> bool:
        return len(self._values) > 0

    @property
    def work(self) -> float:
        """About what its decomposition takes, in operations."""
        return 2.0 * max(self._weight.shape) * self.count**2 + _EIGENVECTORS * self.count**3

    def decompose(self) -> Decomposition:
        """Of the original weight."""
        gram = torch.zeros(self.count, self.count, dtype=torch.float64, device=self._weight.device)
        tall = self._original if self._tall else self._original.T
        for start in range(0, len(tall), _ROWS_AT_ONCE):
            part = tall[start : start + _ROWS_AT_ONCE].double()
            gram += part.T @ part
        with suited_threads(
            small=True
        ):  # several wait for each other: on a busy machine they take 15 times as long
            squares, directions = torch.linalg.eigh(gram)
        values = squares.flip(0).clamp(min=0).sqrt()  # largest first, as torch.svd orders them
        return values.cpu().numpy(), directions.flip(1).cpu().numpy()

    def take(self, found: Decomposition) -> None:
        """Make use of its decomposition."""
        self._values, self._directions = (torch.from_numpy(one).to(self._weight.device) for one in found)

    def write(self, offsets: NDArray[np.float32], name: str) -> None:
        if not offsets.any():
            self.restore()
            return
        factors = 1 + torch.from_numpy(offsets.astype(np.float64)).to(self._values.device)
        changed = float((self._values * factors).sum())
        if not changed > 0:
            raise CheckpointError(f"The SVF offsets of {name} leave no positive sum of singular values.")
        scale = factors * (float(self._values.sum()) / changed)
        turn = ((self._directions * scale) @ self._directions.T).float()
        with torch.no_grad(), _tf32(self._weight):
            if self._tall:
                for start in range(0, len(self._original), _ROWS_AT_ONCE):
                    rows = slice(start, start + _ROWS_AT_ONCE)
                    self._weight[rows] = (self._original[rows].float() @ turn).to(self._weight.dtype)
            else:
                self._weight.copy_(turn @ self._original.float())

    def restore(self) -> None:
        with torch.no_grad():
            self._weight.copy_(self._original)


@contextmanager
def _tf32(weight: torch.Tensor) -> Iterator[None]:
    """Products of float32 on CUDA's matrix units where they are rounded to a weight of 16 bits, which loses more than
    TF32 does."""
    if not weight.is_cuda or weight.dtype == torch.float32:
        yield
        return
    settings = torch.backends.cuda.matmul
    before, settings.allow_tf32 = settings.allow_tf32, True
    try:
        yield
    finally:
        settings.allow_tf32 = before


def check_layout(model: Any, layout: Layout) -> None:
    """Raise CheckpointError naming the first block that this model does not have in that size."""
    for name, count in layout:
        weight = _parameter(model, name)
        if weight is None or weight.ndim != 2:
            raise CheckpointError(
                f"The checkpoint changes the matrix {name}, which this encoder does not have."
            )
        if min(weight.shape) != count:
            raise CheckpointError(
                f"The checkpoint has {count} offsets for {name}, but this encoder's has {min(weight.shape)} "
                f"singular values (shape {tuple(weight.shape)})."
            )


def _parameter(model: Any, name: str) -> Any:
    """The named weight; for the LM head, which we leave out, the embedding: its shape, and if tied itself."""
    if name == LM_HEAD:
        return model.get_input_embeddings().weight
    return dict(model.named_parameters()).get(name)
