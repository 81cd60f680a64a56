"""Reading part by part: the same states as reading whole, each token once, within a budget of bytes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Gemma3TextConfig,
    Gemma3TextModel,
    MambaConfig,
    MambaModel,
    MistralConfig,
    MistralModel,
    Phi3Config,
    Phi3Model,
    Qwen3Config,
    Qwen3Model,
)

from core.coordinator import encoder as encoders
from core.coordinator.attention import CONTINUED, use_continued_attention
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.graphs import reads_in_fixed_parts
from core.coordinator.prefixes import PartReader, PrefixReader, packs_alike, reads_in_parts
from core.coordinator.svf import Offsets, svf_layout
from core.episode import Decide, Role, Transcript, TranscriptEntry
from core.pocket import threads
from core.tokens.prompts import Prompt
from tests.builders.encoder import longrope, tiny_qwen3

SHAPE: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}
DECODERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "full attention": (Qwen3Config, Qwen3Model, {}),
    "sliding window": (MistralConfig, MistralModel, {"sliding_window": 20}),
    "both": (
        Gemma3TextConfig,
        Gemma3TextModel,
        {"sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"] * 2},
    ),
}
IDS = tuple(np.random.default_rng(0).integers(1, 96, 160).tolist())
LONG = Prompt(IDS, False, (40, 90, 150), 10)
SHORT = Prompt((*IDS[:90], *IDS[150:]), False, (40, 90), 10)


@pytest.fixture(params=DECODERS)
def model(request: pytest.FixtureRequest) -> Any:
    config, kind, more = DECODERS[request.param]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return kind(config(**SHAPE, **more)).eval()


def whole(model: Any, prompt: Prompt) -> torch.Tensor:
    with torch.inference_mode():
        hidden: torch.Tensor = model(input_ids=torch.tensor([prompt.ids]), use_cache=False).last_hidden_state[
            0
        ]
    return hidden


def test_parts_give_the_states_of_the_whole_each_token_once(model: Any) -> None:
    assert reads_in_parts(model)
    reader = PrefixReader(model)
    torch.testing.assert_close(reader.read(SHORT)[-2], whole(model, SHORT)[-2], atol=1e-5, rtol=0)
    assert reader.tokens == 90 + 2 * 10
    torch.testing.assert_close(reader.read(LONG)[-2], whole(model, LONG)[-2], atol=1e-5, rtol=0)
    assert reader.tokens == 90 + 2 * 10 + 60 + 10, "only what is new was read"


def test_what_was_read_before_changes_no_bit(model: Any) -> None:
    cold, warm = PrefixReader(model), PrefixReader(model)
    warm.read(SHORT)
    assert torch.equal(warm.read(LONG), cold.read(LONG))


def test_attention_without_a_mask_gives_the_same(model: Any) -> None:
    masked = PrefixReader(model).read(LONG)
    use_continued_attention(model)
    assert model.config._attn_implementation == CONTINUED
    torch.testing.assert_close(PrefixReader(model).read(LONG), masked, atol=1e-5, rtol=0)
    torch.testing.assert_close(whole(model, LONG)[-len(masked) :], masked, atol=1e-5, rtol=0)


def test_conversations_that_begin_alike_share_what_is_remembered(model: Any) -> None:
    reader = PrefixReader(model)
    reader.read(SHORT)
    held = reader.parts.bytes
    other = Prompt((*IDS[:40], *IDS[100:130], *IDS[150:]), False, (40, 70), 10)
    reader.read(other)
    assert reader.parts.bytes == held + 30 * held // 90
    assert reader.read(other, b"other weights").shape == (40, 32)
    assert reader.parts.bytes == held + 30 * held // 90 + 70 * held // 90, "of other weights nothing is taken"


def test_beyond_the_budget_the_ends_of_old_conversations_are_forgotten(model: Any) -> None:
    reader = PrefixReader(model)
    reader.read(SHORT)
    small = PrefixReader(model, 2 * reader.parts.bytes)
    for start in (0, 1, 2):
        for end in (60, 100):
            one = Prompt((*IDS[start:end], *IDS[150:]), False, (30, end - start), 10)
            torch.testing.assert_close(small.read(one)[-1], whole(model, one)[-1], atol=1e-5, rtol=0)
            assert small.parts.bytes <= 2 * reader.parts.bytes
    assert small.remembered(one) == len(one.ends)
    assert small.remembered(SHORT) == 0
    small.parts.budget = 60 * reader.parts.bytes // 90
    small.read(one)
    assert small.remembered(one) == 1, "a conversation's end goes before its beginning"
    small.forget()
    assert (small.parts.bytes, small.remembered(one)) == (0, 0)


def test_where_the_last_layer_sees_all_tokens_only_the_one_that_is_read_goes_through_it(model: Any) -> None:
    reader = PartReader(model)
    for prompt in (SHORT, LONG):
        ((_, state),) = reader.read([prompt], -2)
        np.testing.assert_allclose(state, whole(model, prompt)[-2].numpy(), atol=1e-5)
    share = reader.forwards / ((90 + 2 * 10) / 100 + (60 + 10) / 160)
    sees_all = getattr(model.config, "layer_types", ["sliding_attention"])[-1] == "full_attention"
    assert 0.75 < share < 0.85 if sees_all else share == pytest.approx(1)


def test_prompts_of_which_most_is_remembered_are_read_first(model: Any) -> None:
    reader = PartReader(model)
    list(reader.read([SHORT], -2))
    other = Prompt(IDS[100:], False, (50,), 10)
    alike = Prompt((*IDS[100:150], *IDS[:20]), False, (50, 60), 10)
    third = Prompt((*IDS[2:60], *IDS[:10]), False, (58,), 10)
    order = [place for place, _ in reader.read([other, third, alike, LONG], -2)]
    assert order[0] == 3
    assert abs(order.index(0) - order.index(2)) == 1, "those that begin alike follow one another"


def test_new_turns_of_many_conversations_are_read_in_few_forwards_and_change_no_bit(model: Any) -> None:
    use_continued_attention(model)
    rng, begun = np.random.default_rng(1), forwards_of(model)
    lengths = (9, 30, 12, 21, 4, 17, 40, 11)
    turns = [tuple(rng.integers(48, 96, length).tolist()) for length in lengths]
    prompts = [Prompt((*IDS[:40], *own, *IDS[150:]), False, (40, 40 + len(own)), 10) for own in turns]
    prompts += [Prompt((*turns[0], *IDS[150:]), False, (9,), 10), SHORT, LONG]
    alone = np.stack([next(PartReader(model).read([prompt], -2))[1] for prompt in prompts])
    reader = PartReader(model)
    list(reader.read(prompts[:2], -2))  # whether it may is tried here
    begun.clear()
    found = dict(reader.read(prompts, -2))
    np.testing.assert_array_equal(np.stack([found[place] for place in range(len(prompts))]), alone)
    full = set(getattr(model.config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
    windows = getattr(model.config, "sliding_window", None) or not full
    assert len(begun) == (len(prompts) if windows else 2)
    assert packs_alike(model) is not bool(windows)


def forwards_of(model: Any) -> list[int]:
    """A list that grows by the number of tokens with each forward through the first layer."""
    begun = list[int]()
    model.layers[0].register_forward_hook(lambda layer, given, hidden: begun.append(given[0].shape[1]))
    return begun


def test_control_tokens_that_nobody_trained_say_nothing_about_a_model(model: Any) -> None:
    model.get_input_embeddings().weight.data[:40] = float("nan")
    assert reads_in_parts(model)


def test_a_prompt_that_is_turned_otherwise_as_a_whole_is_read_whole() -> None:
    torch.manual_seed(0)
    model: Any = Phi3Model(Phi3Config(**SHAPE, eos_token_id=1, bos_token_id=1, **longrope(8, 100)))
    model.eval()
    assert reads_in_parts(model)
    assert not reads_in_fixed_parts(model), "its forwards are padded beyond what is read"
    reader = PartReader(model)
    for prompt in (SHORT, LONG, Prompt(IDS[:101], False, (40, 91), 10)):
        ((_, state),) = reader.read([prompt], -2)
        np.testing.assert_allclose(state, whole(model, prompt)[-2].numpy(), atol=1e-5)


def test_recurrent_layers_are_read_whole() -> None:
    torch.manual_seed(0)
    recurrent: Any = MambaModel(MambaConfig(vocab_size=96, hidden_size=16, num_hidden_layers=2))
    assert not reads_in_parts(recurrent.eval())


@pytest.fixture
def as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model counts as a large one."""
    monkeypatch.setattr(threads, "SMALL", 0)


def conversation(turns: int) -> Decide:
    entries = tuple(TranscriptEntry(Role.WORKER, "m1", f"so {turn} " * 9) for turn in range(turns))
    return Decide(Transcript("What is 4 plus 5? " * 4, entries), turns, "key")


@pytest.mark.parametrize("position", [-1, -2, -40])
def test_a_large_encoder_reads_a_conversation_once(as_large: None, tmp_path: Path, position: int) -> None:
    folder = tiny_qwen3(tmp_path)
    encoder = load_encoder(folder)
    assert encoder.in_parts
    states = [encoder.encode([conversation(n)], token_position=position).states for n in range(4)]
    assert encoder.forwards < (2.5 if position > -40 else 5)
    at_once = load_encoder(folder).encode([conversation(n) for n in range(4)], token_position=position).states
    if position > -40:
        np.testing.assert_array_equal(np.concatenate(states), at_once)
    threads.SMALL = 10_000_000  # the fixture puts it back
    small = load_encoder(folder)
    assert not small.in_parts
    expected = small.encode([conversation(n) for n in range(4)], token_position=position).states
    np.testing.assert_allclose(np.concatenate(states), expected, atol=2e-5)


def test_only_the_layers_above_a_change_are_read_again(as_large: None, tmp_path: Path) -> None:
    encoder = load_encoder(tiny_qwen3(tmp_path))
    layout = svf_layout(encoder.model, [2], embeddings=False)
    rng = np.random.default_rng(0)
    candidates = [
        Offsets(layout, rng.normal(0, 0.1, sum(n for _, n in layout)).astype("f4")) for _ in range(3)
    ]
    request = conversation(3)
    found = [encoder.encode([request], offsets=one).states for one in candidates]
    assert encoder.forwards < 2 / 3 * 1.7 + 3 * 1 / 3  # suffixes are read after each of four short turns
    for one, state in zip(candidates, found, strict=True):
        fresh = whole_state(encoder, request, one)
        np.testing.assert_allclose(state, fresh, atol=2e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-3
    before = encoder.forwards
    encoder.encode([conversation(4)], offsets=candidates[1])
    assert encoder.forwards - before < 2 / 3 * 0.6 + 1 / 3, "one turn goes on from what others have read"


def whole_state(encoder: Encoder, request: Decide, offsets: Offsets) -> Any:
    ids = encoder.tokens.prompt(request, encoder.input_format).ids
    with encoder.exclusive(offsets) as model, torch.inference_mode():
        return model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[:, -2].numpy()


class Shelf:
    """States in memory (an `encoder.StateLedger`)."""

    def __init__(self) -> None:
        self.states: dict[bytes, np.ndarray[Any, np.dtype[np.float32]]] = {}

    def recall(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray[Any, np.dtype[np.float32]]]:
        return {key: self.states[key] for key in keys if key in self.states}

    def keep(self, states: Mapping[bytes, np.ndarray[Any, np.dtype[np.float32]]]) -> None:
        self.states |= states


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """States are handed to a ledger as soon as they are read."""
    monkeypatch.setattr(encoders, "_HANDED_OVER_S", 0.0)


def with_ledger(folder: Path, shelf: Shelf, **how: Any) -> Encoder:
    encoder = load_encoder(folder, **how)
    encoder.ledger = shelf
    return encoder


def test_what_a_large_encoder_has_read_is_not_read_by_another_of_the_same_weights(
    as_large: None, at_once: None, tmp_path: Path
) -> None:
    folder, shelf, asked = tiny_qwen3(tmp_path / "one"), Shelf(), [conversation(n) for n in range(4)]
    first, again = (with_ledger(folder, shelf) for _ in range(2))
    states = first.encode(asked).states
    assert again.encode(asked[:2]).states.tolist() == states[:2].tolist()
    assert again.forwards == 0
    assert len(shelf.states) == 4
    again.encode([conversation(5)])
    np.testing.assert_array_equal(again.encode(asked).states, states)
    assert again.forwards < 3
    kept = len(shelf.states)
    for other in (
        with_ledger(tiny_qwen3(tmp_path / "other", seed=1), shelf),
        with_ledger(folder, shelf, dtype="bfloat16"),
    ):
        assert np.abs(other.encode(asked[:1]).states - states[:1]).max() > 1e-4, "it read for itself"
    config = shutil.copytree(folder, tmp_path / "configured") / "config.json"
    config.write_text(config.read_text().replace('"rope_theta": 10000.0', '"rope_theta": 100.0'))
    configured = with_ledger(config.parent, shelf)
    assert configured.identity.digest == again.identity.digest
    assert np.abs(configured.encode(asked[:1]).states - states[:1]).max() > 1e-4, (
        "the same weights, used otherwise"
    )
    again.encode(asked[:1], token_position=-3)
    assert len(shelf.states) == kept + 4
    layout = svf_layout(again.model, [2], embeddings=False)
    changed = np.full(sum(n for _, n in layout), 0.1, np.float32)
    again.encode(asked[:1], offsets=Offsets(layout, changed))
    assert len(shelf.states) == kept + 4, "weights that were changed keep nothing"


def test_a_small_encoder_keeps_nothing(at_once: None, tmp_path: Path) -> None:
    shelf = Shelf()
    with_ledger(tiny_qwen3(tmp_path), shelf).encode([conversation(1)])
    assert not shelf.states


def test_what_was_read_is_kept_when_whoever_asked_stops(
    as_large: None, at_once: None, tmp_path: Path
) -> None:
    folder, shelf = tiny_qwen3(tmp_path), Shelf()
    encoder, asked = with_ledger(folder, shelf), [conversation(n % 4) for n in range(8)]
    steps = encoder.read_each(asked)
    seen = [next(steps)[0] for _ in range(3)]
    encoder.encode([conversation(6)])  # between two steps
    seen += [place for place, _ in steps]
    assert sorted(seen) == [*range(8)], "equal ones too, each once"
    assert len(shelf.states) == 5
    killed = with_ledger(tiny_qwen3(tmp_path / "2", seed=2), other := Shelf()).read_each(asked)
    next(killed)
    del killed
    assert len(other.states) == 1
    assert encoder.seconds > 0


def test_offsets_that_are_asked_for_between_two_steps_change_none_of_them(
    as_large: None, tmp_path: Path
) -> None:
    encoder, asked = load_encoder(tiny_qwen3(tmp_path)), [conversation(n) for n in range(4)]
    expected = load_encoder(encoder.folder or "").encode(asked).states
    layout = svf_layout(encoder.model, [1])
    values = np.random.default_rng(0).normal(0, 0.3, sum(n for _, n in layout))
    changes = Offsets(layout, values.astype(np.float32))
    for place, row in encoder.read_each(asked):
        np.testing.assert_array_equal(row.states[0], expected[place])
        changed = encoder.encode(asked[:1], offsets=changes).states
    assert np.abs(changed - expected[:1]).max() > 1e-3
    for _ in encoder.decompose(svf_layout(encoder.model, [2], embeddings=False)):
        pass
    encoder.forget()
    np.testing.assert_array_equal(encoder.encode(asked[:1], offsets=changes).states, changed)
    np.testing.assert_array_equal(encoder.encode(asked[:1]).states, expected[:1])


def test_its_speed_is_measured_once(as_large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "_TIMED_S", 0.0)
    encoder = load_encoder(tiny_qwen3(tmp_path), max_tokens=64)
    speed = encoder.tokens_per_s()
    assert 100 < speed < 1e6
    assert encoder.tokens_per_s() == speed
    assert encoder.forwards == 0, "what is read to measure it gives no states"
