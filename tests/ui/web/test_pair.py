"""Two episodes: alignment, first divergence, modes, swapping, and the way into either replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from streamlit.testing.v1 import AppTest

from core.analysis.comparison import RULE_IN_SHORT, Alignment, AlignmentRow
from core.analysis.metrics import kl_divergence
from core.episode import Decision, Role
from storage.recorder import record
from storage.rows.summaries import TurnText
from storage.shelves.episodes import Episodes
from storage.store import Store, open_store
from tests.builders.recorded import RUN, decision, episode, events_of
from tests.ui.pages import app as new_tab
from tests.ui.pages import assert_literal, opened_in, press, shown
from ui.presentation.comparison import signed
from ui.web.turns.recording import open_recording
from ui.web.views.pair import aligned, choice_kls, visible

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("recorded")]
#: What is said of two episodes that differ from their first row on.
FIRST_ROW = (
    *("first differ in **row 1**", "**Row 1 of 5**", "first divergence", "| Expected | 32 | 32 |"),
    "| Answer | 32 :green[● right] | 36 :red[✕ wrong] |",
)
#: Of these a side may be.
STATES = ("running", "interrupted", "missing", "huge", "long", "failed")


@pytest.fixture
def app() -> AppTest:
    """One tab, in which a test opens the page at several addresses."""
    return new_tab()


def opened(app: AppTest, **query: str) -> AppTest:
    """The page at an address."""
    return opened_in(app, "pair", **query)


@pytest.mark.parametrize(
    ("query", "told", "not_told"),
    [
        ({"b": "e-wrong"}, FIRST_ROW, "different tasks"),
        ({"b": "e-interrupted"}, ["not judged"], "never differ"),
        ({"b": "e-short", "t": "5"}, ["No turn here", "a turn only one side has"], "different tasks"),
        ({"b": "e-hostile"}, ["different tasks", "| Expected | 32 | \\:green"], "never differ"),
        ({"b": "e-right"}, ["never differ"], "first differ in"),
        ({"b": "e-right", "rows": "differences"}, ["same choice in every row"], "Row 1 of"),
        ({"a": "e-random", "b": "e-random"}, ["no probabilities"], "B compared with A"),
        *(({"b": f"e-{other}"}, ["A shop sells"], "cannot be shown") for other in STATES),
        ({"b": "gone"}, ["cannot be shown"], "Traceback"),
    ],
)
def test_the_page_says_how_the_two_are_alike_and_how_not(
    app: AppTest, query: dict[str, str], told: Sequence[str], not_told: str
) -> None:
    said = shown(opened(app, **{"a": "e-right", **query}))
    assert [words for words in told if words not in said] == []
    assert not_told not in said


def test_a_deep_link_opens_its_row_and_both_decisions(app: AppTest, recorded: Store) -> None:
    said = shown(opened(app, a="e-right", b="e-wrong", t="4"))
    assert "**Row 4 of 5**" in said
    assert "answer :red-background[− ~~32~~]:green-background[+ **36**]" in said.replace("\u202f", " ")
    assert "B compared with A: **" in said
    table = app.dataframe[0].value
    assert list(table["Row"]) == ["⚑ 1", "2", "3", "4 ◀", "5"]
    assert "↻ Revise" in unquote(" ".join(table["B"].dropna()))
    assert table["A"].iloc[3].startswith("/replay?ep=e-right&t=")
    x, y = (recorded.episodes.outline(one)[3] for one in ("e-right", "e-wrong"))
    assert table["B minus A"].iloc[3] == y.tokens_in + y.tokens_out - x.tokens_in - x.tokens_out
    both = [recorded.episodes.get(one).turns[3].decision for one in ("e-right", "e-wrong")]
    joint = [[m * r for m in one.model_probs for r in one.role_probs] for one in both]
    assert table["KL"].iloc[3] == pytest.approx(kl_divergence(*joint))
    assert len(app.get("plotly_chart")) == 1


def test_the_first_divergence_is_pinned_above_rows_that_scroll(app: AppTest) -> None:
    rows = list(opened(app, a="e-long", b="e-right", t="9").dataframe[0].value["Row"])
    assert rows[0].startswith("⚑")
    assert rows.count(rows[0]) == 2
    assert "9 ◀" in rows


def test_turns_of_an_episode_without_an_end_have_no_answer_yet(app: AppTest) -> None:
    opened(app, a="e-right", b="e-interrupted")
    assert "no answer yet" in set(app.dataframe[0].value["Answer of B"])


def test_swapping_keeps_the_row(app: AppTest) -> None:
    opened(app, a="e-right", b="e-wrong", t="4")
    press(app, "swap")
    assert (app.query_params["a"], app.query_params["b"], app.query_params["t"]) == (
        "e-wrong",
        "e-right",
        "4",
    )
    said = shown(app).replace("\u202f", " ")
    assert "answer :red-background[− ~~36~~]:green-background[+ **32**]" in said


def test_swapping_keeps_a_row_that_only_one_side_has(
    app: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "store.db"))
    store = open_store(tmp_path / "store.db")
    store.runs.create(RUN, "run", {})
    thinks = episode("e-thinks", turns=1)
    turn = replace(episode("e-checks", turns=1).turns[0], decision=decision(5, "beta", Role.VERIFIER))
    assert turn.decision.model != thinks.turns[0].decision.model
    for one in (thinks, replace(episode("e-checks"), turns=(turn,))):
        list(record(store, events_of(one)))
    store.close()
    opened(app, a="e-checks", b="e-thinks", t="1")
    for _ in range(3):
        assert "▲ Verifier" in shown(app)
        assert "● Thinker" not in shown(app)
        press(app, "swap")


def test_stepping_and_back_to_the_divergence(app: AppTest) -> None:
    opened(app, a="e-right", b="e-wrong")
    press(app, "go_next")
    assert app.query_params["t"] == "2"
    press(app, "to_divergence")
    assert "t" not in app.query_params
    assert "**Row 1 of 5**" in shown(app)


def test_one_episode_offers_the_others_of_its_task(app: AppTest) -> None:
    opened(app, a="e-right")
    picker = app.selectbox(key="pick_b")
    assert any("e-wrong" in option for option in picker.options)
    assert not any("e-other" in option for option in picker.options)
    picker.set_value("e-wrong").run()
    assert app.query_params["b"] == "e-wrong"
    assert "**Row 1 of 5**" in shown(app)


def test_hostile_text_is_text(app: AppTest) -> None:
    opened(app, a="e-hostile", b="e-random", t="2")
    assert any("<img src=x onerror=alert(1)>" in block.value for block in app.code)
    assert_literal(app)


ALIGNMENT = Alignment(
    (AlignmentRow(0, 0, 0), AlignmentRow(1, 1, 2), AlignmentRow(2, 2, 0), AlignmentRow(3, None, 3)), 1
)


@pytest.mark.parametrize(
    ("mode", "rows"), [("all", [0, 1, 2, 3]), ("differences", [1, 3]), ("after", [1, 2, 3])]
)
def test_modes_choose_rows(mode: str, rows: list[int]) -> None:
    assert visible(ALIGNMENT, mode) == rows
    assert visible(Alignment((AlignmentRow(0, 0, 0),), None), "after") == []


def test_kl_divergence_matches_slots_by_name() -> None:
    even, skew, turned, none = (
        Decision("x", Role.WORKER, model_probs=probs, role_probs=(0.2, 0.3, 0.5) if probs else ())
        for probs in ((0.5, 0.5), (0.9, 0.1), (0.1, 0.9), ())
    )
    names = ("x", "y")
    expected = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert choice_kls(even, names, even, names) == (0, 0)
    assert list(choice_kls(even, names, skew, names) or ()) == pytest.approx([expected, 0])
    assert choice_kls(skew, names, turned, ("y", "x")) == (0, 0)
    assert choice_kls(even, names, even, ("x", "z")) is None
    assert choice_kls(none, names, none, names) is None


def test_a_link_keeps_the_rows_and_each_tab(app: AppTest) -> None:
    opened(app, a="e-right", b="e-wrong", t="4", rows="after", show_b="raw")
    assert app.segmented_control(key="pair_mode").value == "after"
    assert app.segmented_control(key="pair_a_view").value == "reply"
    assert app.segmented_control(key="pair_b_view").value == "raw"
    app.segmented_control(key="pair_mode").set_value("differences").run()
    assert app.query_params["rows"] == "differences"
    press(app, "step_back")
    assert app.segmented_control(key="pair_mode").value == "differences"


def test_aligning_reads_the_replies_at_once(
    app: AppTest, recorded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = type(recorded.episodes).text

    def counted(self: Episodes, episode_id: str, index: int) -> TurnText:
        read.append(index)
        return original(self, episode_id, index)

    monkeypatch.setattr(Episodes, "text", counted)
    opened(app, a="e-long", b="e-random", t="1")
    assert len(read) <= 4  # the texts of the row that is shown
    replies = recorded.episodes.replies("e-long", 8)
    assert replies == {i: recorded.episodes.text("e-long", i).reply[:8] for i in range(40)}
    assert recorded.episodes.replies("e-running", 99)[2] == "12*3="


def test_a_newcomer_reads_plain_sentences_and_no_minus_nothing(app: AppTest) -> None:
    page = opened(app, a="e-right", b="e-wrong", t="4")
    said = " ".join(one.value for one in page.caption)
    for jargon in ("dynamic programming", "[-", "cost"):
        assert jargon not in said
    assert RULE_IN_SHORT in said
    assert [signed(-0.001, 2), signed(0.004, 2), signed(0), signed(-1200), signed(0.25, 2)] == [
        "0.00",
        "0.00",
        "0",
        "-1,200",
        "+0.25",
    ]


def test_the_first_other_answer_is_told_apart_from_the_first_other_choice(
    app: AppTest, recorded: Store
) -> None:
    page = opened(app, a="e-right", b="e-wrong")
    a, b = (recorded.episodes.get(one) for one in ("e-right", "e-wrong"))
    rows = aligned(*(open_recording(recorded, one.id) for one in (a, b))).rows
    differ = [
        i
        for i, row in enumerate(rows)
        if row.a is not None
        and row.b is not None
        and a.turns[row.a].answer_after != b.turns[row.b].answer_after
    ]
    assert differ
    assert f"The answers first differ in **row {differ[0] + 1}**." in shown(page)
