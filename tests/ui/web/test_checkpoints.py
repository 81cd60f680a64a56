"""Checkpoints: who is compared, flips and their tasks, the verdict, figures, and two clicks to a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from core.analysis.comparison import MatchedTasks, compare
from core.episode import Protocol
from core.ids import episode_id
from storage.analysis.defaults import evenly
from storage.analysis.standings import (
    CELLS,
    PolicyInRun,
    PolicySide,
    Setting,
    TaskSet,
    courses,
    figures,
    policies_with_episodes,
    read_shared_tasks,
    task_sets,
)
from storage.recorder import record
from storage.rows.engine import writing
from storage.rows.schema import learning_update
from storage.store import Store
from tests.builders.recorded import events_of
from tests.builders.sample_store import EVOLVED, MODELS, PLAYED, checkpoint, sample_store
from tests.builders.stores import begin_run
from tests.tables import compare_counts
from tests.ui.pages import assert_literal, command, opened, plainly, shown
from ui.answers import comparison, plain
from ui.answers.asked import Asked, asked_of_policies, side_words
from ui.answers.blocks import Address, Answer, Curve, Estimate, Estimates, Grid, Line, Table
from ui.answers.checkpoints import config, entropies, flat, lengths, routing
from ui.answers.comparison import ahead, families, played, tasks
from ui.presentation.comparison import basis, leading, plays_words, tasks_words, verdict
from ui.presentation.glossary import define
from ui.presentation.theme import percent
from ui.presentation.words import generations_of, setting_words
from ui.web.analysis.draw import figure_of
from ui.web.pickers.checkpoints import prefers_nothing
from ui.web.pickers.line import compared_in_address, line_of, listed, parted, within

FIRST, MIDDLE, LAST = (checkpoint(born).id for born in (0, 8, 30))
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("samples")]
FIVE, ONE = Setting(5, False, Protocol.PAPER, "3fa9c2d1"), Setting(1, True, Protocol.RELEASED, "3fa9c2d1")
WHO = [
    PolicyInRun("r2", "a", FIVE, 3),
    PolicyInRun("r2", "b", FIVE, 3),
    PolicyInRun("r1", "a", FIVE, 3),
    PolicyInRun("r1", "single:x,y/z", FIVE, 3),
]


def asked_of(
    store: Store, policies: Sequence[str], run: str | None = PLAYED, choices: Mapping[str, str] | None = None
) -> Asked:
    sides = [PolicySide(policy, run) for policy in policies]
    say = side_words(policies_with_episodes(store), generations_of(store))
    return asked_of_policies(store, sides, say, choices=choices or {})


def rows(answer: Answer | None, key: str) -> list[dict[str, Any]]:
    """A table of an answer, as JSON has it."""
    assert answer
    found: list[dict[str, Any]] = plain.answer(answer)[key]
    return found


def test_it_opens_on_every_generation_that_played_the_same_tasks_oldest_and_newest_as_a_and_b() -> None:
    page = opened("checkpoints")
    assert page.multiselect(key="policies").value == [FIRST, MIDDLE, LAST]
    assert (page.selectbox(key="side_base").value, page.selectbox(key="side_b").value) == (FIRST, LAST)
    assert list(page.dataframe[0].value["name"]) == ["A · start", "B · gen 30", "C · gen 8"]
    assert_literal(page)


def test_what_was_won_and_lost_is_what_the_store_counts(samples: Store) -> None:
    asked = asked_of(samples, [FIRST, LAST, MIDDLE])
    a, b, c = rows(ahead(asked), "policies")
    sides = [one.played for one in asked.sides]
    for row, side in ((b, sides[1]), (c, sides[2])):
        for cell in CELLS:
            assert row[cell] == len(read_shared_tasks(samples, sides[0], side, (), cell=cell))
        assert row["n"] == sum(row[cell] for cell in CELLS)
        assert row["difference"]["difference"] == pytest.approx((row["only_b"] - row["only_a"]) / row["n"])
    assert (a["only_b"], a["p"]) == (None, None)
    assert [side.where.forks for side in asked_of(samples, [FIRST, LAST], None).sides] == ["without"] * 2
    assert list(asked.counts().values()) == [one["accuracy"]["n"] for one in (a, b, c)]
    everywhere = asked_of(samples, [FIRST, LAST, MIDDLE], None)
    assert list(everywhere.counts().values()) == list(asked.counts().values())


@pytest.mark.parametrize("cell", ["", *CELLS])
def test_the_list_of_tasks_is_of_a_cell_a_family_and_a_page(samples: Store, cell: str) -> None:
    choices = {"cell": cell, "family": "knowledge"}
    asked = asked_of(samples, [FIRST, MIDDLE, LAST, "random"], choices=choices)
    sides = [one.played for one in asked.sides]
    a, b, *_ = sides
    expected = read_shared_tasks(samples, a, b, sides, cell=cell or None, family="knowledge")
    answer = tasks(asked)
    assert answer
    assert [(one.name, one.value) for one in answer.choices[:2]] == [("cell", cell), ("family", "knowledge")]
    if cell:
        assert answer.choices[0].options[cell].startswith(f"{len(expected)} ")
    if not expected:
        assert answer.blocks == ["No task is in this cell."]
        return
    (table,) = answer.blocks
    assert isinstance(table, Table)
    at = {column.key: i for i, column in enumerate(table.columns)}
    for row, one in zip(table.rows, expected, strict=True):
        for letter, outcome, side in zip("ABCD", one.outcomes, sides, strict=True):
            assert outcome  # every cell of the list opens its own episode
            assert row[at[letter]].to == Address("replay", {"ep": outcome.episode})
            assert samples.episodes.summary(row[at[f"episode_{letter}"]]).policy == side.policy
        first, second, *_ = (outcome.episode for outcome in one.outcomes if outcome)
        assert row[at["pair"]] == Address("pair", {"a": first, "b": second})


def test_tasks_are_read_page_by_page_or_all_at_once(samples: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    every = rows(tasks(asked_of(samples, [FIRST, LAST])), "tasks")
    monkeypatch.setattr(comparison, "PAGE", 5)
    monkeypatch.setattr(comparison, "_READ", 7)
    found = []
    for page in ("1", "2", "3", "4", "5"):
        found += rows(tasks(asked_of(samples, [FIRST, LAST], choices={"page": page})), "tasks")
    assert found == every
    assert rows(tasks(asked_of(samples, [FIRST, LAST], choices={"page": "all"})), "tasks") == every


def test_a_cell_baseline_and_order_go_into_the_address() -> None:
    page = opened("checkpoints", c=f"{FIRST},random,{LAST}")
    page.segmented_control(key="choose_cell").set_value("only_b").run()
    asked = {name: page.query_params[name] for name in ("cell", "c", "base", "b", "run")}
    tokens = f"{FIRST},random,{LAST}"  # all that is compared: the link means the same later
    assert asked == {"cell": "only_b", "c": tokens, "base": FIRST, "b": LAST, "run": PLAYED}
    page.selectbox(key="choose_family").select("math").run()
    assert (page.query_params["cell"], page.query_params["family"]) == ("only_b", "math")
    page.button(key="swap").click().run()
    assert (page.query_params["base"], page.query_params["b"]) == (LAST, FIRST)
    page.selectbox(key="side_b").select(LAST).run()  # the other side's: they swap
    assert (page.query_params["base"], page.query_params["b"]) == (FIRST, LAST)
    page.multiselect(key="policies").set_value(["random"]).run()
    assert "Choose two policies" in page.markdown[0].value
    assert not page.exception


def test_who_is_added_or_taken_away_leaves_a_and_b_as_they_are() -> None:
    page = opened("checkpoints", c=f"{FIRST},{LAST}")
    page.multiselect(key="policies").set_value([FIRST, LAST, MIDDLE]).run()
    assert (page.selectbox(key="side_base").value, page.selectbox(key="side_b").value) == (FIRST, LAST)
    page.selectbox(key="side_base").select(MIDDLE).run()  # who is neither becomes A, and B stays B
    assert (page.selectbox(key="side_base").value, page.selectbox(key="side_b").value) == (MIDDLE, LAST)
    page.selectbox(key="side_b").select("random").run()  # who has played can be chosen and so joins them
    assert page.multiselect(key="policies").value == [FIRST, LAST, MIDDLE, "random"]
    assert (page.selectbox(key="side_base").value, page.selectbox(key="side_b").value) == (MIDDLE, "random")
    page.multiselect(key="policies").set_value([FIRST, LAST, "random"]).run()  # A goes: B is still B
    assert (page.selectbox(key="side_base").value, page.selectbox(key="side_b").value) == (FIRST, "random")
    assert not page.exception


def test_who_is_ahead_is_said_with_whom_it_cannot_be_told_from() -> None:
    much, little = compare_counts(20, 2, 30, 10, key="k"), compare_counts(20, 8, 12, 10, key="k")
    assert leading("generation 60", [("generation 0", much, 1), ("generation 30", little, 1)]) == (
        "generation 60 is ahead; against generation 30 (+8.0 points, p 0.503) the difference may be luck."
    )
    back = compare_counts(20, 30, 2, 10, key="k")  # the best as A
    assert "more than chance alone" in leading("b", [("a", much, 1), ("c", back, -1)])
    same, none = compare_counts(20, 8, 8, 10, key="k"), compare_counts(0, 0, 0, 0, key="k")
    assert leading("a", [("b", same, 1), ("c", little, -1), ("d", none, 1)]) == (
        "a and b are ahead, equally far; on the tasks that both played c did better; no task is shared with d."
    )
    ten = [("ones", compare_counts(20, 2, 12, 10, key="k"), 1)]  # p 0.013: enough alone, too little among ten
    assert "luck" not in leading("a", ten)
    assert "may be luck" in leading("a", [*ten, *((str(i), much, 1) for i in range(9))])
    assert evenly(list("abcdefghijk"), 4) == ["a", "d", "h", "k"]
    assert evenly(list("ab"), 8) == ["a", "b"]


def test_evolution_and_checkpoints_say_what_their_accuracies_are_of_and_lead_to_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sample_store(tmp_path / "trinity.db", 9)
    monkeypatch.setenv("TRINITY_STORE", store.url)
    sets = task_sets(store, [PolicySide(FIRST), PolicySide(LAST)])
    assert sum(one.n for one in sets) == 11
    assert tasks_words([one for one in sets if one.family == "user"]) == "2 tasks of the test split (user 2)"
    assert tasks_words([TaskSet("a", "x", 1), TaskSet("a", "y", 2), TaskSet("b", "x", 3)]) == (
        "6 tasks of 3 of the a split (x 1 and y 2), 3 of the b split (x 3)"
    )
    right = {born: figures(store, [PolicySide(checkpoint(born).id)])[0].summary for born in (0, 8, 30)}
    best = max(right, key=lambda born: right[born].correct)
    other = 8 if best != 8 else 30  # the evolution's own validation names another one
    with writing(store.engine) as connection:
        for number, share in ((0, 0.1), (best, 0.5), (other, 0.75)):
            told = {"validation": {"accuracy": share, "n": 40}}
            where = learning_update.c.idx == number
            connection.execute(learning_update.update().where(where).values(stats=told))
    page = opened("checkpoints")
    words = plainly(page)
    assert "Accuracy is the share of right answers on 11 tasks of the test split (" in words
    assert "each played once." in words
    assert (
        "40 validation tasks of pocket (math, logic, knowledge, code), each played once: "
        f"there gen {other} is the best with 75.0 % (60 to 86)" in words
    )
    assert f"gen {best} has 50.0 %" in words
    there = next(one for one in page.page_link if one.label == f"gen {other} on Evolution")
    asked = parse_qs(there.proto.query_string)
    assert (asked["run"], asked["gen"]) == ([EVOLVED], [str(other)])
    page = opened("evolution")
    words = plainly(page)
    assert f"Generation {other} is the best validated: 75.0 % (60 to 86)" in words
    assert "on 40 validation tasks of pocket (math, logic, knowledge, code), each played once" in words
    assert "recorded episodes of other plays: 11 tasks of the test split, each played once." in words
    assert f"There gen {best} is the best with {percent(right[best].accuracy)} (" in words
    assert f"gen {other}, the best here, has {percent(right[other].accuracy)} (" in words
    back = next(one for one in page.page_link if one.label == f"gen {best} on Checkpoints")
    assert parse_qs(back.proto.query_string)["c"] == [f"{FIRST},{MIDDLE},{LAST}"]
    store.close()


def test_who_played_tasks_again_in_other_runs_is_told_with_what_all_of_them_come_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sample_store(tmp_path / "trinity.db", 9)
    monkeypatch.setenv("TRINITY_STORE", store.url)
    once = figures(store, [PolicySide(LAST)])[0].summary
    begin_run(store, "rsecond1", "run", {})
    for number in range(once.n):
        first = store.episodes.get(episode_id(PLAYED, 2 * once.n + number))
        name = episode_id("rsecond1", number)
        turns = tuple(replace(turn, episode_id=name) for turn in first.turns)
        again = replace(first, id=name, run_id="rsecond1", seed=4, correct=True, turns=turns)
        list(record(store, events_of(again)))
    both = PolicySide(LAST), PolicySide(FIRST)
    assert plays_words(figures(store, both), ["gen 30", "start"]) == (
        "each played 2 times by gen 30 and once by start"
    )
    share = percent((once.correct + once.n) / (2 * once.n))
    page = opened("checkpoints")
    assert f"Over every run: gen 30 {share} (each task played 2 times)." in plainly(page)
    whole = next(one for one in page.page_link if one.label == "Count every run")
    everywhere = opened("checkpoints", **{k: v[0] for k, v in parse_qs(whole.proto.query_string).items()})
    assert f"{share} (" in list(everywhere.dataframe[0].value["accuracy"])[1]
    home = opened("home")
    tips = " ".join(one.help.replace("\\", "") for one in home.markdown if one.help)
    assert "11 tasks of the test split, each played once, with seed 3." in tips
    assert "gen 30 with its 1 other run together" in shown(home)
    store.close()


def test_a_head_of_zeros_is_told_to_choose_like_chance(samples: Store) -> None:
    assert prefers_nothing(samples, FIRST)  # found from its numbers
    assert not prefers_nothing(samples, LAST)
    assert not prefers_nothing(samples, "random")
    words = "start prefers nothing: all parameters of its head are zero"
    assert words in plainly(opened("checkpoints", c=f"{FIRST},random,{LAST}"))
    assert words not in plainly(opened("checkpoints", c=f"{FIRST},{LAST}"))
    told = "start prefers nothing"
    assert told in plainly(opened("verifier", part="cost", mix="all"))
    assert told not in plainly(opened("verifier", part="cost", policy="random"))
    assert told in plainly(opened("routing", part="pays", a=FIRST, b="random"))
    page = opened("policy")  # where it would have nothing to show
    assert page.multiselect(key="policy_checkpoints").value == [MIDDLE, LAST]


def test_one_word_for_each_share_of_wrong_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compare", FIRST, LAST, "--part", "course"]) == 0
    said = capsys.readouterr().out
    assert "Wrong among accepted" in said
    assert "False accepts" not in said
    assert command(["verifier"]) == 0
    said = capsys.readouterr().out
    assert "Wrong among accepted" in said
    assert "Wrong answers accepted" in said
    assert define("Wrong among accepted") != define("Wrong answers accepted")


def test_a_link_of_two_policies_opens_their_tasks(samples: Store) -> None:
    page = opened("checkpoints", base=f"{PLAYED}/random", b=f"{PLAYED}/{LAST}", cell="both_right")
    assert page.multiselect(key="policies").value == [f"{PLAYED}/random", f"{PLAYED}/{LAST}"]
    assert len(page.dataframe[1].value) == len(
        read_shared_tasks(samples, PolicySide("random"), PolicySide(LAST), (), cell="both_right")
    )


def test_a_stale_policy_is_told_and_left_out(samples: Store) -> None:
    page = opened("checkpoints", c=f"cgone,{LAST}")
    assert "cgone" in page.info[0].value
    assert page.multiselect(key="policies").value == [LAST, FIRST]
    assert (page.selectbox(key="side_base").value, page.selectbox(key="side_b").value) == (LAST, FIRST)
    assert not opened("checkpoints").info


@pytest.mark.parametrize("query", [{"c": "cgone"}, {"base": "cgone", "b": "gone too"}])
def test_an_address_that_names_nobody_known_says_so_and_shows_what_the_page_opens_on(
    samples: Store, query: dict[str, str]
) -> None:
    page = opened("checkpoints", **query)
    (told,) = page.info
    assert "cgone" in told.value
    assert page.multiselect(key="policies").value == [FIRST, MIDDLE, LAST]
    assert (page.selectbox(key="side_base").value, page.selectbox(key="side_b").value) == (FIRST, LAST)


def test_addresses_name_any_policy() -> None:
    tokens = ["single:x,y/z", "100%", "r1/a"]
    assert parted(listed(tokens)) == tokens
    assert compared_in_address({"base": "r1/a", "b": "b"}) == (["r1/a", "b"], "r1/a", "b")
    line, gone = line_of({"c": listed(["r1/a", "gone", "single:x,y/z"]), "b": "r1/a"}, WHO, ["a", "b"])
    assert line is not None
    assert gone == ["gone"]
    assert line.sides == (PolicySide("a", "r1"), PolicySide("single:x,y/z"))
    assert line.base != line.chosen
    assert line_of({"c": "a"}, WHO, ["a", "b"]) == (None, [])
    assert line.swapped().params()["base"] == line.chosen.token


def test_what_was_played_under_two_settings_is_two_sides_and_never_averaged() -> None:
    who = [*WHO, PolicyInRun("r3", "a", ONE, 2)]
    line, gone = line_of({"c": "a,b"}, who, ["a", "b"])
    assert line is not None
    assert not gone
    assert line.sides == (PolicySide("a", None, FIVE), PolicySide("a", None, ONE), PolicySide("b"))
    assert [side.token for side in line.sides] == ["a@5-3fa9c2", "a@1-argmax-released-3fa9c2", "b"]
    again, _ = line_of({key: str(value) for key, value in line.params().items() if value}, who, ["a", "b"])
    assert again is not None
    assert again.sides == line.sides
    assert within(line, who, "r1").sides[:2] == (PolicySide("a", "r1", FIVE), PolicySide("a", None, ONE))
    assert setting_words(ONE, [FIVE]) == "1 turn, argmax, the authors' released code's rules"
    assert setting_words(FIVE, [replace(FIVE, turn_budget=1)]) == "5 turns"
    assert line_of({"c": "a@2,b"}, who, ["a", "b"])[1] == ["a@2"]


@pytest.mark.parametrize(
    ("only_a", "only_b", "words"),
    [
        (1, 4, "can never show more than luck"),
        (5, 9, "may be luck"),
        (2, 20, "Yes, B is better"),
        (20, 2, "No, A is better"),
    ],
)
def test_the_verdict_claims_no_more_than_the_flips_show(only_a: int, only_b: int, words: str) -> None:
    assert words in verdict(compare_counts(20, only_a, only_b, 10, key="k"))


def repeated(once: Sequence[tuple[int, int, int]], times: int) -> list[MatchedTasks]:
    """(right by A, right by B, tasks), each task played so often with the same end."""
    return [MatchedTasks(times, times * a, times, times * b, tasks) for a, b, tasks in once]


def test_repeats_of_a_task_are_no_new_evidence() -> None:
    once = [(1, 1, 20), (1, 0, 4), (0, 1, 12), (0, 0, 10)]
    one, ten = compare(repeated(once, 1), key="k"), compare(repeated(once, 10), key="k")
    assert (ten.p, ten.difference, ten.n) == (one.p, one.difference, one.n)
    assert ten.repeats
    assert "10" not in basis(one)
    mixed = compare([*repeated(once, 1), MatchedTasks(3, 1, 3, 2, 6)], key="k")
    assert not mixed.exact  # shares of thirds beside whole ones: no McNemar table holds them
    assert 0 < mixed.p < one.p
    assert mixed.p == compare([MatchedTasks(3, 1, 3, 2, 6), *repeated(once, 1)], key="k").p


def test_how_they_went_about_it_is_what_the_store_counts(samples: Store) -> None:
    asked = asked_of(samples, [FIRST, "random", LAST])
    went = dict(zip(asked.sides, courses(samples, played(asked)), strict=True))
    moved = routing(asked)
    assert moved
    assert sum(one["share"] for one in rows(moved, "grid")) == pytest.approx(0.0)
    grid = moved.blocks[0]
    assert isinstance(grid, Grid)
    assert [grid.columns, len(grid.rows)] == [list(MODELS), 3]
    assert grid.cells[1][0].mark.to == asked.sides[1].listed(model=MODELS[0], role="worker")
    for answer, key, counts in (
        (lengths(asked), "lengths", "turns"),
        (entropies(asked), "entropies", "entropy"),
    ):
        assert answer
        for side, points in plain.answer(answer)[key].items():
            course = next(one for of, one in went.items() if of.title == side)
            assert bool(points) == bool(getattr(course, counts))
            assert sum(point["share"] for point in points) == pytest.approx(float(bool(points)))
    curve = lengths(asked).blocks[0]
    assert isinstance(curve, Curve)
    drawn = figure_of(curve)
    assert [trace.name for trace in drawn.data] == [side.title for side in asked.sides]
    assert len({(trace.line.color, trace.line.dash, trace.marker.symbol[0]) for trace in drawn.data}) == 3
    keys = [one["key"] for one in rows(config(asked), "config")]
    assert "generation" in keys
    assert "encoder.name" not in keys
    assert flat({"a": {"b": 1}, "c": 2}) == {"a.b": "1", "c": "2"}
    assert config(asked_of(samples, [FIRST, "random"])) is None


def test_a_family_of_a_stranger_is_drawn_as_it_stands_and_narrows_the_list(samples: Store) -> None:
    wild = Line("<b>x</b> (3 tasks)", Estimate(0.1, (-0.2, 0.4)))
    assert "<b>x" not in figure_of(Estimates([wild], "points", signed=True)).to_json()
    answer = families(asked_of(samples, [FIRST, LAST]))
    assert answer
    shown = answer.blocks[0]
    assert isinstance(shown, Estimates)
    assert all(line.mark.to and line.mark.to.page == "checkpoints" for line in shown.lines)
    assert "code" in [line.mark.to.params["family"] for line in shown.lines if line.mark.to]
