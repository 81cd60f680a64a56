"""The encoder: a small language model that reads a transcript and gives one hidden state; no LM head."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast
from typing import Protocol as Interface

import numpy as np
import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from core.checkpoint import Dtype, EncoderIdentity, InputFormat
from core.coordinator.batches import BatchReader
from core.coordinator.prefixes import PartReader, reads_in_parts
from core.coordinator.svf import Offsets, SingularValues, SplitModel, split_for
from core.episode import Decide, Protocol
from core.errors import CheckpointError
from core.pocket.threads import is_small, no_progress_bar, suited_threads
from core.processes import Processes
from core.tokens.files import POCKET_ENCODER, POCKET_FOLDER, check_folder
from core.tokens.prompts import Prompt, PromptTokens

_CACHE_BYTES = 64 * 2**20
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


class Reader(Interface):
    """How an encoder reads prompts."""

    forwards: float

    def read(
        self, prompts: Sequence[Prompt], token_position: int, seed: bytes, split: SplitModel | None
    ) -> Iterator[tuple[int, NDArray[np.float32]]]: ...

    def forget(self) -> None: ...


class Encoder:
    """A causal language model without its LM head, and its tokenizer. Safe to share between threads.

    A state depends on its own tokens only, to the last bit. A large encoder on the CPU reads a conversation part by
    part, each once (`prefixes`); any other, and one whose layers do not allow it, reads prompts whole (`batches`)."""

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
        self.tokens = PromptTokens(tokenizer, min(max_tokens or window, window))
        self.padding = int(tokenizer.pad_token_id or 0)
        #: Whether a conversation that goes on costs what is new in it.
        self.in_parts = not self._small and self.device == "cpu" and reads_in_parts(model)
        self._reader: Reader = (
            PartReader(model)
            if self.in_parts
            else BatchReader(model, self.padding, small=self._small, folder=folder, processes=processes)
        )
        self._cache: OrderedDict[bytes, Encoded] = OrderedDict()  # one row each
        self._cache_size = max(256, _CACHE_BYTES // (4 * identity.hidden_size + 400))
        self._lock = threading.Lock()
        self._singular: SingularValues | None = None
        self._split: SplitModel | None = None
        self._offsets_key = b""
        #: Hidden states given.
        self.states_given = 0

    @property
    def hidden_size(self) -> int:
        return self.identity.hidden_size

    @property
    def forwards(self) -> float:
        """What the states given took, in forwards of one prompt through all layers."""
        return self._reader.forwards

    @property
    def input_format(self) -> InputFormat:
        """The format that suits the tokenizer best."""
        return self.tokens.input_format

    def format_for(self, protocol: Protocol) -> InputFormat:
        """What a checkpoint of this protocol reads: the released one a chat, as its authors' does."""
        return "chat" if protocol is Protocol.RELEASED else self.input_format

    @property
    def reading_words(self) -> str:
        """How it reads a conversation that goes on, and why."""
        if self.in_parts:
            return "part by part: what was read once is remembered"
        if self._small:
            return "whole, in batches: it is small, and quicker so"
        if self.device != "cpu":
            return f"whole, in batches: it is on the {self.device.upper()}"
        return "whole: its layers remember more than what was read before, or less of it"

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
        input_format: InputFormat | None = None,
        token_position: int = -2,
        offsets: Offsets | None = None,
    ) -> Encoded:
        """Hidden states after the final norm at `token_position` of each input, written in the format given or in that
        which suits the tokenizer best; nothing is generated.

        Equal inputs are read once and recent ones remembered (paper 3.1, the authors' `get_action`). SVF
        `offsets` are written into the weights first; on a large encoder a change of them takes seconds."""
        input_format = input_format or self.input_format
        with self._lock, suited_threads(self._small):
            self._set_offsets(offsets)
            keys = [self._key(request, input_format, token_position) for request in requests]
            self.states_given += len(keys)
            missing = {
                key: request for key, request in zip(keys, requests, strict=True) if key not in self._cache
            }
            prompts = {key: self.tokens.prompt(request, input_format) for key, request in missing.items()}
            if any(len(prompt.ids) + token_position < 0 for prompt in prompts.values()):
                raise CheckpointError(
                    f"Token position {token_position} lies before the prompt's first token."
                )
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
            self._reader.forget()

    def prompt_text(self, request: Decide) -> str:
        """Exactly what the encoder reads for this request, control tokens spelled out."""
        return self.tokens.text(self.tokens.prompt(request, self.input_format).ids)

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
                self._singular = SingularValues(self.model, offsets.layout)
            self._singular.apply(offsets.values)
        self._offsets_key = key

    def _forward(self, prompts: dict[bytes, Prompt], token_position: int) -> Iterator[tuple[bytes, Encoded]]:
        """Every prompt's state, in the order in which they are read."""
        asked = list(prompts.items())
        wanted = [prompt for _, prompt in asked]
        split = self._split if self._offsets_key else None
        for place, state in self._reader.read(wanted, token_position, self._offsets_key, split):
            key, prompt = asked[place]
            if not np.isfinite(state).all():
                raise CheckpointError(
                    f"The encoder {self.identity.name} gave a hidden state that is not finite."
                )
            yield key, Encoded(state[None].copy(), (prompt.digest,), (len(prompt.ids),), (prompt.overflow,))


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
    reader = _loaded(folder, dtype=dtype)._reader
    assert isinstance(reader, BatchReader)
    return reader.job(job)


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
        check_folder(folder)
        return folder, ""
    try:
        folder = Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"]))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(
            f"There is no encoder '{name}': it is not a local folder, and the Hugging Face hub did not "
            f"return it ({type(error).__name__}). Name a folder, 'pocket', or what trinity encoders list shows."
        ) from error
    return folder, folder.name
