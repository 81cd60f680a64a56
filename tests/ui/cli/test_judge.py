"""Tasks that a model judges, from the published file to the page: real commands, a real server, nothing paid twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.episode import Episode
from core.tasks.sets import load_task_file
from storage.analysis.costs import JUDGE, judging
from storage.files.parquet import read_rows
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store, open_store
from tests.core.pool.faulty_server import Answer, Request, chat, fail, faulty_server, respond
from tests.ui.pages import opened, plainly
from tests.ui.sums import Sums
from ui.answers import pool
from ui.answers.asked import asked_of
from ui.answers.blocks import Table
from ui.answers.costs import spending
from ui.runs import wiring
from ui.runs.plans import LivePlan
from ui.runs.queue import Ticket, enqueue
from ui.runs.worker import play_claimed

#: A judgement has 11 tokens sent and 7 written, as the server counts: this many dollars.
JUDGE_USD = (11 * 1000 + 7 * 1000) / 1e6
POOL = """
[[model]]
name = "writer"
base_url = "{url}"
price_in = 100
price_out = 100

[[model]]
name = "poet"
base_url = "{url}"
price_in = 100
price_out = 100

[[model]]
name = "jo"
model = "big"
base_url = "{url}"
price_in = 1000
price_out = 1000
max_tokens = 64
judge = true
"""
SAYS = "JUDGE-SAYS-THIS"


class Critic:
    """A server whose writer replies worth 4 and whose poet replies worth 9, in words that the judge takes up."""

    def __init__(self) -> None:
        self.judge: list[Answer] = []  # what it answers first
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Answer:
        user = request.body["messages"][-1]["content"]
        if request.body["model"] == "big":
            self.asked.append(request)
            if self.judge:
                return self.judge.pop(0)
            (worth,) = set(re.findall(r"worth (\d+)", user.partition("The reply to rate:")[2]))
            return (respond(chat(f"{SAYS}: so so.\nRating: [[{worth}]]"), kept=True),)
        if verdict := re.search(r"^VERDICT-\w+: ACCEPT$", user, re.MULTILINE):
            return (respond(chat(f"Fine.\n{verdict[0]}"), kept=True),)
        if "you are the Thinker" in user:
            return (respond(chat("<suggestion>Be short.</suggestion>"), kept=True),)
        subject = re.findall(r"rain|snow|wind", user)[0]
        worth = 9 if request.body["model"] == "poet" else 4
        return (respond(chat(f"<answer>A line on {subject}, worth {worth}.</answer>"), kept=True),)


@pytest.fixture
def critic() -> Critic:
    return Critic()


@pytest.fixture
def world(evolving: Sums, critic: Critic) -> Iterator[Sums]:
    """Two models that write and one that judges, and MT-Bench in small."""
    with faulty_server(critic) as server:
        (evolving.folder / "pool.toml").write_text(POOL.format(url=server.url))
        rows = [
            {"question_id": n, "category": "writing", "turns": [f"Write about {word}.", "Again."]}
            for n, word in enumerate(("rain", "snow", "wind"))
        ]
        (evolving.folder / "question.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        evolving.server = server
        evolving.done("tasks", "add", "mt-bench", evolving.folder / "question.jsonl")
        yield evolving


def run(world: Sums, *more: object) -> Any:
    return world.trinity(
        *("run", "--tasks", "mt-bench", "--split", "test", "--turns", 2, "--validate", 0, "--json", *more)
    )


def episodes(store: Store) -> list[Episode]:
    page = store.episodes.page(EpisodeFilter(), order="oldest", limit=50)
    return [store.episodes.get(one.id) for one in page.items]


def test_replies_are_rated_and_what_that_cost_is_told_apart(world: Sums, critic: Critic) -> None:
    result = run(world, "--policy", "single:writer", "--policy", "single:poet", "--max-cost", 5)
    assert result.code == 0, result.err
    assert "jo takes no turns" in result.err
    writer, poet = result.json
    assert (writer["accuracy"], writer["rating_mean"], poet["accuracy"], poet["rating_mean"]) == (0, 4, 1, 9)
    assert (writer["judge_calls"], writer["judge_cost_usd"]) == (3, pytest.approx(3 * JUDGE_USD))
    assert len(critic.asked) == 6  # every reply once
    assert {one.body["temperature"] for one in critic.asked} == {0.0}
    others = [one for one in world.server.requests if one.body["model"] != "big"]
    assert SAYS not in repr([one.body for one in others])
    known, spent = world.last_run()
    with world.kept() as store:
        played = episodes(store)
        first = played[0]
        [said] = first.judgements
        assert (said.judge, said.rating, said.answer, said.index) == ("jo", 4, first.answer, 1)
        assert said.reply.text.startswith(SAYS)
        assert judging(store, EpisodeFilter())["jo"].tokens == 6 * 18
        by_role = spending(asked_of(store, EpisodeFilter())).blocks[0]
        assert isinstance(by_role, Table)
        [(replies, cost)] = [(row[2], row[5]) for row in by_role.rows if row[0] == JUDGE]
        assert (replies, cost) == (6, pytest.approx(6 * JUDGE_USD))
        [of_pool] = pool.spending(asked_of(store, EpisodeFilter()))
        assert "Most go to jo as Judge" in of_pool.sentence
        own = sum(turn.reply.usage.cost_usd or 0.0 for one in played for turn in one.turns)
        assert store.episodes.summary(first.id).cost_usd == pytest.approx(2 * 18 * 100 / 1e6)
        assert spent == pytest.approx(own + 6 * JUDGE_USD)
        assert store.episodes.page(EpisodeFilter(q="rating >= 7")).total.n == 3
        assert store.episodes.page(EpisodeFilter(q="any(turn.rating == 4)")).total.n == 3
        for kind in ("episodes", "turns"):
            ratings = read_rows(store, EpisodeFilter(run=known.id), kind).column("rating").to_pylist()
            assert sorted(one for one in ratings if one) == [4, 4, 4, 9, 9, 9]
    shown = world.done("episodes", "show", first.id)
    assert "Rated 4 of 10 by the judge jo; 7 or more counts as right. That cost $0.0180" in shown.out
    assert SAYS in shown.out
    [whole] = world.done("episodes", "show", first.id, "--json").json["judgements"]
    assert (whole["rating"], whole["reply"]["text"][: len(SAYS)]) == (4, SAYS)
    table = run(world, "--policy", "single:writer", "--max-cost", 5)
    assert table.code == 0, table.err


def test_no_judge_is_said_before_anything_is_played(world: Sums) -> None:
    pool = world.folder / "pool.toml"
    pool.write_text(pool.read_text().replace("judge = true", ""))
    lines = [
        {"question": f"Greet {split}.", "grader": "judge", "split": split}
        for split in ("evolve", "validation")
    ]
    own = world.folder / "own.jsonl"
    own.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for command in (
        ("run", "--policy", "random", "--tasks", "mt-bench", "--split", "test", "--validate", 0),
        ("evolve", "--name", "none", "--tasks", own),
    ):
        said = world.refused(*command)
        assert "is rated by a model, and the pool names none: write judge = true into the entry" in said
    assert not world.server.requests


def test_a_second_judge_and_nobody_to_coordinate_are_refused(world: Sums) -> None:
    pool = world.folder / "pool.toml"
    text = pool.read_text()
    pool.write_text(text.replace('name = "poet"', 'name = "poet"\njudge = true'))
    assert "poet, jo have judge = true: one model may have it" in world.refused("pool", "list")
    pool.write_text(text[text.rindex("[[model]]") :])
    assert "jo has judge = true: one model may have it, beside" in world.refused("pool", "list")
    pool.write_text(text)
    listed = world.done("pool", "list", "--json").json
    assert [one["name"] for one in listed if one["judge"]] == ["jo"]
    served = wiring.resolve_pool(str(pool), judged=False)  # the endpoint's: nobody knows what would be right
    assert [one.name for one in served.specs] == ["writer", "poet"]


def test_a_reply_apart_from_an_episode_cannot_be_rated(world: Sums, tmp_path: Path) -> None:
    line = {"question": "Greet me.", "answer": "Hello.", "said": "Hi.", "grader": "judge", "right": True}
    (tmp_path / "graded.jsonl").write_text(json.dumps(line))
    said = world.refused("tasks", "check", tmp_path / "graded.jsonl")
    assert (
        "is rated by a model, which is asked only while its episode is played: play it by trinity run" in said
    )
    assert not world.server.requests


def test_what_a_killed_run_had_judged_is_not_paid_for_again(world: Sums, critic: Critic) -> None:
    unreadable: Answer = (respond(chat("I would rather not say."), kept=True),)
    critic.judge = [unreadable] * 2 + [fail(400, "no such model")]
    first = run(world, "--policy", "single:poet", "--max-cost", 5)
    assert first.code == 1
    known, before = world.last_run()
    with world.kept() as store:
        errors = [one.error for one in episodes(store) if one.error]
        assert any("was asked 2 times and gave no rating from 1 to 10" in one for one in errors), errors
        judged = sum(len(one.judgements) for one in episodes(store))
    asked, writing = len(critic.asked), len(world.server.requests) - len(critic.asked)
    resumed = world.done("run", "--resume", known.id, "--json")
    assert (resumed.json[0]["accuracy"], resumed.json[0]["n"]) == (1, 3)
    lost = len(errors)
    assert len(critic.asked) == asked + lost  # what was rated is not rated again
    assert len(world.server.requests) - len(critic.asked) == writing  # and no reply is paid for twice
    with world.kept() as store:
        played = episodes(store)
        assert sum(len(one.judgements) for one in played) == judged + lost
        paid = [one.reply.usage.cost_usd or 0.0 for each in played for one in each.judgements]
        spent = store.runs.spent_usd(known.id)
    assert spent == pytest.approx(before + lost * JUDGE_USD)
    assert sum(paid) == pytest.approx(JUDGE_USD * sum(one > 0 for one in paid))


def test_the_ceiling_holds_for_the_judge_too(world: Sums, critic: Critic) -> None:
    result = run(world, "--policy", "single:poet", "--max-cost", "0.9")
    assert result.code == 1
    assert "could exceed the ceiling of $0.9000" in result.err
    _, spent = world.last_run()
    assert spent <= 0.9


def test_a_reply_by_hand_is_rated_as_its_fork_is_played(world: Sums, critic: Critic) -> None:
    assert run(world, "--policy", "single:writer", "--n", 1, "--max-cost", 5).code == 0
    with world.kept() as store:
        [parent] = episodes(store)
    mine = world.folder / "mine.txt"
    mine.write_text("<answer>My own line, worth 10.</answer>")
    critic.asked.clear()
    once = ("--turn", 2, "--n", 1, "--baseline", 1, "--max-cost", 5, "--json")
    told = world.done("fork", parent.id, "--reply", mine, *once).json
    assert len(critic.asked) == 2  # the baseline's new reply, and the one by hand
    known, spent = world.last_run()
    assert told["cost_usd"] == pytest.approx(spent)
    with world.kept() as store:
        children = [store.episodes.get(one.id) for one in store.episodes.of_run(known.id)]
    ended = {one.fork.part: one for one in children if one.fork}
    assert [ended[part].correct for part in ("baseline", "fork")] == [False, True]
    hand = ended["fork"]
    assert [(one.index, one.rating) for one in hand.judgements] == [(1, 10)]
    assert hand.turns[1].correct_after is True


def test_an_evolution_learns_from_ratings_and_pays_for_each_once(world: Sums, critic: Critic) -> None:
    lines = [
        {"question": f"Write line {n} about rain.", "grader": "judge", "split": split}
        for n, split in enumerate(["evolve"] * 4 + ["validation"] * 2 + ["test"] * 2)
    ]
    (world.folder / "own.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tiny = ("--generations", 1, "--population", 4, "--replicates", 2, "--turns", 2)
    result = world.trinity(
        *(
            "evolve",
            "--name",
            "judged",
            "--tasks",
            world.folder / "own.jsonl",
            *tiny,
            "--max-cost",
            50,
            "--json",
        ),
        *("--no-controls", "--n", 4, "--record", "all"),
    )
    assert result.code == 0, result.err
    _, spent = world.last_run()
    others = len(world.server.requests) - len(critic.asked)
    assert spent == pytest.approx(others * 18 * 100 / 1e6 + len(critic.asked) * JUDGE_USD)
    bodies = [json.dumps(one.body["messages"]) for one in critic.asked]
    assert len(bodies) == len(set(bodies))
    with world.kept() as store:
        played = [one for one in episodes(store) if one.judgements]
    assert {one.reward for one in played if one.answer} <= {0.0, 1.0}
    assert all((one.correct is True) == (one.judgements[-1].rating == 9) for one in played)


def test_judgements_travel_and_a_reader_can_have_them_forgotten(world: Sums, tmp_path: Path) -> None:
    assert run(world, "--policy", "single:writer", "--n", 1, "--max-cost", 5).code == 0
    known, _ = world.last_run()
    file = tmp_path / "runs.jsonl"
    world.done("export", known.id, "--out", file)
    assert SAYS in file.read_text()
    broken = tmp_path / "broken.jsonl"
    other = ("--store", tmp_path / "other.db")
    world.done("import", file, *other)
    shown = world.done("episodes", "--json", *other).json["episodes"][0]["id"]
    [said] = world.done("episodes", "show", shown, "--json", *other).json["judgements"]
    assert (said["rating"], said["judge"]) == (4, "jo")
    broken.write_text(file.read_text().replace('"rating":4.0', '"rating":40.0'))
    assert "judgements.0.rating" in world.trinity("import", broken, "--store", tmp_path / "third.db").err
    world.done("prune", "--what", "texts", "--where", "turns > 0", "--yes")
    assert SAYS not in world.done("episodes", "show", shown).out
    with world.kept() as store:
        [kept] = store.episodes.get(shown).judgements
    assert (kept.rating, kept.reply.text, kept.messages) == (4, "", ())


@pytest.mark.integration
def test_the_page_shows_the_rating_at_the_turn_whose_answer_it_is_of(world: Sums) -> None:
    assert run(world, "--policy", "single:writer", "--n", 1, "--max-cost", 5).code == 0
    with world.kept() as store:
        [played] = episodes(store)
    planned, written = (plainly(opened("replay", ep=played.id, t=turn)) for turn in ("1", "2"))
    assert "Rated" not in planned
    assert "Rated 4 of 10 by the judge jo; 7 or more counts as right. That cost $0.0180" in written
    assert f"{SAYS}: so so." in written
    assert "the judge $0.0180" in written
    hidden = plainly(opened("replay", ep=played.id, t="2", zen="1"))
    assert SAYS not in hidden


@pytest.mark.integration
@pytest.mark.usefixtures("no_workers")
def test_live_a_judge_rates_and_its_words_are_no_part_of_the_turn(world: Sums, critic: Critic) -> None:
    with closing(open_store(world.store)) as store:
        [task, *_] = load_task_file("mt-bench")
        plan = LivePlan(
            *(task, "single:poet", ("writer", "poet"), str(world.folder / "pool.toml")),
            turns=2,
            temperature=1.5,
            max_cost_usd=5.0,
            tasks="mt-bench",
        )
        run_id = enqueue(store, plan, Ticket())[0]
        assert play_claimed(store, run_id) == 0
        [ended] = store.episodes.of_run(run_id)
        whole = store.episodes.get(ended.id)
    assert ended.correct is True
    assert [(one.index, one.rating) for one in whole.judgements] == [(1, 9)]
    assert SAYS not in repr(whole.turns)
    told = {one.body["model"]: one.body["temperature"] for one in world.server.requests}
    assert told == {"poet": 1.5, "big": 0.0}
