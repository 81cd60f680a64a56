"""Rules by name, played by `trinity run` on recorded models, and on models that are asked."""

from __future__ import annotations

import json
import random
from contextlib import closing
from typing import Any

import pytest

from core.episode import Role
from core.errors import CheckpointError, ConfigError
from core.evolution.baselines import Arena
from core.outcomes.matrix import outcomes
from core.outcomes.pool import RecordedPool, recorded_grading
from core.outcomes.worth import COMPARING, rules
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from storage.store import Store, open_store
from tests.core.outcomes.tables import Answered, small_answers, small_table
from tests.ui.sums import Sums
from ui.runs.policies import Policies, check_policies, pupil_of
from ui.runs.policy_kinds import Lessons
from ui.runs.taught.clones import teacher_of

#: So many tasks that every split has some of each family, and so many that a probe learns from them.
N, MANY = 120, 240


@pytest.fixture
def recorded(world: Sums) -> Sums:
    """A world with a table of three models: ann knows law, bob physics, cyd two of three of both."""
    small_table(world.folder / "trinity-inspector", small_answers(N))
    return world


def rows_and_words(world: Sums, *arguments: object) -> tuple[dict[str, dict[str, float]], str]:
    """The rows of a run by policy, and what it says beside them."""
    plays = ("run", "--pool", "outcomes:small", "--tasks", "outcomes:small@1", "--json")
    ran = world.done(*plays, *arguments)
    return {row["policy"]: row for row in ran.json}, ran.err


def rows_of(world: Sums, *arguments: object) -> dict[str, dict[str, float]]:
    return rows_and_words(world, *arguments)[0]


def test_rules_are_chosen_on_other_tasks_told_and_played(recorded: Sums) -> None:
    names = (
        "agree",
        "agree:family",
        "agree:2:family",
        "vote",
        "weighted-vote",
        "weighted-vote:3:family",
        "bayes",
    )
    asked = [word for name in names for word in ("--policy", name)]
    rows, told = rows_and_words(recorded, *asked, "--policy", "vote:1", "--policy", "by-family")
    assert [*rows] == [*names, "vote:1", "by-family"]
    assert rows["vote:1"]["turns_mean"] == 1
    assert rows["by-family"]["accuracy"] == rows["agree:family"]["accuracy"] == 1.0
    assert rows["agree:2:family"]["accuracy"] == 1.0, "whom a family's best one answers, stands"
    assert rows["weighted-vote:3:family"]["accuracy"] == 1.0
    assert 0.6 < rows["vote:1"]["accuracy"] < 0.75
    # Where two of three are right they agree, and where one is nobody does.
    assert rows["vote:1"]["accuracy"] < rows["agree"]["accuracy"] < 1.0
    assert rows["vote"]["n"] == rows["agree"]["n"] > 25
    assert "agree:family asks at most 3 models, until two agree (the best of 4 settings on " in told
    n = sum(len(load_tasks("outcomes:small@1", split, None, 0)) for split in ("evolve", "validation"))
    assert f"Chosen by what is recorded of 3 candidates on {n} tasks." in told
    assert "takes" not in told, "nothing is played to choose them"


@pytest.mark.parametrize("seed", [0, 1])
def test_what_could_be_won_is_what_the_policy_of_the_same_name_comes_to(world: Sums, seed: int) -> None:
    """On a table of chance with missing rows and replies without an answer."""
    draws = random.Random(seed)

    def said(slot: int, place: int) -> Answered:
        if (kind := draws.random()) < 0.2 and slot != place % 4:
            return None if kind < 0.12 else ""
        return "A" if draws.random() < 0.35 + 0.1 * (slot + (slot == place % 2)) else draws.choice("BCD")

    answers = {
        name: [said(slot, i) for i in range(N)] for slot, name in enumerate(("ann", "bob", "cyd", "dot"))
    }
    costs = {"ann": 4.0, "bob": 3.0, "cyd": 2.0, "dot": 1.0}
    of = outcomes(small_table(world.folder / "trinity-inspector", answers, costs=costs), 1)
    found = {one.key: one for one in rules(of, of.of("evolve"), of.of("validation"), of.of("test"))}
    names = [*COMPARING, "by-family"]
    rows = rows_of(world, *(word for name in names for word in ("--policy", name)))
    for name in names:
        assert rows[name]["n"] == found[name].n == of.of("test").sum()
        assert rows[name]["accuracy"] == pytest.approx(found[name].accuracy), name
        spent = [rows[name][column] for column in ("calls_mean", "tokens_mean", "cost_usd_mean")]
        assert spent == pytest.approx([found[name].calls, found[name].tokens, found[name].cost]), name
    assert len({row["accuracy"] for row in rows.values()}) > 2, "a table that tells rules apart"


def test_it_asks_one_model_where_a_question_tells_that_it_is_right(recorded: Sums) -> None:
    policies = ("agree:family", "sure:family", "sure")
    rows, told = rows_and_words(recorded, *(word for name in policies for word in ("--policy", name)))
    assert rows["sure:family"]["accuracy"] == 1.0
    assert rows["sure:family"]["calls_mean"] == 1 < rows["agree:family"]["calls_mean"]
    assert rows["sure:family"]["turns_mean"] == 2, "its own check of its answer costs nothing"
    assert "sure:family asks at most 3 models, until two agree (the best of 4 settings on " in told
    assert "Where the first one's chance to be right is 0." in told


def test_a_teacher_is_no_surer_of_questions_for_having_learned_from_them(world: Sums, store: Store) -> None:
    """Whether ann is right is luck, and nobody else ever answers: stopping at once loses nothing."""
    draws = random.Random(3)
    keys = [draws.choice("ABCD") for _ in range(MANY)]
    ann = [key if draws.random() < 0.7 else "DABC"["ABCD".index(key)] for key in keys]
    table = small_table(
        world.folder / "trinity-inspector",
        {"ann": ann, "bob": [""] * MANY, "cyd": [""] * MANY},
        keys=keys,
        questions=[f"word{place} other{place} third{place}?" for place in range(MANY)],
    )
    policies = Policies(store, table.card.models)
    arena = Arena(RecordedPool(table), recorded_grading(table, grade_many))
    learned, aside = table.tasks[:200], table.tasks[200:]
    teacher: Any = teacher_of(policies, "sure", Lessons(store, arena, {}, aside, learned), learned)
    assert teacher.told.endswith("or more, nobody else is asked.")
    assert all(teacher.enough(task.question, "ann") for task in learned)


def test_an_agreement_cascade_can_follow_the_order_of_a_router(recorded: Sums) -> None:
    rows = rows_of(recorded, "--policy", "agree:logistic:tfidf", "--policy", "agree:3:logistic:tfidf")
    assert {row["accuracy"] for row in rows.values()} == {1.0}, "a question tells its family"


def test_a_pool_of_one_model_or_two_is_asked_as_far_as_it_goes(world: Sums) -> None:
    """Two alone can agree, or not: the first answer stands either way, which is said."""
    for n in (1, 2):
        few: dict[str, list[Answered]] = {"bob": ["B"] * N, "ann": ["A"] * N}
        few = {name: few[name] for name in [*few][-n:]}
        small_table(world.folder / "trinity-inspector", few, name=f"few{n}")
        pool = ("run", "--pool", f"outcomes:few{n}", "--n", 9, "--policy")
        [row] = world.done(*pool, "agree", "--json").json
        assert (row["accuracy"], row["turns_mean"]) == (1.0, n)
        [row] = world.done(*pool, "sure", "--json").json
        assert row["accuracy"] == 1.0
    told = world.done(*pool, "agree:2").err
    assert "agree:2 asks 2 models, and the first answer stands whether they agree or not." in told


def test_what_a_table_does_not_hold_is_one_sentence(recorded: Sums) -> None:
    def refused(policy: str) -> str:
        return recorded.refused(
            "run", "--pool", "outcomes:small", "--tasks", "outcomes:small", "--policy", policy
        )

    assert "has one reply of a model to a task, too few for 'majority:3:ann'" in refused("majority:3:ann")
    assert "has one reply of a model to a task" in refused("majority")
    assert "was handed the others' answers" in refused("mixture")
    for name in ("plan-and-solve", "by-family:pairs", "conductor:fixed:chain"):
        assert f"The outcome table small holds no plans, which '{name}' needs: play" in refused(name)
    assert "Policy 'single:ann' does not say how likely each model is" in refused("agree:single:ann")
    with closing(open_store(recorded.store)) as store:
        assert store.runs.list() == [], "what is refused was never begun"


def test_on_a_permuted_table_no_policy_gains(recorded: Sums) -> None:
    said = recorded.done("outcomes", "permute", "small", "control", "--seed", 2).out
    assert "control has the questions and replies of small, right by chance: 360 answers of 3 models." in said
    assert "There is an outcome table 'control' already" in recorded.refused(
        "outcomes", "permute", "small", "control"
    )
    plays = ("run", "--pool", "outcomes:control", "--tasks", "outcomes:control", "--json", "--policy")
    [row] = recorded.done(*plays, "logistic:tfidf").json
    assert row["accuracy"] < 0.85, "on the table itself it is always right"
    assert "which replies are right and not what they answer" in recorded.refused(*plays, "agree")


def test_marks_without_answers_can_be_no_rule(world: Sums) -> None:
    card = small_table(world.folder / "trinity-inspector", name="marks").folder / "card.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "answers": False}))
    arguments = ("run", "--pool", "outcomes:marks", "--tasks", "outcomes:marks", "--policy")
    for name in ("agree", "vote:2", "bayes"):
        said = world.refused(*arguments, name)
        assert (
            f"which replies are right and not what they answer, so that no two can be compared as '{name}'"
            in said
        )


def test_models_are_asked_in_the_order_of_their_prices(world: Sums) -> None:
    answers: dict[str, list[Answered]] = {"dear": ["A"] * 60, "cheap": ["B"] * 60, "middle": ["A"] * 60}
    costs = {"dear": 3.0, "cheap": 1.0, "middle": 2.0}
    small_table(world.folder / "trinity-inspector", answers, name="priced", costs=costs)
    priced = ("--pool", "outcomes:priced", "--tasks", "outcomes:priced", "--n", 1)
    world.done("run", *priced, "--policy", "agree:price")
    with closing(open_store(world.store)) as store:
        [run] = store.runs.list()
        episode = store.episodes.get(store.episodes.of_run(run.id)[0].id)
    turns = [f"{turn.decision.model} {turn.decision.role}" for turn in episode.turns]
    first, then = turns[:3], turns[3:]
    assert first == ["cheap worker", "middle verifier", "dear verifier"]
    assert then == ["middle worker", "dear verifier"]
    small_table(world.folder / "trinity-inspector", answers, name="free", tokens=False)
    free = ("--pool", "outcomes:free", "--tasks", "outcomes:free")
    said = world.refused("run", *free, "--policy", "agree:price")
    assert "does not say what its models cost, in money or in tokens, so 'agree:price' cannot ask" in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("agree:1", "agree cannot ask 1 models: give from 2 to 4"),
        ("agree:9:family", "agree cannot ask 9 models"),
        ("agree:random", "Policy 'random' does not say how likely each model is to be right"),
        ("sure:1:family", "sure cannot ask 1 models: give from 2 to 4"),
        ("sure:random", "Policy 'random' does not say how likely each model is to be right"),
        ("agree:nobody", "There is no policy or checkpoint 'nobody'"),
        ("vote:0", "vote cannot ask 0 models: give from 1 to 4"),
        ("vote:family", "'family' says nothing of vote: give how many vote"),
        ("weighted-vote:subject", "'subject' says nothing of weighted-vote: give how many vote, or family"),
        ("bayes:2", "'2' is no chance: give a number between 0 and 1"),
        ("bayes:sure", "'sure' is no chance"),
        ("probe:random", "'random' says nothing of probe: give how many are asked, family or price."),
        ("probe:9", "probe cannot ask 9 models: give from 2 to 4"),
        ("frugal:3", "Policy 'frugal' takes nothing behind a colon"),
    ],
)
def test_what_no_rule_can_be_called_is_one_sentence(store: Store, name: str, words: str) -> None:
    with pytest.raises((CheckpointError, ConfigError), match=words):
        check_policies([name], store, ("ann", "bob", "cyd", "dot"))


def test_a_rule_learns_from_both_kinds_of_tasks_and_reads_as_its_router_does() -> None:
    models = ("ann", "bob")
    found = {
        name: pupil_of(name, models) for name in ("agree", "vote:2", "bayes:0.9", "agree:logistic", "probe")
    }
    assert all(one is not None and one.learns_from == ("questions", "validation") for one in found.values())
    assert [one is not None and one.reads for one in found.values()] == [False, False, False, True, True]


def test_a_head_is_cloned_from_a_rule_that_recorded_models_play(recorded: Sums) -> None:
    """Its teacher is told the family, which the head has to read from the question."""
    of = ("--encoder", "pocket", "--argmax")
    names = ("agree:family", "cloned:agree:family", "cloned:single:ann", "cloned")
    rows = rows_of(recorded, *of, *(word for name in names for word in ("--policy", name)))
    teacher, clone, single, labels = rows.values()
    assert teacher["accuracy"] == 1.0
    assert clone["accuracy"] > 0.85, "more than the two thirds of any single model"
    with closing(open_store(recorded.store)) as store:
        [run] = store.runs.list()
        assert {store.checkpoints.load(name).kind for name in [*rows][1:]} == {"cloned", "labels"}
        kept = store.checkpoints.load([*rows][2])
        first = [one.turns[0] for one in map(store.episodes.get, (e.id for e in store.episodes.of_run(run.id)))
                 if one.policy == kept.id]  # fmt: skip
    assert {turn.decision.model for turn in first} == {"ann"}
    again = rows_of(recorded, *of, "--policy", [*rows][1])
    assert [row["accuracy"] for row in again.values()] == [clone["accuracy"]]
    assert single["accuracy"] < clone["accuracy"]
    assert labels["turns_mean"] >= 1


def test_probes_read_which_answer_is_right_and_teach_it(world: Sums) -> None:
    """Here a right answer is always A, which stands in the reply; three models ask for one in this order."""
    small_table(world.folder / "trinity-inspector", small_answers(MANY))
    names = ("agree", "probe", "cloned:probe")
    rows = rows_of(
        world, "--encoder", "pocket", "--argmax", *(word for name in names for word in ("--policy", name))
    )
    agree, probe, clone = rows.values()
    assert probe["accuracy"] > agree["accuracy"] + 0.05
    assert probe["calls_mean"] < agree["calls_mean"]
    assert clone["accuracy"] > agree["accuracy"]
    plays = ("run", "--pool", "outcomes:small", "--tasks", "outcomes:small", "--encoder", "pocket", "--n", 5)
    told = world.done(*plays, "--policy", "probe:2").err
    assert "probe:2 asks at most 2 models, until two agree or an answer has the chance 0." in told
    assert "(the best of 10 settings on " in told


def test_an_evolution_begins_with_a_head_that_a_rule_taught(recorded: Sums) -> None:
    of = ("--pool", "outcomes:small", "--tasks", "outcomes:small@1", "--encoder", "pocket")
    small = ("--generations", 1, "--population", 4, "--replicates", 4, "--no-controls")
    teaches = ("--labels", 500, "--teacher", "agree:family")
    run = recorded.done("evolve", *of, *small, *teaches, "--json").json["run"]
    with closing(open_store(recorded.store)) as store:
        first, second = store.learning.updates(run)
        assert store.checkpoints.load(first.checkpoint_id or "").kind == "cloned"
        assert first.stats["validation"]["accuracy"] > 0.8, "more than the two thirds of any single model"
        config = store.runs.get(run).config["evolution"]
    assert config["teacher"] == "agree:family"
    assert 50 < first.episodes < N, "each question of the evolve split once"
    assert second.episodes == first.episodes + 16
    said = recorded.refused("evolve", *of, *small, "--teacher", "agree:family")
    assert "A teacher needs questions to play: say how many with --labels" in said
    for teacher, why in (
        ("conductor:random", "'conductor:random' decides no single turns"),
        ("nobody", "no policy or checkpoint 'nobody'"),
    ):
        assert why in recorded.refused("evolve", *of, *small, "--labels", 5, "--teacher", teacher)


def test_policies_on_every_fold_come_to_what_a_run_of_each_fold_does(recorded: Sums) -> None:
    names = ("vote:1", "agree:family", "cloned:agree:family")
    asked = [word for name in names for word in ("--policy", name)]
    of = ("--encoder", "pocket", "--argmax")
    found = recorded.done("outcomes", "play", "small", *asked, *of, "--folds", "0,1", "--json").json
    rows = {row["policy"]: row for row in found["rows"]}
    assert (found["against"], [*rows]) == (["vote:1"], [*names])
    for fold in (0, 1):
        plays = (
            "run",
            "--pool",
            "outcomes:small",
            "--tasks",
            f"outcomes:small@{fold}",
            "--json",
            *of,
            *asked,
        )
        for name, row in zip(names, recorded.done(*plays).json, strict=True):
            assert rows[name]["by_fold"][str(fold)] == row["accuracy"], (name, fold)
    less = rows["agree:family"]["less"]["vote:1"]
    assert rows["vote:1"]["less"] == {}
    assert less["low"] < less["mean"] < less["high"]
    assert less["mean"] == pytest.approx(
        rows["agree:family"]["solved"]["mean"] - rows["vote:1"]["solved"]["mean"]
    )
    assert rows["agree:family"]["tasks"] < 2 * N * 0.35, "a question of two folds counts once"
    table = recorded.done("outcomes", "play", "small", "--policy", "vote:1", "--folds", "0").out
    assert "vote:1" in table
    assert "Name the language model that reads" in recorded.refused(
        "outcomes", "play", "small", "--policy", "probe", "--folds", "0"
    )
    assert "There is no fold 7: give numbers from 0 to 4." in recorded.refused(
        "outcomes", "play", "small", "--policy", "vote:1", "--folds", "7"
    )
    assert "'agree' was not played: name it by --policy as well." in recorded.refused(
        "outcomes", "play", "small", "--policy", "vote:1", "--folds", "0", "--against", "agree"
    )


def test_an_evolution_of_each_fold_plays_the_fold_that_it_learned_from(recorded: Sums) -> None:
    of = ("--pool", "outcomes:small", "--encoder", "pocket", "--json")
    small = ("--generations", 1, "--population", 4, "--replicates", 4, "--no-controls")
    play = ("outcomes", "play", "small", "--encoder", "pocket")
    both = ("--policy", "mine{fold}", "--policy", "without:verifier:mine{fold}", "--folds", "0,1", "--json")
    evolved = []
    for fold in (0, 1):
        tasks = ("--tasks", f"outcomes:small@{fold}")
        evolved.append(
            recorded.done("evolve", *of, *small, *tasks, "--name", f"mine{fold}").json["best"]["checkpoint"]
        )
    mine, masked = recorded.done(*play, *both).json["rows"]
    for fold, checkpoint in enumerate(evolved):
        tasks = ("--tasks", f"outcomes:small@{fold}")
        [alone] = recorded.done("run", *of, *tasks, "--argmax", "--policy", checkpoint).json
        assert mine["by_fold"][str(fold)] == alone["accuracy"]
    assert masked["policy"] == "without:verifier:mine{fold}"
    for name in ("mine0", evolved[0], f"without:verifier:{evolved[0]}", f"cloned:{evolved[0]}"):
        said = recorded.refused(*play, "--policy", name, "--folds", "1")
        assert (
            f"'{evolved[0]}' was evolved on outcomes:small@0 and may have seen test tasks of fold 1" in said
        )
    assert "There is no policy or checkpoint 'mine3'" in recorded.refused(
        *play, "--policy", "mine{fold}", "--folds", "3"
    )


def test_a_role_is_kept_from_a_policy_that_learns_before_it_plays(recorded: Sums) -> None:
    asked = ("--policy", "without:verifier:cloned:agree:family")
    of = ("--encoder", "pocket", "--argmax", "--json")
    [masked] = recorded.done("outcomes", "play", "small", *asked, *of, "--folds", "0").json["rows"]
    tasks = ("--pool", "outcomes:small", "--tasks", "outcomes:small@0")
    [row] = recorded.done("run", *tasks, *of, *asked).json
    assert row["accuracy"] == masked["by_fold"]["0"]
    with closing(open_store(recorded.store)) as store:
        played = [store.episodes.get(one.id) for one in store.episodes.of_run(store.runs.list()[0].id)]
    assert played
    assert {turn.decision.role for one in played for turn in one.turns} == {Role.WORKER}
