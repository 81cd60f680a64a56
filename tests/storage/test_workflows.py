"""Episodes of workflows in a real store: recorded, read, resumed, exported, imported and pruned like any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.conduct.planners import planner_policy
from core.episode import Ask, EndReason, Episode, EpisodeFinished, Event, Reply, Status, Task, Usage
from core.play.drive import drive_many
from core.play.policies import PolicyPerEpisode, RandomPolicy
from core.play.policy import Policy, new_episode
from core.tasks.graders import grade_many
from storage.files.interchange import import_file
from storage.filters.episode_filter import EpisodeFilter
from storage.recorder import record
from storage.store import Store, open_store
from storage.upkeep.retention import prune
from tests.builders.interchange import export_runs
from tests.builders.pools import ScriptedPool, specs
from tests.builders.stores import filled_store

MODELS = ("ann", "bob", "cid")
TASKS = [Task(f"t{n}", f"What is {n} + {n}?", str(2 * n), "number") for n in range(12)]
POLICIES: list[Policy] = [
    planner_policy("conductor:random", MODELS),
    planner_policy("conductor:prompted:cid", MODELS),
    RandomPolicy(MODELS),
]


def told(ask: Ask) -> str:
    """Plans that can be read for every third task alone; answers that are right where ann works."""
    text = ask.messages[-1].content
    number = int(text.split("What is ")[1].split(" ")[0])
    if "The models:" in text:
        lists = 'model_id = [0, 1, 2]\nsubtasks = ["a", "b", "c"]\naccess_list = [[], [], [0, 1]]'
        return lists if number % 3 == 0 else "I would rather answer: 4."
    return f"{ask.model}: <answer>{2 * number if ask.model == 'ann' else number}</answer>"


def episodes() -> list[Episode]:
    every = [(policy, task) for policy in POLICIES for task in TASKS]
    return [
        new_episode("r1", place, task, policy, turns=5, seed=3, argmax=False)
        for place, (policy, task) in enumerate(every)
    ]


def played(some: list[Episode], pool: ScriptedPool, **options: object) -> Iterator[Event]:
    of = {policy.id: policy for policy in POLICIES}
    mine = {one.id: of[one.policy] for one in some}
    each = PolicyPerEpisode("all", MODELS, mine.__getitem__)
    return drive_many(some, each, pool, grade_many, **options)  # type: ignore[arg-type]


def pool() -> ScriptedPool:
    return ScriptedPool(specs(MODELS, "general"), told)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[tuple[Store, list[Episode]]]:
    store = filled_store(tmp_path / "a.db", _play)
    yield store, sorted(ENDED, key=lambda one: one.id)
    store.close()


ENDED: list[Episode] = []  # as they were played into the store that is copied


def _play(store: Store, _: int) -> None:
    store.runs.create("r1", "run", {})
    happened = record(store, played(episodes(), pool()))
    ENDED.extend(one.episode for one in happened if isinstance(one, EpisodeFinished))


def test_what_is_recorded_is_read_as_it_was_played(recorded: tuple[Store, list[Episode]]) -> None:
    store, ended = recorded
    assert len(ended) == 36
    assert {one.end_reason for one in ended} >= {
        EndReason.COMPLETED,
        EndReason.UNREADABLE_PLAN,
        EndReason.BUDGET,
    }
    for one in ended:
        assert store.episodes.get(one.id) == one
    summaries = {one.id: one for one in store.episodes.of_run("r1")}
    for one in ended:
        tokens = sum(turn.reply.usage.tokens_out for turn in one.turns)
        tokens += sum(plan.reply.usage.tokens_out for plan in one.plans)
        assert summaries[one.id].tokens_out == tokens, "what a planner writes is counted"


def test_a_run_that_was_stopped_goes_on_without_asking_again_and_ends_alike(
    recorded: tuple[Store, list[Episode]], tmp_path: Path
) -> None:
    _, straight = recorded
    for stops in range(5, 150, 40):
        store = open_store(f"sqlite:///{tmp_path / f'{stops}.db'}")
        store.runs.create("r1", "run", {})
        first = pool()
        events = record(store, played(episodes(), first))
        for place, _ in enumerate(events):
            if place == stops:
                break
        events.close()  # type: ignore[attr-defined]
        rest = pool()
        begun = {one.id: one for one in store.episodes.unfinished("r1")}
        over = {one.id for one in store.episodes.of_run("r1") if one.status is Status.FINISHED}
        waiting = [begun.get(one.id, one) for one in episodes() if one.id not in over]
        replies = store.episodes.stored_replies("r1")
        for _ in record(store, played(waiting, rest, stored_replies=replies)):
            pass
        assert [store.episodes.get(one.id) for one in straight] == straight
        store.close()


def test_exported_and_imported_they_are_the_same(
    recorded: tuple[Store, list[Episode]], tmp_path: Path
) -> None:
    store, ended = recorded
    export_runs(store, ["r1"], file := tmp_path / "out.jsonl")
    other = open_store(f"sqlite:///{tmp_path / 'b.db'}")
    import_file(other, file)
    assert [other.episodes.get(one.id) for one in ended] == ended
    export_runs(other, ["r1"], again := tmp_path / "again.jsonl")
    assert again.read_bytes() == file.read_bytes()
    other.close()


def test_pruned_texts_of_plans_are_gone_and_who_did_what_stays(recorded: tuple[Store, list[Episode]]) -> None:
    store, ended = recorded
    store.runs.finish("r1")
    prune(store, "texts", EpisodeFilter(), everything=True)
    one = next(one for one in ended if one.plans and one.plans[-1].workflow)
    found = store.episodes.get(one.id)
    assert not any(plan.reply.text or plan.messages for plan in found.plans)
    assert [plan.workflow for plan in found.plans] == [plan.workflow for plan in one.plans]
    assert found.turns[0].step == one.turns[0].step


def test_what_a_planner_of_the_pool_costs_counts_as_spent(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'paid.db'}")
    store.runs.create("r1", "run", {})

    def billed(ask: Ask) -> Reply:
        return Reply(told(ask), usage=Usage(1, 1, 0.5))

    some = [one for one in episodes() if one.policy == "conductor:prompted:cid"][:2]
    ended = [
        one.episode
        for one in record(store, played(some, ScriptedPool(specs(MODELS, "general"), billed)))
        if isinstance(one, EpisodeFinished)
    ]
    turns = sum(turn.reply.usage.cost_usd or 0.0 for one in ended for turn in one.turns)
    plans = sum(plan.reply.usage.cost_usd or 0.0 for one in ended for plan in one.plans)
    assert plans > 0
    assert store.runs.spent_usd("r1") == pytest.approx(turns + plans)
    store.close()
