"""Episodes of workflows in a store: recorded, read, resumed, exported, imported and pruned like any other, and counted
policy by policy as by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from core.analysis.metrics import ClusteredShare
from core.episode import EndReason, Episode, Status, Usage
from core.play.drive import drive_many
from core.tasks.graders import grade_many
from core.workflow import PlanFault
from storage.analysis.costs import planning, policy_costs, spending_by, sum_spending
from storage.analysis.health import model_health
from storage.analysis.reply_faults import Share
from storage.analysis.verdicts import turn_groups
from storage.analysis.workflows import RoundOutcome, Rounds, WorkflowUse, any_workflow, workflow_use
from storage.files.interchange import import_file
from storage.filters.episode_filter import EpisodeFilter
from storage.recorder import record
from storage.store import Store
from storage.upkeep.retention import prune
from tests.builders.interchange import export_runs
from tests.builders.pools import ScriptedPool
from tests.builders.stores import begin_run, new_store
from tests.builders.workflows import ASKED, FIXED, RANDOM, begun_workflows, record_workflows
from ui.web.turns.figures import usage_over_turns

ALL = EpisodeFilter()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[Episode]]]:
    store = new_store(tmp_path_factory.mktemp("workflows") / "trinity.db")
    yield store, record_workflows(store)
    store.close()


def of_policy(whole: Sequence[Episode], policy: str) -> list[Episode]:
    return [one for one in whole if one.policy == policy]


def test_policies_are_told_apart_and_those_without_plans_left_out(
    played: tuple[Store, list[Episode]],
) -> None:
    store, whole = played
    found = workflow_use(store, ALL)
    assert set(found) == {FIXED, RANDOM, ASKED}
    assert {name: one.episodes for name, one in found.items()} == Counter(
        one.policy for one in whole if one.plans
    )
    assert set(workflow_use(store, replace(ALL, policy=RANDOM))) == {RANDOM}
    assert workflow_use(store, replace(ALL, policy="random")) == {}
    assert any_workflow(store, ALL)
    assert not any_workflow(store, replace(ALL, policy="random"))
    sums = workflow_use(store, replace(ALL, family="sum"))
    assert sums[RANDOM].episodes == sum(one.task.family == "sum" for one in of_policy(whole, RANDOM))


@pytest.mark.parametrize("policy", [FIXED, RANDOM])
def test_steps_shapes_and_access_agree_with_a_count_by_hand(
    played: tuple[Store, list[Episode]], policy: str
) -> None:
    store, whole = played
    episodes, found = of_policy(whole, policy), workflow_use(store, ALL)[policy]
    flows = [(one, plan.workflow) for one in episodes for plan in one.plans if plan.workflow]
    assert len(flows) == 17
    assert found.models == Counter(
        (place, one.models[slot]) for one, flow in flows for place, slot in enumerate(flow.models)
    )
    assert found.lengths == Counter(len(flow) for _, flow in flows)
    assert found.workflows == found.plans == 17
    assert found.steps_mean == pytest.approx(sum(len(flow) for _, flow in flows) / 17)
    reads: dict[int, Share] = {}
    for _, flow in flows:
        for place, seen in enumerate(flow.reads):
            if place:
                before = reads.get(place, Share())
                reads[place] = Share(before.k + len(seen), before.n + place)
    assert found.access == reads
    assert found.topologies == {
        shape: ClusteredShare.counted(
            (one.task.id, bool(one.correct)) for one, flow in flows if flow.topology is shape
        )
        for shape in {flow.topology for _, flow in flows}
    }
    assert found.right == ClusteredShare.counted((one.task.id, bool(one.correct)) for one in episodes)
    assert (found.faults, found.failed, found.rounds) == ({}, 0, {})


def test_tasks_that_were_played_twice_widen_the_interval_of_a_shape(
    played: tuple[Store, list[Episode]],
) -> None:
    share = next(iter(workflow_use(played[0], ALL)[FIXED].topologies.values()))
    assert (share.n, share.clusters) == (17, 12)


def test_a_share_is_of_the_workflows_that_have_such_a_step() -> None:
    use = WorkflowUse(
        models=Counter({(0, "ann"): 3, (0, "bob"): 1, (1, "bob"): 2}), lengths=Counter({1: 2, 2: 2})
    )
    assert use.share(0, "ann") == 0.75
    assert use.share(1, "bob") == 1.0
    assert use.share(2, "ann") == 0.0


def test_unreadable_plans_are_counted_by_their_reason_apart_from_failures(
    played: tuple[Store, list[Episode]],
) -> None:
    store, whole = played
    found = workflow_use(store, ALL)[ASKED]
    assert found.faults == {PlanFault.LENGTHS_DIFFER: 5, PlanFault.NO_LISTS: 1}
    assert found.failed == 5
    assert found.readable == pytest.approx(1 - 6 / (found.plans - 5))
    assert found.plans == sum(len(one.plans) for one in of_policy(whole, ASKED))
    unread = [one for one in of_policy(whole, ASKED) if one.end_reason is EndReason.UNREADABLE_PLAN]
    assert sorted(one.task.id for one in unread) == ["t2", "t4"]


def test_later_rounds_say_what_became_of_the_answer(played: tuple[Store, list[Episode]]) -> None:
    found = workflow_use(played[0], ALL)[ASKED]
    assert found.rounds == {
        # t0 right and kept; t3 wrong in its second step and kept; t5 wrong after its second round and kept
        RoundOutcome.KEPT: Rounds(3, right_before=1, right_after=1),
        RoundOutcome.SAME: Rounds(1, right_before=1, right_after=1),  # t1, third round
        RoundOutcome.CHANGED: Rounds(2, right_before=1, right_after=1),  # t1 mended, t5 broken
        RoundOutcome.NOT_RUN: Rounds(1, right_before=1, right_after=1),  # t2: its first answer stands
    }
    assert found.access == {1: Share(2, 2)}  # t3 and t5: what later rounds see of earlier ones is not counted
    assert found.lengths == {1: 6, 2: 2}
    assert found.models == {(0, "ann"): 6, (0, "bob"): 2, (1, "bob"): 2}


def test_an_empty_store_has_none(fresh: Store) -> None:
    assert workflow_use(fresh, ALL) == {}


def test_what_is_recorded_is_read_as_it_was_played(played: tuple[Store, list[Episode]]) -> None:
    store, whole = played
    assert {one.end_reason for one in whole} >= {EndReason.COMPLETED, EndReason.UNREADABLE_PLAN}
    summaries = {one.id: one for one in store.episodes.of_run("r1")}
    for one in whole:
        assert store.episodes.get(one.id) == one
        replies = [*(turn.reply for turn in one.turns), *(plan.reply for plan in one.plans)]
        tokens = sum(reply.usage.tokens_out for reply in replies)
        assert summaries[one.id].tokens_out == tokens, "what a planner writes is counted"


def test_a_run_that_was_stopped_goes_on_without_asking_again_and_ends_alike(
    played: tuple[Store, list[Episode]], tmp_path: Path
) -> None:
    whole = {one.id: one for one in played[1]}
    for stops in (25, 90):
        store = new_store(tmp_path / f"{stops}.db")
        begin_run(store, "r1", "run", {})
        new, policy, pool = begun_workflows()
        new = new[::3]
        events = record(store, drive_many(new, policy, pool, grade_many))
        for _ in range(stops):
            next(events)
        events.close()  # type: ignore[attr-defined]
        begun = {one.id: one for one in store.episodes.unfinished("r1")}
        over = {one.id for one in store.episodes.of_run("r1") if one.status is Status.FINISHED}
        rest = [begun.get(one.id, one) for one in new if one.id not in over]
        replies = store.episodes.stored_replies("r1")
        list(record(store, drive_many(rest, policy, pool, grade_many, stored_replies=replies)))
        assert [store.episodes.get(one.id) for one in new] == [whole[one.id] for one in new]
        store.close()


def test_exported_and_imported_they_are_the_same(played: tuple[Store, list[Episode]], tmp_path: Path) -> None:
    store, whole = played
    export_runs(store, ["r1"], file := tmp_path / "out.jsonl")
    other = new_store(tmp_path / "b.db")
    import_file(other, file)
    assert [other.episodes.get(one.id) for one in whole] == whole
    export_runs(other, ["r1"], again := tmp_path / "again.jsonl")
    assert again.read_bytes() == file.read_bytes()
    prune(other, "texts", EpisodeFilter(), everything=True)
    one = next(one for one in whole if one.plans and one.plans[-1].workflow)
    found = other.episodes.get(one.id)
    assert not any(plan.reply.text or plan.messages for plan in found.plans)
    assert [plan.workflow for plan in found.plans] == [plan.workflow for plan in one.plans]
    assert found.turns[0].step == one.turns[0].step, "who did what stays"
    other.close()


def test_a_model_that_plans_workflows_is_called_for_that(
    played: tuple[Store, list[Episode]],
) -> None:
    store, whole = played
    calls = Counter(turn.decision.model for one in whole for turn in one.turns if turn.messages)
    calls.update(plan.planner for one in whole for plan in one.plans if plan.planner == "cid")
    assert calls["cid"]
    assert {one.model: one.calls for one in model_health(store, ALL)} == calls
    finished = [one for one in whole if one.status is Status.FINISHED]
    tokens = sum(
        plan.reply.usage.tokens_in + plan.reply.usage.tokens_out for one in finished for plan in one.plans
    )
    plans = planning(store, ALL)
    assert sum(one.tokens for one in plans.values()) == tokens > 0
    assert set(planning(store, ALL, of_pool=True)) == {"cid"}
    of_turns = spending_by(turn_groups(store, ALL), lambda one: one.model)
    both = sum_spending([*plans.values(), *of_turns.values()])
    assert both is not None
    assert both.tokens == sum(one.tokens for one in policy_costs(store, ALL)), (
        "shares are of what policies took"
    )
    for one in finished:
        if one.turns:
            figure = usage_over_turns(store.episodes.outline(one.id), one.models, "tokens", one.plans)
            summary = store.episodes.summary(one.id)
            assert figure is not None
            assert sum(curve.y[-1] for curve in figure.data) == summary.tokens_in + summary.tokens_out


def test_what_a_planner_of_the_pool_costs_counts_as_spent(fresh: Store) -> None:
    begin_run(fresh, "r1", "run", {})
    new, policy, pool = begun_workflows()
    billed = ScriptedPool(pool.specs, lambda ask: replace(next(pool.ask([ask]))[1], usage=Usage(1, 1, 0.5)))
    asked = [one for one in new if one.policy == ASKED and one.task.id in ("t0", "t1")]
    list(record(fresh, drive_many(asked, policy, billed, grade_many)))
    ended = [fresh.episodes.get(one.id) for one in asked]
    assert all(one.plans for one in ended)
    calls = sum(len(one.turns) + len(one.plans) for one in ended)
    assert fresh.runs.spent_usd("r1") == pytest.approx(0.5 * calls)
