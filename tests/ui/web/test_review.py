"""Review and labels: a queue worked through by button, form and command, blind first, and nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.errors import ConfigError
from storage.filters.episode_filter import EpisodeFilter
from storage.shelves.labels import Place, find_span
from storage.store import Store, open_store
from tests.builders.stores import copy_store
from tests.hostile import HOSTILE
from tests.ui.pages import app, assert_literal, opened, opened_in, press, shown
from tests.ui.sums import Sums
from ui.runs.wiring import login

pytestmark = pytest.mark.integration
QUEUE = {"family": "user", "order": "oldest"}  # eight episodes of the hostile tasks


@pytest.fixture
def mine(samples: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A copy of the samples, to write labels into."""
    path = tmp_path / "trinity.db"
    copy_store(samples.engine.url.database or "", path)
    monkeypatch.setenv("TRINITY_STORE", str(path))
    opened_store = open_store(path)
    yield opened_store
    opened_store.close()


def queue(store: Store) -> list[str]:
    return [one.id for one in store.episodes.page(EpisodeFilter(family="user"), order="oldest").items]


def here(page: AppTest) -> str:
    return str(page.query_params["ep"])


def test_a_queue_is_worked_through_blind_and_survives_a_reload(mine: Store) -> None:
    ids = queue(mine)
    page = opened("review", blind="1", **QUEUE)
    assert here(page) == ids[0]
    told = page.get("progress")[0].proto.text
    assert "have labelled **0 of 8**" in told
    assert "family user; live plays too, forks left out" in told.replace("\\", "")
    assert "1st in the queue" in shown(page)
    assert "attach a label of one word" in shown(page)
    assert "expected **" not in shown(page)
    assert "Open in Replay" not in shown(page)
    press(page, "quick_label_2")
    assert "expected **" in shown(page), "once it is judged, the outcome shows"
    assert [(one.name, one.value, one.author) for one in mine.labels.of(ids[0])] == [
        ("quality", "bad", login())
    ]
    press(page, "review_next")
    assert here(page) == ids[1]
    press(page, "queue_next")
    press(page, "review_back")
    assert here(page) == ids[1], "past the labelled one there is none before"
    press(page, "go_on")
    press(page, "quick_label_1")
    assert (here(page), page.query_params["on"]) == (ids[2], "1")
    press(page, "review_undo")
    assert here(page) == ids[1]
    assert mine.labels.of(ids[1]) == ()
    assert [one.value for one in mine.labels.history(ids[1])] == ["good", ""]

    again = opened("review", **QUEUE)  # another tab, or the same after a reload
    assert here(again) == ids[1]
    press(again, "quick_label_1")
    press(again, "quick_label_2")
    assert [one.value for one in mine.labels.of(ids[1])] == ["bad"]
    press(again, "review_undo")
    assert [one.value for one in mine.labels.of(ids[1])] == ["good"], "what it replaced counts again"
    press(again, "quick_label_1")
    assert mine.labels.of(ids[1]) == (), "the same label once more withdraws it"
    for one in ids[1:]:
        mine.labels.add(Place(one), "quality", "good", author=login())
    done = opened("review", **QUEUE)
    assert "every episode of this queue" in done.success[0].value
    press(done, "again")
    assert here(done) == ids[0]
    assert_literal(done)


def test_two_reviewers_are_told_apart_and_compared(mine: Store) -> None:
    ids = queue(mine)
    for i, one in enumerate(ids):
        mine.labels.add(Place(one), "quality", "good" if i < 5 else "bad", author="ann <b>")
    page = opened("review", **QUEUE)
    assert "ann" in shown(page), "what others said"
    page.text_input(key="label_author").set_value("  ben ").run()
    for one in ids[:2]:
        press(page, "quick_label_1")
        press(page, "review_next")
        assert [label.value for label in mine.labels.of(one) if label.author == "ben"] == ["good"]
    for i, one in enumerate(ids[2:], start=2):
        mine.labels.add(Place(one), "quality", "good" if i in (2, 5) else "bad", author="ben")
    said = shown(page.run())
    assert "Cohen's kappa **0.25**, 95 % interval" in said
    assert "| **bad** | 2 | 1 |" in said
    assert "| **good** | 2 | 3 |" in said
    assert len([link for link in page.page_link if "good / bad" in link.value.replace("\\", "")]) == 2
    assert_literal(page)
    opened_in(page, "settings", part="you")
    assert page.text_input(key="settings_author").value == "ben", "kept for the tab"


def test_states_of_a_review(mine: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "holds no episode" in shown(opened("review", family="none such"))
    stale = opened("review", ep="e-gone")
    assert "This view cannot be shown" in shown(stale)
    outside = next(one.id for one in mine.episodes.page().items if one.family != "user")
    assert "Not in this queue" in shown(opened("review", ep=outside, **QUEUE))
    saved = mine.views.add("strange tasks", {"family": "user", "order": "oldest"})
    by_view = opened("review", view=saved.id)
    assert (here(by_view), "of 8**" in by_view.get("progress")[0].proto.text) == (queue(mine)[0], True)
    assert "so it is not blind" in shown(opened("review", blind="1", correct="wrong"))
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "empty.db"))
    assert "nothing to review" in shown(opened("review"))


def test_the_panel_labels_a_turn_and_words_of_it(mine: Store) -> None:
    one = queue(mine)[0]
    reply = mine.episodes.text(one, 1).reply
    page = opened("replay", ep=one, t="2")
    assert not page.text_area
    press(page, "label_toggle")
    assert page.query_params["labels"] == "open"
    press(page, "quick_label_3")
    page.selectbox(key="label_name").set_value("note")
    page.text_area(key="label_note").set_value(f"look: {HOSTILE[0]}")
    page.text_input(key="label_quote").set_value("words that nobody said")
    press(page, "label_add")
    assert "reply does not contain these words" in page.toast[0].value
    assert page.text_area(key="label_note").value, "nothing typed is lost"
    page.text_input(key="label_quote").set_value("  ".join(reply.split()[:2]))
    press(page, "label_add")
    assert page.text_area(key="label_note").value == ""
    first, second = mine.labels.of(one)
    assert (first.place, first.name, first.value) == (Place(one, 1), "verdict", "wrong")
    assert second.place.span is not None
    assert second.quote == reply[slice(*second.place.span)]
    assert HOSTILE[0] in shown(page)
    assert_literal(page)
    press(page, "withdraw_0")
    assert [label.name for label in mine.labels.of(one)] == ["note"]
    assert "verdict withdrawn" in shown(page)
    page.segmented_control(key="label_about").set_value("episode").run()
    press(page, "quick_label_1")
    assert mine.labels.of(one)[-1].place == Place(one)
    press(page, "label_toggle")
    assert "labels" not in page.query_params


def test_quoted_words_are_found_whatever_the_spaces() -> None:
    assert find_span("so  the\nsum is 4", "the sum") == (4, 11)
    for quote, said in (("x", "2 times"), ("y", "does not contain"), ("  ", "does not contain")):
        with pytest.raises(ConfigError, match=said):
            find_span("x and x", quote)


def test_labels_on_the_command_line(mine: Store, world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINITY_STORE", mine.url)
    monkeypatch.setenv("TRINITY_LABELS", "style=terse, style=wordy")
    one, two = queue(mine)[:2]
    reply = mine.episodes.text(one, 0).reply
    named = ("--turn", 1, "--quote", reply.split()[0], "--note", "why", "--author", "ann")
    assert world.trinity("label", one, "quality=good", "cause=luck", *named).code == 0
    first, _ = mine.labels.of(one)
    assert (first.place.index, first.quote, first.note) == (0, reply.split()[0], "why")
    said = world.trinity("labels", one, "--json").json
    assert {label["turn"] for label in said["labels"]} == {1}  # as --turn counts
    for author, value in (("ann", "good"), ("ben", "bad")):
        world.trinity("label", two, f"quality={value}", "--author", author)
    assert world.trinity("label", two, "quality=", "--author", "ben").code == 0
    report = world.trinity("labels", "--json").json
    assert [(name["name"], name["episodes"]) for name in report["names"]] == [("quality", 2), ("cause", 1)]
    assert "quality=bad" in world.trinity("labels", two).out
    assert world.trinity("labels", "--agreement", "quality", "--json").json["pairs"] == []
    for arguments, said in (
        (("label", one, "good"), "write NAME=VALUE"),
        (("label", one, "a=b", "c="), "could be withdrawn"),
        (("label", one, "a=b", "--quote", "x"), "needs --turn"),
        (("label", "e-gone", "a=b"), "no episode e-gone"),
        (("labels", one, "--agreement", "quality"), "not for both"),
    ):
        result = world.trinity(*arguments)
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert said in result.err
    assert {label.name for label in mine.labels.history(one)} == {"quality", "cause"}, "all or nothing"
    page = opened_in(app(), "review")
    assert page.button(key="quick_label_1").label == r"style\: terse"
    monkeypatch.setenv("TRINITY_LABELS", "good")
    assert "must list 1 to 9 labels" in world.trinity("labels").err
