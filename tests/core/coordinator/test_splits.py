"""The split encoder: what lies below a change is read once, the last layer for one token, and states are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2Model,
    Gemma3TextConfig,
    Gemma3TextModel,
    LlamaConfig,
    LlamaModel,
    MambaConfig,
    MambaModel,
    MistralConfig,
    MistralModel,
    Phi3Config,
    Phi3Model,
    Qwen3Config,
    Qwen3Model,
)

from core.coordinator import encoder as encoder_module
from core.coordinator.encoder import load_encoder
from core.coordinator.splits import SplitModel, split_for
from core.coordinator.svf import Layout, Offsets, behind_keys, svf_layout
from core.episode import Decide, Role, Transcript, TranscriptEntry
from core.pocket import threads
from tests.builders.encoder import longrope, tiny_qwen3

WINDOW = 20
SHAPE: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 1,
    "initializer_range": 0.3,
}
SLIDING, FULL = "sliding_attention", "full_attention"
DECODERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen3": (Qwen3Config, Qwen3Model, {"head_dim": 8}),
    "llama": (LlamaConfig, LlamaModel, {}),
    "mistral, sliding": (MistralConfig, MistralModel, {"sliding_window": WINDOW}),
    "gemma3": (Gemma3TextConfig, Gemma3TextModel, {"head_dim": 8, "layer_types": [SLIDING] * 3 + [FULL]}),
    "gemma3, the last sliding": (
        Gemma3TextConfig,
        Gemma3TextModel,
        {"head_dim": 8, "sliding_window": WINDOW, "layer_types": [FULL, SLIDING] * 2},
    ),
    "phi3": (Phi3Config, Phi3Model, {}),
    "phi3, long": (Phi3Config, Phi3Model, longrope(8, WINDOW)),
}
OF_THE_CHANGE = {"a layer": ("2", ""), "keys": ("3", "k_proj"), "behind keys": ("3", "up_proj")}
REQUESTS = [
    Decide(
        Transcript(f"What is {i}+2?", (TranscriptEntry(Role.WORKER, "ada", f"answer {'4 ' * 3 * i}"),)),
        1,
        f"k{i}",
    )
    for i in range(4)
]


def made(config: Any, kind: Any, more: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return kind(config(**SHAPE, **more)).eval()


def changed(model: Any, where: str) -> Layout:
    """A layout of the matrices that this change concerns."""
    layer, part = OF_THE_CHANGE[where]
    return tuple(
        (name, min(weight.shape))
        for name, weight in model.named_parameters()
        if f"layers.{layer}." in name and weight.ndim == 2 and part in name
    ) or svf_layout(model, [int(layer)], embeddings=False)


@pytest.mark.parametrize("where", OF_THE_CHANGE)
@pytest.mark.parametrize("family", DECODERS)
def test_a_token_read_alone_has_the_state_that_the_whole_model_gives_it(family: str, where: str) -> None:
    model = made(*DECODERS[family])
    split = split_for(model, changed(model, where))
    assert split is not None
    assert split.reads_rows
    assert split.share_above < (0.35 if where == "a layer" else 0.07)
    rng = np.random.default_rng(1)
    with torch.inference_mode():
        for length, positions in (
            (WINDOW - 1, (17, 3, 9)),
            (WINDOW + 1, (WINDOW - 1, 3, 9)),
            (3 * WINDOW, (58, 30, 4)),
        ):
            ids = torch.from_numpy(rng.integers(1, 96, (3, length)))
            expected = model(input_ids=ids, use_cache=False).last_hidden_state[range(3), positions]
            found = split.above(split.below(ids), positions)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_layers_that_cannot_be_read_so_are_read_whole_or_not_cut_at_all() -> None:
    capped = made(Gemma2Config, Gemma2Model, {"head_dim": 8})  # its attention reads no mask of this kind
    split = split_for(capped, changed(capped, "behind keys"))
    assert split is not None
    assert not split.reads_rows
    ids = torch.arange(1, 19)[None]
    with torch.inference_mode():
        expected = capped(input_ids=ids, use_cache=False).last_hidden_state[:, 12]
        torch.testing.assert_close(split.above(split.below(ids), [12]), expected, atol=1e-5, rtol=0)
    assert split.share_below + split.share_above == 1
    recurrent: Any = MambaModel(MambaConfig(vocab_size=96, hidden_size=16, num_hidden_layers=2))
    assert split_for(recurrent.eval(), (("layers.1.mixer.in_proj.weight", 16),)) is None


@pytest.mark.parametrize("large", [False, True], ids=["in batches", "in parts"])
@pytest.mark.parametrize("where", [*OF_THE_CHANGE, "embedding"])
def test_candidates_share_what_lies_below_and_have_their_own_states(
    where: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(threads, "SMALL", 0 if large else threads.SMALL)
    folder = tiny_qwen3(tmp_path, head_dim=16, num_hidden_layers=4)
    model = load_encoder(folder).model
    layout = svf_layout(model, [1]) if where == "embedding" else changed(model, where)
    size = sum(count for _, count in layout)
    candidates = [
        Offsets(layout, np.random.default_rng(seed).normal(size=size, scale=0.3).astype(np.float32))
        for seed in range(3)
    ]

    def read() -> tuple[list[Any], float]:
        encoder = load_encoder(folder)
        return [encoder.encode(REQUESTS, offsets=one).states for one in candidates], encoder.forwards

    shared, took = read()
    together = load_encoder(folder)
    together.encode(REQUESTS[2:], offsets=candidates[0])  # whatever was read before, and beside it
    np.testing.assert_array_equal(together.encode(REQUESTS, offsets=candidates[0]).states, shared[0])
    monkeypatch.setattr(encoder_module, "split_for", lambda *_: None)
    whole, naive = read()
    np.testing.assert_allclose(shared, whole, atol=2e-5)
    assert np.abs(shared[0] - shared[1]).max() > 1e-3
    expected = {"a layer": 0.65, "keys": 0.4, "behind keys": 0.36, "embedding": 1.0}[where]
    assert took <= expected * naive


def test_only_matrices_behind_keys_and_values_may_have_these_below(tmp_path: Path) -> None:
    model = load_encoder(tiny_qwen3(tmp_path)).model
    last = [name for name, _ in svf_layout(model, [2], embeddings=False)]
    behind = [name.removeprefix("layers.2.").removesuffix(".weight") for name in last if behind_keys(name)]
    assert behind == ["self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    widths = {}
    for part in ("q_proj", "v_proj"):
        split = split_for(model, tuple((name, 32) for name in last if part in name))
        assert isinstance(split, SplitModel)
        widths[part] = split.below(torch.arange(6)[None]).shape[-1]
    assert widths == {"q_proj": 32 + 2 * 2 * 8, "v_proj": 32}
