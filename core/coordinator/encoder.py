"""The encoder: a small language model that reads a transcript and gives one hidden state; no LM head."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from core.checkpoint import Dtype, EncoderIdentity, InputFormat
from core.coordinator.svf import Offsets, SingularValues, SplitModel, split_for
from core.episode import Decide
from core.errors import CheckpointError
from core.pocket.threads import is_small, no_progress_bar, suited_threads
from core.processes import Processes
from core.tokens import POCKET_ENCODER, POCKET_FOLDER, Prompt, PromptTokens

#: Arithmetic of one batch: enough to hide a small model's overhead, little enough for one quick decision.
_BATCH_FLOP = {"cpu": 2e9}
_BATCH_FLOP_ACCELERATOR = 1e13
_LARGEST_BATCH = 64
#: With SVF offsets a candidate's few transcripts are read alone: rows beyond them would only be padding.
_LARGEST_BATCH_WITH_OFFSETS = 4
_LENGTH_RASTER = 16  # tokens
_CACHE_BYTES = 64 * 2**20
_ENTERING_BYTES = 512 * 2**20  # of what enters the layers that SVF changes
#: Whether few rows of a length give the same bits as a full batch, as a model's shape, both numbers of rows and the
#: length decide it.
_same_bits: dict[tuple[str, int, int, int], bool] = {}
_TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """What the encoder read and computed, one row per request: `states` float32 [n, hidden size]."""

    states: NDArray[np.float32]
    digests: tuple[str, ...]
    token_counts: tuple[int, ...]
    overflows: tuple[bool, ...]

    def row(self, place: int) -> Encoded:
        """One request's row alone."""
        here = slice(place, place + 1)
        return Encoded(self.states[here], self.digests[here], self.token_counts[here], self.overflows[here])

    @classmethod
    def of(cls, parts: Sequence[Encoded]) -> Encoded:
        """Several, at least one, one under the other."""
        return cls(
            np.concatenate([part.states for part in parts]),
            tuple(digest for part in parts for digest in part.digests),
            tuple(count for part in parts for count in part.token_counts),
            tuple(overflow for part in parts for overflow in part.overflows),
        )


class Encoder:
    """A causal language model without its LM head, and its tokenizer. Safe to share between threads.

    A state depends on its own tokens only, to the last bit: prompts are padded on the right, where causal
    attention cannot see, to a fixed raster of lengths, and every batch of one length has the same rows, or so few that
    were seen to give the same bits here. The batches of a small encoder on the CPU, as it lies in `folder`, are shared
    among `processes`."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        identity: EncoderIdentity,
        *,
        max_tokens: int | None = None,
        folder: Path | None = None,
        processes: Processes | None = None,
    ) -> None:
        window = int(getattr(model.config, "max_position_embeddings", 0) or 32_768)
        self.identity = identity
        self.model = model.eval().requires_grad_(False)
        self._small = is_small(model)
        self.folder = folder
        shared = self._small and folder and self.device == "cpu"
        self._processes = processes if processes and shared else Processes(1)
        self.tokens = PromptTokens(tokenizer, min(max_tokens or window, window))
        self.padding = int(tokenizer.pad_token_id or 0)
        self._cache: OrderedDict[bytes, Encoded] = OrderedDict()  # one row each
        self._cache_size = max(256, _CACHE_BYTES // (4 * identity.hidden_size + 400))
        self._lock = threading.Lock()
        self._singular: SingularValues | None = None
        self._split: SplitModel | None = None
        self._entering: OrderedDict[str, torch.Tensor] = OrderedDict()
        self._offsets_key = b""
        self._shape = f"{self.dtype} { {**model.config.to_dict(), '_name_or_path': ''} }"
        #: Hidden states given, and what they took, in forwards of one prompt through all layers.
        self.states_given, self.forwards = 0, 0.0
        embedding = model.get_input_embeddings().weight.numel()
        flop = 2.0 * max(1, sum(weight.numel() for weight in model.parameters()) - embedding)
        self._batch_tokens = _BATCH_FLOP.get(self.device, _BATCH_FLOP_ACCELERATOR) / flop

    @property
    def hidden_size(self) -> int:
        return self.identity.hidden_size

    @property
    def dtype(self) -> Dtype:
        """Number format of the weights, which a head belongs to."""
        return cast("Dtype", str(self.model.dtype).removeprefix("torch."))

    @property
    def device(self) -> str:
        """Kind of device: "cpu", "cuda", ..."""
        return str(self.model.device.type)

    def encode(
        self,
        requests: Sequence[Decide],
        *,
        input_format: InputFormat = "segments",
        token_position: int = -2,
        offsets: Offsets | None = None,
    ) -> Encoded:
        """Hidden states after the final norm at `token_position` of each input; nothing is generated.

        Equal inputs are read once and recent ones remembered (paper 3.1, the authors' `get_action`). SVF
        `offsets` are written into the weights first; on a large encoder a change of them takes seconds."""
        with self._lock, suited_threads(self._small):
            self._set_offsets(offsets)
            keys = [self._key(request, input_format, token_position) for request in requests]
            self.states_given += len(keys)
            missing = {
                key: request for key, request in zip(keys, requests, strict=True) if key not in self._cache
            }
            prompts = {key: self.tokens.prompt(request, input_format) for key, request in missing.items()}
            known = {key: self._cache[key] for key in keys if key in self._cache}
            for key, state in self._forward(prompts, token_position):
                known[key] = self._cache[key] = state
            for key in known:
                self._cache.move_to_end(key)
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        nothing = Encoded(np.zeros((0, self.hidden_size), np.float32), (), (), ())
        return Encoded.of([nothing, *(known[key] for key in keys)])

    @contextmanager
    def exclusive(self, offsets: Offsets | None = None) -> Iterator[Any]:
        """The model itself under these SVF offsets, for this thread alone as long as it is used: for gradients."""
        with self._lock, suited_threads(self._small):
            self._set_offsets(offsets)
            yield self.model

    def forget(self) -> None:
        """Drop every remembered state: what is asked for next is read anew."""
        with self._lock:
            self._cache.clear()
            self._entering.clear()

    def prompt_text(self, request: Decide) -> str:
        """Exactly what the encoder reads for this request as segments, control tokens spelled out."""
        return self.tokens.text(self.tokens.prompt(request, "segments").ids)

    def _key(self, request: Decide, input_format: InputFormat, token_position: int) -> bytes:
        content = request.messages if input_format == "chat" and request.messages else request.transcript
        described = repr((self._offsets_key, input_format, token_position, content))
        return hashlib.blake2b(described.encode(), digest_size=20).digest()

    def _set_offsets(self, offsets: Offsets | None) -> None:
        key = offsets.key if offsets else b""
        if key == self._offsets_key:
            return
        self._offsets_key = b""
        if self._singular:
            self._singular.restore()
        if offsets:
            if not self._singular or self._singular.layout != offsets.layout:
                self._split = split_for(self.model, offsets.layout)
                self._entering.clear()
                self._singular = SingularValues(self.model, offsets.layout)
            self._singular.apply(offsets.values)
        self._offsets_key = key

    def _forward(self, prompts: dict[bytes, Prompt], token_position: int) -> Iterator[tuple[bytes, Encoded]]:
        by_length: dict[int, list[bytes]] = {}
        for key, prompt in prompts.items():
            if len(prompt.ids) + token_position < 0:
                raise CheckpointError(
                    f"Token position {token_position} lies before the prompt's first token."
                )
            by_length.setdefault(-(-len(prompt.ids) // _LENGTH_RASTER) * _LENGTH_RASTER, []).append(key)
        batches: list[list[bytes]] = []
        jobs: list[Any] = []
        for length, keys in sorted(by_length.items()):
            most = _LARGEST_BATCH_WITH_OFFSETS if self._offsets_key else _LARGEST_BATCH
            rows = int(min(most, max(1, self._batch_tokens // length)))
            for start in range(0, len(keys), rows):
                batch = keys[start : start + rows]
                ids = np.full((self._rows(len(batch), length, rows), length), self.padding, np.int64)
                for row, key in enumerate(batch):
                    ids[row, : len(prompts[key].ids)] = prompts[key].ids
                positions = [len(prompts[key].ids) + token_position for key in batch]
                batches.append(batch)
                jobs.append([str(self.folder), self.dtype, ids.tolist(), positions])
        for batch, states in zip(batches, self._states(batches, jobs, prompts), strict=True):
            if not np.isfinite(states).all():
                raise CheckpointError(
                    f"The encoder {self.identity.name} gave a hidden state that is not finite."
                )
            for row, key in enumerate(batch):
                prompt, state = prompts[key], states[row : row + 1].copy()
                yield key, Encoded(state, (prompt.digest,), (len(prompt.ids),), (prompt.overflow,))

    def _rows(self, n: int, length: int, full: int) -> int:
        """How many rows a batch of `n` prompts has: `full`, or fewer where these give the same states to the last bit.
        Which way a machine adds up depends on the shape alone, and is tried once for each."""
        few = 1 << (n - 1).bit_length()
        if few >= full or self._offsets_key or not self._small or self.device != "cpu":
            return full
        tried = (self._shape, few, length, full)
        if tried not in _same_bits:
            vocabulary = int(self.model.get_input_embeddings().weight.shape[0])
            ids = np.random.default_rng(length).integers(0, vocabulary, (full, length))
            with torch.inference_mode():
                whole, part = (
                    self.model(input_ids=torch.from_numpy(some), use_cache=False).last_hidden_state
                    for some in (ids, ids[:few])
                )
            _same_bits[tried] = bool(torch.equal(whole[:few], part))
        return few if _same_bits[tried] else full

    def _states(
        self, batches: Sequence[Sequence[bytes]], jobs: Sequence[Any], prompts: Mapping[bytes, Prompt]
    ) -> Iterator[NDArray[np.float32]]:
        """States float32 [prompts of the batch, hidden size] of every batch."""
        if self._offsets_key and (split := self._split):
            for batch, (_, _, ids, positions) in zip(batches, jobs, strict=True):
                digests = [prompts[key].digest for key in batch]
                with torch.inference_mode():
                    hidden = split.above(self._enter(split, ids, digests))
                self.forwards += len(positions) * (1 - split.cut / len(self.model.layers))
                yield _pick(hidden, positions)
            return
        # Helpers have the weights of the folder.
        processes = Processes(1) if self._offsets_key else self._processes
        answers = processes.answers("core.coordinator.encoder:read_batch", jobs, self._read)
        for (_, _, _, positions), answer in zip(jobs, answers, strict=True):
            self.forwards += len(positions)
            yield np.frombuffer(base64.b64decode(answer), np.float32).reshape(len(positions), -1)

    def _read(self, job: Any) -> str:
        """States of one batch (folder, dtype, token ids [rows, length], positions), float32 in base64."""
        _, _, ids, positions = job
        with torch.inference_mode(), suited_threads(self._small):
            read = torch.tensor(ids, device=self.model.device)
            hidden = self.model(input_ids=read, use_cache=False).last_hidden_state
        return base64.b64encode(_pick(hidden, positions).tobytes()).decode()

    def _enter(self, split: SplitModel, ids: Sequence[Sequence[int]], digests: Sequence[str]) -> torch.Tensor:
        """What enters the changed layers [rows, length, hidden size]; it is the same for all offsets."""
        if not all(digest in self._entering for digest in digests):
            fresh = split.below(torch.tensor(ids, device=self.model.device))
            self.forwards += len(digests) * split.cut / len(self.model.layers)
            self._entering |= {digest: fresh[row].clone() for row, digest in enumerate(digests)}
        rows = [self._entering[digest] for digest in digests]
        for digest in digests:
            self._entering.move_to_end(digest)
        while sum(row.nbytes for row in self._entering.values()) > _ENTERING_BYTES:
            self._entering.popitem(last=False)
        return torch.stack(rows + rows[:1] * (len(ids) - len(rows)))


def _pick(hidden: torch.Tensor, positions: Sequence[int]) -> NDArray[np.float32]:
    """The states float32 [n, hidden size] at one position of each of the first n of [rows, length, hidden size]."""
    with torch.inference_mode():
        picked = hidden[torch.arange(len(positions)), torch.tensor(positions)].float().cpu().numpy()
    return cast("NDArray[np.float32]", picked)


def load_encoder(
    name_or_folder: str | Path,
    *,
    dtype: Dtype = "float32",
    device: str = "cpu",
    max_tokens: int | None = None,
    processes: Processes | None = None,
) -> Encoder:
    """Load "pocket", a local Hugging Face folder or a hub id (also offline); no remote code, no pickle.

    Raises CheckpointError when there is no such encoder or it cannot be used."""
    name = str(name_or_folder)
    if dtype not in _TORCH_DTYPES:
        raise CheckpointError(f"The dtype must be one of {', '.join(_TORCH_DTYPES)}, not {dtype!r}.")
    folder, commit = _locate(name)
    try:
        with no_progress_bar():
            model = AutoModel.from_pretrained(
                folder,
                dtype=_TORCH_DTYPES[dtype],
                attn_implementation="sdpa",
                trust_remote_code=False,
                use_safetensors=True,
            )
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model.to(device)
        hidden_size = int(model.config.hidden_size)
    except Exception as error:  # transformers checks little and raises anything for damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"The encoder at {folder} cannot be loaded: {reason[:300]}") from error
    if getattr(model.config, "is_encoder_decoder", False):
        raise CheckpointError(f"The encoder must be a decoder-only language model; {name} is not one.")
    identity = EncoderIdentity(_name(name, folder, commit), hidden_size, weights_digest(folder), commit)
    return Encoder(model, tokenizer, identity, max_tokens=max_tokens, folder=folder, processes=processes)


_loaded = cache(load_encoder)


def kept_encoder(name_or_folder: str, *, dtype: Dtype, processes: Processes) -> Encoder:
    """`load_encoder`, or what it gave before in this process while the files were the same; the two that were used last
    are kept."""
    folder, _ = _locate(name_or_folder)
    files = tuple(
        (file.name, (held := file.stat()).st_size, held.st_mtime_ns) for file in sorted(folder.iterdir())
    )
    return _kept(name_or_folder, folder, files, dtype, processes)


@lru_cache(maxsize=2)
def _kept(
    name: str, folder: Path, files: tuple[tuple[str, int, int], ...], dtype: Dtype, processes: Processes
) -> Encoder:
    return load_encoder(name, dtype=dtype, processes=processes)


def read_batch(job: Any) -> str:
    """In a helper process: the states of one of an encoder's batches."""
    folder, dtype, _, _ = job
    return _loaded(folder, dtype=dtype)._read(job)


def weights_digest(folder: Path) -> str:
    """SHA-256 (hex) over the folder's weights and tokenizer, wherever it lies and whatever else it holds."""
    files = [*sorted(folder.glob("*.safetensors")), folder / "tokenizer.json"]
    digest = hashlib.sha256()
    for file in files:
        if file.exists():
            with file.open("rb") as content:
                digest.update(f"{file.name}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def _name(name: str, folder: Path, commit: str) -> str:
    """What checkpoints call this encoder: "pocket", its hub id, or its folder's own name, without the place where that
    lies on this machine."""
    folder = folder.resolve()
    if folder == POCKET_FOLDER.resolve():
        return POCKET_ENCODER
    return name if commit else folder.name if folder.name != POCKET_ENCODER else f"own-{POCKET_ENCODER}"


def _locate(name: str) -> tuple[Path, str]:
    """(folder, hub commit or "") of a local folder, the pocket encoder or a hub id."""
    if name == POCKET_ENCODER or os.path.isdir(name):  # not Path's, which raises for a name that is too long
        folder = POCKET_FOLDER if name == POCKET_ENCODER else Path(name)
        if not (folder / "config.json").exists():
            raise CheckpointError(
                f"There is no encoder at {folder}: a Hugging Face folder with a config.json is needed."
            )
        return folder, ""
    try:
        folder = Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"]))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(
            f"There is no encoder '{name}': it is not a local folder, and the Hugging Face hub did not "
            f"return it ({type(error).__name__}). Name a folder or 'pocket'."
        ) from error
    return folder, folder.name
