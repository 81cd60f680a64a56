"""Episodes of workflows on the pages that read episodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.changes import Change, Fork
from core.conduct.planners import planner_policy
from core.conduct.prompts import Passed
from core.episode import Episode, EpisodeFinished, Task
from core.play.drive import drive, drive_many
from core.play.policies import Policy, PolicyPerEpisode, RandomPolicy, new_episode
from core.tasks.graders import grade_many
from core.workflow import AccessMode, Workflow
from storage.recorder import record
from storage.store import Store
from tests.builders.play import end
from tests.builders.pools import ScriptedPool, specs
from tests.builders.stores import begin_run
from tests.core.conduct.test_fail_over import without
from tests.core.conduct.test_session import writes
from tests.ui.pages import opened, shown
from ui.web.turns.workflow import Round, chosen_by, graph_figure, graph_words, legend_words, step_words

pytestmark = pytest.mark.integration
MODELS = ("ann", "bob", "cid")
TASK = Task("t1", "What is six times seven?", "42", "number")


@pytest.fixture
def ids(store: Store) -> dict[str, str]:
    """An episode each of three policies: a join of solvers, one without a readable plan, and a coordinator."""
    policies: dict[str, Policy] = {
        "join": planner_policy("conductor:fixed:solvers", MODELS),
        "unreadable": planner_policy("conductor:prompted:cid", MODELS),
        "turns": RandomPolicy(MODELS),
    }
    pool = ScriptedPool(specs(MODELS, "general"), lambda ask: f"{ask.model} says <answer>42</answer>")
    store.runs.create("r1", "run", {})
    begun = {
        new_episode("r1", place, TASK, policy, turns=5, seed=1, argmax=False).id: (name, policy, place)
        for place, (name, policy) in enumerate(policies.items())
    }
    each = PolicyPerEpisode("all", MODELS, {id_: policy for id_, (_, policy, _) in begun.items()})
    episodes = [
        new_episode("r1", place, TASK, policy, turns=5, seed=1, argmax=False)
        for _, policy, place in begun.values()
    ]
    for event in record(store, drive_many(episodes, each, pool, grade_many)):
        assert event is not None
        if isinstance(event, EpisodeFinished):
            assert event.episode.end_reason
    store.runs.finish("r1")
    return {name: id_ for id_, (name, _, _) in begun.items()}


def test_replay_shows_who_worked_at_what_and_who_could_read_whom(ids: dict[str, str]) -> None:
    page = opened("replay", ep=ids["join"], t="4")
    text = shown(page)
    assert "join, 4 steps, 3 side by side" in text
    assert "workflow run to its end" in text
    assert "It saw the problem and the replies of turn 1 (ann), turn 2 (bob) and turn 3 (cid)." in text
    assert "Solid arrow: what was sent." in text
    assert any("model_id = [0, 1, 2, 0]" in one.value for one in page.code)
    first = shown(opened("replay", ep=ids["join"], t="1"))
    assert "It saw only the problem." in first


def given(*sent: tuple[int, ...] | None, short: bool = True) -> dict[int, Passed]:
    """What turns 0 on were sent."""
    return {place: Passed(one, one or (), short=short) for place, one in enumerate(sent)}


def test_what_was_sent_is_told_and_not_what_its_role_might_have_been_sent() -> None:
    chain = Workflow((0, 1, 2), ("solve", "plan", "solve"), ((), (0,), (0, 1)), AccessMode.AUTO)
    part = Round(chain, MODELS, 0, given((), (), ()), {0, 1})
    assert "sent one plan" in step_words(part, 2)
    assert "It saw only the problem." in step_words(part, 2), "allowed to read a plan, it was sent none"
    part = Round(chain, MODELS, 0, given((), (), (1,)), {0})
    assert "It saw the problem and the plan of turn 2 (bob)." in step_words(part, 2)
    assert "It was allowed to read turn 1 (ann) too, and was sent nothing of it" in step_words(part, 2)
    assert "**The last step never used it**" in step_words(part, 0)
    assert "never used" not in step_words(part, 1)
    assert "who plans is sent the problem alone" in step_words(part, 1)
    full = Round(chain, MODELS, 0, given((), (0,), (0, 1), short=False))
    assert "It saw the problem and the replies of turn 1 (ann) and turn 2 (bob)." in step_words(full, 2)
    unknown = Round(chain, MODELS, 0, given((), None))
    assert "What it was sent is no longer in the store." in step_words(unknown, 1)
    assert step_words(unknown, 2).endswith("It could read the problem and turn 1 (ann) and turn 2 (bob).")


def test_solid_arrows_are_what_was_sent_and_dotted_ones_what_was_only_allowed() -> None:
    chain = Workflow((0, 1, 2), ("solve", "plan", "solve"), ((), (0,), (0, 1)), AccessMode.AUTO)
    part = Round(chain, MODELS, 0, given((), (), (1,)), {0})
    figure = graph_figure(part, MODELS, None)
    assert [shape.line.dash for shape in figure.layout.shapes] == ["dot", "dot"]
    assert sum(one.ax is not None for one in figure.layout.annotations) == 3
    assert list(figure.data[0].marker.symbol) == ["circle-open", "circle", "circle"]
    assert [one.text for one in figure.layout.annotations if one.ax is None] == [
        "ann, unused",
        "1",
        "bob",
        "cid",
    ]
    assert graph_words(part) == (
        "turn 1 ann (never used); turn 2 bob could read 1; turn 3 cid was sent 2, and could read 1"
    )
    assert legend_words(part) == (
        "Solid arrow: what was sent. Dotted: could be read, was not sent. Open ring: the last step never used it."
    )
    assert legend_words(Round(chain, MODELS)) == "Dotted: what may be read."


def test_a_forked_step_names_who_put_its_model_there(store: Store, ids: dict[str, str]) -> None:
    whole = store.episodes.get(ids["join"])
    forked = replace(whole, fork=Fork(whole.id, 1, change=Change("model", "bob")))
    assert "the planner named" in chosen_by(whole, 1)
    assert "a fork put this model" in chosen_by(forked, 1)
    assert "the planner named" in chosen_by(forked, 0)


def test_a_step_has_no_choice_that_could_be_looked_into(ids: dict[str, str]) -> None:
    page = opened("replay", ep=ids["join"], t="4", panel="why")
    assert not [one for one in page.button if str(one.key).startswith("panel_")]
    assert "Just before" not in shown(page), "a step need not have read the one before"
    page = opened("replay", ep=ids["turns"], t="1", panel="why")
    assert not [one for one in page.button if str(one.key).startswith("panel_")]
    assert "at random" in shown(page), "what a policy without a head chose by is told in place of them"


def test_replay_says_why_a_plan_was_no_workflow(ids: dict[str, str]) -> None:
    page = opened("replay", ep=ids["unreadable"])
    text = shown(page).replace("\\", "")
    assert "No workflow: one of its three lists is missing" in text
    assert any(one.label.startswith("What the planner wrote (5 tries)") for one in page.expander)
    assert "No turn of this episode was played." in text


def test_other_pages_read_workflows_like_any_episode(ids: dict[str, str]) -> None:
    for name in ("home", "episodes", "routing", "verifier", "checkpoints", "data", "pool"):
        opened(name)
    assert "workflow run to its end" in shown(opened("pair", a=ids["join"], b=ids["turns"]))


def test_an_arrow_that_would_go_through_another_step_is_bowed_around_it() -> None:
    chain = Workflow((0, 1, 2), ("a", "b", "c"), ((), (0,), (0, 1)))
    figure = graph_figure(Round(chain, MODELS, 0, given((), (0,), (0, 1))), MODELS, None)
    (bow,) = figure.layout.shapes
    assert bow.path == "M 0,0.0 Q 1.0,0.88 2,0.0"
    heads = [(one.ax, one.x) for one in figure.layout.annotations if one.ax is not None]
    assert len(heads) == 3
    assert min(tail for tail, head in heads if head == 2) >= 1, "of the bow only the end is drawn with a head"
    join = Workflow((0, 1, 2), ("a", "b", "c"), ((), (), (0, 1)))
    assert not graph_figure(Round(join, MODELS, 0, given((), (), (0, 1))), MODELS, None).layout.shapes


def test_the_graph_has_a_node_for_each_step_and_an_arrow_for_each_access() -> None:
    workflow = Workflow((0, 1, 2, 0), ("a", "b", "c", "d"), ((), (), (0,), (1, 2)))
    names = ["ann", "bob", "cid", "ann"]
    figure = graph_figure(Round(workflow, names, 1), MODELS, 2)
    (nodes,) = figure.data
    assert list(nodes.text) == ["2", "3", "4", "5"]
    assert list(nodes.x) == [0, 0, 1, 2]
    assert nodes.y[0] > nodes.y[1], "side by side stand above each other"
    assert sum(one.ax is not None for one in figure.layout.annotations) == 3
    assert list(nodes.marker.line.width) == [0, 0, 4, 0]
    part = Round(workflow, names)
    assert graph_words(part) == "turn 1 ann; turn 2 bob; turn 3 cid may read 1; turn 4 ann may read 2, 3"
    assert "It could not read turn 1 (ann)." in step_words(part, 3)


@pytest.fixture
def in_vain(store: Store) -> Episode:
    """Two rounds of two steps each; bob, who was to do a step of each, could not be asked."""
    begin_run(store, "r1", "run", {})
    first = 'model_id = [0, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], [0]]'
    again = 'model_id = [2, 1]\nsubtasks = ["c", "d"]\naccess_list = [[], [0]]'
    policy = writes(first, again, rounds=2)
    pool = ScriptedPool(specs(MODELS, "general"), without("bob"))
    begun = new_episode("r1", 0, TASK, policy, turns=5, seed=1, argmax=False)
    ended = end(record(store, drive(begun, policy, pool, grade_many, served=True)))
    store.runs.finish("r1")
    return ended


def test_a_step_that_another_model_did_is_told_with_the_call_in_vain(in_vain: Episode) -> None:
    text = shown(opened("replay", ep=in_vain.id, t="2"))
    assert "**Turn 2** (cid) was asked: b" in text
    assert "Asked for it in vain before: turn 3 (bob)." in text
    assert "the planner had named bob, which could not be asked for this step." in text
    text = shown(opened("replay", ep=in_vain.id, t="3"))
    assert "**Turn 3** (bob) could not be asked for its step, which is turn 2: cid did it." in text
    assert "No route." in text
    text = shown(opened("replay", ep=in_vain.id, t="5"))
    assert "**Turn 5** (cid) was asked: d" in text, "a later round begins behind the call in vain"
    assert "It saw the problem and the replies of turn 4 (cid) and turns 1 and 2 of the round before." in text


def test_the_form_of_forks_offers_no_call_in_vain(in_vain: Episode) -> None:
    page = opened("forks", ep=in_vain.id, t="3", change="model")
    assert not page.exception
    assert "fork turn 2, which is that step" in shown(page)
    assert not opened("forks", ep=in_vain.id, t="2", change="model").exception
