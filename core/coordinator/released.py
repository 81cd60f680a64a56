"""The authors' released coordinator: its flat vector as a checkpoint on a Qwen3-0.6B-shaped encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from core.checkpoint import Checkpoint
from core.coordinator.encoder import Encoder
from core.coordinator.svf import dead_blocks, svf_layout
from core.episode import ROLE_ORDER, Protocol
from core.errors import CheckpointError


def released_checkpoint(vector_file: Path, config_file: Path, encoder: Encoder) -> Checkpoint:
    """Read the run's `model_iter_N.npy` and its configuration: [SVF offsets | head row-major], chat input.

    Raises CheckpointError when a file cannot be read or the vector does not fit the encoder."""
    try:
        with vector_file.open("rb") as file:  # not np.load, which also opens archives
            vector = np.asarray(np.lib.format.read_array(file, allow_pickle=False), np.float32)
        config: dict[str, Any] = json.loads(config_file.read_text("utf-8"))[0]["configs"]
        models = tuple(map(str, config["llm_names"]))
        layers = [int(layer) for layer in config["opt_layer_indices"]]
        position = -1 if config["last_token_predict"] else -2
        generation = int(config["num_iters"])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(f"The released run cannot be read: {type(error).__name__} {error}.") from error
    layout = svf_layout(encoder.model, layers, lm_head=True)
    offsets, rows = sum(count for _, count in layout), len(models) + len(ROLE_ORDER)
    if vector.shape != (offsets + rows * encoder.hidden_size,):
        raise CheckpointError(
            f"The released vector has shape {vector.shape}, but this encoder needs {offsets} SVF offsets "
            f"and a {rows} x {encoder.hidden_size} head."
        )
    return Checkpoint(
        vector,
        models,
        encoder.identity,
        input_format="chat",
        token_position=position,
        svf_layout=layout,
        svf_dead=dead_blocks(encoder.model, layout),
        dtype=encoder.dtype,
        protocol=Protocol.RELEASED,
        generation=generation,
        kind="released",
    )
