"""A tiny random Qwen3 with a real byte-level tokenizer and Qwen3's own control tokens, for encoder tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
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


#: Small tokenizers in the manner of a family: its control tokens, the first of them the one that a text begins with
#: ("" for none), and its chat template.
FAMILIES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "llama": (
        "<|begin_of_text|>",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>"),
        "{{ bos_token }}{% if strftime_now is defined %}{% set today = strftime_now('%d %b %Y') %}{% endif %}"
        "<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ today }}\n\n<|eot_id|>"
        "{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] | trim }}"
        "<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    ),
    "gemma": (
        "<bos>",
        ("<eos>", "<start_of_turn>", "<end_of_turn>", "<unused0>", "<table>", "\n\n"),
        "{{ bos_token }}{% for m in messages %}"
        "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('in turn') }}{% endif %}"
        "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}"
        "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    ),
    "mistral": (
        "<s>",
        ("</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"),
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }}[/INST]"
        "{% else %} {{ m['content'] }}</s>{% endif %}{% endfor %}",
    ),
    "phi": (
        "",
        ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
        "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% else %}<|endoftext|>{% endif %}",
    ),
    "smollm": (
        "",
        ("<|im_start|>", "<|im_end|>", "<repo_name>"),
        "{% for m in messages %}{% if loop.first %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
        "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ),
    "forgetful": (  # it leaves out earlier thoughts, as some do: what was written once does not stay
        "",
        ("<|turn|>", "<|think|>"),
        "{% for m in messages %}<|turn|>{{ m['role'] }}: {% if loop.last %}<|think|>{% endif %}{{ m['content'] }}"
        "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant: {% endif %}",
    ),
    "without a template": ("<s>", ("</s>",), ""),
}


def family_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """A small tokenizer in the manner of one of the `FAMILIES`."""
    first, controls, template = FAMILIES[family]
    core = _core()
    core.add_special_tokens([first, *controls] if first else list(controls))
    if first:
        core.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", special_tokens=[(first, core.token_to_id(first))]
        )
    names = {"bos_token": first} if first else {}
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core, clean_up_tokenization_spaces=False, **names
    )
    tokenizer.chat_template = template or None
    return tokenizer


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on a few sentences, cut and normalised as Qwen3's is, with its control tokens."""
    core = _core()
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


def _core() -> Tokenizer:
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
    return core


def longrope(head_size: int, original: int) -> dict[str, Any]:
    """Of a configuration as Phi's with a long window: from so many tokens on, all of a prompt are turned otherwise."""
    factors = {"short_factor": [1.0] * (head_size // 2), "long_factor": [4.0] * (head_size // 2)}
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, "factor": 4.0, **factors}
    return {
        "max_position_embeddings": 4 * original,
        "original_max_position_embeddings": original,
        "rope_parameters": rope,
    }


#: Of small random models; they know nothing.
TINY: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def tiny_qwen3(folder: Path, *, seed: int = 0, tied: bool = True, **shape: Any) -> Path:
    """Write a Hugging Face folder with a random Qwen3ForCausalLM and its tokenizer; returns the folder."""
    torch.manual_seed(seed)
    tokenizer = tiny_tokenizer()
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        **TINY,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tied,
        "initializer_range": 0.2,  # large enough that different transcripts give clearly different states
        **shape,
    }
    Qwen3ForCausalLM(Qwen3Config(**settings)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
