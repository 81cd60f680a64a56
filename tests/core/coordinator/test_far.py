"""Large encoders on a cluster of real nodes: the same states to the bit, also when one of them is lost and when a node
lacks the weights, and one sentence where they cannot get there."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.checkpoint import MIXED
from core.cluster.cluster import Cluster, Machines
from core.coordinator import far
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import Offsets, svf_layout
from core.episode import Decide, Transcript
from core.errors import CheckpointError
from tests.bench._cluster import Nodes
from tests.builders.encoder import tiny_qwen3

pytestmark = [pytest.mark.process, pytest.mark.integration]

#: Large enough that it is not read as a small one: 44 MB.
SHAPE: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 7}
ASKED = [Decide(Transcript(f"{i} is a question of some words"), 0, "k") for i in range(40)]
#: Ray says that its object store, and the disk behind it, are full once its 80 MB are.
SYSTEM = {
    "automatic_object_spilling_enabled": False,
    "local_fs_capacity_threshold": 0.0001,
    "local_fs_monitor_interval_ms": 50,
}


@pytest.fixture(scope="module")
def joined(nodes: Nodes) -> Iterator[Cluster]:
    found = Cluster(Machines(nodes.address), 2)
    try:
        yield found
    finally:
        found.leave()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("far") / "encoder", **SHAPE)


@pytest.fixture(scope="module")
def here(folder: Path) -> Encoder:
    return load_encoder(folder)


@pytest.fixture(scope="module")
def sent(here: Encoder) -> Iterator[Path]:
    """Where weights that were sent lie on a machine that lacks them: here all of them do."""
    found = Path(tempfile.gettempdir()) / f"trinity-encoder-{here.identity.digest}"
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture(scope="module")
def there(joined: Cluster, folder: Path, sent: Path) -> Iterator[Encoder]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(far, "portable", lambda folder: "/nowhere")
        yield load_encoder(folder, processes=joined)


def test_states_are_the_same_to_the_bit_where_weights_had_to_be_sent(
    here: Encoder, there: Encoder, sent: Path
) -> None:
    layout = svf_layout(here.model, [4], embeddings=False)
    values = np.linspace(-0.3, 0.3, sum(n for _, n in layout), dtype=np.float32)
    plain, changed = (here.encode(ASKED, offsets=one).states for one in (None, Offsets(layout, values)))
    assert not np.array_equal(plain, changed)
    assert there.recipe == here.recipe
    assert np.array_equal(there.encode(ASKED).states, plain)
    assert 0 < there.forwards < len(ASKED), "what conversations have in common is read once there, too"
    assert np.array_equal(there.encode(ASKED, offsets=Offsets(layout, values)).states, changed)
    assert list(sent.parent.glob(f"{sent.name}*")) == [sent]  # and nobody's draft


def test_lost_encoders_are_given_the_weights_again_or_it_is_said_that_there_is_no_room(
    nodes: Nodes, joined: Cluster, here: Encoder, there: Encoder, sent: Path
) -> None:
    there.forget()
    held, before = joined.ray.put(np.zeros(70 * 2**20, np.uint8)), joined.state().lost
    shutil.rmtree(sent)
    for process in nodes.actors("EncoderActor"):
        process.kill()
    began = time.monotonic()
    with pytest.raises(
        CheckpointError, match="no room for a piece of the encoder's weights.*: put the encoder's"
    ):
        there.encode(ASKED)
    assert time.monotonic() - began < 60
    del held
    assert np.array_equal(there.encode(ASKED).states, here.encode(ASKED).states)
    assert joined.state().lost == before + 2
    assert sent.is_dir()


def test_an_encoder_that_reads_otherwise_is_refused_unless_machines_may_differ(there: Encoder) -> None:
    assert there._far is not None
    [reads] = there._far._actors._kinds
    assert far._unlike([reads, reads]) == ""
    unlike = [reads, replace(reads, probe=b"other")]
    assert "in other last digits each (float32 on the CPU)" in far._unlike(unlike)
    assert far._unlike(unlike, mixed=True) == ""
    other = replace(reads, program=("3.99.1", "0.0.1"))
    for mixed in (False, True):
        assert "runs Python 3.99.1 and Trinity Inspector 0.0.1: install Python" in far._unlike(
            [reads, other], mixed=mixed
        )
    assert str(replace(reads.recipe, attention=MIXED)) == "float32 on the CPU of machines that differ"
