"""SVF: the equation against a full SVD, the authors' layout, tied and untied embeddings, use in a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import GPT2Config, GPT2Model

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import (
    LM_HEAD,
    Layout,
    Offsets,
    SingularValues,
    _Matrix,
    dead_blocks,
    svf_layout,
)
from core.episode import Decide, Role, Transcript, TranscriptEntry
from core.errors import CheckpointError
from tests.builders.encoder import tiny_qwen3

REQUESTS = [
    Decide(Transcript(f"What is {i}+2?", (TranscriptEntry(Role.WORKER, "ada", "answer 4"),)), 1, f"k{i}")
    for i in range(4)
]


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    torch.set_num_threads(1)
    return load_encoder(tiny_qwen3(tmp_path_factory.mktemp("encoder"), tied=request.param, head_dim=16))


def random_offsets(layout: Layout, seed: int = 0) -> NDArray[np.float32]:
    size = sum(count for _, count in layout)
    return np.random.default_rng(seed).normal(size=size, scale=0.3).astype(np.float32)


def weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in encoder.model.state_dict().items()}


def by_full_svd(weight: torch.Tensor, delta: NDArray[np.float32]) -> torch.Tensor:
    u, s, v = torch.svd(weight.double())
    scaled = s * (1 + torch.from_numpy(delta).double())
    return (u @ torch.diag(scaled) @ v.T * s.sum() / scaled.sum()).float()


def test_the_layout_is_the_authors_selection_in_state_dict_order(encoder: Encoder) -> None:
    layout = svf_layout(encoder.model, [1], lm_head=True)
    parts = [f"self_attn.{one}_proj" for one in "qkvo"] + [
        f"mlp.{one}_proj" for one in ("gate", "up", "down")
    ]
    names = ["embed_tokens.weight", *(f"layers.1.{part}.weight" for part in parts), LM_HEAD]
    assert layout == tuple((name, 32) for name in names)
    assert svf_layout(encoder.model, [1]) == layout[:-1]
    with pytest.raises(CheckpointError, match="layers 0 to 2"):
        svf_layout(encoder.model, [3])


def test_every_matrix_is_the_equation_and_is_restored_bit_for_bit(encoder: Encoder) -> None:
    layout = svf_layout(encoder.model, [1])
    offsets = random_offsets(layout)
    before = weights(encoder)
    singular = SingularValues(encoder.model, layout)
    singular.apply(offsets)
    after = weights(encoder)
    start = 0
    for name, count in layout:
        expected = by_full_svd(before[name], offsets[start : start + count])
        torch.testing.assert_close(after[name], expected, atol=2e-6, rtol=2e-5)
        assert not torch.equal(after[name], before[name])
        # the sum of the singular values is kept
        torch.testing.assert_close(
            torch.linalg.svdvals(after[name]).sum(), torch.linalg.svdvals(before[name]).sum()
        )
        start += count
    assert all(torch.equal(after[name], before[name]) for name in before if name not in dict(layout))
    singular.apply(np.zeros_like(offsets))
    assert all(torch.equal(weight, before[name]) for name, weight in weights(encoder).items())
    singular.apply(offsets)
    singular.restore()
    assert all(torch.equal(weight, before[name]) for name, weight in weights(encoder).items())


def test_of_two_blocks_on_one_matrix_the_last_acts(encoder: Encoder) -> None:
    layout = svf_layout(encoder.model, [], lm_head=True)
    assert layout == (("embed_tokens.weight", 32), (LM_HEAD, 32))
    tied = encoder.model.config.tie_word_embeddings
    assert dead_blocks(encoder.model, layout) == (("embed_tokens.weight",) if tied else (LM_HEAD,))
    assert dead_blocks(encoder.model, layout[:1]) == ()
    offsets = random_offsets(layout)
    before = weights(encoder)["embed_tokens.weight"]
    singular = SingularValues(encoder.model, layout)
    singular.apply(offsets)
    acting = offsets[32:] if tied else offsets[:32]
    expected = by_full_svd(before, acting)
    torch.testing.assert_close(weights(encoder)["embed_tokens.weight"], expected, atol=2e-6, rtol=2e-5)
    singular.restore()


def test_offsets_that_leave_nothing_are_refused_and_nothing_is_half_written(encoder: Encoder) -> None:
    layout = svf_layout(encoder.model, [1])
    before = weights(encoder)
    offsets = random_offsets(layout)
    offsets[-32:] = -2
    with pytest.raises(CheckpointError, match=r"down_proj\.weight leave no positive sum"):
        encoder.encode(REQUESTS, offsets=Offsets(layout, offsets))
    assert all(torch.equal(weight, before[name]) for name, weight in weights(encoder).items())


def test_a_change_that_breaks_off_leaves_the_weights_as_they_were(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, before = svf_layout(encoder.model, [1]), weights(encoder)
    written = _Matrix.write

    def too_large(matrix: _Matrix, offsets: NDArray[np.float32], name: str) -> None:
        if "down_proj" in name:
            raise torch.OutOfMemoryError("out of memory")
        written(matrix, offsets, name)

    monkeypatch.setattr(_Matrix, "write", too_large)
    with pytest.raises(torch.OutOfMemoryError):
        encoder.encode(REQUESTS, offsets=Offsets(layout, random_offsets(layout)))
    assert all(torch.equal(weight, before[name]) for name, weight in weights(encoder).items())


def test_a_layer_is_found_whatever_its_family_calls_it() -> None:
    model: Any = GPT2Model(GPT2Config(vocab_size=64, n_embd=16, n_layer=3, n_head=2, eos_token_id=1))
    parts = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    assert svf_layout(model, [1], embeddings=False) == tuple((f"h.1.{one}.weight", 16) for one in parts)
    assert [name for name, _ in svf_layout(model, [])] == ["wte.weight", "wpe.weight"]


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        ((("layers.9.mlp.up_proj.weight", 32),), "does not have"),
        ((("norm.weight", 32),), "does not have"),
        ((("layers.1.mlp.up_proj.weight", 31),), "31 offsets .* has 32 singular values"),
    ],
)
def test_a_layout_of_another_encoder_is_refused(encoder: Encoder, layout: Layout, sentence: str) -> None:
    checkpoint = Checkpoint.begin(("ada", "bob"), encoder.identity, svf_layout=layout)
    with pytest.raises(CheckpointError, match=sentence):
        Coordinator(checkpoint, encoder)


def test_policies_with_and_without_offsets_share_an_encoder(encoder: Encoder) -> None:
    layout = svf_layout(encoder.model, [1])
    fields: dict[str, Any] = {"svf_layout": layout, "svf_dead": dead_blocks(encoder.model, layout)}
    head = np.random.default_rng(2).normal(size=5 * 32)
    plain = Checkpoint.begin(("ada", "bob"), encoder.identity).with_vector(head)
    tuned, other = (
        Checkpoint.begin(("ada", "bob"), encoder.identity, **fields).with_vector(
            np.concatenate([random_offsets(layout, seed), head])
        )
        for seed in (0, 1)
    )
    policies = [Coordinator(one, encoder) for one in (plain, tuned, other)]
    first = [policy.decide(REQUESTS) for policy in policies]
    assert len({decisions[0].model_logits for decisions in first}) == 3
    for policy, decisions in zip(policies[::-1], first[::-1], strict=True):
        assert policy.decide(REQUESTS) == decisions
    moved = first[1][0].model_logits
    np.testing.assert_allclose(moved, first[0][0].model_logits, atol=30)
    same = Checkpoint.begin(("ada", "bob"), encoder.identity, **fields).with_vector(
        np.concatenate([np.zeros(sum(count for _, count in layout)), head])
    )
    assert Coordinator(same, encoder).decide(REQUESTS) == first[0]  # zero offsets are the identity


def test_a_checkpoint_with_other_dead_blocks_is_refused(encoder: Encoder) -> None:
    layout = svf_layout(encoder.model, [1], lm_head=True)
    wrong = Checkpoint.begin(("ada", "bob"), encoder.identity, svf_layout=layout, svf_dead=())
    with pytest.raises(CheckpointError, match="tied embeddings"):
        Coordinator(wrong, encoder)


def test_an_encoder_loads_from_a_folder_with_or_without_its_lm_head(tmp_path: Path) -> None:
    folder = tiny_qwen3(tmp_path / "untied", tied=False)
    assert "lm_head.weight" not in load_encoder(folder).model.state_dict()
