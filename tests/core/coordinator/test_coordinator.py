"""The coordinator: whole decisions, keyed sampling, masks, populations, refusal of what does not fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from core.checkpoint import Checkpoint, EncoderIdentity
from core.coordinator.coordinator import Coordinator, Population, check_fits
from core.coordinator.encoder import Encoder, load_encoder
from core.coordinator.svf import svf_layout
from core.episode import ROLE_ORDER, Decide, Message, Role, Transcript, TranscriptEntry
from core.errors import CheckpointError, ConfigError
from core.heads import HeadKind
from core.play.policies import Policy
from tests.builders.encoder import tiny_qwen3

MODELS = ("ada", "bob", "cyd", "dan")
SPREAD = 0.3  # of the head's numbers: logits of about one unit on states of norm 5.7


@pytest.fixture(scope="module")
def checkpoint(encoder: Encoder) -> Checkpoint:
    vector = np.random.default_rng(0).normal(size=7 * 32, scale=SPREAD)
    return Checkpoint.begin(MODELS, encoder.identity).with_vector(vector, generation=1, kind="evolved")


def requests(n: int) -> list[Decide]:
    entry = TranscriptEntry(Role.WORKER, "ada", "answer 4")
    return [
        Decide(
            Transcript(f"What is {i % 10}+2?", (entry,) * (i % 3)),
            i % 3,
            f"7/t{i}/{i % 3}",
            episode_id=f"e{i}",
        )
        for i in range(n)
    ]


def test_a_decision_tells_everything(encoder: Encoder, checkpoint: Checkpoint) -> None:
    policy = Coordinator(checkpoint, encoder)
    assert isinstance(policy, Policy)
    assert (policy.id, policy.models) == (checkpoint.id, MODELS)
    request = requests(3)[2]
    decision = policy.decide([request])[0]
    state = encoder.encode([request]).states[0]
    z = checkpoint.head.arrays(checkpoint.head_vector)["weight"] @ state
    np.testing.assert_allclose([*decision.model_logits, *decision.role_logits], z, atol=1e-5)
    for logits, probs in (
        (decision.model_logits, decision.model_probs),
        (decision.role_logits, decision.role_probs),
    ):
        np.testing.assert_allclose(probs, np.exp(logits) / np.exp(logits).sum(), atol=1e-12)
    assert decision.argmax_model == MODELS[int(np.argmax(decision.model_logits))]
    assert decision.argmax_role is ROLE_ORDER[int(np.argmax(decision.role_logits))]
    assert decision.sampled
    assert (decision.model_mask, decision.role_mask) == ((True,) * 4, (True,) * 3)
    np.testing.assert_allclose(np.frombuffer(decision.hidden_state, "<f2"), state, rtol=1e-3, atol=1e-6)
    prompt = encoder.tokens.prompt(request, "segments")
    assert (decision.prompt_digest, decision.prompt_tokens) == (prompt.digest, len(prompt.ids))
    assert not decision.prompt_overflow
    assert decision.origin == "policy"


def test_the_key_alone_decides_the_draw(encoder: Encoder, checkpoint: Checkpoint) -> None:
    policy = Coordinator(checkpoint, encoder)
    some = requests(40)
    decisions = policy.decide(some)
    assert policy.decide(some) == decisions
    assert [policy.decide([one])[0] for one in reversed(some)] == decisions[::-1]
    assert len({decision.model for decision in decisions}) > 1
    same_key = [replace(one, key="k") for one in some if one.transcript == some[0].transcript]
    assert len({decision.model for decision in policy.decide(same_key)}) == 1


def test_draws_follow_the_probabilities(encoder: Encoder, checkpoint: Checkpoint) -> None:
    one = requests(1)[0]
    decisions = Coordinator(checkpoint, encoder).decide([replace(one, key=f"k{i}") for i in range(4000)])
    pairs = Counter((decision.model, decision.role) for decision in decisions)
    for i, model in enumerate(MODELS):
        for j, role in enumerate(ROLE_ORDER):  # model and role are independent
            expected = decisions[0].model_probs[i] * decisions[0].role_probs[j]
            assert pairs[model, role] / 4000 == pytest.approx(expected, abs=0.03)


def test_argmax_takes_the_best_of_each(encoder: Encoder, checkpoint: Checkpoint) -> None:
    for decision in Coordinator(checkpoint, encoder, argmax=True).decide(requests(20)):
        assert (decision.model, decision.role) == (decision.argmax_model, decision.argmax_role)
        assert not decision.sampled


def test_a_masked_slot_is_never_chosen(encoder: Encoder, checkpoint: Checkpoint) -> None:
    mask, roles = (False, True, False, True), (True, False, True)
    masked = [replace(one, model_mask=mask, role_mask=roles) for one in requests(60)]
    for policy in (Coordinator(checkpoint, encoder), Coordinator(checkpoint, encoder, argmax=True)):
        for decision in policy.decide(masked):
            assert decision.model in ("bob", "dan")
            assert decision.role is not Role.THINKER
            assert decision.argmax_model in ("bob", "dan")
            assert decision.model_probs[0] == decision.model_probs[2] == decision.role_probs[1] == 0
            assert (decision.model_mask, decision.role_mask) == (mask, roles)
            assert decision.model_logits[0] != 0  # the logits are kept as they were
    with pytest.raises(ConfigError, match="Every choice is masked"):
        Coordinator(checkpoint, encoder).decide([replace(masked[0], model_mask=(False,) * 4)])


def test_zeros_choose_evenly(encoder: Encoder) -> None:
    start = Checkpoint.begin(MODELS, encoder.identity)
    decision = Coordinator(start, encoder).decide(requests(1))[0]
    assert decision.model_probs == (0.25,) * 4
    assert decision.role_probs == pytest.approx((1 / 3,) * 3)


def test_a_chat_checkpoint_reads_the_messages(encoder: Encoder, checkpoint: Checkpoint) -> None:
    chat = checkpoint.with_vector(checkpoint.vector, input_format="chat")
    one = replace(requests(1)[0], messages=(Message("system", "Dispatch."), Message("user", "What?")))
    decision = Coordinator(chat, encoder).decide([one])[0]
    assert decision.prompt_digest == encoder.tokens.prompt(one, "chat").digest
    assert decision.model_logits != Coordinator(checkpoint, encoder).decide([one])[0].model_logits


@pytest.mark.parametrize("kind", get_args(HeadKind))
@pytest.mark.parametrize("svf", [False, True])
def test_a_population_decides_as_its_members_would(encoder: Encoder, kind: HeadKind, svf: bool) -> None:
    layout = svf_layout(encoder.model, [0]) if svf else ()
    start = Checkpoint.begin(MODELS, encoder.identity, head_kind=kind, svf_layout=layout)
    rng = np.random.default_rng(1)
    vectors = start.vector + rng.normal(size=(5, len(start.vector)), scale=SPREAD)
    vectors[:, : start.svf_size] = 0.1 * rng.normal(size=(5, start.svf_size))
    members = [Coordinator(start.with_vector(vector), encoder) for vector in vectors]
    some = requests(50)
    candidate_of = {request.episode_id: i % 5 for i, request in enumerate(some)}
    population = Population(start, vectors, encoder, candidate_of)
    assert isinstance(population, Policy)
    decided = population.decide(some)
    for member in range(5):
        assert decided[member::5] == members[member].decide(some[member::5])
    with pytest.raises(CheckpointError, match=f"vectors of {len(start.vector)} numbers"):
        Population(start, vectors[:, 1:], encoder, {})


def test_a_checkpoint_that_does_not_fit_is_refused_by_name(
    encoder: Encoder, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    check_fits(checkpoint, encoder, ("zoe", *MODELS))
    with pytest.raises(CheckpointError, match="this pool has no cyd, dan"):
        check_fits(checkpoint, encoder, ("ada", "bob"))
    other = load_encoder(tiny_qwen3(tmp_path / "other", seed=1))
    with pytest.raises(CheckpointError, match="other encoder weights"):
        Coordinator(checkpoint, other)
    wide = load_encoder(tiny_qwen3(tmp_path / "wide", hidden_size=64))
    with pytest.raises(CheckpointError, match="hidden states of 32 numbers .* gives 64"):
        Coordinator(checkpoint, wide)
    unknown = Checkpoint.begin(MODELS, EncoderIdentity("elsewhere", 32))
    with pytest.raises(CheckpointError, match="encoder elsewhere, not on"):
        Coordinator(unknown, encoder)
