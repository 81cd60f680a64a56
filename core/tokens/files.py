"""An encoder by its files alone, without its weights and without torch: the very token ids that it reads, and how large
it is."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from core.episode import Message
from core.errors import CheckpointError
from core.tokens.hub import hub_file, hub_parts, hub_place
from core.tokens.prompts import PromptTokens

#: The embedded encoder's name, as in a checkpoint, and its folder.
POCKET_ENCODER = "pocket"
POCKET_FOLDER = Path(__file__).parents[1] / "pocket" / "weights" / "encoder"

_WINDOW = 32_768  # where a config names none, as the encoder does
_FILES = ("tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja")


class TokenizerFile:
    """A tokenizer.json with a chat template, as far as `PromptTokens` asks a Hugging Face tokenizer."""

    is_fast = True

    def __init__(self, backend: Tokenizer, template: str, special: Mapping[str, str]) -> None:
        self.backend_tokenizer = backend
        self.added_tokens_decoder: Mapping[int, Any] = backend.get_added_tokens_decoder()
        self.chat_template, self.special_tokens_map = template, special

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The ids as text, control tokens spelled out."""
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=False))


@lru_cache(maxsize=8)
def prompt_tokens(encoder: str, revision: str = "", *, uncut: bool = False) -> PromptTokens:
    """The prompts of an encoder: "pocket", a Hugging Face folder, or a hub id whose files are on this machine; nothing
    is fetched. `uncut` leaves nothing out, however small the encoder's window. CheckpointError when the files are not
    here or cannot be read."""
    files = {name: _file(encoder, revision, name) for name in _FILES}
    path = files["tokenizer.json"]
    if path is None:
        raise CheckpointError(
            f"The tokenizer of the encoder {encoder} is not on this machine: run an episode with it once, or put its "
            "tokenizer.json into the encoder's folder."
        )
    try:
        config, settings = _json(files["config.json"]), _json(files["tokenizer_config.json"])
        template = files["chat_template.jinja"]
        chat = template.read_text("utf-8") if template else settings.get("chat_template")
        backend = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception for a damaged file
        raise CheckpointError(f"The tokenizer at {path.parent} cannot be read: {error}") from error
    window = int(config.get("max_position_embeddings") or 0) or _WINDOW
    special = {
        name: str(told.get("content") if isinstance(told, dict) else told)
        for name, told in settings.items()
        if name.endswith("_token") and told
    }
    tokenizer = TokenizerFile(backend, chat if isinstance(chat, str) else "", special)
    return PromptTokens(tokenizer, 2**30 if uncut else window)


#: How the classes are called whose models write, and those of models without their head.
_WRITING = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model")


def speaking_window(folder: Path) -> int:
    """How many tokens the language model of a folder holds, prompt and reply together, by its files alone.
    CheckpointError, which says why, for one that cannot speak."""
    config = _json(_file(str(folder), "", "config.json"))
    kinds = [str(one) for one in config.get("architectures") or ()]
    if config.get("is_encoder_decoder") or (kinds and not any(one.endswith(_WRITING) for one in kinds)):
        raise CheckpointError(
            f"the model in {folder} ({', '.join(kinds) or 'an encoder-decoder'}) does not write text that goes on: "
            "name a decoder-only language model."
        )
    encoder_size(str(folder))
    tokens = prompt_tokens(str(folder), uncut=True)
    try:
        tokens.chat((Message("user", "?"),))
    except CheckpointError as error:
        raise CheckpointError(
            f"the language model in {folder} cannot be spoken to: {error}; name one that was made for chats, or add "
            "its chat_template.jinja."
        ) from None
    return int(config.get("max_position_embeddings") or 0) or _WINDOW


def encoder_size(encoder: str, revision: str = "") -> int:
    """How many parameters an encoder's files hold, by their headers; nothing is fetched. CheckpointError, which says
    what folder is missing, when they are not on this machine."""
    files = _weights(encoder, revision)
    try:
        return sum(map(_numbers, files))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise CheckpointError(
            f"The weights in the folder {_folder_words(encoder)} cannot be read ({type(error).__name__})."
        ) from error


def encoder_bytes(encoder: str, revision: str = "") -> int:
    """How large an encoder's weights are on this machine; CheckpointError as for their number."""
    return sum(file.stat().st_size for file in _weights(encoder, revision))


def _weights(encoder: str, revision: str) -> list[Path]:
    shards = [name for name in ("model.safetensors",) if _file(encoder, revision, name)]
    if (index := _file(encoder, revision, "model.safetensors.index.json")) is not None:
        shards = sorted({str(name) for name in _json(index).get("weight_map", {}).values()})
    files = [found for name in shards if (found := _file(encoder, revision, name)) is not None]
    if not files or len(files) < len(shards) or _file(encoder, revision, "config.json") is None:
        raise CheckpointError(
            f"The encoder {encoder} is not on this machine: its files are missing in the folder "
            f"{_folder_words(encoder)}."
        )
    return files


def weights_digest(folder: Path) -> str:
    """SHA-256 (hex) over the folder's weights and tokenizer, wherever it lies and whatever else it holds."""
    files = [*sorted(folder.glob("*.safetensors")), folder / "tokenizer.json"]
    digest = hashlib.sha256()
    for file in files:
        if file.exists():
            with file.open("rb") as content:
                digest.update(f"{file.name}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


#: Names, bytes and times of change of a folder's files.
Listed = tuple[tuple[str, int, int], ...]


def listed_files(folder: Path) -> Listed:
    """What tells whether a folder's files are still the same; nothing of a folder that is not there."""
    try:
        return tuple(
            (file.name, (held := file.stat()).st_size, held.st_mtime_ns) for file in sorted(folder.iterdir())
        )
    except (FileNotFoundError, NotADirectoryError):
        return ()


def known_digest(folder: Path) -> str:
    """`weights_digest`, reckoned once by this process as long as the folder's files stay the same by size and time."""
    return _known_digest(folder, listed_files(folder))


@lru_cache(maxsize=32)
def _known_digest(folder: Path, files: Listed) -> str:
    return weights_digest(folder)


def encoder_name(name: str, folder: Path, commit: str) -> str:
    """What checkpoints call this encoder: "pocket", its hub id, or its folder's own name, without the place where that
    lies on this machine."""
    folder = folder.resolve()
    if folder == POCKET_FOLDER.resolve():
        return POCKET_ENCODER
    if commit:
        return hub_parts(name)[0]
    return folder.name if folder.name != POCKET_ENCODER else f"own-{POCKET_ENCODER}"


def _numbers(file: Path) -> int:
    """How many numbers a safetensors file holds."""
    with file.open("rb") as content:
        (length,) = struct.unpack("<Q", content.read(8))
        header = json.loads(content.read(min(length, 100_000_000)))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def _folder_words(encoder: str) -> str:
    """Where an encoder's files are, or should be."""
    if encoder == POCKET_ENCODER:
        return str(POCKET_FOLDER)
    if encoder.count("/") > 1 or encoder.startswith((".", "/")) or Path(encoder).is_dir():
        return encoder
    return str(hub_place(encoder))


def _file(encoder: str, revision: str, name: str) -> Path | None:
    folder = POCKET_FOLDER if encoder == POCKET_ENCODER else Path(encoder)
    if encoder == POCKET_ENCODER or folder.is_dir():
        found = folder / name
        return found if found.is_file() else None
    return hub_file(encoder, revision, name)


def hub_folder(encoder: str) -> Path | None:
    """Where the files of a hub id are on this machine; None where they are not."""
    config = _file(encoder, "", "config.json")
    return config.parent if config else None


def _json(path: Path | None) -> dict[str, Any]:
    found = json.loads(path.read_text("utf-8")) if path else {}
    return found if isinstance(found, dict) else {}
