"""Whole episodes with models behind HTTP: played to the end, streamed, and missing when the server fails."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from core.episode import Delta, Episode, EpisodeFinished, EpisodeStarted, Replied, Status, Task
from core.play.drive import drive, drive_many
from core.play.policies import PLAN_WORK_CHECK, cycle_policy
from tests.builders.play import grade
from tests.core.pool.faulty_server import Answer, Request, events, fail, hosting, ok, stream_head

MODELS = ("planner", "solver", "judge")
POLICY = cycle_policy("round-robin", MODELS, PLAN_WORK_CHECK)


def model(request: Request) -> Answer:
    """A model that follows its instructions, as server-sent events when asked for them."""
    duty = request.body["messages"][-1]["content"]
    if "you are the Thinker" in duty:
        text = "<suggestion>add them</suggestion>"
    elif "you are the Worker" in duty:
        text = "That makes <answer>42</answer>"
    else:
        tag = re.search(r"VERDICT-(\w+)", duty)
        assert tag is not None
        text = f"Right.\nVERDICT-{tag[1]}: ACCEPT"
    if request.body.get("stream"):
        return (stream_head(), events(*re.findall(r"\S+\s*", text)))
    return (0.05, *ok(text))


def episodes(n: int) -> list[Episode]:
    task = Task("t", "What is 40 + 2?", "42")
    return [Episode(f"e{i}", "r", task, "round-robin", MODELS, seed=i) for i in range(n)]


def finished(events: Iterable[object]) -> list[Episode]:
    return [event.episode for event in events if isinstance(event, EpisodeFinished)]


def test_a_slow_call_holds_up_its_own_episode_and_no_other() -> None:
    """Nobody waits for a batch: the quick episodes are over before the first reply of the slow one is there."""
    slow, slowed = "What is 1 + 1, slowly?", list[Request]()

    def answer(request: Request) -> Answer:
        said = model(request)
        if slow not in request.body["messages"][-1]["content"] or slowed:
            return said
        slowed.append(request)
        return (1.0, *said)

    quick = episodes(4)
    first = replace(quick[0], id="slow", task=Task("slow", slow, "42"))
    with hosting(answer, names=MODELS) as (pool, _):
        happened = list(drive_many([first, *quick[1:]], POLICY, pool, grade))
    places = enumerate(happened)
    [replied, *_] = [i for i, one in places if isinstance(one, Replied) and one.episode_id == "slow"]
    over = [i for i, one in enumerate(happened) if isinstance(one, EpisodeFinished)]
    assert len([i for i in over if i < replied]) == 3
    ended = [(one.status, one.correct, len(one.turns)) for one in finished(happened)]
    assert ended == [(Status.FINISHED, True, 3)] * 4


def test_no_more_episodes_are_begun_than_keep_the_models_busy() -> None:
    begun = most = 0
    with hosting(model, names=MODELS, concurrency=1) as (pool, _):
        for event in drive_many(episodes(12), POLICY, pool, grade):
            begun += isinstance(event, EpisodeStarted) - isinstance(event, EpisodeFinished)
            most = max(most, begun)
    assert most == 2 * len(MODELS)


def test_one_episode_streams_its_text() -> None:
    with hosting(model, names=MODELS) as (pool, _):
        seen = list(drive(episodes(1)[0], POLICY, pool, grade, stream=True))
    [episode] = finished(seen)
    assert episode.correct
    for index, turn in enumerate(episode.turns):
        shown = "".join(event.text for event in seen if isinstance(event, Delta) and event.index == index)
        assert shown == turn.reply.text != ""


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_fails_makes_the_episode_missing_and_not_wrong(stream: bool) -> None:
    def failing(request: Request) -> Answer:
        return fail(500, "out of memory") if request.body["model"] == "solver" else model(request)

    with hosting(failing, names=MODELS, attempts=2) as (pool, _):
        [episode] = finished(list(drive(episodes(1)[0], POLICY, pool, grade, stream=stream)))
    assert (episode.status, episode.reward) == (Status.MISSING, None)
    assert len(episode.turns) == 1
    assert "out of memory" in (episode.error or "")
