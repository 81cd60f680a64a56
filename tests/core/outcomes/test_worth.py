"""Do the numbers of a table say what its rows hold, and do rules do on other tasks what they were chosen for?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from core.analysis.metrics import ClusteredShare, holm, mcnemar_p, wilson_interval
from core.outcomes.matrix import (
    Outcomes,
    cases,
    guessed_alone,
    knowers,
    leads,
    outcomes,
    pair,
    paired,
)
from core.outcomes.worth import Measured, rules
from core.settings import data_folder
from tests.core.outcomes.tables import Answered, small_table

#: Eight tasks whose key is A: law and physics in turn.
EIGHT: dict[str, list[Answered]] = {
    "ann": ["A", "A", "A", "B", "A", "B", "C", "B"],
    "bob": ["A", "B", "B", "A", "A", "B", "A", ""],
    "cyd": ["A", "A", "C", "A", "B", "C", "A", None],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return data_folder()


@pytest.fixture
def eight(folder: Path) -> Outcomes:
    return outcomes(small_table(folder, EIGHT, costs={"ann": 0.03, "bob": 0.02, "cyd": 0.01}))


def of(found: list[Measured]) -> dict[str, Measured]:
    return {one.key: one for one in found}


def test_accuracies_are_those_of_the_rows(eight: Outcomes) -> None:
    everything = eight.of("all")
    shares = [eight.accuracy(everything, model) for model in range(3)]
    assert [(one.k, one.n) for one in shares] == [(4, 8), (4, 8), (4, 7)]
    assert shares[0].ci95 == wilson_interval(4, 8)
    law = everything & (eight.domain == eight.domains.index("law"))
    assert [(one.k, one.n) for one in (eight.accuracy(law, model) for model in range(3))] == [
        (3, 4),
        (3, 4),
        (2, 4),
    ]
    assert eight.read[:, 1].sum() == 7
    assert eight.rows.sum(axis=0).tolist() == [8, 8, 7]
    assert eight.spent("cost", everything).tolist() == pytest.approx([0.03, 0.02, 0.01])
    assert eight.spent("tokens", everything).tolist() == pytest.approx([120, 130, 140])


def test_samples_of_a_task_are_one_cluster_and_a_share_of_it(folder: Path) -> None:
    found = outcomes(
        small_table(folder, {"ann": [("A", "A", "B", "A")] * 10, "bob": [("B", "A", "B", "B")] * 10})
    )
    share = found.accuracy(found.of("all"), 0)
    assert (share.k, share.n) == (30, 40)
    assert share.ci95 == ClusteredShare.of(np.full(10, 3), np.full(10, 4)).ci95, (
        "every task alike: no luck seen"
    )
    assert found.share[:, 1].tolist() == [0.25] * 10
    everything = found.of("all")
    by_key = of(rules(found, everything, everything, everything))
    assert by_key["oracle"].accuracy == pytest.approx(0.75)
    # The samples of even number of ann are right in one of two, the odd ones in both.
    assert by_key["oracle_cross_fitted"].accuracy == pytest.approx(0.75)


def test_of_several_samples_a_rule_does_what_it_does_on_each(folder: Path) -> None:
    """Who agrees in one sample is right or wrong in that one: a grade over all samples says nothing of it."""
    draws, skill = np.random.default_rng(0).random((3, 120, 2)), {"ann": 0.8, "bob": 0.6, "cyd": 0.4}
    said = {
        name: [
            tuple("A" if draw < skill[name] else "BCD"[slot] for draw in own) for own in draws[slot].tolist()
        ]
        for slot, name in enumerate(skill)
    }

    def found(name: str, sample: int | None) -> dict[str, Measured]:
        answers: dict[str, list[Answered]] = {
            model: [*own] if sample is None else [one[sample] for one in own] for model, own in said.items()
        }
        table = outcomes(small_table(folder, answers, name=name, questions=[f"{n}?" for n in range(120)]))
        return of(rules(table, *(table.of(split) for split in ("evolve", "validation", "test"))))

    both, each = found("both", None), [found("first", 0), found("second", 1)]
    for key in ("best_single", "agree"):
        for figure in ("accuracy", "calls", "tokens"):
            mean = np.mean([getattr(one[key], figure) for one in each])
            assert getattr(both[key], figure) == pytest.approx(mean), (key, figure)
    assert both["agree"].accuracy > both["best_single"].accuracy + 0.02
    assert both["vote"].says == "at most 3 models"


def test_an_oracle_over_luck_is_inflated_and_the_cross_fitted_one_is_not(folder: Path) -> None:
    draws = np.random.default_rng(0).random((4, 400, 4)) < 0.5
    answers: dict[str, list[Answered]] = {
        f"m{slot}": [tuple("A" if right else "B" for right in task) for task in own.tolist()]
        for slot, own in enumerate(draws)
    }
    found = outcomes(small_table(folder, answers))
    everything = found.of("all")
    by_key = of(rules(found, everything, everything, everything))
    assert by_key["oracle"].accuracy > 0.7
    assert by_key["oracle_cross_fitted"].ci95[0] < 0.5 < by_key["oracle_cross_fitted"].ci95[1]


def test_a_lead_is_the_paired_difference_with_mcnemars_exact_p(eight: Outcomes) -> None:
    everything = eight.of("all")
    compared = paired(eight, everything, 0, 1)
    assert (compared.n, compared.difference) == (8, 0.0)
    assert compared.p == mcnemar_p(2, 2)
    assert (compared.a, compared.b) == (0.5, 0.5)
    found = leads(eight, everything)
    assert [one.domain for one in found] == [None, "law", "physics"]
    assert eight.models[found[0].best] == "cyd", "the best share of those that it answered"
    assert found[0].paired.n == 7
    lead = found[0].paired
    assert lead.difference == pytest.approx(lead.b - lead.a), (
        "the accuracies are those over the tasks of both"
    )
    assert lead.b == pytest.approx(4 / 7)


def test_a_lead_holds_only_when_all_domains_are_allowed_for(folder: Path) -> None:
    ahead: list[Answered] = ["A" if i // 2 < 8 or i % 2 else "B" for i in range(40)]
    behind: list[Answered] = ["B" if i % 2 == 0 else "A" for i in range(40)]
    found = leads(of := outcomes(small_table(folder, {"ann": ahead, "bob": behind})), of.of("all"))
    law = next(one for one in found if one.domain == "law")
    assert law.paired.p == mcnemar_p(0, 8)
    assert law.holds
    assert not next(one for one in found if one.domain == "physics").holds


def test_who_is_first_by_easier_questions_and_behind_on_those_of_both_has_no_lead(folder: Path) -> None:
    ann: list[Answered] = ["A" if i < 60 else "B" for i in range(100)]
    bob: list[Answered] = [None if i < 60 else "A" if i < 80 else "C" for i in range(100)]
    found = outcomes(small_table(folder, {"ann": ann, "bob": bob}, families=["law"]))
    first = leads(found, found.of("all"))[0]
    assert found.models[first.best] == "ann"
    assert (first.paired.difference, first.paired.n) == (-0.5, 40)
    assert first.paired.p < 0.001
    assert not first.holds


def test_a_rule_is_more_than_luck_where_it_holds_among_all_rules(folder: Path) -> None:
    found = outcomes(small_table(folder))
    by_key = of(rules(found, found.of("evolve"), found.of("validation"), found.of("test")))
    best = by_key["by-family"]
    assert best.difference is not None
    assert best.holds
    assert best.difference.p < 0.05 / 5
    assert not by_key["oracle"].holds, "an upper bound is not tested"
    for single in (True, False):
        among = [
            one for one in by_key.values() if one.is_single is single and not one.bound and one.difference
        ]
        assert [one.holds for one in among] == holm([one.difference.p for one in among if one.difference])


def test_lone_right_answers_that_guessing_would_give(folder: Path) -> None:
    answers: dict[str, list[Answered]] = {
        "ann": ["B", "B", "A", "B"],
        "bob": ["B", "C", "B", ""],
        "cyd": ["C", "D", "B", None],
    }
    found = outcomes(small_table(folder, answers))
    assert found.options.tolist() == [4] * 4
    falling, even = guessed_alone(found, found.of("all"))
    # First: C alone of cyd, A and D unchosen. Second: each alone, A unchosen. Third: ann knows it. Fourth: B alone.
    assert falling.tolist() == pytest.approx([1 + 1 / 3, 1, 1 / 2 + 1])
    assert even.tolist() == pytest.approx([3 / 3, 2 / 3, 2 / 3])


def test_guesses_give_as_many_lone_right_answers_as_expected(folder: Path) -> None:
    drawn = np.random.default_rng(1).integers(4, size=(3, 4000))
    answers: dict[str, list[Answered]] = {
        f"m{slot}": ["ABCD"[one] for one in own] for slot, own in enumerate(drawn.tolist())
    }
    found = outcomes(small_table(folder, answers))
    everything = found.of("all")
    lone = int((knowers(found, everything) == 1).sum())
    for expected in guessed_alone(found, everything):
        assert expected.sum() == pytest.approx(lone, rel=0.05)


def test_two_models_side_by_side(eight: Outcomes) -> None:
    found = pair(eight, eight.of("all"), 0, 1)
    assert (found.n, found.same, found.same_right) == (8, 3, 2)
    assert (found.a_right, found.b_right, found.neither) == (2, 2, 1)
    assert (found.both_wrong, found.alike) == (2, 1)
    assert found.same + found.a_right + found.b_right + found.neither == found.n


def test_rules_on_tasks_whose_answers_are_known(eight: Outcomes) -> None:
    everything = eight.of("all")
    by_key = of(rules(eight, everything, everything, everything))
    # ann and bob have 4 of 8, cyd, who did not answer the last one, 4 of 7.
    assert by_key["best_single"].says == "cyd"
    assert by_key["best_single"].difference is None
    assert by_key["best_single"].accuracy == pytest.approx(4 / 7)
    assert {key for key, one in by_key.items() if one.n != 8} == {"best_single"}
    assert by_key["single:ann"].accuracy == 0.5
    # In the order cyd, ann, bob: AAA, AAB, CAB, ABA, BAA, CBB, ACA, and B of ann alone.
    vote = by_key["vote"]
    assert vote.says == "at most 3 models"
    assert vote.accuracy == pytest.approx(5 / 8)
    assert vote.calls == pytest.approx(23 / 8)
    assert vote.cost == pytest.approx((7 * 0.06 + 0.05) / 8)
    assert by_key["oracle"].accuracy == pytest.approx(6 / 8)
    # The cheapest that is right; where none is, the cheapest.
    assert by_key["cheapest_right"].cost == pytest.approx((5 * 0.01 + 0.03 + 0.02 + 0.02) / 8)
    agree = by_key["agree"]
    assert agree.says == "at most 3 models"
    # cyd and ann agree in the first two; ann and bob, whom alone the last one has, do not.
    assert agree.calls == pytest.approx((2 * 2 + 5 * 3 + 2) / 8)
    assert agree.accuracy == pytest.approx(5 / 8)
    assert agree.tokens == pytest.approx((2 * 260 + 5 * 390 + 250) / 8)


def test_what_is_chosen_is_chosen_on_learned_tasks_alone(folder: Path) -> None:
    ann: list[Answered] = ["A" if i < 50 else "B" for i in range(100)]
    bob: list[Answered] = ["B" if i < 50 else "A" for i in range(100)]
    found = outcomes(small_table(folder, {"ann": ann, "bob": bob}))
    first = np.arange(100) < 50
    assert of(rules(found, first, first, ~first))["best_single"].accuracy == 0.0
    assert of(rules(found, first, first, first))["best_single"].accuracy == 1.0
    assert of(rules(found, first, first, ~first))["oracle"].accuracy == 1.0
    assert rules(found, first, first, np.zeros(100, bool)) == []


def test_best_per_domain_knows_who_is_good_at_what(folder: Path) -> None:
    found = outcomes(small_table(folder))
    by_key = of(rules(found, found.of("evolve"), found.of("validation"), found.of("test")))
    assert by_key["by-family"].accuracy == 1.0
    assert by_key["best_single"].accuracy < 0.9
    difference = by_key["by-family"].difference
    assert difference is not None
    assert difference.ci95[0] > 0


def test_best_per_domain_learns_from_evolve_tasks_too(folder: Path) -> None:
    """Ten validation tasks say that bob is ahead; with ninety evolve tasks it is ann."""
    ann: list[Answered] = ["B" if 90 <= i < 96 else "A" for i in range(120)]
    bob: list[Answered] = ["A" if i >= 90 and i < 100 else "B" for i in range(120)]
    found = outcomes(small_table(folder, {"ann": ann, "bob": bob}, families=("sums",)))
    place = np.arange(120)
    chosen = of(rules(found, place < 90, (place >= 90) & (place < 100), place >= 100))["by-family"]
    assert (chosen.says, chosen.accuracy) == ("ann in 1", 1.0)


def test_a_model_with_few_rows_is_no_best_single_one_and_is_not_counted_wrong(folder: Path) -> None:
    few: list[Answered] = ["A" if i < 4 else None for i in range(40)]
    ann: list[Answered] = ["A" if i else "B" for i in range(40)]
    found = outcomes(small_table(folder, {"ann": ann, "bob": ["B"] * 40, "few": few}))
    assert found.contenders.tolist() == [0, 1]
    everything = found.of("all")
    assert found.accuracy(everything, 2).value == 1.0
    by_key = of(rules(found, everything, everything, everything))
    assert by_key["best_single"].says == "ann"
    assert {key: one.n for key, one in by_key.items() if one.n != 40} == {"single:few": 4}
    assert by_key["single:few"].difference is not None
    assert by_key["single:few"].difference.difference == pytest.approx(1 / 4)


def test_lists_of_questions_are_what_their_names_say(folder: Path) -> None:
    marks = {("ann", 3): True}
    found = outcomes(small_table(folder, EIGHT, marks=marks))

    def of_case(case: str, model: int | None = None, other: int | None = None) -> list[int]:
        return np.flatnonzero(cases(found, found.of("all"), case, model, other)).tolist()

    assert knowers(found, found.of("all")).tolist() == [3, 2, 1, 2, 2, 0, 2, 0]
    assert of_case("") == list(range(8))
    assert of_case("nobody") == [5, 7]
    assert of_case("one") == of_case("only", 0) == [2]
    assert of_case("everybody") == [0]
    assert of_case("right", 1) == [0, 3, 4, 6]
    assert of_case("wrong", 1) == [1, 2, 5, 7]
    assert of_case("unread", 1) == [7]
    assert of_case("missing", 2) == [7]
    assert of_case("marks", 0) == [3]
    assert of_case("same", 0, 1) == [0, 4, 5]
    assert of_case("differ", 0, 1) == [1, 2, 3, 6, 7]
    assert of_case("rescues", 0, 1) == [3, 6]
    assert of_case("alike", 0, 1) == [5]


def test_answers_that_cannot_be_compared_are_not_voted_on(folder: Path) -> None:
    found = outcomes(small_table(folder, EIGHT, comparable=False))
    keys = of(rules(found, *3 * [found.of("all")]))
    assert not {"vote", "agree", "agree:family"} & {*keys}
    assert "by-family" in keys


def test_grades_by_parts_are_means_of_scores(folder: Path) -> None:
    scores = {("ann", i): 0.5 + 0.001 * (i % 7) for i in range(8)}
    found = outcomes(small_table(folder, EIGHT, scores=scores, comparable=False))
    everything = found.of("all")
    assert found.by_parts
    share = found.accuracy(everything, 0)
    assert (share.k, share.n) == (None, 8)
    assert share.value == pytest.approx(0.5 + 0.001 * 21 / 8)
    compared = paired(found, everything, 1, 0)
    expected = ttest_1samp([scores["ann", i] - (EIGHT["bob"][i] == "A") for i in range(8)], 0.0)
    assert compared.p == pytest.approx(expected.pvalue)
    by_key = of(rules(found, everything, everything, everything))
    best = [max(scores["ann", i], EIGHT["bob"][i] == "A", EIGHT["cyd"][i] == "A") for i in range(8)]
    assert by_key["oracle"].accuracy == pytest.approx(np.mean(best))
