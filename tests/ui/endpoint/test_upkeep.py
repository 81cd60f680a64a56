"""Requests in the store: what may go while the endpoint runs, what goes by itself, and what they are forked with."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from core.episode import Status
from core.play.private import NOT_KEPT
from storage.filters.episode_filter import EpisodeFilter
from storage.recorder import record
from storage.rows.summaries import RunKind, RunStatus
from storage.shelves.labels import Place
from storage.store import Store, open_store
from storage.upkeep.retention import What, compact, preview, prune
from tests.builders.play import births, events, tasks
from tests.builders.stores import empty_store, new_store
from tests.core.pool.faulty_server import HANG_UP, Answer, Request, fail
from tests.ui.endpoint.server import CHAT, Served, asking, served, team
from tests.ui.pages import command, opened, shown
from ui.endpoint.service import forget_old
from ui.endpoint.tiers import Endpoint
from ui.runs.forks.planning import pool_of

pytestmark = pytest.mark.integration
DAY_S = 86_400.0
ENDS = {"jsonl": "jsonl", "csv": "csv", "parquet": "parquet", "html": "zip"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = new_store(tmp_path / "trinity.db")
    yield opened
    opened.close()


def slow_for_one(request: Request) -> Answer:
    """A team that keeps one question waiting."""
    return (5.0, *HANG_UP) if "Wait!" in str(request.body) else team()(request)


def test_requests_that_were_played_can_go_while_the_endpoint_runs(tmp_path: Path) -> None:
    with served(tmp_path, slow_for_one) as one:
        over = one.ask().model_extra["trinity"]["episode"]
        waiting = threading.Thread(target=one.post, args=(CHAT, asking("Wait!")))
        waiting.start()
        run, until = one.service.engine.run, time.monotonic() + 10
        while len(one.store.episodes.of_run(run)) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        mine = EpisodeFilter(run=run)
        assert prune(one.store, "texts", mine).episodes == 1
        assert one.store.episodes.get(over).removed.keys() == {"texts"}
        found = prune(one.store, "episodes", mine)
        assert (found.episodes, found.retained) == (1, {"of runs that are not over": 1})
        assert [summary.status for summary in one.store.episodes.of_run(run)] == [Status.RUNNING]
        assert preview(one.store, "runs", mine).runs == ()
        assert one.store.endpoint.charged_usd() == 0.0
        one.service.close()
        waiting.join()


def recorded(store: Store, run: str, kind: RunKind, n: int, *, events_of_it: int | None = None) -> list[str]:
    """Ids of a run's episodes, of which so many events were recorded (None: all)."""
    store.runs.create(run, kind, {})
    list(islice(record(store, events(births(run, tasks(n)))), events_of_it))
    return [one.id for one in store.episodes.of_run(run)]


@pytest.mark.parametrize("what", ["texts", "episodes", "runs"])
def test_all_of_an_endpoint_that_broke_off_can_go(store: Store, what: What) -> None:
    of_run = recorded(store, "r1", "serve", 2, events_of_it=4)  # its process died in the middle of a request
    store.runs.finish("r1", RunStatus.INTERRUPTED)
    found = prune(store, what, EpisodeFilter(run="r1"))
    assert (found.retained, found.episodes) == ({}, len(of_run))
    assert len(store.episodes.of_run("r1")) == (len(of_run) if what == "texts" else 0)
    assert [one.id for one in store.runs.list()] == ([] if what == "runs" else ["r1"])


def test_a_batch_run_that_broke_off_is_kept_to_be_resumed(store: Store) -> None:
    recorded(store, "r1", "run", 1)
    store.runs.finish("r1", RunStatus.INTERRUPTED)
    assert preview(store, "episodes", EpisodeFilter(run="r1")).episodes == 0
    assert preview(store, "runs", EpisodeFilter(run="r1")).runs == ()


def test_what_the_configuration_keeps_for_some_days_goes_by_itself_and_what_is_labelled_stays(
    tmp_path: Path,
) -> None:
    now = [1_700_000_000.0]
    store = new_store(tmp_path / "trinity.db", lambda: now[0])
    first, *others = recorded(store, "r1", "serve", 3)
    [of_another_kind] = recorded(store, "r2", "run", 1)
    for run in ("r1", "r2"):
        store.runs.finish(run)
    store.labels.add(Place(first), "quality", "good", author="Ada")
    limits = Endpoint(keep_texts_days=10, keep_episodes_days=30)
    assert forget_old(store, Endpoint()) == forget_old(store, limits) == 0
    now[0] += 11 * DAY_S
    assert forget_old(store, limits) >= len(others)
    assert all("texts" in store.episodes.get(one).removed for one in others)
    assert store.episodes.get(first).removed == {}
    now[0] += 20 * DAY_S
    assert forget_old(store, limits) == len(others)
    assert [one.id for one in store.episodes.of_run("r1")] == [first]
    assert store.episodes.get(of_another_kind).removed == {}
    store.close()


def test_with_its_texts_a_request_loses_question_and_answer_and_can_still_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "the-secret-7d1f"
    with served(tmp_path, team(f"{secret}")) as one:
        answered = one.ask(f"Say {secret}!", metadata={"ticket": secret}).model_extra["trinity"]["episode"]
        kept = one.ask("Another?").model_extra["trinity"]["episode"]
        one.store.labels.add(Place(kept), "quality", "good", author="Ada")
        store, run = one.store, one.service.engine.run
        before = store.episodes.get(answered)
        store.runs.create("r9", "run", {})
        [again] = births("r9", [store.episodes.get(kept).task])
        list(record(store, events([again])))
        one.service.close()
        found = prune(store, "texts", EpisodeFilter(run=run))
        assert (found.episodes, found.retained) == (1, {"labelled": 1})
        assert preview(store, "texts", EpisodeFilter(run=run)).rows == 0
        after = store.episodes.get(answered)
        assert after.removed.keys() == {"texts"}
        assert (after.task.question, after.answer) == (NOT_KEPT, NOT_KEPT)
        assert [turn.decision.model for turn in after.turns] == [turn.decision.model for turn in before.turns]
        assert store.episodes.get(kept).task.question == "Another?"
        assert prune(store, "texts", EpisodeFilter(run=run), everything=True).episodes == 1
        assert store.episodes.get(again.id).task.question == "Another?", "another episode plays it too"
        compact(store)
        assert secret not in (tmp_path / "trinity.db").read_bytes().decode("latin-1")
        assert store.episodes.page(EpisodeFilter(run=run, q='answer == "(not kept)"')).items
        assert not store.episodes.page(EpisodeFilter(text=secret)).items
        monkeypatch.setenv("TRINITY_STORE", store.url)
        page = shown(opened("replay", ep=answered, t="1")).replace("\\", "")
        assert f"What was said was removed on {after.removed['texts']}" in page
        assert "**2** episodes" in shown(opened("episodes", run=run))
        for form in ENDS:
            out = tmp_path / f"out.{ENDS[form]}"
            assert command(["export", run, "--format", form, "--out", str(out)]) == 0
        empty_store(tmp_path / "other.db")
        monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "other.db"))
        assert command(["import", str(tmp_path / "out.jsonl")]) == 0
        with closing(open_store(tmp_path / "other.db")) as other:
            assert other.episodes.get(answered) == after


def test_a_running_endpoint_forgets_by_itself(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        old = new_store(tmp_path / "trinity.db", lambda: time.time() - 3 * DAY_S)
        recorded(old, "r0", "serve", 1)
        old.runs.finish("r0")
        old.close()
        one.service.endpoint = replace(one.service.endpoint, keep_episodes_days=2)
        kept = one.ask().model_extra["trinity"]["episode"]
        until = time.monotonic() + 10
        while one.store.episodes.of_run("r0") and time.monotonic() < until:
            time.sleep(0.02)
        assert one.store.episodes.of_run("r0") == []
        assert one.store.episodes.get(kept).turns


def test_what_a_server_repeats_of_a_request_in_its_error_is_not_kept(tmp_path: Path) -> None:
    secret = "the-secret-7d1f"
    with served(tmp_path) as one:
        for status in (400, 500):  # the model's own fault, and one of the infrastructure
            one.begin(fail(status, f"Cannot answer '{secret}'."))
            one.post(CHAT, asking(secret, store=False))
        ended = one.store.episodes.of_run(one.service.engine.run)
        assert len(ended) == 2
        assert Status.RUNNING not in {kept.status for kept in ended}
        one.service.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("trinity.db*"))
    assert secret.encode() not in stored


def test_a_request_is_forked_with_the_pool_that_served_it(one: Served) -> None:
    kept = one.store.episodes.get(one.ask().model_extra["trinity"]["episode"])
    assert pool_of(one.store, kept, "pocket") == one.service.pool_name
