"""Live with recorded models: the questions of their outcome table are offered, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.episode import EndReason
from storage.store import Store
from tests.core.outcomes.tables import small_table
from tests.ui.pages import opened, press, shown
from tests.ui.sums import Sums
from ui.runs import wiring
from ui.runs.worker import play_claimed
from ui.web.live.form import searched


def test_a_question_is_found_by_its_words_its_id_and_its_number(tmp_path: Path) -> None:
    tasks = small_table(tmp_path).tasks
    assert [*searched(tasks, "question 1 OF")] == [tasks[1]]
    assert [*searched(tasks, tasks[4].id)] == [tasks[4]]
    assert [*searched(tasks, "#2")] == [tasks[1]]
    assert [*searched(tasks, "#99")] == []
    assert len(searched(tasks, "")) == len(tasks)


@pytest.mark.integration
@pytest.mark.usefixtures("no_workers")
def test_a_tables_question_is_played_and_says_that_it_was_recorded(
    world: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = small_table(wiring.data_folder())
    monkeypatch.setenv("TRINITY_POOL", "outcomes:small")
    page = opened("live")
    assert not page.exception
    said = shown(page)
    assert "they gave their replies once, to the 60 questions of the outcome table small" in said
    assert "No model is called: their replies are recorded." in said
    assert "problem_kind" not in {one.key for one in page.button_group}, "no question of one's own"
    assert not [one for one in page.number_input if one.label == "Temperature"]
    assert page.selectbox(key="live_file_task").value == table.tasks[0].id
    page.selectbox(key="policy_choice").select("single:ann").run()
    run = press(page, "play").query_params["run"]
    assert play_claimed(store, run) == 0
    [played] = store.episodes.of_run(run)
    assert (played.answer, played.correct, played.end_reason) == ("A", True, EndReason.ACCEPTED)
    turns = shown(opened("replay", ep=played.id, t="2")).replace("\\", "")
    assert "Recorded, from the outcome table small@" in turns
    assert (
        "saw nothing of this episode. The verdict comes of comparing two recorded answers: its own (A) is"
        in turns
    )
