"""`trinity encoders add HUB-ID` against a real server on loopback that speaks the hub's routes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.checkpoint import Checkpoint
from core.coordinator.encoder import load_encoder
from core.errors import CheckpointError
from core.tokens.files import weights_digest
from core.tokens.shelf import model_folder, on_shelf, shelved
from tests.builders.encoder import tiny_qwen3
from tests.builders.hub import Hub, loopback_hub
from tests.ui.sums import Sums
from ui.runs import wiring

SMALL: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
CARD = "---\nlibrary_name: transformers\nlicense: apache-2.0\n---\n# A model\nlicense: none of it\n"


@pytest.fixture
def hub(world: Sums, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that has one model, of a first commit."""
    monkeypatch.delenv("TRINITY_ENCODER", raising=False)
    first = tiny_qwen3(world.folder / "first", **SMALL)
    (first / "README.md").write_text(CARD)
    with loopback_hub(world.folder / "hub", monkeypatch) as served:
        served.models["Ann/Tiny-1B"] = [first]
        yield served


def refused(world: Sums, model: str) -> str:
    """The one sentence, after the one that says what is fetched."""
    said = world.trinity("encoders", "add", model)
    assert (said.code, said.err.count("\n")) == (1, 2), said.err
    return said.err.splitlines()[-1]


def weights_here(world: Sums) -> list[Path]:
    return [*world.folder.glob("hub/**/*.safetensors")]


def test_a_model_of_the_hub_is_added_named_used_and_removed_and_stays_what_it_was(
    world: Sums, hub: Hub
) -> None:
    (first,) = hub.models["Ann/Tiny-1B"]
    said = world.done("encoders", "add", "Ann/Tiny-1B")
    assert "use it by --encoder tiny-1b" in said.out
    found, commit = on_shelf(wiring.data_folder(), "tiny-1b"), hub.commit("Ann/Tiny-1B")
    assert found is not None
    assert (found.source, found.digest) == (f"Ann/Tiny-1B@{commit}", weights_digest(first))
    assert (found.licence, commit[:12] in found.origin) == ("apache-2.0", True)

    second = tiny_qwen3(world.folder / "second", seed=1, **SMALL)
    hub.models["Ann/Tiny-1B"].append(second)
    hub.requests.clear()
    encoder = wiring.loaded_encoder("tiny-1b")
    assert (encoder.identity.digest, encoder.identity.revision) == (found.digest, commit)
    assert encoder.identity.name == "Ann/Tiny-1B"
    assert wiring.loaded_encoder(f"Ann/Tiny-1B@{commit}") is encoder
    assert hub.requests == [], "what is here at its commit is not asked for"
    made = Checkpoint.begin(("adder", "guesser"), encoder.identity)
    with world.kept() as store:
        wiring.keep_checkpoint(store, made)
        assert wiring.encoder_place(made, store, wiring.data_folder()) == found.source
    assert load_encoder("Ann/Tiny-1B").identity.digest == weights_digest(second), (
        "the newest, where none is named"
    )
    hub.dead = True
    world.done("run", *world.test_tasks, "--n", 1, "--policy", made.id)
    listed = {one["name"]: one for one in world.trinity("encoders", "list", "--json").json}
    shown = listed["tiny-1b"]
    assert (shown["state"], shown["checkpoints"], shown["licence"]) == ("here", [made.id], "apache-2.0")
    assert model_folder("tiny-1b", wiring.data_folder(), world.folder).name == commit

    world.done("encoders", "remove", "tiny-1b", "--yes")
    assert shelved(wiring.data_folder()) == []
    assert len(weights_here(world)) == 2, "the hub's cache is its own"


def test_what_the_hub_does_not_give_is_one_sentence_that_says_what_to_do(world: Sums, hub: Hub) -> None:
    assert "hub has no such model that everybody may read" in refused(world, "Ann/None")
    assert f"has no revision {'0' * 40} of" in refused(world, f"Ann/Tiny-1B@{'0' * 40}")
    assert "no id of the Hugging Face hub" in refused(world, "./none/of/it")
    hub.gated.add("Ann/Tiny-1B")
    said = refused(world, "Ann/Tiny-1B")
    assert f"is gated: accept its terms at {hub.url}/Ann/Tiny-1B, and give a token" in said
    hub.dead = True
    assert "did not return it" in refused(world, "Ann/Other")
    assert shelved(wiring.data_folder()) == []


def test_what_cannot_be_an_encoder_is_refused_before_its_weights_are_fetched(world: Sums, hub: Hub) -> None:
    whole = hub.models["Ann/Tiny-1B"][0]
    pickled = shutil.copytree(whole, world.folder / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    slow = shutil.copytree(whole, world.folder / "slow")
    (slow / "tokenizer.json").write_text("{}")
    bare = shutil.copytree(whole, world.folder / "bare")
    (bare / "config.json").unlink()
    hub.models |= {"a/pickled": [pickled], "a/slow": [slow], "a/bare": [bare]}
    assert "only pickled weights" in refused(world, "a/pickled")
    assert "cannot be loaded" in refused(world, "a/slow")
    assert "has no config.json" in refused(world, "a/bare")
    assert shelved(wiring.data_folder()) == []
    assert not any("safetensors" in one or ".bin" in one for one in hub.requests)


def test_a_server_that_dies_in_the_middle_leaves_nothing_half_written(
    world: Sums, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between its tries
    hub.dies_in = ".safetensors"
    said = world.trinity("encoders", "add", "Ann/Tiny-1B")
    assert said.code == 1
    assert "the Hugging Face hub did not return it" in said.err.splitlines()[-1]
    assert shelved(wiring.data_folder()) == []
    assert [one for one in world.folder.glob("hub/**/*") if "incomplete" in one.name] == []
    assert weights_here(world) == []
    with pytest.raises(CheckpointError, match="did not return it"):
        load_encoder(f"Ann/Tiny-1B@{hub.commit('Ann/Tiny-1B')}")
    hub.dies_in, hub.dead = "", False
    world.done("encoders", "add", "Ann/Tiny-1B")
    assert len(weights_here(world)) == 1
