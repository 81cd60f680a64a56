"""A planner's folder: what it says about itself, whom it refuses, and that its replies depend on their keys alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from core.conduct.reading import read_workflow
from core.conduct.session import Planner
from core.episode import EndReason, EpisodeFinished, WritePlan
from core.errors import CheckpointError
from core.outcomes.pool import RecordedPool
from core.planner.card import CARD_FILE, PlannerCard, read_card
from core.planner.forms import Shown
from core.planner.planner import LanguagePlanner
from core.play.drive import drive_many
from core.play.policies import new_episode
from core.tasks.graders import grade_many
from core.workflow import AccessMode, Workflow
from tests.core.outcomes.tables import Answered, small_table
from tests.core.planner.tiny import MODELS, TASKS, tiny_planner, tiny_pool, tiny_qwen2


def requests(n: int, allowed: tuple[int, ...] = (0, 1, 2)) -> list[WritePlan]:
    questions = [f"What is {number} plus {'one and ' * (number % 5)}two?" for number in range(n)]
    return [WritePlan((), question, allowed, f"key{place}") for place, question in enumerate(questions)]


def test_a_saved_planner_is_loaded_as_it_was(tmp_path: Path) -> None:
    planner: Planner = tiny_planner()
    assert isinstance(planner, LanguagePlanner)
    folder = planner.save(tmp_path / "planner")
    assert planner.save(folder) == folder  # again changes nothing
    found = LanguagePlanner.load(folder, MODELS)
    assert (found.id, found.card) == (planner.id, planner.card)
    assert found.id == f"conductor:{found.card.id}"
    assert len(found.card.id) == 11
    assert found.write(requests(6)) == planner.write(requests(6))
    assert {path.suffix for path in folder.iterdir()} <= {".json", ".safetensors", ".jinja"}
    with pytest.raises(CheckpointError, match="another planner or other files"):
        tiny_planner(seed=1).save(folder)


def test_a_reply_depends_on_its_key_and_not_on_its_neighbours() -> None:
    planner = tiny_planner()
    together = planner.write(requests(9))
    assert [planner.write([one])[0].text for one in requests(9)] == [reply.text for reply in together]
    assert len({reply.text for reply in together}) > 5


@pytest.mark.parametrize("allowed", [(0, 1, 2), (2,), (0, 2)])
def test_constrained_replies_are_workflows_of_the_models_that_may_be_named(allowed: tuple[int, ...]) -> None:
    planner = tiny_planner()
    for reply in planner.write(requests(20, allowed)):
        read = read_workflow(reply.text, allowed=allowed, mode=planner.mode)
        assert isinstance(read, Workflow), reply.text
    free = tiny_planner(constrained=False).write(requests(8, allowed))
    assert not any(isinstance(read_workflow(one.text, allowed=allowed), Workflow) for one in free)


def test_a_pool_with_other_models_or_in_another_order_is_refused(tmp_path: Path) -> None:
    folder = tiny_planner().save(tmp_path / "planner")
    for models in (("bob", "ann", "cid"), ("ann", "bob"), ("ann", "bob", "cid", "dan")):
        with pytest.raises(CheckpointError, match=r"was made for the models ann, bob, cid in this order"):
            LanguagePlanner.load(folder, models)


def test_damaged_folders_are_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = tiny_planner().save(tmp_path / "planner")
    stored = json.loads((folder / CARD_FILE).read_text())
    with pytest.raises(CheckpointError, match="no planner's folder"):
        LanguagePlanner.load(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="its conductor.json was changed"):
        PlannerCard.of({**stored, "models": ["eve", "bob", "cid"]})
    with pytest.raises(CheckpointError, match="format version 3"):
        PlannerCard.of({**stored, "version": 3})
    with pytest.raises(CheckpointError, match="not a planner's checkpoint"):
        PlannerCard.of({"format": "other"})
    with pytest.raises(CheckpointError, match="is damaged"):
        PlannerCard.of({**stored, "mode": "sideways"})
    weights = load_file(folder / "model.safetensors")
    name = min(weights)
    save_file({**weights, name: weights[name] + 1}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="do not match the digest"):
        LanguagePlanner.load(folder)
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        LanguagePlanner.load(folder)
    (folder / CARD_FILE).write_text("{")
    with pytest.raises(CheckpointError, match="no readable JSON"):
        read_card(folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"models": ("ann", "ann")},
        {"models": ()},
        {"most_steps": 6},
        {"most_tokens": 0},
        {"temperature": -1.0},
        {"mode": AccessMode.BINARY},
    ],
)
def test_a_card_that_contradicts_itself_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(CheckpointError):
        replace(PlannerCard(MODELS, "0"), **fields)  # type: ignore[arg-type]


def test_the_id_follows_from_what_the_card_says() -> None:
    card = PlannerCard(MODELS, "0" * 64)
    assert PlannerCard.of(json.loads(json.dumps(card.to_json()))) == card
    ids = {
        card.id,
        replace(card, iteration=1).id,
        replace(card, shown=Shown.IDS).id,
        replace(card, notes="x").id,
    }
    assert len(ids) == 4


def test_its_episodes_are_played_as_any_conductor_is() -> None:
    policy = tiny_planner()
    episodes = [
        new_episode("r1", place, task, policy, turns=5, seed=1, argmax=False)
        for place, task in enumerate(TASKS)
    ]
    played = [
        event.episode
        for event in drive_many(episodes, policy, tiny_pool(), grade_many, model_mask=(True, False, True))
        if isinstance(event, EpisodeFinished)
    ]
    assert len(played) == len(TASKS)
    assert {one.end_reason for one in played} == {EndReason.COMPLETED}
    assert {turn.decision.model for one in played for turn in one.turns} == {"ann", "cid"}


def test_what_it_writes_for_recorded_models_is_of_the_words_that_their_table_can_answer(
    tmp_path: Path,
) -> None:
    """Its subtasks are any text elsewhere; its probabilities are over what it may write, as it is learned from."""
    answers: dict[str, list[Answered]] = {"ann": ["A"] * 8, "bob": ["B"] * 8, "cid": ["A", "B"] * 4}
    table, policy = small_table(tmp_path, answers), tiny_qwen2().frozen(constrained=True)
    episodes = [
        new_episode("r1", place, task, policy, turns=5, seed=1, argmax=False)
        for place, task in enumerate(table.tasks)
    ]
    played = [
        event.episode
        for event in drive_many(episodes, policy, RecordedPool(table), grade_many)
        if isinstance(event, EpisodeFinished)
    ]
    assert {one.end_reason for one in played} == {EndReason.COMPLETED}
    steps = [turn.step for one in played for turn in one.turns]
    assert {one.subtask for one in steps if one is not None} <= {"solve", "check", "merge"}
    assert len(steps) > len(played), "some have two steps"
    words = ("solve", "check", "merge")
    asked = [
        WritePlan(one.plans[0].messages, one.task.question, (0, 1, 2), one.id, 0, one.id, words)
        for one in played
    ]
    for written in policy.sample(asked, [one.key for one in asked]):
        own = policy.biases(written)[range(len(written.ids)), list(written.ids)]
        assert own.tolist() == [0.0] * len(written.ids)


def test_the_short_form_knows_one_round() -> None:
    planner = tiny_planner()
    with pytest.raises(CheckpointError, match="one round only"):
        LanguagePlanner(planner.card, planner.model, planner.tokenizer, rounds=2)
