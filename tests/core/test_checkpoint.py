"""Checkpoints: what is written is what is read, and whatever is damaged or contradictory is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.checkpoint import Checkpoint, EncoderIdentity, load_checkpoint, save_checkpoint
from core.episode import Protocol
from core.errors import CheckpointError

MODELS = ("ada", "bob", "cyd")
ENCODER = EncoderIdentity("tiny", 8, digest="d" * 64)


def checkpoint(**fields: Any) -> Checkpoint:
    n = 6 * 8 + sum(count for _, count in fields.get("svf_layout", ()))
    vector = np.random.default_rng(5).normal(size=n).astype(np.float32)
    return Checkpoint(vector, MODELS, ENCODER, **fields)


def test_a_saved_checkpoint_comes_back_whole(tmp_path: Path) -> None:
    made = checkpoint(
        svf_layout=(("embed_tokens.weight", 8), ("layers.0.mlp.up_proj.weight", 5)),
        input_format="chat",
        token_position=-1,
        protocol=Protocol.RELEASED,
        generation=7,
        parent_run="r1",
        kind="evolved",
        notes="naïve ☃",
    )
    folder = save_checkpoint(made, tmp_path / "c" / made.id)
    read = load_checkpoint(folder)
    assert read == made
    assert read.to_config() == made.to_config()
    np.testing.assert_array_equal(read.vector, made.vector)
    assert read.svf_offsets.shape == (13,)
    np.testing.assert_array_equal(
        read.head.arrays(read.head_vector)["weight"], made.vector[13:].reshape(6, 8)
    )
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert [path.name for path in folder.parent.iterdir()] == [made.id]  # no draft is left


def test_generation_0_is_all_zeros_and_a_vector_can_be_exchanged() -> None:
    start = Checkpoint.begin(MODELS, ENCODER, svf_layout=(("w", 2),), parent_run="r1")
    assert start.vector.shape == (2 + 6 * 8,)
    assert not start.vector.any()
    assert (start.generation, start.kind) == (0, "start")
    moved = start.with_vector(start.vector + 1, generation=1, kind="evolved")
    assert moved.id != start.id
    assert moved.parent_run == "r1"
    assert moved.head_vector.min() == 1


def test_the_id_is_made_of_the_content() -> None:
    assert checkpoint().id == checkpoint().id
    assert checkpoint().id.startswith("c")
    assert len(checkpoint().id) == 11
    assert len({checkpoint(notes=note).id for note in "abc"} | {checkpoint(generation=1).id}) == 4


def test_a_checkpoint_cannot_be_changed_from_outside() -> None:
    vector = np.zeros(48, np.float32)
    made = Checkpoint(vector, MODELS, ENCODER)
    vector[0] = 1
    assert made.vector[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        made.vector[0] = 1


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=48, max_size=48), st.text()
)
def test_bytes_round_trip(numbers: list[float], notes: str) -> None:
    made = Checkpoint(np.array(numbers, np.float32), MODELS, ENCODER, notes=notes)
    config = json.loads(json.dumps(made.to_config()))
    read = Checkpoint.from_bytes(config, made.to_bytes())
    assert read.id == made.id
    assert read.notes == notes
    assert read.vector.tobytes() == made.vector.tobytes()


def rewrite(file: Path, content: bytes) -> None:
    """A new file in the place of the old: some file systems wait for the disk where an old one is emptied."""
    file.unlink()
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path, name: str) -> None:
    folder = save_checkpoint(checkpoint(), tmp_path / "c")
    whole = (folder / name).read_bytes()
    for length in range(len(whole)):
        rewrite(folder / name, whole[:length])
        with pytest.raises(CheckpointError):
            load_checkpoint(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_changed_byte_is_refused_or_means_nothing(tmp_path: Path, name: str) -> None:
    made = checkpoint()
    folder = save_checkpoint(made, tmp_path / "c")
    whole = (folder / name).read_bytes()
    refused = 0
    for place in range(len(whole)):
        rewrite(folder / name, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert load_checkpoint(folder) == made
        except CheckpointError:
            refused += 1
    assert refused > 0.8 * len(whole)  # the rest is white space between JSON entries


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "pickle"}, "not a Trinity checkpoint"),
        ({"version": 2}, "format version 2"),
        ({"models": ["ada", "bob"]}, "needs float32 tensors"),
        ({"models": ["ada", "bob", "dan"]}, "its config was changed"),
        ({"generation": 3}, "its config was changed"),
        ({"id": "c0000000000"}, "calls itself 'c0000000000'"),
        ({"head": "low-rank"}, "needs float32 tensors"),
        ({"head": "convex"}, "There is no head 'convex'"),
        ({"protocol": "mine"}, "config is damaged"),
        ({"encoder": "tiny"}, "config is damaged"),
        ({"weights_sha256": "0"}, "do not match the digest"),
        ({"roles": ["worker", "thinker", "judge"]}, "knows the role order"),
        ({"dtype": "int8"}, "dtype must be one of"),
        ({"token_position": 3}, "token position"),
        ({"svf_layout": [["w", 8]]}, "needs float32 tensors"),
    ],
)
def test_a_contradiction_is_named(change: dict[str, Any], sentence: str) -> None:
    made = checkpoint()
    with pytest.raises(CheckpointError, match=sentence):
        Checkpoint.from_bytes({**made.to_config(), **change}, made.to_bytes())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(entry=st.sampled_from(sorted(checkpoint().to_config())), value=JSON)
@example(entry="roles", value={"": None, "0": None, "\n": None})
def test_any_other_value_in_the_config_is_refused(entry: str, value: Any) -> None:
    made = checkpoint()
    try:
        read = Checkpoint.from_bytes({**made.to_config(), entry: value}, made.to_bytes())
    except CheckpointError as refused:
        sentence = str(refused)
    else:
        assert read == made  # another spelling of the same, such as {} for []
        return
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"vector": np.zeros(47)}, r"shape \(47,\)"),
        ({"vector": np.full(48, np.nan)}, "not finite"),
        ({"models": ("ada", "ada", "bob")}, "distinct pool slots"),
    ],
)
def test_unusable_numbers_and_slots_are_refused(fields: dict[str, Any], sentence: str) -> None:
    usable: dict[str, Any] = {"vector": np.zeros(48), "models": MODELS}
    with pytest.raises(CheckpointError, match=sentence):
        Checkpoint(encoder=ENCODER, **{**usable, **fields})


def test_a_missing_folder_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint folder at"):
        load_checkpoint(tmp_path / "nowhere")
    folder = save_checkpoint(checkpoint(), tmp_path / "c")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors"):
        load_checkpoint(folder)


def test_saving_twice_changes_nothing_and_another_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    folder = save_checkpoint(checkpoint(), tmp_path / "c")
    before = (folder / "model.safetensors").stat().st_mtime_ns
    save_checkpoint(checkpoint(), folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(CheckpointError, match="another checkpoint"):
        save_checkpoint(checkpoint(notes="other"), folder)
    assert load_checkpoint(folder) == checkpoint()


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("file", "file is a file"),
        ("file/c", "cannot be written to .*file/c"),
        ("file/a/c", "cannot be written to .*file/a/c"),
        (".", "other files"),
        ("x" * 300, "cannot be written"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    with pytest.raises(CheckpointError, match=sentence):
        save_checkpoint(checkpoint(), place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert Path("file").read_text() == "mine"


def test_the_folder_one_is_in_can_be_written_to_when_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_checkpoint(save_checkpoint(checkpoint(), ".")) == checkpoint()


def test_a_crash_before_the_rename_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    draft = tmp_path / ".c.draft"
    draft.mkdir()
    (draft / "config.json").write_text('{"format": ')
    assert load_checkpoint(save_checkpoint(checkpoint(), tmp_path / "c")) == checkpoint()
    assert not draft.exists()


@pytest.mark.process
def test_killing_the_writer_leaves_whole_checkpoints_only(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from core.checkpoint import *\n"
        "start = Checkpoint.begin(('ada',), EncoderIdentity('tiny', 4096))\n"
        "print('ready', flush=True)\n"
        "for g in range(100000):\n"
        "    save_checkpoint(start.with_vector(start.vector + g, generation=g), sys.argv[1] + f'/{g:06}')\n"
    )
    written = 0
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.02 + 0.026 * attempt)
            writer.kill()
        for generation, path in enumerate(sorted(folder.glob("[0-9]*"))):
            assert load_checkpoint(path).generation == generation
            written += 1
    assert written > 0


@pytest.mark.process
def test_reading_a_checkpoint_does_not_import_torch() -> None:
    code = "import sys, core.checkpoint, core.heads; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
