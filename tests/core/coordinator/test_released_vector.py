"""The authors' released vector loads onto an encoder of Qwen3-0.6B's real shapes and gives decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3Model

from core.checkpoint import EncoderIdentity, load_checkpoint, save_checkpoint
from core.coordinator.coordinator import Coordinator, released_checkpoint
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import LM_HEAD
from core.episode import Decide, Message, Protocol, Transcript
from core.errors import CheckpointError
from storage.store import open_store
from tests.builders.encoder import tiny_qwen3, tiny_tokenizer
from ui.cli import main

DATA = Path(__file__).parents[4] / "shared" / "data"
MODELS = ("gpt-5", "b", "c", "d", "e", "f", "g")
TINY = 256, 10 * 32  # SVF offsets and head of a released vector on the tiny encoder


def made_run(folder: Path, offsets: int, head: int, layer: int = 1) -> tuple[Path, Path]:
    """A vector and a configuration as the authors wrote them, with random numbers; head rows of norm 3.1."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(10, head // 10))
    rows *= 3.1 / np.linalg.norm(rows, axis=1, keepdims=True)
    np.save(folder / "made.npy", np.concatenate([rng.normal(0, 0.1, offsets), rows.ravel()]))
    configs = {
        "llm_names": MODELS,
        "opt_layer_indices": [layer],
        "last_token_predict": False,
        "num_iters": 60,
    }
    (folder / "made.json").write_text(json.dumps([{"configs": configs}]))
    return folder / "made.npy", folder / "made.json"


def released_run(folder: Path) -> tuple[Path, Path]:
    """The authors' own files where they are at hand, else ones of their shape."""
    files = DATA / "released_vector_iter_60.npy", DATA / "released_run_config.json"
    return files if files[0].exists() else made_run(folder, 9 * 1024, 10 * 1024, layer=26)


LAYER, WORDS = "layers.26.", 2_048


def qwen3_shaped(layers: int = 28) -> Encoder:
    """Random weights (N(0, 0.02)) in every shape of Qwen3-0.6B, in bfloat16 as the authors ran it; but of its 151,936
    words only 2,048, for the singular values of the embeddings are as many as the hidden state is wide. All layers but
    the one that the vector changes have the same weights."""
    config = Qwen3Config(
        vocab_size=WORDS,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):  # the library's own initialisation of 0.6 billion numbers takes a minute
        model: Any = Qwen3Model(config)
    model.to(torch.bfloat16).to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    shared: dict[str, torch.Tensor] = {}
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and name.startswith("layers.") and not name.startswith(LAYER):
            part = name.split(".", 2)[2]
            if part not in shared:
                shared[part] = weight.data.normal_(0, 0.02, generator=generator)
            weight.data = shared[part]
        elif weight.ndim == 2:
            weight.data.normal_(0, 0.02, generator=generator)
        else:
            assert "norm" in name
            weight.data.fill_(1)
    model.rotary_emb = type(model.rotary_emb)(config)
    return Encoder(model, tiny_tokenizer(), EncoderIdentity("Qwen/Qwen3-0.6B (random weights)", 1024))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return load_encoder(tiny_qwen3(tmp_path_factory.mktemp("tiny")))


def test_the_released_vector_drives_a_qwen3_shaped_encoder(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    encoder = qwen3_shaped()
    checkpoint = released_checkpoint(*released_run(tmp_path), encoder)
    assert checkpoint.vector.shape == (19_456,)
    assert checkpoint.svf_offsets.shape == (9_216,)
    assert checkpoint.head.shapes["weight"] == (10, 1024)
    parts = [f"self_attn.{one}_proj" for one in "qkvo"] + [
        f"mlp.{one}_proj" for one in ("gate", "up", "down")
    ]
    names = ["embed_tokens.weight", *(f"{LAYER}{part}.weight" for part in parts), LM_HEAD]
    assert checkpoint.svf_layout == tuple((name, 1024) for name in names)
    assert checkpoint.svf_dead == ("embed_tokens.weight",)  # tied: the LM head's block is the one that acts
    assert checkpoint.models[0] == "gpt-5"
    assert len(checkpoint.models) == 7
    assert (checkpoint.protocol, checkpoint.input_format) == (Protocol.RELEASED, "chat")
    weight = checkpoint.head.arrays(checkpoint.head_vector)["weight"]
    norms = np.linalg.norm(weight, axis=1)  # trinity.md 1.4: every head row's norm is 3.02 to 3.23
    assert 3.0 < norms.min() < norms.max() < 3.25
    assert load_checkpoint(save_checkpoint(checkpoint, tmp_path / "released")) == checkpoint

    messages = (Message("system", "Dispatch."), Message("user", "What is 2+2?"))
    request = Decide(Transcript("What is 2+2?"), 0, "key", messages=messages)
    plain = encoder.encode([request], input_format="chat").states
    decision = Coordinator(checkpoint, encoder).decide([request])[0]
    assert len(decision.model_logits) == 7
    assert len(decision.role_logits) == 3
    assert np.isfinite([*decision.model_logits, *decision.role_logits]).all()
    assert len(decision.hidden_state) == 2 * 1024
    read = np.frombuffer(decision.hidden_state, "<f2")
    assert not np.allclose(read, plain[0], atol=1e-2)  # the offsets act


def test_an_encoder_of_another_shape_is_refused(tmp_path: Path) -> None:
    config = Qwen3Config(
        vocab_size=512,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=28,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=True,
    )
    encoder = Encoder(Qwen3Model(config), tiny_tokenizer(), EncoderIdentity("tiny", 32))
    with pytest.raises(CheckpointError, match=r"shape \(19456,\), but this encoder needs 288 SVF offsets"):
        released_checkpoint(*released_run(tmp_path), encoder)


def test_the_command_line_brings_a_released_vector_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vector, config = made_run(tmp_path, *TINY)
    encoder, store = tiny_qwen3(tmp_path / "encoder"), tmp_path / "trinity.db"

    def trinity(*arguments: str) -> tuple[object, str]:
        try:
            code: object = main(["checkpoints", "import", *arguments, "--store", str(store)])
        except SystemExit as ended:
            code = ended.code
        return code, "".join(capsys.readouterr())

    code, said = trinity(str(vector), "--run-config", str(config), "--encoder", str(encoder))
    assert not code, said
    opened = open_store(str(store))
    [kept] = opened.checkpoints.list()
    opened.close()
    assert kept.id in said
    assert (kept.generation, kept.config["protocol"]) == (60, "released")
    assert kept.config["models"] == list(MODELS)
    code, said = trinity(str(vector))
    assert code
    assert "--run-config" in said


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "zip", "no vector", "no iterations", "no config"])
def test_files_that_are_no_released_run_are_refused(tmp_path: Path, tiny: Encoder, damage: str) -> None:
    vector, config = made_run(tmp_path, *TINY)
    match damage:
        case "empty":
            vector.write_bytes(b"")
        case "cut":
            vector.write_bytes(vector.read_bytes()[:-5])
        case "text":
            vector.write_text("no numbers")
        case "zip":
            vector.write_bytes(b"PK\x03\x04 and no archive")
        case "no vector":
            vector.unlink()
        case "no iterations":
            config.write_text(config.read_text().replace("num_iters", "iterations"))
        case _:
            config.write_text("[]")
    with pytest.raises(CheckpointError, match="The released run cannot be read"):
        released_checkpoint(vector, config, tiny)
