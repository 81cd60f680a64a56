"""`trinity run` on a real store and a real server: recording, resuming, ceilings, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from core.episode import EndReason, Protocol, Role
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store, open_store
from tests.core.pool.faulty_server import Answer, Request, fail, ok
from tests.ui.sums import Sums, answer
from ui.runs import wiring
from ui.runs.batch import BatchParts
from ui.runs.lease import owner
from ui.runs.plans import LivePlan
from ui.runs.queue import Ticket, enqueue


def test_the_json_contract(world: Sums) -> None:
    rows = world.run("--policy", "single:adder", "--policy", "random", "--json").json
    assert [list(row) for row in rows] == [["policy", "accuracy", "ci95", "n", "turns_mean"]] * 2
    assert [row["policy"] for row in rows] == ["single:adder", "random"]
    assert rows[0]["accuracy"] == 1.0
    assert rows[0]["n"] == 12
    assert rows[0]["turns_mean"] == 3.0
    low, high = rows[0]["ci95"]
    assert 0.7 < low < 1.0 == high


def test_the_released_rules_end_an_episode_whose_verifier_speaks_first(world: Sums) -> None:
    """And the cycles of roles are chosen by the same rules, apart from those chosen by the paper's."""
    validation_tasks(world)
    run = ("--policy", "single:adder", "--policy", "random", "--validate", 6)
    for rules in ("paper", "released"):
        assert world.run(*run, "--protocol", rules).code == 0
    with closing(open_store(world.store)) as store:
        played = [store.episodes.get(one.id) for one in store.episodes.page(EpisodeFilter(), limit=48).items]
    for rules in Protocol:
        mine = [one for one in played if one.protocol is rules]
        assert len(mine) == 24
        cut = {one.end_reason for one in mine if one.turns[0].decision.role is Role.VERIFIER}
        assert (EndReason.VERIFIER_FIRST in cut) == (rules is Protocol.RELEASED)
    assert len(json.loads((wiring.data_folder() / "cycles.json").read_text())) == 2


def test_single_star_is_every_model_once(world: Sums) -> None:
    rows = world.run("--policy", "single:*", "--policy", "single:adder", "--n", 2, "--json").json
    assert [row["policy"] for row in rows] == ["single:adder", "single:guesser"]


def test_the_table_names_the_run_and_how_to_look_into_it(world: Sums) -> None:
    result = world.run("--policy", "round-robin", "--n", 3)
    assert "round-robin" in result.out
    assert "trinity episodes --run r" in result.err


def test_every_turn_is_recorded(world: Sums) -> None:
    world.run("--policy", "single:guesser")
    page = world.trinity("episodes", "--json").json
    assert len(page["episodes"]) == 12
    assert page["next"] is None
    assert {one["strip"] for one in page["episodes"]} == {"T·b W·b V·b✓"}
    asked = ("--where", "correct == False", "--flag", "false_accept")
    wrong = world.trinity("episodes", *asked, "--json").json["episodes"]
    assert len(wrong) == 6
    nobody = world.trinity("episodes", "--policy", "guesser")
    assert "No policy 'guesser' has played. These have: single:guesser." in nobody.err


def validation_tasks(world: Sums) -> None:
    """Six more tasks, for choosing role cycles."""
    with Path(world.tasks).open("a") as file:
        for a in range(50, 56):
            line = {
                "question": f"What is {a} + 2?",
                "answer": a + 2,
                "grader": "number",
                "split": "validation",
            }
            file.write(json.dumps(line) + "\n")


def last_run(world: Sums) -> tuple[RunSummary, float]:
    """The newest run and what it has spent."""
    store = open_store(world.store)
    run = store.runs.list()[0]
    spent = store.runs.spent_usd(run.id)
    store.close()
    return run, spent


def test_the_best_role_cycle_is_chosen_on_validation_tasks_and_frozen(world: Sums) -> None:
    validation_tasks(world)
    first = world.run("--policy", "single:adder", "--policy", "single:guesser", "--n", 4, "--json")
    assert "single:adder plays worker, verifier" in first.err
    assert [row["turns_mean"] for row in first.json] == [2.0, 2.0]
    calls = len(world.server.requests)
    second = world.run("--policy", "single:adder", "--n", 4, "--json")
    assert "single:adder plays worker, verifier" in second.err
    assert len(world.server.requests) - calls == 8
    store = open_store(world.store)
    assert store.runs.list()[0].config["cycles"] == {"single:adder": ["worker", "verifier"]}
    store.close()


def test_the_same_seed_plays_the_same_again(world: Sums) -> None:
    for _ in range(2):
        world.run("--policy", "random", "--seed", 7, "--turns", 4)
    store = open_store(world.store)
    first, second = (store.episodes.of_run(run.id) for run in store.runs.list())
    store.close()
    assert [one.strip for one in first] == [one.strip for one in second]
    assert len({one.strip for one in first}) > 3


def test_the_same_tasks_are_played_again_with_other_draws(world: Sums) -> None:
    run = ("--policy", "random", "--n", 5)
    for options in (("--seed", 0), ("--seed", 1, "--task-seed", 0), ("--seed", 1)):
        assert world.run(*run, *options).code == 0
    with closing(open_store(world.store)) as store:
        runs = sorted(store.runs.list(), key=lambda one: one.created)
        tasks = [sorted(one.task_id for one in store.episodes.of_run(run.id)) for run in runs]
        draws = [sorted((one.task_id, one.strip) for one in store.episodes.of_run(run.id)) for run in runs]
    assert tasks[0] == tasks[1] != tasks[2]
    assert draws[0] != draws[1]


def test_an_interrupted_run_is_resumed_to_the_same_end(
    world: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = world.run("--policy", "random", "--policy", "round-robin", "--json").json
    played = BatchParts.play

    def broken(parts: BatchParts, store: Store, run: str) -> Iterator[object]:
        for count, event in enumerate(played(parts, store, run)):
            if count == 60:
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr(BatchParts, "play", broken)
    result = world.run("--policy", "random", "--policy", "round-robin", "--json")
    monkeypatch.setattr(BatchParts, "play", played)
    assert result.code == 130
    assert "Go on with: trinity run --resume r" in result.err
    run = result.err.strip().split()[-1]
    before = len(world.server.requests)
    assert world.trinity("run", "--resume", run, "--json").json == undisturbed
    assert 0 < len(world.server.requests) - before < before
    store = open_store(world.store)
    runs = store.runs.list()
    strips = [[one.strip for one in store.episodes.of_run(one.id)] for one in runs]
    assert [one.status for one in runs] == ["finished", "finished"]
    store.close()
    assert strips[0] == strips[1]


def test_episodes_lost_in_an_outage_are_played_by_resuming(world: Sums) -> None:
    file = world.folder / "pool.toml"
    file.write_text(file.read_text().replace("[[model]]", "[[model]]\nattempts = 1"))
    world.server.answer = lambda request: fail(500) if "10 + 13" in str(request.body) else answer(request)
    result = world.run("--policy", "single:adder", "--json")
    assert (result.code, result.json[0]["n"]) == (1, 11)
    assert (
        "1 episode is missing: models could not be asked, or this program failed, as each episode says."
        in result.err
    )
    assert "Go on with: trinity run --resume" in result.err
    run, _ = last_run(world)
    assert run.status == "interrupted"
    assert "1 episode is missing" in str(run.error)
    world.server.answer = answer
    calls = len(world.server.requests)
    again = world.trinity("run", "--resume", run.id, "--json")
    assert (again.code, again.json[0]["n"]) == (0, 12)
    assert len(world.server.requests) == calls + 3
    world.server.answer = lambda _: fail(500)
    dead = world.run("--policy", "single:adder")
    assert dead.code == 1
    assert "12 episodes are missing" in dead.err


def test_a_finished_run_is_not_resumed(world: Sums) -> None:
    world.run("--policy", "random", "--n", 1)
    store = open_store(world.store)
    run = store.runs.list()[0].id
    store.close()
    result = world.trinity("run", "--resume", run)
    assert result.code == 1
    assert result.err.splitlines()[1:] == [f"trinity: Run {run} is finished: there is nothing to resume."]


def test_what_plays_is_said_first_and_what_replies_lacked_last(
    world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.folder)
    told = world.run("--policy", "random", "--n", 2)
    assert told.err.startswith(
        f"Pool {world.folder / 'pool.toml'}: adder, guesser (127.0.0.1:{world.server.port})."
    )
    assert "Warning" not in told.err
    pocket = world.trinity("run", "--policy", "random", "--n", 1, "--pool", "pocket", "--tasks", "pocket")
    assert "(in this process)" in pocket.err
    assert "The pool.toml in this folder is not used" in pocket.err
    world.server.answer = lambda _: ok("I would rather not say.")
    lapsed = world.run("--policy", "single:adder", "--n", 2, "--validate", "0")
    assert "What replies lacked" in lapsed.out
    warned = " ".join(lapsed.err.split())
    assert "Warning: adder, no answer: " in warned
    assert "more than 5.0 %" in warned
    where = warned.partition("--where '")[2].partition("'")[0]
    assert world.trinity("episodes", "--where", where, "--json").json["episodes"]


def test_transcripts_that_were_shortened_to_fit_a_window_are_told(world: Sums) -> None:
    pool = world.folder / "pool.toml"
    terse = 'dialect = "terse"'
    pool.write_text(pool.read_text().replace(terse, "max_tokens = 100\ncontext_window = 1400", 1))
    world.server.answer = lambda _: ok("word " * 600 + "<answer>1</answer>")
    told = world.run("--policy", "single:adder", "--n", 2, "--validate", "0")
    warned = " ".join(told.err.split())
    assert "Warning: adder was sent a shortened transcript in " in warned
    where = warned.partition("shortened transcript")[2].partition("--where '")[2].partition("'")[0]
    assert len(world.trinity("episodes", "--where", where, "--json").json["episodes"]) == 2


def test_an_outage_leaves_no_choice_behind(world: Sums) -> None:
    validation_tasks(world)
    file = world.folder / "pool.toml"
    file.write_text(file.read_text().replace("[[model]]", "[[model]]\nattempts = 1"))
    world.server.answer = lambda request: fail(500) if "50 + 2" in str(request.body) else answer(request)
    first = world.run("--policy", "single:adder", "--n", 2)
    assert "single:adder plays worker, verifier" in first.err
    world.server.answer = answer
    calls = len(world.server.requests)
    assert world.run("--policy", "single:adder", "--n", 2).code == 0
    assert len(world.server.requests) > calls + 4, "a choice with lost calls is made again"
    world.server.answer = lambda _: fail(500)
    dead = world.run("--policy", "single:guesser", "--n", 2)
    assert dead.code == 1
    assert "No role cycle can be chosen for single:guesser" in dead.err


def test_a_changed_task_file_is_not_resumed(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> Iterator[object]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(BatchParts, "play", stop)
    run = world.run("--policy", "random").err.strip().split()[-1]
    monkeypatch.undo()
    lines = Path(world.tasks).read_text().splitlines()
    Path(world.tasks).write_text("\n".join(lines[1:]))
    result = world.trinity("run", "--resume", run, "--store", world.store)
    assert result.code == 1
    assert "have changed since this run began" in result.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "cabc"], "There is no policy or checkpoint 'cabc'"),
        (["--policy", "x" * 300], "There is no policy or checkpoint 'xxx"),
        (["--policy", "single:nobody"], "There is no model 'nobody' in the pool"),
        (["--policy", "random", "--tasks", "chess"], "There is no task set 'chess'"),
        (["--policy", "random", "--tasks", "none.jsonl"], "There is no task file"),
        (["--policy", "random", "--pool", "none.toml"], "There is no pool file"),
        (["--policy", "random", "--store", "mysql://x"], "trinity: "),
        ([], "Name at least one policy"),
        (["--resume", "r0", "--policy", "random"], "leave --policy, --split, --tasks out"),
        (["--resume", "r0", "--n", "500", "--turns", "2"], "leave --n, --split, --tasks, --turns out"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    world: Sums, arguments: list[str], sentence: str
) -> None:
    result = world.run(*arguments)
    assert result.code == 1
    assert sentence in result.err
    assert result.err.startswith("trinity: ")
    assert result.err.count("\n") == 1
    assert open_store(world.store).runs.list() == []


@pytest.mark.parametrize("name", ["x", "single:nobody"])
def test_an_unknown_policy_is_refused_before_models_are_loaded(
    world: Sums, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def loaded(*_: object) -> None:
        raise AssertionError("the pool was loaded first")

    monkeypatch.setattr(wiring, "resolve_pool", loaded)
    result = world.trinity(
        "run", "--store", world.store, "--pool", "pocket", "--policy", "random", "--policy", name
    )
    assert result.code == 1
    assert "There is no" in result.err


def test_a_count_that_nobody_can_play_is_refused(world: Sums) -> None:
    for absurd in (10**23, 10**6):
        result = world.trinity("run", "--policy", "random", "--n", absurd, "--store", world.store)
        assert result.code == 2
        assert "100000" in result.err
    result = world.trinity("evolve", "--population", "9" * 5000, "--store", world.store)
    assert result.code == 1
    assert "population cannot be '9999" in result.err
    assert len(result.err) < 300


def test_a_cursor_of_no_page_is_refused(world: Sums) -> None:
    for cursor in ("zzz", "", "W05hTiwgImUiXQ"):  # the last says NaN
        result = world.trinity("episodes", "--after", cursor, "--store", world.store)
        assert result.code == 1
        assert "--after needs the value" in result.err


def test_a_seed_that_no_store_can_keep_is_refused(world: Sums) -> None:
    assert world.run("--policy", "random", "--seed", 2**63).code == 2
    assert world.run("--policy", "random", "--n", 1, "--seed", 2**63 - 1).code == 0


def test_a_run_that_breaks_off_does_not_look_alive(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Iterator[object]:
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(BatchParts, "play", broken)
    with pytest.raises(ZeroDivisionError):
        world.run("--policy", "random")
    assert last_run(world)[0].status == "interrupted"


def test_a_data_folder_that_cannot_be_written_stops_no_run(
    world: Sums, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    validation_tasks(world)
    monkeypatch.setenv("XDG_DATA_HOME", "/proc/self")  # not even root may write there
    assert world.run("--policy", "single:adder", "--n", 1).code == 0
    assert "Role cycles will be chosen again" in caplog.text


def test_a_run_that_is_not_there_cannot_be_resumed(world: Sums) -> None:
    assert "The store holds no run r0" in world.trinity("run", "--resume", "r0").err


def test_a_missing_key_is_named(world: Sums) -> None:
    world.price(0.0)
    result = world.run("--policy", "random")
    assert result.code == 1
    assert "SUMS_KEY" in result.err


@pytest.mark.parametrize("command", ["run", "evolve", "worker"])
def test_sigterm_ends_a_run_as_interrupted_at_once(
    evolving: Sums, plan: LivePlan, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    asked: list[Request] = []

    def terminated(request: Request) -> Answer:
        if not asked:
            os.kill(os.getpid(), signal.SIGTERM)
        asked.append(request)
        return answer(request)

    ignored = signal.signal(
        signal.SIGTERM, lambda _signal, _frame: None
    )  # this process shall outlive a failure
    try:
        evolving.server.answer = terminated
        if command == "worker":
            store = open_store(evolving.store)
            enqueue(store, plan, Ticket.new())
            store.close()
            result = evolving.trinity("worker", "--drain", "--store", evolving.store)
        else:
            small = ["--generations", 2, "--population", 4] if command == "evolve" else ["--policy", "random"]
            result = evolving.trinity(command, "--tasks", evolving.tasks, *small)
    finally:
        signal.signal(signal.SIGTERM, ignored)
    assert result.code == 130
    store = open_store(evolving.store)
    assert [run.status for run in store.runs.list()] == [RunStatus.INTERRUPTED]
    store.close()


@pytest.mark.process
def test_a_run_whose_process_is_gone_is_told_as_interrupted_at_once(world: Sums) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    store = open_store(world.store)
    store.runs.create("rdead", "run", {}, owner=f"{socket.gethostname()}:{gone.pid}")
    store.runs.create("ralive", "run", {}, owner=owner())
    store.runs.create("relsewhere", "run", {}, owner="elsewhere:1")
    said = world.trinity("doctor").out
    assert "trinity run --resume rdead" in said
    stands = {run.id: run.status for run in store.runs.list()}
    assert stands == {
        "rdead": RunStatus.INTERRUPTED,
        "ralive": RunStatus.RUNNING,
        "relsewhere": RunStatus.RUNNING,
    }
    store.close()


def test_the_models_of_all_policies_work_side_by_side(world: Sums) -> None:
    told = world.run("--policy", "single:*", "--json")
    asked = [request.body["model"] for request in world.server.requests]
    assert [(row["policy"], row["n"]) for row in told.json] == [("single:adder", 12), ("single:guesser", 12)]
    assert asked.index("guesser") < asked.count("adder")  # before the adder had played all its episodes
    assert {*asked[:16]} == {"adder", "guesser"}
