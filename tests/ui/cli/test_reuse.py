"""`--reuse`: a reply that an earlier run of the store has got is not paid for again."""

from __future__ import annotations

import pytest

from core.episode import Flag
from tests.ui.sums import Sums

SMALL = ["--generations", 2, "--population", 4, "--replicates", 4, "--turns", 2, "--max-cost", 9]


@pytest.fixture
def world(evolving: Sums) -> Sums:
    """Models that cost money, and tasks to evolve on."""
    evolving.price(10.0)
    return evolving


def calls(world: Sums) -> int:
    """How many there were since it was asked last."""
    n = len(world.server.requests)
    world.server.requests.clear()
    return n


def test_a_run_takes_the_replies_of_an_earlier_one(world: Sums) -> None:
    run = ("--policy", "random", "--turns", 4, "--max-cost", 9)
    first = world.run(*run, "--json")
    asked = calls(world)
    again = world.run(*run, "--json", "--reuse")
    assert again.json == first.json
    assert calls(world) == 0
    saved = asked * 18 * 10 / 1e6
    assert f"{asked} replies were reused from earlier runs, which saved ${saved:.4f}" in again.err
    assert "share their luck" in again.err
    with world.kept() as store:
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
    compared = world.trinity("compare", f"{newest}/random", f"{older}/random")
    assert "Replies of earlier runs were reused here" in compared.out
    assert world.run(*run).code == 0
    assert calls(world) == asked, "nothing is reused unless it is asked for"


def test_what_was_not_the_very_same_call_is_made(world: Sums) -> None:
    def reused(*more: object) -> bool:
        alone = ("--policy", "single:adder", "--n", 2, "--max-cost", 9, "--reuse")
        result = world.done("run", *world.test_tasks, *alone, *more)
        assert ("reused from earlier runs" in result.err) == (calls(world) == 0)
        return "reused from earlier runs" in result.err

    assert not reused()
    assert reused()
    assert not reused("--seed", 1), "another draw"
    pool = world.folder / "pool.toml"
    before = pool.read_text()
    pool.write_text(before + before.replace('"adder"', '"third"').replace('"guesser"', '"fourth"'))
    assert reused(), "more models in the pool change nothing for those that were there"
    for changed in ("temperature = 0.1", "model = 'other'", "max_tokens = 77"):
        pool.write_text(before.replace('name = "adder"', f'name = "adder"\n{changed}'))
        assert not reused(), changed
    pool.write_text(before)
    assert reused()


def test_evolutions_that_reuse_share_their_replies(world: Sums) -> None:
    evolve = ("evolve", "--tasks", world.tasks, *SMALL, "--reuse", "--json")
    first = world.done(*evolve)
    assert "No reply was reused" in first.err
    asked = calls(world)
    second = world.trinity(*evolve)
    assert calls(world) == 0
    assert f"{asked} replies were reused" in second.err
    assert second.json["digest"] == first.json["digest"], "the same evolution, for nothing"
