"""What tests of the ground floor share."""

from __future__ import annotations

import pytest

from core.coordinator.encoder import Encoder, load_encoder
from tests.builders.encoder import tiny_qwen3


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """A tiny Qwen3 with random weights."""
    return load_encoder(tiny_qwen3(tmp_path_factory.mktemp("encoder")))
