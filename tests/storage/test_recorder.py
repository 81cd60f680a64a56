"""What is played is stored turn by turn, comes back equal, and survives whatever stops it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import Engine, event

from core.episode import (
    Ask,
    Delta,
    EndReason,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Failure,
    Replied,
    Reply,
    Role,
    Status,
    Turn,
    TurnStarted,
    Usage,
)
from core.errors import StoreError
from core.play.drive import drive, drive_many
from core.play.policies import Policy, single_policy
from core.pool.pool import Pool
from storage import recorder
from storage.recorder import Recorder, record
from storage.rows.summaries import RunStatus
from storage.store import Store, open_store
from tests.builders.play import MODELS, HashPolicy, answer, births, ends, events, grade, pool, tasks
from tests.builders.pools import ScriptedPool, specs


@pytest.fixture
def store(fresh: Store) -> Store:
    fresh.runs.create("r1", "run", {})
    return fresh


def test_episodes_come_back_equal(store: Store) -> None:
    played = ends(record(store, events(births("r1", tasks(12)))))
    assert len(played) == 12
    for id_, whole in played.items():
        assert store.episodes.get(id_) == whole
    assert store.episodes.tasks("r1") == tasks(12)
    assert store.episodes.unfinished("r1") == []
    line = store.episodes.summary(next(iter(played)))
    whole = played[line.id]
    assert line.strip.count("·") == line.turns == len(whole.turns)
    assert line.tokens_in == sum(turn.reply.usage.tokens_in for turn in whole.turns)
    assert (line.correct, line.end_reason, line.answer) == (whole.correct, whole.end_reason, whole.answer)


def test_an_episode_begins_with_the_row_of_its_task_and_the_generation_of_its_checkpoint(
    store: Store,
) -> None:
    store.checkpoints.add("c1", {"models": list(MODELS)}, b"", run_id="r1", generation=7)
    first, other = births("r1", tasks(2))
    again = replace(first, id="again", policy="c1")
    list(record(store, iter([EpisodeStarted(one) for one in (first, other, again)])))
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM task").scalar() == 2
    assert [store.episodes.get(one.id).task for one in (first, other, again)] == [
        first.task,
        other.task,
        first.task,
    ]
    begun = {one.id: (one.checkpoint_id, one.generation) for one in store.episodes.of_run("r1")}
    assert begun == {first.id: (None, None), other.id: (None, None), "again": ("c1", 7)}


def test_every_event_is_committed_before_it_is_passed_on(store: Store) -> None:
    reader = open_store(store.address)
    for happened in record(store, events(births("r1", tasks(3)))):
        match happened:
            case TurnStarted():
                row = reader.episodes.outline(happened.episode_id)[happened.index]
                assert (row.stage, row.model) == ("asked", happened.decision.model)
                assert reader.episodes.text(happened.episode_id, happened.index).messages == happened.messages
            case Replied():
                text = reader.episodes.text(happened.episode_id, happened.index)
                assert (text.reply, text.partial) == (happened.reply.text, False)
            case Turn():
                assert reader.episodes.get(happened.episode_id).turns[-1] == happened
            case EpisodeFinished():
                assert reader.episodes.get(happened.episode.id) == happened.episode
    reader.close()


def test_a_growing_reply_can_be_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "PARTIAL_S", 0.0)
    (born,) = births("r1", tasks(1))
    grown = ""
    for happened in record(store, drive(born, HashPolicy(), pool(), grade, stream=True)):
        if isinstance(happened, TurnStarted):
            grown = ""
        if isinstance(happened, Delta):
            grown += happened.text
            text = store.episodes.text(born.id, happened.index)
            assert (text.reply, text.partial) == (grown, True)
    assert store.episodes.summary(born.id).status is Status.FINISHED
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM text WHERE kind = 'partial'").scalar() == 0


@pytest.mark.parametrize("stop_after", range(1, 60, 7))
def test_a_run_goes_on_as_it_would_have(store: Store, stop_after: int) -> None:
    """Stopped after any event and resumed, every episode is the one an undisturbed run gives."""
    born = births("r1", tasks(4))
    whole = ends(events(born))
    happened = record(store, events(born))
    for _ in range(stop_after):
        next(happened, None)
    happened.close()  # type: ignore[attr-defined]  # a generator
    store.runs.finish("r1")
    left = store.episodes.unfinished("r1")
    started = {one.id for one in store.episodes.of_run("r1")}
    left += [one for one in born if one.id not in started]
    kept = store.episodes.stored_replies("r1")
    asked = pool()
    list(record(store, drive_many(left, HashPolicy(), asked, grade, stored_replies=kept)))
    assert {one: store.episodes.get(one) for one in whole} == whole
    paid = sum(bool(turn.messages) for one in whole.values() for turn in one.turns)
    before = sum(bool(turn.messages) for one in left for turn in one.turns) + len(kept)
    done = sum(bool(t.messages) for one in set(whole) - {e.id for e in left} for t in whole[one].turns)
    assert len(asked.asks) == paid - before - done, "no stored reply is asked for again"


def test_a_missing_episode_keeps_its_turns_and_can_be_resumed(store: Store) -> None:
    calls: list[Ask] = []

    def flaky(ask: Ask) -> Reply | Failure:
        calls.append(ask)
        return Failure("infrastructure", "The line is dead.") if len(calls) == 3 else answer(ask)

    (born,) = births("r1", tasks(1, start=4))
    played = ends(record(store, drive(born, HashPolicy(), ScriptedPool(specs(MODELS), flaky), grade)))
    assert played[born.id].status is Status.MISSING
    assert store.episodes.get(born.id) == played[born.id]
    assert store.episodes.summary(born.id).correct is None
    list(record(store, drive_many(store.episodes.unfinished("r1"), HashPolicy(), pool(), grade)))
    resumed = store.episodes.get(born.id)
    assert resumed == ends(events([born]))[born.id]


def test_a_cancelled_episode_keeps_what_it_has(store: Store) -> None:
    def stop(so_far: Episode) -> EndReason | None:
        return EndReason.CANCELLED if len(so_far.turns) == 2 else None

    born = births("r1", tasks(5))
    played = ends(record(store, drive_many(born, HashPolicy(), pool(), grade, stop=stop)))
    for id_, whole in played.items():
        assert store.episodes.get(id_) == whole
    assert {one.end_reason for one in store.episodes.of_run("r1")} >= {EndReason.CANCELLED}


def test_finished_episodes_never_change(store: Store) -> None:
    born = births("r1", tasks(2))
    played = ends(record(store, events(born)))
    with pytest.raises(StoreError, match="finished and never changes"):
        list(record(store, events(born)))
    ended = replace(played[born[0].id], answer="other")
    with pytest.raises(StoreError, match="finished and never changes"):
        list(record(store, iter([EpisodeFinished(ended)])))
    assert store.episodes.get(born[0].id) == played[born[0].id]


def test_hostile_text_is_kept_as_text(store: Store) -> None:
    hostile = "answer '); DROP TABLE turn; -- \x00 \ud800 <img src=x> :green-badge[ACCEPT] \u202e"
    asked = ScriptedPool(specs(MODELS), lambda ask: hostile)
    list(record(store, drive_many(births("r1", tasks(2)), HashPolicy(), asked, grade)))
    first = store.episodes.of_run("r1")[0]
    replies = [turn.reply.text for turn in store.episodes.get(first.id).turns if turn.messages]
    assert set(replies) == {hostile.replace("\x00", "�").replace("\ud800", "�")}


def test_a_full_disk_stops_the_spending(store: Store) -> None:
    asked = pool()
    happened = record(store, drive_many(births("r1", tasks(200)), HashPolicy(), asked, grade))
    for _ in range(60):
        next(happened)

    def full(connection: object, record: object, proxy: object) -> None:
        connection.execute("PRAGMA max_page_count=1")  # type: ignore[attr-defined]

    event.listen(store.engine, "checkout", full)
    with pytest.raises(StoreError, match="disk is full"):
        for _ in happened:
            pass
    spent = len(asked.asks)
    assert next(happened, None) is None
    assert len(asked.asks) == spent, "nothing is asked once nothing can be stored"
    event.remove(store.engine, "checkout", full)
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


@pytest.mark.parametrize(("may_cost", "unknown"), [(True, "FULL"), (False, "NORMAL")])
def test_paid_replies_survive_a_power_cut(store: Store, may_cost: bool, unknown: str) -> None:
    levels = ["NORMAL"]  # as a connection is opened

    @event.listens_for(store.engine, "before_cursor_execute")
    def note(_c: Engine, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("PRAGMA synchronous"):
            levels.append(statement.split("=")[1])

    asked = ScriptedPool(
        specs(MODELS), [Reply("answer 1", usage=Usage(1, 1, cost)) for cost in (0.0, 0.5, None)]
    )
    worker = single_policy("ada", MODELS, (Role.WORKER,))
    recorder, replied = Recorder(store, may_cost=may_cost), []
    for happened in drive_many(births("r1", tasks(1), budget=3), worker, asked, grade):
        recorder.add(happened)
        assert recorder.commit() == [(happened, None)]
        if isinstance(happened, Replied):
            replied.append(levels[-1])
    assert replied == ["NORMAL", "FULL", unknown], "a reply of unknown price may have cost money"


def test_nothing_is_stored_for_a_run_that_another_process_took_over(store: Store) -> None:
    store.runs.create("r2", "run", {}, owner="a")
    asked = pool()
    born = births("r2", tasks(20))
    happened = record(store, drive_many(born, HashPolicy(), asked, grade), owner="a")
    for _ in range(30):
        next(happened)
    assert store.runs.claim("r2", "b", dead="a")
    spent, held = len(asked.asks), store.episodes.of_run("r2")
    with pytest.raises(StoreError, match="Process b has taken run r2 over"):
        list(happened)
    assert (len(asked.asks), store.episodes.of_run("r2")) == (spent, held)
    happened = record(
        store, drive_many(store.episodes.unfinished("r2"), HashPolicy(), asked, grade), owner="b"
    )
    next(happened)
    store.runs.finish("r2", RunStatus.CANCELLED, owner="b")
    store.runs.delete("r2")
    with pytest.raises(StoreError, match="holds no run r2 any more"):
        list(happened)


@pytest.mark.integration
def test_a_process_that_takes_long_says_that_it_is_alive(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "BEAT_S", 0.02)
    born = store.runs.get("r1").heartbeat
    with recorder.heartbeats(store, "r1"):
        time.sleep(0.15)  # a slow model
    beat = store.runs.get("r1").heartbeat
    assert born is not None
    assert beat is not None
    assert beat > born + 0.05


def one_by_one(store: Store, episodes: list[Episode], policy: Policy, some: Pool) -> Iterator[Event]:
    """Episodes side by side, each event stored alone."""
    return record(store, drive_many(episodes, policy, some, grade))


def together(store: Store, episodes: list[Episode], policy: Policy, some: Pool) -> Iterator[Event]:
    """Episodes side by side, whose events are stored together."""
    kept, recorder = list[Event](), Recorder(store)
    for one in drive_many(episodes, policy, some, grade, settle=partial(recorder.settle, kept.append)):
        recorder.add(one)
    yield from kept


def test_events_that_are_stored_together_come_back_equal(store: Store) -> None:
    commits = list[object]()
    event.listen(store.engine, "commit", commits.append)
    played = ends(together(store, births("r1", tasks(12)), HashPolicy(), pool()))
    assert len(played) == 12
    for id_, whole in played.items():
        assert store.episodes.get(id_) == whole
    turns = max(len(whole.turns) for whole in played.values())
    assert len(commits) <= 2 * turns + 2


@pytest.mark.parametrize("way", [one_by_one, together])
@pytest.mark.parametrize("what", ["seed", "tokens"])
def test_what_no_database_can_hold_ends_its_episode_alone(
    store: Store, what: str, way: Callable[..., Iterator[Event]]
) -> None:
    """A number that is too large, in an episode before it begins or in a reply."""
    born = births("r1", tasks(3))
    if what == "seed":
        born[1] = replace(born[1], seed=2**70)

    def reply(ask: Ask) -> Reply:
        large = what == "tokens" and born[1].task.question in ask.messages[-1].content
        return Reply("answer 12", usage=Usage(2**70 if large else 1, 1))

    policy = single_policy(MODELS[0], MODELS, (Role.WORKER,))
    played = ends(way(store, born, policy, ScriptedPool(specs(MODELS), reply)))
    assert [played[one.id].status for one in born] == [Status.FINISHED, Status.MISSING, Status.FINISHED]
    assert "This program failed" in (played[born[1].id].error or "")
    for one in (born[0], born[2]):
        assert store.episodes.get(one.id) == played[one.id]
    kept = {line.id: line.status for line in store.episodes.of_run("r1")}
    assert kept.get(born[1].id) == (None if what == "seed" else Status.MISSING)


def test_money_for_tries_that_came_to_nothing_is_counted_and_not_forgotten_when_it_is_asked_anew(
    store: Store,
) -> None:
    lost = Reply("", finish_reason="error", usage=Usage(0, 0, 3.0, unread_usd=3.0))
    lost = replace(lost, error=Failure("infrastructure", "It cannot be read."))
    uncounted = Reply("answer 1", usage=Usage(0, 0, None, at_most_usd=0.5))
    said = iter([lost, lost, uncounted, *[Reply("answer 1", usage=Usage(1, 1, 0.25))] * 9])
    scripted = ScriptedPool(specs(MODELS), lambda _: next(said))
    policy = single_policy(MODELS[0], MODELS)
    begun = births("r1", tasks(1))
    for spent in (3.0, 6.0):
        happened = record(
            store,
            drive_many(begun, policy, scripted, grade, stored_replies=store.episodes.stored_replies("r1")),
        )
        [ended] = ends(happened).values()
        assert ended.status is Status.MISSING
        assert store.runs.spent_usd("r1") == store.runs.unread_usd("r1") == spent
        begun = store.episodes.unfinished("r1")
    happened = record(
        store, drive_many(begun, policy, scripted, grade, stored_replies=store.episodes.stored_replies("r1"))
    )
    [ended] = ends(happened).values()
    assert ended.status is Status.FINISHED
    assert store.runs.unread_usd("r1") == 6.0
    later = 0.25 * (len(ended.turns) - 1)
    assert store.runs.spent_usd("r1") == pytest.approx(6.5 + later), "an unknown cost counts as its bound"
    assert store.episodes.get(ended.id).turns[0].reply.usage == Usage(0, 0, None, 0, 6.5, 6.0)
