"""Figures say what was chosen, likelier or masked, and never draw foreign text as markup."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import plotly.graph_objects as go
import pytest

from core.analysis.metrics import ClusteredShare
from core.episode import ROLE_ORDER, Decide, Decision, Role, Transcript
from core.play.policies import PLAN_WORK_CHECK, Policy, RandomPolicy, cycle_policy
from storage.rows.summaries import TurnOutline
from tests.ui.pages import APP
from ui.answers import blocks
from ui.answers.blocks import Bars, Curve, Point, Series
from ui.presentation.odds import alternatives, masked_words, options, undecided, with_other_head
from ui.presentation.theme import ROLE_STYLES, percent
from ui.presentation.words import diff_markdown, word_diff
from ui.web.analysis.figures import bars as level_bars
from ui.web.analysis.figures import curve, estimates, grid, marks
from ui.web.components.decision_chart import chart_data
from ui.web.components.transport import dwell_s
from ui.web.kit.figures import Estimate, estimates_figure, span, span_words
from ui.web.kit.widgets import Standing, standings_figure
from ui.web.turns import figures
from ui.web.turns.decision import choice_markdown

MODELS = ("alpha", "beta", "gamma")
DECISION = Decision(
    "beta",
    Role.THINKER,
    model_logits=(1.0, 0.5, -2.0),
    role_logits=(2.0, 1.0, 0.0),
    model_probs=(0.6, 0.36, 0.04),
    role_probs=(0.665, 0.245, 0.09),
    argmax_model="alpha",
    argmax_role=Role.WORKER,
)


def test_marks_and_numbers_at_the_edge_are_whole_and_hollow_marks_are_drawn_with_a_line() -> None:
    found = [Estimate("few", 0.8, 0.4, 0.9, symbol="circle-open"), Estimate("many", 0.0, 0.0, 0.1)]
    assert list(estimates_figure(found, "share").data[0].marker.line.width) == [0, 2.5]
    ahead = estimates_figure([Estimate("B", 0.125, -0.05, 0.3125)], "points ahead", signed=True)
    line = ahead.data[0]
    assert (list(line.x), list(line.text)) == ([12.5], ["+12.5"]), "points on the axis, as in the words"
    assert [*line.error_x.array, *line.error_x.arrayminus] == pytest.approx([18.75, 17.5])
    one, other = [
        [
            Point(k, blocks.Estimate.of(ClusteredShare.counted((task, task < right) for task in range(9))))
            for k, right in ((1, few), (2, 9 - few))
        ]
        for few in (0, 3)
    ]
    figure = curve(Curve({"a": one, "b": other}, ("turn budget", "answered right")))
    bands, lines = figure.data[::2], figure.data[1::2]
    assert {band.mode for band in bands} == {"lines"}  # no marks where there is no value
    assert [list(line.textposition) for line in lines] == [
        ["bottom center", "top center"],
        ["top center", "bottom center"],
    ]
    assert figure.layout.yaxis.range[0] < 0  # room below a mark at 0
    assert not any(line.cliponaxis for line in lines)


def test_an_axis_spans_what_there_is_and_says_where_it_begins() -> None:
    lines = [
        blocks.Line("weighted", blocks.Estimate(0.742, (0.728, 0.755), 742, 1000)),
        blocks.Line("single", blocks.Estimate(0.733, (0.719, 0.746), 733, 1000)),
    ]
    figure = estimates(blocks.Estimates(lines, "answered right", zoomed=True))
    left, right = figure.layout.xaxis.range
    assert 0.7 < left <= 0.71
    assert 0.755 <= right < 0.77
    assert figure.layout.xaxis.title.text == "answered right<br>(the axis begins at 71 %)"
    whole = estimates(blocks.Estimates(lines, "answered right"))
    assert tuple(whole.layout.xaxis.range) == (-0.05, 1.05)
    assert whole.layout.xaxis.title.text == "answered right"
    assert span(0.02, 0.9) == (0.0, 1.0, 0.25)
    assert span(0.98, 1.0) == (0.98, 1.0, 0.005)
    assert span_words("share", 0.0) == "share"


@pytest.mark.parametrize("zoomed", [True, False])
def test_names_of_marks_have_room_above_the_highest(zoomed: bool) -> None:
    points = [
        Point(x, blocks.Estimate(share, (share - 0.01, share + 0.01), 1, 2), name, stands_out=True)
        for x, share, name in ((1.0, 0.73, "single"), (4.0, 0.742, "weighted-vote"))
    ]
    figure = marks(blocks.Points(points, ("calls", "answered right"), zoomed=zoomed))
    bottom, top = figure.layout.yaxis.range
    assert top - 0.742 > 0.05 * (top - bottom), "a name is so high"
    assert (bottom > 0.6) is zoomed
    assert ("begins at" in figure.layout.yaxis.title.text) is zoomed


def test_a_long_name_is_cut_before_what_it_counts() -> None:
    line = blocks.Line(
        "Differ: a model of a very long name indeed right", blocks.Estimate(0.5, (0.4, 0.6), 2345, 10234)
    )
    [name] = estimates(blocks.Estimates([line], "share")).layout.yaxis.ticktext
    assert name.endswith("… · 2,345 of 10,234")
    assert name.startswith("Differ: a model of a very")


def outline(index: int, **changes: object) -> TurnOutline:
    """A plain finished turn."""
    plain: dict[str, Any] = {
        **dict.fromkeys(("verdict", "answer_after", "correct_after", "cost_usd", "error")),
        "episode_id": "e1",
        "model": "alpha",
        "role": Role.WORKER,
        "stage": "finished",
        "flags": (),
        "margin": 0.5,
        "entropy": 1.2,
        "tokens_in": 10,
        "tokens_out": 5,
        "latency_s": 0.1,
        "started": 0.0,
        "sampled": True,
        "argmax_model": "alpha",
        "argmax_role": Role.WORKER,
        "origin": "policy",
    }
    return TurnOutline(index=index, **{**plain, **changes})


def test_odds_name_the_choice_and_the_argmax() -> None:
    models, roles = options(DECISION, MODELS)
    assert [one.p for one in models] == list(DECISION.model_probs)
    assert [one.note for one in models] == ["argmax", "chosen", ""]
    assert [role for role, one in zip(ROLE_ORDER, roles, strict=True) if one.note == "chosen"] == [
        Role.THINKER
    ]


def test_odds_tell_what_waits_from_what_was_chosen() -> None:
    """Before a turn is played its proposal is one, and a choice in its place is the reader's."""
    own, other = (DECISION.model, DECISION.role), ("gamma", Role.WORKER)
    models, _ = options(DECISION, MODELS, proposed=own, waiting=True)
    assert [one.note for one in models] == ["argmax", "proposed", ""]
    yours = dataclasses.replace(DECISION, model=other[0], role=other[1])
    models, roles = options(yours, MODELS, proposed=own, waiting=True)
    assert [(one.note, one.chosen) for one in models] == [
        ("argmax", False),
        ("proposed", False),
        ("yours", True),
    ]
    cells = chart_data(models, roles, key="odds", what="")["cells"]
    marked = {(x, y): cell for y, row in enumerate(cells) for x, cell in enumerate(row)}
    assert [at for at, cell in marked.items() if cell["chosen"]] == [(2, ROLE_ORDER.index(Role.WORKER))]
    assert [at for at, cell in marked.items() if cell["proposed"]] == [(1, ROLE_ORDER.index(DECISION.role))]
    models, _ = options(yours, MODELS, proposed=own)
    assert [one.note for one in models] == ["argmax", "proposed", "chosen"]


def test_odds_say_masked_instead_of_a_probability() -> None:
    masked = dataclasses.replace(DECISION, model_probs=(0.0, 0.9, 0.1), model_mask=(False, True, True))
    models, _ = options(masked, MODELS)
    assert [one.words for one in models] == ["masked", "90.0 %", "10.0 %"]
    assert [one.words for one in with_other_head(models, (0.2, 0.3, 0.5))] == [
        "masked",
        "90.0 % → 30.0 %",
        "10.0 % → 50.0 %",
    ]


def test_that_a_choice_was_forced_is_said() -> None:
    some = dataclasses.replace(DECISION, model_mask=(False, True, True))
    only = dataclasses.replace(DECISION, model_mask=(False, True, False))
    assert masked_words(DECISION, MODELS) == ""
    assert masked_words(some, MODELS) == "1 of 3 models could not be chosen."
    assert masked_words(only, MODELS) == "No other model could be chosen."
    told = masked_words(only, MODELS, missing=(MODELS[0], MODELS[2]))
    assert told == "No other model could be chosen: the table has no answer of theirs to this question."


def test_the_joint_grid_is_the_outer_product_and_marks_two_cells() -> None:
    models, roles = options(DECISION, MODELS)
    assert models[1].joint[1].p == pytest.approx(0.36 * 0.245)
    assert sum(joint.p for one in models for joint in one.joint) == pytest.approx(1.0)
    cells = chart_data(models, roles, key="odds", what="")["cells"]
    marked = {(x, y): cell for y, row in enumerate(cells) for x, cell in enumerate(row)}
    assert [at for at, cell in marked.items() if cell["chosen"]] == [(1, 1)]
    assert [at for at, cell in marked.items() if cell["likeliest"]] == [(0, 0)]
    assert max(cell["heat"] for cell in marked.values()) <= 1


def test_the_chart_of_a_decision_cuts_names_and_shows_what_hides() -> None:
    wild = ("<b>x</b>", "a" * 80, "$y$\u202e")
    decision = dataclasses.replace(DECISION, model="<b>x</b>", argmax_model="a" * 80)
    data = chart_data(*options(decision, wild), key="odds", what="")
    told = json.dumps(data, ensure_ascii=False)
    assert "\u202e" not in told
    assert "a" * 30 not in told
    assert data["models"][0]["name"] == "<b>x</b>"  # set as text, never parsed
    assert "<b>x</b> 60.0 % chosen." in data["said"]


def test_charts_of_policies_and_routing_escape_names_and_keep_equal_ones_apart() -> None:
    long = "a" * 80
    wild = ("<b>x</b>", f"{long}1", f"{long}2")
    standings = standings_figure([Standing(name, 1, 2) for name in wild])
    cells = [[blocks.Cell(0.1, name) for name in wild]]
    routed = grid(blocks.Grid(["Worker"], wild, ("role", "model"), cells, signed=True), "#111827")
    assert len(set(standings.data[0].y)) == len(set(routed.data[0].x)) == 3
    for spec in (standings.to_json(), routed.to_json()):
        assert "<b>x" not in spec
        assert "\\u003cb\\u003ex" not in spec
    assert list(routed.layout.xaxis.ticktext)[0] == "&lt;b&gt;x&lt;/b&gt;"
    assert list(standings.layout.yaxis.ticktext)[-1] == "&lt;b&gt;x&lt;/b&gt;"


def test_doubt_is_two_charts_marks_low_margins_and_needs_numbers() -> None:
    outlines = [outline(0), outline(1, margin=0.02), outline(2, margin=None, entropy=None)]
    figure = figures.uncertainty_over_turns(outlines)
    assert figure is not None
    assert list(figure.data[-1].x) == [2]
    assert figures.uncertainty_over_turns([outline(0, margin=None, entropy=None)]) is None
    above, below = figure.layout.yaxis, figure.layout.yaxis2
    assert above.domain[0] > below.domain[1]
    assert (above.title.text, below.title.text) == ("entropy (0: certain)", "margin (logits)")
    assert figure.layout.xaxis.title.text == "turn"


def test_charts_of_names_say_what_they_measure_and_have_the_best_on_top() -> None:
    standings = standings_figure([Standing("worse", 1, 4), Standing("best", 3, 4), Standing("middle", 2, 4)])
    assert list(standings.layout.yaxis.ticktext) == ["worse", "middle", "best"], "from the bottom to the top"
    bars = level_bars(Bars(["a", "b"], [Series("right", [5, 2])], ("model", "turns"), level=True))
    choices = figures.two_choices(DECISION, MODELS, DECISION, MODELS)
    parts = figures.parts_figure(["question"], [figures.PartBars("", [0.5])])
    for figure in (standings, bars, choices, parts, estimates_figure([], "points ahead", signed=True)):
        assert figure.layout.xaxis.title.text
        assert figure.layout.xaxis.visible is None


def test_no_figure_of_ours_has_two_scales_on_one_chart() -> None:
    with_two = [
        str(path)
        for path in sorted(APP.parent.rglob("*.py"))
        if any(word in path.read_text(encoding="utf-8") for word in ("overlaying", "secondary_y"))
    ]
    assert with_two == []


def test_two_choices_match_slots_by_name() -> None:
    other = dataclasses.replace(DECISION, model="gamma", model_probs=(0.9, 0.1), role=Role.WORKER)
    figure = figures.two_choices(DECISION, MODELS, other, ("gamma", "delta"))
    a, b = figure.data
    assert list(a.x[:4]) == [0.6, 0.36, 0.04, None]
    assert list(b.x[:4]) == [None, None, 0.9, 0.1]
    assert "chosen" in a.text[1]
    assert "chosen" in b.text[2]


@pytest.mark.parametrize(
    ("p", "said"), [(0.5, "50.0 %"), (0.0, "0.0 %"), (1e-6, "<0.1 %"), (0.99999, ">99.9 %")]
)
def test_percent_never_rounds_a_chance_away(p: float, said: str) -> None:
    assert percent(p) == said


def test_alternatives_are_ordered_and_carry_the_margin() -> None:
    best = alternatives(DECISION, MODELS)
    assert [(other.model, other.role) for other in best] == [
        ("alpha", Role.WORKER),
        ("beta", Role.WORKER),
        ("alpha", Role.THINKER),
    ]
    assert best[0].margin < 0
    assert alternatives(Decision("alpha", Role.WORKER), MODELS) == []
    nothing = Decision("", Role.WORKER, model_probs=(0.0,) * 3, role_probs=(0.0,) * 3)
    shown = [undecided(side) for side in options(nothing, MODELS)]
    assert {(one.words, one.note) for side in shown for one in side} == {("–", "")}, (
        "not decided yet: no numbers"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "argmax would have been"),
        ({"argmax_model": "beta", "argmax_role": Role.THINKER}, "drew the likeliest pair"),
        ({"sampled": False, "argmax_model": "beta", "argmax_role": Role.THINKER}, "**Argmax**"),
        ({"origin": "override"}, "by hand"),
        ({"origin": "suggested_role"}, "asked for this role"),
        ({"model_probs": (), "role_probs": ()}, "without a head"),
    ],
)
def test_the_choice_is_told_in_words(changes: dict[str, object], words: str) -> None:
    assert words in choice_markdown(dataclasses.replace(DECISION, **changes), MODELS)  # type: ignore[arg-type]


def test_a_choice_by_hand_is_told_with_what_it_overruled() -> None:
    by_hand = dataclasses.replace(DECISION, origin="override")
    said = choice_markdown(by_hand, MODELS, ("alpha", Role.WORKER))
    assert "Proposed was **Worker on alpha**, at " in said
    assert "it was overruled" in said
    assert "argmax" not in said


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (RandomPolicy(MODELS), "**Drawn at random**: **%s**, like every allowed pair at 16.7 %%"),
        (
            cycle_policy("random-model", MODELS, PLAN_WORK_CHECK),
            "**%s**: the model **drawn at random**, every allowed one at 50.0 %%",
        ),
        (cycle_policy("single:beta", MODELS, PLAN_WORK_CHECK), "**%s** was chosen **without a head**"),
    ],
)
def test_a_draw_without_a_head_claims_no_favourite(policy: Policy, words: str) -> None:
    request = Decide(Transcript("What?"), 0, "e1/0", model_mask=(True, True, False))
    decision = policy.decide([request])[0]
    pair = f"{ROLE_STYLES[decision.role].word} on {decision.model}"
    assert choice_markdown(decision, MODELS).startswith(words % pair)


def test_a_comparison_marks_words_by_sign_and_colour() -> None:
    def drawn(before: str, after: str) -> str:
        return diff_markdown(word_diff(before, after)).replace("\u202f", " ")

    changed = "the :red-background[− ~~cat~~]:green-background[+ **dog**] sat"
    assert drawn("the cat sat", "the dog sat") == changed
    assert drawn("", "new") == ":green-background[+ **new**]"
    assert drawn("same words", "same words") == "same words"
    assert drawn("a\n  b", "a\n  c").startswith("a  \n")
    hostile = drawn("x", "**b** ![i](http://e) <b> ~~s~~ :red[r] $m$ ]")
    for bare in ("![", "](", "<b>", " :red[", "$m$"):
        assert bare not in hostile


@pytest.mark.parametrize(
    ("characters", "speed", "stays_s"), [(0, 1, 0.6), (900, 1, 1.6), (10**6, 1, 6.0), (10**6, 4, 1.5)]
)
def test_dwell_is_clamped_and_divided_by_speed(characters: int, speed: float, stays_s: float) -> None:
    assert dwell_s(characters, speed) == pytest.approx(stays_s)


def test_every_figure_is_one_that_plotly_accepts() -> None:
    """The pages draw without validation; this is it."""
    same = dataclasses.replace(DECISION, model="alpha", role=Role.WORKER)
    drawn = [
        figures.uncertainty_over_turns([outline(0), outline(1, margin=0.02), outline(2, entropy=None)]),
        figures.two_choices(DECISION, MODELS, same, MODELS),
    ]
    for figure in drawn:
        assert figure is not None
        go.Figure(figure.to_dict())
