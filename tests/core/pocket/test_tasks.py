"""The pocket tasks: right answers, disjoint splits, one template that only tests see."""

import random
import re
from dataclasses import replace
from itertools import islice

import pytest

from core.errors import TaskError
from core.pocket import FAMILIES
from core.pocket.families import BY_NAME
from core.pocket.problem import Problem
from core.pocket.tasks import SPLITS, draw_problems, draw_tasks, normalise_question, split_of
from core.tasks.sandbox import evaluate_many


@pytest.mark.parametrize("split", SPLITS)
def test_no_question_is_in_two_splits(split: str) -> None:
    """Whatever its seed, family and dress; the dress shows that the question itself decides."""
    for family in FAMILIES:
        for problem in islice(draw_problems(family, split, seed=1), 200):
            dressed = "  ".join(problem.question.upper().split()) + "\n"
            assert [name for name in SPLITS if name == split_of(dressed)] == [split]


def test_the_splits_share_out_all_questions() -> None:
    assert sorted(place for owned in SPLITS.values() for place in owned) == list(range(100))


def test_the_same_seed_draws_the_same_tasks_and_another_seed_others() -> None:
    assert draw_tasks("math", "test", 50, 3) == draw_tasks("math", "test", 50, 3)
    assert draw_tasks("math", "test", 50, 3) != draw_tasks("math", "test", 50, 4)
    assert len({task.question for task in draw_tasks("logic", "test", 300, 0)}) == 300


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_five_templates_and_one_that_only_tests_see(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = BY_NAME[family]
    assert len(generator.templates) >= 5
    assert generator.unseen not in generator.templates

    def marked(rng: random.Random) -> Problem:
        return Problem(f"UNSEEN {rng.random()}", "1", "none", ("2",))

    monkeypatch.setitem(BY_NAME, family, replace(generator, unseen=marked))
    for split in SPLITS:
        drawn = [p.question.startswith("UNSEEN") for p in islice(draw_problems(family, split, 5), 300)]
        assert any(drawn) == (split == "test")
        assert sum(drawn) < 100


@pytest.mark.parametrize("family", FAMILIES)
def test_decoys_are_wrong(family: str) -> None:
    for problem in islice(draw_problems(family, "train", 1), 300):
        assert problem.decoys
        assert problem.answer not in problem.decoys


@pytest.mark.parametrize("family", ["math", "units"])
def test_a_plan_stops_short_of_the_answer(family: str) -> None:
    for problem in islice(draw_problems(family, "train", 1), 300):
        last_step = problem.plan.split(" then ")[-1]
        assert re.search("[-+*/]", last_step), problem.plan  # still to be done
        assert "=" not in last_step


@pytest.mark.process
def test_python_agrees_with_every_code_answer() -> None:
    problems = list(islice(draw_problems("code", "test", 2), 400))
    expressions = [problem.question.removeprefix("What does this give? ") for problem in problems]
    assert evaluate_many(expressions) == [problem.answer for problem in problems]


@pytest.mark.process
def test_word_problem_plans_compute_their_answers() -> None:
    problems = list(islice(draw_problems("math", "test", 2), 300))
    last_steps = [problem.plan.rsplit(" then ", 1)[1] for problem in problems]
    assert evaluate_many(last_steps) == [problem.answer for problem in problems]


#: What a split has where that is less than the command line asks of it unless told otherwise: 1,000 tasks to
#: evolve on, 200 to validate with and 100 to test.
SMALL = {
    ("units", "evolve"): 289, ("units", "validation"): 66,
    ("sequences", "evolve"): 550, ("sequences", "validation"): 155,
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_split_gives_the_default_number_of_tasks_or_all_it_has(family: str) -> None:
    for split, n in (("evolve", 1000), ("validation", 200), ("test", 100)):
        questions = {
            normalise_question(task.question) for task in draw_tasks(family, split, n, 0, at_most=True)
        }
        assert len(questions) == SMALL.get((family, split), n)


def test_more_questions_than_a_split_has_are_refused_with_their_number() -> None:
    with pytest.raises(
        TaskError, match="pocket/units has only 289 questions in split 'evolve': ask for fewer."
    ):
        draw_tasks("units", "evolve", 1000, 0)


@pytest.mark.parametrize(("family", "split"), [("poetry", "test"), ("math", "exam")])
def test_unknown_names_are_refused_with_the_choices(family: str, split: str) -> None:
    with pytest.raises(TaskError, match="choose one of"):
        draw_tasks(family, split, 1, 0)
