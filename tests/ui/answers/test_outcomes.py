"""What the page of outcome tables says: of tables whose every answer is known, and of policies played on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from core.analysis.metrics import wilson_interval
from core.errors import ConfigError
from core.outcomes.table import OutcomeTable
from core.settings import data_folder
from core.tasks.sets import load_tasks
from storage.store import Store, open_store
from tests.core.outcomes.tables import Answered, small_table
from tests.ui.pages import assert_literal, command, opened, opened_in, plainly, shown
from ui.answers import pages
from ui.answers.blocks import Answer, Estimate, Estimates, Grid, Points, Table
from ui.answers.outcomes.subject import asked_of_table, short
from ui.notebook import outcomes
from ui.web.pickers.palette import called, outcome_tables

HOSTILE = "<script>alert(1)</script> $x$ ![a](https://a.example/b.png) **bold**"
#: Forty questions of law and physics: ann knows law, bob physics; cyd is right together with ann in law alone.
ANSWERS: dict[str, list[Answered]] = {
    "ann": ["A" if i % 2 == 0 else "B" for i in range(40)],
    "bob": ["A" if i % 2 == 1 else "C" for i in range(40)],
    "cyd": ["A" if i % 2 == 0 and i > 1 else "B" for i in range(40)],
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "trinity.db"))
    opened = open_store(tmp_path / "trinity.db")
    yield opened
    opened.close()


@pytest.fixture
def table(store: Store) -> OutcomeTable:
    marks: dict[tuple[str, int], bool | None] = {("bob", 0): True, ("bob", 2): True}
    return small_table(data_folder(), ANSWERS, name="known", marks=marks)


def answers(
    store: Store, table: OutcomeTable, part: str, on: str = "all", **choices: str
) -> dict[str, Answer]:
    asked = asked_of_table(store, table, on=on, choices=choices)
    found = [one for of in pages.answers("outcomes", asked, [part]).values() for one in of]
    asked.refuse_unknown(found)
    return {one.key: one for one in found}


def rows(one: Answer, key: str) -> list[dict[str, Any]]:
    [found] = [block for block in one.blocks if isinstance(block, Table) and block.key == key]
    return [
        {column.key: value for column, value in zip(found.columns, row, strict=True)} for row in found.rows
    ]


def test_a_cell_is_a_models_accuracy_in_a_domain_and_leads_to_its_questions(
    store: Store, table: OutcomeTable
) -> None:
    [grid] = [one for one in answers(store, table, "models")["known"].blocks if isinstance(one, Grid)]
    assert (grid.rows, grid.columns) == (["ann", "bob", "cyd"], ["all", "law", "physics"])
    assert [[cell.value for cell in row] for row in grid.cells] == [
        [0.5, 1.0, 0.0],
        [0.5, 0.0, 1.0],
        [0.475, 0.95, 0.0],
    ]
    assert grid.cells[2][1].ci95 == wilson_interval(19, 20)
    assert [cell.sign for cell in grid.cells[0]] == ["*", "*", ""]
    to = grid.cells[2][1].mark.to
    assert to is not None
    assert (to.params["part"], to.params["model"], to.params["domain"]) == ("questions", "cyd", "law")
    assert to.params["case"] is None, "a click leaves no condition of an earlier list"


def test_it_says_where_a_lead_is_more_than_luck(store: Store, table: OutcomeTable) -> None:
    found = answers(store, table, "models")["lead"]
    by_domain = {row["domain"]: row for row in rows(found, "rows")}
    assert (by_domain["law"]["best"], by_domain["law"]["next"]) == ("ann", "cyd")
    assert (by_domain["law"]["holds"], by_domain["law"]["p"]) == ("possible", 1.0)
    assert (by_domain["physics"]["best"], by_domain["physics"]["holds"]) == ("bob", "no")
    assert "more than luck when all 2 comparisons are allowed for: bob in physics." in found.sentence
    assert "It may be luck in law." in found.sentence


def test_a_lead_is_told_with_the_accuracies_on_the_questions_of_both(store: Store) -> None:
    ann: list[Answered] = ["A" if i < 30 else "B" for i in range(40)]
    bob: list[Answered] = [None if i < 20 else "A" if i < 24 else "B" for i in range(40)]
    found = answers(store, small_table(data_folder(), {"ann": ann, "bob": bob}, name="part"), "models")
    assert "On the 20 questions that both answered ann has +30.0 points (" in found["lead"].sentence
    assert "over bob (50.0 % against 20.0 %): more than luck (p 0.031)." in found["lead"].sentence
    first = rows(found["lead"], "rows")[0]
    assert (first["accuracy"].value, first["next_accuracy"].value) == (0.5, 0.2)
    assert first["lead"].value == pytest.approx(0.3)


def test_an_interval_without_0_that_does_not_hold_among_all_domains_is_told(store: Store) -> None:
    domains = ["law", "physics", "history", "biology"]
    ann: list[Answered] = ["A" if i % 4 or i < 28 else "B" for i in range(80)]
    bob: list[Answered] = ["A" if i % 4 else "B" for i in range(80)]
    table = small_table(data_folder(), {"ann": ann, "bob": bob}, name="four", families=domains)
    found = answers(store, table, "models")["lead"]
    law = next(row for row in rows(found, "rows") if row["domain"] == "law")
    assert (law["lead"].ci95[0] > 0, law["p"], law["holds"]) == (True, 0.015625, "possible")
    assert "when all 4 comparisons are allowed for." in found.sentence
    assert (
        "(The interval of law leaves out 0, but an interval allows for one comparison alone.)"
        in found.sentence
    )


def test_a_single_domain_is_shown_once(store: Store) -> None:
    table = small_table(data_folder(), ANSWERS, name="one", families=["law"])
    found = answers(store, table, "models")
    [drawn] = found["known"].blocks
    assert isinstance(drawn, Estimates)
    assert [(line.name, line.estimate.value) for line in drawn.lines] == [
        ("ann", 0.5),
        ("bob", 0.5),
        ("cyd", 0.475),
    ]
    assert [row["domain"] for row in rows(found["lead"], "rows")] == ["law"]
    assert "domains" not in found["lead"].sentence
    assert "40 questions in the domain law, all of them answered by all 3 models." in found["known"].sentence


def test_how_many_questions_all_models_answered_is_said_one_way(store: Store) -> None:
    models: dict[str, list[Answered]] = {
        "ann": ["A"] * 40,
        "bob": [None if i < 8 else "B" for i in range(40)],
    }
    found = answers(store, small_table(data_folder(), models, name="lacks"), "models")
    assert "40 questions in 2 domains, 32 of them answered by all 2 models." in found["known"].sentence
    assert found["taken"].sentence.startswith(
        "All 2 models answered 32 of 40 questions (80.0 %). Least: bob, 32."
    )


def test_a_second_opinion_says_what_it_costs_and_brings(store: Store, table: OutcomeTable) -> None:
    found = answers(store, table, "together", first="ann", second="cyd")["second"]
    # They differ in the first question alone, where ann is right.
    assert "agree in 97.5 %" in found.sentence
    assert "ann is right in 100.0 %, cyd in 0.0 %, neither in 0.0 %" in found.sentence
    assert "one more call a question (140 tokens)" in found.sentence
    assert (
        "marks 1 answer of ann as doubtful: 0 of its 20 wrong ones (0.0 %), and 1 right ones"
        in found.sentence
    )
    assert "would win 0.0 points, from 50.0 % to 50.0 %." in found.sentence
    best = rows(found, "seconds")[0]
    assert (best["second"], best["most"], best["tokens"]) == ("bob", 0.5, 130)
    assert best["same"] == Estimate(0.0, wilson_interval(0, 40), 0, 40)


def test_the_questions_that_one_model_alone_knows_are_listed(store: Store, table: OutcomeTable) -> None:
    found = answers(store, table, "together")["alone"]
    assert [(row["model"], row["only"]) for row in rows(found, "models")] == [("ann", 1), ("bob", 20)]
    assert found.sentence.startswith("21 of 40 questions (52.5 %) are answered right by one model alone.")
    first = rows(found, "questions")[0]
    assert (first["id"], first["knows"]) == (table.tasks[0].id, "ann")
    [listed] = [one for one in found.blocks if isinstance(one, Table) and one.key == "questions"]
    assert listed.leads[0].params["task"] == table.tasks[0].id
    alone = answers(store, table, "questions", case="one")["listed"]
    assert [row["knows"] for row in rows(alone, "questions")[:2]] == ["ann", "bob"]


def test_lone_right_answers_stand_beside_those_that_guessing_would_give(store: Store) -> None:
    models: dict[str, list[Answered]] = {
        "ann": ["A" if i < 10 else "B" for i in range(40)],
        "bob": ["B"] * 40,
        "cyd": ["B" if i < 10 else "C" for i in range(40)],
    }
    found = answers(store, small_table(data_folder(), models, name="guess"), "together")["alone"]
    # To thirty questions C is given by cyd alone, and two of four options by nobody; ninety answers are wrong.
    assert "All of them may be lucky guesses" in found.sentence, "15 would be, of 10"
    assert "each for itself, it would be 30, more than there are: they do not guess so." in found.sentence
    [ann] = rows(found, "models")
    assert (ann["only"], ann["guessed"], ann["guessed_evenly"]) == (10, 0.0, 10.0)
    open_ended = small_table(
        data_folder(), models, name="open", questions=[f"What is {i}?" for i in range(40)]
    )
    found = answers(store, open_ended, "together")["alone"]
    assert "Guessing" not in found.sentence
    assert "guessed" not in rows(found, "models")[0]


def test_a_list_holds_the_questions_of_its_case_and_turns_its_pages(store: Store) -> None:
    many: dict[str, list[Answered]] = {"ann": ["B"] * 130, "bob": ["A"] * 130}
    table = small_table(data_folder(), many, name="many")
    first = answers(store, table, "questions", model="ann", case="wrong")["listed"]
    assert first.sentence == "ann is wrong: 130 questions. These are 1 to 50."
    assert len(rows(first, "questions")) == 50
    assert [way.to.params["at"] for way in first.ways] == ["2"]
    last = answers(store, table, "questions", model="ann", case="wrong", at="3")["listed"]
    assert last.sentence == "ann is wrong: 130 questions. These are 101 to 130."
    assert [row["id"] for row in rows(last, "questions")] == [task.id for task in table.tasks[100:]]
    law = answers(store, table, "questions", domain="law", case="some")["listed"]
    assert law.sentence.startswith("Some models are right, not all: 65 questions of law.")
    with pytest.raises(ConfigError, match="case cannot be 'rescues'"):
        answers(store, table, "questions", model="ann", case="rescues")


def test_a_question_shows_every_reply_with_answer_grade_and_mark(store: Store, table: OutcomeTable) -> None:
    task = table.tasks[0]
    found = answers(store, table, "questions", task=task.id)["question"]
    assert found.sentence.startswith("1 of 3 models is right: ann. The key is A. Domain law,")
    assert "our grader “choice”" in found.sentence
    told = [(row["model"], row["answer"], row["right"], row["marked"]) for row in rows(found, "replies")]
    assert told == [
        ("ann", "A", "● right", "● right"),
        ("bob", "C", "✕ wrong", "● right"),
        ("cyd", "B", "✕ wrong", "✕ wrong"),
    ]
    assert rows(found, "replies")[1]["reply"] == "bob thinks about it. The answer is (C)."
    gone = answers(store, table, "questions", task="nobody")["question"]
    assert gone.sentence == "This table has no question nobody."


def test_our_grades_are_set_against_the_tables_marks(store: Store, table: OutcomeTable) -> None:
    found = answers(store, table, "grading")["marks"]
    bob = next(row for row in rows(found, "models") if row["model"] == "bob")
    assert (bob["differ"], bob["ours"], bob["theirs"]) == (2, 0, 2)
    assert "In 98.3 % of 120 replies; 2 differ. Least for bob, 95.0 %" in found.sentence
    cases = answers(store, table, "questions", model="bob", case="marks")["listed"]
    assert [row["id"] for row in rows(cases, "questions")] == [table.tasks[0].id, table.tasks[2].id]


def test_rules_are_told_with_what_they_would_be_if_chosen_on_the_same(
    store: Store, table: OutcomeTable
) -> None:
    found = answers(store, table, "won")["won"]
    told = {row["rule"]: row for row in rows(found, "rules")}
    n = len(load_tasks("outcomes:known", "test", None, 0))
    assert told["by-family"]["accuracy"].value == 1.0
    assert told["oracle"]["flattered"] == 1.0
    assert f"of {n} test questions" in found.sentence
    right = sum(task.family == "law" for task in load_tasks("outcomes:known", "test", None, 0))
    single = f"{100 * right / n:.1f} %"
    assert "Of the 5 rules that read no grade “by-family” does best on these questions" in found.sentence
    assert (
        f"over the best single model, 100.0 % against {single} on the {n} questions of both" in found.sentence
    )
    assert "more than luck, also with 5 rules compared (p 0.002 for it alone)." in found.sentence
    assert (told["by-family"]["holds"], told["oracle"]["holds"], told["best_single"]["holds"]) == (
        "no",
        "",
        "",
    )
    # ann is best on evolve and validation questions, and bob on the test questions.
    assert "There bob has +11.1 points" in found.sentence
    [bob] = [one for one in found.sentence.splitlines() if "There bob has" in one]
    assert "perhaps luck (p 0." in bob, "with p above 0.05 it is luck by itself"
    of_evolve = answers(store, table, "won", on="evolve")["won"]
    assert "Rules are measured on test questions, whichever are counted elsewhere." in of_evolve.sentence


def test_models_far_below_the_best_are_not_drawn_beside_it(store: Store) -> None:
    wrong: list[Answered] = ["B"] * 40
    models: dict[str, list[Answered]] = {
        "ann": ["A" if i < 39 else "B" for i in range(40)],
        "bob": ["A" if i < 38 else "B" for i in range(40)],
        "far": wrong,
    }
    found = answers(store, small_table(data_folder(), models, name="far"), "won")["frontier"]
    [points] = [one for one in found.blocks if isinstance(one, Points)]
    assert points.zoomed
    assert "far" not in {one.name for one in points.points}
    assert {"ann", "bob"} <= {one.name for one in points.points}
    assert " 1 model below " in found.sentence


@pytest.mark.integration
def test_policies_that_were_played_stand_beside_the_rules(store: Store, table: OutcomeTable) -> None:
    lacking = answers(store, table, "won")["frontier"].sentence
    assert "No policy has been played on these questions yet" in lacking
    named = ["--pool", "outcomes:known", "--tasks", "outcomes:known", "--split", "test"]
    assert command(["run", *named, "--policy", "single:bob", "--policy", "random"]) == 0
    found = answers(store, table, "won")["frontier"]
    policies = {row["policy"]: row for row in rows(found, "policies")}
    of_bob = [task.family == "physics" for task in load_tasks("outcomes:known", "test", None, 0)]
    assert policies["single:bob"]["accuracy"].value == pytest.approx(sum(of_bob) / len(of_bob))
    assert (policies["single:bob"]["calls"], policies["single:bob"]["tokens"]) == (1.0, 130.0)
    assert policies["random"]["on"] == "fold 0, test"
    # ann is the best single model on evolve and validation questions, and right where the family is law.
    of_ann = [task.family == "law" for task in load_tasks("outcomes:known", "test", None, 0)]
    lead = (sum(of_bob) - sum(of_ann)) / len(of_bob)
    assert policies["single:bob"]["lead"].value == pytest.approx(lead)
    assert policies["single:bob"]["holds"] == "possible"
    alone = {row["rule"]: row for row in rows(answers(store, table, "won")["won"], "rules")}
    assert policies["single:bob"]["lead"] == alone["single:bob"]["difference"], "as the rule of the same name"
    [points] = [one for one in found.blocks if isinstance(one, Points)]
    assert {"single:bob", "random"} <= {one.mark.to.params["policy"] for one in points.points if one.mark.to}
    assert "No policy has been played" not in found.sentence
    assert "other questions than the rules" not in found.sentence
    assert command(["run", *named, "--policy", "single:cyd", "--n", "3"]) == 0
    few = answers(store, table, "won")["frontier"].sentence
    assert (
        "1 policy played other questions than the rules: drawn in grey, and below each against the best"
        in few
    )
    small_table(data_folder(), name="aaa")
    assert [one.value for one in opened("outcomes").selectbox if one.label == "Table"] == ["known"]
    played = store.episodes.of_run(policies["random"]["run"])[0]
    replay = opened("replay", ep=played.id)
    [link] = [one for one in replay.page_link if one.label == "What every recorded model answered"]
    task = store.episodes.get(played.id).task.id
    assert parse_qs(link.query_string) == {"table": ["known"], "part": ["questions"], "task": [task]}
    page = opened("outcomes", table="known", part="questions", task=task)
    assert "ann thinks about it." in shown(page)


def test_json_has_fixed_names(store: Store, table: OutcomeTable, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["outcomes", "show", "known", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["accuracy"]) for one in told["models"]] == [
        ("ann", 0.5),
        ("bob", 0.5),
        ("cyd", 0.475),
    ]
    assert told["best_per_domain"] == told["oracle"] == 1.0
    assert 0.0 <= told["best_single"] <= told["weighted_vote"] <= 1.0
    assert told["majority"] == pytest.approx(told["on_all_tasks"]["majority"], abs=0.3)
    assert told["coverage"] == {"ann": 1.0, "bob": 1.0, "cyd": 1.0}
    assert told["measured_on"]["chosen_on"] == ["evolve", "validation"]
    assert command(["outcomes", "show", "known", "--fold", "7"]) == 1
    assert "There is no fold 7: choose one of 0 to 4." in capsys.readouterr().err
    assert command(["outcomes", "show", "known", "--split", "dev"]) == 1
    assert "There is no split 'dev'" in capsys.readouterr().err


def test_a_notebook_has_the_same_as_data_frames(store: Store, table: OutcomeTable) -> None:
    found = outcomes(store, "known", part=["models"])
    frame = found["taken"].tables["models"]
    assert list(frame["model"]) == ["ann", "bob", "cyd"]
    assert list(frame["coverage"]) == [1.0, 1.0, 1.0]


def test_short_names_stay_apart() -> None:
    names = [
        "Meta-Llama-3_1-70B-Instruct",
        "Meta-Llama-3_1-8B-Instruct",
        "Phi-3",
        *["the-same-long-name"] * 2,
    ]
    found = short(names)
    assert found[:3] == ["Meta-Llama…70B", "Meta-Llama-…8B", "Phi-3"]
    assert len(set(found)) == len(names)
    assert max(map(len, found)) <= 14


@pytest.mark.integration
def test_the_page_of_a_question_shows_replies_as_text(store: Store) -> None:
    models: dict[str, list[Answered]] = {"ann": [("A", "B")], "bob": ["C"]}
    table = small_table(
        data_folder(),
        models,
        name="hostile",
        questions=[HOSTILE],
        said=HOSTILE,
        families=[HOSTILE],
        source=HOSTILE,
    )
    for part in ("models", "won", "together", "grading", "questions"):
        assert_literal(opened("outcomes", table="hostile", part=part))
    page = opened("outcomes", table="hostile", part="questions", task=table.tasks[0].id)
    assert_literal(page)
    assert sum(HOSTILE in block.value for block in page.code) == 1 + 2, "the question and two replies"
    assert "outcomes_sample" in {one.key for one in page.selectbox}
    second = opened("outcomes", table="hostile", part="questions", task=table.tasks[0].id, sample="1")
    assert sum(HOSTILE in block.value for block in second.code) == 1 + 1, "bob has one sample"


@pytest.mark.integration
def test_without_a_table_the_page_says_how_to_add_one(store: Store) -> None:
    page = opened("outcomes")
    assert "There is no outcome table yet" in plainly(page)
    assert "trinity outcomes add NAME FILE" in shown(page)


@pytest.mark.integration
def test_a_table_that_is_gone_is_said_and_another_shown(store: Store, table: OutcomeTable) -> None:
    page = opened("outcomes", table="gone")
    assert "There is no outcome table gone: another one is shown." in plainly(page)
    assert "ann knows most" in plainly(page)


@pytest.mark.integration
def test_questions_and_fold_can_be_chosen_where_they_matter_alone(store: Store, table: OutcomeTable) -> None:
    def fields(**query: str) -> dict[str, bool]:
        found = opened("outcomes", table="known", **query).selectbox
        return {one.label: one.disabled for one in found if one.label in ("Questions", "Split by")}

    assert fields() == {"Questions": False}
    assert fields(on="test") == {"Questions": False, "Split by": False}
    assert fields(part="won") == {"Questions": True, "Split by": False}
    won = opened("outcomes", table="known", part="won", on="evolve")
    assert "evolve" in won.query_params["on"], "what was chosen holds again on the other tabs"


@pytest.mark.integration
def test_the_table_that_was_looked_at_last_is_shown_again(store: Store, table: OutcomeTable) -> None:
    small_table(data_folder(), ANSWERS, name="another", families=["history"])
    page = opened("outcomes", table="known")
    assert "who knows what, what a second opinion brings" in plainly(page)
    page.query_params.clear()
    back = opened_in(page, "outcomes")
    assert "known" in back.query_params["table"]
    assert "questions in 2 domains" in plainly(back)
    assert "in the domain history" in plainly(opened("outcomes")), "another tab begins with the first"


def test_go_to_knows_tables_by_name(store: Store, table: OutcomeTable) -> None:
    assert called("known", outcome_tables()) == [("Outcome table known", "outcomes", {"table": "known"})]


@pytest.mark.integration
def test_the_glossary_says_what_each_rule_does(store: Store, table: OutcomeTable) -> None:
    found = answers(store, table, "won")["won"]
    [way] = found.ways
    page = shown(opened(way.to.page, **{name: str(value) for name, value in way.to.params.items()}))
    played = {row["rule"].partition(":")[0] for row in rows(found, "rules")}
    for name in {*played, "sure"} - {"best_single", "oracle", "cheapest_right", "oracle_cross_fitted"}:
        assert f"**{name}**" in page
    assert "**Logit**" not in page
