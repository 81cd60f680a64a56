"""Devices and numbers: which are taken, what a checkpoint and a decision keep of them, how far others agree."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from core.checkpoint import Checkpoint, Recipe, reads_alike
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.recipes import Agreement, agreement_sentence
from core.episode import Decide, Transcript
from core.errors import CheckpointError
from core.pocket.devices import chosen_device, devices_here

MODELS = ("ada", "bob", "cyd")
HALF = Recipe("cuda", "bfloat16")
REQUESTS = [Decide(Transcript(f"What is {n} plus {n}?"), 0, f"key {n}") for n in range(24)]


def begun(encoder: Encoder, recipe: Recipe | None = None) -> Checkpoint:
    made = Checkpoint.begin(MODELS, encoder.identity, **asdict(recipe or encoder.recipe))
    return made.with_vector(np.random.default_rng(0).normal(0, 0.3, len(made.vector)))


def test_the_quickest_device_is_taken_and_the_cpu_for_small_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    assert next(iter(devices_here())) == "cuda"
    assert chosen_device("auto", small=False) == "cuda"
    assert chosen_device("auto", small=True) == "cpu"
    assert chosen_device("cuda", small=True) == "cuda", "what is asked for is done"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CheckpointError, match="no device cuda here .* finds .*cpu.*: name another or none"):
        chosen_device("cuda", small=False)
    with pytest.raises(CheckpointError, match="one of auto, cpu, cuda, mps, not 'tpu'"):
        chosen_device("tpu", small=False)


def test_a_checkpoint_keeps_its_recipe_and_an_older_file_means_the_cpu(encoder: Encoder) -> None:
    plain, half = begun(encoder), begun(encoder, HALF)
    assert not {"device", "attention"} & plain.to_config().keys(), (
        "its id is what it was before there were recipes"
    )
    assert Checkpoint.from_bytes(plain.to_config(), plain.to_bytes()).recipe == Recipe()
    assert half.id not in (plain.id, replace(half, device="cpu").id)
    assert Checkpoint.from_bytes(half.to_config(), half.to_bytes()).recipe == HALF
    assert not reads_alike(half.to_config(), replace(half, device="cpu").to_config())
    assert Recipe.of(HALF.key) == HALF
    assert (Recipe.of(""), Recipe().key) == (Recipe(), "")


def test_another_recipe_plays_and_says_how_far_it_agrees(encoder: Encoder) -> None:
    assert encoder.folder is not None
    half = load_encoder(encoder.folder, dtype="bfloat16")
    checkpoint = begun(encoder)
    own = Coordinator(checkpoint, encoder).decide(REQUESTS)
    other = Coordinator(checkpoint, half).decide(REQUESTS)
    assert {one.recipe for one in own} == {""}
    assert {one.recipe for one in other} == {"cpu/bfloat16/sdpa"}
    found = Agreement.between(own, other, "decisions")
    assert 0 < found.largest < 0.1
    assert found.same >= 20
    twisted = replace(own[0], argmax_model="bob" if own[0].argmax_model != "bob" else "ada")
    assert Agreement.between(own, [twisted, *own[1:]], "decisions").same == 23
    words = agreement_sentence(checkpoint, half.recipe, found)
    assert (
        f"made in float32 on the CPU and plays here in bfloat16 on the CPU: of 24 decisions, {found.same}"
        in words
    )
    assert "is not known" in agreement_sentence(checkpoint, HALF, None)
