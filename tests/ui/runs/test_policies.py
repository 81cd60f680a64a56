"""Policies by name: the one list that `trinity run` plays, checks, prices and helps by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
import torch

from core.conduct.planners import FIXED
from core.coordinator.encoder import Encoder
from core.episode import ROLE_ORDER, Role, Status
from core.errors import CheckpointError, ConfigError
from core.evolution.cycles import cascade_episodes
from core.settings import Computing
from storage.rows.summaries import RunStatus
from storage.store import Store, open_store
from tests.builders.diffed import Diffed
from tests.core.pool.faulty_server import Answer, Request, fail
from tests.ui.pages import opened as opened_page
from tests.ui.pages import shown
from tests.ui.sums import Sums, answer
from ui.runs import reading
from ui.runs.policies import Policies, check_policies, cycles_of, pupil_of, turns_of
from ui.runs.policy_kinds import POLICIES
from ui.runs.settings.batch import BatchPlan
from ui.runs.spending import lesson_episodes, price

MODELS = ("adder", "guesser")


@contextmanager
def opened(world: Sums) -> Iterator[Store]:
    with closing(open_store(world.store)) as store:
        yield store


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody", "There is no policy or checkpoint 'nobody'"),
        ("majority:nobody", "There is no policy or checkpoint 'nobody'"),
        ("single:nobody", "There is no model 'nobody' in the pool"),
        ("cascade:adder", "needs a model that answers and one that judges"),
        ("cascade:adder+nobody", "There is no model 'nobody' in the pool"),
        ("majority:1", "1 votes make no majority: give from 2 to 100"),
        ("majority:101:adder", "101 votes make no majority"),
        ("cloned:mixture", "Policy 'mixture' decides no single turns, so that no head"),
        ("cloned:nobody", "There is no policy or checkpoint 'nobody'"),
        ("majority:mixture", "Policy 'mixture' decides no single turns"),
        ("majority:conductor:random", "Policy 'conductor:random' decides no single turns"),
        ("majority:router", "Policy 'router' learns from other tasks before it plays"),
        ("mixture:5", "Policy 'mixture' takes nothing behind a colon"),
        ("random:5", "Policy 'random' takes nothing behind a colon"),
        ("router:much", "'much' is no setting of router"),
        ("without:judge:random", "A policy cannot do without 'judge': give a role"),
        (
            "without:2:random",
            "A policy cannot do without '2': give a role .* or how many models, from 1 to 1",
        ),
        ("without:verifier:mixture", "Policy 'mixture' decides no single turns"),
        ("by-family:triples", "A table by family holds no 'triples'"),
        (
            "ridge:words",
            "'words' is nothing that ridge knows of a question: give states or tfidf, and :family",
        ),
        ("knn:tfidf:domain", "'tfidf:domain' is nothing that knn knows"),
        ("labels:tfidf:states", "'tfidf:states' is nothing that labels knows"),
        ("routerdc:family:tfidf", "'family:tfidf' is nothing that routerdc knows"),
        ("revise:nobody", "There is no model 'nobody' in the pool"),
        ("plan-and-solve:adder", "Policy 'plan-and-solve' takes nothing behind a colon"),
        ("majority:by-family", "Policy 'by-family' learns from other tasks before it plays"),
        ("candidate:r1/2/3", "The weights of candidate 3"),
    ],
)
def test_what_no_policy_can_be_called_is_one_sentence(store: Store, name: str, words: str) -> None:
    with pytest.raises((CheckpointError, ConfigError), match=words):
        check_policies([name], store, MODELS)


def test_a_name_says_what_it_learns_from_which_cycles_it_plays_by_and_how_many_turns_it_takes() -> None:
    rules = ("by-family", "by-family:pairs", "plan-and-solve", "ridge", "ridge:tfidf", "revise")
    taught = ("cloned:agree:family", "cloned:single:adder")
    names = ("cascade", "majority:7", "router:1", "labels", *taught, *rules)
    pupils = {name: pupil for name in names if (pupil := pupil_of(name, MODELS)) is not None}
    assert {name: pupil.learns_from for name, pupil in pupils.items()} == {
        "cascade": ("validation",),
        "majority:7": ("validation",),
        "router:1": ("questions",),
        "labels": ("questions",),
        "cloned:agree:family": ("questions", "validation"),
        "cloned:single:adder": ("questions",),
        "by-family": ("validation",),
        "by-family:pairs": ("validation",),
        "plan-and-solve": ("validation",),
        "ridge": ("questions", "validation"),
        "ridge:tfidf": ("questions", "validation"),
        "revise": ("validation",),
    }
    assert {name for name, pupil in pupils.items() if pupil.reads} == {"router:1", "labels", "ridge", *taught}
    assert [pupils[name].episodes(2, 10, 5) for name in taught] == [30, 10], "its own, and its teacher's"
    assert [pupils[name].cycles for name in taught] == [(), ("single:adder",)]
    tried = {name: pupils[name].episodes(2, 10, 5) for name in rules}
    assert tried == {
        "by-family": 20,
        "by-family:pairs": 40,
        "plan-and-solve": 40,
        "ridge": 60,
        "ridge:tfidf": 60,
        "revise": 20,
    }
    assert cycles_of("by-family", MODELS) == cycles_of("ridge", MODELS) == cycles_of("labels", MODELS)
    assert cycles_of("by-family:pairs", MODELS) == ()
    for name in ("random", "cascade:adder+guesser", "majority:adder"):
        assert pupil_of(name, MODELS) is None
    assert pupils["cascade"].episodes(2, 4, 5) == cascade_episodes(2, 4, 5) == 4 * 2 * (2 + 3)
    assert pupils["labels"].episodes(2, 10, 5) == 60
    assert cycles_of("labels", MODELS) == ("single:adder", "single:guesser")
    assert cycles_of("majority:single:adder", MODELS) == cycles_of("without:1:single:adder", MODELS)
    assert cycles_of("majority:adder", MODELS) == cycles_of("cascade", MODELS) == ()
    turns = {
        name: turns_of(name, 3, MODELS) for name in ("random", "mixture", "majority:adder", "majority:c1")
    }
    assert turns == {"random": 3, "mixture": 3, "majority:adder": 5, "majority:c1": 15}
    assert turns_of("majority:4:without:verifier:random", 3, MODELS) == 12


def test_run_plays_every_kind_of_policy_and_keeps_its_turns(evolving: Sums) -> None:
    names = [
        "majority",
        "majority:3:random",
        "mixture",
        "cascade",
        "router",
        "labels:0.1",
        "cloned",
        "by-family",
        "by-family:pairs",
        "plan-and-solve",
        "ridge:tfidf",
        "revise",
        "without:verifier:random",
        "without:1:random",
    ]
    asked = [word for name in names for word in ("--policy", name)]
    result = evolving.run(*asked, "--validate", 4, "--turns", 3, "--n", 6, "--json")
    assert result.code == 0, result.err
    rows = {row["policy"]: row for row in result.json}
    chosen = [one for one in rows if one not in names]
    assert len(chosen) == 5, "the best answerer, a cascade's team, a checkpoint, a pair, and who revises best"
    team = next(one for one in chosen if one.startswith("cascade:"))
    assert rows["majority:adder"]["accuracy"] == 1.0
    with opened(evolving) as store:
        [run] = store.runs.list()
        played = [store.episodes.get(one.id) for one in store.episodes.of_run(run.id)]
        assert store.learning.paid_replies(run.id).recall() == []
        assert "by-family, which is told each task's family: user adder." in run.notes
        taught = next(one for one in chosen if store.checkpoints.has(one))
    turns = {name: {len(one.turns) for one in played if one.policy == name} for name in rows}
    assert turns["majority:adder"] == {5}
    assert turns["mixture"] == {3}
    pair = next(one for one in chosen if one.startswith("conductor:fixed:plan-and-solve:"))
    assert pair.endswith("+adder")
    assert turns[pair] == turns["by-family:pairs"] == {2}
    written = [one.plans[0].planner for one in played if one.policy == "by-family:pairs"]
    assert written == 6 * [pair], "a table's workflow is by the pair that it chose"
    assert rows["by-family:pairs"]["accuracy"] == rows["ridge:tfidf"]["accuracy"] == 1.0
    assert rows["revise:adder"]["accuracy"] == 1.0
    assert {one.status for one in played} == {Status.FINISHED}
    assert all(
        one.answer == one.turns[-1].answer_after for one in played if one.policy.startswith("majority:")
    )
    assert all(len(one.left_out) == 1 for one in played if one.policy == "without:1:random")
    roles = {turn.decision.role for one in played if one.policy.startswith("without:v") for turn in one.turns}
    assert roles == {*ROLE_ORDER} - {Role.VERIFIER}
    again = evolving.run("--policy", team, "--policy", taught, "--turns", 3, "--n", 6, "--json").json
    assert [row["accuracy"] for row in again] == [rows[team]["accuracy"], rows[taught]["accuracy"]]
    for policy in ("majority:adder", "mixture", team, "by-family:pairs"):
        shown_one = next(one for one in played if one.policy == policy)
        assert str(shown_one.answer) in shown(opened_page("replay", ep=shown_one.id))
    evolving.done("compare", "mixture", "majority:adder", "--json")
    evolving.done("compare", "by-family:pairs", "by-family", "--json")
    evolving.done("routing", "--policy", "by-family:pairs", "--json")


@pytest.mark.parametrize(("name", "validate"), [("router", 0), ("by-family:pairs", 4), ("ridge:tfidf", 4)])
def test_what_goes_on_is_taught_again_without_asking_again(evolving: Sums, name: str, validate: int) -> None:
    """Its lessons are kept until it has played all."""

    def down_in_tests(request: Request) -> Answer:
        text = request.body["messages"][-1]["content"]
        is_test = "+ 5?" not in text
        return fail(500) if is_test and "What is 10 + " in text else answer(request)

    evolving.server.answer = down_in_tests
    assert evolving.run("--policy", name, "--validate", validate, "--turns", 2).code == 1
    with opened(evolving) as store:
        [run] = store.runs.list()
        assert run.status is RunStatus.INTERRUPTED
        assert store.learning.paid_replies(run.id).recall()
    evolving.server.answer = answer
    evolving.server.requests.clear()
    evolving.done("run", "--resume", run.id)
    texts = [request.body["messages"][-1]["content"] for request in evolving.server.requests]
    assert texts
    assert all("What is 10 + " in text for text in texts)
    with opened(evolving) as store:
        assert store.learning.paid_replies(run.id).recall() == []


def test_what_is_learned_first_is_part_of_the_price(
    evolving: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMS_KEY", "k")
    plan = BatchPlan(
        ("cascade", "router", "majority:adder", "mixture"), evolving.tasks, "test", 12, 0, 3, False,
        str(evolving.folder / "pool.toml"), models=MODELS, choosing=4,
    )  # fmt: skip
    evolving.price(1.0)
    learning = 2 * 4 * (2 + 2) + 2 * 12
    assert lesson_episodes(plan) == learning
    choosing_cycles = 2 * 23 * 4
    most = price(store, plan).most
    assert most.calls == (learning + choosing_cycles) * 3 + 12 * (3 + 3 + 5 + 3)


def test_a_policy_that_cannot_learn_is_told_before_anything_is_asked(evolving: Sums) -> None:
    result = evolving.run("--policy", "cascade", "--validate", 0)
    assert result.code == 1
    assert "is chosen on validation tasks: say on how many with --validate" in " ".join(result.err.split())
    assert not evolving.server.requests


def test_help_lists_every_name(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    said = world.trinity("run", "--help").out
    for one in POLICIES.values():
        assert one.form in said
        assert one.words in " ".join(said.split())


def test_every_workflow_is_named() -> None:
    assert f"fixed:NAME ({', '.join(FIXED)})" in POLICIES["conductor"].words


def test_a_checkpoint_on_another_recipe_says_once_how_far_it_agrees(
    diffed: Diffed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_told", {})
    policies = Policies(diffed.store, diffed.a.models, computing=Computing("cpu", "bfloat16"))
    for checkpoint in (diffed.a, diffed.a, diffed.svf):
        assert policies.coordinator(checkpoint).encoder.dtype == "bfloat16"
    recorded, asked = caplog.messages
    said = r"Checkpoint {} was made in float32 on the CPU and plays here in bfloat16 on the CPU: of \d+ {}, \d+ \("
    assert re.match(said.format(diffed.a.id, "recorded decisions"), recorded)
    assert re.match(said.format(diffed.svf.id, "decisions about pocket questions"), asked)
    assert Policies(diffed.store, diffed.a.models).coordinator(diffed.a).encoder.dtype == "float32", "its own"
    elsewhere = replace(diffed.a, device="cuda", dtype="bfloat16")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    Policies(diffed.store, diffed.a.models).coordinator(elsewhere)
    assert "is not known, as none of its own is recorded and its recipe is not at hand" in caplog.messages[-1]
    caplog.clear()
    monkeypatch.setattr(reading, "_told", {})
    monkeypatch.setattr(Encoder, "keeps_states", property(lambda _: True))
    monkeypatch.setattr(Encoder, "tokens_per_s", lambda _: 1.0)
    policies.coordinator(diffed.a)
    assert re.match(r"First it is measured .* agree, about \d+ (s|min) left", caplog.messages[0])
