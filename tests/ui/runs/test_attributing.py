"""What made a choice, worked out by a worker: stopped and gone on with, by leaving out and by gradients."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from core.analysis.attribution import Attribution, WordAttribution, by_part, leave_out, words_of
from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.episode import Decision, Episode, Message, Removable, Role
from core.errors import CheckpointError, ConfigError, TrinityError
from core.play.session import request_at
from core.tokens.files import encoder_size
from storage.rows.summaries import RunStatus
from storage.shelves.attributions import AttributedTurn, Attributions
from storage.store import Store
from tests.builders.diffed import DIFFED, Diffed
from ui.runs import reading
from ui.runs.lease import owner
from ui.runs.plans import AttributionPlan
from ui.runs.play import Stopped
from ui.runs.queue import Ticket, enqueue
from ui.runs.reading import ExplainedTurn, Explanation, explained_turn, kept_explanation, read_turn
from ui.runs.wiring import data_folder, remember_encoder
from ui.runs.worker import play_claimed


@pytest.fixture(autouse=True)
def found(diffed: Diffed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has loaded the encoder before, and so knows where it lies."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    remember_encoder(diffed.encoder, data_folder())


def played(diffed: Diffed, turns: int = 3) -> Episode:
    """An episode of the first checkpoint with so many turns at least."""
    ids = [one.id for one in diffed.store.episodes.of_run(DIFFED) if one.policy == diffed.a.id]
    return next(one for one in map(diffed.store.episodes.get, ids) if len(one.turns) >= turns)


def found_for(diffed: Diffed, plan: AttributionPlan, name: str) -> Explanation:
    return kept_explanation(diffed.store, read_turn(diffed.store, plan.episode, plan.index, name))


def explain_at(
    episode: Episode, index: int, one: Checkpoint, encoder: str | None = None, store: Store | None = None
) -> ExplainedTurn:
    return explained_turn(episode, index, episode.turns[index].decision, one, encoder, store)


@pytest.mark.integration
def test_a_stopped_run_goes_on_and_finds_what_leaving_out_finds(
    diffed: Diffed, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, episode = diffed.store, played(diffed)
    plan = AttributionPlan(episode.id, 1, (diffed.a.id, diffed.b.id), "why?")
    run, fresh = enqueue(store, plan, Ticket())
    assert (fresh, enqueue(store, plan, Ticket())) == (True, (run, False))
    assert store.runs.claim(run, owner())
    steps = reading.AttributionParts(plan).play(store, run)
    assert next(steps).words is None
    told = next(steps)
    assert isinstance(told, Explanation)
    assert told.words is not None
    assert 0 < told.words.done == len(told.words.words) <= reading.WORDS_AT_ONCE < told.words.steps
    store.runs.cancel(run)
    with pytest.raises(Stopped):
        next(steps)
    store.runs.finish(run, RunStatus.INTERRUPTED, owner=owner())
    kept, add = [], Attributions.add

    def noted(shelf: Attributions, of: AttributedTurn, found: Attribution | WordAttribution) -> None:
        kept.append(type(found))
        add(shelf, of, found)

    monkeypatch.setattr(Attributions, "add", noted)
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    assert kept.count(Attribution) == 1  # of the second checkpoint: that of the first was there
    for checkpoint in (diffed.a, diffed.b):
        found = found_for(diffed, plan, checkpoint.id)
        turn = explain_at(episode, 1, checkpoint)
        policy = Coordinator(checkpoint, diffed.encoder)
        assert found.parts is not None
        assert found.words is not None
        assert found.parts == by_part(policy, turn.request, found.parts.chosen)
        places = words_of(turn.request.transcript)
        assert [*found.words.words] == leave_out(policy, turn.request, found.parts, places)
        assert found.words.complete
        assert found.complete(turn)
    decision = episode.turns[1].decision
    own = found_for(diffed, plan, diffed.a.id).parts
    assert own is not None
    assert own.chosen == (decision.model, decision.role)
    assert own.logits == pytest.approx((*decision.model_logits, *decision.role_logits), abs=1e-5)
    # Everything is kept: the next run has nothing to read.
    again, _ = enqueue(store, plan, Ticket())
    assert store.runs.claim(again, owner())
    assert list(reading.AttributionParts(plan).play(store, again)) == []


@pytest.mark.integration
def test_a_large_encoder_has_its_words_told_apart_by_gradients(
    diffed: Diffed, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, episode = diffed.store, played(diffed)
    monkeypatch.setattr(reading, "LARGE", encoder_size(str(diffed.encoder.folder)) - 1)
    plan = AttributionPlan(episode.id, 2, (diffed.svf.id,))
    assert explain_at(episode, 2, diffed.svf).takes_long
    run, _ = enqueue(store, plan, Ticket())
    assert play_claimed(store, run) == 0
    found = found_for(diffed, plan, diffed.svf.id).words
    assert found is not None
    assert found.complete
    assert found.method == "gradients"
    assert 0 < found.error < 0.2 * sum(abs(one.gives) for one in found.words)
    monkeypatch.setitem(sys.modules, "captum", None)
    other = explain_at(episode, 1, diffed.svf)
    assert "pip install 'trinity-inspector[attribution]'" in other.no_words
    run, _ = enqueue(store, AttributionPlan(episode.id, 1, (diffed.svf.id,)), Ticket())
    assert play_claimed(store, run) == 0  # the parts are worked out all the same
    left = kept_explanation(store, other)
    assert left.parts is not None
    assert left.words is None
    assert left.complete(other)


def test_the_masks_in_force_are_part_of_the_question(diffed: Diffed) -> None:
    episode = played(diffed)
    turn = episode.turns[1]
    masked = replace(turn.decision, model_mask=tuple(name != "jack" for name in episode.models))
    changed = with_decision(episode, 1, masked)
    plain, other = (explain_at(one, 1, diffed.b) for one in (episode, changed))
    assert other.request.model_mask == masked.model_mask
    assert plain.kept.digest != other.kept.digest
    policy = Coordinator(diffed.b, diffed.encoder)
    [decision] = policy.decide([other.request])
    assert decision.model_probs[episode.models.index("jack")] == 0


@pytest.mark.parametrize(
    ("origin", "pair"),
    [
        ("policy", ("pip", "thinker")),
        ("suggested_role", ("pip", "verifier")),
        ("override", ("sage", "verifier")),
    ],
)
def test_what_a_person_or_a_thinker_chose_is_not_explained_as_the_coordinators(
    diffed: Diffed, origin: Literal["policy", "suggested_role", "override"], pair: tuple[str, str]
) -> None:
    episode = played(diffed)
    made = replace(
        episode.turns[1].decision, model="pip", role=Role.THINKER, origin=origin,
        argmax_model="sage", argmax_role=Role.VERIFIER,
    )  # fmt: skip
    assert explain_at(with_decision(episode, 1, made), 1, diffed.a).chosen == pair


def with_decision(episode: Episode, index: int, decision: Decision) -> Episode:
    turns = [replace(one, decision=decision) if one.index == index else one for one in episode.turns]
    return replace(episode, turns=tuple(turns))


def test_what_cannot_be_explained_is_said_in_one_sentence(diffed: Diffed, tmp_path: Path) -> None:
    episode = played(diffed)
    removed: dict[Removable, str] = {"texts": "2026-01-01"}
    cases: list[tuple[Episode, Checkpoint, type[TrinityError], str]] = [
        (replace(episode, removed=removed), diffed.a, ConfigError, "removed on 2026-01-01"),
        (episode, diffed.stranger, ConfigError, "among other models"),
        (
            with_decision(episode, 1, Decision("jack", Role.WORKER)),
            diffed.a,
            ConfigError,
            "no encoder that reads",
        ),
    ]
    for one, checkpoint, error, words in cases:
        with pytest.raises(error, match=words):
            explain_at(one, 1, checkpoint)
    (tmp_path / "trinity-inspector" / "encoders.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=f"'{diffed.a.encoder.name}' of checkpoint {diffed.a.id} is a folder"
    ):
        explain_at(episode, 1, diffed.a)
    folder = str(diffed.encoder.folder)
    assert explain_at(episode, 1, diffed.a, folder).encoder == folder
    assert explain_at(episode, 1, diffed.a, store=diffed.store).encoder == folder, "as its run names it"
    with pytest.raises(CheckpointError, match="models--no--such"):
        encoder_size("no/such")
    assert encoder_size("pocket") == 430_896


def test_the_chat_of_the_released_rules_is_not_taken_apart(
    diffed: Diffed, monkeypatch: pytest.MonkeyPatch
) -> None:
    episode = played(diffed)
    chat = replace(request_at(episode, 1), messages=(Message("user", "x"),))
    monkeypatch.setattr(reading, "request_at", lambda *_: chat)
    with pytest.raises(ConfigError, match="chat of the released protocol"):
        explain_at(episode, 1, replace(diffed.a, input_format="chat"))
    assert explain_at(episode, 1, diffed.a).request.messages == ()  # it reads the transcript all the same
