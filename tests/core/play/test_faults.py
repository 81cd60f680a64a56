"""A fault of this program, put into every stage of one episode: that one is missing and says so, the others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pytest

from core.episode import (
    Ask,
    Decide,
    Decision,
    EndReason,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Grade,
    Replied,
    Reply,
    Role,
    Status,
    Task,
    Turn,
)
from core.errors import ConfigError, StoreError
from core.play import reading, roles, session
from core.play.drive import GradeMany, drive_many
from core.play.policies import CyclePolicy, Policy, single_policy
from core.pool.pool import Pool, WaveFlight
from core.tasks.graders import grade_many
from tests.builders import play
from tests.builders.pools import ScriptedPool, specs

MODELS = ("ann", "bob")
SPECS = specs(MODELS)
#: Marks the faulty episode, wherever it comes up.
BAD = "What is 2?"
MANY = [
    Episode(f"e{k}", "r", Task(f"t{k}", f"What is {k}?", "12", "number"), "p", MODELS, turn_budget=2, seed=3)
    for k in range(5)
]
WORKER = single_policy("ann", MODELS, (Role.WORKER,))


@dataclass
class Parts:
    """What a drive is made of."""

    policy: Policy = WORKER
    pool: Pool = ScriptedPool(SPECS, lambda ask: "answer 12")
    grade: GradeMany = grade_many
    options: dict[str, Any] | None = None


def is_bad(ask: Ask) -> bool:
    return any(BAD in message.content for message in ask.messages)


def decides(error: Exception) -> Parts:
    class Deciding(CyclePolicy):
        def decide(self, requests: Sequence[Decide]) -> list[Decision]:
            if any(request.transcript.question == BAD for request in requests):
                raise error
            return CyclePolicy.decide(self, requests)

    return Parts(Deciding(MODELS, ("ann",), (Role.WORKER,), "p"))


def begins() -> Parts:
    class Choosing(CyclePolicy):
        def policy_for(self, episode: Episode) -> Policy:
            if episode.task.question == BAD:
                raise KeyError(episode.id)
            return self

    return Parts(Choosing(MODELS, ("ann",), (Role.WORKER,), "p"))


def stops() -> Parts:
    def stop(so_far: Episode) -> EndReason | None:
        if so_far.task.question == BAD and so_far.turns:
            raise KeyError(so_far.id)
        return None

    return Parts(options={"stop": stop})


def agrees() -> Parts:
    def terms(so_far: Episode, ask: Ask) -> Ask:
        if is_bad(ask):
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return ask

    return Parts(options={"terms": terms})


def is_added() -> Parts:
    class Choosy(WaveFlight):
        def add(self, asks: Sequence[Ask]) -> None:
            if any(map(is_bad, asks)):
                raise ValueError("Out of range float values are not JSON compliant")
            super().add(asks)

    class Flying(ScriptedPool):
        def flight(self) -> Choosy:
            return Choosy(self)

    return Parts(pool=Flying(SPECS, lambda ask: "answer 12"))


def is_asked() -> Parts:
    """A pool that answers many asks as one batch fails at one of them, after the replies before it."""

    class Failing(ScriptedPool):
        def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
            for index, reply in ScriptedPool.ask(self, asks):
                if is_bad(asks[index]):
                    raise IndexError("list index out of range")
                yield index, reply

    return Parts(pool=Failing(SPECS, lambda ask: "answer 12"))


def is_streamed() -> Parts:
    class Failing(ScriptedPool):
        def stream(self, ask: Ask) -> Iterator[str | Reply]:
            for piece in ScriptedPool.stream(self, ask):
                if is_bad(ask):
                    raise IndexError("list index out of range")
                yield piece

    return Parts(pool=Failing(SPECS, lambda ask: "answer 12"), options={"stream": True})


def is_graded() -> Parts:
    def grade(grades: Sequence[Grade]) -> list[bool]:
        if any(one.task.question == BAD for one in grades):
            raise RecursionError("maximum recursion depth exceeded")
        return grade_many(grades)

    return Parts(grade=grade)


def is_graded_later() -> Parts:
    def grade(grades: Sequence[Grade]) -> list[Any]:
        verdicts: list[Future[bool]] = []
        for one in grades:
            verdict: Future[bool] = Future()
            if one.task.question == BAD:
                verdict.set_exception(OSError("no process could be begun"))
            else:
                verdict.set_result(True)
            verdicts.append(verdict)
        return verdicts

    return Parts(grade=grade)


STAGES: dict[str, Callable[[], Parts]] = {
    "beginning": begins, "deciding": lambda: decides(KeyError("e2")), "stopping": stops, "agreeing": agrees,
    "adding a call": is_added, "calling": is_asked, "streaming": is_streamed, "grading": is_graded,
    "grading later": is_graded_later,
}  # fmt: skip


def ends(parts: Parts) -> dict[str, Episode]:
    return play.ends(drive_many(MANY, parts.policy, parts.pool, parts.grade, **(parts.options or {})))


#: How all end where nothing fails.
WHOLE = ends(Parts())


def check(end: dict[str, Episode], log: pytest.LogCaptureFixture) -> None:
    """The bad one is missing and told of once, with its traceback; the others ended as they would have."""
    assert sorted(end) == [one.id for one in MANY]
    assert {name for name, one in end.items() if one.status is Status.MISSING} == {"e2"}
    assert {name: one for name, one in end.items() if name != "e2"} == {
        name: one for name, one in WHOLE.items() if name != "e2"
    }
    lost = end["e2"]
    assert (lost.reward, lost.end_reason) == (None, EndReason.ERROR)
    assert "This program failed" in (lost.error or "")
    [told] = [record for record in log.records if record.levelno >= logging.ERROR]
    assert told.exc_info


@pytest.mark.parametrize("stage", STAGES)
def test_a_fault_in_a_stage_ends_its_episode_alone(stage: str, caplog: pytest.LogCaptureFixture) -> None:
    check(ends(STAGES[stage]()), caplog)


@pytest.mark.parametrize("what", ["visible_text", "reading", "roles"])
def test_a_fault_while_a_call_is_built_or_a_reply_is_read(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts = Parts(pool=ScriptedPool(SPECS, lambda ask: f"answer 12{' (bad)' if is_bad(ask) else ''}"))
    if what == "visible_text":
        visible = session.visible_text

        def failing(reply: Reply) -> str:
            if "(bad)" in reply.text:
                raise TypeError("no text")
            return visible(reply)

        monkeypatch.setattr(session, what, failing)
    elif what == "reading":
        read = reading.read_reply

        def read_badly(*given: Any, **more: Any) -> Any:
            if "(bad)" in given[3]:
                raise RecursionError("a pattern")
            return read(*given, **more)

        monkeypatch.setattr(reading, "read_reply", read_badly)
    else:
        build = roles.messages_for

        def build_badly(dialect: Any, role: Any, situation: Any, **more: Any) -> Any:
            if situation.task.question == BAD:
                raise KeyError("system")
            return build(dialect, role, situation, **more)

        monkeypatch.setattr(roles, "messages_for", build_badly)
    check(ends(parts), caplog)


@pytest.mark.parametrize("kind", [EpisodeStarted, Replied, Turn, EpisodeFinished])
def test_what_cannot_be_recorded_is_thrown_in_and_ends_that_episode_alone(
    kind: type[Event], caplog: pytest.LogCaptureFixture
) -> None:
    events = drive_many(MANY, WORKER, Parts().pool, grade_many)
    end: dict[str, Episode] = {}
    thrown = False
    event = next(events, None)
    while event is not None:
        name = event.episode.id if isinstance(event, EpisodeStarted | EpisodeFinished) else event.episode_id
        if isinstance(event, kind) and name == "e2" and not thrown:
            thrown = True
            event = events.throw(OverflowError("int too big"))  # type: ignore[attr-defined]
            continue
        if isinstance(event, EpisodeFinished):
            end[name] = event.episode
        event = next(events, None)
    assert thrown
    check(end, caplog)


def test_faults_of_one_kind_are_told_each_and_traced_once(caplog: pytest.LogCaptureFixture) -> None:
    def terms(so_far: Episode, ask: Ask) -> Ask:
        raise KeyError(so_far.id)

    end = ends(Parts(options={"terms": terms}))
    assert {one.status for one in end.values()} == {Status.MISSING}
    told = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [bool(record.exc_info) for record in told] == [True, False, False, False, False]
    assert all(one.id in record.getMessage() for one, record in zip(MANY, told, strict=True))


@pytest.mark.parametrize("error", [ConfigError("No such model."), StoreError("The disk is full.")])
def test_an_error_that_somebody_has_to_mend_ends_all(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        ends(decides(error))
    alone = Parts(decides(error).policy, options={"stops": (StoreError,)})
    if isinstance(error, StoreError):
        with pytest.raises(StoreError):
            ends(alone)
    else:  # unless those who are played have nothing to do with one another
        end = ends(alone)
        assert {name: one.error for name, one in end.items() if one.error} == {"e2": "No such model."}


def test_calls_under_way_of_a_workflow_that_failed_are_given_up() -> None:
    lost = replace(MANY[2], id="e9")
    cancelled: list[int] = []

    class Watched(WaveFlight):
        def cancel(self, number: int) -> None:
            cancelled.append(number)
            super().cancel(number)

    class Flying(ScriptedPool):
        def flight(self) -> Watched:
            return Watched(self)

    pool = Flying(SPECS, lambda ask: "answer 12")
    events = drive_many([lost], WORKER, pool, grade_many, stops=(StoreError,))
    begun = next(event for event in events if not isinstance(event, EpisodeStarted))
    told = events.throw(OSError("unwritable"))  # type: ignore[attr-defined]
    assert begun.episode_id == "e9"  # type: ignore[union-attr]
    assert isinstance(told, EpisodeFinished)
    assert (list(events), pool.asks) == ([], [])
