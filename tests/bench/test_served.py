"""What is tuned and served, measured against the best single model, on a small scale."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.bench import served
from tests.bench.served import Seen

pytestmark = pytest.mark.usefixtures("forked_servers")


@pytest.mark.process
def test_local_models_are_tuned_served_and_compared() -> None:
    found = served.measure(questions=4, validation=20, episodes=0, each=15, per_second=200.0)
    assert found["chosen"] in found["validation"]
    assert found["single"] in {one.removeprefix("single:") for one in found["validation"]}
    for side in ("direct", *served.TIERS):
        assert (found[side]["n"], found[side]["failed"]) == (4, 0)
        assert found[side]["not_a_reply_of_a_model"] == 0
        assert found[side]["usd_mean"] > 0
    assert found["trinity"]["beside_direct"]["n"] == 4
    assert found["trinity"]["policy"] == found["chosen"]


@pytest.mark.process
def test_recorded_models_say_what_they_wrote(tmp_path: Path) -> None:
    """Of two models one knows law and one knows physics; a head that reads the questions beats both."""
    for model, knows in (("ann", "law"), ("bob", "physics")):
        rows = [_row(number, knows) for number in range(240)]
        with zipfile.ZipFile(tmp_path / f"model_outputs_{model}_5shots.zip", "w") as file:
            file.writestr(f"{model}.json", json.dumps(rows))
    found = served.measure(str(tmp_path), questions=10, validation=30, episodes=0, tasks=0)
    assert not found["chosen"].startswith("single:")
    assert found["trinity"]["accuracy"] == 1.0 > found["direct"]["accuracy"]
    assert found["trinity"]["answered_by"].keys() == {"ann", "bob"}
    assert found["trinity"]["not_a_reply_of_a_model"] == 0
    assert found["trinity"]["usd_mean"] == pytest.approx(found["direct"]["usd_mean"], rel=0.2)


def _row(number: int, knows: str) -> dict[str, object]:
    family = "law" if number % 2 else "physics"
    words = "may a court hear" if family == "law" else "how fast falls"
    letter = "A" if family == knows else "B"
    return {
        "question_id": number,
        "question": f"By {family}, {words} case {number}?",
        "options": ["yes", "no", "never"],
        "answer": "A",
        "answer_index": 0,
        "category": family,
        "pred": letter,
        "model_outputs": f"Case {number}: the answer is ({letter}).",
    }


def test_without_the_published_files_nothing_is_measured(tmp_path: Path) -> None:
    assert "holds no model_outputs_*.zip" in served.measure(str(tmp_path))["skipped"]


def test_pairs_are_counted_by_what_each_side_solved() -> None:
    right = {"a": True, "b": False}
    direct, tier = ([Seen(text, 1.0) for text in texts] for texts in ("aabb", "abbx"))
    found = served._compared("1234", direct, {"t": tier}, lambda _, text: right.get(text))
    assert (found["direct"]["accuracy"], found["t"]["accuracy"]) == (0.5, 0.25)
    assert (found["t"]["beside_direct"]["difference"], found["t"]["not_a_reply_of_a_model"]) == (-0.25, 1)
