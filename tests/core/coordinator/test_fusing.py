"""What CUDA alone uses, tried on the CPU: norms of one kernel, compiled layers where they are quicker, full batches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from core.coordinator import fusing
from core.coordinator.batches import BatchReader
from core.coordinator.fusing import FusedNorm, WholeForward, use_fused_norms
from core.tokens.prompts import Prompt
from tests.core.coordinator.test_prefixes import IDS, SHAPE, model, whole

assert model  # the fixture
TOKENS = torch.tensor([IDS[:40], IDS[40:80]])


def test_norms_are_replaced_where_they_are_the_same(model: Any) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:  # of norms, as training leaves them
                weight += 0.3 * torch.randn(weight.shape)
    expected = model(input_ids=TOKENS, use_cache=False).last_hidden_state
    use_fused_norms(model)
    found = model(input_ids=TOKENS, use_cache=False).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    replaced = sum(isinstance(one, FusedNorm) for one in model.modules())
    norms = sum(weight.ndim == 1 for weight in model.parameters())
    adds_one = type(model).__name__.startswith("Gemma")
    assert replaced == (0 if adds_one else norms)


@pytest.fixture
def forward(model: Any, monkeypatch: pytest.MonkeyPatch) -> WholeForward:
    """As it is on CUDA: half a full batch has 40 tokens, and none has to be waited for."""
    monkeypatch.setattr(fusing, "PATIENCE_S", 0.0)
    forward = WholeForward(model, 80)
    assert forward.is_chosen, "on the CPU there is nothing to choose"
    forward._open = True
    return forward


def speed(seconds: dict[str, float]) -> Callable[..., float]:
    return lambda model, ids: seconds["compiled" if "_Compiled" in str(model.layers[0]) else "plain"]


@pytest.mark.parametrize(("plain_s", "chosen"), [(2.0, "compiled"), (0.5, "as it is")])
def test_the_quicker_way_is_chosen_once_on_a_full_batch(
    model: Any,
    forward: WholeForward,
    plain_s: float,
    chosen: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = list[str]()

    def compiler(run: Callable[..., Any], *, dynamic: bool) -> Callable[..., Any]:
        assert dynamic, "one compilation for all shapes"

        def counted(*given: Any) -> Any:
            runs.append("compiled")
            return run(*given)

        return counted

    monkeypatch.setattr(torch, "compile", compiler)
    monkeypatch.setattr(fusing, "_seconds", speed({"plain": plain_s, "compiled": 1.0}))
    caplog.set_level(logging.INFO)
    expected = model(input_ids=TOKENS, use_cache=False).last_hidden_state
    with torch.inference_mode():
        forward(TOKENS[:, :8])
        assert not runs, "a small batch shows nothing"
        assert not forward.is_chosen
        forward(TOKENS)
        assert forward.is_chosen
        runs.clear()
        torch.testing.assert_close(forward(TOKENS), expected)
    assert len(runs) == (SHAPE["num_hidden_layers"] if chosen == "compiled" else 0)
    assert [one for one in caplog.messages if chosen in one] == caplog.messages[:1]


def test_where_compiling_fails_layers_stay_as_they_are(
    model: Any, forward: WholeForward, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def compiler(*given: Any, **more: Any) -> Any:
        raise RuntimeError("Cannot find a working\ntriton installation")

    monkeypatch.setattr(torch, "compile", compiler)
    expected = model(input_ids=TOKENS, use_cache=False).last_hidden_state
    for _ in range(2):
        torch.testing.assert_close(forward(TOKENS), expected)
    assert caplog.messages == [
        "The encoder's layers cannot be compiled here, and batches take longer: "
        "Cannot find a working triton installation"
    ]


def test_changed_weights_are_in_force_in_compiled_layers(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda run, *, dynamic: run)
    compiled = fusing.compiled_model(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 1.1
    expected = model(input_ids=TOKENS, use_cache=False).last_hidden_state
    found = compiled(input_ids=TOKENS, use_cache=False).last_hidden_state
    torch.testing.assert_close(found, expected)


def filled(reader: BatchReader, lengths: list[int]) -> list[tuple[list[int], int, int]]:
    return list(reader._filled(lengths))


def test_on_an_accelerator_prompts_of_similar_lengths_fill_a_batch(model: Any) -> None:
    reader = BatchReader(model, 0, small=True, folder=None, processes=None)
    reader.batch_tokens, reader._start_tokens = 400, 50
    assert filled(reader, [96, 16, 112, 16]) == [([1, 3], 16, 2), ([0, 2], 112, 2)]
    assert filled(reader, [500]) == [([0], 500, 1)], "one that fills more than a batch is read alone"
    batches = filled(reader, [16] * 70)
    assert len(batches) == 3, "of 25 rows at most"
    assert sorted(place for places, _, _ in batches for place in places) == [*range(70)]
    assert all(rows == len(places) and rows * length <= 400 for places, length, rows in batches)


def test_batches_of_different_lengths_give_the_states_of_each_prompt_alone(model: Any) -> None:
    reader = BatchReader(model, 0, small=True, folder=None, processes=None)
    reader._fills = True
    reader.batch_tokens, reader._start_tokens = 200, 50
    prompts = [Prompt(IDS[: 20 + 9 * n], False, (20 + 9 * n,)) for n in range(8)]
    for seed in (b"", b"a candidate"):
        found = dict(reader.read(prompts, -2, seed))
        for place, prompt in enumerate(prompts):
            np.testing.assert_allclose(found[place], whole(model, prompt)[-2], atol=1e-5)
