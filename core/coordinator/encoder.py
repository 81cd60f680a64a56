"""The encoder: a small language model that reads a transcript and gives one hidden state; no LM head."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import AutoModel

from core.checkpoint import Dtype, EncoderIdentity, InputFormat, Recipe
from core.cluster.cluster import Cluster
from core.coordinator.attention import use_continued_attention
from core.coordinator.batches import BatchReader
from core.coordinator.far import FarReader
from core.coordinator.folders import check_folder, check_kind, no_decoder
from core.coordinator.fusing import use_fused_norms
from core.coordinator.graphs import AcceleratedReader, reads_in_fixed_parts
from core.coordinator.memory import Memory
from core.coordinator.prefixes import PartReader, alike, reads_in_parts
from core.coordinator.splits import Reader, SplitModel, split_for
from core.coordinator.states import Encoded, StateLedger
from core.coordinator.svf import Decomposing, DecompositionLedger, Layout, Offsets, SingularValues
from core.episode import Decide, Protocol
from core.errors import CheckpointError
from core.pocket.devices import TORCH_DTYPES, chosen_computing, load_fault
from core.pocket.threads import is_small, quiet_loading, suited_threads
from core.processes import Processes, folder_of
from core.settings import DeviceKind
from core.tokens.files import (
    POCKET_ENCODER,
    POCKET_FOLDER,
    Listed,
    encoder_name,
    listed_files,
    weights_digest,
)
from core.tokens.hub import fetched, hub_parts, pinned
from core.tokens.prompts import Prompt, PromptTokens

#: The implementation of attention that encoders are loaded with.
ATTENTION = "sdpa"
_CACHE_BYTES = 64 * 2**20
#: States are handed to a ledger when so many wait, or so long after those before: more is not lost when all ends.
_HANDED_OVER, _HANDED_OVER_S = 64, 0.1
#: The speed is measured on made-up prompts of so many tokens, for about so long.
_TIMED_TOKENS, _TIMED_S = 128, 1.0


class Encoder:
    """A causal language model without its LM head, and its tokenizer. Safe to share between threads.

    A state depends on its own tokens only, on the CPU to the last bit. A large encoder there reads a conversation part
    by part, each once (`prefixes`), one on cuda what is new in each, of many together (`graphs`); any other, and one
    whose layers do not allow it, reads prompts whole (`batches`)."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        identity: EncoderIdentity,
        *,
        max_tokens: int | None = None,
        folder: Path | None = None,
        processes: Processes | None = None,
        far: FarReader | None = None,
    ) -> None:
        window = int(getattr(model.config, "max_position_embeddings", 0) or 32_768)
        self.identity = identity
        self.model = model.eval().requires_grad_(False)
        self._small = is_small(model)
        self.folder = folder
        self.tokens = PromptTokens(tokenizer, min(max_tokens or window, window))
        self.padding = int(tokenizer.pad_token_id or 0)
        if self.device == "cuda":
            use_fused_norms(self.model)
        if not self._small:  # before it is tried whether it can be read in parts
            use_continued_attention(model)
        #: Whether a conversation that goes on costs what is new in it, with states that are the same to the last bit.
        self.in_parts = not self._small and self.device == "cpu" and reads_in_parts(model)
        self._reader: Reader = (
            PartReader(model)
            if self.in_parts
            else BatchReader(
                model,
                self.padding,
                small=self._small,
                folder=folder,
                processes=processes,
                digest=identity.digest,
            )
        )
        if isinstance(self._reader, BatchReader) and self.device == "cuda" and reads_in_fixed_parts(model):
            self._reader = AcceleratedReader(model, self._reader)
        #: What reads on other machines in this one's place.
        self._far = far
        if far is not None:
            self._reader, self.in_parts = far, False
        self._cache = Memory[Encoded](_CACHE_BYTES)  # one row each
        # The same weights are another encoder where their folder says otherwise how they are used.
        self._configured = {**model.config.to_dict(), "_name_or_path": "", "transformers_version": ""}
        self._lock = threading.Lock()
        self._singular: SingularValues | None = None
        self._split: SplitModel | None = None
        self._offsets_key = b""
        #: Where states are kept across runs; not those of a small encoder on the CPU, which reads as quickly.
        self.ledger: StateLedger | None = None
        #: Where the decompositions of its matrices are kept.
        self.decompositions: DecompositionLedger | None = None
        self._fresh: dict[bytes, NDArray[np.float32]] = {}  # not yet in the ledger
        self._handed_over = 0.0
        #: Hidden states given.
        self.states_given = 0
        #: What reading took, in seconds.
        self.seconds = 0.0
        self._speed = 0.0
        self._timed = 0.0  # forwards that were made to measure it

    @property
    def hidden_size(self) -> int:
        return self.identity.hidden_size

    @property
    def forwards(self) -> float:
        """What the states given took, in forwards of one prompt through all layers."""
        return self._reader.forwards - self._timed

    @property
    def input_format(self) -> InputFormat:
        """The format that suits the tokenizer best."""
        return self.tokens.input_format

    def format_for(self, protocol: Protocol) -> InputFormat:
        """What a checkpoint of this protocol reads: the released one a chat, as its authors' does."""
        return "chat" if protocol is Protocol.RELEASED else self.input_format

    @property
    def dtype(self) -> Dtype:
        """Number format of the weights, which a head belongs to."""
        return cast(
            "Dtype", self._far.recipe.dtype if self._far else str(self.model.dtype).removeprefix("torch.")
        )

    @property
    def device(self) -> DeviceKind:
        """Kind of device that it reads on."""
        return cast("DeviceKind", self.model.device.type)

    @property
    def recipe(self) -> Recipe:
        """How its states are computed, which a head belongs to."""
        return self._far.recipe if self._far else Recipe(self.device, self.dtype, ATTENTION)

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
        found = dict(
            self.read_each(
                requests, input_format=input_format, token_position=token_position, offsets=offsets
            )
        )
        nothing = Encoded(np.zeros((0, self.hidden_size), np.float32), (), (), (), self.recipe.key)
        return Encoded.of([nothing, *(found[place] for place in range(len(requests)))])

    def read_each(
        self,
        requests: Sequence[Decide],
        *,
        input_format: InputFormat | None = None,
        token_position: int = -2,
        offsets: Offsets | None = None,
    ) -> Iterator[tuple[int, Encoded]]:
        """What `encode` gives, row by row as it is read: each request's place and its row, those that are known first.

        Whoever asks may stop at any row, or have the encoder read something else between two."""
        input_format = input_format or self.input_format
        places: dict[bytes, list[int]] = {}
        with self._lock:
            self._set_offsets(offsets)
            for place, request in enumerate(requests):
                places.setdefault(self._key(request, input_format, token_position), []).append(place)
            self.states_given += len(requests)
            known = {key: row for key in places if (row := self._cache.get(key)) is not None}
            missing = {
                key: self.tokens.prompt(requests[at[0]], input_format)
                for key, at in places.items()
                if key not in known
            }
            if any(len(prompt.ids) + token_position < 0 for prompt in missing.values()):
                raise CheckpointError(
                    f"Token position {token_position} lies before the prompt's first token."
                )
            steps = self._read(missing, token_position)
            if offsets is not None:  # at once: another thread may change the weights between two steps
                known |= dict(steps)
        for key, row in known.items():
            yield from ((place, row) for place in places[key])
        while offsets is None:
            with self._lock:
                self._set_offsets(None)
                step = next(steps, None)
            if step is None:
                return
            yield from ((place, step[1]) for place in places[step[0]])

    def read_prompts(
        self, prompts: Sequence[Prompt], token_position: int, offsets: Offsets | None
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Every prompt's place and state, nothing of it remembered here: for who asks from another machine."""
        with self._lock, suited_threads(self._small):
            self._set_offsets(offsets)
            split = self._split if offsets else None
            yield from self._reader.read(prompts, token_position, self._offsets_key, split)

    @property
    def keeps_states(self) -> bool:
        """Whether keeping a state across runs takes less than reading it again."""
        return not self._small or self.device != "cpu"

    def tokens_per_s(self) -> float:
        """How many tokens it reads a second here: measured once, on made-up prompts."""
        with self._lock, suited_threads(self._small):
            if not self._speed:
                self._set_offsets(None)
                size, count = int(self.model.config.vocab_size), min(_TIMED_TOKENS, self.tokens.max_tokens)
                rng, since, times = np.random.default_rng(0), time.perf_counter(), list[float]()
                before = self._reader.forwards
                while len(times) < 2 or time.perf_counter() - since < _TIMED_S:
                    prompt = Prompt(tuple(rng.integers(0, size, count).tolist()), False, (count,))
                    began = time.perf_counter()
                    list(self._reader.read([prompt], -1, b"", None))
                    times.append(time.perf_counter() - began)
                self._timed += self._reader.forwards - before
                self._speed = count / min(times)  # what begins the first time is not counted
            return self._speed

    @contextmanager
    def exclusive(self, offsets: Offsets | None = None) -> Iterator[Any]:
        """The model itself under these SVF offsets, for this thread alone as long as it is used: for gradients."""
        with self._lock, suited_threads(self._small):
            self._set_offsets(offsets)
            yield self.model

    def decompose(self, layout: Layout) -> Iterator[Decomposing]:
        """Make ready for SVF offsets of these matrices, one a step. A large one takes seconds, and tells so, unless its
        decomposition was kept; `encode` does what is left of it. Other machines do it where they read."""
        if self._far:
            return
        with self._lock:
            if not self._singular or self._singular.layout != layout:
                self._set_offsets(None)
            steps = self._singular_of(layout).decompose()
        while True:
            with self._lock:
                step = next(steps, None)
            if step is None:
                return
            yield step

    def forget(self) -> None:
        """Drop every remembered state: what is asked for next is read anew."""
        with self._lock:
            self._cache.forget()
            self._reader.forget()

    def _key(self, request: Decide, input_format: InputFormat, token_position: int) -> bytes:
        content = request.messages if input_format == "chat" and request.messages else request.transcript
        described = repr((self._offsets_key, input_format, token_position, content))
        return hashlib.blake2b(described.encode(), digest_size=20).digest()

    def _set_offsets(self, offsets: Offsets | None) -> None:
        key = offsets.key if offsets else b""
        if key == self._offsets_key:
            return
        self._offsets_key = b""
        if self._far:
            self._far.offsets, self._offsets_key = offsets, key
            return
        if self._singular:
            self._singular.restore()
        if offsets:
            self._singular_of(offsets.layout).apply(offsets.values)
        self._offsets_key = key

    def _singular_of(self, layout: Layout) -> SingularValues:
        """The matrices of a layout, while all weights are the folder's."""
        if not self._singular or self._singular.layout != layout:
            self._singular = SingularValues(
                self.model, layout, digest=self.identity.digest, ledger=self.decompositions
            )
            self._split = split_for(self.model, layout)
        return self._singular

    def _read(self, prompts: dict[bytes, Prompt], token_position: int) -> Iterator[tuple[bytes, Encoded]]:
        """Every prompt's row as it is recalled or read, each step to be taken under the lock."""
        seed, split = self._offsets_key, self._split if self._offsets_key else None
        ledger = self.ledger if self.keeps_states and self.identity.digest and not seed else None
        names = {key: self._ledger_key(one, token_position) for key, one in prompts.items()} if ledger else {}
        recalled = ledger.recall([*names.values()]) if ledger and names else {}
        for key, name in names.items():
            if (state := recalled.get(name)) is not None:
                yield key, self._remember(key, prompts.pop(key), state)
        asked = list(prompts.items())
        reading = self._reader.read([prompt for _, prompt in asked], token_position, seed, split)
        while True:
            began = time.perf_counter()
            with suited_threads(self._small):
                place, state = next(reading, (-1, None))
            self.seconds += time.perf_counter() - began
            if state is None:
                return
            key, prompt = asked[place]
            if not np.isfinite(state).all():
                raise CheckpointError(
                    f"The encoder {self.identity.name} gave a hidden state that is not finite."
                )
            row = self._remember(key, prompt, state)
            if ledger:
                self._fresh[names[key]] = row.states[0]
                self._hand_over(ledger)
            yield key, row

    def _hand_over(self, ledger: StateLedger) -> None:
        due = len(self._fresh) >= _HANDED_OVER or time.monotonic() - self._handed_over >= _HANDED_OVER_S
        if self._fresh and due:
            fresh, self._fresh = self._fresh, {}
            ledger.keep(fresh)
            self._handed_over = time.monotonic()

    def _remember(self, key: bytes, prompt: Prompt, state: NDArray[np.float32]) -> Encoded:
        row = Encoded(state[None].copy(), (prompt.digest,), (len(prompt.ids),), (prompt.overflow,))
        self._cache.keep(key, row)
        return row

    def _ledger_key(self, prompt: Prompt, token_position: int) -> bytes:
        """All that decides a state, to the last bit: what is read, with its parts, and what reads it."""
        reader = (self.identity.digest, self._configured, self.recipe.key, self.in_parts)
        versions = (torch.__version__, transformers.__version__)
        described = repr((reader, versions, token_position, prompt.ids, prompt.ends, prompt.suffix))
        return hashlib.blake2b(described.encode(), digest_size=20).digest()


def load_encoder(
    name_or_folder: str | Path,
    *,
    dtype: Dtype | None = None,
    device: str = "cpu",
    max_tokens: int | None = None,
    processes: Processes | None = None,
) -> Encoder:
    """Load "pocket", a local Hugging Face folder or a hub id (also offline); no remote code, no pickle.

    `device` is auto, cpu, cuda or mps; without a `dtype` it is bfloat16 on cuda and float32 elsewhere. Raises
    CheckpointError when there is no such encoder, no such device, or it cannot be used."""
    name = str(name_or_folder)
    folder, commit = _locate(name)
    asked = device, dtype
    kind, dtype = chosen_computing(folder, device, dtype)
    files = listed_files(folder)
    try:
        tokenizer = check_folder(name, folder)  # first, as the weights take much longer
        with quiet_loading():
            model = AutoModel.from_pretrained(
                folder,
                dtype=TORCH_DTYPES[dtype],
                attn_implementation=ATTENTION,
                trust_remote_code=False,
                use_safetensors=True,
            )
        model.to(kind)
        hidden_size = int(model.config.hidden_size)
        if _looks_ahead(model):
            raise no_decoder(name, "its tokens see those that come after them")
    except CheckpointError:
        raise
    except Exception as error:  # as when it is checked
        raise CheckpointError(load_fault(f"the encoder at {folder}", error)) from error
    identity = EncoderIdentity(
        encoder_name(name, folder, commit), hidden_size, weights_digest(folder), commit
    )
    if listed_files(folder) != files:  # its weights may not be those of the digest
        raise CheckpointError(
            f"The encoder at {folder} was changed or removed while it was being loaded: try again."
        )
    far = None
    if isinstance(processes, Cluster) and not is_small(model):
        far = FarReader(processes, folder, identity.digest, *asked)
    return Encoder(
        model, tokenizer, identity, max_tokens=max_tokens, folder=folder, processes=processes, far=far
    )


def _looks_ahead(model: Any) -> bool:
    """Whether a token's state depends on the tokens after it, as in BERT and models made of decoders for searching."""
    ids = torch.tensor([[1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 8, 9]], device=model.device)
    with torch.inference_mode():
        one, other = model(input_ids=ids, use_cache=False).last_hidden_state[:, :3]
    return not alike(one, other)


def kept_encoder(name_or_folder: str, *, dtype: Dtype | None, device: str, processes: Processes) -> Encoder:
    """`load_encoder`, or what it gave before in this process while the files were the same; the two that were used last
    are kept."""
    folder, commit = _locate(name_or_folder)
    name = pinned(hub_parts(name_or_folder)[0], commit) if commit else name_or_folder  # however it was named
    with _loading:  # two threads that ask at once get the same one
        return _kept(name, folder, listed_files(folder), dtype, device, processes)


_loading = threading.Lock()


@lru_cache(maxsize=2)
def _kept(
    name: str,
    folder: Path,
    files: Listed,
    dtype: Dtype | None,
    device: str,
    processes: Processes,
) -> Encoder:
    return load_encoder(name, dtype=dtype, device=device, processes=processes)


def read_batch(job: Any) -> str:
    """In a helper process: the states of one of an encoder's batches."""
    folder, dtype, digest, _, _ = job
    reader = _loaded(folder, dtype, digest)._reader
    assert isinstance(reader, BatchReader)
    return reader.job(job)


@cache
def _loaded(folder: str, dtype: Dtype, digest: str) -> Encoder:
    found = load_encoder(folder_of(folder), dtype=dtype)
    if found.identity.digest != digest:  # who asks has read the files before they changed, and does it alone
        raise CheckpointError(f"The weights in {folder} are no longer those that are read with.")
    return found


def _locate(name: str) -> tuple[Path, str]:
    """(folder, hub commit or "") of a local folder, the pocket encoder or a hub id, which is fetched."""
    if name == POCKET_ENCODER or os.path.isdir(name):  # not Path's, which raises for a name that is too long
        folder = POCKET_FOLDER if name == POCKET_ENCODER else Path(name)
        if not (folder / "config.json").exists():
            raise CheckpointError(
                f"There is no encoder at {folder}: a Hugging Face folder with a config.json is needed."
            )
        return folder, ""
    return fetched(name, lambda folder: check_kind(name, folder))
