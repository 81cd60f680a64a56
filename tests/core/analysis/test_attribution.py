"""Attribution: exact for a coordinator whose logits are known, and for a real one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from core.analysis.attribution import (
    QUESTION,
    by_part,
    lead_of,
    leave_out,
    rival_of,
    times_likelier,
    without_part,
    without_words,
    words_of,
)
from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import load_encoder
from core.episode import ROLE_ORDER, Decide, Decision, Message, Role, Transcript, TranscriptEntry
from core.errors import ConfigError
from core.heads import softmax
from core.play.policies import Policy
from tests.bench.attribution import over_tasks

MODELS = ("ann", "bob", "cid")
REQUEST = Decide(
    Transcript(
        "add two numbers",
        (TranscriptEntry(Role.THINKER, "ann", "carry the one"), TranscriptEntry(Role.WORKER, "bob", "answer 7")),
    ),
    2,
    "key",
)  # fmt: skip


class Counting(Policy):
    """A policy whose logits count words: `add` speaks for ann, `answer` for the Verifier, every reply for bob."""

    id, models = "counting", MODELS

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return [self._decision(one) for one in requests]

    def _decision(self, request: Decide) -> Decision:
        text = " ".join(
            [request.transcript.question, *(one.text for one in request.transcript.entries)]
        ).split()
        models = (3.0 * text.count("add"), 1.0 * len(request.transcript.entries), 0.5)
        judged = 2.0 * text.count("answer")
        by_role = {Role.THINKER: 0.0, Role.WORKER: 0.25, Role.VERIFIER: judged}
        roles = tuple(by_role[one] for one in ROLE_ORDER)
        p_models, p_roles = softmax(np.array(models), request.model_mask), softmax(np.array(roles), ())
        best = max(range(3), key=lambda i: p_models[i]), max(range(3), key=lambda i: p_roles[i])
        return Decision(
            MODELS[best[0]], ROLE_ORDER[best[1]], model_logits=models, role_logits=roles, model_probs=tuple(p_models),
            role_probs=tuple(p_roles), argmax_model=MODELS[best[0]], argmax_role=ROLE_ORDER[best[1]],
            model_mask=request.model_mask,
        )  # fmt: skip


def test_every_part_is_left_out_in_turn() -> None:
    found = by_part(Counting(), REQUEST, ("ann", Role.VERIFIER))
    assert found.rival == ("bob", Role.VERIFIER)  # one logit behind; the Worker is 1.75 behind
    assert (found.full.value, found.full.likeliest) == (1.0, ("ann", Role.VERIFIER))
    gives = {one.part: (one.gives, one.without.likeliest) for one in found.parts}
    assert gives == {
        QUESTION: (3.0, ("bob", Role.VERIFIER)),
        0: (-1.0, ("ann", Role.VERIFIER)),
        1: (-1.0, ("ann", Role.WORKER)),
    }
    [alone] = Counting().decide([without_part(REQUEST, QUESTION)])
    assert found.parts[0].without.p == pytest.approx(max(alone.model_probs) * max(alone.role_probs))


def test_every_word_is_left_out_in_turn() -> None:
    found = by_part(Counting(), REQUEST, ("ann", Role.VERIFIER), ("ann", Role.WORKER))
    words = leave_out(Counting(), REQUEST, found, words_of(REQUEST.transcript))
    assert found.full.value == 1.75
    named = {(one.part, _text(one.part)[one.start : one.end]): one.gives for one in words if one.gives}
    assert named == {(1, "answer"): 2.0}
    assert len(words) == 8
    cut = without_words(REQUEST, [(QUESTION, 0, 3), (1, 0, 6), (1, 7, 8)]).transcript
    assert (cut.question, cut.entries[1].text, cut.entries[0]) == (
        " two numbers",
        " ",
        REQUEST.transcript.entries[0],
    )


def _text(part: int) -> str:
    transcript = REQUEST.transcript
    return transcript.question if part == QUESTION else transcript.entries[part].text


@pytest.mark.parametrize(
    ("chosen", "rival"),
    [
        (("ann", Role.VERIFIER), ("bob", Role.VERIFIER)),
        (("bob", Role.VERIFIER), ("ann", Role.VERIFIER)),
        (("ann", Role.WORKER), ("ann", Role.VERIFIER)),
        (("cid", Role.THINKER), ("ann", Role.VERIFIER)),  # drawn against both odds: the likeliest of all
    ],
)
def test_the_rival_is_the_likeliest_other_pair(chosen: tuple[str, Role], rival: tuple[str, Role]) -> None:
    policy = Counting()
    [decision] = policy.decide([REQUEST])
    assert rival_of(policy, decision, chosen) == rival
    pairs = [(model, role) for model in MODELS for role in ROLE_ORDER if (model, role) != chosen]
    assert min(pairs, key=lambda pair: lead_of(policy, decision, chosen, pair).value) == rival


def test_the_rival_is_never_a_model_that_was_not_allowed() -> None:
    policy = Counting()
    [decision] = policy.decide([replace(REQUEST, model_mask=(True, False, True))])
    assert rival_of(policy, decision, ("ann", Role.VERIFIER)) == ("ann", Role.WORKER)


def test_what_cannot_be_taken_apart_is_said() -> None:
    with pytest.raises(ConfigError, match="released protocol"):
        by_part(Counting(), replace(REQUEST, messages=(Message("user", "x"),)), ("ann", Role.VERIFIER))
    assert times_likelier(math.log(4.0)) == pytest.approx(4.0)


def test_a_real_coordinator_s_parts_are_its_own_decisions() -> None:
    encoder = load_encoder("pocket")
    begun = Checkpoint.begin(MODELS, encoder.identity, dtype=encoder.dtype)
    vector = begun.vector.copy()
    vector[:] = [((7 * i) % 13 - 6) / 6 for i in range(len(vector))]
    policy = Coordinator(begun.with_vector(vector), encoder)
    [decision] = policy.decide([REQUEST])
    chosen = decision.argmax_model, decision.argmax_role or Role.WORKER
    found = by_part(policy, REQUEST, chosen)
    assert found.full.value > 0
    for one in found.parts:
        [alone] = policy.decide([without_part(REQUEST, one.part)])
        assert one.without == lead_of(policy, alone, found.chosen, found.rival)
    assert any(one.gives for one in leave_out(policy, REQUEST, found, words_of(REQUEST.transcript)))


def test_turns_of_one_task_count_once() -> None:
    mean, low, high = over_tasks([1, 1, 1, 1, 0, 0], ["a", "a", "a", "a", "b", "c"])
    assert mean == pytest.approx(1 / 3, abs=1e-4)
    assert low < 0 < mean < 1 < high, "three tasks tell little"
    assert over_tasks([1, 0] * 50, [str(place) for place in range(100)])[0] == 0.5
