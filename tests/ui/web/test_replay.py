"""The replay page: deep links, every key's button, every state of an episode, plain text, and its speed."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core.episode import Episode, Protocol, Role, Task
from core.errors import StoreError
from core.play.drive import drive
from core.play.policies import cycle_policy
from core.pool.spec import ModelSpec
from storage.recorder import record
from storage.shelves.labels import Place
from storage.store import Store, open_store
from tests.builders.play import grade
from tests.builders.pools import ScriptedPool
from tests.builders.recorded import RUN, episode, events_of
from tests.hostile import HOSTILE
from tests.ui.pages import app as new_tab
from tests.ui.pages import asked_of_stores, assert_literal, opened_in, press, shown
from ui.presentation.rendered import rendered
from ui.presentation.theme import plain
from ui.presentation.words import CUT, HARD_CUT, HARD_LINES, LINES
from ui.web.kit import state
from ui.web.kit.text import beginning
from ui.web.turns.recording import open_recording

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("recorded")]


@pytest.fixture
def app() -> AppTest:
    """One tab, in which a test opens the page at several addresses."""
    return new_tab()


def opened(app: AppTest, **query: str) -> AppTest:
    """The page at an address."""
    return opened_in(app, "replay", **query)


@pytest.mark.parametrize(("t", "turn"), [("4", 4), ("0", 1), ("99", 5), ("-3", 1), ("x", 1), ("", 1)])
def test_a_link_opens_its_turn_and_one_that_is_not_there_is_held_within_the_episode(
    app: AppTest, t: str, turn: int
) -> None:
    assert f"**Turn {turn} of 5**" in shown(opened(app, ep="e-right", t=t))
    assert app.query_params["t"] == t


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "Open an episode from the list"),
        ({"ep": "nowhere"}, "This view cannot be shown|no episode nowhere"),
        ({"ep": "e-interrupted", "t": "2"}, "the process that played it died"),
        ({"ep": "e-missing", "t": "2"}, "No turn of this episode was played"),
        ({"ep": "e-running", "t": "2"}, "still being played"),
        ({"ep": "e-running", "t": "3"}, "12*3=|Still being written|Grid: joint probability"),
        ({"ep": "e-failed", "t": "2"}, "context too long"),
    ],
)
def test_every_state_of_an_episode_is_said(app: AppTest, query: dict[str, str], words: str) -> None:
    said = shown(opened(app, **query))
    assert [one for one in words.split("|") if one not in said] == []


def test_stepping_moves_the_address_and_stops_at_the_ends(app: AppTest) -> None:
    opened(app, ep="e-right", t="1")
    assert app.button(key="go_first").disabled
    assert app.button(key="go_back").disabled
    for key, at in (
        ("go_next", "2"),
        ("step_next", "3"),
        ("step_back", "2"),
        ("go_last", "5"),
        ("go_back", "4"),
    ):
        press(app, key)
        assert app.query_params["t"] == at
    press(app, "go_last")
    assert app.button(key="go_next").disabled
    press(app, "go_first")
    assert app.query_params["t"] == "1"


def test_jumps_go_to_the_next_of_their_kind_and_round(app: AppTest) -> None:
    opened(app, ep="e-wrong", t="1")
    for key, at in (("next_verifier", "3"), ("next_verifier", "5"), ("next_verifier", "3")):
        press(app, key)
        assert app.query_params["t"] == at
    press(app, "go_first")
    # The first Verifier sends a right answer back, the second Worker loses it, and the last Verifier accepts that.
    for at, said in (("3", "sent a right answer back"), ("4", "Turn 4"), ("5", "Turn 5")):
        press(app, "next_blunder")
        assert app.query_params["t"] == at
        assert said in shown(app)
    opened(app, ep="e-wrong", t="4")
    for at in ("1", "2"):  # round, and on to the next
        press(app, "next_low_margin")
        assert app.query_params["t"] == at
    assert opened(app, ep="e-right", t="1").button(key="next_blunder").disabled, "it has none"


def test_menus_of_the_bar_do_what_its_keys_do(app: AppTest) -> None:
    opened(app, ep="e-wrong", t="1")
    assert not [one for one in app.button if str(one.key).startswith("menu_")]
    app.session_state["jump"] = app.session_state["more"] = True  # as the browser opens them
    app.run()
    listening = {str(one.key) for one in app.button} - {"step_back", "step_next"}
    offered = {str(one.key).removeprefix("menu_") for one in app.button if str(one.key).startswith("menu_")}
    assert offered <= listening
    kinds = ("blunder", "verifier", "low_margin", "same_model", "same_role", "episode")
    assert offered >= {f"next_{kind}" for kind in kinds} | {"previous_episode", "to_basket", "zen", "help"}
    assert {one.label for one in app.text_input} >= {"Find in this episode"}
    assert "Speed" in {one.label for one in app.segmented_control}
    press(app, "menu_next_verifier")
    assert app.query_params["t"] == "3"
    press(app, "menu_zen")
    assert app.query_params["zen"] == "1"
    assert app.button(key="menu_zen").label.startswith("Show the analysis")


def test_next_and_previous_episode_walk_the_list(app: AppTest, recorded: Store) -> None:
    ids = [summary.id for summary in recorded.episodes.page(limit=100).items]
    opened(app, ep=ids[0], t="3")
    assert app.button(key="previous_episode").disabled
    for key, at in (("next_episode", ids[1]), ("previous_episode", ids[0])):
        press(app, key)
        assert (app.query_params["ep"], app.query_params["t"]) == (at, "1")


def test_next_episode_follows_the_list_the_reader_came_from(app: AppTest) -> None:
    app.run()
    app.session_state["episode_list_query"] = {"correct": "right"}
    opened(app, ep="e-right", t="1")
    reached = {str(app.query_params["ep"])}
    while not app.button(key="next_episode").disabled:
        press(app, "next_episode")
        reached.add(str(app.query_params["ep"]))
    while not app.button(key="previous_episode").disabled:
        press(app, "previous_episode")
        reached.add(str(app.query_params["ep"]))
    assert reached == {"e-right", "e-short", "e-long"}


def test_the_plain_strip_goes_where_it_is_told(app: AppTest) -> None:
    app.run()
    app.session_state["plain_strip"] = True
    opened(app, ep="e-right", t="2")
    strip = app.segmented_control(key="strip_plain")
    assert strip.value == 1
    strip.set_value(3).run()
    assert app.query_params["t"] == "4"
    assert app.segmented_control(key="strip_plain").value == 3


def test_the_card_shows_what_was_seen_raw_and_changed(app: AppTest) -> None:
    opened(app, ep="e-right", t="4")
    view = app.segmented_control(key="card_view")
    assert "answer 32" in shown(app)
    view.set_value("saw").run()
    assert "worker\nA shop sells" in shown(app)
    assert "The coordinator read 120 tokens" in shown(app)
    app.segmented_control(key="card_view").set_value("raw").run()
    assert '"model_logits"' in shown(app)
    app.segmented_control(key="card_view").set_value("diff").run()
    assert app.query_params["show"] == "diff"
    assert "answer :red-background[−\u202f~~36~~]:green-background[+\u202f**32**]" in shown(app)
    press(app, "go_back")
    assert app.segmented_control(key="card_view").value == "diff"
    app.segmented_control(key="card_view").set_value("reply").run()
    assert "show" not in app.query_params
    assert app.segmented_control(key="card_view").value == "reply"


def test_a_reply_is_text_until_it_is_asked_to_be_rendered(app: AppTest, recorded: Store) -> None:
    reply = recorded.episodes.get("e-right").turns[1].reply.text
    page = opened(app, ep="e-right", t="2")
    assert plain(reply) in [block.value for block in page.code]
    page.segmented_control(key="card_view").set_value("rendered").run()
    assert app.query_params["show"] == "rendered"
    assert rendered(reply) in [block.value for block in page.markdown]
    assert "The model's own words, rendered" in shown(page)
    press(page, "go_next")  # and stays so
    assert "The model's own words, rendered" in shown(page)


def test_a_preview_and_a_review_render_replies_too() -> None:
    for page in (
        opened_in(new_tab(), "episodes", peek="e-right", look="rendered"),
        opened_in(new_tab(), "review", ep="e-right", look="rendered"),
    ):
        assert "The model's own words, rendered" in shown(page)


def test_the_decision_is_told_in_words_and_numbers(app: AppTest, recorded: Store) -> None:
    opened(app, ep="e-right", t="2")
    decision = open_recording(recorded, "e-right").decision(1)
    assert decision is not None
    app.session_state["decision_logits"] = True  # as the browser opens it
    said = shown(app.run())
    assert "**Sampled**" in said
    assert f"{decision.model_logits[0]:+.4f}" in said
    assert "Instead of it" in said
    assert {chart.key for chart in app.get("plotly_chart")} == {"doubt", "spent"}


def test_a_policy_without_a_head_says_so(app: AppTest) -> None:
    said = shown(opened(app, ep="e-random", t="2"))
    assert "without a head" in said
    assert [chart.key for chart in app.get("plotly_chart")] == ["spent"]
    assert not [one for one in app.button if str(one.key).startswith("panel_")], "they look into a head"


def test_a_long_reply_is_cut_until_asked_for(app: AppTest) -> None:
    opened(app, ep="e-huge", t="1")
    assert all(len(block.value) <= CUT + 100 for block in app.code)
    more = next(button for button in app.button if button.label.startswith("Show more of 1,000,000"))
    more.click().run()
    assert max(len(block.value) for block in app.code) == 400_000
    assert "The first 400,000 of 1,000,000" in shown(app)
    assert [one.proto.label for one in app.get("download_button")][-1].startswith("Save all 1,000,000")


def test_a_text_of_very_many_lines_is_cut_by_its_lines() -> None:
    body = "ab\n" * 100_000
    assert beginning(body, CUT, LINES) == "ab\n" * LINES
    assert beginning(body, HARD_CUT, HARD_LINES) == "ab\n" * HARD_LINES
    assert beginning("one line", CUT, LINES) == "one line"


def test_hostile_text_is_shown_as_text(app: AppTest) -> None:
    opened(app, ep="e-hostile", t="2")
    body = app.code[0].value
    assert "<img src=x onerror=alert(1)>" in body
    assert ":green-badge[ACCEPT]" in body
    assert_literal(app)
    assert len(HOSTILE) >= 30


def test_playing_goes_on_when_a_turn_has_had_its_time(app: AppTest) -> None:
    opened(app, ep="e-right", t="1")
    press(app, "go_play")
    assert app.session_state["replay_playing"]
    assert app.query_params["t"] == "1"
    for at in ("2", "3", "4", "5"):
        app.session_state["replay_due"] = (int(at) - 2, time.monotonic() - 1)
        app.run()
        assert app.query_params["t"] == at
    app.session_state["replay_due"] = (4, time.monotonic() - 1)
    app.run()
    assert not app.session_state["replay_playing"]


def test_an_episode_whose_process_died_is_not_called_playing(
    app: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "store.db"))
    earlier = open_store(tmp_path / "store.db", now=lambda: time.time() - 60)
    earlier.runs.create("rtest", "run", {})
    list(record(earlier, events_of(episode("e-dead"), upto=6)))
    earlier.close()
    said = shown(opened(app, ep="e-dead"))
    assert "the process that played it died" in said
    assert "`trinity run --resume` rtest" in said


def test_a_step_by_hand_home_and_another_episode_stop_the_playing(app: AppTest) -> None:
    opened(app, ep="e-right", t="1")
    press(app, "go_play")
    assert not app.button(key="go_first").disabled
    press(app, "go_first")
    assert not app.session_state["replay_playing"]
    assert app.query_params["t"] == "1"
    assert app.button(key="go_first").disabled
    press(app, "go_play")
    press(app, "go_next")
    assert not app.session_state["replay_playing"]
    press(app, "go_play")
    assert app.button(key="go_play").label == "Pause"
    opened(app, ep="e-wrong", t="1")
    assert app.button(key="go_play").label == "Play"


def test_opening_and_stepping_cost_few_queries_and_read_the_texts_they_show(recorded: Store) -> None:
    long = episode("e-200", ("36", "32") * 50, turns=200, seed=21, said="gather, then add. " * 280)
    list(record(recorded, events_of(long)))
    st.cache_resource.clear()
    state.store()
    page = new_tab().run()
    page.query_params["ep"], page.query_params["t"] = "e-200", "10"
    with asked_of_stores() as opening:
        page.switch_page("views/replay.py").run()
    assert len(opening) <= 6
    with asked_of_stores() as step:
        press(page, "go_next")
    assert len(step) <= 3
    (texts,) = [one for one in step if "text.body" in one]
    assert texts.endswith(("9, 10)", "10, 9)"))
    assert "'prompt'" not in texts  # what models were sent grows with every turn
    recorded.labels.add(Place("e-200", 10), "quality", "good", author="ann")
    with asked_of_stores() as labelled:
        press(page, "go_next")
    assert len(labelled) <= 4
    recorded.episodes.delete(["e-200"])


def test_a_hidden_analysis_hides_what_others_said(app: AppTest, recorded: Store) -> None:
    recorded.labels.add(Place("e-short", 1), "quality", "bad", author="ann", note="a guess")
    assert "ann" in shown(opened(app, ep="e-short", t="2", labels="open"))
    press(app, "zen")
    assert "ann" not in shown(app)
    assert app.button(key="label_toggle").label == "Label"


def test_a_fold_steps_over_the_turns_of_one_kind(app: AppTest) -> None:
    opened(app, ep="e-wrong", t="1", only="worker")
    where = [app.query_params["t"]]
    for key in ("step_next", "step_next", "step_back"):
        press(app, key)
        where.append(app.query_params["t"])
    assert where == ["1", "2", "4", "2"]
    assert app.button(key="step_back").disabled  # the Thinker's turn is folded away again
    assert "Turn 2 of 5 · 2 shown" in shown(app)
    offered = app.selectbox(key="only_turns")
    assert offered.options == [
        "Every turn",
        "Only Thinkers (1)",
        "Only Workers (2)",
        "Only Verifiers (2)",
        "Answer changed (2)",
        "With a mark (5)",
    ]
    offered.select("changed").run()
    assert app.query_params["only"] == "changed"
    app.selectbox(key="only_turns").select("").run()
    assert "only" not in app.query_params
    press(app, "zen")
    assert not [words for words in app.selectbox(key="only_turns").options if "mark" in words]


def test_rules_other_than_the_papers_are_named(app: AppTest, recorded: Store) -> None:
    list(record(recorded, events_of(replace(episode("e-rules"), protocol=Protocol.RELEASED))))
    for name, rules in (("e-rules", ", the authors' released code's rules"), ("e-right", "")):
        _, _, words = shown(opened(app, ep=name)).partition("sampled, seed 7")
        assert words.partition("]")[0] == rules
    recorded.episodes.delete(["e-rules"])


def test_a_transcript_that_was_shortened_for_its_model_is_noted_at_its_turn(
    app: AppTest, recorded: Store
) -> None:
    pool = ScriptedPool([ModelSpec("m", max_tokens=100, context_window=1400)], lambda _: "word " * 600)
    task = Task("t-window", "What is 5 + 7?", "12")
    born = Episode("e-window", RUN, task, "p", ("m",), turn_budget=2)
    list(record(recorded, drive(born, cycle_policy("p", ("m",), (Role.THINKER,)), pool, grade)))
    note = "transcript shortened to fit the model's window"
    assert note not in shown(opened(app, ep="e-window", t="1"))
    assert note in shown(opened(app, ep="e-window", t="2"))
    recorded.episodes.delete(["e-window"])


def test_a_running_episode_is_read_anew_and_a_finished_one_kept(recorded: Store) -> None:
    live = episode("e-growing", seed=11)
    played = events_of(live)
    for event in record(recorded, played):
        if getattr(event, "index", -1) == 1 and hasattr(event, "reply"):
            assert open_recording(recorded, "e-growing").running
    assert len(open_recording(recorded, "e-growing").outlines) == 5
    recorded.episodes.delete(["e-growing"])
    with pytest.raises(StoreError):
        open_recording(recorded, "e-growing")


def test_an_episode_that_nobody_could_judge_has_no_story_and_no_help_beside_nothing(
    app: AppTest, recorded: Store
) -> None:
    whole = episode("e-open", seed=12)
    turns = tuple(replace(turn, correct_after=None) for turn in whole.turns)
    list(record(recorded, events_of(replace(whole, correct=None, turns=turns))))
    opened(app, ep="e-open")
    assert "not judged" in shown(app)
    assert [one.value for one in app.markdown if not one.value.strip()] == []
    recorded.episodes.delete(["e-open"])


def test_a_step_is_fast(app: AppTest) -> None:
    opened(app, ep="e-long", t="1")
    press(app, "go_next")
    took = []
    for _ in range(12):
        start = time.process_time()
        press(app, "go_next")
        took.append(time.process_time() - start)
    assert statistics.median(took) < 0.1  # seconds of processor time: a busy machine changes nothing
