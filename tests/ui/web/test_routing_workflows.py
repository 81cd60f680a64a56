"""Routing shows what the workflows of one policy are like, never those of several together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from streamlit.testing.v1 import AppTest

from storage.analysis.workflows import workflow_use
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import writing
from storage.rows.schema import episode
from storage.store import Store
from tests.builders.stores import filled_store
from tests.builders.trainings import record_training
from tests.builders.workflows import ASKED, FIXED, RANDOM, record_workflows
from tests.ui.pages import command, opened, shown, table_with
from ui.web.pickers.checkpoints import policy_label

pytestmark = pytest.mark.integration


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    store = filled_store(tmp_path / "trinity.db", _workflows)
    monkeypatch.setenv("TRINITY_STORE", store.url)
    yield store
    store.close()


def _workflows(store: Store, _: int) -> None:
    record_workflows(store)


def said(page: AppTest) -> str:
    return shown(page).replace("\\", "")


def test_several_policies_are_listed_apart_and_one_of_them_is_shown(recorded: Store) -> None:
    page = opened("routing", part="workflows")
    table = table_with(page, "readable")
    names = ["random workflows", "workflow solvers of ann, ann, bob, ann", "workflows by cid"]
    assert sorted(table["policy"]) == names
    assert list(table["n"]) == [17, 17, 6]
    assert page.selectbox(key="choose_planner").options == list(table["policy"])
    assert "workflow solvers of ann, ann, bob, ann: 17 finished episodes, 100.0 % (" in said(page)
    other = opened("routing", part="workflows", planner=RANDOM)
    assert "random workflows: 17 finished episodes" in said(other)
    for address in table["open"]:
        assert "policy=conductor" in unquote(address)


def test_one_policy_alone_says_why_its_plans_could_not_be_read(recorded: Store) -> None:
    page = opened("routing", part="workflows", policy=ASKED)
    text = said(page)
    assert "choose_planner" not in [one.key for one in page.selectbox]
    plans = workflow_use(recorded, EpisodeFilter())[ASKED].plans
    assert f"6 of {plans} replies could not be read." in text
    assert "5 more failed with their model." in text
    rounds = table_with(page, "outcome")
    assert dict(zip(rounds["outcome"], rounds["n"], strict=True)) == {
        "The planner kept the answer": 3,
        "A new workflow, the same answer": 1,
        "A new workflow, another answer": 2,
        "Its plan could not be read or run": 1,
    }


def test_two_policies_are_set_against_each_other(recorded: Store) -> None:
    text = said(opened("routing", part="workflows", a=FIXED, b=RANDOM))
    assert "A · workflow solvers of ann, ann, bob, ann: 17 finished episodes" in text
    assert "B minus A, in points of the steps at a place, by model." in text
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
    page = opened("checkpoints", base=FIXED, b=RANDOM, part="course")
    text = said(page)
    (link,) = (one for one in page.page_link if one.label.startswith("The workflows of both"))
    assert parse_qs(link.proto.query_string) == {"a": [FIXED], "b": [RANDOM], "part": ["workflows"]}
    assert "How sure are the choices?" not in text, "nobody decided by logits"
    one_alone = opened("checkpoints", base="random", b=RANDOM, part="course")
    assert not [link for link in one_alone.page_link if link.label.startswith("The workflows of both")]


def test_a_trained_planner_is_named_by_its_iteration_wherever_policies_are(recorded: Store) -> None:
    kept = record_training(recorded)
    planner, unplayed = kept[2], kept[4]
    policy = f"conductor:{planner}"
    with writing(recorded.engine) as connection:
        connection.execute(episode.update().where(episode.c.policy == FIXED).values(policy=policy))
    name = "Conductor, iteration 2"
    routing = opened("routing", part="workflows")
    assert name in routing.selectbox(key="choose_planner").options
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
    def found(*options: str) -> dict[str, Any]:
        assert command(["routing", *options, "--json"]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    fixed = found("--choose", f"planner={FIXED}")
    assert [one["id"] for one in fixed["workflows"]["policies"]] == [FIXED, RANDOM, ASKED]
    right = fixed["workflows"]["policies"][0]["right"]
    assert right == {"k": 17, "n": 17, "share": 1.0, "ci95": right["ci95"]}
    assert [(one["steps"], one["n"]) for one in fixed["lengths"]["rows"]] == [(4, 17)]
    assert {one["name"]: one["n"] for one in fixed["shapes"]["estimates"]}["join"] == 17
    assert fixed["access"]["rows"][-1] == {"step": 4, "share": 1.0, "read": 51, "of": 51}
    assert {"step": "step 3 (17)", "model": "bob", "share": 1.0} in fixed["workflows"]["grid"]
    asked = found("--policy", ASKED)
    assert {one["fault"]: one["n"] for one in asked["faults"]["rows"]} == {"lengths_differ": 5, "no_lists": 1}
    changed = next(one for one in asked["rounds"]["rows"] if one["outcome"].endswith("another answer"))
    assert (changed["n"], changed["right_before"], changed["right_after"]) == (2, 1, 1)
    assert "workflows" not in found("--policy", "random")
