"""Decompositions kept on the disk: the second encoder takes none, and whatever is lost is computed again."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from core.coordinator import svf
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import Offsets, svf_layout
from core.episode import Decide, Transcript
from storage.files.decompositions import DecompositionFolder
from tests.builders.encoder import tiny_qwen3
from ui.runs import wiring

MATRICES = 7
REQUESTS = [Decide(Transcript("What is 4+2?"), 0, "key")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_qwen3(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many singular values each decomposition was; matrices of any size count as large."""
    found: list[int] = []
    compute = svf._Matrix.decompose

    def counted(matrix: svf._Matrix) -> svf.Decomposition:
        found.append(matrix.count)
        return compute(matrix)

    monkeypatch.setattr(svf._Matrix, "decompose", counted)
    monkeypatch.setattr(svf, "_KEPT_FROM", 1)
    return found


def states(encoder: Encoder, layer: int = 1) -> np.ndarray:
    layout = svf_layout(encoder.model, [layer], embeddings=False)
    values = np.random.default_rng(0).normal(size=sum(n for _, n in layout), scale=0.3)
    return encoder.encode(REQUESTS, offsets=Offsets(layout, values.astype(np.float32))).states


def loaded(place: Path, data: Path) -> Encoder:
    """As a run has it, in a process of its own."""
    wiring.state_file.cache_clear()
    wiring.decomposition_folder.cache_clear()
    return wiring.remember_encoder(load_encoder(place), data)


def test_a_second_run_decomposes_nothing_and_reads_the_same(
    place: Path, tmp_path: Path, taken: list[int]
) -> None:
    encoder = loaded(place, tmp_path)
    layout = svf_layout(encoder.model, [1], embeddings=False)
    told = list(encoder.decompose(layout))
    assert [(one.done, one.of) for one in told] == [(n, MATRICES) for n in range(MATRICES + 1)]
    shares = [one.share for one in told]
    assert shares[0] == 0.0
    assert shares[-1] == pytest.approx(1.0)
    assert shares == sorted(shares)
    first = states(encoder)
    assert len(taken) == MATRICES
    second = loaded(place, tmp_path)
    assert not list(second.decompose(layout)), "nothing is told of what takes no time"
    np.testing.assert_array_equal(states(second), first)
    assert len(taken) == MATRICES, "all were kept"
    states(second, layer=0)
    assert len(taken) == 2 * MATRICES, "those of other matrices are their own"
    other = loaded(tiny_qwen3(tmp_path / "other", seed=1), tmp_path)
    assert np.abs(states(other) - first).max() > 1e-3
    assert len(taken) == 3 * MATRICES, "and those of other weights"


@pytest.mark.parametrize("damage", ["cut", "rotten", "of another size", "no such tensors"])
def test_a_damaged_file_is_computed_again_with_one_warning(
    place: Path, tmp_path: Path, taken: list[int], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = states(loaded(place, tmp_path))
    file, other = sorted((tmp_path / wiring.DECOMPOSITIONS).iterdir())[:2]
    whole = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(whole[:-100])
        case "rotten":
            file.write_bytes(whole[:-100] + b"\x01" + whole[-99:])
        case "of another size":
            DecompositionFolder(tmp_path / "x").keep(b"k", (np.ones(3), np.eye(3)))
            file.write_bytes((tmp_path / "x" / f"{b'k'.hex()}.safetensors").read_bytes())
        case _:
            file.write_bytes(whole.replace(b'"values"', b'"valuez"'))
    assert other.exists()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "storage"):
        np.testing.assert_array_equal(states(loaded(place, tmp_path)), first)
    assert [one.getMessage().count("is damaged") for one in caplog.records] == [1]
    assert len(taken) == MATRICES + 1
    assert file.read_bytes() == whole


def test_where_nothing_can_be_written_all_goes_on_with_one_warning(
    place: Path, tmp_path: Path, taken: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / wiring.DECOMPOSITIONS).write_text("a file is in the way")
    with caplog.at_level(logging.WARNING, "storage"):
        found = states(loaded(place, tmp_path))
    np.testing.assert_array_equal(found, states(load_encoder(place)))
    assert [one.getMessage().startswith("From here on, decompositions") for one in caplog.records] == [True]


def test_beyond_its_bytes_the_oldest_are_dropped(tmp_path: Path) -> None:
    folder = DecompositionFolder(tmp_path / "made", most_bytes=3 * 1000)
    for n in range(6):
        folder.keep(bytes([n]), (np.ones(10), np.eye(10)))  # 880 bytes and a header
    assert folder.size_bytes <= 3000
    assert folder.recall(bytes([0]), 10) is None
    kept = folder.recall(bytes([5]), 10)
    assert kept is not None
    np.testing.assert_array_equal(kept[1], np.eye(10))
