"""A tiny random Qwen3 with a real byte-level tokenizer and Qwen3's own control tokens, for encoder tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

#: Qwen3's added tokens and whether each is special, in the order of its tokenizer_config.json.
QWEN3_ADDED_TOKENS = {
    "<|endoftext|>": True,
    "<|im_start|>": True,
    "<|im_end|>": True,
    "<|object_ref_start|>": True,
    "<|object_ref_end|>": True,
    "<|box_start|>": True,
    "<|box_end|>": True,
    "<|quad_start|>": True,
    "<|quad_end|>": True,
    "<|vision_start|>": True,
    "<|vision_end|>": True,
    "<|vision_pad|>": True,
    "<|image_pad|>": True,
    "<|video_pad|>": True,
    "<tool_call>": False,
    "</tool_call>": False,
    "<|fim_prefix|>": False,
    "<|fim_middle|>": False,
    "<|fim_suffix|>": False,
    "<|fim_pad|>": False,
    "<|repo_name|>": False,
    "<|file_sep|>": False,
    "<tool_response>": False,
    "</tool_response>": False,
    "<think>": False,
    "</think>": False,
}
_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
#: The parts of Qwen3's template that plain system and user messages reach.
QWEN3_TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on a few sentences, cut and normalised as Qwen3's is."""
    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.NFC()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    text = "user assistant system worker thinker verifier think im_start im_end the answer is not\n\n"
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=1,
        show_progress=False,
    )
    core.train_from_iterator([text, text, "ACCEPT REVISE\n\n"], trainer)
    core.add_tokens(
        [AddedToken(name, normalized=False, special=special) for name, special in QWEN3_ADDED_TOKENS.items()]
    )
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = QWEN3_TEMPLATE
    return tokenizer


def tiny_qwen3(folder: Path, *, seed: int = 0, tied: bool = True, **shape: Any) -> Path:
    """Write a Hugging Face folder with a random Qwen3ForCausalLM and its tokenizer; returns the folder."""
    torch.manual_seed(seed)
    tokenizer = tiny_tokenizer()
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tied,
        "initializer_range": 0.2,  # large enough that different transcripts give clearly different states
        **shape,
    }
    Qwen3ForCausalLM(Qwen3Config(**settings)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
