"""Whether a folder holds an encoder that can be used, before its weights are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from core.errors import CheckpointError
from core.pocket.devices import load_fault
from core.tokens.prompts import check_fast

#: One of these is in a folder that has a tokenizer.
_TOKENIZERS = ("tokenizer.json", "*.model", "vocab*", "*.tiktoken")


def check_folder(name: str, folder: Path) -> Any:
    """The tokenizer of a folder of which everything but the weights themselves was found to be usable."""
    if not any(folder.glob("*.safetensors")):
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth"))
        raise CheckpointError(
            f"The encoder at {folder} cannot be loaded: "
            + (
                "its weights are pickled, and reading those could run a program. Save it anew by "
                "transformers' save_pretrained, which writes model.safetensors."
                if pickled
                else "its weights are missing. Put its model.safetensors into the folder."
            )
        )
    if not any(any(folder.glob(name)) for name in _TOKENIZERS):
        raise CheckpointError(
            f"The encoder at {folder} cannot be loaded: its tokenizer is missing. Put its tokenizer.json into the "
            "folder."
        )
    return check_kind(name, folder)


def check_kind(name: str, folder: Path) -> Any:
    """The tokenizer of a folder whose model and tokenizer, as far as they are described, can be used."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        if getattr(config, "is_encoder_decoder", False):
            raise no_decoder(name, "it has an encoder and a decoder")
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        check_fast(tokenizer)
    except CheckpointError:
        raise
    except Exception as error:  # transformers checks little and raises anything for damaged files
        raise CheckpointError(load_fault(f"the encoder at {folder}", error)) from error
    return tokenizer


def no_decoder(name: str, why: str) -> CheckpointError:
    """What is said of a model that is none."""
    return CheckpointError(
        f"The encoder must be a decoder-only language model, which {name} is not: {why}. Name another, such as "
        "Qwen/Qwen3-0.6B."
    )
