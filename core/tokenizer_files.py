"""What an encoder reads, by its tokenizer's files alone: the very token ids, without its weights and without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from core.errors import CheckpointError
from core.pocket import WEIGHTS
from core.tokens import PromptTokens

#: The embedded encoder's name, as in a checkpoint.
_POCKET = "pocket"
_WINDOW = 32_768  # where a config names none, as the encoder does
_FILES = ("tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja")


class TokenizerFile:
    """A tokenizer.json with a chat template, as far as `PromptTokens` asks a Hugging Face tokenizer."""

    is_fast = True

    def __init__(self, backend: Tokenizer, template: str) -> None:
        self.backend_tokenizer = backend
        self.added_tokens_decoder: Mapping[int, Any] = backend.get_added_tokens_decoder()
        self._template = template

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The ids as text, control tokens spelled out."""
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=False))

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], **settings: Any) -> str:
        """The chat as text; ValueError for a template that refuses it."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        settings.pop("tokenize", None)
        return environment.from_string(self._template).render(messages=messages, **settings)


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
    return PromptTokens(
        TokenizerFile(backend, chat if isinstance(chat, str) else ""), 2**30 if uncut else window
    )


def _file(encoder: str, revision: str, name: str) -> Path | None:
    folder = WEIGHTS / "encoder" if encoder == _POCKET else Path(encoder)
    if encoder == _POCKET or folder.is_dir():
        found = folder / name
        return found if found.is_file() else None
    from huggingface_hub import try_to_load_from_cache  # only a hub encoder needs it

    try:
        cached = try_to_load_from_cache(encoder, name, revision=revision or None)
    except ValueError:  # no name of a repository
        return None
    return Path(cached) if isinstance(cached, str) else None


def _json(path: Path | None) -> dict[str, Any]:
    found = json.loads(path.read_text("utf-8")) if path else {}
    return found if isinstance(found, dict) else {}


def _refuse(message: str) -> None:
    raise TemplateError(message)
