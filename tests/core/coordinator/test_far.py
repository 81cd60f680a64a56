"""Large encoders on a cluster of real nodes: the same states to the bit, also when one of them is lost and when a node
lacks the weights."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.cluster.cluster import Cluster
from core.coordinator.encoder import load_encoder
from core.coordinator.svf import Offsets, svf_layout
from core.episode import Decide, Transcript
from tests.bench._cluster import cluster, lose
from tests.builders.encoder import tiny_qwen3

#: Just too large to be read as a small one.
SHAPE: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 5}


@pytest.fixture
def two_nodes() -> Iterator[Cluster]:
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    with cluster(2) as nodes:
        joined = Cluster(nodes.address, 2)
        try:
            yield joined
        finally:
            joined.leave()


def test_states_are_the_same_to_the_bit_wherever_they_are_read(two_nodes: Cluster, tmp_path: Path) -> None:
    folder = tiny_qwen3(tmp_path / "encoder", **SHAPE)
    asked = [Decide(Transcript(f"question {i} of some words"), 0, "k") for i in range(20)]
    here = load_encoder(folder)
    layout = svf_layout(here.model, [4], embeddings=False)
    offsets = Offsets(layout, np.full(sum(n for _, n in layout), 0.1, np.float32))
    plain, changed = here.encode(asked).states, here.encode(asked, offsets=offsets).states
    assert not np.array_equal(plain, changed)

    far = load_encoder(folder, processes=two_nodes)
    assert far.recipe == here.recipe
    assert np.array_equal(far.encode(asked).states, plain)
    assert np.array_equal(far.encode(asked, offsets=offsets).states, changed)
    shutil.rmtree(folder)  # whoever is started anew has no weights: they come through the object store
    far.forget()
    assert lose("EncoderActor")
    assert np.array_equal(far.encode(asked).states, plain)
