"""A workflow's calls in vain in a store: kept beside the steps that other models did, and counted as none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.episode import Episode, Flag, Usage
from core.play.drive import drive
from core.play.policies import new_episode
from core.tasks.graders import grade_many
from storage.analysis.health import model_health
from storage.analysis.workflows import workflow_use
from storage.files.interchange import import_file
from storage.filters.episode_filter import EpisodeFilter
from storage.recorder import record
from storage.store import Store
from tests.builders.interchange import export_runs
from tests.builders.play import end
from tests.builders.pools import ScriptedPool, specs
from tests.builders.stores import begin_run, new_store
from tests.core.conduct.test_fail_over import PAID, without
from tests.core.conduct.test_session import MODELS, TASK, writes
from ui.web.turns.figures import usage_over_turns


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = new_store(tmp_path / "trinity.db")
    yield opened
    opened.close()


@pytest.fixture
def kept(store: Store) -> Episode:
    """Two rounds of two steps each, of whose models bob cannot be asked, recorded."""
    begin_run(store, "r1", "run", {})
    first = 'model_id = [0, 1]\nsubtasks = ["a", "b"]\naccess_list = [[], [0]]'
    again = 'model_id = [2, 1]\nsubtasks = ["c", "d"]\naccess_list = [[], [0]]'
    policy = writes(first, again, rounds=2)
    pool = ScriptedPool(specs(MODELS, "general"), without("bob", line=PAID))
    begun = new_episode("r1", 0, TASK, policy, turns=5, seed=1, argmax=False)
    ended = end(record(store, drive(begun, policy, pool, grade_many, served=True)))
    store.runs.finish("r1")
    return ended


def test_it_is_stored_exported_and_read_again(store: Store, kept: Episode, tmp_path: Path) -> None:
    assert store.episodes.get(kept.id) == kept
    summary = store.episodes.summary(kept.id)
    assert summary.cost_usd == pytest.approx(0.5), "what was paid in vain counts, once"
    assert "failed_over" in summary.flags
    file = tmp_path / "one.jsonl.gz"
    export_runs(store, ["r1"], file)
    other = new_store(tmp_path / "other.db")
    import_file(other, file)
    assert other.episodes.get(kept.id) == kept
    other.close()


def test_it_counts_as_no_step_and_against_its_model(store: Store, kept: Episode) -> None:
    use = workflow_use(store, EpisodeFilter())[kept.policy]
    assert use.lengths == {2: 2}
    assert {key: n for key, n in use.models.items() if n} == {(0, "ann"): 1, (0, "cid"): 1, (1, "cid"): 2}
    health = {one.model: one for one in model_health(store, EpisodeFilter())}
    assert (health["bob"].replaced, health["cid"].replaced) == (1, 0)


def test_what_a_later_rounds_plan_used_stands_with_its_first_step(store: Store, kept: Episode) -> None:
    assert [Flag.FAILED_OVER in one.flags for one in kept.turns] == [False, False, True, False, False]
    plans = [replace(one, reply=replace(one.reply, usage=Usage(7, 3, 0.0))) for one in kept.plans]
    figure = usage_over_turns(store.episodes.outline(kept.id), kept.models, "tokens", plans)
    assert figure is not None
    planner = next(one for one in figure.data if one.name == "planner")
    assert [*planner.y] == [10, 10, 10, 20, 20]
