"""Rules that ask until something: who is asked, who verifies, whose answer stands and what is paid, on tables whose
every answer is known; and that what is reckoned of a rule is what its episodes come to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.episode import Episode, Flag, Role, Task
from core.errors import ConfigError
from core.learning import play_all
from core.outcomes.asking import (
    AgreementCascade,
    ProbeCascade,
    groups_of,
    most_weight,
    sure_enough,
    two_agree,
    weights_of,
)
from core.outcomes.frugal import believed, choose_frugal, scores_of_replies, until_believed
from core.outcomes.lessons import known_of_table, known_outcomes
from core.outcomes.pool import RecordedPool
from core.outcomes.rules import (
    ALONE,
    Came,
    agreement,
    chosen_cascade,
    fewest_calls,
    first_if_sure,
    log_odds,
    order_by,
    scores_of,
    settings_of,
    strengths,
    strengths_by_family,
    until_likely,
    until_sure,
    until_two_agree,
    weighted_vote,
)
from core.outcomes.table import ROWS, OutcomeTable, load_table
from core.play.ensembles import Ballot, MajorityVote, MixtureOfAgents, Said, Tally, WithoutRole
from core.play.policies import CyclePolicy, Policy, cascade_policy, new_episode
from core.tasks.graders import grade_many
from tests.builders.pools import ScriptedPool, specs
from tests.core.outcomes.tables import Answered, small_table

MODELS = ("ann", "bob", "cyd", "dot")
#: Of each task what the four answer; A is right.
COURSES: list[list[Answered]] = [
    ["A", "A", "B", "C"],
    ["B", "A", "A", "C"],
    ["B", "C", "A", "D"],
    ["", "A", "C", "A"],
    ["B", "C", "A", "A"],
    ["A", None, "B", "A"],
    ["", "", "", ""],
]
W, V = Role.WORKER, Role.VERIFIER


def table_of(folder: Path, courses: Sequence[Sequence[Answered]] = COURSES, **more: object) -> OutcomeTable:
    answers = {model: [one[slot] for one in courses] for slot, model in enumerate(MODELS)}
    return small_table(folder, answers, **more)  # type: ignore[arg-type]


def played(policy: Policy, table: OutcomeTable, turns: int = 5) -> list[Episode]:
    pool = RecordedPool(table)
    episodes = [
        new_episode("r", place, task, policy, turns=turns, seed=0, argmax=False)
        for place, task in enumerate(table.tasks)
    ]
    return play_all(episodes, policy, pool, grade_many)


def course(episode: Episode) -> str:
    """Its turns: who, in which role, and ' where nothing was paid."""
    return " ".join(
        f"{turn.decision.model[0]}{'v' if turn.decision.role is V else 'w'}{chr(39) * (Flag.REUSED in turn.flags)}"
        for turn in episode.turns
    )


def paid(episode: Episode) -> int:
    return sum(Flag.REUSED not in turn.flags for turn in episode.turns)


def agree(table: OutcomeTable, most: int = 4) -> AgreementCascade:
    return AgreementCascade("agree", MODELS, lambda question: MODELS, most, RecordedPool(table).same)


def test_a_rule_over_several_samples_is_the_mean_of_what_it_is_on_each(tmp_path: Path) -> None:
    """In the first sample of the first task ann and cyd agree, in the second one bob and cyd; both are right."""
    answers: dict[str, list[Answered]] = {
        "ann": [("A", "B"), ("A", "B")],
        "bob": [("C", "A"), ("A", "C")],
        "cyd": [("A", "A"), ("D", "D")],
    }
    table = small_table(tmp_path, answers)
    known, order = known_of_table(table, table.tasks), np.arange(3)
    assert known.right.tolist() == [[0.5, 0.5, 1.0], [0.5, 0.5, 0.0]]
    for came in (
        until_two_agree(known, order, 3),
        until_sure(known, order, np.array([0.9, 0.8, 0.8]), np.array([4, 4]), 0.97),
    ):
        assert came.right.tolist() == [1.0, 0.5]
        assert came.calls.tolist() == [3.0, 2.5]
    votes = weighted_vote(known, order, np.ones(3), 3)
    assert (votes.right.tolist(), votes.calls.tolist()) == ([1.0, 0.5], [3.0, 3.0])
    assert known.of(np.array([1])).samples[1].group.shape == (1, 3)


def test_what_is_searched_of_an_agreement_cascade_can_change_an_answer() -> None:
    """Of two the first one's answer stands, whatever the second one says: the second call would be paid for nothing."""
    searched = {n: {asked for _, asked in settings_of(agreement, n, by_family=False)} for n in range(1, 9)}
    assert searched == {
        1: {1},
        2: {2},
        3: {3},
        4: {3, 4},
        5: {3, 4, 5},
        **dict.fromkeys((6, 7, 8), {3, 4, 5, 6}),
    }
    assert settings_of(agreement, 5, by_family=False, number=2) == [(np.inf, 2)]


def test_models_are_asked_until_two_agree(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    episodes = played(agree(table), table)
    assert [course(one) for one in episodes] == [
        "aw bv",
        "aw bv cv bw' cv'",
        "aw bv cv dv",
        "aw bw cv dv",
        "aw bv cv dv cw' dv'",
        "aw cv dv",
        "aw bw cw dw",
    ]
    assert [one.answer for one in episodes] == ["A", "A", "B", "A", "A", "A", None]
    assert [one.correct for one in episodes] == [True, True, False, True, True, True, False]
    ends = ["accepted", "accepted", "budget", "accepted", "accepted", "accepted", "budget"]
    assert [one.end_reason for one in episodes] == ends
    assert [paid(one) for one in episodes] == [2, 3, 4, 4, 4, 3, 4]
    verdicts = {flag for one in episodes for turn in one.turns for flag in turn.flags if turn.verdict}
    assert Flag.BY_AGREEMENT in verdicts
    assert Flag.SELF_VERIFIED not in verdicts


def test_no_more_models_are_asked_than_may_be(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    assert [course(one) for one in played(agree(table, 2), table)][:4] == ["aw bv", "aw bv", "aw bv", "aw bw"]
    assert [one.answer for one in played(agree(table, 2), table)][:4] == ["A", "B", "B", "A"]


def test_a_model_that_alone_can_be_asked_is_asked_once(tmp_path: Path) -> None:
    table = table_of(tmp_path, [[None, None, "A", None], [None, "", None, None]])
    episodes = played(agree(table), table)
    assert [(course(one), one.answer, one.correct) for one in episodes] == [
        ("cw", "A", True),
        ("bw", None, False),
    ]


def test_an_agreement_cascade_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    policy, pool = agree(table), RecordedPool(table)
    whole = played(policy, table)[4]
    for kept in range(len(whole.turns)):
        begun = new_episode("r", 4, table.tasks[4], policy, turns=5, seed=0, argmax=False)
        [again] = play_all([replace(begun, turns=whole.turns[:kept])], policy, pool, grade_many)
        assert again == whole


def test_a_first_answer_that_is_enough_ends_it(tmp_path: Path) -> None:
    """ann is enough on every question: where she is absent bob comes first, and where she has no answer it goes on."""
    table = table_of(tmp_path)
    policy, pool = replace(agree(table), enough=lambda question, model: model == "ann"), RecordedPool(table)
    episodes = played(policy, table)
    sure, unsure = "aw av'", ["aw bw cv dv", "aw bw cw dw"]
    assert [course(one) for one in episodes] == [sure, sure, sure, unsure[0], sure, sure, unsure[1]]
    assert [one.answer for one in episodes] == ["A", "B", "B", "A", "B", "A", None]
    assert [one.end_reason for one in episodes] == [*["accepted"] * 6, "budget"]
    assert {one.turn_budget for one in episodes} == {6}
    for place in (0, 3):
        whole = episodes[place]
        for kept in range(len(whole.turns)):
            begun = new_episode("r", place, table.tasks[place], policy, turns=5, seed=0, argmax=False)
            [again] = play_all([replace(begun, turns=whole.turns[:kept])], policy, pool, grade_many)
            assert again == whole
    without = [course(one) for one in played(WithoutRole(policy, V), table)]
    assert without[0] == "aw", "an answer that is enough stands without anybody who verifies it"


def test_it_stops_early_where_that_takes_fewest_calls_and_loses_nothing(tmp_path: Path) -> None:
    """The first answer is right in the first and the last of four tasks, and two who agree are in the first three."""
    courses: list[list[Answered]] = [
        ["A", "A", "B", "C"],
        ["B", "A", "A", "C"],
        ["C", "A", "A", "C"],
        ["A", "B", "B", "A"],
    ]
    table = table_of(tmp_path, courses)
    known = known_of_table(table, table.tasks)
    plain = until_two_agree(known, np.arange(4), 3)
    assert (plain.right.tolist(), plain.calls.tolist()) == ([1, 1, 1, 0], [2, 3, 3, 3])

    def chosen(*chances: float) -> float:
        chance = np.repeat(np.array(chances)[:, None], 4, axis=1)
        trials = {one: first_if_sure(known, np.arange(4), plain, chance, one) for one in ALONE}
        return fewest_calls(trials, plain)

    # One task that is lost is made good by the last one; two are not. Of equal chances the surest is taken.
    assert chosen(0.9, 0.81, 0.3, 0.7) == 0.7
    assert chosen(0.9, 0.81, 0.71, 0.7) == 0.9
    assert chosen(0.3, 0.9, 0.3, 0.3) == np.inf


def test_the_likeliest_answer_is_taken_again_and_verified_for_nothing(tmp_path: Path) -> None:
    """Ann says A and bob B: bob is likelier, or ann; in the last task she is likely enough at once."""
    table = table_of(tmp_path, [["A", "B", "A", "A"]] * 3)
    first, second, third = (task.question for task in table.tasks)
    chances = {
        (first, ("ann",)): {"ann": 0.4},
        (first, ("ann", "bob")): {"ann": 0.3, "bob": 0.5},
        (second, ("ann", "bob")): {"ann": 0.5, "bob": 0.3},
        (third, ("ann",)): {"ann": 0.8},
    }
    policy = ProbeCascade(
        "probe", MODELS, lambda _: MODELS, 2, lambda question, said: chances.get((question, said), {}), 0.8
    )
    episodes = played(policy, table)
    assert [course(one) for one in episodes] == ["aw bv bw' bv'", "aw bv av'", "aw av'"]
    assert [one.answer for one in episodes] == ["B", "A", "A"]
    assert came_to(episodes)[1] == [2, 2, 1]
    without = played(WithoutRole(policy, V), table)
    assert [course(one) for one in without] == ["aw bw", "aw bw aw'", "aw"]
    assert [one.answer for one in without] == ["B", "A", "A"]
    pool = RecordedPool(table)
    for way, wholes in ((policy, episodes), (WithoutRole(policy, V), without)):
        for place, whole in enumerate(wholes):
            for kept in range(len(whole.turns) + 1):  # it was stopped there, also behind its last turn
                begun = new_episode("r", place, table.tasks[place], way, turns=5, seed=0, argmax=False)
                [again] = play_all([replace(begun, turns=whole.turns[:kept])], way, pool, grade_many)
                assert again == whole


def test_without_verifiers_everybody_only_works(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for policy in (agree(table), ProbeCascade("probe", MODELS, lambda _: MODELS, 3, lambda q, s: {}, 1)):
        without = WithoutRole(policy, V)
        roles = {turn.decision.role for one in played(without, table) for turn in one.turns}
        assert roles == {W}


def test_a_ballot_is_one_turn_for_each_model_and_the_answer_so_far_stands(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    same = RecordedPool(table).same
    policy = Ballot(
        "vote", MODELS, lambda question: MODELS, most_weight(same, lambda _: dict.fromkeys(MODELS, 1.0)), 3
    )
    episodes = played(policy, table)
    assert [course(one) for one in episodes] == [
        *4 * ["aw bw cw"],
        "aw bw cw",
        "aw cw dw",
        "aw bw cw",
    ]
    assert [one.answer for one in episodes] == ["A", "A", "B", "A", "B", "A", None]
    assert [turn.answer_after for turn in episodes[1].turns] == ["B", "B", "A"]
    assert [turn.correct_after for turn in episodes[1].turns] == [False, False, True]
    assert episodes[6].correct is False
    first = Ballot("agree", MODELS, lambda question: MODELS, two_agree(same), 4)
    assert [len(one.turns) for one in played(first, table)] == [2, 3, 4, 4, 4, 3, 4]
    assert [one.answer for one in played(first, table)] == ["A", "A", "B", "A", "A", "A", None]


def test_weights_and_chances_decide_whose_answer_stands() -> None:
    def same(question: str, one: str, other: str) -> bool:
        return one == other

    said = [Said("ann", "", "A"), Said("bob", "", "B"), Said("cyd", "", None), Said("dot", "", "B")]
    strong = {"ann": 0.9, "bob": 0.6, "cyd": 0.5, "dot": 0.6}
    assert groups_of("", ["A", "B", None, "A"], same) == [0, 1, -1, 0]
    assert most_weight(same, lambda _: dict.fromkeys(strong, 1.0))("", said) == (1, False)
    # ln 9 = 2.20 against twice ln 1.5 = 0.41
    assert most_weight(same, lambda _: weights_of(strong))("", said) == (0, False)
    assert most_weight(same, lambda _: weights_of(strong))("", said[2:3]) == (None, False)

    def sure(chance: float) -> Tally:
        return sure_enough(same, lambda _: strong, lambda _: 4, chance)

    # One answer of four, said with 0.9: odds 27 against three that nobody said.
    assert sure(0.89)("", said[:1]) == (0, True)
    assert sure(0.91)("", said[:1]) == (0, False)
    # B has odds 4.5 of one voter: 27 / (27 + 4.5 + 2) = 0.806.
    assert sure(0.80)("", said[:2]) == (0, True)
    assert sure(0.81)("", said[:2]) == (0, False)
    # Two of them 20.25: 27 / (27 + 20.25 + 2) = 0.548.
    assert sure(0.55)("", said) == (0, False)
    assert sure(0.54)("", said) == (0, True)


def strange_table(folder: Path) -> OutcomeTable:
    """Random answers of four models of different strength, some of which are missing or empty."""
    draws = random.Random(7)
    chances = (0.7, 0.6, 0.5, 0.4)
    courses: list[list[Answered]] = []
    for _ in range(250):
        one: list[Answered] = []
        for chance in chances:
            kind = draws.random()
            said = "A" if draws.random() < chance else draws.choice("BCD")
            one.append(None if kind < 0.1 else "" if kind < 0.2 else said)
        courses.append(one if any(answer is not None for answer in one) else ["A", "B", "C", "D"])
    return table_of(folder, courses)


def came_to(episodes: Sequence[Episode]) -> tuple[list[bool], list[int]]:
    return [bool(one.correct) for one in episodes], [paid(one) for one in episodes]


def test_what_is_reckoned_of_a_rule_is_what_its_episodes_come_to(tmp_path: Path) -> None:
    table = strange_table(tmp_path)
    known = known_of_table(table, table.tasks)
    same, strength = RecordedPool(table).same, strengths(known)
    slots = order_by(strength)
    order = tuple(MODELS[slot] for slot in slots)
    named = dict(zip(MODELS, strength.tolist(), strict=True))
    each = {"ones": np.ones(4), "odds": log_odds(strength)}
    rules: list[tuple[Policy, Came]] = [
        (
            AgreementCascade("agree", MODELS, lambda _: order, most, same),
            until_two_agree(known, slots, most),
        )
        for most in (2, 3, 4)
    ]
    for weights in each.values():
        by_name = dict(zip(MODELS, weights.tolist(), strict=True))
        for voters in (1, 3, 4):
            vote = Ballot("v", MODELS, lambda _: order, most_weight(same, lambda _, of=by_name: of), voters)  # type: ignore[misc]
            rules.append((vote, weighted_vote(known, slots, weights, voters)))
    for sure in (0.6, 0.9):
        tally = sure_enough(same, lambda _: named, lambda _: 4, sure)
        options = np.full(len(table.tasks), 4)
        rules.append(
            (
                Ballot("b", MODELS, lambda _: order, tally, 4),
                until_sure(known, slots, strength, options, sure),
            )
        )
    chance = np.random.default_rng(3).uniform(size=known.right.shape)
    sure_of = {
        (task.question, model): bool(chance[row, slot] >= 0.6)
        for row, task in enumerate(table.tasks)
        for slot, model in enumerate(MODELS)
    }

    def enough(question: str, model: str) -> bool:
        return sure_of[question, model]

    stops = first_if_sure(known, slots, until_two_agree(known, slots, 4), chance, 0.6)
    assert 1.0 < stops.calls.mean() < until_two_agree(known, slots, 4).calls.mean() - 0.3
    rules += [
        (AgreementCascade("sure", MODELS, lambda _: order, 4, same, enough), stops),
        (Ballot("sure", MODELS, lambda _: order, two_agree(same, enough), 4), stops),
    ]
    steps = np.random.default_rng(4).uniform(size=(3, *known.right.shape))
    places = {task.question: place for place, task in enumerate(table.tasks)}

    def likely(question: str, said: tuple[str, ...]) -> dict[str, float]:
        return dict(zip(MODELS, steps[len(said) - 1, places[question]].tolist(), strict=True))

    for most in (2, 3):
        for sure in (0.6, 0.9, np.inf):
            probed = ProbeCascade("probe", MODELS, lambda _: order, most, likely, sure)
            rules.append((probed, until_likely(known, slots, [*steps[:most]], sure)))
    for policy, came in rules:
        right, calls = came_to(played(policy, table))
        assert came.right.tolist() == right
        assert came.calls.tolist() == calls


def test_strengths_by_family_are_drawn_to_those_overall(tmp_path: Path) -> None:
    table = table_of(tmp_path, [["A", "B", "A", "B"], ["B", "A", "A", "B"], ["A", None, "B", "B"]])
    known, families = known_of_table(table, table.tasks), [task.family for task in table.tasks]
    assert families == ["law", "physics", "law"]
    assert strengths(known).tolist() == pytest.approx([2 / 3, 1 / 2, 2 / 3, 0])
    assert strengths_by_family(known, families, 0)["law"].tolist() == [1, 0, 0.5, 0]
    # Of ann: 2 right of 2, and a third's worth of two of the others.
    assert strengths_by_family(known, families, 1)["law"][0] == pytest.approx((2 + 2 / 3) / 3)
    scores = scores_of(strengths(known), strengths_by_family(known, families, 0), ["law", "chess"])
    assert scores.tolist() == [[1, 0, 0.5, 0], strengths(known).tolist()]
    assert order_by(scores).tolist() == [[0, 2, 1, 3], [0, 2, 1, 3]]


def test_the_chosen_cascade_is_played_as_it_was_reckoned(tmp_path: Path) -> None:
    """bob is right wherever ann is, and elsewhere never says the same; cyd knows the rest."""
    agreed: list[Answered] = ["A", "A", "B", "C"]
    other: list[Answered] = ["B", "C", "A", "D"]
    courses = [agreed] * 6 + [other] * 4
    table = table_of(tmp_path, courses)
    team = chosen_cascade(known_of_table(table, table.tasks), 4)
    assert team[0] in ("ann", "bob")
    assert {team[0], team[-1]} == {"ann", "bob"}
    assert team[1] == "cyd"
    assert all(one.correct for one in played(cascade_policy(team, MODELS), table, 4))


def test_a_scorer_that_reads_replies_stops_at_the_right_one(tmp_path: Path) -> None:
    """Whoever has no answer cannot tell, and says so: where ann cannot, bob answers."""
    draws = random.Random(1)
    courses: list[list[Answered]] = []
    for _ in range(120):
        knows = draws.random() < 0.6
        courses.append(["A" if knows else "B", "A", "C", "D"])
    table = table_of(tmp_path, courses)
    rows = pq.read_table(table.folder / "rows.parquet").to_pylist()
    for row in rows:
        row["reply"] = "It certainly is so." if row["right"] else "Perhaps, who knows."
    pq.write_table(pa.Table.from_pylist(rows, schema=ROWS), table.folder / "rows.parquet")
    table = load_table("small", tmp_path)
    known, order = known_of_table(table, table.tasks), np.arange(4)
    scorer, n, sure = choose_frugal(table, table.tasks[:60], table.tasks[60:], order)
    question = table.tasks[70].question
    certain, unsure = scorer("ann", [(question, "It certainly is so."), (question, "Perhaps, who knows.")])
    assert certain > 0.8 > 0.2 > unsure
    assert np.isnan(scorer("eve", [(question, "It certainly is so.")])).all()
    scores = scores_of_replies(scorer, table, table.tasks, range(4))
    came = until_believed(known, order, scores, n, sure)
    policy = Ballot("frugal", MODELS, lambda question: MODELS, believed(scorer, sure), n)
    episodes = played(policy, table)
    assert came_to(episodes) == (came.right.tolist(), came.calls.tolist())
    assert came.accuracy == 1.0
    assert came.calls.tolist() == [1 if course[0] == "A" else 2 for course in courses]


def test_what_no_table_holds_is_refused(tmp_path: Path) -> None:
    pool = RecordedPool(table_of(tmp_path))
    ann = CyclePolicy(MODELS, ("ann",), (W,), "ann")
    with pytest.raises(ConfigError, match="has one reply of a model to a task, too few for 'majority:3:ann'"):
        pool.check([], [MajorityVote(ann, "majority:3:ann", 3, turns=1)])
    with pytest.raises(ConfigError, match="holds no reply of a model that was handed the others' answers"):
        pool.check([], [MixtureOfAgents(MODELS)])
    more = RecordedPool(small_table(tmp_path, {"ann": [("A", "B", "A")], "bob": ["A"]}, name="more"))
    more.check([], [MajorityVote(ann, "majority:3:ann", 3, turns=1)])
    with pytest.raises(ConfigError, match="has at most 3 replies of a model"):
        more.check([], [MajorityVote(ann, "majority:4:ann", 4, turns=1)])


def test_models_that_are_asked_now_can_agree_too() -> None:
    """No table stands behind them: equal texts agree, whatever their case."""
    words = {"ann": "answer Rome", "bob": "answer Oslo", "cyd": "answer rome", "dot": "answer Bern"}
    pool = ScriptedPool(specs(MODELS), lambda ask: words[ask.model])
    task = Task("t", "Which town?", "Rome", "exact")
    tally = two_agree(lambda question, one, other: one.casefold() == other.casefold())
    policy = Ballot("agree", MODELS, lambda question: MODELS, tally, 4)
    [episode] = play_all(
        [new_episode("r", 0, task, policy, turns=5, seed=0, argmax=False)], policy, pool, grade_many
    )
    assert (course(episode), episode.answer, episode.correct) == ("aw bw cw", "Rome", True)
    assert known_outcomes(pool, [task], grade_many).group.tolist() == [[0, 1, 0, 2]]
