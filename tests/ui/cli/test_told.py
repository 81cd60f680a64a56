"""What commands say before they play, and what they say of the replies afterwards."""

from __future__ import annotations

import json
import re
import shlex
from io import StringIO

import pytest
import uvicorn
from rich.console import Console
from rich.progress import TimeRemainingColumn

from core.episode import Flag
from storage.filters.episode_filter import EpisodeFilter
from tests.core.pool.faulty_server import Answer, Request, chat, fail, ok, respond
from tests.ui.sums import Sums, answer, reply
from ui.cli import console
from ui.cli.console import progress

pytestmark = pytest.mark.usefixtures("evolving")
SMALL = ["--generations", 2, "--population", 4, "--replicates", 4, "--turns", 2]
SMALL += ["--validation", 0, "--no-controls"]
REFUSED = "response was filtered: content_filter"


def unwilling(request: Request) -> Answer:
    """The guesser's provider refuses every prompt; the adder finds every other question too long."""
    if request.body["model"] == "guesser":
        return fail(400, REFUSED)
    a = int(re.findall(r"\d+", str(request.body["messages"][-1]["content"]))[0])
    return fail(400, "maximum context length is 10 tokens") if a % 2 else answer(request)


def silent(request: Request) -> Answer:
    """Replies without counts of tokens."""
    told = json.loads(chat(reply(request)))
    del told["usage"]
    return (respond(json.dumps(told).encode()),)


def test_a_run_tells_refused_replies_from_failed_ones(world: Sums) -> None:
    world.server.answer = unwilling
    result = world.run("--policy", "single:adder", "--policy", "single:guesser", "--validate", 0)
    header = next(line for line in result.out.splitlines() if "no verdict" in line)
    assert header.split()[-2:] == ["refused", "failed"]
    lines = {line.split()[0]: line for line in result.out.splitlines() if line.startswith(("adder", "guess"))}
    assert lines["guesser"].split()[-1] == "%"
    assert "100.0 %" in lines["guesser"]
    assert "Warning: guesser, refused:" in result.err
    assert "Warning: adder, failed:" in result.err
    assert "Warning: guesser, failed" not in result.err
    run = next(line for line in result.err.splitlines() if line.startswith("Run ")).split()[1]
    for kind, model in (("refused", "guesser"), ("failed", "adder")):
        command = next(line for line in result.err.splitlines() if f"{model}, {kind}" in line)
        where = command.partition("--where '")[2].removesuffix("'")
        with world.kept() as store:
            found = store.episodes.page(EpisodeFilter(run=run, q=where), limit=1).items
            turns = [turn for turn in store.episodes.get(found[0].id).turns if Flag.MODEL_ERROR in turn.flags]
            assert {turn.decision.model for turn in turns} == {model}


def test_an_answer_in_the_field_for_refusals_counts_as_refused(world: Sums) -> None:
    world.server.answer = lambda _: ok("", refusal="I will not do sums.")
    result = world.run("--policy", "single:adder", "--validate", 0)
    assert "Warning: adder, refused:" in result.err
    assert "adder, no answer" not in result.err


def test_an_evolution_tells_what_replies_lacked_and_what_was_charged_at_its_bound(world: Sums) -> None:
    world.server.answer = lambda request: (
        fail(400, REFUSED) if request.body["model"] == "guesser" else silent(request)
    )
    world.price(1.0)
    result = world.done("evolve", "--tasks", world.tasks, *SMALL, "--max-cost", 100)
    assert "What replies lacked" in result.out
    assert "Warning: guesser, refused:" in result.err
    assert "Keep some to read by --record share" in result.err
    assert "came without counts of tokens" in result.err
    [played] = re.findall(r"^Play it: trinity (.*)$", result.err, re.MULTILINE)
    world.server.answer = lambda request: (respond(chat(reply(request))),)
    world.done(*shlex.split(played), "--n", 2, "--turns", 2, "--max-cost", 1)


def test_an_evolution_says_that_a_single_model_is_ahead_and_names_its_best_checkpoint(world: Sums) -> None:
    short = ("--generations", 1, "--population", 2, "--replicates", 2, "--turns", 3)
    result = world.done("evolve", "--tasks", world.tasks, *short, "--validation", 4, "--seed", 2)
    assert "Control, single:adder W V: 100.0 % of 4." in result.out
    [best, share] = re.search(r"checkpoint (\w+), ([\d.]+) %\.", result.out).groups()  # type: ignore[union-attr]
    assert float(share) < 100
    assert (
        "A single model solves more of these tasks. Where one model is best at all kinds of questions"
        in result.out
    )
    assert "--labels N begins from" in result.out
    assert "constant_spread" not in result.out  # any pool but the pocket one has it
    assert f"Play it: trinity run --policy {best} " in result.err


@pytest.mark.parametrize(
    ("written", "options", "helps"),
    [
        ("constant_spread = 0", (), ["--labels N", "constant_spread = 6"]),
        ("constant_spread = 0\nlogit_spread = 2.0", ("--labels", 4), ["constant_spread = 2"]),
        ('constant_spread = "plain"', ("--labels", 4), []),
    ],
)
def test_what_helps_where_a_single_model_is_ahead_is_said_where_it_was_not_tried(
    world: Sums, written: str, options: tuple[object, ...], helps: list[str]
) -> None:
    file = world.folder / "own.toml"
    file.write_text(written)
    short = ("--generations", 1, "--population", 2, "--replicates", 2, "--turns", 1, "--validation", 4)
    result = world.done("evolve", "--tasks", world.tasks, *short, "--config", file, *options)
    [said] = re.findall("A single model solves more.*", result.out)
    every = ("--labels N", "constant_spread = 6", "constant_spread = 2")
    assert [one for one in every if one in said] == helps


def test_an_encoder_that_no_policy_reads_with_is_told(world: Sums) -> None:
    said = world.run("--policy", "random", "--n", 1, "--turns", 2, "--encoder", "nonesuch").err
    assert "None of these policies reads with an encoder, so --encoder nonesuch is not used." in said


def test_a_fork_tells_its_encoder_and_what_was_charged_at_its_bound(world: Sums) -> None:
    name = world.done("evolve", "--tasks", world.tasks, *SMALL, "--seed", 1, "--json").json["checkpoint"]
    assert world.run("--policy", name, "--n", 1, "--turns", 3).code == 0
    with world.kept() as store:
        [one] = store.episodes.page(EpisodeFilter(checkpoint=name), limit=1).items
    world.server.answer = silent
    world.price(1.0)
    once = ("--n", 1, "--baseline", 1, "--max-cost", 10)
    result = world.done("fork", one.id, "--turn", 1, "--role", "thinker", *once)
    assert re.search(r"Encoder .* million numbers, float32, on the CPU, window [\d,]+ tokens", result.err)
    assert re.search(r"To expect: about \d+ calls, \$", result.err)
    assert "came without counts of tokens" in result.err


def test_what_the_encoders_window_would_cut_is_told_before_anything_is_played_or_served(
    world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    first = world.trinity("evolve", "--tasks", world.tasks, *SMALL, "--generations", 1, "--json")
    assert "All questions fit the encoder's window" in first.err
    assert "nothing is recorded of these models" in first.err
    assert "would cut is not known yet" in world.trinity("serve").err
    wordy = "so " * 3000
    world.server.answer = lambda request: (respond(chat(wordy + reply(request))),)
    played = world.run("--policy", first.json["checkpoint"], "--n", 4, "--turns", 3)
    share = re.search(r"window cut the transcript in (\d+) of (\d+) turns", played.err)
    assert share, played.err
    cut = f"would cut {100 * int(share[1]) / int(share[2]):.1f} % of {share[2]} recorded transcripts"
    assert cut in world.trinity("evolve", "--tasks", world.tasks, *SMALL, "--generations", 1, "--json").err
    assert re.search(rf"Warning: .* {cut}", world.trinity("serve").err)


def test_progress_says_how_much_time_is_left() -> None:
    assert any(isinstance(column, TimeRemainingColumn) for column in progress().columns)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """What a person sees on a terminal of what goes to stderr."""
    seen = StringIO()
    monkeypatch.setattr(console, "err", Console(file=seen, force_terminal=True, width=200))
    return seen


def test_exports_imports_and_checks_show_how_far_they_are(world: Sums, terminal: StringIO) -> None:
    run = world.run("--policy", "single:adder", "--json", "--n", 6)
    [played] = re.findall(r"Run (\w+)", terminal.getvalue())
    assert run.code == 0
    assert "Loading libraries and models ..." in terminal.getvalue()
    files = {"csv": "episodes", "parquet": "turns", "html": "pages", "jsonl": "episodes"}
    for form, noun in files.items():
        terminal.truncate(terminal.seek(0))
        ending = "zip" if form == "html" else form
        world.done("export", played, "--format", form, "--out", world.folder / f"out.{ending}")
        done = 12 if noun == "turns" else 6
        assert re.search(rf"{noun} .*{done}/{done}.*left", terminal.getvalue()), terminal.getvalue()
    terminal.truncate(terminal.seek(0))
    other = ("--store", world.folder / "other.db")
    world.done("import", world.folder / "out.jsonl", *other)
    assert re.search(r"megabytes read .*/1.*out\.jsonl.*left", terminal.getvalue()), terminal.getvalue()
    for options, line in ((), "models .*2/2"), (("--roles",), "calls .*12/12"):
        terminal.truncate(terminal.seek(0))
        world.trinity("pool", "check", *options)
        assert re.search(rf"{line}.*left", terminal.getvalue()), terminal.getvalue()


def test_nothing_of_a_bar_is_said_where_nobody_sees_it(world: Sums) -> None:
    said = world.trinity("pool", "check")
    assert sorted(said.err.splitlines()) == ["adder: answered", "guesser: answered"]
    assert world.run("--policy", "single:adder", "--n", 2).code == 0
    said = world.trinity("export", "--all", "--out", world.folder / "out.jsonl")
    assert re.fullmatch(r"Wrote .*: 1 run, 2 episodes\n", said.err), said.err
    other = ("--store", world.folder / "other.db")
    assert world.trinity("import", world.folder / "out.jsonl", *other).err == ""


def test_a_run_tells_what_unreadable_answers_cost_and_which_ends_nobody_knows(world: Sums) -> None:
    """Every other answer breaks off; the others stop for a reason of the server's own."""
    asked: list[str] = []

    def broken(request: Request) -> Answer:
        asked.append(str(request.body["messages"]))
        body = chat(reply(request), finish_reason="pause_turn")
        return (respond(body[: len(body) // 2] if asked.count(asked[-1]) % 2 else body),)

    world.server.answer = broken
    world.price(1.0)
    alone = ("--policy", "single:adder", "--validate", 0, "--n", 2, "--max-cost", 10)
    result = world.done("run", *world.test_tasks, *alone)
    assert re.search(r"\d+ calls had answers that could not be read or broke off\. They cost \$", result.err)
    assert "Warning: adder, unknown end:" in result.err
    run = next(line for line in result.err.splitlines() if line.startswith("Run ")).split()[1]
    with world.kept() as store:
        assert 0 < store.runs.unread_usd(run) < store.runs.spent_usd(run)
        found = store.episodes.page(
            EpisodeFilter(run=run, q="any(turn.unread_cost > 0)", flag="unknown_finish"), limit=5
        )
        assert len(found.items) == 2


def test_calls_that_were_repeated_are_told_once_and_their_cost_is_a_bound(world: Sums) -> None:
    asked: list[Request] = []

    def sometimes(request: Request) -> Answer:
        asked.append(request)
        return fail(503, "busy") if len(asked) in (1, 3) else silent(request)

    world.server.answer = sometimes
    world.price(1.0)
    alone = ("--policy", "single:adder", "--validate", 0, "--n", 1, "--max-cost", 1)
    told = world.done("run", *world.test_tasks, *alone).err
    assert told.count("was asked again") == 1
    assert "adder was asked again 2 times: 2 after 503" in told
    assert "retry_scheduled" not in told
    assert "3 replies came without counts of tokens" in told
