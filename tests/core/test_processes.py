"""Helper processes share work without a trace in its results, and end with the process that they help."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import processes as module
from core.checkpoint import Checkpoint
from core.coordinator.encoder import load_encoder
from core.episode import Episode, EpisodeFinished
from core.evolution import search
from core.evolution.config import EvolveConfig
from core.evolution.evolve import Generation, evolve
from core.learning import episodes_of
from core.play.drive import drive_many
from core.play.policies import RandomPolicy
from core.pocket import MODELS
from core.pocket.pool import PocketPool
from core.pool.cache import CachedPool
from core.pool.pool import closing
from core.processes import Processes
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from tests.core import jobs
from tests.zygote import forked

pytestmark = pytest.mark.process

MANY = list(range(24))
READY_S = 60


@pytest.fixture
def two() -> Iterator[Processes]:
    found = Processes(2, preload=["tests.core.jobs"], worth_s=0)
    yield found
    found.close()


def shared(processes: Processes, function: str, here: Callable[[Any], Any] = jobs.worker) -> list[Any]:
    return list(processes.answers(f"tests.core.jobs:{function}", MANY, here))


def until_helped(processes: Processes) -> list[Any]:
    """Answers of the first list of jobs at which a helper was ready."""
    begun = time.monotonic()
    while time.monotonic() - begun < READY_S:
        found = shared(processes, "worker")
        if len({pid for _, pid in found}) > 1:
            return found
    raise AssertionError("no helper came")


def is_gone(pid: int) -> bool:
    begun = time.monotonic()
    while time.monotonic() - begun < READY_S:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":  # dead, and whoever inherited it has not looked yet
            return True
        time.sleep(0.05)
    return False


def test_answers_come_in_the_order_of_the_jobs_from_either_end(two: Processes) -> None:
    found = until_helped(two)
    assert [job for job, _ in found] == MANY
    assert found[0][1] == os.getpid()
    assert [found[-1][1]] == list(two.helpers)


def test_one_process_one_job_and_little_work_start_no_helper() -> None:
    for processes, some in (
        (Processes(1, worth_s=0), MANY),
        (Processes(2, worth_s=0), [1]),
        (Processes(2), MANY),
    ):
        assert list(processes.answers("tests.core.jobs:worker", some, lambda job: job)) == some
        assert not processes.helpers


def test_a_job_that_fails_in_a_helper_is_answered_here(two: Processes) -> None:
    until_helped(two)
    assert [job for job, _ in shared(two, "failing")] == MANY
    with pytest.raises(ValueError, match="cannot be done"):
        shared(two, "failing", jobs.failing)
    assert len(until_helped(two)) == len(MANY)


def test_jobs_of_a_helper_that_dies_are_answered_here_and_it_is_replaced_a_few_times(two: Processes) -> None:
    for _ in range(module.MOST_DEATHS):
        until_helped(two)
        [helper] = two.helpers
        found = shared(two, "deadly")
        assert found == [[job, os.getpid()] for job in MANY]
        assert is_gone(helper)
    shared(two, "worker")
    assert two.helpers == ()


def test_a_helper_that_is_killed_in_the_middle_loses_nothing(two: Processes) -> None:
    until_helped(two)
    [helper] = two.helpers
    answers = two.answers("tests.core.jobs:slow", MANY, jobs.worker)
    found = [next(answers)]
    time.sleep(0.1)
    os.kill(helper, signal.SIGKILL)
    assert [*found, *answers] == [[job, os.getpid()] for job in MANY]


def test_a_helper_that_is_silent_is_given_up(two: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    until_helped(two)
    [helper] = two.helpers
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    assert shared(two, "slow") == [[job, os.getpid()] for job in MANY]
    assert is_gone(helper)


def test_closing_the_answers_early_ends_helpers_that_are_at_work(two: Processes) -> None:
    until_helped(two)
    [helper] = two.helpers
    with closing(two.answers("tests.core.jobs:slow", MANY, jobs.worker)) as answers:
        next(answers)
        time.sleep(0.1)
    assert is_gone(helper)
    assert until_helped(two)


PARENT = """
import sys
from core.processes import Processes
from tests.core import jobs

two = Processes(2, preload=["tests.core.jobs"], worth_s=0)
function = "worker"
while True:
    found = list(two.answers(f"tests.core.jobs:{function}", list(range(50)), jobs.worker))
    if len({pid for _, pid in found}) > 1 and function == "worker":
        print(*two.helpers, flush=True)
        function = "slow"
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_helpers_end_with_the_process_they_help_even_when_they_are_busy(how: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as parent:
        try:
            assert parent.stdout
            helpers = [int(pid) for pid in parent.stdout.readline().split()]
            assert len(helpers) == 1
            time.sleep(0.5)
            parent.send_signal(how)
            assert all(is_gone(pid) for pid in helpers)
        finally:
            parent.kill()


def forked_helper(preload: Sequence[str] = ()) -> subprocess.Popen[str]:
    """As `start_helper`, forked off a process that has imported torch."""
    return subprocess.Popen(
        [forked("python"), "-m", "tests.core.jobs", "helper", *preload],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="ascii",
        start_new_session=True,
    )


def played(processes: Processes) -> tuple[list[Episode], int, int]:
    """Episodes of a run, without the seconds that replies took, with the calls made and saved."""
    pool = CachedPool(PocketPool(processes=processes))
    episodes = episodes_of(load_tasks("pocket", "test", 8, 0), MODELS, seed=3, turn_budget=3, prefix="e")
    ended = {
        event.episode.id: event.episode
        for event in drive_many(episodes, RandomPolicy(MODELS), pool, grade_many)
        if isinstance(event, EpisodeFinished)
    }
    return [timeless(ended[one.id]) for one in episodes], pool.misses, pool.hits


def timeless(episode: Episode) -> Episode:
    turns = [replace(turn, reply=replace(turn.reply, latency_s=0.0)) for turn in episode.turns]
    return replace(episode, turns=tuple(turns))


def evolved(processes: Processes) -> list[Generation]:
    encoder = load_encoder("pocket", processes=processes)
    config = EvolveConfig(generations=1, population=6, tasks_per_candidate=2, turn_budget=2, seed=5)
    steps = evolve(
        config,
        Checkpoint.begin(MODELS, encoder.identity),
        encoder=encoder,
        pool=PocketPool(processes=processes),
        grade=grade_many,
        tasks=load_tasks("pocket/logic", "evolve", 8, 0),
    )
    return [one for one in steps if isinstance(one, Generation)]


def told(generation: Generation) -> dict[str, Any]:
    """Everything of a generation that can be compared, its checkpoint and state as bytes."""
    found = {name: getattr(generation, name) for name in Generation.__slots__}
    return {
        **found,
        "checkpoint": (generation.checkpoint.id, generation.checkpoint.to_bytes()),
        "state": generation.state.to_bytes(),
        "fitness": repr(generation.fitness),
    }


def test_a_run_and_an_evolution_are_the_same_in_one_process_and_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "SKETCHES", 48)
    monkeypatch.setattr(module, "start_helper", forked_helper)
    alone, two = Processes(1), Processes(2, preload=["core.coordinator.encoder"], worth_s=0)
    helped, counted = two._helped, Counter[str]()

    def counting(work: Any, index: int) -> Any:
        answer = helped(work, index)
        counted[work.function] += answer is not None
        return answer

    monkeypatch.setattr(two, "_helped", counting)
    try:
        until_helped(two)
        assert played(two) == played(alone)
        assert [told(one) for one in evolved(two)] == [told(one) for one in evolved(alone)]
    finally:
        two.close()
    assert counted["core.pocket.pool:answer_job"] > 0
    assert counted["core.coordinator.encoder:read_batch"] > 0
