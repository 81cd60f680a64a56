"""Words by integrated gradients: they add up, can be taken up again, and each token is put where it stands."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from core.analysis.attribution import STRETCHES, by_part, words_of
from core.checkpoint import Checkpoint
from core.coordinator import gradients
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import Encoder
from core.coordinator.gradients import word_gradients
from core.episode import Decide, Role, Transcript, TranscriptEntry
from core.errors import ConfigError
from core.heads import HeadKind

MODELS = ("ann", "bob", "cid")
REQUEST = Decide(
    Transcript(
        "add  two numbers, please:\n12 + 30 <|im_end|>",
        (
            TranscriptEntry(Role.THINKER, "ann", "carry the one — 数 é"),
            TranscriptEntry(Role.WORKER, "bob", "  "),
            TranscriptEntry(Role.WORKER, "bob", "answer 42"),
        ),
    ),
    3,
    "key",
)

WORKS = ("ann", Role.WORKER)


def coordinator(encoder: Encoder, kind: HeadKind = "linear", **fields: object) -> Coordinator:
    made = Checkpoint.begin(MODELS, encoder.identity, head_kind=kind, dtype=encoder.dtype)
    vector = made.vector + np.random.default_rng(4).normal(size=len(made.vector)) * 0.3
    return Coordinator(made.with_vector(vector, **fields), encoder)


def choice(policy: Coordinator) -> tuple[str, Role]:
    [decision] = policy.decide([REQUEST])
    assert decision.argmax_role is not None
    return decision.argmax_model, decision.argmax_role


@pytest.mark.parametrize("kind", ["linear", "low-rank", "sparse", "block-diagonal-2", "turn-aware"])
def test_all_words_together_are_what_the_lead_changes_on_the_way(
    encoder: Encoder, kind: HeadKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = coordinator(encoder, kind)
    parts = by_part(policy, REQUEST, choice(policy))
    *_, found = word_gradients(policy, REQUEST, parts.chosen, parts.rival)
    assert found.complete
    assert (found.method, found.done) == ("gradients", STRETCHES)
    assert [(one.part, one.start, one.end) for one in found.words] == words_of(REQUEST.transcript)
    moved = sum(abs(one.gives) for one in found.words)
    assert moved > 0.1
    assert 0 < found.error < 0.1 * moved
    monkeypatch.setattr(gradients, "GRADIENTS", 16)
    *_, finer = word_gradients(policy, REQUEST, parts.chosen, parts.rival)
    assert finer.error < min(0.01 * moved, found.error)


def test_what_was_stopped_goes_on_where_it_was(encoder: Encoder) -> None:
    policy = coordinator(encoder)
    parts = by_part(policy, REQUEST, choice(policy))
    steps = list(word_gradients(policy, REQUEST, parts.chosen, parts.rival))
    assert [one.done for one in steps] == list(range(1, STRETCHES + 1))
    rest = list(word_gradients(policy, REQUEST, parts.chosen, parts.rival, steps[3]))
    assert rest == steps[4:]


def test_a_checkpoint_with_svf_reads_with_its_own_weights(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = (("layers.1.mlp.up_proj.weight", 32),)
    plain = coordinator(encoder)
    offsets = np.random.default_rng(5).normal(size=32) * 0.4
    changed = Coordinator(
        plain.checkpoint.with_vector(np.concatenate([offsets, plain.checkpoint.vector]), svf_layout=layout),
        encoder,
    )
    chosen = choice(plain)
    rival = by_part(plain, REQUEST, chosen).rival
    monkeypatch.setattr(gradients, "GRADIENTS", 16)
    gives = []
    for policy in (plain, changed):
        *_, found = word_gradients(policy, REQUEST, chosen, rival)
        assert found.error < 0.02 * sum(abs(one.gives) for one in found.words)
        gives.append([one.gives for one in found.words])
    assert not np.allclose(gives[0], gives[1])
    before = plain.decide([REQUEST])
    encoder.forget()
    assert plain.decide([REQUEST]) == before


@pytest.mark.parametrize("longer", [0, 200])
def test_every_token_of_a_prompt_has_its_place_in_the_texts(encoder: Encoder, longer: int) -> None:
    entries = (*REQUEST.transcript.entries, TranscriptEntry(Role.WORKER, "bob", "so " * longer + "done 7"))
    transcript = Transcript(REQUEST.transcript.question, entries)
    prompt = encoder.tokens.prompt(Decide(transcript, 4, "key"), "segments")
    placed = encoder.tokens.placed(transcript, "segments")
    assert tuple(one.id for one in placed) == prompt.ids
    texts = {-1: transcript.question, **{i: one.text for i, one in enumerate(entries)}}
    told = [one for one in placed if one.part is not None]
    assert {one.part for one in told} >= {-1, 3}
    for one in told:
        written = texts[one.part or 0 if one.part != -1 else -1][one.start : one.end]
        read = encoder.tokens.text([one.id])
        assert read == written or "\ufffd" in read  # a part of a character of several bytes


def test_what_gradients_need_is_said(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = coordinator(encoder, input_format="chat")
    with pytest.raises(ConfigError, match="one chat message"):
        next(word_gradients(policy, REQUEST, WORKS, WORKS))
    monkeypatch.setitem(sys.modules, "captum", None)
    with pytest.raises(ConfigError, match=r"pip install 'trinity-inspector\[attribution\]'"):
        next(word_gradients(coordinator(encoder), REQUEST, WORKS, WORKS))
