"""Routing shows what the workflows of one policy are like, never those of several together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote

import pytest
from streamlit.testing.v1 import AppTest

from storage.analysis.workflows import workflow_use
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import writing
from storage.rows.schema import episode
from storage.store import Store
from tests.builders.stores import new_store
from tests.builders.trainings import record_training
from tests.builders.workflows import ASKED, FIXED, RANDOM, record_workflows
from tests.ui.pages import command, opened, shown
from ui.web.pickers.checkpoints import policy_label


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    store = new_store(tmp_path / "trinity.db")
    record_workflows(store)
    monkeypatch.setenv("TRINITY_STORE", store.url)
    yield store
    store.close()


def said(page: AppTest) -> str:
    return shown(page).replace("\\", "")


def test_several_policies_are_listed_apart_and_one_of_them_is_shown(recorded: Store) -> None:
    page = opened("routing", part="workflows")
    table = page.dataframe[0].value
    names = ["random workflows", "workflow solvers of ann, ann, bob, ann", "workflows by cid"]
    assert sorted(table["policy"]) == names
    assert list(table["n"]) == [17, 17, 6]
    assert page.selectbox(key="routing_planner").options == list(table["policy"])
    assert "**workflow solvers of ann, ann, bob, ann**: 17 finished episodes, 100.0 % right" in said(page)
    other = opened("routing", part="workflows", planner=RANDOM)
    assert "**random workflows**: 17 finished episodes" in said(other)
    for address in table["open"]:
        assert "policy=conductor" in unquote(address)


def test_one_policy_alone_says_why_its_plans_could_not_be_read(recorded: Store) -> None:
    page = opened("routing", part="workflows", policy=ASKED)
    text = said(page)
    assert "routing_planner" not in [one.key for one in page.selectbox]
    plans = workflow_use(recorded, EpisodeFilter())[ASKED].plans
    assert f"Of {plans} replies, repeated tries counted" in text
    assert "5 more failed with their model." in text
    rounds = next(one.value for one in page.dataframe if "outcome" in one.value)
    assert dict(zip(rounds["outcome"], rounds["n"], strict=True)) == {
        "The planner kept the answer": 3,
        "A new workflow, the same answer": 1,
        "A new workflow, another answer": 2,
        "Its plan could not be read or run": 1,
    }


def test_two_policies_are_set_against_each_other(recorded: Store) -> None:
    text = said(opened("routing", part="workflows", a=FIXED, b=RANDOM))
    assert "**A · workflow solvers of ann, ann, bob, ann**" in text
    assert "B minus A, in points of the steps at a place." in text
    lacking = said(opened("routing", part="workflows", a=FIXED, b="random"))
    assert "Without workflows here: B · random model and role." in lacking


def test_the_part_is_offered_where_there_are_workflows_alone(recorded: Store) -> None:
    def offered(**query: str) -> list[str]:
        (parts,) = (one for one in opened("routing", **query).button_group if one.key == "routing_part")
        return list(parts.options)

    assert "Workflows" in offered()
    assert "Workflows" in offered(policy=FIXED)
    assert "Workflows" not in offered(policy="random")


def test_checkpoints_leads_from_two_planners_to_their_workflows(recorded: Store) -> None:
    page = opened("checkpoints", base=FIXED, b=RANDOM)
    text = said(page)
    (link,) = (one for one in page.page_link if one.label == "The workflows of both, on Routing")
    assert parse_qs(link.proto.query_string) == {"a": [FIXED], "b": [RANDOM], "part": ["workflows"]}
    assert "How sure are the choices?" not in text, "nobody decided by logits"
    one_alone = opened("checkpoints", base="random", b=RANDOM)
    assert "The workflows of both, on Routing" not in [link.label for link in one_alone.page_link]


def test_a_trained_planner_is_named_by_its_iteration_wherever_policies_are(recorded: Store) -> None:
    kept = record_training(recorded)
    planner, unplayed = kept[2], kept[4]
    policy = f"conductor:{planner}"
    with writing(recorded.engine) as connection:
        connection.execute(episode.update().where(episode.c.policy == FIXED).values(policy=policy))
    name = "Conductor, iteration 2"
    routing = opened("routing", part="workflows")
    assert name in routing.selectbox(key="routing_planner").options
    assert f"{name} · 17" in routing.selectbox(key="scope_policy").options
    say = policy_label(recorded)
    assert say(policy) == name
    assert say(f"conductor:{unplayed}").endswith(" · has played nothing yet")
    listed = opened("episodes", policy=policy)
    assert any(name in option for option in listed.selectbox(key="facet_policy").options)
    assert f"policy {name}" in [one.label.replace("\\", "") for one in listed.button]
    assert "policy" not in listed.dataframe[0].value, "it is the same in every row"
    assert name in list(opened("episodes", policy=policy, cols="policy").dataframe[0].value["policy"])
    assert name in list(opened("episodes", group="policy").dataframe[0].value["group"])
    compared = opened("checkpoints", base=policy, b=RANDOM).dataframe[0].value
    assert any(name in str(cell) for cell in compared.iloc[:, 0])


def test_the_command_gives_the_same_numbers(recorded: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["routing", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["workflows"]
    assert list(found) == [FIXED, RANDOM, ASKED]
    fixed = found[FIXED]
    assert fixed["right"] == {"k": 17, "n": 17, "share": 1.0, "ci95": fixed["right"]["ci95"]}
    assert fixed["steps"] == {"4": 17}
    assert fixed["topologies"]["join"]["n"] == 17
    assert fixed["access"][-1] == {"step": 4, "read": 51, "of": 51, "share": 1.0}
    assert {"step": 3, "model": "bob", "n": 17, "share": 1.0} in fixed["models"]
    assert found[ASKED]["plans_unreadable"] == {"lengths_differ": 5, "no_lists": 1}
    assert found[ASKED]["later_rounds"]["changed"] == {"n": 2, "right_before": 1, "right_after": 1}
    assert command(["routing", "--policy", "random", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workflows"] == {}
