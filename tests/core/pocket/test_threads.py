"""Small models run on one of torch's threads, nobody else's number of threads is touched, and models are loaded one
after the other."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from core.coordinator.encoder import Encoder, load_encoder
from core.draws import turn_key
from core.episode import Ask, Decide, Message, Role, Transcript
from core.pocket import WEIGHTS, threads
from core.pocket.pool import LanguageModel, PocketPool
from core.pocket.threads import suited_threads
from core.pocket.writing import LocalModel
from tests.builders.encoder import tiny_qwen3

ASK = Ask("jack", Role.THINKER, (Message("user", "think\nWhat is 2 + 3?"),))


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def seen_by(model: Any) -> list[int]:
    """Filled with torch's number of threads at every forward of a part of the model."""
    found: list[int] = []
    for part in model.modules():  # a large encoder's layers are read one by one
        part.register_forward_pre_hook(lambda *_: found.append(torch.get_num_threads()))
    return found


def read(encoder: Encoder) -> None:
    encoder.encode([Decide(Transcript("What is 2 + 3?"), 0, turn_key(0, "t", 0))])


def test_a_pocket_model_writes_on_one_thread_and_leaves_the_number_as_it_was() -> None:
    pool = PocketPool()
    found = seen_by(pool._load(pool._folder("jack")).model.model)
    list(pool.ask([ASK]))
    asked = len(found)
    between = [torch.get_num_threads() for _ in pool.stream(ASK)]
    assert asked > 0
    assert len(found) > asked
    assert set(found) == {1}
    assert set(between) == {3}
    assert torch.get_num_threads() == 3


def test_a_small_encoder_reads_on_one_thread_and_a_large_one_on_the_usual_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_qwen3(tmp_path)
    small = load_encoder(folder)
    monkeypatch.setattr(threads, "SMALL", 10)
    large = load_encoder(folder)
    for encoder, wanted in ((small, 1), (large, 3)):
        # A large one is read through a copy of the model, which has its layers.
        found = seen_by(encoder.model.layers[0])
        read(encoder)
        assert set(found) == {wanted}  # also of what is tried beside a first decision
        assert torch.get_num_threads() == 3


def test_a_thread_that_begins_beside_a_small_model_has_the_usual_number() -> None:
    found: dict[str, int] = {}

    def beside() -> None:
        with suited_threads(small=False):
            found["large"] = torch.get_num_threads()
        with suited_threads(small=True):
            found["small"] = torch.get_num_threads()
        found["after"] = torch.get_num_threads()

    with suited_threads(small=True):
        other = threading.Thread(target=beside)
        other.start()
        other.join()
        assert torch.get_num_threads() == 1
    assert found == {"large": 3, "small": 1, "after": 3}
    assert torch.get_num_threads() == 3


def test_the_number_comes_back_when_a_model_fails() -> None:
    with pytest.raises(RuntimeError), suited_threads(small=True):
        raise RuntimeError
    assert torch.get_num_threads() == 3


def test_models_that_are_loaded_at_the_same_time_all_have_their_own_weights(tmp_path: Path) -> None:
    tiny = tiny_qwen3(tmp_path)
    start, found = threading.Barrier(4), list[bool]()

    def load(model: Callable[[], Any]) -> None:
        start.wait()
        loaded = model()
        words = loaded.get_input_embeddings().weight
        found.append(loaded.get_output_embeddings().weight is words)

    loads: list[Callable[[], Any]] = [
        lambda: LanguageModel.load(WEIGHTS / "jack").model,
        lambda: LanguageModel.load(WEIGHTS / "sage").model,
        lambda: LocalModel.load(tiny).model,
        lambda: LocalModel.load(tiny).model,
    ]
    running = [threading.Thread(target=load, args=(one,)) for one in loads]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert found == [True] * 4
