"""What a client says of an answer becomes a label of its episode, and a day's requests with feedback a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.outcomes.table import load_table
from tests.ui.endpoint.server import PRICES, Serve, Served, served, team
from tests.ui.pages import command
from ui.runs import wiring

FEEDBACK = "/v1/feedback"
pytestmark = pytest.mark.integration


def episode(answer: Any) -> str:
    return str(answer.model_extra["trinity"]["episode"])


def labels(one: Served, name: str) -> set[tuple[str, str, str, str]]:
    return {(said.name, said.value, said.note, said.author) for said in one.store.labels.of(name)}


def test_feedback_becomes_a_label_and_the_latest_counts(one: Served) -> None:
    answer = one.ask()
    status, told = one.post(FEEDBACK, {"episode": answer.id, "right": False, "note": "It is 43."})
    assert (status, told["episode"]) == (200, episode(answer))
    assert labels(one, episode(answer)) == {("feedback", "wrong", "It is 43.", "a client")}
    assert one.post(FEEDBACK, {"episode": episode(answer), "right": True, "score": 0.75})[0] == 200
    assert {said[:2] for said in labels(one, episode(answer))} == {
        ("feedback", "right"),
        ("feedback score", "0.75"),
    }


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"right": True}, 400, "'episode' is missing"),
        ({"episode": "HERE"}, 400, "says nothing"),
        ({"episode": "HERE", "score": 2}, 400, "'score' cannot be used"),
        ({"episode": "HERE", "right": "yes"}, 400, "'right' cannot be used"),
        ({"episode": "nobody-00001", "right": True}, 404, "no answer 'nobody-00001' of yours"),
        ({"episode": "HERE", "right": True, "thumbs": 1}, 400, "'thumbs' is not supported"),
    ],
)
def test_what_is_no_feedback_is_one_sentence(
    one: Served, body: dict[str, Any], status: int, said: str
) -> None:
    if body.get("episode") == "HERE":
        body = {**body, "episode": episode(one.ask())}
    found, told = one.post(FEEDBACK, body)
    assert found == status
    assert said in told["error"]["message"]


def test_nobody_judges_anothers_answer(serve: Serve) -> None:
    one = serve()
    mine, other = one.with_key(), one.with_key()
    answer = mine.ask()

    def says(key: Served | None) -> int:
        bearer = {} if key is None else {"Authorization": f"Bearer {key.client.api_key}"}
        return one.post(FEEDBACK, {"episode": episode(answer), "right": True}, **bearer)[0]

    assert (says(other), says(None)) == (404, 404)
    assert labels(one, episode(answer)) == set()
    assert says(mine) == 200
    assert {said[-1] for said in labels(one, episode(answer))} == {"limited"}


def test_a_days_requests_with_feedback_are_an_outcome_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with served(tmp_path, team(), models="ab", entry=PRICES) as one:
        monkeypatch.setenv("TRINITY_STORE", one.store.url)
        add = ["outcomes", "add", "today", "--served"]
        assert command(add) == 1
        assert "No request in that time has both its texts and feedback" in capsys.readouterr().err
        answers = [one.ask(f"How many are {n}?") for n in range(4)]
        feedback: list[dict[str, Any]] = [{"right": True}, {"right": False}, {"score": 0.25}]
        for answer, said in zip(answers, feedback, strict=False):
            assert one.post(FEEDBACK, {"episode": answer.id, **said})[0] == 200
        private = one.ask("Hush?", extra_body={"trinity": {"store_text": False}})
        assert one.post(FEEDBACK, {"episode": private.id, "right": True})[0] == 200
        assert command([*add, "--since", "2020-01-01"]) == 0
        assert command(["outcomes", "add", "never", "--served", "--since", "tomorrow"]) == 1
        assert "is not an age" in capsys.readouterr().err
    assert command(["outcomes", "add", "both", "file.csv", "--served"]) == 1
    table = load_table("today", wiring.data_folder())
    assert sorted(task.question for task in table.tasks) == [f"How many are {n}?" for n in range(3)]
    assert table.card.models == ("a",)
