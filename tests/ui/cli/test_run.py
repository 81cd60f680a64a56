"""`trinity run` on a real store and a real server: recording, resuming, ceilings, costs, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.episode import EndReason, Flag, Protocol, Role
from core.evolution.cycles import CYCLES
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.core.pool.faulty_server import Answer, Request, fail, ok
from tests.ui.sums import Sums, answer
from ui.runs import wiring
from ui.runs.batch import BatchParts
from ui.runs.lease import owner
from ui.runs.plans import LivePlan
from ui.runs.queue import Ticket, enqueue


def test_the_json_contract(world: Sums) -> None:
    rows = world.run("--policy", "single:adder", "--policy", "random", "--json").json
    keys = [
        "policy",
        "accuracy",
        "ci95",
        "n",
        "turns_mean",
        "missing",
        "calls_mean",
        "tokens_mean",
        "cost_usd_mean",
    ]
    assert [list(row) for row in rows] == [keys] * 2
    assert (rows[0]["missing"], rows[0]["calls_mean"]) == (0, 3.0)
    assert [row["policy"] for row in rows] == ["single:adder", "random"]
    assert rows[0]["accuracy"] == 1.0
    assert rows[0]["n"] == 12
    assert rows[0]["turns_mean"] == 3.0
    low, high = rows[0]["ci95"]
    assert 0.7 < low < 1.0 == high


def test_the_released_rules_end_an_episode_whose_verifier_speaks_first(world: Sums) -> None:
    """And the cycles of roles are chosen by the same rules, apart from those chosen by the paper's."""
    world.add_tasks("validation", 2)
    run = ("--policy", "single:adder", "--policy", "random", "--validate", 2)
    for rules in ("paper", "released"):
        assert world.run(*run, "--protocol", rules).code == 0
    with world.kept() as store:
        played = [store.episodes.get(one.id) for one in store.episodes.page(EpisodeFilter(), limit=48).items]
    for rules in Protocol:
        mine = [one for one in played if one.protocol is rules]
        assert len(mine) == 24
        cut = {one.end_reason for one in mine if one.turns[0].decision.role is Role.VERIFIER}
        assert (EndReason.VERIFIER_FIRST in cut) == (rules is Protocol.RELEASED)
    assert len(json.loads((wiring.data_folder() / "cycles.json").read_text())) == 2


def test_single_star_is_every_model_once_and_the_table_says_how_to_look_into_the_run(world: Sums) -> None:
    result = world.run("--policy", "single:*", "--policy", "single:adder", "--n", 2)
    rows = [line.split()[0] for line in result.out.splitlines() if line.startswith("single:")]
    assert rows == ["single:adder", "single:guesser"]
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


def test_the_best_role_cycle_is_chosen_on_validation_tasks_and_frozen(world: Sums) -> None:
    world.add_tasks("validation", 6)
    first = world.run("--policy", "single:adder", "--policy", "single:guesser", "--n", 4, "--json")
    assert "single:adder plays worker, verifier" in first.err
    assert [row["turns_mean"] for row in first.json] == [2.0, 2.0]
    calls = len(world.server.requests)
    second = world.run("--policy", "single:adder", "--n", 4, "--json")
    assert "single:adder plays worker, verifier" in second.err
    assert len(world.server.requests) - calls == 8
    assert world.last_run()[0].config["cycles"] == {"single:adder": ["worker", "verifier"]}


def test_the_same_seed_plays_the_same_again_and_another_the_same_tasks_by_other_draws(world: Sums) -> None:
    for seeds in (("--seed", 0), ("--seed", 0), ("--seed", 1, "--task-seed", 0), ("--seed", 1)):
        assert world.run("--policy", "random", "--n", 6, *seeds).code == 0
    with world.kept() as store:
        runs = sorted(store.runs.list(), key=lambda one: one.created)
        draws = [sorted((one.task_id, one.strip) for one in store.episodes.of_run(run.id)) for run in runs]
    tasks = [[task for task, _ in of] for of in draws]
    assert draws[0] == draws[1] != draws[2]
    assert len({strip for _, strip in draws[0]}) > 3
    assert tasks[0] == tasks[2] != tasks[3]


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
    with world.kept() as store:
        runs = store.runs.list()
        first, second = ([one.strip for one in store.episodes.of_run(run.id)] for run in runs)
    assert [one.status for one in runs] == ["finished", "finished"]
    assert first == second


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
    run, _ = world.last_run()
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
    run = world.last_run()[0].id
    result = world.trinity("run", "--resume", run)
    assert (result.code, result.err.splitlines()[1:]) == (
        1,
        [f"trinity: Run {run} is finished: there is nothing to resume."],
    )


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
    world.add_tasks("validation", 3)
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


@pytest.mark.parametrize("name", ["x", "single:nobody"])
def test_an_unknown_policy_is_refused_before_models_are_loaded(
    world: Sums, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def loaded(*_: object) -> None:
        raise AssertionError("the pool was loaded first")

    monkeypatch.setattr(wiring, "resolve_pool", loaded)
    said = world.refused("run", "--pool", "pocket", "--policy", "random", "--policy", name)
    assert "There is no" in said


def test_a_count_that_nobody_can_play_is_refused(world: Sums) -> None:
    for absurd in (10**23, 10**6):
        result = world.trinity("run", "--policy", "random", "--n", absurd)
        assert (result.code, "100000" in result.err) == (2, True)


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
    assert world.last_run()[0].status == "interrupted"


def test_a_data_folder_that_cannot_be_written_stops_no_run(
    world: Sums, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.add_tasks("validation", 1)
    monkeypatch.setenv("XDG_DATA_HOME", "/proc/self")  # not even root may write there
    assert world.run("--policy", "single:adder", "--n", 1).code == 0
    assert "Role cycles will be chosen again" in caplog.text


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
            with evolving.kept() as store:
                enqueue(store, plan, Ticket())
            result = evolving.trinity("worker", "--drain")
        else:
            small = ["--generations", 2, "--population", 4] if command == "evolve" else ["--policy", "random"]
            result = evolving.trinity(command, "--tasks", evolving.tasks, *small)
    finally:
        signal.signal(signal.SIGTERM, ignored)
    assert result.code == 130
    with evolving.kept() as store:
        assert [run.status for run in store.runs.list()] == [RunStatus.INTERRUPTED]


@pytest.mark.process
def test_a_run_whose_process_is_gone_is_told_as_interrupted_at_once(world: Sums) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    owners = {
        "rdead": f"{socket.gethostname()}:{gone.pid}",
        "ralive": owner(),
        "relsewhere": "elsewhere:1",
    }
    with world.kept() as store:
        for run, whose in owners.items():
            store.runs.create(run, "run", {}, owner=whose)
        assert "trinity run --resume rdead" in world.trinity("doctor").out
        interrupted = {run.id: run.status is RunStatus.INTERRUPTED for run in store.runs.list()}
    assert interrupted == {"rdead": True, "ralive": False, "relsewhere": False}


def test_the_models_of_all_policies_work_side_by_side(world: Sums) -> None:
    told = world.run("--policy", "single:*", "--json")
    asked = [request.body["model"] for request in world.server.requests]
    assert [(row["policy"], row["n"]) for row in told.json] == [("single:adder", 12), ("single:guesser", 12)]
    assert asked.index("guesser") < asked.count("adder")  # before the adder had played all its episodes
    assert {*asked[:16]} == {"adder", "guesser"}


@pytest.fixture
def paid(world: Sums) -> Sums:
    """The world with models that cost money: a call at most $0.0418, really about $0.0001."""
    world.price(10.0)
    return world


def test_paid_models_ask_for_a_ceiling_and_a_price(paid: Sums) -> None:
    result = paid.run("--policy", "random")
    assert result.code == 1
    assert "up to 60 calls, at most $" in result.err
    assert "set a ceiling with --max-cost USD" in result.err
    file = paid.folder / "pool.toml"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "price" not in line))
    result = paid.run("--policy", "random", "--max-cost", "1")
    assert result.code == 1
    assert "The price of adder, guesser is not known" in result.err
    assert paid.server.requests == []
    with paid.kept() as store:
        assert store.runs.list() == []


def test_a_ceiling_is_never_exceeded_and_the_run_can_go_on(paid: Sums) -> None:
    result = paid.run("--policy", "round-robin", "--max-cost", "0.043", "--json")
    assert "Go on with" in result.err
    run, spent = paid.last_run()
    assert run.status == "interrupted"
    assert 0 < spent <= 0.043
    calls = len(paid.server.requests)
    again = paid.trinity("run", "--resume", run.id, "--max-cost", "0.043")
    assert f"ceiling of $0.0430 (${spent:.4f} spent)" in again.err, "a resumed run knows what it has spent"
    assert len(paid.server.requests) == calls
    rows = paid.trinity("run", "--resume", run.id, "--max-cost", "10", "--json").json
    assert rows[0]["n"] == 12
    assert len(paid.server.requests) == 6 * 3 + 6 * 5, "nothing is paid for twice"


def test_a_ceiling_that_a_whole_wave_could_exceed_is_still_used_up(paid: Sums) -> None:
    result = paid.run("--policy", "round-robin", "--max-cost", "0.25", "--json")
    assert result.json[0]["n"] == 12, result.err
    assert "Stopped" not in result.err


def test_choosing_role_cycles_is_paid_below_the_ceiling(paid: Sums) -> None:
    paid.add_tasks("validation", 6)
    result = paid.run("--policy", "single:adder", "--validate", 6, "--max-cost", "0.0001")
    assert result.code == 1
    assert "could exceed the ceiling of $0.0001" in result.err
    assert paid.server.requests == []


def test_a_run_begins_at_what_choosing_its_cycles_cost(paid: Sums) -> None:
    paid.add_tasks("validation", 6)
    result = paid.run("--policy", "single:adder", "--validate", 6, "--max-cost", "0.5", "--n", 1)
    assert result.code == 0, result.err
    run, spent = paid.last_run()
    chosen_for = run.config["choice_usd"]
    assert chosen_for > 10 * (spent - chosen_for) > 0


def test_trials_of_role_cycles_are_kept_as_they_come_and_never_paid_twice(paid: Sums) -> None:
    paid.add_tasks("validation", 6)
    arguments = ("--policy", "single:adder", "--validate", 6, "--n", 2, "--max-cost")
    assert paid.run(*arguments, "9").code == 0
    undisturbed = len(paid.server.requests)
    (wiring.data_folder() / "cycles.json").unlink()
    paid.server.requests.clear()
    short = paid.run(*arguments, "0.05")
    assert "The next episode could exceed the ceiling" in short.err
    begun, _ = paid.last_run()
    assert 20 < len(paid.server.requests) < undisturbed
    again = paid.trinity("run", "--resume", begun.id, "--max-cost", "9")
    assert f"Up to {5 * (len(CYCLES) * 6 + 2)} calls" in again.err, "what is tried is part of the estimate"
    assert f"for single:adder: {len(CYCLES) * 6} episodes" in again.err
    assert "choosing cycles $" in again.err
    assert "single:adder plays worker, verifier" in again.err
    assert len(paid.server.requests) == undisturbed
    done, spent = paid.last_run()
    assert spent == pytest.approx(undisturbed * 18 * 10 / 1e6)
    with paid.kept() as store:
        assert store.learning.paid_replies(done.id).recall() == []


# Replies that an earlier run has got are not paid for again


def calls(paid: Sums) -> int:
    """How many there were since it was asked last."""
    n = len(paid.server.requests)
    paid.server.requests.clear()
    return n


def test_a_run_takes_the_replies_of_an_earlier_one(paid: Sums) -> None:
    run = ("--policy", "random", "--turns", 4, "--max-cost", 9)
    first = paid.run(*run, "--json")
    asked = calls(paid)
    again = paid.run(*run, "--json", "--reuse")
    nothing = {"calls_mean": 0.0, "tokens_mean": 0.0, "cost_usd_mean": 0.0}
    assert again.json == [row | nothing for row in first.json]
    assert calls(paid) == 0
    saved = asked * 18 * 10 / 1e6
    assert f"{asked} replies were reused from earlier runs, which saved ${saved:.4f}" in again.err
    assert "share their luck" in again.err
    with paid.kept() as store:
        newest, older = (one.id for one in store.runs.list())
        assert store.runs.spent_usd(newest) == 0 < store.runs.spent_usd(older)
        turns = {
            run: [turn for one in store.episodes.of_run(run) for turn in store.episodes.get(one.id).turns]
            for run in (newest, older)
        }
        pairs = zip(turns[newest], turns[older], strict=True)
        assert all(new.reply.text == old.reply.text for new, old in pairs), "draw by draw"
        assert all(
            (Flag.REUSED in turn.flags) == turn.reply.reused == bool(turn.messages) for turn in turns[newest]
        )
        assert sum(turn.reply.latency_s for turn in turns[newest]) == 0
    compared = paid.trinity("compare", f"{newest}/random", f"{older}/random")
    assert "Replies of earlier runs were reused here" in compared.out
    assert paid.run(*run).code == 0
    assert calls(paid) == asked, "nothing is reused unless it is asked for"


def test_what_was_not_the_very_same_call_is_made(paid: Sums) -> None:
    def reused(*more: object) -> bool:
        alone = ("--policy", "single:adder", "--n", 2, "--max-cost", 9, "--reuse")
        result = paid.done("run", *paid.test_tasks, *alone, *more)
        assert ("reused from earlier runs" in result.err) == (calls(paid) == 0)
        return "reused from earlier runs" in result.err

    assert not reused()
    assert reused()
    assert not reused("--seed", 1), "another draw"
    pool = paid.folder / "pool.toml"
    before = pool.read_text()
    pool.write_text(before + before.replace('"adder"', '"third"').replace('"guesser"', '"fourth"'))
    assert reused(), "more models in the pool change nothing for those that were there"
    for changed in ("temperature = 0.1", "model = 'other'", "max_tokens = 77"):
        pool.write_text(before.replace('name = "adder"', f'name = "adder"\n{changed}'))
        assert not reused(), changed
    pool.write_text(before)
    assert reused()


@pytest.mark.usefixtures("evolving")
def test_evolutions_that_reuse_share_their_replies(paid: Sums) -> None:
    small = ("--generations", 2, "--population", 4, "--replicates", 4, "--turns", 2, "--max-cost", 9)
    evolve = ("evolve", "--tasks", paid.tasks, *small, "--reuse", "--json")
    first = paid.done(*evolve)
    assert "No reply was reused" in first.err
    asked = calls(paid)
    second = paid.trinity(*evolve)
    assert calls(paid) == 0
    assert f"{asked} replies were reused" in second.err
    assert second.json["digest"] == first.json["digest"], "the same evolution, for nothing"
