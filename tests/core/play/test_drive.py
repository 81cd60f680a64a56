"""Drivers: the same episode alone, in a crowd, streamed, stopped and resumed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.draws import draw_index, uniform
from core.episode import (
    Ask,
    Decide,
    Decision,
    Delta,
    EndReason,
    Episode,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    Failure,
    Grade,
    Message,
    Plan,
    Protocol,
    Replied,
    Reply,
    Role,
    Status,
    Task,
    Turn,
    TurnStarted,
)
from core.errors import BudgetError
from core.play.drive import drive, drive_many
from core.play.policies import RandomPolicy, single_policy
from core.tasks.graders import grade_many
from tests.builders.play import ends
from tests.builders.pools import Line, ScriptedPool, specs

MODELS = ("ann", "bob", "cid")
SPECS = specs(MODELS)


def chatter(ask: Ask) -> Line:
    """A pool with a mind of its own: every reply is fixed by the Ask alone, as a real seeded model's is."""
    prompt = ask.messages[-1].content
    u = uniform(f"{ask.model}/{prompt}/{ask.seed}/{ask.sample}", 2)
    match ask.role:
        case Role.THINKER:
            return f"plan {draw_index([1, 1, 1], u[0])}"
        case Role.WORKER:
            return ["answer 12", "answer 11", "hm"][draw_index([2, 2, 1], u[0])]
        case Role.VERIFIER:
            return ["so 12 ACCEPT", "so 12 REVISE", "ACCEPT REVISE"][draw_index([2, 2, 1], u[0])]


def pool() -> ScriptedPool:
    return ScriptedPool(SPECS, chatter)


def episodes(n: int, seed: int = 3, protocol: Protocol = Protocol.PAPER) -> list[Episode]:
    return [
        Episode(
            f"e{k:04d}",
            "r",
            Task(f"t{k}", f"What is {k}?", "12", "number"),
            "random",
            MODELS,
            protocol,
            5,
            seed,
        )
        for k in range(n)
    ]


def crowd(many: Sequence[Episode], **more: object) -> dict[str, Episode]:
    return ends(drive_many(many, RandomPolicy(MODELS), pool(), grade_many, **more))  # type: ignore[arg-type]


WORKER = single_policy("ann", MODELS, (Role.WORKER,))


def alone(**more: object) -> Episode:
    """The end of one episode, of a worker unless `policy` is given, over a pool of chatter unless `pool` is."""
    policy, asked = more.pop("policy", WORKER), more.pop("pool", None) or pool()
    events = drive(episodes(1)[0], policy, asked, grade_many, **more)  # type: ignore[arg-type]
    return ends(events)["e0000"]


class Counting(RandomPolicy):
    """Random choice that remembers how many requests came at once."""

    calls: list[int] = []

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        self.calls.append(len(requests))
        return RandomPolicy(MODELS).decide(requests)


class TestCrowd:
    @pytest.mark.parametrize("protocol", list(Protocol))
    def test_an_episode_does_not_depend_on_its_company(self, protocol: Protocol) -> None:
        many = episodes(60, protocol=protocol)
        together = crowd(many)
        assert together == crowd(many[::-1])
        assert together == {k: v for part in (many[:7], many[7:]) for k, v in crowd(part).items()}
        for one in many[:10]:
            alone = ends(drive(one, RandomPolicy(MODELS), pool(), grade_many))
            assert alone == {one.id: together[one.id]}

    def test_decisions_calls_and_grades_go_in_waves(self) -> None:
        Counting.calls.clear()
        graded: list[int] = []

        def grade(grades: Sequence[Grade]) -> list[bool]:
            graded.append(len(grades))
            return grade_many(grades)

        many = episodes(200)
        end = ends(drive_many(many, Counting(MODELS), pool(), grade))
        assert Counting.calls[0] == 200
        assert len(Counting.calls) <= 5
        assert len(graded) <= 5
        assert sum(Counting.calls) == sum(len(one.turns) for one in end.values())

    def test_a_verdict_that_takes_long_holds_up_its_own_episodes_only(self) -> None:
        many, late = episodes(12), {f"t{n}": Future[bool | Failure]() for n in (0, 1)}

        def grade(grades: Sequence[Grade]) -> Sequence[bool | Failure | Future[bool | Failure]]:
            return [late.get(one.task.id) or one.answer == "12" for one in grades]

        order = []
        for event in drive_many(many, single_policy("ann", MODELS), pool(), grade):
            if isinstance(event, EpisodeFinished):
                order.append(event.episode)
                if len(order) == 10:
                    late["t1"].set_result(False)
                    late["t0"].set_result(Failure("infrastructure", "Nobody can tell."))
        assert [one.id for one in order[10:]] == ["e0000", "e0001"]
        assert (order[10].status, order[10].error) == (Status.MISSING, "Nobody can tell.")
        assert (order[11].status, order[11].reward) == (Status.FINISHED, 0.0)
        assert {one.id: one for one in order[:10]} == {
            name: one
            for name, one in ends(drive_many(many, single_policy("ann", MODELS), pool(), grade_many)).items()
            if one.task.id not in late
        }

    def test_events_of_an_episode_come_in_order(self) -> None:
        seen: dict[str, list[Event]] = defaultdict(list)
        for event in drive_many(episodes(30), RandomPolicy(MODELS), pool(), grade_many):
            ours = (
                event.episode.id if isinstance(event, EpisodeStarted | EpisodeFinished) else event.episode_id
            )
            seen[ours].append(event)
        for events in seen.values():
            assert isinstance(events[0], EpisodeStarted)
            assert isinstance(events[-1], EpisodeFinished)
            inner = [
                (type(event), event.index)
                for event in events[1:-1]
                if not isinstance(event, EpisodeStarted | EpisodeFinished | Plan)
            ]
            turns = len(events[-1].episode.turns)
            assert inner == [(kind, k) for k in range(turns) for kind in (TurnStarted, Replied, Turn)]

    def test_a_thousand_at_once_all_come_to_an_end(self) -> None:
        end = crowd(episodes(1_000))
        assert len(end) == 1_000
        assert crowd([]) == {}
        assert set(Counter(one.end_reason for one in end.values())) == {EndReason.ACCEPTED, EndReason.BUDGET}

    def test_a_reply_is_reported_before_the_next_one_is_waited_for(self) -> None:
        served: list[int] = []

        class Slow(ScriptedPool):
            def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
                for index, reply in ScriptedPool.ask(self, asks):
                    served.append(index)
                    yield index, reply

        events = drive_many(episodes(5), single_policy("ann", MODELS), Slow(SPECS, chatter), grade_many)
        for event in events:
            if isinstance(event, Replied):
                assert len(served) == 1
                break

    def test_one_lost_call_is_missing_and_the_others_go_on(self) -> None:
        def flaky(ask: Ask) -> Line:
            lost = "What is 3?" in ask.messages[-1].content
            return Failure("infrastructure", "connection refused") if lost else chatter(ask)

        end = ends(
            drive_many(episodes(8), single_policy("ann", MODELS), ScriptedPool(SPECS, flaky), grade_many)
        )
        assert {name for name, one in end.items() if one.status is Status.MISSING} == {"e0003"}
        assert end["e0003"].reward is None

    def test_a_pool_that_falls_silent_is_an_infrastructure_failure(self) -> None:
        class Silent(ScriptedPool):
            def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
                yield from list(ScriptedPool.ask(self, asks))[:-1]

        end = ends(drive_many(episodes(3), single_policy("ann", MODELS), Silent(SPECS, chatter), grade_many))
        assert [one.status for one in end.values()].count(Status.MISSING) >= 1


class TestStream:
    def test_text_arrives_in_pieces_and_ends_the_same(self) -> None:
        one = episodes(1)[0]
        policy = RandomPolicy(MODELS)
        events = list(drive(one, policy, pool(), grade_many, stream=True))
        plain = list(drive(one, policy, pool(), grade_many))
        assert [event for event in events if not isinstance(event, Delta)] == plain
        for replied in (event for event in events if isinstance(event, Replied) and event.reply.text):
            pieces = [e.text for e in events if isinstance(e, Delta) and e.index == replied.index]
            assert "".join(pieces) == replied.reply.text
            assert len(pieces) > 1

    def test_a_stop_cuts_a_reply_short(self) -> None:
        pieces = 0

        def stop(so_far: Episode) -> EndReason | None:
            return EndReason.CANCELLED if pieces >= 2 else None

        events = []
        for event in drive(episodes(1)[0], WORKER, pool(), grade_many, stop=stop, stream=True):
            events.append(event)
            pieces += isinstance(event, Delta)
        end = events[-1]
        assert isinstance(end, EpisodeFinished)
        assert (end.episode.status, end.episode.end_reason) == (Status.INTERRUPTED, EndReason.CANCELLED)
        assert pieces == 2

    @pytest.mark.parametrize("stream", [True, False])
    def test_closing_the_driver_closes_what_the_pool_says(self, stream: bool) -> None:
        closed = []

        class Answers:
            """An iterator that is no generator, as a pool of several providers may give."""

            def __init__(self, answers: Iterator[tuple[int, Reply]]) -> None:
                self.answers = answers

            def __iter__(self) -> Iterator[tuple[int, Reply]]:
                return self

            def __next__(self) -> tuple[int, Reply]:
                return next(self.answers)

            def close(self) -> None:
                closed.append(True)

        class Watched(ScriptedPool):
            def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
                return Answers(ScriptedPool.ask(self, asks))

            def stream(self, ask: Ask) -> Iterator[str | Reply]:
                try:
                    yield from ScriptedPool.stream(self, ask)
                finally:
                    closed.append(True)

        policy = single_policy("ann", MODELS)
        events = drive_many(episodes(2), policy, Watched(SPECS, chatter), grade_many, stream=stream)
        assert any(isinstance(event, Delta if stream else Replied) for event in events)
        events.close()  # type: ignore[attr-defined]
        assert closed == [True]

    def test_a_stream_without_a_reply_is_missing(self) -> None:
        class Cut(ScriptedPool):
            def stream(self, ask: Ask) -> Iterator[str | Reply]:
                yield "answer"

        end = alone(pool=Cut(SPECS, chatter), stream=True)
        assert end.status is Status.MISSING
        assert "stream" in (end.error or "")


class TestStop:
    @pytest.mark.parametrize("reason", [EndReason.CANCELLED, EndReason.DEADLINE, EndReason.COST_CEILING])
    def test_ends_as_interrupted_and_counts_for_nothing(self, reason: EndReason) -> None:
        def stop(so_far: Episode) -> EndReason | None:
            return reason if len(so_far.turns) >= 2 else None

        scripted = ScriptedPool(SPECS, lambda ask: "answer 12")
        end = alone(pool=scripted, stop=stop)
        assert (end.status, end.end_reason, end.reward) == (Status.INTERRUPTED, reason, None)
        assert (len(end.turns), end.answer, end.correct) == (2, "12", True)
        assert len(scripted.asks) == 2

    def test_is_asked_before_every_decision_and_call(self) -> None:
        asked = 0

        def stop(so_far: Episode) -> EndReason | None:
            nonlocal asked
            asked += 1
            return None

        end = crowd(episodes(20), stop=stop)
        turns = [turn for one in end.values() for turn in one.turns]
        assert asked == len(turns) + sum(bool(turn.messages) for turn in turns)

    def test_one_that_stops_at_once_calls_nobody(self) -> None:
        scripted = pool()
        many = episodes(10)
        end = ends(
            drive_many(many, RandomPolicy(MODELS), scripted, grade_many, stop=lambda _: EndReason.CANCELLED)
        )
        assert len(end) == 10
        assert scripted.asks == []


Asked = tuple[str, int, str, tuple[Message, ...]]


def key(begun: TurnStarted) -> Asked:
    """What a turn asked, as kept replies are found."""
    return begun.episode_id, begun.index, begun.decision.model, begun.messages


def kept_reply() -> dict[Asked, Reply]:
    """A reply to the first call of a worker."""
    events = drive(episodes(1)[0], WORKER, pool(), grade_many)
    return {key(next(e for e in events if isinstance(e, TurnStarted))): Reply("answer 7")}


class TestResume:
    @settings(deadline=None, max_examples=20)
    @given(st.integers(0, 120), st.sampled_from(list(Protocol)))
    def test_after_a_cut_at_any_event_it_goes_on_as_it_would_have(self, cut: int, protocol: Protocol) -> None:
        many = episodes(6, protocol=protocol)
        whole = crowd(many)
        turns: dict[str, list[Turn]] = defaultdict(list)
        asked: dict[str, TurnStarted] = {}
        replies: dict[Asked, Reply] = {}
        over: dict[str, Episode] = {}
        first = pool()
        for number, event in enumerate(drive_many(many, RandomPolicy(MODELS), first, grade_many)):
            if number == cut:
                break
            match event:
                case TurnStarted():
                    asked[event.episode_id] = event
                case Replied():
                    replies[key(asked[event.episode_id])] = event.reply
                case Turn():
                    turns[event.episode_id].append(event)
                    del replies[key(asked[event.episode_id])]
                case EpisodeFinished():
                    over[event.episode.id] = event.episode
        rest = [
            replace(one, turns=tuple(turns[one.id]), status=Status.INTERRUPTED)
            for one in many
            if one.id not in over
        ]
        second = pool()
        resumed = ends(drive_many(rest, RandomPolicy(MODELS), second, grade_many, stored_replies=replies))
        assert over | resumed == whole
        paid = sum(bool(turn.messages) for one in whole.values() for turn in one.turns)
        unstored = 1  # at most the one call that was under way when the process died
        assert paid <= len(first.asks) + len(second.asks) <= paid + unstored

    def test_a_kept_reply_is_used_for_the_very_same_call_only(self) -> None:
        one, kept = episodes(1)[0], kept_reply()
        assert alone(stored_replies=kept).turns[0].reply.text == "answer 7"
        for other in (single_policy("bob", MODELS, (Role.WORKER,)), single_policy("ann", MODELS)):
            for events in (
                drive(one, other, pool(), grade_many, stored_replies=kept),
                drive_many([one], other, pool(), grade_many, stored_replies=kept),
            ):
                assert "answer 7" not in [turn.reply.text for turn in ends(events)[one.id].turns]

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_kept_reply_costs_nothing_and_is_used_after_the_ceiling_too(self, stream: bool) -> None:
        first_decision = iter([None])
        end = alone(
            stop=lambda _: next(first_decision, EndReason.COST_CEILING),
            stored_replies=kept_reply(),
            stream=stream,
        )
        assert [turn.reply.text for turn in end.turns] == ["answer 7"]

    def test_a_call_the_pool_will_not_pay_for_ends_a_streamed_episode(self) -> None:
        class Spent(ScriptedPool):
            def stream(self, ask: Ask) -> Iterator[str | Reply]:
                raise BudgetError("Nothing is left.")

        end = alone(pool=Spent(SPECS, chatter), stored_replies=kept_reply(), stream=True)
        assert (end.status, end.end_reason) == (Status.INTERRUPTED, EndReason.COST_CEILING)
        assert [turn.reply.text for turn in end.turns] == ["answer 7"]

    def test_a_resumed_episode_is_not_begun_again_and_is_whole_at_its_end(self) -> None:
        one = episodes(1)[0]
        end = crowd([one])[one.id]
        events = list(drive(replace(one, turns=end.turns[:1]), RandomPolicy(MODELS), pool(), grade_many))
        assert not any(isinstance(event, EpisodeStarted) for event in events)
        assert events[-1] == EpisodeFinished(end)
        stopped = crowd([one], stop=lambda so_far: EndReason.DEADLINE if so_far.turns else None)[one.id]
        assert crowd([stopped]) == crowd([one])


def test_masked_roles_are_never_played() -> None:
    end = crowd(episodes(40), role_mask=(True, False, False), model_mask=(True, False, True))
    turns = [turn for one in end.values() for turn in one.turns]
    assert {turn.decision.role for turn in turns} == {Role.WORKER}
    assert {turn.decision.model for turn in turns} == {"ann", "cid"}
