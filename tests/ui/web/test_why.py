"""Why this choice: parts and words as a page tells them, worked out once, by a worker where it takes long."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest
from playwright.sync_api import Page
from sqlalchemy import update

from core.analysis.attribution import (
    Attribution,
    Lead,
    WordAttribution,
    WordLeftOut,
    by_part,
    leave_out,
    words_of,
)
from core.coordinator.coordinator import Coordinator
from core.episode import Decide, Decision, Episode, Flag, Role
from core.play.session import request_at
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import writing
from storage.rows.mapping import floats
from storage.rows.schema import text, turn
from storage.rows.summaries import RunStatus
from storage.upkeep.retention import prune
from tests.browsing import serving_app, settled
from tests.builders.diffed import DIFFED, Diffed
from tests.hostile import HOSTILE
from tests.ui.conftest import Served
from tests.ui.pages import assert_literal, opened, plainly, press, shown, waiting
from ui.presentation.story import reason
from ui.presentation.theme import percent
from ui.presentation.words import ordinal, pair_words
from ui.runs import reading
from ui.runs.worker import play_claimed
from ui.web.components.weighed_words import MOST_CHARACTERS, WeighedText, block
from ui.web.turns import why
from ui.web.turns.figures import PartBars, parts_figure

pytestmark = pytest.mark.integration


def played(diffed: Diffed, turns: int = 3) -> Episode:
    ids = [one.id for one in diffed.store.episodes.of_run(DIFFED) if one.policy == diffed.a.id]
    return next(one for one in map(diffed.store.episodes.get, ids) if len(one.turns) >= turns)


def said_first(diffed: Diffed, body: str) -> Episode:
    """The episode, with this as its first reply."""
    episode = played(diffed)
    with writing(diffed.store.engine) as connection:
        here = update(text).where(text.c.episode_id == episode.id, text.c.idx == 0, text.c.kind == "reply")
        connection.execute(here.values(body=body))
    return episode


def explained(diffed: Diffed, episode: Episode, index: int) -> tuple[Attribution, list[WordLeftOut]]:
    """What leaving out parts, and words, finds for the recorded pair."""
    decision, request = episode.turns[index].decision, request_at(episode, index)
    policy = Coordinator(diffed.a, diffed.encoder)
    found = by_part(policy, request, (decision.model, decision.role))
    return found, leave_out(policy, request, found, words_of(request.transcript))


def test_each_part_says_what_would_have_been_chosen_without_it(diffed: Diffed) -> None:
    episode = played(diffed)
    found, each = explained(diffed, episode, 2)
    page = opened("replay", ep=episode.id, t="3", panel="why")
    words = plainly(page)
    unreadable = Flag.VERDICT_UNREADABLE
    verdicts = {
        one.index: one.verdict for one in episode.turns if one.verdict and unreadable not in one.flags
    }
    weighed = WordAttribution(tuple(each), len(each), len(each))
    sentence = reason(found, weighed, request_at(episode, 2).transcript, verdicts)
    assert f"**{sentence}**" in words
    assert "logits" not in sentence
    [fold] = [one for one in page.expander if one.label == "In logits"]
    assert any("logits ahead" in one.value for one in fold.markdown)
    assert f"**{pair_words(found.chosen[1], found.chosen[0])}** was chosen" in words
    nouns = {Role.THINKER: "plan", Role.WORKER: "answer", Role.VERIFIER: "verdict"}
    for one in found.parts:
        name = "the question"
        if one.part >= 0:
            entry = episode.turns[one.part].decision
            name = f"{entry.model}'s {nouns[entry.role]} (turn {one.part + 1})"
        likeliest = one.without.likeliest
        line = next(line for line in words.splitlines() if line.startswith(f"- Without {name}: "))
        assert line.endswith(f"**{pair_words(likeliest[1], likeliest[0])}**, {percent(one.without.p)}")
        assert ("still likeliest" in line) is (likeliest == found.full.likeliest)
        assert "likeliest" in line
    strongest = max(each, key=lambda one: one.gives)
    assert f"{strongest.gives:+.2f} |" in words
    assert "other logits than recorded" not in words


def test_it_is_worked_out_once(diffed: Diffed, monkeypatch: pytest.MonkeyPatch) -> None:
    episode, decide = played(diffed), Coordinator.decide
    asked: list[int] = []

    def noted(policy: Coordinator, requests: Sequence[Decide]) -> list[Decision]:
        asked.append(len(requests))
        return decide(policy, requests)

    monkeypatch.setattr(Coordinator, "decide", noted)
    first = plainly(opened("replay", ep=episode.id, t="2", panel="why"))
    assert asked
    asked.clear()
    assert plainly(opened("replay", ep=episode.id, t="2", panel="why")) == first
    assert asked == []
    opened("replay", ep=episode.id, t="2", panel="why", beside=diffed.b.id)
    assert asked  # of the other checkpoint


def test_two_checkpoints_side_by_side(diffed: Diffed) -> None:
    episode = played(diffed)
    page = opened("replay", ep=episode.id, t="3", panel="why", beside=diffed.svf.id)
    assert "is its likeliest choice here" in plainly(page)
    [table] = [one.value for one in page.markdown if one.value.startswith("| Without")]
    assert len(table.splitlines()) == 2 + 3  # the question and two replies
    assert page.selectbox(key="why_beside").value == diffed.svf.id
    page.selectbox(key="why_beside").select("").run()
    assert "beside" not in page.query_params
    assert "is its likeliest choice here" not in plainly(page)


def test_a_recorded_decision_that_is_not_found_again_is_said(diffed: Diffed) -> None:
    episode = played(diffed)
    decision = episode.turns[1].decision
    changed = [value + 0.5 for value in decision.model_logits]
    with writing(diffed.store.engine) as connection:
        here = update(turn).where(turn.c.episode_id == episode.id, turn.c.idx == 1)
        connection.execute(here.values(model_logits=floats(changed)))
    page = opened("replay", ep=episode.id, t="2", panel="why")
    assert any("other logits than recorded: one differs by 0.5" in one.value for one in page.warning)


def test_what_takes_long_is_left_to_a_worker(
    diffed: Diffed, monkeypatch: pytest.MonkeyPatch, no_workers: None
) -> None:
    monkeypatch.setattr(reading, "AT_ONCE_FLOP", 1.0)
    store, episode = diffed.store, played(diffed)
    page = opened("replay", ep=episode.id, t="3", panel="why")
    assert "- Without" not in plainly(page)
    press(page, "attribute")
    [run] = waiting(store)
    assert store.runs.get(run).kind == "attribute"
    assert "attribute" not in {one.key for one in page.button}
    again = opened("replay", ep=episode.id, t="3", panel="why")
    assert "attribute" not in {one.key for one in again.button}
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    done = plainly(opened("replay", ep=episode.id, t="3", panel="why"))
    assert "- Without the question" in done
    assert "Each word was left out alone" in done


def test_gradients_say_their_error(diffed: Diffed, monkeypatch: pytest.MonkeyPatch, no_workers: None) -> None:
    monkeypatch.setattr(reading, "LARGE", 10)
    episode = played(diffed)
    page = opened("replay", ep=episode.id, t="2", panel="why")
    press(page, "attribute")
    [run] = waiting(diffed.store)
    assert play_claimed(diffed.store, run) == 0
    done = plainly(opened("replay", ep=episode.id, t="2", panel="why"))
    assert "By integrated gradients, an approximation" in done
    assert "with an error of" in done


def test_texts_that_were_removed_explain_nothing(diffed: Diffed) -> None:
    episode = played(diffed)
    prune(diffed.store, "texts", EpisodeFilter(run=DIFFED), everything=True)
    words = plainly(opened("replay", ep=episode.id, t="2", panel="why"))
    assert "The texts of this episode were removed on" in words
    assert "- Without" not in words


def test_hostile_text_stays_text(diffed: Diffed) -> None:
    episode = said_first(diffed, " ".join(HOSTILE)[:2000])
    page = opened("replay", ep=episode.id, t="2", panel="why")
    assert "**Which words?**" in shown(page)
    assert_literal(page)


def test_a_word_that_stands_several_times_is_told_with_its_place() -> None:
    text = "4 boxes with 4 pens and 14 left"
    words = tuple(
        WordLeftOut(part, start, start + len(word), gives)
        for part, start, word, gives in (
            (-1, 0, "4", 0.1),
            (-1, 2, "boxes", 0.7),
            (-1, 13, "4", 0.9),
            (-1, 24, "14", -0.2),
            (2, 0, "4", -0.5),
        )
    )
    found = WordAttribution(words, 5, 5)
    texts = {-1: text, 2: "4 * 3"}
    assert why.strongest_words(found, texts, 1.0) == [
        ("4", 0.9, "question, 2nd of 2"),
        ("boxes", 0.7, "question"),
        ("4", 0.1, "question, 1st of 2"),
    ]
    assert why.strongest_words(found, texts, -1.0)[0] == ("4", -0.5, "turn 3")
    assert [ordinal(number) for number in (3, 11, 12, 21, 112)] == ["3rd", "11th", "12th", "21st", "112th"]


def test_a_head_that_prefers_nothing_has_no_reason() -> None:
    level = replace(
        Attribution(("a", Role.WORKER), ("b", Role.WORKER), Lead(0.0, ("a", Role.WORKER), 0.1), ())
    )
    assert why.is_indifferent(level)
    assert not why.is_indifferent(replace(level, full=Lead(0.1, ("a", Role.WORKER), 0.1)))


def test_a_text_is_told_in_pieces_that_make_it_up_again() -> None:
    body = "two \u202eplus three\nis <b>five</b>"
    told = block(WeighedText("Turn 1", body, [(0, 3, 1.0), (5, 9, -0.5), (10, 15, 0.001)]), 1.0)
    assert [(piece[0], piece[1]) for piece in told["pieces"]] == [
        ("two", 1.0),
        (" ⟨U+202E⟩", 0.0),
        ("plus", -0.5),
        (" three\nis <b>five</b>", 0.0),
    ]
    assert told["pieces"][2][2] == "-0.500 logits"
    long = block(WeighedText("x", "word " * 5_000, [(0, 4, 1.0), (20_000, 20_004, 1.0)]), 1.0)
    assert long["pieces"][-1][0].endswith(f"… {25_000 - MOST_CHARACTERS:,} more characters")
    assert sum(len(piece[0]) for piece in long["pieces"]) < MOST_CHARACTERS + 60
    assert json.dumps(long)


def test_the_second_checkpoints_bars_are_told_by_more_than_their_colour() -> None:
    figure = parts_figure(
        ["question", "1 <b>"], [PartBars("", (1.0, -2.0)), PartBars("other", (0.5, 0.0), hatched=True)]
    )
    drawn = go.Figure(figure.to_dict())  # validated
    assert [one.marker.pattern.shape for one in drawn.data] == ["", "/"]
    assert list(drawn.data[1].text) == ["other +0.50", "other +0.00"]
    assert list(drawn.layout.yaxis.ticktext) == ["question", "1 &lt;b&gt;"]
    assert drawn.layout.xaxis.title.text == "lead with it minus lead without it, in logits"
    assert drawn.layout.yaxis.title.text == "part read"


@pytest.fixture
def explained_app(diffed: Diffed, tmp_path: Any) -> Iterator[Served]:
    """The app on a store in which a reply is hostile."""
    said_first(diffed, "answer 7 <img src=x onerror=alert(1)> \u202e end")
    with serving_app(tmp_path, tmp_path / "trinity.db") as address:
        yield Served(address, diffed.store)


def test_words_are_coloured_and_underlined_in_the_text_as_it_was_read(
    tab: Page, diffed: Diffed, explained_app: Served
) -> None:
    episode = played(diffed)
    tab.goto(f"{explained_app.address}/replay?ep={episode.id}&t=2&panel=why")
    tab.locator(".weighed .text").first.wait_for()
    settled(tab)
    texts = tab.locator(".weighed .text")
    assert texts.all_text_contents() == [
        episode.task.question,
        "answer 7 <img src=x onerror=alert(1)> ⟨U+202E⟩ end",
    ]
    assert tab.locator(".weighed img").count() == 0
    for side, line in (("for", "solid"), ("against", "dotted")):
        word = tab.locator(f".weighed .{side}").first
        assert word.evaluate("node => getComputedStyle(node).borderBottomStyle") == line
        assert word.get_attribute("title", timeout=1000).startswith("+" if side == "for" else "-")  # type: ignore[union-attr]
    assert "Words that move the choice most" in (tab.locator(".weighed").get_attribute("aria-label") or "")
    tab.set_viewport_size({"width": 390, "height": 900})
    tab.wait_for_function("document.documentElement.scrollWidth <= window.innerWidth")
