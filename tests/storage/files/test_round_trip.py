"""A file carries runs from store to store unchanged, in batches; it is read and written as ever."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from core.changes import CHANGE_KINDS, Change, Fork
from core.episode import Episode, Message, Status
from core.play.forking import prefix_digest
from storage.files import interchange, validation
from storage.files.interchange import import_file, import_runs
from storage.files.jsonl import EpisodeLine, dump_line, parse_line
from storage.recorder import record
from storage.rows.engine import writing
from storage.rows.full_episodes import TimedEpisode, insert_episodes
from storage.store import Store
from tests.builders.interchange import GOLDEN, GOLDEN_FORKS, contents, edited, export_runs
from tests.builders.play import births, ends, events, tasks
from tests.builders.stores import new_store


@pytest.mark.parametrize(("golden", "runs"), [(GOLDEN, ("r0", "r1")), (GOLDEN_FORKS, ("r1", "r2"))])
def test_a_golden_file_reads_and_writes_as_ever(
    other: Store, tmp_path: Path, golden: Path, runs: tuple[str, ...]
) -> None:
    """Change the format only with a new version number."""
    import_file(other, golden)
    assert {run.id for run in other.runs.list()} == {*runs}
    assert other.health().episodes == 6
    export_runs(other, runs, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == golden.read_bytes()
    assert import_file(other, golden).added == {}, "a file that was read before is known again"


def test_what_calls_without_a_reply_could_cost_is_carried(store: Store, other: Store, tmp_path: Path) -> None:
    store.runs.create("lost", "run", {}, owner="a")
    store.runs.note_unanswered("lost", 0.5, 0.25, owner="a")
    store.runs.mark_interrupted(lambda owner: True)
    export_runs(store, ["lost"], tmp_path / "lost.jsonl")
    import_file(other, tmp_path / "lost.jsonl")
    assert other.runs.spent_usd("lost") == store.runs.spent_usd("lost") == 0.75


def test_a_fork_an_error_and_a_decider_are_read_into_fields(other: Store) -> None:
    import_file(other, GOLDEN_FORKS)
    (parent, lost, steered), forks = (
        [other.episodes.get(one.id) for one in other.episodes.of_run(run)] for run in ("r1", "r2")
    )
    assert (parent.generation, parent.meta, parent.fork) == (7, {"note": "of a stranger"}, None)
    assert (lost.status, lost.error) == (Status.MISSING, "no route to host")
    assert (steered.deciders, steered.removed) == ({1: "random"}, {"states": "2026-11-05"})
    base = Fork(parent.id, 1, None, 0, prefix_digest(parent, 1), "0123456789abcdef")
    assert [one.fork for one in forks] == [
        base,
        replace(base, change=Change("reply", "answer 1"), number=1),
        replace(base, parent=steered.id, change=Change("model", "bo"), number=2),
    ]
    assert [one.left_out for one in forks] == [(), ("m2",), ("m2",)]
    assert [one.deciders for one in forks] == [{}, {}, {0: "hash", 1: "random"}]
    assert not any(one.meta for one in (lost, steered, *forks))


def test_name_purpose_and_pool_of_a_run_travel_with_it(other: Store, tmp_path: Path) -> None:
    other.runs.create("r1", "evolve", {}, name="mine")
    other.runs.create("r2", "run", {}, purpose="sample")
    other.runs.note_pool("r1", "3fa9c2d155aa0011")
    for run in ("r1", "r2"):
        other.runs.finish(run)
    export_runs(other, ["r1", "r2"], tmp_path / "again.jsonl")
    there = new_store(tmp_path / "there.db")
    import_file(there, tmp_path / "again.jsonl")
    assert [(run.name, run.purpose) for run in there.runs.list()] == [(None, "sample"), ("mine", "learning")]
    assert (there.runs.noted_pool("r1"), there.runs.noted_pool("r2")) == ("3fa9c2d155aa0011", "")
    there.close()


@pytest.mark.parametrize("name", ["runs.jsonl", "runs.jsonl.gz"])
def test_runs_travel_unchanged(store: Store, other: Store, tmp_path: Path, name: str) -> None:
    counts = export_runs(store, ["r0", "r1"], tmp_path / name)
    assert counts == {"run": 2, "checkpoint": 1, "update": 1, "optimiser": 1, "episode": 6}
    report = import_file(other, tmp_path / name)
    assert (report.added, report.unchanged, report.runs) == (counts, 0, ("r0", "r1"))
    assert contents(other) == contents(store)
    export_runs(other, ["r0", "r1"], tmp_path / f"again-{name}")
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()


def test_importing_twice_changes_nothing(store: Store, other: Store, tmp_path: Path) -> None:
    export_runs(store, ["r0", "r1"], tmp_path / "runs.jsonl")
    for target in (store, other):
        import_runs(other, tmp_path)
        before = contents(target)
        (report,) = import_runs(target, tmp_path)
        assert (report.added, report.unchanged) == ({}, 11)
        assert "nothing new" in str(report)
        assert contents(target) == before


def test_a_deleted_episode_comes_back(store: Store, tmp_path: Path) -> None:
    export_runs(store, ["r1"], tmp_path / "runs.jsonl")
    before = contents(store)
    store.episodes.delete([store.episodes.of_run("r1")[2].id])
    assert import_file(store, tmp_path / "runs.jsonl").added == {"episode": 1}
    assert contents(store) == before


def test_a_run_brings_the_checkpoints_it_played(store: Store, other: Store, tmp_path: Path) -> None:
    export_runs(store, ["r1"], tmp_path / "runs.jsonl")
    import_file(other, tmp_path / "runs.jsonl")
    (held,) = other.checkpoints.list()
    assert held.run_id is None
    assert other.episodes.page().items[-1].checkpoint_id == held.id
    export_runs(store, ["r0"], tmp_path / "evolution.jsonl")
    import_file(other, tmp_path / "evolution.jsonl")
    assert other.runs.get("r0").generations == 1
    assert [one.id for one in other.checkpoints.list("r0")] == [held.id], "its run is known now"
    export_runs(other, ["r0"], tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "evolution.jsonl").read_bytes()


def test_what_was_running_is_exported_as_interrupted(store: Store, other: Store, tmp_path: Path) -> None:
    store.runs.create("r2", "live", {})
    happened = record(store, events(births("r2", tasks(2, start=7))))
    for _ in range(9):
        next(happened)
    export_runs(store, ["r2"], tmp_path / "runs.jsonl")
    happened.close()  # type: ignore[attr-defined]  # a generator
    import_file(other, tmp_path / "runs.jsonl")
    assert other.runs.get("r2").status == "interrupted"
    assert {one.status for one in other.episodes.of_run("r2")} == {Status.INTERRUPTED}


def test_an_import_asks_the_database_by_batches_and_not_by_episodes(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_runs(store, ["r1"], tmp_path / "runs.jsonl")
    asked: list[str] = []
    event.listen(other.engine, "before_cursor_execute", lambda *called: asked.append(called[2]))
    import_file(other, tmp_path / "runs.jsonl")
    assert sum("INSERT INTO episode" in one for one in asked) == 1, "six episodes, one statement"
    assert sum("FROM task" in one or "FROM episode" in one for one in asked) <= 4
    monkeypatch.setattr(interchange, "BATCH_LINES", 2)
    other.episodes.delete([one.id for one in store.episodes.of_run("r1")])
    import_file(other, tmp_path / "runs.jsonl")
    assert contents(other)["episodes"] == contents(store)["episodes"], "in three batches, nothing is lost"


def test_an_episode_that_is_twice_in_a_file_is_taken_once(other: Store, tmp_path: Path) -> None:
    (tmp_path / "twice.jsonl").write_bytes(edited(lambda lines: [*lines, lines[-1]]))
    report = import_file(other, tmp_path / "twice.jsonl")
    assert (report.added["episode"], report.unchanged) == (6, 1)


PLAYED = [*ends(events(births("r1", tasks(6)))).values()]
TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=60)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    """A played episode with arbitrary texts, numbers and flags in it."""
    whole = draw(st.sampled_from(PLAYED))
    turns = []
    for turn in whole.turns:
        state = draw(st.lists(st.floats(-60_000, 60_000, width=16), max_size=16))
        decision = replace(
            turn.decision,
            model_logits=tuple(draw(st.lists(NUMBERS, min_size=3, max_size=3))),
            hidden_state=struct.pack(f"<{len(state)}e", *state),
            model_mask=tuple(draw(st.lists(st.booleans(), min_size=3, max_size=3).filter(any))),
            recipe=draw(st.sampled_from(["", "cuda/bfloat16/sdpa"])),
        )
        usage = replace(turn.reply.usage, cost_usd=draw(st.none() | st.floats(0, 1e6)))
        reply = replace(turn.reply, text=draw(TEXTS), reasoning=draw(TEXTS), usage=usage)
        answer, correct = draw(st.none() | TEXTS), draw(st.none() | st.booleans())
        turns.append(
            replace(turn, decision=decision, reply=reply, answer_after=answer, correct_after=correct)
        )
    beside = st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=2).map(json.dumps)
    message = st.builds(Message, st.sampled_from(["user", "tool"]), TEXTS, st.just("") | beside)
    conversation = tuple(draw(st.lists(message, max_size=3)))
    turns = [replace(turn, messages=(*turn.messages, *conversation)) for turn in turns]
    task = replace(whole.task, question=draw(TEXTS), id=draw(TEXTS), conversation=conversation)
    change = draw(st.none() | st.builds(Change, st.sampled_from(CHANGE_KINDS), TEXTS))
    fork = Fork(
        "e0", draw(st.integers(0, 4)), change, draw(st.none() | st.integers(-1, 63)), draw(TEXTS), draw(TEXTS)
    )
    return replace(
        whole,
        task=task,
        turns=tuple(turns),
        generation=draw(st.none() | st.integers(0, 99)),
        left_out=tuple(draw(st.lists(TEXTS, max_size=2))),
        deciders=dict(sorted(draw(st.dictionaries(st.integers(0, 9), TEXTS, max_size=2)).items())),
        fork=draw(st.sampled_from([None, fork, Fork("e0", 1)])),
        error=draw(st.none() | TEXTS),
        removed=draw(st.dictionaries(st.sampled_from(["states", "texts"]), TEXTS, max_size=2)),
        meta=draw(st.dictionaries(TEXTS, TEXTS, max_size=2)),
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=episodes())
def test_any_episode_survives_line_and_store(other: Store, whole: Episode) -> None:
    line = EpisodeLine(
        started=1.5,
        finished=None,
        turn_started=tuple(2.0 + turn.index for turn in whole.turns),
        episode=whole,
    )
    assert (found := parse_line(dump_line(line))) == line
    assert isinstance(found, EpisodeLine)
    validation.check_line(found)
    if not other.runs.list():
        other.runs.create("r1", "run", {})
    other.episodes.delete([whole.id])
    with writing(other.engine) as connection:
        insert_episodes(
            connection, [TimedEpisode(line.episode, line.started, line.finished, line.turn_started)]
        )
    assert other.episodes.get(whole.id) == whole
