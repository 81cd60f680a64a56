"""Forwards of fixed shapes: the same states as reading whole, whatever the room holds; and where memory runs out.

Graphs themselves need a CUDA device: here their shapes run one kernel after the other."""

from __future__ import annotations

import gc
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from core.coordinator import attention, graphs
from core.coordinator.attention import set_room_attention
from core.coordinator.batches import BatchReader, within_memory
from core.coordinator.fusing import compiled_model
from core.coordinator.graphs import (
    TOGETHER,
    AcceleratedReader,
    FixedPrefixReader,
    Graphs,
    reads_in_fixed_parts,
)
from core.coordinator.prefixes import PREFIX_BYTES, PrefixReader
from core.errors import CheckpointError
from core.tokens.prompts import Prompt
from tests.core.coordinator.test_prefixes import DECODERS, IDS, LONG, SHAPE, SHORT, model, whole

assert model  # the fixture
OTHER = Prompt((*IDS[:40], *IDS[100:130], *IDS[150:]), False, (40, 70), 10)


@pytest.fixture
def full() -> Any:
    torch.manual_seed(0)
    config, kind, more = DECODERS["full attention"]
    return kind(config(**SHAPE, **more, max_position_embeddings=16_384)).eval()


def batches(of: Any, **more: Any) -> BatchReader:
    return BatchReader(of, 0, **{"small": True, "folder": None, "processes": None, **more})


def test_only_models_whose_tokens_see_all_before_them_are_read_so(model: Any) -> None:
    assert reads_in_fixed_parts(model) is (not getattr(model.config, "sliding_window", None))


def test_a_conversation_in_one_room_has_the_states_of_reading_whole(full: Any) -> None:
    reader = FixedPrefixReader(full)
    for prompt in (SHORT, LONG, OTHER, LONG, SHORT):  # what another left in the room is written over
        torch.testing.assert_close(reader.read(prompt)[-2], whole(full, prompt)[-2], atol=1e-5, rtol=0)
    assert reader.tokens == (90 + 2 * 10) + (60 + 10) + (30 + 10) + (60 + 10) + (50 + 10), "only what is new"
    cold = FixedPrefixReader(full)
    assert torch.equal(reader.read(LONG), cold.read(LONG))


def flash(query: Any, key: Any, value: Any, new: Any, seen: Any, *sizes: Any, scale: float) -> Any:
    """What torch's kernel computes on CUDA, as its documentation says: prompts one after the other, and the causal
    diagonal of each ends at its last key."""
    found = torch.empty_like(query)
    for (first, end), (begin, stop) in zip(pairwise(new.tolist()), pairwise(seen.tolist()), strict=True):
        rows, tokens = end - first, stop - begin
        keys, values = (one[begin:stop].repeat_interleave(2, dim=1).transpose(0, 1) for one in (key, value))
        mask = torch.ones(rows, tokens, dtype=torch.bool).tril(tokens - rows)
        weights = query[first:end].transpose(0, 1) @ keys.transpose(1, 2) * scale
        weights = weights.masked_fill(~mask, -torch.inf).softmax(-1)
        found[first:end] = (weights @ values).transpose(0, 1)
    return (found,)


def test_without_a_mask_attention_ends_at_the_last_key(full: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {prompt: whole(full, prompt)[-2] for prompt in (SHORT, LONG, OTHER)}
    monkeypatch.setattr(attention, "_flash", flash)
    set_room_attention(full)
    reader = FixedPrefixReader(full)
    for prompt in (SHORT, LONG, OTHER, LONG):
        torch.testing.assert_close(reader.read(prompt)[-2], expected[prompt], atol=1e-5, rtol=0)
    torch.testing.assert_close(whole(full, LONG)[-2], expected[LONG], atol=1e-5, rtol=0)


def test_where_flash_attention_is_another_one_a_mask_is_used(
    full: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upper_left(query: Any, key: Any, value: Any, new: Any, *rest: Any, scale: float) -> Any:
        return flash(query, key, value, new, new, *rest, scale=scale)

    def use(model: Any) -> bool:
        set_room_attention(model)
        return True

    monkeypatch.setattr(graphs, "use_room_attention", use)
    for kernel, name in ((upper_left, "sdpa"), (flash, attention.IN_ROOM)):
        monkeypatch.setattr(attention, "_flash", kernel)
        full.set_attn_implementation("sdpa")
        assert reads_in_fixed_parts(full)
        assert full.config._attn_implementation == name


def conversations(turns: int) -> list[Prompt]:
    """So many turns of ten conversations, each of its own length."""
    found = []
    for one in range(TOGETHER + 2):
        ends = [20 + one + 25 * turn for turn in range(turns)]
        found.append(Prompt((*IDS[one : one + ends[-1]], *IDS[150:]), False, tuple(ends), 10))
    return found


def test_of_many_conversations_what_is_new_is_read_together(
    full: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = [[whole(full, one)[-2] for one in conversations(turns)] for turns in (1, 2, 3, 4)]
    monkeypatch.setattr(attention, "_flash", flash)
    set_room_attention(full)
    reader = AcceleratedReader(full, batches(full))
    assert reader._packs
    reader._most = 200  # several forwards for each turn
    for turns in (1, 2, 3, 4):
        prompts, before = conversations(turns), reader._prefixes.tokens
        found = dict(reader.read(prompts, -2, b"a candidate"))
        for place in range(len(prompts)):
            np.testing.assert_allclose(found[place], expected[turns - 1][place], atol=1e-5)
        read = reader._prefixes.tokens - before
        new = {1: 0, 2: sum(len(one.ids) for one in prompts)}  # a question alone is read whole
        assert read == new.get(turns, len(prompts) * (25 + 10)), turns
    for place, state in reader.read(conversations(4), -60, b"a candidate"):  # before what is new
        np.testing.assert_allclose(state, whole(full, conversations(4)[place])[-60], atol=1e-5)
    held = reader._prefixes.tokens
    dict(reader.read(conversations(4), -2, b"another"))
    assert reader._prefixes.tokens - held == sum(len(one.ids) for one in conversations(4))


def test_what_is_new_is_read_by_compiled_layers_until_they_fail(
    full: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = conversations(2)
    expected = [whole(full, one)[-2] for one in prompts]
    monkeypatch.setattr(attention, "_flash", flash)
    monkeypatch.setattr(torch, "compile", lambda run, *, dynamic: partial(counted, run))
    calls = list[int]()

    def counted(run: Any, *given: Any) -> Any:
        calls.append(1)
        if len(calls) > SHAPE["num_hidden_layers"]:
            raise RuntimeError("no kernel")
        return run(*given)

    set_room_attention(full)
    reader = AcceleratedReader(full, batches(full))
    reader._batches.forward.model = compiled_model(full)
    for seed in (b"compiled", b"not compiled", b"nor here"):
        found = dict(reader.read(prompts, -2, seed))
        for place, state in enumerate(expected):
            np.testing.assert_allclose(found[place], state, atol=1e-5)
    assert len(calls) == SHAPE["num_hidden_layers"] + 1
    assert caplog.messages == [
        "The encoder's layers cannot be compiled here, and batches take longer: no kernel"
    ]


def test_where_memory_runs_out_less_is_read_together(
    full: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = conversations(3)
    expected = [whole(full, one)[-2] for one in prompts]
    monkeypatch.setattr(attention, "_flash", flash)
    set_room_attention(full)
    short = Short(full, 10**6)
    reader = AcceleratedReader(short, batches(short))
    short.room = 200
    found = dict(reader.read(prompts, -2))
    for place, state in enumerate(expected):
        np.testing.assert_allclose(found[place], state, atol=1e-5)
    assert len(caplog.messages) == 1
    short.room = 10
    with pytest.raises(CheckpointError, match="not enough memory"):
        dict(reader.read(prompts, -2, b"another"))


def test_the_room_grows_with_a_conversation(full: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_FIRST_ROOM", 64)
    ids = tuple(np.random.default_rng(1).integers(1, 96, 900).tolist())
    prompt = Prompt(ids, False, (200, 700, 890), 10)
    reader = FixedPrefixReader(full)
    reader.read(SHORT)
    torch.testing.assert_close(reader.read(prompt)[-2], whole(full, prompt)[-2], atol=1e-5, rtol=0)
    torch.testing.assert_close(reader.read(LONG)[-2], whole(full, LONG)[-2], atol=1e-5, rtol=0)


def test_shapes_are_few(full: Any) -> None:
    shapes = set[tuple[int, ...]]()

    class Seen(Graphs):
        def __call__(self, size: int, *inputs: torch.Tensor) -> torch.Tensor:
            shapes.add((size, *inputs[0].shape))
            return super().__call__(size, *inputs)

    reader = FixedPrefixReader(full)
    reader._forward = Seen(reader._run, torch.device("cpu"))
    for length in range(20, 140, 8):
        reader.read(Prompt(IDS[:length], False, (length - 10,), 10))
    assert shapes == {(512, 1, 64), (512, 1, 128), (512, 1, 192)}


def test_few_prompts_are_read_one_by_one_and_many_together(full: Any) -> None:
    reader = AcceleratedReader(full, batches(full))
    few = dict(reader.read([SHORT, LONG], -2))
    assert reader.forwards < 1 + 2 * 10 / 100 + 80 / 160 + 0.1, "of the longer only what is new"
    many = [Prompt(IDS[: 30 + n], False, (20 + n,), 10) for n in range(TOGETHER)]
    before = reader.forwards
    found = dict(reader.read([*many, SHORT], -2))
    assert reader.forwards == before + TOGETHER + 1
    np.testing.assert_allclose(found[TOGETHER], few[0], atol=1e-5)
    for place, prompt in enumerate(many):
        np.testing.assert_allclose(found[place], whole(full, prompt)[-2], atol=1e-5)


class Short:
    """A model on a device that has room for so many tokens at once."""

    def __init__(self, model: Any, room: int, kind: str = "CUDA out of memory") -> None:
        self._model, self.room, self.kind, self.asked = model, room, kind, list[tuple[int, ...]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, input_ids: torch.Tensor, cache: Any = None, **more: Any) -> Any:
        self.asked.append(tuple(input_ids.shape))
        if input_ids.numel() > self.room:
            raise torch.OutOfMemoryError(self.kind) if "CUDA" in self.kind else RuntimeError(self.kind)
        return self._model(input_ids=input_ids, **({"cache": cache} if cache else {}), **more)


@pytest.mark.parametrize(
    "kind", ["CUDA out of memory", "MPS backend out of memory", "can't allocate memory: 9 TB"]
)
def test_a_batch_that_memory_does_not_hold_is_halved_and_said_once(
    full: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = [Prompt(IDS[n : n + 31], False, (31,)) for n in range(16)]
    expected = dict(batches(full).read(prompts, -2))
    short = Short(full, 4 * 32, kind)
    reader = batches(short, small=False)
    found = dict(reader.read(prompts, -2))
    for place, state in expected.items():
        np.testing.assert_allclose(found[place], state, atol=1e-5)
    assert caplog.messages == [
        "The encoder ran out of memory on the CPU: it reads less at a time from here on."
    ]
    short.asked.clear()
    list(reader.read(prompts, -2))
    assert {rows for rows, _ in short.asked} == {4}, "later batches are smaller from the beginning"
    short.room = 31
    with pytest.raises(
        CheckpointError, match="not enough memory on the CPU for the encoder to read 32 tokens"
    ):
        list(reader.read(prompts, -2))


def test_each_model_says_once_that_memory_ran_out(caplog: pytest.LogCaptureFixture) -> None:
    def read() -> int:
        if faults:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 1

    def spare() -> bool:
        return bool(faults.pop())

    for _ in range(20):  # each may lie where one before it lay
        model, faults = Short(SimpleNamespace(device=torch.device("cpu")), 0), [1, 1]
        assert within_memory(read, spare, 32, model) == 1
        del model
        gc.collect()
    assert len(caplog.messages) == 20


def test_remembered_parts_are_given_up_for_what_is_read_now(
    full: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(PrefixReader):
        def read_part(self, *given: Any) -> Any:
            if self.parts.bytes > held:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().read_part(*given)

    reader, held = Full(full), 10**9
    reader.read(OTHER)
    reader.read(SHORT)
    held = reader.parts.bytes - 1
    torch.testing.assert_close(reader.read(LONG)[-2], whole(full, LONG)[-2], atol=1e-5, rtol=0)
    assert reader.remembered(OTHER) == 1, "what the two have in common is still there"
    assert reader.parts.budget == PREFIX_BYTES // 2, "what did not fit is not collected again"
    assert len(caplog.messages) == 1
    held = -1
    with pytest.raises(CheckpointError, match="not enough memory"):
        reader.read(Prompt(IDS, False, (50, 150), 10))
