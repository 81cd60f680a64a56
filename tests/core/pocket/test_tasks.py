"""The pocket tasks: right answers, disjoint splits, and a split of templates that nothing was trained on."""

import random
import re
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest

from core.errors import TaskError
from core.pocket import FAMILIES, tasks
from core.pocket.families import Computation, Problem
from core.pocket.tasks import BY_NAME, SPLITS, UNSEEN, draw_problems, draw_tasks, normalise_question, split_of
from core.tasks.graders import evaluate_many


@cache
def problems(family: str, split: str) -> list[Problem]:
    """Problems of a split, drawn once for all tests: 300 where each is looked at, 100 where a split is small, in which
    one takes ten draws and all are alike by what decides of their split."""
    return list(islice(draw_problems(family, split, seed=1), 300 if split in ("train", UNSEEN) else 100))


@pytest.mark.parametrize("split", SPLITS)
def test_no_question_is_in_two_splits(split: str) -> None:
    """Whatever its seed, family and dress; the dress shows that the question itself decides."""
    for family in FAMILIES:
        for problem in problems(family, split)[:100]:
            dressed = "  ".join(problem.question.upper().split()) + "\n"
            assert split_of(dressed) == split


def test_the_splits_share_out_all_questions() -> None:
    assert sorted(place for owned in SPLITS.values() for place in owned) == list(range(100))


def test_the_same_seed_draws_the_same_tasks_and_another_seed_others() -> None:
    assert draw_tasks("math", "test", 50, 3) == draw_tasks("math", "test", 50, 3)
    assert draw_tasks("math", "test", 50, 3) != draw_tasks("math", "test", 50, 4)
    assert len({task.question for task in draw_tasks("logic", "test", 300, 0)}) == 300


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_five_templates_and_one_in_a_split_of_its_own(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = BY_NAME[family]
    assert len(generator.templates) >= 5
    assert generator.unseen not in generator.templates

    def marked(rng: random.Random) -> Problem:
        return Problem(f"UNSEEN {rng.random()}", "1", "none", "1", ("2",))

    monkeypatch.setitem(BY_NAME, family, replace(generator, unseen=marked))
    for split in (*SPLITS, UNSEEN):
        drawn = [p.question.startswith("UNSEEN") for p in islice(draw_problems(family, split, 5), 60)]
        assert all(drawn) if split == UNSEEN else not any(drawn)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_unseen_question_is_in_another_split(family: str) -> None:
    unseen = {normalise_question(p.question) for p in problems(family, UNSEEN)}
    for split in SPLITS:
        drawn = {normalise_question(p.question) for p in problems(family, split)}
        assert not drawn & unseen


@pytest.mark.parametrize("family", FAMILIES)
def test_decoys_are_wrong_a_plan_computes_nothing_and_the_working_everything(family: str) -> None:
    for problem in (*problems(family, "train"), *problems(family, UNSEEN)):
        assert problem.decoys
        assert problem.answer not in problem.decoys
        assert "=" not in problem.plan
        assert problem.working.split()[-1] == problem.answer.split()[-1]
        assert problem.plan != problem.working


def test_a_computation_goes_from_left_to_right() -> None:
    computation = Computation(2, (("+", 1), ("*", 24)))
    assert (computation.plan, computation.values[-1]) == ("2 + 1 * 24", 72)
    assert computation.working == "2 + 1 = 3 * 24 = 72"


@pytest.mark.process
@pytest.mark.parametrize("split", ["train", UNSEEN])
def test_python_agrees_with_every_code_answer(split: str) -> None:
    some = problems("code", split)
    assert evaluate_many([expression(one.question) for one in some]) == [one.answer for one in some]


def expression(question: str) -> str:
    """What the question asks for, the variable that it names put in."""
    given, _, asked = question.rpartition("What does this give? ")
    if not given:
        return asked
    name, _, value = given.strip().removesuffix(".").partition(" = ")
    return asked.replace(f"{name}[", f"{value}[")


@pytest.mark.process
@pytest.mark.parametrize("family", ["math", "code", "units", "sequences"])
def test_plans_of_computations_compute_their_answers(family: str) -> None:
    for split in ("train", UNSEEN):
        some = problems(family, split)
        assert evaluate_many([one.plan for one in some]) == [one.answer for one in some]


def test_orderings_are_what_their_facts_say() -> None:
    """The order is found again from the facts alone, and the answer from the order as the plan changes it."""
    more = {"taller", "older", "faster", "richer", "stronger"}
    for split in ("train", UNSEEN):
        for problem in problems("logic", split):
            above: dict[str, str] = {}
            for one, scale, other in re.findall(r"(\w+) is (\w+) than (\w+)\.", problem.question):
                high, low = (one, other) if scale in more else (other, one)
                above[low] = high
            (top,) = set(above.values()) - set(above)
            order, below = [top], {high: low for low, high in above.items()}
            while order[-1] in below:
                order.append(below[order[-1]])
            words = problem.plan.split()
            assert words[: len(order)] == order
            change = words[len(order) : -2]
            match change:
                case ["without", name]:
                    order.remove(name)
                case ["swap", one, two]:
                    order = [{one: two, two: one}.get(name, name) for name in order]
                case ["turned"]:
                    order = order[::-1]
            assert order[int(words[-1]) - 1] == problem.answer


#: What a split has where that is less than the command line asks of it unless told otherwise: 1,000 tasks to
#: evolve on, 200 to validate with and 100 to test.
SMALL = {
    ("units", "evolve"): 440,
    ("sequences", "evolve"): 167, ("sequences", "validation"): 102, ("sequences", "test"): 88,
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_split_gives_the_default_number_of_tasks_or_all_it_has(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if family in ("units", "sequences"):  # these find all of their few
        monkeypatch.setattr(tasks, "PATIENCE", {"units": 3000, "sequences": 400}[family])
    for split, n in (("evolve", 1000), ("validation", 200), ("test", 100), (UNSEEN, 100)):
        questions = {
            normalise_question(task.question) for task in draw_tasks(family, split, n, 0, at_most=True)
        }
        assert len(questions) == SMALL.get((family, split), n)


def test_more_questions_than_a_split_has_are_refused_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "PATIENCE", 50)  # it gives up sooner, so that it may miss some
    few = len(draw_tasks("sequences", "test", 100, 0, at_most=True))
    with pytest.raises(
        TaskError, match=f"sequences has only {few} questions in split 'test': ask for fewer."
    ):
        draw_tasks("sequences", "test", 100, 0)


@pytest.mark.parametrize(("family", "split"), [("poetry", "test"), ("math", "exam")])
def test_unknown_names_are_refused_with_the_choices(family: str, split: str) -> None:
    with pytest.raises(TaskError, match="choose one of"):
        draw_tasks(family, split, 1, 0)
