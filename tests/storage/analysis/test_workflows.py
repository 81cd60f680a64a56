"""What is counted over workflows agrees with a count by hand, policy by policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from core.analysis.metrics import ClusteredShare
from core.episode import EndReason, Episode
from core.workflow import PlanFault
from storage.analysis.lapses import Share
from storage.analysis.workflows import RoundOutcome, Rounds, WorkflowUse, any_workflow, workflow_use
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from tests.builders.stores import new_store
from tests.builders.workflows import ASKED, FIXED, RANDOM, record_workflows

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


def test_an_empty_store_has_none(tmp_path: Path) -> None:
    store = new_store(tmp_path / "empty.db")
    assert workflow_use(store, ALL) == {}
    store.close()
